"""`handoffd notify test`: whether people would be told."""

from __future__ import annotations

from typing import Any

import click

from handoffd.cli.asking import json_option, print_json
from handoffd.cli.wording import plain
from handoffd.entrance.place import Place
from handoffd.entrance.requests import either


@click.group()
def notify() -> None:
    """Try out the ways in which people are told (`notify` in the settings)."""


@notify.command()
@click.argument("sink", required=False)
@json_option
@click.pass_obj
def test(place: Place, sink: str | None, as_json: bool) -> None:
    """Send a sample through each sink, or through SINK; say how it went.

    The running daemon sends it, with its settings and its secrets; without one, this process does. Exit code
    1 when one did not take it.
    """

    def without() -> dict[str, Any]:
        from handoffd.entrance import offline

        return offline.test_notices(place.settings(), sink)

    answer = either(
        place, lambda client: client.post("/v1/notices/test", {"sink": sink} if sink else {}), without
    )
    if as_json:
        print_json(answer.json)
    else:
        click.echo("\n".join(report(answer.json)))
    if not answer.json["ok"]:
        click.get_current_context().exit(1)


def report(answer: dict[str, Any]) -> list[str]:
    """Return the lines for an answer of `POST /v1/notices/test`."""
    lines = []
    for one in answer["sinks"]:
        name = plain(one["sink"]) if one["sink"] == one["form"] else f"{plain(one['sink'])} ({one['form']})"
        how = "took it" if one["ok"] else f"did not take it: {plain(one['why'])}"
        lines.append(f"{name} {how}, after {one['seconds']:.1f} s")
    if not answer["ok"]:
        lines.append("next: handoffd config show  # mend `notify` in the file it names")
    return lines
