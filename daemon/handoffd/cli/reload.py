"""`handoffd reload`: has the daemon read everything again, and says what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from handoffd.cli.asking import json_option, print_json
from handoffd.cli.wording import plain
from handoffd.entrance.place import Place

LIMIT_S = 120.0
"""Longer than the longest look: folders of the settings, and every project."""


@click.command()
@json_option
@click.pass_obj
def reload(place: Place, as_json: bool) -> None:
    """Have the daemon read its settings, look for projects, and read their files, now.

    The daemon does all of it by itself, too; this says what came of it. Exit code 1: the settings were
    refused, and the last good ones are in force.
    """
    answer = place.client(LIMIT_S).post("/v1/reload", {})
    taken = answer["settings"]["taken"]
    if as_json:
        print_json(answer)
    else:
        click.echo("\n".join(report(answer)), err=not taken)
    if not taken:
        click.get_current_context().exit(1)


def report(answer: dict[str, Any]) -> Iterator[str]:
    """Yield the lines for an answer of `POST /v1/reload`."""
    settings = answer["settings"]
    if settings["taken"]:
        yield _taken(settings)
    else:
        yield "The settings cannot be used; the last good ones are in force:"
    yield from (f"  {plain(problem, lines=True)}" for problem in answer["problems"])
    if settings["restart"]:
        yield f"After a restart of the daemon: {plain(', '.join(settings['restart']))}"
    for count, what in ((answer["brought"], "found"), (answer["let_go"], "let go")):
        if count:
            yield f"{count} project{'s' * (count > 1)} {what}"
    told = {*answer["problems"]}
    others = [one for one in answer["warnings"] if not any(problem in one for problem in told)]
    yield from (f"warning: {plain(one)}" for one in others if "after a restart" not in one)
    if not settings["taken"]:
        yield "  next: handoffd config check"


def _taken(settings: dict[str, Any]) -> str:
    if not settings["changed"]:
        return "The settings are as they were."
    return f"In force: {plain(', '.join(settings['changed']))}"
