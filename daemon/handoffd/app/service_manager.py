"""The daemon's messages to the service manager that runs it: ready, alive, the STATUS line; sd_notify(3).

systemd starts what depends on the daemon once it is READY, shows its STATUS in `systemctl status`, and kills
it when WATCHDOG messages stop coming. The messages are datagrams of NAME=value lines to the socket named in
NOTIFY_SOCKET. Without that variable (a terminal, a container) every method does nothing, so that the caller
need not ask.

A turning event loop is not enough for a WATCHDOG message. The journal's writer may hang on a disk that never
answers, and the poll, which keeps the deadlines, may wait forever. A part that has work and makes no progress
for long is stuck; then the daemon sends no more WATCHDOG messages, and the service manager restarts it.
Executors go on meanwhile.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager

import anyio
import structlog
from msgspec import Struct

from handoffd.clock import Clock
from handoffd.engine.wording import counted
from handoffd.track.services import Services

log = structlog.get_logger(__name__)

# systemd empties the queue at once; a manager that is stuck must not stall the event loop for long.
_SEND_LIMIT_S = 1.0

EXTENSION_S = 60.0
"""How much longer to ask the manager to wait; asked again after a third of it."""

_EXTENSIONS = 60
"""20 minutes: anything longer makes no progress."""


class ServiceManager:
    """The service manager as the daemon sees it; silent when there is none."""

    def __init__(self, address: str | None, clock: Clock, *, watchdog_s: float | None = None) -> None:
        self._address = address
        self._clock = clock
        self._watchdog_s = watchdog_s

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], clock: Clock) -> ServiceManager:
        """Return the manager that `environment` names: NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID.

        A watchdog meant for another process (WATCHDOG_PID differs) or without a usable number
        is ignored.
        """
        address = environment.get("NOTIFY_SOCKET", "")
        known = address if address[:1] in ("/", "@") else None
        return cls(known, clock, watchdog_s=_watchdog_s(environment))

    @property
    def present(self) -> bool:
        """Whether a service manager runs this daemon."""
        return self._address is not None

    @property
    def interval_s(self) -> float | None:
        """Seconds between two watchdog messages, half of the limit; None: no watchdog."""
        if self._address is None or self._watchdog_s is None:
            return None
        return self._watchdog_s / 2

    def ready(self, status: str | None = None) -> bool:
        """Report that start-up, or the reload announced before, is complete."""
        return self._send("READY=1", *_status(status))

    def stopping(self, status: str | None = None) -> bool:
        """Report that the daemon is winding down."""
        return self._send("STOPPING=1", *_status(status))

    def reloading(self, status: str | None = None) -> bool:
        """Report that the daemon is reading its settings again; `ready` must follow."""
        microseconds = int(self._clock.monotonic() * 1_000_000)
        return self._send("RELOADING=1", f"MONOTONIC_USEC={microseconds}", *_status(status))

    def status(self, text: str) -> bool:
        """Set the one line that `systemctl status` shows."""
        return self._send(*_status(text))

    def watchdog(self) -> bool:
        """Report that the daemon is alive."""
        return self._send("WATCHDOG=1")

    def extend(self, seconds: float, status: str | None = None) -> bool:
        """Ask for `seconds` more from now on to start or stop."""
        return self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}", *_status(status))

    @asynccontextmanager
    async def extending(self, status: str) -> AsyncIterator[None]:
        """Ask the manager to wait for the body, up to a limit, while the event loop turns."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._extend, status)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    async def _extend(self, status: str) -> None:
        for _ in range(_EXTENSIONS if self.present else 0):
            self.extend(EXTENSION_S, status)
            await anyio.sleep(EXTENSION_S / 3)

    async def run(self, stuck: Callable[[], str | None]) -> None:
        """Send watchdog messages until cancelled; return at once without a watchdog.

        It sends none while `stuck` returns a reason. It runs on the event loop on purpose: a stuck loop
        sends no messages either, and the manager restarts the daemon.
        """
        interval_s = self.interval_s
        if interval_s is None:
            return
        while True:
            why = stuck()
            if why is None:
                self.watchdog()
            else:
                log.error("no progress, the service manager will start the daemon anew", why=why)
                self.status(f"stuck: {why}")
            await anyio.sleep(interval_s)

    def _send(self, *lines: str) -> bool:
        """Send one datagram; return whether the manager took it. Errors are logged, never raised."""
        if self._address is None:
            return False
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
        try:
            with socket.socket(socket.AF_UNIX, kind) as channel:
                channel.settimeout(_SEND_LIMIT_S)
                channel.connect(_path(self._address))
                channel.sendall("\n".join(lines).encode("utf-8", "replace"))
        except OSError as error:
            log.warning("service manager not reached", lines=lines, error=str(error))
            return False
        return True


def _path(address: str) -> str:
    """Return the address in the kernel's form: a leading @ means the abstract namespace."""
    return "\0" + address[1:] if address.startswith("@") else address


def _status(text: str | None) -> tuple[str, ...]:
    """Return the STATUS line, without line breaks: the text may contain names from projects, and a line
    break would start another assignment (MAINPID=1)."""
    return () if text is None else (f"STATUS={' '.join(text.split())}",)


def _watchdog_s(environment: Mapping[str, str]) -> float | None:
    owner = environment.get("WATCHDOG_PID")
    if owner is not None and owner != str(os.getpid()):
        return None
    digits = environment.get("WATCHDOG_USEC", "")
    if not digits.isascii() or not digits.isdigit() or int(digits) == 0:
        return None
    return int(digits) / 1_000_000


# --- whether the daemon makes progress ----------------------------------------------------------------
POLL = "the poll"
WRITER = "the writer of the journal"

WRITER_LIMIT_S = 120.0
"""A disk that does not answer a write for this long never will."""

POLL_LIMIT_S = 180.0
"""The minimum, beside several poll intervals: one project may delay the poll."""

_POLL_INTERVALS = 5


class Beat(Struct, frozen=True, kw_only=True):
    """A part that must make progress. `since`: its latest progress, monotonic seconds; None: it is idle."""

    name: str
    since: float | None
    limit_s: float


def stuck(beats: Iterable[Beat], now: float) -> str | None:
    """Return a message about parts without progress for longer than their limit; None without such parts."""
    late = [
        f"{beat.name} has made no progress for {now - beat.since:.0f} s"
        for beat in beats
        if beat.since is not None and now - beat.since > beat.limit_s
    ]
    return "; ".join(late) or None


def beats_of(writer_since: float | None, polled: float | None, poll_s: float) -> tuple[Beat, ...]:
    """Return the watched parts of a daemon that polls every `poll_s` seconds, last at `polled`."""
    return (
        Beat(name=WRITER, since=writer_since, limit_s=WRITER_LIMIT_S),
        Beat(name=POLL, since=polled, limit_s=max(POLL_LIMIT_S, _POLL_INTERVALS * poll_s)),
    )


# --- the status line ----------------------------------------------------------------------------------
class Overview(Struct, frozen=True, kw_only=True):
    """The content of the line: counts, and messages about problems of the whole daemon."""

    projects: int
    running: int
    """Executors."""
    queued: int = 0
    """Tracks that wait for a slot or an account."""
    gates: int = 0
    """Tracks that wait for a person."""
    unusable: int = 0
    """Projects that need a repair before they can go on."""
    trouble: str | None = None
    """Why the daemon starts no executor."""
    settings: str | None = None
    """Why the latest settings do not apply."""


def status_line(overview: Overview) -> str:
    """Return the line: first what needs a person, without counts of 0."""
    first = [
        f"nothing is started: {overview.trouble}" if overview.trouble else "",
        f"the settings were not taken: {overview.settings}" if overview.settings else "",
    ]
    counts = [counted(overview.projects, "project"), f"{counted(overview.running, 'executor')} running"]
    more = (
        (overview.queued, "waiting"),
        (overview.gates, "for people to decide"),
        (overview.unusable, "in trouble"),
    )
    counts += [f"{count} {what}" for count, what in more if count]
    return "; ".join(part for part in (*first, ", ".join(counts)) if part)


def overview_of(services: Services, conditions: Mapping[str, int], running: int) -> Overview:
    """Return the counts of the line; `trouble` and `settings` are for the caller to add."""
    accounts = services.accounts.views(services.clock.now())
    count = sum(conditions.values())
    usable = conditions.get("ok", 0) + conditions.get("not_initialized", 0)
    return Overview(
        projects=count,
        running=running,
        queued=services.slots.queued + sum(account.waiting for account in accounts),
        unusable=count - usable,
    )
