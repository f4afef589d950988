"""`handoffd pipeline bounds`: how many tasks a flow can open at most, as a product to follow by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from handoffd.cli.asking import json_option, print_json, print_lines
from handoffd.cli.pipelines.lookup import name_argument, project_option, shelf_of
from handoffd.cli.wording import plain, table
from handoffd.engine.wording import counted
from handoffd.entrance.place import Place
from handoffd.errors import Json
from handoffd.protocol.pipelines.bounds import USUAL_ITEMS, Cost, Way, factors
from handoffd.protocol.plan import BackTo, Plan

items_option = click.option(
    "--items",
    type=click.IntRange(1, 1000),
    default=USUAL_ITEMS,
    show_default=True,
    help="Length of each list whose length the file does not say.",
)


@click.command()
@name_argument
@items_option
@project_option
@json_option
@click.pass_obj
def bounds(place: Place, name: str, items: int, project: str | None, as_json: bool) -> None:
    """Show how many tasks a flow of the pipeline NAME can open at most, and how that comes about.

    What a person tries again is not in it: for that, limits.starts counts. NAME can be the path of a file.
    """
    shelf = shelf_of(place, project)
    loaded = shelf.loaded(shelf.chosen(name))
    costs = factors(loaded.plan, items, loaded.others)
    if as_json:
        bound = sum(cost.total for cost in costs)
        head = {"type": "bound", "name": loaded.plan.name, "items": items, "bound": bound}
        tasks = [as_data(cost) for cost in costs]
        print_json({**head, "starts": loaded.plan.limits.starts, "tasks": tasks})
    else:
        print_lines(report(loaded.plan, costs, items))


def as_data(cost: Cost) -> Json:
    """Return the factors of one task as JSON."""
    return {
        "task": cost.task, "total": cost.total, "begun": cost.begun, "rounds": cost.rounds,
        "items": cost.items,
        "tries": cost.tries, "inner": cost.inner, "called": cost.called,
        "called_by_whole": cost.called_by_whole,
        "ways": [_way(one) for one in cost.ways], "whole": [_way(one) for one in cost.whole],
        "own": [_way(one) for one in cost.own],
        "inside": [as_data(one) for one in cost.inside],
    }  # fmt: skip


def _way(way: Way) -> Json:
    does = "back_to" if isinstance(way.rung, BackTo) else "call"
    return {"task": way.task, "outcome": way.outcome, "at_most": way.rung.at_most, does: way.rung.task}


def report(plan: Plan, costs: Sequence[Cost], items: int) -> list[str]:
    """Return the lines of the bound: a row for each task, with the reasons for its factors below it."""
    bound = sum(cost.total for cost in costs)
    rows = [row for part in _rows(costs, 0) for row in part]
    length = counted(items, "item")
    return [
        f"{plain(plan.name)}: one flow opens at most this many tasks: {bound:,}",
        f"A list has {length}, unless the file says how many it may have.",
        "",
        *table(("TASK", "AT MOST", "COUNTED AS"), [*rows, ["all", f"{bound:,}", ""]]),
        "",
        f"limits.starts: {plan.limits.starts:,}. A flow that has opened this many tasks waits for a person.",
    ]


def _rows(costs: Sequence[Cost], depth: int) -> Iterator[list[list[str]]]:
    """Yield the rows of each task of a scope; reasons that it shares with one above are not repeated."""
    known: dict[tuple[Way, ...], str] = {}
    for cost in costs:
        first = known.setdefault(cost.ways, cost.task)
        told = reasons(cost, None if first == cost.task else first)
        head = [f"{'  ' * depth}{plain(cost.task)}", f"{cost.total:,}", formula(cost)]
        yield [head, *(["", "", f"  {reason}"] for reason in told)]
        yield from _rows(cost.inside, depth + 1)


def formula(cost: Cost) -> str:
    """Return how the number of a task is made, from the outside in: rounds × items × openings × inside."""
    inside = f"{cost.inner:,} inside" if cost.inner != 1 else "1"
    one = _times(f"{cost.tries} openings", cost.tries, inside)
    one = f"{one} + {cost.called:,} called" if cost.called else one
    many = _times(f"{cost.items:,} items", cost.items, one)
    every = _times(f"{cost.rounds:,} rounds", cost.rounds, many)
    called = cost.begun * cost.called_by_whole
    return f"{every} + {called:,} called for all items" if called else every


def _times(factor: str, count: int, what: str) -> str:
    if count == 1:
        return what
    if what == "1":
        return factor
    return f"{factor} × ({what})" if " + " in what else f"{factor} × {what}"


def reasons(cost: Cost, like: str | None = None) -> Iterator[str]:
    """Yield what begins a task again, and what opens it again, each with how often.

    `like`: the task that is begun again for the same reasons.
    """
    if like is not None and cost.ways:
        yield f"begun again with {plain(like)}, as often"
    else:
        yield from (f"another round {_reason(way)}" for way in cost.ways)
    yield from (f"another round {_reason(way)}" for way in cost.whole)
    yield from (f"opened again {_reason(way)}" for way in cost.own)
    if cost.inner > 1 and not cost.inside:
        yield f"{cost.inner:,} inside: the task, and all that its pipeline can open"


def _reason(way: Way) -> str:
    does = "goes back to" if isinstance(way.rung, BackTo) else "calls"
    return f"{way.rung.at_most}×: {plain(way.task)}.{plain(way.outcome)} {does} {plain(way.rung.task)}"
