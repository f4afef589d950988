"""Runs chosen tests again and again, half of the rounds while other work keeps every processor busy.

`make test-repeat TIMES=100 ARGS=tests/unit/execute/runner/test_launcher.py`. Each round is a run of pytest of
its own. At the end it says which tests failed and how often; what a failed round printed is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

_SPIN = """
import os, sys, time
parent, end = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
while os.getppid() == parent and time.monotonic() < end:
    sum(range(100_000))
"""
"""Keeps a processor busy, as long as this process lives and for six hours at most."""
_SPIN_S = 6 * 3600


@dataclass(frozen=True, slots=True)
class Round:
    """The result of one run of the tests."""

    number: int
    busy: bool
    tests: int
    failed: tuple[str, ...]
    """Names of tests that failed, or what else went wrong."""
    seconds: float
    log: Path

    def told(self, times: int) -> str:
        """Return a line about it."""
        busy = ", busy" if self.busy else ""
        told = f"round {self.number} of {times}{busy}: {self.tests} tests in {self.seconds:.0f} s"
        if not self.failed:
            return told
        return "\n".join(
            [f"{told}; {len(self.failed)} FAILED, see {self.log}", *(f"  {t}" for t in self.failed)]
        )


def main(words: Sequence[str] | None = None) -> int:
    """Run the rounds; 1 when a test failed in any."""
    asked = _parser().parse_args(words)
    folder = asked.logs / time.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True)
    rounds: list[Round] = []
    try:
        for done in _rounds(asked, folder):
            print(done.told(asked.times), flush=True)
            rounds.append(done)
    except KeyboardInterrupt:
        print("interrupted; until then:")
    print(summary(rounds))
    if len(rounds) < asked.times or any(done.failed for done in rounds):
        return 1
    folder.rmdir()
    return 0


def summary(rounds: Sequence[Round]) -> str:
    """Return how often each test failed, the worst first."""
    busy = sum(done.busy for done in rounds)
    tests = max((done.tests for done in rounds), default=0)
    head = f"{len(rounds)} rounds of {tests} tests, {busy} of them on a busy machine"
    failed = Counter(name for done in rounds for name in done.failed)
    if not failed:
        return f"{head}: every test passed each time."
    under_load = Counter(name for done in rounds if done.busy for name in done.failed)
    lines = [f"  {often} times ({under_load[name]} busy)  {name}" for name, often in failed.most_common()]
    return "\n".join([f"{head}; failed:", *lines])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make test-repeat", description="Run tests again and again.")
    parser.add_argument("--times", type=int, default=100, help="rounds (100)")
    parser.add_argument("--jobs", type=int, default=1, help="rounds at the same time (1)")
    parser.add_argument(
        "--logs", type=Path, default=REPOSITORY / ".cache/repeat", help="where failed rounds are kept"
    )
    parser.add_argument("tests", nargs="+", help="what pytest gets: files, -k, -m …; after --")
    return parser


def _rounds(asked: argparse.Namespace, folder: Path) -> Iterator[Round]:
    numbers = range(1, asked.times + 1)
    half = asked.times - asked.times // 2
    for part, busy in ((numbers[:half], False), (numbers[half:], True)):
        with _busy_machine() if busy else contextlib.nullcontext(), ThreadPoolExecutor(asked.jobs) as pool:
            running = [pool.submit(_round, number, busy, asked.tests, folder) for number in part]
            try:
                yield from (future.result() for future in as_completed(running))
            finally:
                pool.shutdown(cancel_futures=True)


def _round(number: int, busy: bool, tests: Sequence[str], folder: Path) -> Round:
    log, report = folder / f"round-{number}.log", folder / f"round-{number}.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *tests]
    began = time.monotonic()
    with log.open("wb") as output:
        code = subprocess.run(command, cwd=REPOSITORY, stdout=output, stderr=output, check=False).returncode
    count, failed = _read(report, code)
    if not failed:
        log.unlink()
    return Round(number, busy, count, failed, time.monotonic() - began, log)


def _read(report: Path, code: int) -> tuple[int, tuple[str, ...]]:
    """Return how many tests there were, and which of them failed."""
    if code not in {0, 1} or not report.exists():
        return 0, (f"pytest ended with {code}",)
    cases = list(ET.parse(report).iter("testcase"))
    report.unlink()
    failed = {
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    }
    return len(cases), tuple(sorted(failed))


@contextlib.contextmanager
def _busy_machine() -> Iterator[None]:
    command = [sys.executable, "-I", "-S", "-c", _SPIN, str(os.getpid()), str(_SPIN_S)]
    with contextlib.ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            process = stack.enter_context(subprocess.Popen(command))
            stack.callback(process.kill)
        yield


if __name__ == "__main__":
    sys.exit(main())
