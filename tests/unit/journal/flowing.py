"""Flows for the tests of the journal: played by chance with the real machine, and kept as records."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from random import Random

from msgspec.structs import replace
from tests.flows.__main__ import random_plan
from tests.unit.journal.making import KEY, NOW

from handoffd.engine.flow.decide import decide_flow, waits_for
from handoffd.engine.flow.events import (
    ClaimsChanged,
    FlowEvent,
    FlowPaused,
    FlowResumed,
    FlowStarted,
    ItemsRead,
    Revised,
    TaskEnded,
)
from handoffd.engine.flow.flow import Flow, Item
from handoffd.forecast.flows import Oracle, World
from handoffd.journal.records import FlowRecord, flow_key
from handoffd.protocol.pipelines.loading import load_plan
from handoffd.protocol.plan import Plan

ID = "random-7k2q"
FLOW = flow_key(KEY.project, ID)
LABEL = "US-1"
MOST = 4000
WIDE = """
language: 1
pipeline: wide
limits: {parallel: 64, tasks: 1000, starts: 50000}
roles: {worker: {executor: claude}}
tasks:
  plan: {agent: worker, out: {list: list.json}}
  look:
    needs: [plan]
    ask: "Is it good?"
    timeout: 1h
    default: good
    outcomes: {good: ok, bad: stop}
    each: plan.out.list
    item: {id: id}
  work: {needs: [plan], agent: worker, isolation: read, each: plan.out.list, item: {id: id}}
"""


def plan_of(seed: int) -> Plan:
    """Return the random pipeline of a seed."""
    return random_plan(seed).plan


def wide() -> Plan:
    """Return a pipeline with a task for each item of a list."""
    return load_plan(WIDE, "wide.yaml").plan


class Playing:
    """One flow, of which every decision that changes something becomes a record."""

    def __init__(self, plan: Plan, name: str = ID, project: str = KEY.project) -> None:
        self.plan = plan
        self.flow = Flow(id=name)
        self.records: list[FlowRecord] = []
        self._project = project

    def give(self, event: FlowEvent, *, story: str | None = LABEL) -> FlowRecord | None:
        """Decide on an event; return its record, None if it changes nothing."""
        at = NOW + timedelta(seconds=len(self.records))
        decision = decide_flow(self.flow, event, self.plan, at)
        if decision.refused is not None:
            return None
        record = FlowRecord(
            project=self._project, id=self.flow.id, at=at, event=event, before=self.flow,
            after=decision.flow, orders=decision.orders, reasons=decision.reasons, past=decision.past,
            why=waits_for(decision.flow) or "nothing", story=story,
            plan=self.plan if isinstance(event, FlowStarted) else None,
        )  # fmt: skip
        self.flow = decision.flow
        self.records.append(record)
        return record


def played(seed: int, oracle: Oracle = "chance", *, name: str = ID, most: int = MOST) -> Playing:
    """Return a flow of the random pipeline of a seed, played to its end, or to its latest record."""
    chance, play = Random(seed), Playing(plan_of(seed), name)
    world = World(play.plan, chance, oracle)
    play.give(world.started())
    while play.flow.ended is None and len(play.records) < most:
        for event in (*_interference(play, chance), _next(play, world)):
            play.give(event)
    return play


def _interference(play: Playing, chance: Random) -> Iterator[FlowEvent]:
    """Yield what a person or the world does unexpectedly, now and then."""
    opened = sorted(node.id for node in play.flow.nodes.values() if node.visit)
    match chance.randrange(20):
        case 0:
            yield FlowPaused(by="anna")
        case 1 if opened and len(play.records) < 40:
            yield Revised(node=chance.choice(opened), text='again, "$twice"', by="anna")
        case 2:
            yield ClaimsChanged(taken=("src/a/x.py", "name:x"))


def _next(play: Playing, world: World) -> FlowEvent:
    if play.flow.paused_by is not None:
        return FlowResumed(by="anna")
    event = world.answer(play.flow, play.plan, NOW)
    return event if event is not None else ClaimsChanged(taken=())


def fanned_out(count: int, *, name: str = "wide-0001") -> Playing:
    """Return a flow that works on many items at once."""
    play = Playing(wide(), name)
    play.give(FlowStarted())
    play.give(TaskEnded(node="plan", visit=1, status="pass", summary="planned"))
    for task, most in (("look", count), ("work", min(count, 60))):
        items = tuple(Item(id=f"ITEM-{at:04}", value={"n": at}) for at in range(most))
        play.give(ItemsRead(node=task, visit=play.flow.nodes[task].visit, items=items))
    return play


def without_order(record: FlowRecord) -> FlowRecord:
    """Return a record whose mappings were made in another order."""
    nodes = dict(reversed([*record.after.nodes.items()]))
    return replace(record, after=replace(record.after, nodes=nodes))
