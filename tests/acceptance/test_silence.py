"""A daemon that many connections do not close to others, and one that hangs: which of the two clients say."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from tests.support.agents import GATED
from tests.support.daemon import REPOSITORY, Daemon, sample

MANY = 980
FILES = 1024
_LIBRARY = "import sys, handoffd; handoffd.approve_review(sys.argv[1])"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon whose story waits at its review; it may open as many files as is usual."""
    made = Daemon(tmp_path)
    made.prefix = ("prlimit", f"--nofile={FILES}")
    made.start()
    try:
        yield made
    finally:
        made.close()


def typed(daemon: Daemon, *words: str) -> subprocess.Popen[str]:
    """Begin what a person types: a program of ours and its words."""
    environment = {
        **os.environ,
        "HANDOFFD_CONFIG": str(daemon.config),
        "PYTHONPATH": str(REPOSITORY / "daemon"),
    }
    return subprocess.Popen(
        [sys.executable, *words],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_half_open_requests_keep_no_client_out(daemon: Daemon) -> None:
    """As many as the daemon may have files: people, hooks and verbs are answered, and files are left."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * FILES)), hard))
    try:
        with ExitStack() as held:
            for _ in range(MANY):
                connection = held.enter_context(socket.socket(socket.AF_UNIX))
                connection.connect(str(daemon.socket))
                with suppress(BrokenPipeError):  # one process cannot have all of them
                    connection.sendall(b"GET /v1/st")
            said = [typed(daemon, "-m", "handoffd", *words) for words in (["status", "--json"], ["projects"])]
            answers = [process.communicate(timeout=60) for process in said]

            assert [0, 0] == [process.returncode for process in said]
            assert json.loads(answers[0][0])["daemon"] is True
            assert len(os.listdir(f"/proc/{daemon.pid}/fd")) < FILES // 2
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_daemon_that_is_stopped_is_said_to_run(daemon: Daemon, tmp_path: Path) -> None:
    """Every command says that it does not answer, its process, and what wakes it. None acts without it."""
    project = sample(tmp_path, rules=GATED)
    daemon.to_review(project)
    told = f"a daemon runs (process {daemon.pid}) and does not answer: it is stopped (SIGSTOP)"
    hint = f"kill -CONT {daemon.pid}"
    ours = ("-m", "handoffd")

    os.kill(daemon.pid, signal.SIGSTOP)
    asked = {
        "status": typed(daemon, *ours, "status"),
        "status PROJECT": typed(daemon, *ours, "status", str(project)),
        "approve": typed(daemon, *ours, "approve", str(project)),
        "events -f": typed(daemon, *ours, "events", "-f"),
        "log": typed(daemon, *ours, "log", str(project)),
        "auto": typed(daemon, *ours, "auto", str(project), "what is left?"),
        "stop": typed(daemon, *ours, "stop"),
        "library": typed(daemon, "-c", _LIBRARY, str(project)),
        "orchestrator": typed(
            daemon, "-c", "from handoffd.orchestrator.main import main; main()", "approve", str(project)
        ),
    }
    doctor = typed(daemon, *ours, "doctor")
    said = {name: (*process.communicate(timeout=120), process.returncode) for name, process in asked.items()}
    found, _ = doctor.communicate(timeout=120)
    os.kill(daemon.pid, signal.SIGCONT)

    assert [] == [name for name, (out, err, _) in said.items() if told not in out + err], said
    assert [] == [name for name, (out, err, _) in said.items() if name != "library" and hint not in out + err]
    assert {"orchestrator": 127} == {name: code for name, (*_, code) in said.items() if code != 1}
    assert f"the daemon (process {daemon.pid}) does not answer" in found
    assert hint in found
