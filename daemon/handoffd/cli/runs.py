"""`handoffd runs`: dispatches, one a line."""

from __future__ import annotations

from typing import Any

import click

from handoffd.cli.asking import json_option, print_json, project_argument
from handoffd.cli.wording import called, fitting, moment, plain, screen_width, styled, used
from handoffd.entrance.place import Place
from handoffd.entrance.requests import either

_HEAD = ("DECIDED", "PROJECT", "STORY", "STEP", "ATTEMPT", "RESULT", "TOKENS", "COST", "RUN")
_TOOK = ("MEMORY", "TASKS")
"""Columns that are there where something counts what runs take of the machine."""
_SPARE = ("TASKS", "MEMORY", "COST", "TOKENS", "DECIDED", "ATTEMPT")
"""What a small screen can do without, the least important first: a run's name begins with its time."""


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
    counted = any(run.get("memory_peak") is not None or run.get("tasks_peak") is not None for run in found)
    head = (*_HEAD[:-1], *_TOOK, _HEAD[-1]) if counted else _HEAD
    return fitting(head, [_row(run, counted=counted) for run in found], _SPARE, width)


def _row(run: dict[str, Any], *, counted: bool) -> list[str]:
    return [
        moment(run["decided_at"]),
        called(run),
        plain(run["story"] or "–"),
        plain(run["step"]),
        str(run["attempt"]),
        styled(run["result"] or "running"),
        *used(run.get("usage")),
        *(_took(run) if counted else ()),
        run["run"],
    ]


def _took(run: dict[str, Any]) -> tuple[str, str]:
    """Return the most memory and tasks that a run had at once; a dash for what is not known."""
    from handoffd.engine.usage import size_in_words

    memory, tasks = run.get("memory_peak"), run.get("tasks_peak")
    return "–" if memory is None else size_in_words(memory), "–" if tasks is None else str(tasks)
