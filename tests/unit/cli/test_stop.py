"""`handoffd stop`, against a daemon that is a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.children import ending
from tests.support.commands import Commands

_DAEMON = """
import os, sys
from tests.support.controlled import controlled
from tests.support.supervision import MemorySupervision
import threading
asked = threading.Event()
with controlled(MemorySupervision(), on_stop=asked.set) as control:
    print(control.runtime, flush=True)
    asked.wait(60)
    if control.stopped_with != [sys.argv[1] == "executors"]:
        os._exit(9)
"""


@contextmanager
def _daemon(argument: str) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    with ending(subprocess.Popen(
        [sys.executable, "-c", _DAEMON, argument],
        stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3],
    )) as process:  # fmt: skip
        assert process.stdout is not None
        yield Path(process.stdout.readline().strip()), process


def _stop(
    handoffd: Commands, runtime: Path, monkeypatch: pytest.MonkeyPatch, *words: str
) -> tuple[int, list[str]]:
    monkeypatch.setenv("HANDOFFD_RUNTIME_DIR", str(runtime))
    said = handoffd("stop", *words)
    return said.code, said.lines


def test_it_returns_when_the_daemon_is_gone(
    alone: Path, handoffd: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when it was asked."""
    with _daemon("alone") as (runtime, process):
        code, lines = _stop(handoffd, runtime, monkeypatch)

        assert 0 == process.poll()
    assert (0, "The daemon has stopped; running executors go on.") == (code, lines[0])


def test_executors_are_ended_on_demand_only(
    alone: Path, handoffd: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon is told."""
    with _daemon("executors") as (runtime, process):
        code, _ = _stop(handoffd, runtime, monkeypatch, "--executors", "--json")

        assert (0, 0) == (code, process.poll())


def test_without_a_daemon_there_is_nothing_to_stop(alone: Path, handoffd: Commands) -> None:
    """Exit code 3."""
    assert 3 == handoffd("stop").code
