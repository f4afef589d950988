"""`handoffd schedule`: what the clock starts, when, and what became of it last."""

from __future__ import annotations

from typing import Any, Final

import click

from handoffd.cli.asking import json_option, print_json, project_argument
from handoffd.cli.wording import moment, no_daemon, plain, shorten, table
from handoffd.entrance.place import Place
from handoffd.entrance.requests import either

Json = dict[str, Any]

_HEAD: Final = ("PROJECT", "SCHEDULE", "CRON", "NEXT", "STARTS", "LAST")
_LAST_WIDTH: Final = 100


@click.command()
@project_argument
@json_option
@click.pass_obj
def schedule(place: Place, project: str | None, as_json: bool) -> None:
    """Show what the clock starts, in PROJECT or in all: when it is due next, and what became of it last."""
    root = None if project is None else place.project(project)

    def without() -> Json:
        from handoffd.entrance import offline

        return offline.look(place.settings(), lambda service: service.schedules(root))

    answer = either(place, lambda client: client.get("/v1/schedules", project=root), without)
    if as_json:
        print_json(answer.json)
    else:
        click.echo("\n".join(report(answer.json)))


def report(answer: Json) -> list[str]:
    """Return the lines for an answer of `GET /v1/schedules`."""
    found = answer["schedules"]
    idle = [_idle(one) for one in answer["idle"]]
    if not found and not idle:
        return ["Nothing is started by the clock: see `schedule` in the settings (handoffd config show)."]
    lines = table(_HEAD, [_row(one) for one in found]) if found else []
    lines += ["", *idle] if lines and idle else idle
    return lines if answer["daemon"] else [*lines, "", no_daemon()]


def _row(one: Json) -> list[str]:
    waits = f" (waits: {one['waits_for']})" if one["waits_for"] else ""
    return [
        shorten(one["name"], 40),
        plain(one["schedule"]),
        plain(f"{one['cron']} {one['timezone']}"),
        shorten((moment(one["next_at"]) if one["next_at"] else "never") + waits, _LAST_WIDTH),
        plain(one["story"] or "–"),
        shorten(_last(one), _LAST_WIDTH),
    ]


def _idle(one: Json) -> str:
    return plain(
        f"{one['schedule']} concerns no project: none is called or lies at {', '.join(one['projects'])}"
        " (handoffd projects)"
    )


def _last(one: Json) -> str:
    """Return what became of it last: `started REVIEW-7, due …`."""
    if one["last_outcome"] is None:
        return "–"
    story = f" {one['last_story']}" if one["last_story"] else ""
    why = f": {one['last_why']}" if one["last_why"] else ""
    return f"{one['last_outcome']}{story}, due {moment(one['last_due'])}{why}"
