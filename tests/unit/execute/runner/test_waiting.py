"""A shim is ready before it has a run, and gets one by a message."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.runs import run_spec

from handoffd.execute.runner import records, shim

PACKAGE = str(Path(shim.__file__).parents[3])

# In a process of its own, since it forks. `let_go` runs in the shim, before anything else there.
PROGRAM = """
import os, signal, socket, sys
sys.path.append(sys.argv[1])
from handoffd.execute.runner import daemonize, proc
from handoffd.execute.runner import shim as shims

marker, run_dir = sys.argv[2:]
shim = shims.fork_waiting(daemonize.Signals(), lambda: open(marker, "x").close(), None)
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
"""
GIVE = """
print(shim.give(os.fsencode(run_dir), theirs))
theirs.close()
print(ours.recv(100) == b"%d %d" % (shim.pid, proc.started(shim.pid)))
shim.channel.setblocking(True)
print(shim.channel.recv(100), ours.recv(100))
print(os.waitpid(shim.pid, 0)[1], os.path.exists(marker))
"""
DISMISS = """
shim.channel.close()
print(os.waitpid(shim.pid, 0)[1])
"""
KILL = """
os.kill(shim.pid, signal.SIGKILL)
os.waitpid(shim.pid, 0)
print(shim.give(os.fsencode(run_dir), theirs))
"""


def told(body: str, root: Path) -> list[str]:
    """Return the lines printed by a program that has a waiting shim."""
    run_dir = root / "r1"
    run_dir.mkdir()
    records.write(str(run_dir), "spec.json", run_spec(root, "r1", "sh", "-c", "exit 3").to_json())
    command = [sys.executable, "-I", "-S", "-c", PROGRAM + body, PACKAGE, str(root / "marker"), str(run_dir)]
    done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=60)
    return done.stdout.splitlines()


def test_shim_takes_its_run_and_answers_itself(tmp_path: Path) -> None:
    """The caller gets its identity, then the end; the channel ends when the answer is given."""
    assert ["True", "True", "b'' b''", "0 True"] == told(GIVE, tmp_path)

    assert '"code": 3' in (records.read(str(tmp_path / "r1"), "exit.json") or "")


def test_shim_that_is_not_needed_leaves(tmp_path: Path) -> None:
    """It has touched nothing."""
    assert ["0"] == told(DISMISS, tmp_path)
    assert ["spec.json"] == [entry.name for entry in (tmp_path / "r1").iterdir()]


def test_shim_that_is_gone_takes_nothing(tmp_path: Path) -> None:
    """The launcher learns of it, and can ask another one."""
    assert ["False"] == told(KILL, tmp_path)
