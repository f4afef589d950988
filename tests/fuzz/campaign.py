"""`make fuzz`: every target in turn, or some of them, for some minutes each; exit 1 when anything was found.

The first two thirds of a target's time go to inputs that coverage guides, the rest to pieces of inputs,
repeated until an input is as long as the reader allows. The corpus is kept in
`.cache/fuzz/TARGET/corpus` for the next time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.fuzz.hunt import LAST, REPORT, SLOW_S
from tests.fuzz.targets import ROOT, TARGETS

CACHE: Final = ROOT / ".cache/fuzz"
_COVERAGE: Final = re.compile(r"\bcov: (\d+)")
_PATIENCE_S: Final = 120


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What the processes of one target did."""

    name: str
    executions: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    slowest_s: float = 0.0
    corpus: tuple[int, int] = (0, 0)
    """How many inputs it had before and after."""
    coverage: tuple[int, int] | None = None
    """How many places of the code the samples reach, and all inputs; None without atheris."""
    found: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        before, after = self.corpus
        covered = "" if self.coverage is None else f", coverage {self.coverage[0]:,} → {self.coverage[1]:,}"
        rate = self.executions / max(self.wall_s, 0.001)
        lines = [
            f"{self.name}: {self.executions:,} executions, {rate:,.0f}/s, {self.cpu_s / 60:.1f} min of CPU, "
            f"corpus {before:,} → {after:,}{covered}, slowest {self.slowest_s * 1000:,.0f} ms, "
            f"{len(self.found)} findings"
        ]
        return "\n".join([*lines, *(f"  {what}: {file}" for what, file in sorted(self.found.items()))])


def played(name: str, minutes: float) -> Outcome:
    """Return what came of a target in that time."""
    place = CACHE / name
    corpus = place / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for path in corpus.glob(".*"):
        path.unlink()
    outcome = Outcome(name=name, corpus=(_inputs(corpus), 0))
    suspects: list[str] = []
    for way, share in (("guided", 2 / 3), ("stretched", 1 / 3)):
        log = _ran(outcome, way, minutes * 60 * share, place / way)
        if way == "guided":
            covered = [int(found) for found in _COVERAGE.findall(log)]
            outcome.coverage = (covered[0], covered[-1]) if covered else None
            slow = [what for what in outcome.found if what.startswith("slow")]
            suspects = [outcome.found.pop(what) for what in slow]  # instruments make them so, perhaps
    if suspects:
        _ran(outcome, "again", _PATIENCE_S, place / "again", "\n".join(suspects))
    outcome.corpus = (outcome.corpus[0], _inputs(corpus))
    return outcome


def _inputs(corpus: Path) -> int:
    return sum(1 for _ in corpus.iterdir())


def _ran(outcome: Outcome, way: str, seconds: float, folder: Path, given: str = "") -> str:
    """Run one process, add to the outcome what it reports, and return what it printed."""
    folder.mkdir(exist_ok=True)
    (folder / REPORT).unlink(missing_ok=True)
    command = (
        "nice",
        "-n",
        "19",
        sys.executable,
        "-m",
        "tests.fuzz.hunt",
        way,
        outcome.name,
        str(seconds),
        str(folder),
    )
    path = os.pathsep.join((str(ROOT / "daemon"), str(ROOT)))
    before = time.monotonic()
    ended = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, input=given.encode(), check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    log = ended.stdout.decode("utf-8", "replace")
    (folder / "log").write_text(log)
    told = json.loads((folder / REPORT).read_text()) if (folder / REPORT).exists() else {}
    outcome.wall_s += time.monotonic() - before
    outcome.executions += told.get("executions", 0)
    outcome.cpu_s += told.get("cpu_s", 0.0)
    outcome.found |= told.get("found", {})
    if way != "guided":
        outcome.slowest_s = max(outcome.slowest_s, told.get("slowest_s", 0.0))
    if ended.returncode != 0:
        outcome.found[f"process ended with {ended.returncode}"] = _of_the_dead(folder)
    return log


def _of_the_dead(folder: Path) -> str:
    """Return the file of the input that the process had when it died."""
    kept = (folder / LAST).read_bytes() if (folder / LAST).exists() else b"\0" * 8
    size = int.from_bytes(kept[:8], "little")
    place = folder / "findings" / "died"
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(kept[8 : 8 + size])
    return f"{place} (and {folder / 'log'})"


def chosen(only: str | None) -> list[str]:
    """Return the names of targets that begin with one of the comma-separated words; all without."""
    words = [word.strip() for word in (only or "").split(",") if word.strip()]
    names = [name for name in TARGETS if not words or name.startswith(tuple(words))]
    if not names:
        raise SystemExit(f"no target is called {only}; there are: {', '.join(TARGETS)}")
    return names


def outcomes(names: Sequence[str], minutes: float, jobs: int) -> Iterator[Outcome]:
    """Yield the outcome of each target, as many at once as `jobs` says."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda name: played(name, minutes), names)


def main(words: Sequence[str] | None = None) -> int:
    """Play them; 1 when anything was found."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long each target is fuzzed")
    parser.add_argument("--only", help="beginnings of names, with commas: handoff,report")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many targets at once")
    asked = parser.parse_args(words)
    print(
        f"A finding: any undocumented exception, or more than {SLOW_S:.0f} s of CPU for one input.",
        flush=True,
    )
    executions, cpu_s, found = 0, 0.0, 0
    for outcome in outcomes(chosen(asked.only), asked.minutes, asked.jobs):
        print(outcome, flush=True)
        executions, cpu_s = executions + outcome.executions, cpu_s + outcome.cpu_s
        found += len(outcome.found)
    print(f"{executions:,} executions in {cpu_s / 3600:.2f} hours of CPU; {found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
