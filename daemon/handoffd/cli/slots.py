"""`handoffd slots`: how many may run at once, who does, and what the others wait for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from handoffd.cli.asking import json_option, print_json
from handoffd.cli.wording import no_daemon, plain, shorten, table
from handoffd.entrance.place import Place
from handoffd.entrance.requests import either

_LIMITS = ("SLOTS", "LIMIT", "IN USE", "WAITING", "RUNNING")
_WAITING = ("NEXT", "TRACK", "PRIORITY", "SINCE", "WHY")
_WIDTH = 60
_SHOWN = 20
"""So many of those that wait are shown; `--json` has more of them."""

Json = dict[str, Any]


@click.command()
@json_option
@click.pass_obj
def slots(place: Place, as_json: bool) -> None:
    """Show who may run, who does, and why each of the others waits."""

    def without() -> Json:
        from handoffd.entrance import offline

        return offline.look(place.settings(), lambda service: service.slots())

    answer = either(place, lambda client: client.get("/v1/slots"), without)
    if as_json:
        print_json(answer.json)
    else:
        click.echo("\n".join(report(answer.json)))


def report(answer: Json) -> list[str]:
    """Return the lines for an answer of `GET /v1/slots`."""
    lines = table(_LIMITS, [_limit(one) for one in answer["limits"]])
    if answer["closed"]:
        lines += ["", f"nothing is started for now: {plain(answer['closed'])}"]
    if answer["waiting"]:
        lines += ["", *table(_WAITING, [_wait(one) for one in answer["waiting"][:_SHOWN]]), *_rest(answer)]
    if not answer["daemon"]:
        lines += ["", no_daemon()]
    return lines


def _rest(answer: Json) -> Iterator[str]:
    more = answer["waiting_in_all"] - len(answer["waiting"][:_SHOWN])
    if more > 0:
        yield f"and {more:,} more; what one of them waits for: handoffd status PROJECT"


def _limit(one: Json) -> list[str]:
    return [
        "all" if one["kind"] == "all" else f"{one['kind']} {shorten(one['name'], 40)}",
        "–" if one["limit"] is None else str(one["limit"]),
        str(one["in_use"]),
        str(one["waiting"]),
        shorten(", ".join(one["holders"]) or "–", _WIDTH),
    ]


def _wait(one: Json) -> list[str]:
    return [
        str(one["place"]),
        shorten(one["what"], 40),
        str(one["priority"]),
        _span(one["waited_s"]),
        shorten(one["why"], _WIDTH),
    ]


def _span(seconds: float) -> str:
    """Return for how long in the largest unit that fits."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"
