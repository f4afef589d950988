"""`handoffd projects`: the supervised projects; `handoffd scan`: the projects below a folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from handoffd.cli.asking import json_option, print_json
from handoffd.cli.wording import no_daemon, plain, styled, table
from handoffd.engine.wording import counted
from handoffd.entrance.place import Place
from handoffd.entrance.requests import account, ask, either
from handoffd.errors import Json, NotFound


# --- projects ------------------------------------------------------------------------------------------
@click.command()
@json_option
@click.pass_obj
def projects(place: Place, as_json: bool) -> None:
    """List the supervised projects."""
    answer = ask(place, "projects")
    if as_json:
        print_json(answer.json)
        return
    rows = [
        [
            plain(one["name"]),
            str(one["level"]),
            styled(one["status"] or one["condition"]),
            plain(one["project"]),
        ]
        for one in answer.json["projects"]
    ]
    lines = (
        table(("PROJECT", "LEVEL", "STATUS", "ROOT"), rows)
        if rows
        else ["No project is supervised: handoffd add PROJECT"]
    )
    click.echo("\n".join(lines))


# --- scan ----------------------------------------------------------------------------------------------

_AT_ONCE = 500
"""Most projects that one request adds."""


class Scanned(Struct, frozen=True, kw_only=True):
    """The result of a scan: each project as JSON, and what the scan could not read."""

    folder: str
    adding: str
    """The command that adds the projects found."""
    projects: tuple[Json, ...]
    others: int
    unread: tuple[str, ...]
    stopped: bool


def _patterns(_: click.Context, option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    from pathspec import GitIgnoreSpec

    for pattern in given:
        try:
            GitIgnoreSpec.from_lines([pattern])
        except ValueError as error:
            raise click.BadParameter(
                f"{pattern!r} is not a pattern as in .gitignore", param=option
            ) from error
    return given


@click.command()
@click.argument("folder", metavar="DIR")
@click.option(
    "--depth", type=click.IntRange(1, 8), default=2, show_default=True, help="How many levels down."
)
@click.option(
    "--exclude", metavar="PATTERN", multiple=True, callback=_patterns,
    help="Folders to skip, as in .gitignore. Can be repeated.",
)  # fmt: skip
@click.option("--add", is_flag=True, help="Supervise all projects found; trusts their current files.")
@click.option("--take", is_flag=True, help="With --add: also take projects away from another handoffd.")
@json_option
@click.pass_obj
def scan(
    place: Place, folder: str, depth: int, exclude: tuple[str, ...], add: bool, take: bool, as_json: bool
) -> None:
    """List the projects below DIR, with status and problems, and whether each is supervised.

    A project is a folder with an `.ai` of the protocol; links are not followed. Exit code 1: a project
    could not be added.
    """
    found = look(folder, depth, exclude, progress=not as_json and sys.stderr.isatty())
    known, daemon = _known(place)
    outcome = _nothing()
    if add:
        lost = {root for root, one in known.items() if take and one["condition"] == "locked"}
        new = [one["project"] for one in found.projects if one["project"] not in known.keys() - lost]
        outcome = _add(place, new, take=take)
    told = {
        "added": {*outcome["added"]},
        "refused": {one["project"]: one["message"] for one in outcome["refused"]},
    }
    shown = [_shown(one, known, told) for one in found.projects]
    if as_json:
        walk = {"others": found.others, "unread": list(found.unread), "stopped": found.stopped}
        print_json({"folder": found.folder, "projects": shown, **outcome, **walk})
    else:
        click.echo("\n".join(report(found, shown, outcome, daemon=daemon)))
    if outcome["refused"]:
        click.get_current_context().exit(1)


def _nothing() -> Json:
    return {"added": [], "refused": []}


def look(folder: str, depth: int, exclude: tuple[str, ...] = (), *, progress: bool) -> Scanned:
    """Return the projects below a folder. Raises NotFound if it is not a folder."""
    from handoffd.inspection.discovery import discover, listed, of_workspace, resolved_base
    from handoffd.settings.model import WorkspaceSettings

    path = os.path.abspath(os.path.expanduser(folder))
    wanted = of_workspace(WorkspaceSettings(path=Path(path), depth=depth, exclude=exclude))
    base = resolved_base(wanted)
    if base is None:
        raise NotFound(f"{path} is not a folder", hint="handoffd scan DIR")
    found = discover(wanted, base, progress=_tell if progress else lambda _: None)
    if progress:
        click.echo("\r\033[K", nl=False, err=True)
    projects = tuple(_project(root, listed(Path(root))) for root in found.roots)
    return Scanned(
        folder=base, adding=wanted.scan("--add"), projects=projects, others=found.others,
        unread=tuple(found.unread), stopped=found.stopped,
    )  # fmt: skip


def _tell(found: Any) -> None:
    click.echo(
        f"\r\033[K{counted(found.folders, 'folder')}, {counted(len(found.roots), 'project')}",
        nl=False,
        err=True,
    )


def _project(root: str, one: Any) -> Json:
    project = os.fsencode(root).decode("utf-8", errors="replace")
    wrong = None
    if one.status == "invalid_state":
        wrong = "its STATE.json cannot be read"
    elif project != root:
        wrong = "its path is not UTF-8, so it cannot be supervised"
    step = one.step if one.has_framework else None
    return {
        "project": project, "name": one.name, "story": one.story, "step": step, "status": one.status,
        "wrong": wrong,
    }  # fmt: skip


def _known(place: Place) -> tuple[Mapping[str, Json], bool]:
    """Return the supervised projects by root, and whether a daemon answered."""
    answer = ask(place, "projects")
    return {one["project"]: one for one in answer.json["projects"]}, answer.daemon


def _add(place: Place, roots: Sequence[str], *, take: bool) -> Json:
    outcome = _nothing()
    for start in range(0, len(roots), _AT_ONCE):
        answer = _add_some(place, list(roots[start : start + _AT_ONCE]), account(), take=take)
        for name in outcome:
            outcome[name] += answer[name]
    return outcome


def _add_some(place: Place, roots: list[str], by: str, *, take: bool) -> Json:
    def without() -> Json:
        from handoffd.entrance import offline

        return offline.add_many(place.settings(), tuple(roots), by, take=take)

    body = {"projects": roots, "by": by, "take": take}
    return either(place, lambda client: client.post("/v1/projects", body), without).json


def _shown(one: Json, known: Mapping[str, Json], outcome: Json) -> Json:
    """Return a project with its status in the daemon."""
    root = one["project"]
    refused = outcome["refused"].get(root)
    condition = known[root]["condition"] if root in known else None
    wrong = (
        refused or one["wrong"] or (condition if condition not in {None, "ok", "not_initialized"} else None)
    )
    return {**one, "supervised": root in known or root in outcome["added"], "wrong": wrong}


def report(found: Scanned, shown: Sequence[Json], outcome: Json, *, daemon: bool) -> Iterator[str]:
    """Yield the lines about the projects found and added."""
    rows = [
        [
            plain(one["name"]), plain(one["story"] or "–"), plain(one["step"] or "–"), styled(one["status"]),
            "yes" if one["supervised"] else "no", plain(one["project"]),
        ]
        for one in shown
    ]  # fmt: skip
    if rows:
        head, *lines = table(("PROJECT", "STORY", "STEP", "STATUS", "SUPERVISED", "ROOT"), rows)
        yield head
        for line, one in zip(lines, shown, strict=True):
            yield line
            if one["wrong"]:
                yield f"    {plain(one['wrong'])}"
    yield from _closing(found, shown, outcome)
    if outcome["added"] and not daemon:
        yield no_daemon()


def _closing(found: Scanned, shown: Sequence[Json], outcome: Json) -> Iterator[str]:
    new = sum(not one["supervised"] for one in shown)
    added = len(outcome["added"])
    yield f"{_projects(len(shown))} below {plain(found.folder)}" + (f", {added} added" if added else "")
    if found.others:
        yield f"{counted(found.others, 'more folder')} without an .ai; set one up: handoffd init"
    if found.stopped:
        yield "The folder is too large for one scan; scan a folder further down."
    yield from (f"not read: {plain(folder)}" for folder in found.unread)
    if new and not outcome["refused"]:
        yield f"  next: {plain(found.adding)}"


def _projects(count: int) -> str:
    return counted(count, "project") if count else "no projects"
