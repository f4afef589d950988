"""What is wrong with the machine as a whole: a journal that takes nothing, a full disk, no descriptors left.

So is memory that is short, or a load that is high, for long. None of it is the fault of a project, so people
are told once and not by each project. What can start nothing is tried again every few seconds, and when the
cause is gone everything that waited goes on.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping

import anyio
import structlog

from handoffd.errors import HandoffdError, StoreError
from handoffd.store.faults import DISK_FULL
from handoffd.supervise.descriptors import at_limit, passes_by_itself
from handoffd.supervise.notices import machine_notice
from handoffd.supervise.room import Room, Shortage
from handoffd.supervise.services import Services

log = structlog.get_logger(__name__)

RETRY_S = 5.0
"""How often a journal that could not be written is tried again."""

CALM_S = 600.0
"""People are told again of what has been well for so long; what comes and goes is one trouble."""


SHORT_S = 600.0
"""People are told when tracks have waited for memory or load for so long: what runs gives some of it back."""

OUT_OF_MEMORY = "there has been too little free memory for long (scheduling.min_free_memory_mb)"
OVERLOADED = "the load has been too high for long (scheduling.max_load_per_core)"
OUT_OF_DESCRIPTORS = "the daemon has as many files open as it may"
_DISK = "disk"
_READ_ONLY = "findmnt -O ro"


class Machine:
    """Looks after what all projects share. `recovered` is awaited when a trouble is over."""

    def __init__(self, services: Services, recovered: Callable[[], Awaitable[None]]) -> None:
        self._services = services
        self._recovered = recovered
        # Not behind projects that hang: this look is also that at the journal.
        self._room = Room(str(services.settings.state_dir), services, anyio.CapacityLimiter(1))
        self._disk_told = False
        """Whether people know of the disk that is short."""
        self._tried_at = services.clock.monotonic()
        self._seen_at: dict[str, float] = {}
        self._troubles: Mapping[str, str] = {}

    @property
    def trouble(self) -> str | None:
        """Why nothing is started, in words; None when all is well."""
        return "; ".join(self._troubles.values()) or None

    async def look(self) -> None:
        """Find out how the machine does, try again what failed, tell people of what is new."""
        await self._try_journal()
        before, self._troubles = self._troubles, {**self._found(), **await self._disk()}
        for name, why in self._troubles.items():
            self._tell(name, why, news=name not in before)
        over = before.keys() - self._troubles.keys()
        for name in over:
            log.info("machine trouble over", trouble=name)
        if over:
            await self._recovered()

    async def _try_journal(self) -> None:
        now = self._services.clock.monotonic()
        if self._services.journal.outage is None or now - self._tried_at < RETRY_S:
            return
        self._tried_at = now
        try:
            await self._services.journal.probe()
        except StoreError as error:
            log.warning("journal still unwritable", error=error.message, retry_s=RETRY_S)

    def _found(self) -> Mapping[str, str]:
        outage, troubles = self._services.journal.outage, {}
        if outage is not None:
            troubles["journal"] = f"the journal cannot be written ({outage})"
        if self._services.descriptors.short():
            troubles["descriptors"] = OUT_OF_DESCRIPTORS
        short = self._services.slots.shortage()
        if short is not None and short[1] >= SHORT_S:
            troubles["capacity"] = OUT_OF_MEMORY if short[0] == "memory" else OVERLOADED
        return troubles

    async def _disk(self) -> Mapping[str, str]:
        shortage = await self._room.shortage()
        self._disk_told = shortage is not None and shortage.told
        return {} if shortage is None else {_DISK: shortage.why}

    def _tell(self, name: str, why: str, *, news: bool) -> None:
        now = self._services.clock.monotonic()
        last, self._seen_at[name] = self._seen_at.get(name), now
        if not news:
            return
        log.error("machine trouble, nothing is started", trouble=name, why=why)
        if name == _DISK and self._disk_told:
            return  # by whoever met it first, this look or a project
        if last is None or now - last > CALM_S:
            notice = machine_notice(str(self._services.settings.state_dir), why, self._services.clock)
            self._services.notifier.send(notice)


def descriptor_shortage(services: Services) -> Shortage | None:
    """Return why a dispatch waits for descriptors; None when there are enough."""
    return _out_of_descriptors() if services.descriptors.short() else None


def shortage_in(error: HandoffdError) -> Shortage | None:
    """Return the shortage that made an error, which passes by itself: no person is to be asked for it."""
    if at_limit(error):
        return _out_of_descriptors()
    if error.code == DISK_FULL:
        return Shortage(error.message, error.hint or "df -h")
    return Shortage(error.message, error.hint or _READ_ONLY) if passes_by_itself(error) else None


def _out_of_descriptors() -> Shortage:
    return Shortage(OUT_OF_DESCRIPTORS, f"prlimit --nofile --pid {os.getpid()}")
