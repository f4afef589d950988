"""`handoffd skill`: what a chat agent has to know about handoffd, put where it looks for skills."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shlex import join, quote
from typing import Any

import click

from handoffd.cli.asking import json_option, print_json
from handoffd.errors import Refused


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
    from handoffd.cli.skill_folder import standing, write

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
    from handoffd.cli.skill_folder import remove, standing

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
    from handoffd.cli.skill_folder import shipped

    if as_json:
        print_json({"type": "skill", "text": shipped()})
    else:
        click.echo(shipped(), nl=False)


def _place(given: dict[str, Any]) -> Any:
    from handoffd.cli.skill_folder import place_of

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
