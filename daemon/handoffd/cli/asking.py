"""What commands that ask something share: their options, and how they print an answer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import click

from handoffd.api.client import Json
from handoffd.errors import StoreError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


_Found = TypeVar("_Found")

_CROWDED: Final = frozenset({"TOO_MANY_CONNECTIONS", "TOO_MANY_STREAMS"})
_LONGEST_PAUSE_S: Final = 30.0


def _projects(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from handoffd.cli.completion import project_names

    return project_names(context, parameter, incomplete)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
project_argument = click.argument("project", required=False, shell_complete=_projects)


def print_json(answer: Json) -> None:
    """Print an answer for programs: indented, one object."""
    click.echo(json.dumps(answer, indent=2, ensure_ascii=False))


def insisted(ask: Callable[[], _Found], sleep: Callable[[float], None] = time.sleep) -> _Found:
    """Return what `ask` returns, asking again after growing pauses while the daemon has no place."""
    pause_s = 1.0
    while True:
        try:
            return ask()
        except StoreError as full:
            if full.code not in _CROWDED:
                raise
            shown = f"; see: {full.hint}" if full.hint else ""
            click.echo(f"handoffd: {full.message}{shown}; trying again in {pause_s:g} s", err=True)
        sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
