"""`handoffd run`: the real daemon, from start to end."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.children import ending
from tests.support.commands import environment, program
from tests.support.eventually import eventually_sync

from handoffd.api.client import Client
from handoffd.cli.daemon import told
from handoffd.errors import Locked, NoDaemon


@pytest.fixture
def place() -> Iterator[Path]:
    """A short folder for sockets and state."""
    with tempfile.TemporaryDirectory(prefix="handoffd-") as name:
        yield Path(name)


@contextmanager
def _daemon(place: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Lend a daemon that answers."""
    log = place / "daemon.log"
    with log.open("wb") as output, ending(subprocess.Popen(
        [sys.executable, "-m", "handoffd", "run", *words],
        env=environment(place), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
    )) as process:  # fmt: skip
        try:
            eventually_sync(lambda: _answers(place) or process.poll() is not None)
            assert process.poll() is None, log.read_text(encoding="utf-8")
            yield process
        finally:
            process.kill()


def _answers(place: Path) -> bool:
    try:
        Client(place / "control.sock").get("/v1/health")
    except NoDaemon:
        return False
    return True


def test_it_answers_until_a_signal_ends_it(place: Path) -> None:
    """A second one is refused, and the end is clean: code 0, no socket, a log that says so."""
    with _daemon(place, "--log-format", "json") as process:
        second = program("run", env=environment(place))
        process.send_signal(signal.SIGTERM)

        assert 0 == process.wait(60)
    assert 1 == second.code
    assert f"process {process.pid}" in second.err
    assert not (place / "control.sock").exists()
    assert '"event": "stopped"' in (place / "daemon.log").read_text(encoding="utf-8")


def test_stop_ends_it(place: Path) -> None:
    """And `status` says then that no daemon runs."""
    with _daemon(place) as process:
        assert program("status", "--json", env=environment(place)).json["daemon"]
        assert 0 == program("stop", env=environment(place)).code
        assert 0 == process.poll()

    assert not program("status", "--json", env=environment(place)).json["daemon"]


def test_settings_that_cannot_be_used_are_78(place: Path) -> None:
    """systemd must not try again and again; every problem is told."""
    config = place / "handoffd.yaml"
    config.write_text("execute:\n  slots: 0\nnonsense: 1\n", encoding="utf-8")

    said = program("run", "--config", str(config), env=environment(place))

    assert 78 == said.code
    assert f"{config}:2: execute.slots" in said.err
    assert f"{config}:3: nonsense" in said.err
    assert "next: " in said.err


def test_flags_outrank_the_settings(place: Path) -> None:
    """And are checked like them."""
    said = program("run", "--log-level", "loud", env=environment(place))

    assert 2 == said.code
    assert "debug" in said.err


def test_what_ends_the_daemon_is_told_without_its_wrapping() -> None:
    """What a person can act on comes out of any number of groups; a bug stays what it is."""
    locked, bug = Locked("taken"), ValueError("bug")

    assert locked is told(BaseExceptionGroup("", [BaseExceptionGroup("", [locked]), bug]))
    assert bug is told(BaseExceptionGroup("", [bug]))
