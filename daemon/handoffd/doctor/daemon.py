"""Whether a daemon runs, answers, and is of this version; and who else may speak to it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from handoffd.api.client import Client
from handoffd.doctor.finding import Finding, fault, fine, warning
from handoffd.doctor.service import Service
from handoffd.doctor.unit import Unit
from handoffd.errors import HandoffdError, NoAnswer, NoDaemon

CHECK = "daemon"

_LONGEST_PATH = 90
"""Bytes of a socket's path, a little below what the kernel allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the daemon said: its health and every project's status, or why there is no answer."""

    version: str | None = None
    pid: int | None = None
    status: dict[str, Any] | None = None
    error: HandoffdError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The socket or its folder as it lies there."""

    path: str
    mode: int
    owned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonFacts:
    """What was asked and seen. `holder` is the process that holds the state directory, if one does."""

    socket: str
    asked: Asked
    own_version: str
    service: Service
    entries: tuple[Entry, ...] = ()
    holder: int | None = None
    unit: Unit | None = None
    """The daemon's, where one is installed."""
    other: Service | None = None
    """The machine's service, which is not the one that was asked."""


def ask(socket: Path, answer_s: float) -> Asked:
    """Return what the daemon at `socket` says; each answer is waited for `answer_s` seconds."""
    client, pid, version = Client(socket, answer_s), None, None
    try:
        pid = client.daemon_pid()
        version = str(client.get("/v1/health").get("version"))
        status = client.get("/v1/status")
    except HandoffdError as error:
        return Asked(version=version, pid=pid, error=error)
    if not isinstance(status.get("projects"), list):
        stranger = HandoffdError("what answers on the socket is no handoffd", code="BAD_ANSWER")
        return Asked(version=version, pid=pid, error=stranger)
    return Asked(version=version, pid=pid, status=status)


def entries(socket: Path) -> tuple[Entry, ...]:
    """Return the socket and its folder, as far as they are there."""
    found = []
    for path in (socket.parent, socket):
        try:
            seen = path.lstat()
        except OSError:
            continue
        mode, owned = stat.S_IMODE(seen.st_mode), seen.st_uid == os.geteuid()
        found.append(Entry(path=str(path), mode=mode, owned=owned))
    return tuple(found)


def check(facts: DaemonFacts) -> tuple[Finding, ...]:
    """Return what is wrong with the daemon that runs, or how to start one."""
    return (*_answer(facts), *_socket(facts))


def _answer(facts: DaemonFacts) -> Iterator[Finding]:
    asked = facts.asked
    if isinstance(asked.error, NoDaemon):
        yield _absent(facts)
    elif asked.error is not None and _process(facts) is None:
        yield fault(CHECK, "the daemon cannot be spoken to", asked.error.message, asked.error.hint)
    elif asked.error is not None:
        what = f"the daemon (process {_process(facts)}) does not answer"
        yield fault(CHECK, what, asked.error.message, _woken(facts))
    elif asked.version != facts.own_version:
        what = f"the daemon is of version {asked.version}, this program of {facts.own_version}"
        yield warning(CHECK, what, "it was not started again after an upgrade", facts.service.restart)
    else:
        yield fine(CHECK, f"runs (process {asked.pid}, version {asked.version})")


def _absent(facts: DaemonFacts) -> Finding:
    if facts.holder is None:
        return _missing(facts)
    why = f"nothing answers at {facts.socket}: it may have been started with another runtime directory"
    what = f"process {facts.holder} holds the state directory, and cannot be asked"
    if facts.unit is not None and facts.unit.runs and not facts.socket.startswith("/run/"):
        silent = f"nothing answers at {facts.socket}: this shell has no session of its own"
        return fault(CHECK, what, silent, "export XDG_RUNTIME_DIR=/run/user/$(id -u)")
    return fault(
        CHECK, what, why, f"ps -fp {facts.holder}; tr '\\0' '\\n' </proc/{facts.holder}/environ | grep DIR"
    )


def _missing(facts: DaemonFacts) -> Finding:
    why = "nothing is dispatched without one"
    if facts.unit is not None and (trouble := facts.unit.trouble):
        return fault(CHECK, f"no daemon runs: {trouble.what}", trouble.why, trouble.action)
    if facts.unit is not None and facts.unit.starts:
        return warning(CHECK, "the daemon is being started", "it does not answer yet", "handoffd status")
    if (other := facts.other) is not None:
        return warning(CHECK, "no daemon runs here", other.elsewhere, other.ask("handoffd doctor"))
    return warning(CHECK, "no daemon runs", why, facts.service.start)


def _process(facts: DaemonFacts) -> int | None:
    """Return the daemon's process; the lock tells it where so many wait for it that its socket does not."""
    silent = isinstance(facts.asked.error, NoAnswer)
    return facts.asked.pid or (facts.holder if silent else None)


def _woken(facts: DaemonFacts) -> str:
    """Return what has a daemon go on that was stopped; one that hangs is replaced."""
    hint = facts.asked.error.hint if facts.asked.error is not None else None
    return hint if hint is not None and hint.startswith("kill -CONT") else _replace(facts)


def _replace(facts: DaemonFacts) -> str:
    """Return what ends a daemon that hangs, and starts another one; executors go on."""
    if facts.service.unit is not None:
        return facts.service.restart
    return f"kill -9 {_process(facts)} && handoffd run"


def _socket(facts: DaemonFacts) -> Iterator[Finding]:
    if len(os.fsencode(facts.socket)) > _LONGEST_PATH:
        action = "export HANDOFFD_RUNTIME_DIR=/run/user/$(id -u)/handoffd"
        why = f"a socket's path has at most {_LONGEST_PATH} bytes, and the daemon does not start"
        yield fault(CHECK, f"the socket's path is too long: {facts.socket}", why, action)
    for entry in facts.entries:
        place = quote(entry.path)
        if not entry.owned:
            why = "whoever owns it can take the daemon's place"
            yield fault(CHECK, f"{entry.path} belongs to another account", why, f"ls -ld {place}")
        elif entry.mode & 0o077:
            right = "600" if entry.path == facts.socket else "700"
            why = f"its mode is {entry.mode:o}; strangers are refused all the same, by their account"
            yield warning(CHECK, f"{entry.path} is open to others", why, f"chmod {right} {place}")
