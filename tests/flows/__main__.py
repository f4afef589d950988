"""`python -m tests.flows`: random pipelines under the watcher, and every shipped pipeline many times.

Prints what was played and what was found; ends with 1 where a flow broke something, did not end, or opened
more than the bound of its plan.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random

from msgspec import Struct, field
from tests.flows.generator import pipeline
from tests.flows.playing import watched
from tests.flows.watcher import Violated

from handoffd.forecast.flows import Oracle, everything, simulate
from handoffd.protocol.pipelines.bounds import bound
from handoffd.protocol.pipelines.loading import Loaded, load_plan
from handoffd.settings.paths import shared

PLAYED: tuple[tuple[Oracle, bool], ...] = (("chance", True), ("worst", False), ("patient", True))
"""How each random pipeline is played, and whether a person and the world interfere."""
MOST_ITEMS = 4


class Campaign(Struct):
    """What many flows of random pipelines have shown."""

    flows: int = 0
    events: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def random_plan(seed: int) -> Loaded:
    """Return the random pipeline of a seed."""
    return load_plan(json.dumps(pipeline(Random(seed))), "random.yaml")


def campaign(seeds: range) -> Iterator[Campaign]:
    """Play the pipelines of `seeds`, each as `PLAYED` says; yield the sum after each."""
    found = Campaign()
    for seed in seeds:
        plan = random_plan(seed).plan
        for number, (oracle, hostile) in enumerate(PLAYED):
            try:
                ended = watched(plan, Random(seed * 100 + number), oracle, hostile=hostile)
            except Violated as violated:
                found.faults.append(f"seed {seed}, {oracle}: {violated}")
                continue
            found.flows += 1
            found.events += ended.events
            found.ends[str(ended.flow.ended)] += 1
            if not hostile and ended.flow.opened > bound(plan, MOST_ITEMS):
                found.faults.append(f"seed {seed}: {ended.flow.opened} openings are above the bound")
        yield found


def shipped() -> Mapping[str, Loaded]:
    """Return every shipped pipeline by name."""
    folder = shared("config", "pipelines")
    texts = {path.name.removesuffix(".yaml"): path.read_text("utf-8") for path in folder.iterdir()}
    return {
        name: load_plan(text, f"config/pipelines/{name}.yaml", others=texts)
        for name, text in sorted(texts.items())
    }


def row(name: str, loaded: Loaded, flows: int, seed: int) -> tuple[str, list[str]]:
    """Simulate one shipped pipeline; return its row of the table, and its faults."""
    began = time.perf_counter()
    found = simulate(loaded.plan, (Random(f"{seed} {name} {number}") for number in range(flows)), MOST_ITEMS)
    seconds = time.perf_counter() - began
    most = bound(loaded.plan, MOST_ITEMS, loaded.others)
    faults = [
        f"{name} did not end: it waited for {why}" for why in sorted({one.waits for one in found.stuck})
    ]
    if found.most_opened_bound > most:
        faults.append(f"{name} opened {found.most_opened_bound} tasks; its bound is {most}")
    places = dict(everything(loaded.plan.root))
    faults += [f"{name}: {place} was never opened" for place in places if place not in found.tasks]
    ends = ", ".join(f"{how} {count:,}" for how, count in found.ends.most_common())
    return f"{name:20} {most:>12,} {found.most_opened_bound:>6} {seconds:>7.1f} s  {ends}", faults


def main() -> int:
    """Play, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.flows")
    parser.add_argument("--pipelines", type=int, default=5_000, help="random pipelines")
    parser.add_argument("--flows", type=int, default=10_000, help="flows of each shipped pipeline")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one shipped pipeline")
    options = parser.parse_args()
    faults: list[str] = []
    found = Campaign()
    for found in campaign(range(options.seed, options.seed + options.pipelines)):
        if sys.stderr.isatty() and found.flows % 600 == 0:
            print(f"\r{found.flows:,} flows of random pipelines", end="", file=sys.stderr)
    print(f"{options.pipelines:,} random pipelines: {found.flows:,} flows, {found.events:,} events")
    faults += found.faults
    print(f"{'pipeline':20} {'bound':>12} {'most':>6} {'time':>9}  ends of {options.flows:,} flows")
    for name, loaded in shipped().items():
        if options.only in {None, name}:
            line, more = row(name, loaded, options.flows, options.seed)
            faults += more
            print(line, flush=True)
    print("\n".join(faults) or "no fault")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
