"""How fast handoffd is: everything that has a goal, in one run, beside a floor and the reference CLI.

    python -m tests.benchmarks [--only handoff,status,...] [--json] [--check]

Sections: `handoff` (from an executor's hand-off to the next one's first instruction), `rates` (decisions and
whole cycles a second), `decision` (one of them), `status` (the command), `start` (of the daemon, until it
answers), `live` (many executors at once), `sandbox` (what it adds to a start).
docs/explanation/performance.md says what the figures mean. `--check`: exit code 1 when a goal is missed. A
figure that could not be measured misses none.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.benchmarks import (
    cycles,
    decision,
    handoff_latency,
    live,
    reference,
    sandboxed,
    starting,
    status,
)
from tests.benchmarks.executor import build
from tests.benchmarks.handoff_latency import bounded, count_of, say
from tests.benchmarks.measures import machine
from tests.benchmarks.rows import Row, table
from tests.support.daemon import Json

LIMIT_S = 900
"""The whole run gives up after this; on a quiet machine it takes less than four minutes."""

_LAPS_OF_REFERENCE = 5


class Run:
    """One run of the sections that were asked for, below one temporary folder."""

    def __init__(self, base: Path, given: Namespace) -> None:
        self._base = base
        self._given = given
        self._cli, self.note = reference.found()

    def sections(self) -> Mapping[str, tuple[str, Callable[[], list[Row]]]]:
        """Return what can be asked for, by name, with its title."""
        return {
            "handoff": ("from a hand-off to the next executor", self._handoff),
            "rates": ("decisions a second, many projects at once", self._rates),
            "decision": ("one decision, in processor time", decision.rows),
            "status": ("handoffd status, the whole process", self._status),
            "start": ("a daemon's start, until it answers", self._start),
            "live": ("many executors at once", self._live),
            "sandbox": ("a start with and without the sandbox", self._sandbox),
        }

    def _folder(self, name: str) -> Path:
        folder = self._base / name
        folder.mkdir()
        return folder

    def _handoff(self) -> list[Row]:
        found = handoff_latency.measure(self._given.projects, self._given.rounds, self._given.idle)
        theirs = None
        if self._cli is not None:
            base = self._folder("route")
            theirs = reference.rename_to_exec(self._cli, base, build(base), _LAPS_OF_REFERENCE)
        return handoff_latency.rows(found, theirs)

    def _rates(self) -> list[Row]:
        theirs, folder, many = None, self._folder("rates"), self._given.lines
        if self._cli is not None:
            theirs = reference.cycles_per_second(self._cli, folder / "theirs", many, self._given.cycles)
        return cycles.rows(folder / "ours", many, self._given.cycles, theirs)

    def _status(self) -> list[Row]:
        return status.rows(self._folder("status"), self._given.projects, 15, self._cli)

    def _start(self) -> list[Row]:
        return starting.rows(self._folder("start"), self._given.starts)

    def _sandbox(self) -> list[Row]:
        return sandboxed.rows(self._folder("sandbox"), self._given.sandboxed)

    def _live(self) -> list[Row]:
        return live.rows(self._folder("live"), self._given.live)


def measure(given: Namespace) -> Iterator[tuple[str, str, list[Row]]]:
    """Yield the sections that were asked for, as they are measured: name, title, rows."""
    with tempfile.TemporaryDirectory(prefix="handoffd-bench-", ignore_cleanup_errors=True) as folder:
        run = Run(Path(folder), given)
        say(run.note)
        for name, (title, section) in run.sections().items():
            if name in given.only:
                say(f"measuring {name}")
                yield name, title, section()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when it measured, 1 when it could not or, with --check, missed a goal."""
    given = _parsed(arguments)
    missed, whole = False, Json(machine=machine(Path(tempfile.gettempdir())), sections={})
    began = time.monotonic()
    if not given.json:
        print(_described(whole["machine"]), flush=True)
    try:
        with bounded(LIMIT_S):
            for name, title, rows in measure(given):
                whole["sections"][name] = [row.as_json() for row in rows]
                missed = missed or any(row.met is False for row in rows)
                if not given.json:
                    print(table(title, rows), flush=True)
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # whatever it is: not all was measured
        say(f"not measured: {error!r}")
        return 1
    if given.json:
        print(json.dumps(whole, indent=2))
    say(f"{time.monotonic() - began:.0f} s")
    return 1 if given.check and missed else 0


def _described(on: Mapping[str, object]) -> str:
    return (
        f"{on['cores']} cores, Linux {on['kernel']}, Python {on['python']}, {on['file_system']}, "
        f"load {on['load']}"
    )


_NUMBERS = {
    "projects": (1000, "idle projects"),
    "rounds": (200, "hand-offs to time, at least"),
    "idle": (5, "seconds to watch the daemon rest"),
    "lines": (100, "projects of the rates"),
    "cycles": (10, "cycles of each of them"),
    "starts": (9, "starts of a daemon"),
    "sandboxed": (100, "starts of a program, of each kind"),
    "live": (200, "executors at once"),
}
_NAMES = ("handoff", "rates", "decision", "status", "start", "live", "sandbox")


def _parsed(arguments: Sequence[str] | None) -> Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=str(__doc__).splitlines()[0])
    parser.add_argument("--only", type=_named, default=_NAMES, help=", ".join(_NAMES))
    for name, (usual, what) in _NUMBERS.items():
        parser.add_argument(f"--{name}", type=count_of, default=usual, help=f"{what} ({usual})")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help="fail when a goal is missed")
    return parser.parse_args(arguments)


def _named(words: str) -> tuple[str, ...]:
    wanted = tuple(words.split(","))
    if unknown := [word for word in wanted if word not in _NAMES]:
        raise argparse.ArgumentTypeError(f"no section {unknown[0]!r}; allowed: {', '.join(_NAMES)}")
    return wanted


if __name__ == "__main__":
    sys.exit(main())
