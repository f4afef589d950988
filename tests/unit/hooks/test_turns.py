"""Hooks one after the other, and hooks nobody waits for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.eventually import eventually_sync

from handoffd.hooks.tally import turn


def test_one_at_a_time(tmp_path: Path) -> None:
    """Another hook of the same project waits until the first has ended."""
    code = (
        "import sys; from handoffd.hooks.tally import turn\n"
        "with turn(sys.argv[1], sys.argv[2]): print('my turn')"
    )
    argv = [sys.executable, "-c", code, str(tmp_path / "hooks"), str(tmp_path)]
    with turn(str(tmp_path / "hooks"), str(tmp_path)):
        other = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        eventually_sync(lambda: "flock" in _waiting_in(other.pid) or _waiting_in(other.pid) == "0")
        assert other.poll() is None
    assert "my turn\n" == other.communicate(timeout=60)[0]


def _waiting_in(pid: int) -> str:
    """Return the kernel function a process waits in; empty if it is not told."""
    try:
        return Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return "0"


def test_later_is_not_waited_for(tmp_path: Path) -> None:
    """The caller ends, its streams end, and the work is done all the same."""
    gate, done = tmp_path / "gate", tmp_path / "done"
    os.mkfifo(gate)
    code = (
        "import sys; from handoffd.entrance.hook import later\n"
        "def work():\n"
        "    open(sys.argv[1]).read(); print('unheard'); open(sys.argv[2], 'w').write('x')\n"
        "later(work); print('gone on')"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, str(gate), str(done)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip

    assert ("gone on\n", "", False) == (said.stdout, said.stderr, done.exists())
    gate.write_text("now", encoding="utf-8")
    eventually_sync(done.exists)


def test_work_that_fails_later_fails_alone(tmp_path: Path) -> None:
    """Nobody is there any more to hear of it, and nothing else goes on in its place."""
    code = (
        "import sys; from handoffd.entrance.hook import later\n"
        "def work(): open(sys.argv[1], 'a').write('x'); raise RuntimeError\n"
        "later(work); open(sys.argv[1], 'a').write('y')"
    )
    log = tmp_path / "log"
    subprocess.run([sys.executable, "-c", code, str(log)], capture_output=True, timeout=60, check=True)

    eventually_sync(lambda: sorted(log.read_text(encoding="utf-8")) == ["x", "y"])
