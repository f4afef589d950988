"""`handoffd status`: one screen with every project; with --watch, again on each change.

The common case (a daemon runs, no --watch) imports only click and the client.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import click

from handoffd.cli.asking import insisted, json_option, print_json, project_argument
from handoffd.cli.status_report import condition_of, parts, report
from handoffd.cli.wording import moment
from handoffd.entrance.place import Place
from handoffd.entrance.requests import Answer, ask
from handoffd.errors import HandoffdError, Json, NotFound

# --- what fits on a terminal ---------------------------------------------------------------------------
# A terminal cuts what is below its last line, and with many projects that is nearly all. So projects that
# need the user come first, then running ones, then waiting ones; the rest is counted, and warnings are
# always shown.

_ACT, _RUNS, _WAITS, _RESTS = range(4)
_MOST_FOOT = 3
"""Warnings that concern no single project get at most one in this many lines of the screen."""


def fitted(status: Json, *, whole: bool, height: int) -> list[str]:
    """Return at most `height` lines for an answer of `GET /v1/status`: the most important ones."""
    head, blocks, foot = parts(status, whole=whole)
    if len(head) + sum(map(len, blocks)) + len(foot) <= height:
        return [*head, *(line for block in blocks for line in block), *foot]
    foot = _cut(foot, max(height // _MOST_FOOT, 1))
    room = height - len(head) - len(foot) - 1
    told = [(project, track) for project in status["projects"] for track in project["tracks"] or [None]]
    order = sorted(range(len(told)), key=lambda number: _rank(*told[number]))
    lines: list[str] = []
    for place, number in enumerate(order):
        if len(lines) + len(blocks[number]) > room and place > 0:
            rest = [told[hidden] for hidden in order[place:]]
            return [*head, *lines, _rest(rest, daemon=status["daemon"]), *foot]
        lines += _cut(blocks[number], max(room, 1))
    return [*head, *lines, *foot][:height]


def _cut(lines: Sequence[str], most: int) -> list[str]:
    return list(lines) if len(lines) <= most else [*lines[: most - 1], "…"]


def _rank(project: Json, track: Json | None) -> int:
    """Return how urgently the user should see a track; the lowest is the most urgent."""
    if project["condition"] != "ok" or project["warnings"] or track is None:
        return _ACT
    if track["dispatch"] is not None:
        return _RUNS
    if track["story"] is None or track["step"] == "done":
        return _RESTS
    return _ACT if track["next_command"] else _WAITS


def _rest(hidden: Sequence[tuple[Json, Json | None]], *, daemon: bool) -> str:
    counts = Counter(condition_of(project, track, daemon=daemon) for project, track in hidden)
    each = ", ".join(f"{count:,} {condition}" for condition, count in counts.most_common())
    return f"… and {len(hidden):,} more: {each} (handoffd status)"


# --- again and again -----------------------------------------------------------------------------------
EVERY_S = 1.0
_RESTLESS = frozenset({"at", "elapsed_min", "next_try_s"})
"""Keys that change all the time; a change of these alone is not shown."""


def follow(ask: Callable[[], Answer], *, whole: bool, as_json: bool) -> None:
    """Show what `ask` returns, on a screen repeatedly, in a pipe on each change. Only Ctrl-C ends it."""
    if as_json:
        for status in changes(_statuses(partial(insisted, ask))):
            click.echo(json.dumps(status, ensure_ascii=False))
        return
    if not sys.stdout.isatty():
        for status in changes(_statuses(partial(insisted, ask))):
            click.echo("\n".join([*report(status, whole=whole), ""]))
        return
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False, screen=False) as live:
        for status in _statuses(patiently(ask)):
            lines = fitted(status, whole=whole, height=live.console.size.height)
            shown = Text.from_ansi("\n".join(lines), no_wrap=not whole, overflow="ellipsis")
            live.update(shown, refresh=True)


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
@click.command()
@project_argument
@click.option("--watch", "-w", is_flag=True, help="Show it again on each change, until Ctrl-C.")
@json_option
@click.pass_obj
def status(place: Place, project: str | None, watch: bool, as_json: bool) -> None:
    """Show every project, or one in full: its story, step, status, and what it waits for.

    --watch --json prints one line of JSON per change.
    """
    named = None if project is None else place.project(project)
    if watch:
        follow(lambda: ask_status(place, named), whole=named is not None, as_json=as_json)
        return
    answer = ask_status(place, named)
    if as_json:
        print_json(answer.json)
    else:
        click.echo("\n".join(report(answer.json, whole=named is not None)))


def ask_status(place: Place, project: str | None) -> Answer:
    """Return the status of all projects or of one, from the daemon or from the journal."""
    return ask(place, "status", project=project)
