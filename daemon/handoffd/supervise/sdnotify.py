"""What the daemon tells the service manager that runs it: sd_notify(3), in a few lines of our own.

systemd starts what depends on the daemon once it is READY, shows its STATUS in `systemctl status`,
and kills it when WATCHDOG messages stop coming. The messages are datagrams of NAME=value lines to
the socket named in NOTIFY_SOCKET. Without that variable (a terminal, a container) every
method does nothing, so that the caller need not ask.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import anyio
import structlog

from handoffd.clock import Clock

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
        """Whether anybody listens."""
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
        """Send watchdog messages until cancelled; return at once when nobody asked for them.

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
