"""`handoffd skill`: what a chat agent has to know about handoffd, put where it looks for skills."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import join, quote
from typing import Any, Final, Literal

import click

import handoffd
from handoffd.cli.asking import json_option, print_json
from handoffd.errors import NotFound, Refused
from handoffd.files.atomic import digest_of
from handoffd.files.rooted import open_parent, read_project_file, write_project_file
from handoffd.settings.paths import shared

# --- the folder of a skill -----------------------------------------------------------------------------
# Agents look for skills in folders of a person (`~/.claude/skills`) or of a project. What we wrote is noted
# beside it by its digest, so that a file that a person changed is told from one of an older release.
NAME: Final = "handoffd"
FILE: Final = "SKILL.md"
NOTE: Final = ".installed.json"
_LARGEST: Final = 1024 * 1024

Standing = Literal["absent", "current", "outdated", "changed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A folder for skills. `root` may be reached through links, as a person made them; `below` it may not."""

    root: Path
    below: str = ""

    @property
    def file(self) -> Path:
        """Where the skill is, or would be."""
        return self.root / self.inside(FILE)

    def inside(self, name: str) -> str:
        """Return a file of the skill, below the root."""
        return "/".join(part for part in (self.below, NAME, name) if part)


def place_of(folder: str | None, project: str | None, home: Path) -> Place:
    """Return where to put the skill: in a folder of skills, in a project, else for a person's every project.

    Raises NotFound for a project that is no folder.
    """
    if folder is not None:
        return Place(root=Path(os.path.abspath(os.path.expanduser(folder))))
    if project is None:
        return Place(root=home / ".claude" / "skills")
    root = Path(os.path.abspath(os.path.expanduser(project)))
    if not root.is_dir():
        raise NotFound(f"{root} is no folder", hint=f"ls {root.parent}")
    return Place(root=root, below=".claude/skills")


def shipped() -> str:
    """Return the skill as it ships."""
    return shared("config", "skill", FILE).read_text(encoding="utf-8")


def standing(place: Place) -> Standing:
    """Return what is there. Raises StoreError for what is not safe to read."""
    found = _read(place, FILE)
    if found is None:
        return "absent"
    if found == shipped().encode():
        return "current"
    return "outdated" if digest_of(found) == _noted(place) else "changed"


def write(place: Place) -> None:
    """Put the skill there, over whatever is. Raises StoreError."""
    place.root.mkdir(parents=True, exist_ok=True)
    text = shipped()
    note = {"version": handoffd.__version__, "digest": digest_of(text)}
    write_project_file(place.root, place.inside(FILE), text)
    write_project_file(place.root, place.inside(NOTE), json.dumps(note) + "\n")


def remove(place: Place) -> None:
    """Take the skill away, and its folder if nothing else is in it. Raises StoreError."""
    with open_parent(place.root, place.inside(FILE)) as folder:
        for name in (FILE, NOTE) if folder is not None else ():
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
    with open_parent(place.root, place.inside(FILE).removesuffix(f"/{FILE}")) as above, suppress(OSError):
        os.rmdir(NAME, dir_fd=above)  # there may be more in it, of a person's


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
    """Add the options that say where, and how."""
    for option in (
        click.option("--force", is_flag=True, help="Also where somebody changed it: their text is lost."),
        click.option("--dry-run", is_flag=True, help="Say what would be done; do nothing."),
        click.option("--to", "folder", metavar="FOLDER", help="A folder of skills, of another agent."),
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
    """Write the skill where agents look for it, or bring it up to date.

    A file that somebody changed is left alone unless --force is given.
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
    """Take the skill away. A file that somebody changed stays unless --force is given."""

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
    """Print the skill as it ships."""

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
    message = f"{file} was changed by somebody, and stays; to give it up: {forced}"
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
        click.echo(f"{file}: {'as it ships' if kind == 'installed' else 'not there'}; nothing to do")
        return
    would = "would be " if given["dry_run"] else ""
    click.echo(f"{file}: {would}{'removed' if kind == 'uninstalled' else _WRITTEN[before]}")
    if kind == "installed" and not given["dry_run"]:
        click.echo("Agents read their skills when a session begins: start a new one.")


_WRITTEN = {"absent": "written", "outdated": "brought up to date", "changed": "replaced"}
