"""What a talkative executor costs: memory of its shim and of the daemon, and bytes on the disk.

    python -m tests.benchmarks.flood [--mib 1024] [--json] [--check]

A real daemon runs an executor that writes 10 MiB and then goes on to the whole. Both times, when
everything has arrived, the resident memory of shim and daemon is read. `--check`: the exit code is 1
if one of them grew by more than 10 MiB, or if more than the head and the tail is on the disk.
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
from tests.support.daemon import Daemon, running
from tests.support.eventually import eventually_sync

from handoffd.execute.base import RunSpec
from handoffd.execute.output import output_bytes

Json = dict[str, Any]
MIB = 1024 * 1024
FIRST_MIB = 10
ALLOWED_MIB = 10
_LINE_BYTES = 64
"""The line between head and tail that counts the omitted bytes."""

AGENT = """\
cat > /dev/null
echo first words
head -c {first} /dev/zero
until test -e {base}/on; do sleep 0.02; done
head -c {rest} /dev/zero
echo last words
until test -e {base}/over; do sleep 0.02; done
printf -- '---\\nstep: %s\\ndispatch: %s\\nstatus: pass\\n---\\n' "$HANDOFFD_STEP" "$HANDOFFD_RUN" > .ai/new
mv .ai/new .ai/HANDOFF.md
"""
_WORDS_BYTES = len("first words\n"), len("last words\n")
_RULES = "steps: {bdd: {next_on_pass: review}, review: {next_on_pass: update-memory}}\n"


def measure(base: Path, mib: int) -> Json:
    """Return what an executor that writes `mib` MiB costs below `base`; sizes in bytes."""
    project = _make(base, mib)
    agent = {"extends": "command", "argv": ["/bin/sh", str(base / "agent.sh")]}
    with running(base, {"executor": "agent", "executors": {"agent": agent}}) as daemon:
        assert "accepted" == daemon.verb("start", project, story="US-001")["type"]
        track = daemon.wait_for(project, lambda track: track["phase"] == "executing" and track["pid"])
        run_dir = daemon.state_dir / "runs" / track["dispatch"]
        shim = psutil.Process(track["pid"]).parent()
        assert shim is not None
        before = _resident(daemon, shim, run_dir, FIRST_MIB * MIB + _WORDS_BYTES[0])
        began = time.monotonic()
        (base / "on").touch()
        after = _resident(daemon, shim, run_dir, mib * MIB + sum(_WORDS_BYTES))
        seconds = time.monotonic() - began
        (base / "over").touch()
        daemon.wait_at(project, "review", "needs_human")
        return {
            "mib": mib,
            "seconds": round(seconds, 2),
            "before": before,
            "after": after,
            **_kept(run_dir),
        }


def faults(found: Json) -> list[str]:
    """Return what is not as it should be in what was measured."""
    wrong = []
    for name in ("shim", "daemon"):
        grown = found["after"][name] - found["before"][name]
        if grown > ALLOWED_MIB * MIB:
            wrong.append(f"the {name} grew by {grown / MIB:.1f} MiB")
    if not found["bound"] - _LINE_BYTES <= found["on_disk"] <= found["bound"] + _LINE_BYTES:
        wrong.append(f"{found['on_disk']} bytes of output are on the disk, not {found['bound']}")
    if not (found["head_kept"] and found["tail_kept"]):
        wrong.append("the beginning or the end of the output is lost")
    return wrong


def _make(base: Path, mib: int) -> Path:
    script = AGENT.format(base=base, first=FIRST_MIB * MIB, rest=(mib - FIRST_MIB) * MIB)
    (base / "agent.sh").write_text(script)
    project = base / "shop"
    (project / ".ai").mkdir(parents=True)
    (project / "PROJECT_CONTEXT.md").write_text("A shop.\n")
    (project / ".ai/step-rules.yaml").write_text(_RULES)
    return project


def _resident(daemon: Daemon, shim: psutil.Process, run_dir: Path, count: int) -> Json:
    """Return the resident memory of shim and daemon once `count` bytes have arrived."""
    eventually_sync(lambda: output_bytes(run_dir) == count, within_s=300)
    daemon.get("/v1/status")  # so that the daemon has had something to do with it
    return {"shim": shim.memory_info().rss, "daemon": psutil.Process(daemon.pid).memory_info().rss}


def _kept(run_dir: Path) -> Json:
    spec = RunSpec.from_json((run_dir / "spec.json").read_text())
    output = Path(spec.output).read_bytes()
    return {
        "bound": spec.head_bytes + spec.tail_bytes,
        "on_disk": len(output),
        "head_kept": output.startswith(b"first words\n"),
        "tail_kept": output.endswith(b"last words\n"),
    }


def _report(found: Json) -> str:
    rows = [f"{'':8}{'after 10 MiB':>14}{'after ' + str(found['mib']) + ' MiB':>16}{'grown':>10}"]
    for name in ("shim", "daemon"):
        before, after = found["before"][name] / MIB, found["after"][name] / MIB
        rows.append(f"{name:8}{before:10.1f} MiB{after:12.1f} MiB{after - before:6.1f} MiB")
    rows.append(f"{found['on_disk']} bytes on the disk; {found['seconds']} s for all but the first 10 MiB")
    return "\n".join(rows)


def main(words: Sequence[str]) -> int:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.flood")
    parser.add_argument("--mib", type=int, default=1024, help="how much is written")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help="exit with 1 if something is not bounded")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="handoffd-flood-") as base:
        found = measure(Path(base), given.mib)
    print(json.dumps(found) if given.json else _report(found))
    wrong = faults(found)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if given.check and wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
