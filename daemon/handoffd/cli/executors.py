"""`handoffd executors`: what the executors can do, which are here, and what is wrong with one."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from handoffd.cli.asking import json_option, print_json
from handoffd.cli.wording import plain, table
from handoffd.entrance.place import Place

if TYPE_CHECKING:
    from handoffd.execute.executor import Capabilities, Executor
    from handoffd.execute.registry import ExecutorBook, Installation
    from handoffd.settings.model import Settings

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
"""How long all programs together may take to be found and to tell their versions."""


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def executors(context: click.Context, as_json: bool) -> None:
    """Show what every executor can do, and whether its program is on this machine."""
    if context.invoked_subcommand is not None:
        return
    from handoffd.execute.executor import capabilities

    settings, book = _book(context.obj)
    found = _looks(context.obj, settings, [book.get(name) for name in book.names])
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
    """Say what is wrong with the executor NAME on this machine, why, and what to type about it.

    Without NAME, of all that are installed, and of those that the settings choose. Exit code 1 when
    there is anything to say.
    """
    from handoffd.cli.doctor_report import report
    from handoffd.doctor.finding import as_json as told
    from handoffd.doctor.installation import check as findings_of
    from handoffd.execute.registry import names_in

    settings, book = _book(place)
    chosen = [book.get(one) for one in ([name] if name else book.names)]
    found = _looks(place, settings, chosen)
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


def _book(place: Place) -> tuple[Settings, ExecutorBook]:
    """Return the settings, and the executors as they change them. Raises InvalidFile."""
    from handoffd.errors import remedies
    from handoffd.execute.registry import Layer, load_book, shipped_layer

    settings = place.settings()
    with remedies("/"):
        return settings, load_book(
            shipped_layer(), Layer(file="handoffd.yaml", definitions=settings.executors)
        )


def _looks(place: Place, settings: Settings, chosen: list[Executor]) -> dict[str, Installation]:
    """Return how executors are found, at once; one whose folders or program are silent is left out."""
    from handoffd.doctor.patience import answers
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
        "told" if can.cost else "reckoned" if can.tokens != "no" else "–",
        "told" if can.limits else "–",
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
    return {**asdict(can), **here}
