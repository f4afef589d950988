"""`handoffd skill`: installs the skill that teaches a chat agent how to use handoffd."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from shlex import join, quote
from typing import Any, Final, Literal

import click
from msgspec import Struct

import handoffd
from handoffd.cli.asking import json_option, print_json
from handoffd.errors import NotFound, Refused
from handoffd.files.atomic import digest_of
from handoffd.files.rooted import open_parent, read_project_file, write_project_file
from handoffd.settings.paths import shared

# --- the folder of a skill -----------------------------------------------------------------------------
# Agents look for skills in the user's folder (`~/.claude/skills`) or the project's. A note beside it holds
# the digest of what we wrote, which tells a file that the user edited from one of an older release.
NAME: Final = "handoffd"
FILE: Final = "SKILL.md"
NOTE: Final = ".installed.json"
_LARGEST: Final = 1024 * 1024

Standing = Literal["absent", "current", "outdated", "changed"]


class Place(Struct, frozen=True, kw_only=True):
    """A folder for skills. The user may reach `root` through links; folders in `below` must not be links."""

    root: Path
    below: str = ""

    @property
    def file(self) -> Path:
        """The path of the skill, present or not."""
        return self.root / self.inside(FILE)

    def inside(self, name: str) -> str:
        """Return the path of a file of the skill, relative to the root."""
        return "/".join(part for part in (self.below, NAME, name) if part)


def place_of(folder: str | None, project: str | None, home: Path) -> Place:
    """Return where to put the skill: in `folder`, in `project`, else in the user's own folder of skills.

    Raises NotFound if the project is not a folder.
    """
    if folder is not None:
        return Place(root=Path(os.path.abspath(os.path.expanduser(folder))))
    if project is None:
        return Place(root=home / ".claude" / "skills")
    root = Path(os.path.abspath(os.path.expanduser(project)))
    if not root.is_dir():
        raise NotFound(f"{root} is not a folder", hint=f"ls {root.parent}")
    return Place(root=root, below=".claude/skills")


def shipped() -> str:
    """Return the skill as it ships."""
    return shared("config", "skill", FILE).read_text(encoding="utf-8")


def standing(place: Place) -> Standing:
    """Compare the installed skill with the shipped one. Raises StoreError if it is not safe to read."""
    found = _read(place, FILE)
    if found is None:
        return "absent"
    if found == shipped().encode():
        return "current"
    return "outdated" if digest_of(found) == _noted(place) else "changed"


def write(place: Place) -> None:
    """Write the skill, over an existing one. Raises StoreError."""
    place.root.mkdir(parents=True, exist_ok=True)
    text = shipped()
    note = {"version": handoffd.__version__, "digest": digest_of(text)}
    write_project_file(place.root, place.inside(FILE), text)
    write_project_file(place.root, place.inside(NOTE), json.dumps(note) + "\n")


def remove(place: Place) -> None:
    """Remove the skill, and its folder if it is empty then. Raises StoreError."""
    with open_parent(place.root, place.inside(FILE)) as folder:
        for name in (FILE, NOTE) if folder is not None else ():
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
    with open_parent(place.root, place.inside(FILE).removesuffix(f"/{FILE}")) as above, suppress(OSError):
        os.rmdir(NAME, dir_fd=above)  # the user may keep other files in it


def _read(place: Place, name: str) -> bytes | None:
    if not place.root.is_dir():
        return None
    seen = read_project_file(place.root, place.inside(name), _LARGEST)
    return None if seen is None else seen.content


def _noted(place: Place) -> str | None:
    try:
        noted = json.loads(_read(place, NOTE) or b"{}")
    except ValueError:
        return None
    digest = noted.get("digest") if isinstance(noted, dict) else None
    return digest if isinstance(digest, str) else None


# --- commands ------------------------------------------------------------------------------------------
def _placed(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the place of the skill, and for how to write it."""
    for option in (
        click.option("--force", is_flag=True, help="Also if the file was edited; the edits are lost."),
        click.option("--dry-run", is_flag=True, help="Show what would be done; do nothing."),
        click.option("--to", "folder", metavar="FOLDER", help="Folder of skills of another agent."),
        click.option("--project", metavar="PATH", help="For one project: PATH/.claude/skills."),
        click.option("--user", is_flag=True, help="For all of yours: ~/.claude/skills (the default)."),
    ):
        command = option(command)
    return json_option(command)


@click.group()
def skill() -> None:
    """Teach a chat agent how to use handoffd: a skill in the format that agents share."""


@skill.command()
@_placed
def install(**given: Any) -> None:
    """Install or update the skill where agents look for skills.

    An edited file stays unless --force is given.
    """

    place = _place(given)
    found = standing(place)
    if found == "changed" and not given["force"]:
        raise _changed(place.file, "install", given)
    due = found != "current"
    if due and not given["dry_run"]:
        write(place)
    _say(given, "installed", place.file, changed=due, before=found)


@skill.command()
@_placed
def uninstall(**given: Any) -> None:
    """Remove the skill. An edited file stays unless --force is given."""

    place = _place(given)
    found = standing(place)
    if found == "changed" and not given["force"]:
        raise _changed(place.file, "uninstall", given)
    due = found != "absent"
    if due and not given["dry_run"]:
        remove(place)
    _say(given, "uninstalled", place.file, changed=due, before=found)


@skill.command()
@json_option
def show(as_json: bool) -> None:
    """Print the shipped skill."""

    if as_json:
        print_json({"type": "skill", "text": shipped()})
    else:
        click.echo(shipped(), nl=False)


def _place(given: dict[str, Any]) -> Any:

    if sum(bool(given[name]) for name in ("user", "project", "folder")) > 1:
        raise click.UsageError("--user, --project and --to exclude each other")
    return place_of(given["folder"], given["project"], Path.home())


def _changed(file: Path, verb: str, given: dict[str, Any]) -> Refused:
    where = [
        word
        for option, name in (("--project", "project"), ("--to", "folder"))
        if given[name]
        for word in (option, given[name])
    ]
    forced = join(("handoffd", "skill", verb, *where, "--force"))
    message = f"{file} was edited, so it stays; to lose the edits: {forced}"
    return Refused(message, code="SKILL_CHANGED", hint=f"handoffd skill show | diff {quote(str(file))} -")


def _say(given: dict[str, Any], kind: str, file: Path, *, changed: bool, before: str) -> None:
    told = {
        "type": kind,
        "file": str(file),
        "changed": changed,
        "before": before,
        "dry_run": given["dry_run"],
    }
    if given["as_json"]:
        print_json(told)
        return
    if not changed:
        click.echo(f"{file}: {'up to date' if kind == 'installed' else 'not installed'}; nothing to do")
        return
    would = "would be " if given["dry_run"] else ""
    click.echo(f"{file}: {would}{'removed' if kind == 'uninstalled' else _WRITTEN[before]}")
    if kind == "installed" and not given["dry_run"]:
        click.echo("Start a new agent session: agents read skills at the start of a session.")


_WRITTEN = {"absent": "written", "outdated": "updated", "changed": "replaced"}
