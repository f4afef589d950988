"""How long a decision about a flow takes, by the number of its nodes.

    python -m tests.benchmarks.flow_decisions [--check]

Whole flows are played in one process, with every event timed: a list of tasks, and a list of groups whose
tasks have a verdict, a fan and a chain of single tasks. Beside it is a floor: a copy of as many values as
the flow has nodes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from random import Random
from statistics import quantiles
from time import perf_counter

from tests.benchmarks.measures import machine

from handoffd.engine.flow.decide import decide_flow
from handoffd.engine.flow.events import FlowEvent
from handoffd.engine.flow.flow import Flow
from handoffd.forecast.flows import EPOCH, World
from handoffd.protocol.pipelines.loading import load_plan
from handoffd.protocol.plan import Plan

GOALS_US = {200: 200, 2000: 2000}
"""The median of a decision, by nodes."""
HEAD = """
language: 1
pipeline: p
limits: {{parallel: 8, starts: 100000, tasks: 1000}}
params: {{names: {{type: array, items: {{type: string}}, minItems: {size}, maxItems: {size}}}}}
roles: {{worker: {{executor: claude, isolation: clone}}}}
tasks:
"""
LIST = """
  plan: {agent: worker}
  work: {needs: [plan], each: params.names, agent: worker, outcomes: {done: ok, bad: {back_to: self}}}
  last: {needs: [work], agent: worker}
"""
GROUPS = """
  work:
    each: params.names
    tasks:
      draft: {agent: worker}
      review:
        needs: [draft]
        agent: worker
        fields: {score: {minimum: 0, maximum: 10}}
        verdict: [{if: "fields.score < 2", then: weak}, {else: good}]
        outcomes: {good: ok, weak: {back_to: draft, at_most: 2, then: warn}}
      land: {needs: [review], agent: worker}
"""
FAN = "".join(f"  t{number}: {{agent: worker}}\n" for number in range(200))
CHAIN = "  t0: {agent: worker}\n" + "".join(
    f"  t{number}: {{agent: worker, needs: [t{number - 1}]}}\n" for number in range(1, 200)
)
CASES = (
    ("list", LIST, 197), ("list", LIST, 997), ("groups", GROUPS, 50), ("groups", GROUPS, 500),
    ("fan", FAN, 1), ("chain", CHAIN, 1),
)  # fmt: skip


def plan(tasks: str, size: int) -> Plan:
    """Return a plan whose list has `size` items."""
    return load_plan(HEAD.format(size=size) + tasks, "p.yaml").plan


def decisions(made: Plan, size: int) -> tuple[list[float], int]:
    """Return the seconds of each decision of a flow, and how many nodes it has in the end."""
    world, flow = World(made, Random(1), "best", size), Flow(id="bench")
    event: FlowEvent | None = world.started()
    took: list[float] = []
    while event is not None:
        began = perf_counter()
        flow = decide_flow(flow, event, made, EPOCH).flow
        took.append(perf_counter() - began)
        event = None if flow.ended is not None else world.answer(flow, made, EPOCH)
    return took, len(flow.nodes)


def floor(nodes: int) -> float:
    """Return the seconds of one copy of a mapping with as many values."""
    values = {str(number): number for number in range(nodes)}
    began = perf_counter()
    for _ in range(100):
        dict(values)
    return (perf_counter() - began) / 100


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.flow_decisions")
    parser.add_argument("--check", action="store_true", help="end with 1 where a goal is missed")
    options = parser.parse_args()
    print(", ".join(f"{name} {value}" for name, value in machine(Path.cwd()).items()))
    print(f"{'':8} {'nodes':>6} {'events':>7} {'p50':>9} {'p99':>9} {'floor':>9}")
    missed = False
    for name, tasks, size in CASES:
        took, nodes = decisions(plan(tasks, size), size)
        p50, p99 = (quantiles(took, n=100)[at] * 1e6 for at in (49, 98))
        goal = next(limit for most, limit in GOALS_US.items() if nodes <= most * 1.1)
        missed = missed or p50 > goal
        print(
            f"{name:8} {nodes:6,} {len(took):7,} {p50:6,.0f} µs {p99:6,.0f} µs {floor(nodes) * 1e6:6.1f} µs"
            f"  goal {goal:,} µs"
        )
    return int(options.check and missed)


if __name__ == "__main__":
    sys.exit(main())
