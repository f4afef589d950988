"""`handoffd status`: who needs the user, works or rests; with --watch, again on each change.

The common case (a daemon runs, no --watch) imports only click and the client.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import click

from handoffd.cli.asking import insisted, json_option, print_json, project_argument
from handoffd.cli.status_report import cut, parts, report, screen, told
from handoffd.cli.wording import moment
from handoffd.entrance.place import Place
from handoffd.entrance.requests import Answer, ask
from handoffd.errors import HandoffdError, Json, NotFound

# --- again and again -----------------------------------------------------------------------------------
EVERY_S = 1.0
_RESTLESS = frozenset({"at", "elapsed_min", "next_try_s"})
"""Keys that change all the time; a change of these alone is not shown."""


def follow(ask: Callable[[], Answer], *, whole: bool, as_json: bool, every: bool = False) -> None:
    """Show what `ask` returns, on a screen repeatedly, in a pipe on each change. Only Ctrl-C ends it."""
    if as_json:
        for status in changes(_statuses(partial(insisted, ask))):
            click.echo(json.dumps(status, ensure_ascii=False))
        return
    if not sys.stdout.isatty():
        for status in changes(_statuses(partial(insisted, ask))):
            click.echo("\n".join([*report(status, whole=whole), ""]))
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(no_color=click.get_current_context().color is False)
    with Live(console=console, auto_refresh=False, screen=False) as live:
        for status in _statuses(patiently(ask)):
            lines = fitted(status, whole=whole, every=every, size=console.size)
            shown = Text.from_ansi("\n".join(lines), no_wrap=not whole, overflow="ellipsis")
            live.update(shown, refresh=True)


def fitted(status: Json, *, whole: bool, every: bool, size: tuple[int, int]) -> list[str]:
    """Return what fits into the columns and lines of `size`; a terminal cuts what is below its last line.

    `every`: all that rests, too, as far as it fits. Warnings stay when a project is shown `whole`.
    """
    width, height = size
    if not whole:
        return screen(status, width=width, height=None if every else height)[:height]
    head, blocks, foot = parts(status, whole=True, width=width)
    lines = [*head, *(line for block in blocks for line in block)]
    return [*cut(lines, max(height - len(foot), 1)), *foot][:height]


def patiently(ask: Callable[[], Answer]) -> Callable[[], Answer]:
    """Return an asker that on an error shows the latest answer, if there is one, with the error below."""
    latest: Answer | None = None

    def asked() -> Answer:
        nonlocal latest
        try:
            latest = insisted(ask) if latest is None else ask()
        except NotFound:
            raise
        except HandoffdError as error:
            if latest is None:
                raise
            warning = f"{error.message}; the status above is of {moment(latest.json['at'])}; retrying"
            return replace(latest, json={**latest.json, "warnings": [warning]})
        return latest

    return asked


def changes(statuses: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield each status that differs from the one before."""
    before: object = None
    for status in statuses:
        now = _news(status)
        if now != before:
            yield status
        before = now


def _statuses(ask: Callable[[], Answer]) -> Iterator[dict[str, Any]]:
    while True:
        yield ask().json
        time.sleep(EVERY_S)


def _news(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _news(item) for key, item in value.items() if key not in _RESTLESS}
    return [_news(item) for item in value] if isinstance(value, list) else value


# --- the command ---------------------------------------------------------------------------------------
_COLOURS: Final = {"auto": None, "always": True, "never": False}
"""What click takes for each: None asks the terminal."""


@click.command()
@project_argument
@click.option("--watch", "-w", is_flag=True, help="Show it again on each change, until Ctrl-C.")
@click.option("--all", "every", is_flag=True, help="On a terminal, also what rests, and what does not fit.")
@click.option(
    "--color",
    type=click.Choice(tuple(_COLOURS)),
    default="auto",
    show_default=True,
    help="Whether in colours.",
)
@json_option
@click.pass_context
def status(
    context: click.Context, project: str | None, watch: bool, every: bool, color: str, as_json: bool
) -> None:
    """Show what needs you, what works and what rests; or all about one project.

    On a terminal, one line a project, and below what needs you the command to type. Into a pipe or a file,
    everything as a table. --watch --json prints one line of JSON per change.
    """
    place: Place = context.obj
    named = None if project is None else place.project(project)
    if color != "auto":
        context.color = _COLOURS[color]
    if watch:
        follow(lambda: ask_status(place, named), whole=named is not None, as_json=as_json, every=every)
        return
    answer = ask_status(place, named)
    if as_json:
        print_json(answer.json)
    else:
        click.echo("\n".join(told(answer.json, whole=named is not None, every=every)))


def ask_status(place: Place, project: str | None) -> Answer:
    """Return the status of all projects or of one, from the daemon or from the journal."""
    return ask(place, "status", project=project)
