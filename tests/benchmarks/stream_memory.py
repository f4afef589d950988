"""What a stream costs the daemon that reads it along: memory, however long it is.

    python -m tests.benchmarks.stream_memory [--mib 1024] [--pace 8] [--json] [--check]

A real daemon reads an agent that prints valid JSON lines, each with tokens, texts and files of its own, and
some that are torn, long or plain. The benchmark reads the daemon's resident memory after 10 MiB, and again
after all. The daemon reads every 10 ms here (a second by default), so that little of so fast an agent is
lost.
`--check`: the exit code is 1 if it grew by more than 10 MiB.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from tests.benchmarks.measures import cpu_s
from tests.support.daemon import Daemon, running
from tests.support.eventually import eventually_sync
from tests.support.runs import script

from handoffd.execute.meter import noted
from handoffd.execute.stream.reader import Seen

Json = dict[str, Any]
MIB = 1024 * 1024
FIRST_MIB = 10
ALLOWED_MIB = 10
METER_S = 0.01

_RULES = "steps: {bdd: {next_on_pass: review, timeout_min: 60}, review: {next_on_pass: update-memory}}\n"


def measure(base: Path, mib: int, pace: float) -> Json:
    """Return what an agent that prints `mib` MiB, `pace` of them a second, costs below `base`; in bytes."""
    project = _make(base)
    words = list(script("chatter", str(FIRST_MIB), str(mib), str(pace), str(base)))
    agent = {"extends": "rehearsal-stream", "argv": words}
    settings = {"executor": "agent", "executors": {"agent": agent}, "execute": {"meter_s": METER_S}}
    with running(base, settings) as daemon:
        assert "accepted" == daemon.verb("start", project, story="US-001")["type"]
        before, began = _resident(daemon, project, 0), time.monotonic()
        busy = cpu_s(psutil.Process(daemon.pid))
        (base / "on").touch()
        after, seconds = _resident(daemon, project, 1), time.monotonic() - began
        busy = cpu_s(psutil.Process(daemon.pid)) - busy
        run_dir = daemon.state_dir / "runs" / daemon.track(project)["dispatch"]
        seen = _noted_whole(run_dir)
        (base / "over").touch()
        daemon.wait_at(project, "review", "needs_human")
        used = daemon.runs(project)[0]["usage"]
    return {
        "mib": mib, "seconds": round(seconds, 1), "cpu_s": round(busy, 1), "before": before, "after": after,
        "lines": seen.lines, "malformed": seen.malformed, "left_out": seen.left_out, "tokens": used["tokens"],
    }  # fmt: skip


def faults(found: Json) -> list[str]:
    """Return what is not as it should be in what was measured."""
    wrong = []
    if (grown := found["after"] - found["before"]) > ALLOWED_MIB * MIB:
        wrong.append(f"the daemon grew by {grown / MIB:.1f} MiB")
    if not (found["lines"] and found["malformed"] and found["tokens"]):
        wrong.append("nothing was read")
    return wrong


def _make(base: Path) -> Path:
    project = base / "shop"
    (project / ".ai").mkdir(parents=True)
    (project / "PROJECT_CONTEXT.md").write_text("A shop.\n")
    (project / ".ai/step-rules.yaml").write_text(_RULES)
    return project


def _resident(daemon: Daemon, project: Path, part: int) -> int:
    """Return the daemon's resident memory once it has read a part of the stream to its end."""
    eventually_sync(lambda: daemon.track(project)["activity"] == _told(part), within_s=1200)
    return int(psutil.Process(daemon.pid).memory_info().rss)


def _noted_whole(run_dir: Path) -> Seen:
    """Return what the daemon has noted of the stream, once that is all of it."""
    eventually_sync(lambda: noted(run_dir).seen.activity == _told(1))
    return noted(run_dir).seen


def _told(part: int) -> str:
    return f"says part {part} is over"


def _report(found: Json) -> str:
    before, after = found["before"] / MIB, found["after"] / MIB
    lost = 100 * found["left_out"] / (found["mib"] * MIB)
    return "\n".join([
        f"memory of the daemon after {FIRST_MIB} MiB: {before:.1f} MiB",
        f"memory of the daemon after {found['mib']} MiB: {after:.1f} MiB, {after - before:+.1f} MiB",
        f"{found['lines']} lines read, {found['malformed']} malformed; {found['tokens']} tokens counted",
        f"{lost:.1f} % of the bytes were gone before they could be read",
        f"{found['seconds']} s, {found['cpu_s']} s of processor time of the daemon, but for the first part",
    ])  # fmt: skip


def main(words: Sequence[str]) -> int:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.stream_memory")
    parser.add_argument("--mib", type=int, default=1024, help="how much is printed")
    parser.add_argument("--pace", type=float, default=8, help="how many MiB a second, at most")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help="exit with 1 if memory is not bounded")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="handoffd-stream-") as base:
        found = measure(Path(base), given.mib, given.pace)
    print(json.dumps(found) if given.json else _report(found))
    wrong = faults(found)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if given.check and wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
