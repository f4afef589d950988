"""`handoffd runs`: dispatches, one a line."""

from __future__ import annotations

from typing import Any

import click

from handoffd.cli.asking import json_option, print_json, project_argument
from handoffd.cli.wording import called, fitting, moment, plain, screen_width, styled, used
from handoffd.entrance.asking import either
from handoffd.entrance.place import Place

_SPARE = ("COST", "TOKENS", "DECIDED", "ATTEMPT")
"""What a small screen can do without, the least important first: a run's name begins with its time."""
_HEAD = ("DECIDED", "PROJECT", "STORY", "STEP", "ATTEMPT", "RESULT", "TOKENS", "COST", "RUN")


@click.command()
@project_argument
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many at most."
)
@json_option
@click.pass_obj
def runs(place: Place, project: str | None, limit: int, as_json: bool) -> None:
    """List the latest dispatches, newest first; of PROJECT, or of all."""
    named = None if project is None else place.project(project)

    def without() -> dict[str, object]:
        from handoffd.entrance import offline

        found = offline.look(place.settings(), lambda service: service.runs(named, limit))
        return {"runs": found}

    answer = either(place, lambda client: client.get("/v1/runs", project=named, limit=limit), without)
    if as_json:
        print_json(answer.json)
        return
    found = answer.json["runs"]
    click.echo("\n".join(report(found, screen_width())) if found else "Nothing has run yet.")


def report(found: list[dict[str, Any]], width: int | None = None) -> list[str]:
    """Return the lines for an answer of `GET /v1/runs`, on a screen of so many columns (None: any)."""
    return fitting(_HEAD, [_row(run) for run in found], _SPARE, width)


def _row(run: dict[str, Any]) -> list[str]:
    return [
        moment(run["decided_at"]),
        called(run),
        plain(run["story"] or "–"),
        plain(run["step"]),
        str(run["attempt"]),
        styled(run["result"] or "running"),
        *used(run.get("usage")),
        run["run"],
    ]
