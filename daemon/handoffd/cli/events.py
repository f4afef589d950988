"""`handoffd events`: what happened, and how each decision came about."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

import click

from handoffd.cli.asking import insisted, json_option, project_argument
from handoffd.cli.wording import called, moment, plain, shorten
from handoffd.entrance.place import Place
from handoffd.entrance.requests import either
from handoffd.errors import NoDaemon

_WIDTH = 400
"""Characters of a fact: notes and errors may be pages long."""


@click.command()
@project_argument
@click.option("--project", "-p", "named", metavar="PROJECT", help="The same as PROJECT.")
@click.option("--after", type=click.IntRange(min=0), metavar="SEQ", help="Those with a number above SEQ.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at most."
)
@click.option("--follow", "-f", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@click.option("--oneline", is_flag=True, help="One line an event, without what is below it.")
@json_option
@click.pass_obj
def events(place: Place, /, **asked: Any) -> None:
    """Print what happened, oldest first, of PROJECT or of all: each decision, and how it came about.

    Below the line of a decision: what had happened, the rule that decided (a row of the step table, a
    limit), and what follows. Without --after it is the last ones. With --json, one object a line; one
    of type `gap` says that events are missing.
    """
    word = asked["project"] or asked["named"]
    named = None if word is None else place.project(word)
    if asked["follow"]:
        found: Iterable[dict[str, Any]] = _follow(place, named, asked["after"])
    else:
        found = _recorded(place, named, asked["after"], asked["limit"])
    for event in found:
        if asked["as_json"]:
            click.echo(json.dumps(event, ensure_ascii=False))
        else:
            click.echo("\n".join([line(event), *([] if asked["oneline"] else explained(event))]))


def explained(event: dict[str, Any]) -> list[str]:
    """Return how a decision came about: the fact, the rules, and what follows; of a gap, nothing."""
    if event["type"] == "gap":
        return []
    told = {
        "what": event.get("what"),
        "rule": ", ".join(f"{one['rule']} = {one['value']}" for one in event.get("rules", ())),
        "next": event.get("next"),
    }
    return [f"    {name}  {shorten(text, _WIDTH)}" for name, text in told.items() if text]


def line(event: dict[str, Any]) -> str:
    """Return one event as a line of text."""
    if event["type"] == "gap":
        first, last = event["after"] + 1, event["next"] - 1
        missing = f"events {first} to {last} are missing" if first <= last else f"there is no event {first}"
        return f"-- {missing}: {plain(event['why'])}; going on from {event['next']} --"
    before, after = _standing(event["before"]), _standing(event["after"])
    moved = f" [{before} → {after}]" if before != after else f" [{after}]"
    what = f"{plain(event['kind'])}: {plain(event['why'])}{moved}"
    return f"{moment(event['at'])}  {event['seq']}  {called(event)}  {what}"


def _recorded(place: Place, project: str | None, after: int | None, limit: int) -> list[dict[str, Any]]:
    def without() -> dict[str, Any]:
        from handoffd.entrance import offline

        return offline.look(place.settings(), lambda service: service.history(after, project, limit))

    answer = either(
        place, lambda client: client.get("/v1/events", after=after, project=project, limit=limit), without
    )
    recorded: list[dict[str, Any]] = answer.json["events"]
    gaps: list[dict[str, Any]] = answer.json.get("gaps", [])  # a daemon of before does not tell
    return sorted([*recorded, *gaps], key=_place)


def _place(one: dict[str, Any]) -> float:
    """Return where something is told: a gap before the event that follows it."""
    return float(one["next"]) - 0.5 if one["type"] == "gap" else float(one["seq"])


def _follow(place: Place, project: str | None, after: int | None) -> Iterator[dict[str, Any]]:
    def begun() -> Iterator[dict[str, Any]]:
        lines = place.client().lines("/v1/events", after=after, project=project, follow=1)
        return chain(list(islice(lines, 1)), lines)

    try:
        yield from insisted(begun)
    except NoDaemon as none:
        raise NoDaemon(f"nothing happens without a daemon: {none.message}", hint=none.hint) from none


def _standing(standing: dict[str, str] | None) -> str:
    return f"{plain(standing['step'])} {standing['status']}" if standing else "–"
