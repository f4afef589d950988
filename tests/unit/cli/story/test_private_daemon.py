"""The daemon that `demo` and `rehearse` run on: real, private, and gone afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from handoffd.cli.story.player import private_daemon
from handoffd.errors import HandoffdError


def processes_of(base: Path) -> list[psutil.Process]:
    """Return the processes whose command line names the folder."""
    return [p for p in psutil.process_iter(["cmdline"]) if str(base) in " ".join(p.info["cmdline"] or ())]


def test_it_answers_and_ends_with_its_context(tmp_path: Path) -> None:
    """Its journal lies in the given folder, and no process of it stays."""
    with private_daemon(tmp_path, {"executor": "rehearsal"}) as client:
        assert 1 == client.get("/v1/health")["api"]
        assert processes_of(tmp_path)

    assert (tmp_path / "state/journal.db").exists()
    assert [] == processes_of(tmp_path)


def test_one_that_cannot_start_says_why(tmp_path: Path) -> None:
    """The end of its log is in the error, and the log is named."""
    with (
        pytest.raises(HandoffdError, match="executro") as caught,
        private_daemon(tmp_path, {"executro": "x"}),
    ):
        pass

    assert f"less {tmp_path}/daemon.log" == caught.value.hint


def test_the_persons_own_settings_do_not_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that names an agent or a journal must not make a rehearsal cost anything, or use theirs."""
    theirs = tmp_path / "theirs"
    monkeypatch.setenv("HANDOFFD_STATE_DIR", str(theirs))
    monkeypatch.setenv("HANDOFFD_EXECUTOR", "claude")
    monkeypatch.setenv("HANDOFFD_LOG__LEVEL", "nonsense")

    with private_daemon(tmp_path, {"executor": "rehearsal"}) as client:
        assert 1 == client.get("/v1/health")["api"]

    assert not theirs.exists()


def test_a_command_that_is_terminated_takes_its_daemon_along(tmp_path: Path) -> None:
    """TERM unwinds like an exception."""
    program = """
import os, signal, sys
from pathlib import Path
from handoffd.cli.story.player import private_daemon
with private_daemon(Path(sys.argv[1]), {}):
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
"""

    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=60, check=False)

    assert 128 + signal.SIGTERM == done.returncode
    assert [] == processes_of(tmp_path)
