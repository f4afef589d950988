"""`handoffd events`: what happened and why, one event a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from handoffd.cli.asking import either, json_option
from handoffd.cli.place import Place
from handoffd.cli.wording import called, moment, plain
from handoffd.errors import NoDaemon


@click.command()
@click.option("--project", "-p", metavar="PROJECT", help="Of this project only.")
@click.option("--after", type=click.IntRange(min=0), metavar="SEQ", help="Those with a number above SEQ.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at most."
)
@click.option("--follow", "-f", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@json_option
@click.pass_obj
def events(
    place: Place, project: str | None, after: int | None, limit: int, follow: bool, as_json: bool
) -> None:
    """Print what happened, oldest first: when, where, what, why. With --json, one object a line.

    Without --after it is the last ones. A line of type `gap` says that events are missing.
    """
    named = None if project is None else place.project(project)
    found = _follow(place, named, after) if follow else _recorded(place, named, after, limit)
    for event in found:
        click.echo(json.dumps(event, ensure_ascii=False) if as_json else line(event))


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
        from handoffd.cli import offline

        found = offline.look(place.settings(), lambda service: service.events(after, project, limit))
        return {"events": found}

    answer = either(
        place, lambda client: client.get("/v1/events", after=after, project=project, limit=limit), without
    )
    recorded: list[dict[str, Any]] = answer.json["events"]
    return recorded


def _follow(place: Place, project: str | None, after: int | None) -> Iterator[dict[str, Any]]:
    try:
        yield from place.client().lines("/v1/events", after=after, project=project, follow=1)
    except NoDaemon as none:
        raise NoDaemon(f"nothing happens without a daemon: {none.message}", hint="handoffd run") from none


def _standing(standing: dict[str, str] | None) -> str:
    return f"{plain(standing['step'])} {standing['status']}" if standing else "–"
