"""`handoffd status --watch`: the same screen, kept true until Ctrl-C."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import click

from handoffd.cli.asking import insisted
from handoffd.cli.screen import fitted
from handoffd.cli.status_report import report
from handoffd.cli.wording import moment
from handoffd.entrance.requests import Answer
from handoffd.errors import HandoffdError, NotFound

EVERY_S = 1.0
_RESTLESS = frozenset({"at", "elapsed_min", "next_try_s"})
"""Keys that change by themselves; alone they are no news."""


def watch(ask: Callable[[], Answer], *, whole: bool, as_json: bool) -> None:
    """Show what `ask` returns, again and again; without a screen, each change. Ends by Ctrl-C only."""
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
    """Return an asker that tells of a question without an answer below the latest answer, if there is one."""
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
            warning = (
                f"{error.message}; this is how it was {moment(latest.json['at'])}, and it is asked again"
            )
            return replace(latest, json={**latest.json, "warnings": [warning]})
        return latest

    return asked


def changes(statuses: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield each status that says something new."""
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
