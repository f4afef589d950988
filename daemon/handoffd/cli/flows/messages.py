"""`handoffd flow messages`: what has happened in a flow, decision by decision, and live."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, Final

import click

from handoffd.cli.asking import flow_ids, insisted, json_option, project_names
from handoffd.cli.wording import moment, plain, shorten
from handoffd.engine.flow.flow import FLOWS
from handoffd.entrance.place import Place
from handoffd.entrance.requests import ask
from handoffd.errors import Json, NoDaemon

_WIDTH: Final = 300


@click.command()
@click.argument("flow_id", metavar="FLOW", shell_complete=flow_ids)
@click.option("--follow", "-f", is_flag=True, help="Keep printing what happens until Ctrl-C, or its end.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Most to print.")
@click.option(
    "--project",
    metavar="PROJECT",
    shell_complete=project_names,
    help="Its project (default: the one that has it).",
)
@json_option
@click.pass_obj
def messages(
    place: Place, flow_id: str, follow: bool, limit: int, project: str | None, as_json: bool
) -> None:
    """Print what has happened in FLOW and to its tasks, oldest first. --json: one event a line."""
    named = None if project is None else place.project(project)
    root = ask(place, "flow", flow=flow_id, project=named).json["project"]
    wanted = {"project": root, "flow": flow_id}
    found: list[Json] = ask(place, "events", **wanted, limit=limit).json["events"]
    _show(found, as_json)
    if follow and not any(map(_is_end, found)):
        after = found[-1]["seq"] if found else 0
        _show(_until_end(_followed(place, {**wanted, "after": after})), as_json)


def _show(events: Iterable[Json], as_json: bool) -> None:
    for event in events:
        click.echo(json.dumps(event, ensure_ascii=False) if as_json else "\n".join(told(event)))


def told(event: Json) -> list[str]:
    """Return the lines for one event, or for a gap."""
    if event["type"] == "gap":
        return [f"-- events are missing: {plain(event['why'])} --"]
    _, dot, number = str(event["track"]).removeprefix(FLOWS).partition(".")
    step = (event["after"] or event["before"] or {"step": "task"})["step"]
    who = f"{plain(step)} ({number}): " if dot else ""
    line = f"{moment(event['at'])}  {event['seq']}  {who}{shorten(event['what'], _WIDTH)}"
    why = () if dot or not event["why"] else (event["why"],)
    following = () if event["next"] in {None, "", "nothing"} else (event["next"],)
    return [line, *(f"    {shorten(text, _WIDTH)}" for text in (*why, *following))]


def _is_end(event: Json) -> bool:
    return any(order.get("kind") == "report_end" for order in event.get("orders", ()))


def _until_end(events: Iterable[Json]) -> Iterator[Json]:
    for event in events:
        yield event
        if _is_end(event):
            return


def _followed(place: Place, wanted: dict[str, Any]) -> Iterator[Json]:
    def begun() -> Iterator[Json]:
        lines = place.client().lines("/v1/events", **wanted, follow=1)
        return chain(list(islice(lines, 1)), lines)

    try:
        yield from insisted(begun)
    except NoDaemon as none:
        raise NoDaemon(f"nothing happens without a daemon: {none.message}", hint=none.hint) from none
