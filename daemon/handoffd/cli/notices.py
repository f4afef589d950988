"""`handoffd notices`: what needs a person, and undelivered notices; `notify test`: send a sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from handoffd.cli.asking import json_option, print_json, print_lines, project_argument
from handoffd.cli.wording import fitting, moment, no_daemon, plain, screen_width, shorten, table
from handoffd.engine.wording import columns
from handoffd.entrance.place import Place, by_name
from handoffd.entrance.requests import ask, either

# --- notices -------------------------------------------------------------------------------------------
_WAITING = ("PROJECT", "STORY", "WAITS SINCE", "NEXT NOTICE", "WHAT", "TYPE")
_NARROW = ("PROJECT", "STORY", "WAITS SINCE", "NEXT NOTICE")
_HELD = ("SINK", "HELD BACK", "SINCE", "TOLD AT", "WHY")
_SINKS = ("SINK", "WAITING", "SINCE", "FAILED TRIES", "GIVEN UP", "LAST ERROR")
_WHY = {"quiet": "quiet hours", "digest": "the digest", "burst": "many at once"}


@click.command()
@project_argument
@json_option
@click.pass_obj
def notices(place: Place, project: str | None, as_json: bool) -> None:
    """Show what needs you, in PROJECT or in all projects, and undelivered notifications.

    Undelivered ones are queued, held back or given up; they are shown for all projects.
    """
    named = None if project is None else place.project(project)

    answer = ask(place, "notices", project=named)
    if as_json:
        print_json(answer.json)
        return
    lines = notices_report(answer.json, screen_width(), project=project)
    print_lines(lines if answer.daemon else [*lines, "", no_daemon()])


def notices_report(answer: dict[str, Any], width: int | None, *, project: str | None = None) -> list[str]:
    """Return the lines for an answer of `GET /v1/notices`; `project`: that the user named, if any.

    The tables have at most `width` columns (None: any).
    """
    waiting = list(_needs(answer["waiting"], width))
    held, sinks = [_held(one) for one in answer["held"]], [_sink(one) for one in answer["sinks"]]
    parts = [
        waiting,
        [f"Nothing in {plain(project)} needs you."] if project is not None and not waiting else [],
        [f"and {answer['more_waiting']} more"] if answer["more_waiting"] else [],
        fitting(_HELD, held, (), width, text=("SINK",)) if held else [],
        fitting(_SINKS, sinks, ("GIVEN UP",), width, text=("LAST ERROR", "SINK")) if sinks else [],
    ]
    lines = [line for part in parts if part for line in ("", *part)]
    return lines[1:] or ["Nothing needs you. All notifications were delivered."]


def _needs(waiting: list[dict[str, Any]], width: int | None) -> Iterator[str]:
    """Yield a table; where it has no room for them, text and command of each are below its line."""
    rows = [_waiting(one) for one in waiting]
    if not rows:
        return
    whole = table(_WAITING, rows)
    if width is None or max(map(columns, whole)) <= width:
        yield from whole
        return
    head, *lines = fitting(_NARROW, [row[:4] for row in rows], ("NEXT NOTICE",), width, text=("PROJECT",))
    yield head
    for line, (*_, text, command) in zip(lines, rows, strict=False):
        yield line
        yield from (f"  {part}" for part in (text, command) if part != "–")
    yield from lines[len(rows) :]  # what is not on this screen


def _waiting(one: dict[str, Any]) -> list[str]:
    called = {"project": one["project"], "called": one["name"]}
    again = one["again_at"]
    return [
        shorten(one["name"] or one["project"], 30),
        plain(one["story"] or "–"),
        moment(one["since"]),
        "–" if again is None else moment(again),
        plain(one["text"] or "–"),
        plain(by_name(one["next"] or "–", called)),
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


def _sink(one: dict[str, Any]) -> list[str]:
    return [
        plain(one["sink"]),
        str(one["undelivered"]),
        "–" if one["oldest"] is None else moment(one["oldest"]),
        str(one["failed_tries"]),
        str(one["given_up"]),
        plain(one["last_error"] or "–"),
    ]


# --- notify --------------------------------------------------------------------------------------------
@click.group()
def notify() -> None:
    """Test the notification sinks (`notify` in the settings)."""


@notify.command()
@click.argument("sink", required=False)
@json_option
@click.pass_obj
def test(place: Place, sink: str | None, as_json: bool) -> None:
    """Send a sample through every sink, or through SINK, and report the result.

    The running daemon sends it with its settings and secrets; without a daemon, this process does. Exit
    code 1: a sink did not accept it.
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
        click.echo("\n".join(sent_report(answer.json)))
    if not answer.json["ok"]:
        click.get_current_context().exit(1)


def sent_report(answer: dict[str, Any]) -> list[str]:
    """Return the lines for an answer of `POST /v1/notices/test`."""
    lines = []
    for one in answer["sinks"]:
        name = plain(one["sink"]) if one["sink"] == one["form"] else f"{plain(one['sink'])} ({one['form']})"
        how = "accepted it" if one["ok"] else f"did not accept it: {plain(one['why'])}"
        lines.append(f"{name} {how}, after {one['seconds']:.1f} s")
    if not answer["ok"]:
        lines.append("next: handoffd config show  # then correct `notify` in that file")
    return lines
