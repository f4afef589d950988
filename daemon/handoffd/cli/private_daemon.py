"""A daemon for one purpose, with a state directory of its own: what `demo` and `rehearse` run on.

It is the real daemon, started as people start it, so what is shown is what they get. It ends, with
everything it started, when its context is left.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from types import FrameType
from typing import Any

from handoffd.api.client import Client
from handoffd.errors import HandoffdError, NoDaemon

START_S = 30.0
STOP_S = 30.0
LOOK_MS = 50


@contextmanager
def private_daemon(base: Path, settings: Mapping[str, Any]) -> Iterator[Client]:
    """Lend a running daemon whose journal and runs lie below `base`. Raises HandoffdError if it dies."""
    # Of its own, because a socket's path has room for about a hundred bytes only.
    runtime = Path(tempfile.mkdtemp(prefix="handoffd-"))
    config = base / "handoffd.yaml"
    places = {"state_dir": str(base / "state"), "runtime_dir": str(runtime)}
    config.write_text(json.dumps({**settings, **places}), encoding="utf-8")  # JSON is YAML
    log = base / "daemon.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "handoffd", "run", "--config", str(config)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=_own_environment(),
            start_new_session=True,
        )  # fmt: skip
    client = Client(runtime / "control.sock")
    try:
        with _ended_like_an_exception():
            _wait_until_it_answers(client, process, log)
            yield client
    finally:
        _end(client, process)
        shutil.rmtree(runtime, ignore_errors=True)


def _own_environment() -> dict[str, str]:
    """Return the environment without the person's own settings: they would win over the private file."""
    return {name: value for name, value in os.environ.items() if not name.upper().startswith("HANDOFFD_")}


@contextmanager
def _ended_like_an_exception() -> Iterator[None]:
    """Let TERM and HUP unwind the stack, so that they, too, leave no daemon behind."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait_until_it_answers(client: Client, process: subprocess.Popen[bytes], log: Path) -> None:
    # Its end is waited for; for its socket we have to look. Only a service manager is told that a daemon
    # is ready, and one that has such a manager behaves differently: it leaves its launcher behind.
    give_up_at = time.monotonic() + START_S
    with _ending(process) as ended:
        while time.monotonic() < give_up_at:
            with suppress(NoDaemon):
                client.get("/v1/health")
                return
            if ended.poll(LOOK_MS):
                break
    raise HandoffdError(f"the daemon did not start; it said:\n{_tail(log)}", hint=f"less {quote(str(log))}")


@contextmanager
def _ending(process: subprocess.Popen[bytes]) -> Iterator[select.poll]:
    """Lend a poll that has something to tell once the process has ended."""
    handle = os.pidfd_open(process.pid)  # not reaped yet, so the number is its own
    try:
        ended = select.poll()
        ended.register(handle, select.POLLIN)
        yield ended
    finally:
        os.close(handle)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-15:])


def _end(client: Client, process: subprocess.Popen[bytes]) -> None:
    with suppress(HandoffdError):
        client.post("/v1/stop", {"executors": True})
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
