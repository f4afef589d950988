"""`handoffd doctor`: what will fail here and the command that fixes it; `executors`: what each can do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from handoffd.cli.asking import json_option, print_json
from handoffd.cli.wording import plain, styled, table
from handoffd.engine.wording import counted
from handoffd.entrance.place import Place
from handoffd.entrance.requests import account, ask, either
from handoffd.errors import HandoffdError, InvalidFile, NotFound

if TYPE_CHECKING:
    from handoffd.api.client import Client
    from handoffd.doctor.examination import Subject
    from handoffd.doctor.finding import Finding
    from handoffd.errors import Json
    from handoffd.execute.executor import Capabilities, Executor
    from handoffd.execute.registry import ExecutorBook, Installation
    from handoffd.settings.loading import Given
    from handoffd.settings.model import Settings


@click.command()
@click.argument("projects", nargs=-1, metavar="[PROJECT]...")
@json_option
@click.pass_obj
def doctor(place: Place, projects: tuple[str, ...], as_json: bool) -> None:
    """Report what will fail on this machine, why, and the command that fixes it. Changes nothing.

    The daemon need not run. Exit code 1: something keeps handoffd from working. doctor runs the tests of
    each PROJECT once, as the daemon would, for at most 40 seconds.
    """
    from handoffd.doctor.examination import examine
    from handoffd.doctor.finding import as_json as told
    from handoffd.doctor.finding import is_sound

    findings = (*examine(_subject(place)), *(try_tests(place, place.project(one))[0] for one in projects))
    if as_json:
        print_json(told(findings))
    else:
        click.echo("\n".join(report(findings)))
    if not is_sound(findings):
        click.get_current_context().exit(1)


def _subject(place: Place) -> Subject:
    from handoffd.doctor.examination import Subject
    from handoffd.fleet.name_checks import misfits
    from handoffd.settings.loading import Given

    given = Given(flags={"config": place.config}, environ=place.environ, daemon=False)
    # Most checks also work with the default settings.
    loaded, judged = _loaded(given), _loaded(given, misfits)
    usable = not isinstance(loaded, InvalidFile)
    return Subject(
        settings=loaded.settings if usable else None,
        file=loaded.file if usable else None,
        invalid=judged if isinstance(judged, InvalidFile) else None,
        socket=_socket(place),
        environ=place.environ,
        look=_look,
        config=place.config,
        secret_files=given.secret_files(),
    )


def _loaded(given: Given, further: Any = None) -> Any:
    """Return the settings, or the error that they raise."""
    from handoffd.errors import remedies

    try:
        with remedies("/"):  # variables and flags keep their names; files get their whole path
            return given.load(further)
    except InvalidFile as invalid:
        return invalid


def _socket(place: Place) -> Path | None:
    try:
        return place.socket()
    except InvalidFile:
        return None


def _look(settings: Settings, silent: frozenset[str]) -> dict[str, Any]:
    from handoffd.entrance import offline
    from handoffd.protocol.state import plain

    return plain(offline.look(settings, lambda service: service.status(), silent))


# --- executors ----------------------------------------------------------------------------------------
_HEAD = (
    "EXECUTOR",
    "INSTALLED",
    "PROMPT",
    "OUTPUT",
    "SESSION",
    "TOKENS",
    "COST",
    "LIMITS",
    "PERMISSION",
    "ACCOUNT",
)
_LOOK_S = 15.0
"""Limit for finding all programs and asking each for its version."""


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def executors(context: click.Context, as_json: bool) -> None:
    """Show what every executor can do, and whether its program is installed here."""
    if context.invoked_subcommand is not None:
        return
    from handoffd.execute.executor import capabilities

    settings, book = book_of(context.obj)
    found = looks(context.obj, settings, [book.get(name) for name in book.names])
    rows = [(capabilities(book.get(name)), found.get(name)) for name in book.names]
    if as_json:
        print_json({"executors": [_told(*row) for row in rows]})
    else:
        click.echo("\n".join(table(_HEAD, [_row(*row) for row in rows])))


@executors.command()
@click.argument("name", required=False)
@json_option
@click.pass_obj
def check(place: Place, name: str | None, as_json: bool) -> None:
    """Report what is wrong with the executor NAME on this machine, why, and the command that fixes it.

    Without NAME: with every installed executor and every executor that the settings name. Exit code 1 when
    there is a finding.
    """
    from handoffd.doctor.executors import check_executor as findings_of
    from handoffd.doctor.finding import as_json as told
    from handoffd.execute.registry import names_in

    settings, book = book_of(place)
    chosen = [book.get(one) for one in ([name] if name else book.names)]
    found = looks(place, settings, chosen)
    asked = (name, *names_in(settings.executor))
    wanted = [
        executor
        for executor in chosen
        if executor.name in found and (found[executor.name].found is not None or executor.name in asked)
    ]
    findings = [one for executor in wanted for one in findings_of(executor, found[executor.name])]
    if as_json:
        print_json(told(findings))
    else:
        click.echo("\n".join(report(findings)))
    if any(one.severity != "ok" for one in findings):
        click.get_current_context().exit(1)


def book_of(place: Place) -> tuple[Settings, ExecutorBook]:
    """Return the settings and the executors with the settings' changes. Raises InvalidFile."""
    from handoffd.errors import remedies
    from handoffd.execute.registry import Layer, load_book, shipped_layer

    settings = place.settings()
    with remedies("/"):
        return settings, load_book(
            shipped_layer(), Layer(file="handoffd.yaml", definitions=settings.executors)
        )


def looks(place: Place, settings: Settings, chosen: list[Executor]) -> dict[str, Installation]:
    """Probe all executors at once; leave out one whose folder or program does not answer in time."""
    from handoffd.doctor.finding import answers
    from handoffd.execute.environment import child_environment
    from handoffd.execute.registry import look

    looks = {
        one.name: partial(look, one, child_environment(place.environ, settings.execute.env_allow, one.env))
        for one in chosen
    }
    return answers(looks, _LOOK_S)


def _row(can: Capabilities, found: Installation | None) -> list[str]:
    here = "–" if found is None or found.found is None else found.version or "yes"
    return [
        plain(can.name),
        plain(here),
        can.prompt,
        can.output,
        f"{can.session} (can resume)" if can.resume and can.session == "fresh" else can.session,
        can.tokens,
        "reported" if can.cost else "estimated" if can.tokens != "no" else "–",
        "reported" if can.limits else "–",
        plain(can.permission or "–"),
        plain(can.account),
    ]


def _told(can: Capabilities, found: Installation | None) -> dict[str, Any]:
    here = {
        "program": found.program if found else None,
        "found": found.found if found else None,
        "version": found.version if found else None,
        "logged_in": found.logged_in if found else None,
    }
    return {**to_builtins(can), **here}


# --- findings as text ---------------------------------------------------------------------------------
_WIDTHS = (len("warning"), len("descriptors"))


def report(findings: Sequence[Finding]) -> list[str]:
    """Return the lines for findings, and their number at the end."""
    lines = [line for finding in findings for line in _lines(finding)]
    return [*lines, "", _summary(findings)]


def _lines(finding: Finding) -> Iterator[str]:
    word, check = (
        text.ljust(width) for text, width in zip((finding.severity, finding.check), _WIDTHS, strict=True)
    )
    yield f"{styled(word)}  {check}  {plain(finding.what)}"
    if finding.why is not None:
        yield f"    why:  {plain(finding.why)}"
    if finding.action is not None:
        yield f"    next: {plain(finding.action)}"


def _summary(findings: Sequence[Finding]) -> str:
    severities = [finding.severity for finding in findings]
    faults, warnings = severities.count("fault"), severities.count("warning")
    if not faults and not warnings:
        return "No problems found."
    keeps = "" if faults else "; nothing keeps handoffd from working"
    return f"{counted(faults, 'fault')}, {counted(warnings, 'warning')}{keeps}."


# --- the tests of a project, tried --------------------------------------------------------------------
# While no daemon runs, the tests get the PATH of its service if one is installed, else the PATH of this
# terminal, which `handoffd run` would have.
def try_tests(place: Place, project: str) -> tuple[Finding, bool]:
    """Run the tests of `project`; return the finding, and whether all of them passed.

    Raises NotFound if it is not a project.
    """
    from handoffd.doctor.finding import warning
    from handoffd.doctor.projects import TESTS

    try:
        tried = _tried(place, project)
    except NotFound:
        raise
    except HandoffdError as error:
        return warning(TESTS, f"handoffd could not try the tests: {error.message}", None, error.hint), False
    return judged_tests(place, tried), tried["passed"] is True


def judged_tests(place: Place, tried: Json) -> Finding:
    """Return the finding about tests that were run; `tried` is what the daemon answers."""
    from handoffd.doctor.projects import Terminal, judge_tests
    from handoffd.doctor.service import installed, service_of

    service = service_of(_pid(place), installed(place.environ, place.config))
    return judge_tests(tried, Terminal(path=place.environ.get("PATH", "")), service)


def judged_post_checks(place: Place, project: str) -> tuple[Finding, ...]:
    """Return which programs that a project's step table starts are not there for the daemon."""
    from handoffd.doctor.examination import path_of_checks
    from handoffd.doctor.executors import check_post_checks

    (view,) = ask(place, "status", project=project).json["projects"]
    path = path_of_checks(place.environ, place.settings(), _pid(place))
    return check_post_checks({project: view["post_checks"]}, path)


def _tried(place: Place, project: str) -> Json:
    from handoffd.doctor.service import path_in, unit_file_of

    def ask(client: Client) -> Json:
        return client.post("/v1/tests/try", {"project": project, "by": account()})

    def without() -> Json:
        from handoffd.entrance import offline

        path = path_in(unit_file_of(place.environ))
        return offline.try_tests(place.settings(), project, account(), path)

    return either(place, ask, without).json


def _pid(place: Place) -> int | None:
    try:
        return place.client().daemon_pid()
    except HandoffdError:  # it ended or hangs: its unit has the commands
        return None
