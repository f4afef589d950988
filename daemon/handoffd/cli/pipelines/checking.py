"""`handoffd pipeline check` and `simulate`: a pipeline is loaded, and flows of it are played by chance.

Each flow has a seed of its own, its number after the first seed: a flow that makes no progress is played
again alone by its seed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final

import click

from handoffd.cli.asking import json_option, print_json, print_lines
from handoffd.cli.pipelines.counting import items_option
from handoffd.cli.pipelines.lookup import (
    Shelf,
    hidden,
    name_argument,
    project_option,
    replaced,
    shelf_of,
    typed,
)
from handoffd.cli.wording import plain
from handoffd.engine.wording import counted
from handoffd.entrance.place import Place
from handoffd.errors import InvalidFile, Json, Problem
from handoffd.forecast.flows import ORACLES, Budget, Oracle, Sum, everything
from handoffd.forecast.flows import simulate as simulate_flows
from handoffd.inspection.pipelines import Found
from handoffd.kit.programs import PROGRAMS
from handoffd.protocol.pipelines.bounds import USUAL_ITEMS, bound
from handoffd.protocol.pipelines.loading import Loaded
from handoffd.protocol.pipelines.reading import nearest
from handoffd.protocol.plan import Hold, Plan, Task

MOST_FLOWS: Final = 1_000_000
MOST_SHOWN: Final = 20
"""Names of tasks or outcomes on the screen; the JSON has all."""
CHECK_S: Final = 10
"""How long a check simulates flows; `simulate` takes the time that it needs."""
_EVERY_S: Final = 0.2
"""How often the progress is written."""
_ENDED: Final = ("succeeded", "failed", "cancelled")

flows_option = click.option(
    "--flows",
    type=click.IntRange(1, MOST_FLOWS),
    default=500,
    show_default=True,
    help="How many flows are simulated.",
)
seed_option = click.option(
    "--seed", type=int, default=0, show_default=True, help="Of the first flow; each next one has the next."
)


def _chances(seed: int, flows: int) -> Iterator[Random]:
    return (Random(seed + number) for number in range(flows))  # noqa: S311


# --- commands ------------------------------------------------------------------------------------------
@click.command()
@name_argument
@flows_option
@seed_option
@project_option
@json_option
@click.pass_obj
def check(place: Place, name: str, flows: int, seed: int, project: str | None, as_json: bool) -> None:
    """Check the pipeline NAME, or a file, and simulate flows of it without an agent.

    Every problem is listed with file, line and key. Exit code 1: it cannot be used, or a flow did not end.
    """
    shelf = shelf_of(place, project)
    found = shelf.chosen(name)
    loaded = shelf.loaded(found)
    check_programs(loaded.plan, found.file)
    budget = Budget(time.monotonic, CHECK_S)
    chances, done = _chances(seed, flows), _progress(flows)
    trial = simulate_flows(loaded.plan, chances, budget=budget, seed=seed, done=done)
    most = bound(loaded.plan, others=loaded.others)
    if as_json:
        head = {"type": "checked", "file": found.file, "project": shelf.root, "hides": hidden(found)}
        head["warnings"] = [one.as_json() for one in loaded.warnings]
        print_json({**head, **as_data(loaded.plan, trial, seed), "bound": most})
    else:
        lines = checked(loaded.plan, trial, seed, most, flows)
        print_lines([*_found(found, loaded, shelf), *lines, *stuck(name, trial)])
    tell_crowds(shelf)
    leave(trial)


@click.command()
@name_argument
@flows_option
@items_option
@seed_option
@click.option("--oracle", type=click.Choice(ORACLES), help="What answers the flow (default: all, in turn).")
@project_option
@json_option
@click.pass_obj
def simulate(
    place: Place,
    name: str,
    flows: int,
    items: int,
    seed: int,
    oracle: Oracle | None,
    project: str | None,
    as_json: bool,
) -> None:
    """Simulate flows of the pipeline NAME, or of a file: how they end, and how many tasks they open.

    An oracle answers in place of agents and people: by `chance`; `worst` goes back where it can; `best` never
    fails; with `first_fails` every first attempt fails; with `patient` a person tries everything again.
    """
    shelf = shelf_of(place, project)
    plan = shelf.loaded(shelf.chosen(name)).plan
    oracles = ORACLES if oracle is None else (oracle,)
    chances, done = _chances(seed, flows), _progress(flows)
    trial = simulate_flows(plan, chances, items, oracles, seed=seed, done=done)
    if as_json:
        head = {"type": "simulated", "items": items, "oracles": list(oracles)}
        print_json({**head, **as_data(plan, trial, seed)})
    else:
        print_lines([*simulated(plan, trial, seed), *stuck(name, trial, items)])
    leave(trial)


def check_programs(plan: Plan, file: str) -> None:
    """Refuse a command `handoffd kit NAME` whose program there is not. Raises InvalidFile."""
    problems = [
        Problem(
            file=file,
            line=task.line or None,
            key=f"tasks.{place.replace('/', '.tasks.')}.run",
            message=f"there is no program '{name[:80]}' in the kit",
            allowed=tuple(PROGRAMS),
            meant=nearest(name, PROGRAMS),
        )
        for place, task in everything(plan.root)
        if task.kind == "command"
        for name in _programs_in(task.doer)
        if name not in PROGRAMS and name != "list"
    ]
    if problems:
        raise InvalidFile(tuple(problems))


def _programs_in(command: str | tuple[str, ...]) -> Iterator[str]:
    words = command.split() if isinstance(command, str) else command
    if list(words[:2]) == ["handoffd", "kit"]:
        yield from words[2:3]


def tell_crowds(shelf: Shelf) -> None:
    """Say as errors which folders have more files than count: the one that is meant may be among the rest."""
    for one in shelf.crowds:
        click.echo(f"handoffd: {plain(str(one))}", err=True)


def _found(found: Found, loaded: Loaded, shelf: Shelf) -> list[str]:
    """Return the first lines of a check: what was checked, and what is doubtful about it."""
    warnings = [f"warning: {plain(str(one))}" for one in loaded.warnings]
    tasks = counted(sum(1 for _ in everything(loaded.plan.root)), "task")
    valid = f"{plain(found.file)} is valid: {plain(loaded.plan.name)}, {tasks}."
    where = shelf.upwards if found.origin == "project" else ()
    return [*where, valid, *replaced(hidden(found)), *warnings]


def leave(trial: Sum) -> None:
    """Return if all flows ended; else leave the command with the exit code 1."""
    if trial.stuck:
        click.get_current_context().exit(1)


def _progress(flows: int) -> Callable[[int], None]:
    """Return a function that writes the number of flows that are over, if a terminal shows it."""
    last = time.monotonic()
    shown = False

    def done(count: int) -> None:
        nonlocal last, shown
        now = time.monotonic()
        if count == flows and shown:
            click.echo("\r\x1b[K", nl=False, err=True)
        elif now - last >= _EVERY_S:
            last, shown = now, True
            click.echo(f"\r{count:,} of {flows:,} flows", nl=False, err=True)

    return done if sys.stderr.isatty() else lambda _: None


# --- what is reported ----------------------------------------------------------------------------------
def unreached(plan: Plan, trial: Sum) -> list[str]:
    """Return the tasks that no flow opened, by their places."""
    return [place for place, _ in everything(plan.root) if place not in trial.tasks]


def untaken(plan: Plan, trial: Sum) -> list[str]:
    """Return the outcomes that never came, as `task.outcome`, of tasks that were opened.

    One that every task of its kind has, and that the file says nothing about, is not missed.
    """
    return [
        f"{place}.{outcome}"
        for place, task in everything(plan.root)
        if place in trial.tasks
        for outcome in _said(task)
        if (place, outcome) not in trial.outcomes
    ]


def _said(task: Task) -> Iterator[str]:
    yield from (name for name in task.outcomes if name in task.declared or task.outcomes[name] != (Hold(),))
    yield from task.join.outcomes if task.join.verdict else ()


def as_data(plan: Plan, trial: Sum, seed: int) -> Json:
    """Return what was seen of simulated flows as JSON."""
    opened = {"median": trial.at_most(0.5), "p99": trial.at_most(0.99), "most": trial.most_opened}
    return {
        "name": plan.name, "flows": trial.flows, "seed": seed,
        "ends": {how: trial.ends[how] for how in _ENDED},
        "opened": {**opened, "most_without_retries": trial.most_opened_bound},
        "starts": plan.limits.starts,
        "unreached": unreached(plan, trial), "untaken": untaken(plan, trial),
        "valueless": dict(trial.valueless.most_common()),
        "stuck": [{"seed": one.seed, "oracle": one.oracle, "waits": one.waits} for one in trial.stuck],
    }  # fmt: skip


def checked(plan: Plan, trial: Sum, seed: int, most: int, wanted: int) -> list[str]:
    """Return the lines of a check about the simulated flows."""
    retried = [f"  where a person tries again: at most {trial.most_opened:,}"]
    limits = f"bound {most:,}, limits.starts {plan.limits.starts:,}"
    rare = (("never opened", unreached(plan, trial)), ("never taken", untaken(plan, trial)))
    return [
        _head(trial, seed),
        f"  ends: {_ends(trial)}",
        f"  tasks opened by one flow: at most {trial.most_opened_bound:,} ({limits})",
        *(retried if trial.most_opened > trial.most_opened_bound else ()),
        *(f"  {what}: {_few(names)}" for what, names in rare if names),
        *(f"  in {counted(n, 'flow')}: {plain(words)}" for words, n in trial.valueless.most_common(5)),
        *_cut(wanted - trial.flows),
    ]


def _cut(left: int) -> Iterator[str]:
    """Yield how many flows there was no time for."""
    if left > 0:
        yield f"  {counted(left, 'flow')} not played: a check takes at most {CHECK_S} s for all of them"


def simulated(plan: Plan, trial: Sum, seed: int) -> list[str]:
    """Return the lines of a simulation."""
    shares = f"median {trial.at_most(0.5):,}, 99 of 100 flows at most {trial.at_most(0.99):,}"
    return [
        f"{plain(plan.name)}: {_head(trial, seed)}",
        f"  ends: {_ends(trial)}",
        f"  tasks opened by one flow: {shares}, most {trial.most_opened:,}",
    ]


def stuck(name: str, trial: Sum, items: int = USUAL_ITEMS) -> list[str]:
    """Return the lines about flows that did not end, with the command that plays the first of them again."""
    if not trial.stuck:
        return []
    first = trial.stuck[0]
    more = f" --items {items}" if items != USUAL_ITEMS else ""
    words = f"--flows 1 --seed {first.seed} --oracle {first.oracle}{more}"
    count = counted(len(trial.stuck), "flow")
    return [
        f"  did not end: {count}; the one of seed {first.seed} waits for {plain(first.waits)}",
        f"  next: handoffd pipeline simulate {words} {typed(name)}",
    ]


def _head(trial: Sum, seed: int) -> str:
    return f"{trial.flows:,} simulated flow{'s' * (trial.flows != 1)} from seed {seed}"


def _ends(trial: Sum) -> str:
    ends = [f"{how} {trial.ends[how]:,}" for how in _ENDED if trial.ends[how]]
    return ", ".join(ends) or "none"


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return plain(", ".join(names[:MOST_SHOWN])) + more
