"""A shim notes what it is asked and ignores what is not meant for it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from handoffd.execute.runner import daemonize

PACKAGE = str(Path(daemonize.__file__).parents[3])

# In a process of its own: how a process takes signals is one setting for all of it.
PROGRAM = """
import os, select, signal, sys
sys.path.append(sys.argv[1])
from handoffd.execute.runner import daemonize

notes = daemonize.Signals()

def ready():
    return bool(select.select([notes.wake], [], [], 0)[0])

os.kill(os.getpid(), int(sys.argv[2]))
print(notes.stop_asked, ready())
if ready():
    notes.settle()
if os.fork() == 0:
    notes.renew()
    print(notes.stop_asked, ready(), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    print(notes.stop_asked, ready(), flush=True)
    os._exit(0)
select.select([notes.wake], [], [], 30)
os.wait()
print(notes.stop_asked, ready(), flush=True)
"""


@pytest.mark.parametrize(
    ("number", "asked", "woken"),
    [
        (signal.SIGTERM, True, True),
        (signal.SIGHUP, False, False),
        (signal.SIGINT, False, False),
        (signal.SIGQUIT, False, False),
        (signal.SIGPIPE, False, False),
        (signal.SIGXFSZ, False, False),
    ],
)
def test_term_asks_and_others_do_nothing(number: int, *, asked: bool, woken: bool) -> None:
    """What the parent was asked is not asked of its child, nor the other way; a child's end wakes."""
    command = [sys.executable, "-I", "-S", "-u", "-c", PROGRAM, PACKAGE, str(number)]

    done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=60)

    expected = [(asked, woken), (False, False), (True, True), (asked, True)]
    assert [f"{first} {second}" for first, second in expected] == done.stdout.splitlines()
