"""`handoffd projects`: the supervised projects; `handoffd scan`: the projects below a folder.

And what `handoffd init` tries of a new one: its tests, a clone of it, the sandbox.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Self

import click
from msgspec import Struct

from handoffd.cli.asking import json_option, print_json, print_lines
from handoffd.cli.wording import no_daemon, plain, shorten, styled, table
from handoffd.engine.wording import command_for, counted
from handoffd.entrance.place import Place
from handoffd.entrance.requests import account, ask, either
from handoffd.errors import HandoffdError, Json, NotFound

if TYPE_CHECKING:
    from handoffd.api.client import Client


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
    from handoffd.cli.status_report import NO_PROJECT

    rows = [row for one in answer.json["projects"] for row in _rows(one)]
    lines = table(("PROJECT", "LEVEL", "STORY", "STATUS", "ROOT"), rows) if rows else [NO_PROJECT]
    click.echo("\n".join(lines))


def _rows(project: Json) -> Iterator[list[str]]:
    """Yield a row for each story of a project, and one for a project without."""
    for story in project.get("stories") or [project]:  # older daemons send only the first
        status = "done" if story["step"] == "done" else story["status"]
        yield [
            plain(project["name"]),
            str(project["level"]),
            shorten(story["story"] or "–", 24),
            styled(status or project["condition"]),
            plain(project["project"]),
        ]


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


# --- what `init` tries --------------------------------------------------------------------------------
def look_into(place: Place, initialised: Json, workspace: str | None, *, tests: bool, as_json: bool) -> None:
    """Try what a project needs, and add to the answer of `init` what came of that.

    `workspace` is what a person asked for; None: a clone is tried for a new project alone. Tests that ran in
    a clone and passed are not run again. Standard error has what goes on.
    """
    wanted = workspace or ("auto" if initialised.get("new") and tests else None)
    found = None
    if wanted is not None:
        found = _placed(place, initialised["project"], wanted, as_json=as_json, asked=workspace is not None)
    elif initialised.get("new"):
        why = "no tests were run, and they tell whether a clone has all that they need"
        found = _untried(why, command_for(initialised["project"], "init", "--workspace", "auto"))
    initialised["workspace"] = found
    tried = found["tests"] if found is not None and found["fits"] else None
    initialised["tried"], green = None, None
    if tests:
        initialised["tried"], green = _tests(place, initialised, tried, as_json=as_json)
    if green is False and found is not None and found["tests"]:
        found["remedy"] = "have the tests pass in the project's own folder first"
        found["command"] = command_for(initialised["project"], "init", "--workspace", "auto")
    initialised |= _of_git(place, initialised["project"])
    initialised["post_checks"] = _post_checks(place, initialised["project"])
    initialised["sandbox"] = _sandbox(place)


_PLACED = ("kind", "fits", "link", "why", "remedy", "command", "tests")


def _placed(place: Place, project: str, wanted: str, *, as_json: bool, asked: bool) -> Json:
    """Find out whether stories can work in clones; return where they work from now on.

    Raises HandoffdError only if a person `asked` for that: the project is initialised all the same.
    """
    again = command_for(project, "init", "--workspace", wanted)
    try:
        with _Progress(silent=as_json) as progress:
            answer = _trial(place, project, wanted, progress.tell)
    except KeyboardInterrupt:
        click.echo(f"Where stories work was not changed; to try it again: {plain(again)}", err=True)
        raise
    except HandoffdError as error:
        if asked:
            raise
        return _untried(f"no clone was tried: {error.message}", error.hint)
    return {name: answer[name] for name in _PLACED}


def _untried(why: str, command: str | None) -> Json:
    unknown = dict.fromkeys(_PLACED)
    return {**unknown, "kind": "root", "fits": False, "link": [], "why": why, "command": command}


def _trial(place: Place, project: str, wanted: str, tell: Callable[[str], None]) -> Json:
    from handoffd.doctor.service import path_in, unit_file_of

    def ask(client: Client) -> Json:
        body: Json = {"project": project, "wanted": wanted, "by": account()}
        try:
            while (answer := client.post("/v1/workspace/try", body))["checking"]:
                tell(answer["doing"])
                body["again"] = True
        except KeyboardInterrupt:
            with suppress(HandoffdError):  # without a daemon nothing goes on
                client.post("/v1/workspace/try", {**body, "wanted": "stop"})
            raise
        return answer

    def without() -> Json:
        from handoffd.entrance import offline

        path = path_in(unit_file_of(place.environ))
        return offline.try_workspace(place.settings(), project, wanted, tell, account(), path)

    return either(place, ask, without).json


def _tests(
    place: Place, initialised: Json, tried: Json | None, *, as_json: bool
) -> tuple[Json | None, bool | None]:
    """Return how the project's tests go, as they went in a clone or else run once as the daemon would.

    And whether they all passed; None: there are none.
    """
    from msgspec import to_builtins

    from handoffd.cli.doctor import judged_tests, try_tests

    if initialised["test_command"] is None:
        return None, None
    if tried is not None:
        return _plain_finding(to_builtins(judged_tests(place, tried))), True
    if not as_json:
        click.echo("Running the tests once as the daemon would, for at most 40 s ...", err=True)
    found, green = try_tests(place, initialised["project"])
    return _plain_finding(to_builtins(found)), green


def _post_checks(place: Place, project: str) -> list[Json]:
    from msgspec import to_builtins

    from handoffd.cli.doctor import judged_post_checks

    return [_plain_finding(to_builtins(one)) for one in judged_post_checks(place, project)]


def _of_git(place: Place, project: str) -> Json:
    """Return how to take out of git what handoffd rewrites, and what the daemon's commits are without.

    Each is None where there is nothing of that.
    """
    from msgspec import to_builtins

    from handoffd.doctor.projects import git_facts, rewritten, unlike_yours

    facts = git_facts([project], place.environ)
    kept, skipped = facts.kept.get(project), facts.skipped.get(project)
    take_out = to_builtins(rewritten(project, kept, ignored=True)) if kept else None
    unlike = to_builtins(unlike_yours(project, skipped)) if skipped else None
    return {
        "kept_by_git": _plain_finding(take_out) if take_out else None,
        "skipped_by_git": _plain_finding(unlike) if unlike else None,
    }


def _sandbox(place: Place) -> Json:
    """Try the sandbox that agents will have here; return what holds them."""
    from msgspec import to_builtins

    from handoffd.doctor.machine import check_sandbox, sandbox_facts

    (found,) = check_sandbox(sandbox_facts(place.settings().sandbox))
    return _plain_finding(to_builtins(found))


def _plain_finding(found: Json) -> Json:
    return {key: found[key] for key in ("severity", "what", "why", "action")}


class _Progress:
    """Says on standard error what a trial does; on a terminal also for how long it has been at that."""

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent
        self._counts = not silent and sys.stderr.isatty()
        self._doing = ""
        self._since = 0.0
        self._over = Event()
        self._counter = Thread(target=self._count, daemon=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._counter.is_alive():
            self._counter.join()
            click.echo("\r\033[K", nl=False, err=True)

    def tell(self, what: str) -> None:
        """Say what is done now."""
        if what == self._doing or self._silent:
            return
        if not self._doing:
            print_lines([_TRYING], err=True)
            if self._counts:
                self._counter.start()
        self._doing, self._since = what, time.monotonic()
        if not self._counts:
            click.echo(f"  {plain(what)} ...", err=True)

    def _count(self) -> None:
        while not self._over.wait(0.2):
            line = f"{self._doing} ... {time.monotonic() - self._since:.0f} s"
            click.echo(f"\r\033[K  {shorten(line, _WIDTH)}", nl=False, err=True)


_WIDTH = 76
_TRYING = (
    "Trying whether stories can work in clones of their own: the tests may take 5 min there"
    " (to skip that: --workspace root) ..."
)
