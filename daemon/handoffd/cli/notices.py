"""`handoffd notices`: what people have not been told yet, and what they will be told again."""

from __future__ import annotations

import sys
from typing import Any

import click

from handoffd.cli.asking import json_option, print_json
from handoffd.cli.wording import NO_DAEMON, moment, plain, shorten, table
from handoffd.entrance.asking import either
from handoffd.entrance.place import Place

_WAITING = ("PROJECT", "STORY", "WAITS SINCE", "TOLD AGAIN", "WHAT")
_HELD = ("SINK", "HELD BACK", "SINCE", "TOLD AT", "WHY")
_SINKS = ("SINK", "WAITING", "SINCE", "FAILED TRIES", "GIVEN UP", "LAST ERROR")
_WIDTH = 70
_WHY = {"quiet": "quiet hours", "digest": "the digest", "burst": "many at once"}


@click.command()
@json_option
@click.pass_obj
def notices(place: Place, as_json: bool) -> None:
    """Show what waits for people, and what they have not been told: on its way, held back, or given up."""

    def without() -> dict[str, Any]:
        from handoffd.entrance import offline

        return offline.look(place.settings(), lambda service: service.notices_in_full())

    answer = either(place, lambda client: client.get("/v1/notices"), without)
    if as_json:
        print_json(answer.json)
        return
    lines = report(answer.json, whole=not sys.stdout.isatty())
    click.echo("\n".join(lines if answer.daemon else [*lines, "", NO_DAEMON]))


def report(answer: dict[str, Any], *, whole: bool) -> list[str]:
    """Return the lines for an answer of `GET /v1/notices`; `whole` shortens no text, for a pipe or a file."""
    parts = [
        table(_WAITING, [_waiting(one, whole) for one in answer["waiting"]]) if answer["waiting"] else [],
        [f"and {answer['more_waiting']} more"] if answer["more_waiting"] else [],
        table(_HELD, [_held(one) for one in answer["held"]]) if answer["held"] else [],
        table(_SINKS, [_sink(one, whole) for one in answer["sinks"]]) if answer["sinks"] else [],
    ]
    lines = [line for part in parts if part for line in ("", *part)]
    return lines[1:] or ["Nothing waits for anybody, and everybody has been told."]


def _waiting(one: dict[str, Any], whole: bool) -> list[str]:
    again = one["again_at"]
    return [
        shorten(one["name"] or one["project"], 30),
        plain(one["story"] or "–"),
        moment(one["since"]),
        "–" if again is None else moment(again),
        _text(one["text"], whole),
    ]


def _held(one: dict[str, Any]) -> list[str]:
    until = one["until"]
    return [
        plain(one["sink"]),
        str(one["count"]),
        moment(one["since"]),
        "–" if until is None else moment(until),
        _WHY.get(one["reason"], plain(one["reason"])),
    ]


def _sink(one: dict[str, Any], whole: bool) -> list[str]:
    return [
        plain(one["sink"]),
        str(one["undelivered"]),
        "–" if one["oldest"] is None else moment(one["oldest"]),
        str(one["failed_tries"]),
        str(one["given_up"]),
        _text(one["last_error"], whole),
    ]


def _text(text: str | None, whole: bool) -> str:
    return plain(text or "–") if whole else shorten(text or "–", _WIDTH)
