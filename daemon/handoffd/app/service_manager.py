"""What the daemon tells the service manager that runs it: ready, alive, the STATUS line; sd_notify(3).

systemd starts what depends on the daemon once it is READY, shows its STATUS in `systemctl status`, and kills
it when WATCHDOG messages stop coming. The messages are datagrams of NAME=value lines to the socket named in
NOTIFY_SOCKET. Without that variable (a terminal, a container) every method does nothing, so that the caller
need not ask.

That the event loop turns is not enough for a WATCHDOG message. The journal's writer may hang in a disk that
never answers, and the poll, which keeps the deadlines, may wait for something that never comes. What has
work and makes no progress for long is stuck; then the service manager is told nothing more, and starts the
daemon anew. That costs no executor anything.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import structlog

from handoffd.clock import Clock
from handoffd.engine.wording import counted
from handoffd.track.services import Services

log = structlog.get_logger(__name__)

# systemd empties the queue at once; a manager that is stuck must not stall the event loop for long.
_SEND_LIMIT_S = 1.0

EXTENSION_S = 60.0
"""How much longer the manager is asked to wait, a third of it later again."""

_EXTENSIONS = 60
"""20 minutes: what takes longer is not getting on."""


class ServiceManager:
    """The service manager as the daemon sees it; silent when there is none."""

    def __init__(self, address: str | None, clock: Clock, *, watchdog_s: float | None = None) -> None:
        self._address = address
        self._clock = clock
        self._watchdog_s = watchdog_s

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], clock: Clock) -> ServiceManager:
        """Return the manager that `environment` names: NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID.

        A watchdog meant for another process (WATCHDOG_PID is not ours) or without a usable number
        is no watchdog.
        """
        address = environment.get("NOTIFY_SOCKET", "")
        known = address if address[:1] in ("/", "@") else None
        return cls(known, clock, watchdog_s=_watchdog_s(environment))

    @property
    def present(self) -> bool:
        """Whether there is one."""
        return self._address is not None

    @property
    def interval_s(self) -> float | None:
        """Seconds between two watchdog messages, half of what is allowed; None: no watchdog."""
        if self._address is None or self._watchdog_s is None:
            return None
        return self._watchdog_s / 2

    def ready(self, status: str | None = None) -> bool:
        """Say that start-up, or the reload announced before, is complete."""
        return self._send("READY=1", *_status(status))

    def stopping(self, status: str | None = None) -> bool:
        """Say that the daemon is winding down."""
        return self._send("STOPPING=1", *_status(status))

    def reloading(self, status: str | None = None) -> bool:
        """Say that settings are being read again; `ready` must follow."""
        microseconds = int(self._clock.monotonic() * 1_000_000)
        return self._send("RELOADING=1", f"MONOTONIC_USEC={microseconds}", *_status(status))

    def status(self, text: str) -> bool:
        """Set the one line that `systemctl status` shows."""
        return self._send(*_status(text))

    def watchdog(self) -> bool:
        """Say that the daemon is alive."""
        return self._send("WATCHDOG=1")

    def extend(self, seconds: float, status: str | None = None) -> bool:
        """Ask for `seconds` more from now on for what is going on: the start or the end."""
        return self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}", *_status(status))

    @asynccontextmanager
    async def extending(self, status: str) -> AsyncIterator[None]:
        """Have the manager wait for what is done meanwhile, while the event loop turns, within a limit."""
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
        """Send watchdog messages until cancelled; return at once when they are not asked for.

        None is sent while `stuck` says why there is no progress. It runs on the event loop on
        purpose: a loop that is stuck misses its messages, too, and the daemon is started anew.
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
        """Send one datagram; return whether it was taken. A deaf manager is logged, never raised."""
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
    """Return the address as the kernel wants it: a leading @ stands for the abstract namespace."""
    return "\0" + address[1:] if address.startswith("@") else address


def _status(text: str | None) -> tuple[str, ...]:
    """Return the STATUS line. Text may hold names out of projects: a line break in it would start
    another assignment (MAINPID=1), so there is never one."""
    return () if text is None else (f"STATUS={' '.join(text.split())}",)


def _watchdog_s(environment: Mapping[str, str]) -> float | None:
    owner = environment.get("WATCHDOG_PID")
    if owner is not None and owner != str(os.getpid()):
        return None
    digits = environment.get("WATCHDOG_USEC", "")
    if not digits.isascii() or not digits.isdigit() or int(digits) == 0:
        return None
    return int(digits) / 1_000_000


# --- whether the daemon gets on -----------------------------------------------------------------------
POLL = "the poll"
WRITER = "the writer of the journal"

WRITER_LIMIT_S = 120.0
"""A disk that answers no write for so long will not."""

POLL_LIMIT_S = 180.0
"""At least so long, and several intervals of it: one project may take the poll its time."""

_POLL_INTERVALS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """What must get on. `since`: its latest progress, monotonic seconds; None: it has nothing to do."""

    name: str
    since: float | None
    limit_s: float


def stuck(beats: Iterable[Beat], now: float) -> str | None:
    """Return what has made no progress for longer than it may, in words; None when all is well."""
    late = [
        f"{beat.name} has made no progress for {now - beat.since:.0f} s"
        for beat in beats
        if beat.since is not None and now - beat.since > beat.limit_s
    ]
    return "; ".join(late) or None


def beats_of(writer_since: float | None, polled: float | None, poll_s: float) -> tuple[Beat, ...]:
    """Return what must get on in a daemon that polls every `poll_s` seconds, and did so last at `polled`."""
    return (
        Beat(name=WRITER, since=writer_since, limit_s=WRITER_LIMIT_S),
        Beat(name=POLL, since=polled, limit_s=max(POLL_LIMIT_S, _POLL_INTERVALS * poll_s)),
    )


# --- the status line ----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What the line is made of: counts, and what is wrong with all of it, in words."""

    projects: int
    running: int
    """Executors."""
    queued: int = 0
    """Tracks that wait for a slot or an account."""
    gates: int = 0
    """Tracks that wait for a person."""
    unusable: int = 0
    """Projects that cannot be worked on as they are."""
    trouble: str | None = None
    """Why nothing is started."""
    settings: str | None = None
    """Why the latest settings are not in force."""


def status_line(overview: Overview) -> str:
    """Return the line; what needs a person comes first, and what is 0 is left out."""
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
    """Return what is told of projects in these conditions; what is wrong with all of them is not in it."""
    accounts = services.accounts.views(services.clock.now())
    count = sum(conditions.values())
    usable = conditions.get("ok", 0) + conditions.get("not_initialized", 0)
    return Overview(
        projects=count,
        running=running,
        queued=services.slots.queued + sum(account.waiting for account in accounts),
        unusable=count - usable,
    )
