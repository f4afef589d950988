"""The processes of a run are counted, signalled and ended to the last one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from handoffd.execute.runner import tree

PACKAGE = str(Path(tree.__file__).parents[3])

# In a process of its own, which becomes a subreaper and the parent of everybody.
HEAD = """
import os, signal, sys, time
sys.path.append(sys.argv[1])
from handoffd.execute.runner import proc, tree

def sleepers():
    below = tree.descendants(os.getpid())
    return sum(proc.read(f"/proc/{member.pid}/comm") == b"sleep\\n" for member in below)

def child(*argv):
    return os.posix_spawn("/bin/sh", ["sh", "-c", *argv], os.environ)

def rest(limit):
    time.sleep(max(0, min(limit - time.monotonic(), 0.01)))
    family.reap()

def until(condition):
    while not condition():
        rest(time.monotonic() + 1)

tree.become_subreaper("test")
family = tree.Family()
"""


def told(body: str) -> list[str]:
    """Return the words that a program prints which has a family."""
    command = [sys.executable, "-I", "-S", "-c", HEAD + body, PACKAGE]
    return subprocess.run(command, capture_output=True, check=True, text=True, timeout=60).stdout.split()


def test_the_main_process_gives_the_result() -> None:
    """Others may end before it; its exit code counts, also when it comes late."""
    body = """
other = child("exit 1")
family.head(child("sleep 0.05; exit 3"))
print(family.result, family.ended)
until(lambda: family.ended)
until(lambda: family.is_empty)
print(family.result, family.killed)
"""
    assert ["None", "None", "3", "0"] == told(body)


def test_a_signal_reaches_everybody_and_is_the_result_of_who_dies_of_it() -> None:
    """Minus the number of the signal, as processes are reported elsewhere."""
    body = """
family.head(child("exec sleep 600"))
child("setsid sleep 600 & wait")
until(lambda: sleepers() == 2)
family.signal("TERM")
until(lambda: family.is_empty)
print(family.result)
"""
    assert ["-15"] == told(body)


def test_the_end_leaves_nobody_and_counts_whom_it_took() -> None:
    """Also those that ignore what can be ignored and have hidden in a session of their own."""
    body = """
family.head(child("(trap '' TERM; setsid sleep 600 & setsid sleep 600 &) & exit 4"))
until(lambda: family.ended and sleepers() == 2)
family.end(rest)
print(family.result, family.killed >= 2, family.is_empty, family.survived, tree.descendants(os.getpid()))
"""
    assert ["4", "True", "True", "0", "[]"] == told(body)


def test_ending_nobody_is_done_at_once() -> None:
    """A run that could not be started has no processes."""
    assert ["None", "True", "0"] == told(
        "family.end(rest)\nprint(family.result, family.is_empty, family.killed)"
    )
