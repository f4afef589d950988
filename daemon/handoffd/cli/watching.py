"""`handoffd status --watch`: the same screen, kept true until Ctrl-C."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import click

from handoffd.cli.status_report import report
from handoffd.entrance.asking import Answer

EVERY_S = 1.0
_RESTLESS = frozenset({"at", "elapsed_min", "next_try_s"})
"""Keys that change by themselves; alone they are no news."""


def watch(ask: Callable[[], Answer], *, whole: bool, as_json: bool) -> None:
    """Show what `ask` returns, again and again; without a screen, each change. Ends by Ctrl-C only."""
    if as_json:
        for status in changes(_statuses(ask)):
            click.echo(json.dumps(status, ensure_ascii=False))
        return
    if not sys.stdout.isatty():
        for status in changes(_statuses(ask)):
            click.echo("\n".join([*report(status, whole=whole), ""]))
        return
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False, screen=False) as live:
        for status in _statuses(ask):
            live.update(Text.from_ansi("\n".join(report(status, whole=whole))), refresh=True)


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
