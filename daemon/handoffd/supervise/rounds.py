"""Hints about projects at rest: somebody goes round, and wakes those whose folder is not as it was.

A hint costs one visit in a thread. What it finds is compared with what the row says lay there; only
where that differs, or cannot be had, is the project made and told to look for itself, like one that
was up all the time. A hint that comes during a visit stands in the line again from then on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path

import anyio
import structlog
from anyio import to_thread

from handoffd.errors import HandoffdError, Locked, NotFound, StoreError
from handoffd.inspection.own_files import Texts
from handoffd.notify.notices import settle
from handoffd.project.files import ProjectFiles, Trusted
from handoffd.project.folder import Found, visit
from handoffd.project.rest import Row, states_in, trace_in
from handoffd.supervise.register import Register
from handoffd.track.inbox import Bell
from handoffd.track.services import Services

log = structlog.get_logger(__name__)

LIMIT_S = 0.5
"""How long those that are visited at once may take; else each of them looks for itself."""
AT_ONCE = 50
WOKEN_AT_ONCE = 8
RETRY_S = 5.0
"""How long a project that could not be made waits for the next try."""

Wake = Callable[[str], Awaitable[object]]


class Rounds:
    """Visits the folders of resting projects that were hinted of. `wake` makes a project of a row."""

    def __init__(self, services: Services, register: Register, wake: Wake, retry_s: float = RETRY_S) -> None:
        self._services = services
        self._register = register
        self._wake = wake
        self._retry_s = retry_s
        self._hinted: dict[str, None] = {}
        self._filled = Bell()
        self._waking = anyio.Semaphore(WOKEN_AT_ONCE)
        self.been = anyio.Event()
        """Set when there was nobody left who had to be visited."""

    def hint(self, root: str) -> None:
        """Have a project visited soon."""
        row = self._register.resting.get(root)
        if row is not None:
            row.forget_view()
            self._hinted[root] = None
            self._filled.ring()

    async def run(self) -> None:
        """Follow hints until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                if not self._hinted:
                    self.been.set()
                    self._filled.hush()
                    await self._filled.wait()
                for root in await self._changed_of(self._taken()):
                    await self._waking.acquire()
                    tasks.start_soon(self._get_up, root, name=f"wake {root}")

    async def visit_all(self) -> None:
        """Visit every project at rest now, and wake those that have changed."""
        roots = tuple(self._register.resting)
        for begin in range(0, len(roots), AT_ONCE):
            for root in await self._changed(roots[begin : begin + AT_ONCE]):
                await self._waking.acquire()
                await self._get_up(root)

    async def _changed_of(self, roots: Sequence[str]) -> list[str]:
        try:
            return await self._changed(roots)
        except StoreError as error:
            log.warning("hints not followed", projects=len(roots), error=error.message, retry_s=self._retry_s)
        await anyio.sleep(self._retry_s)
        for root in roots:
            self.hint(root)
        return []

    def _taken(self) -> Sequence[str]:
        some = tuple(islice(self._hinted, AT_ONCE))
        for root in some:
            del self._hinted[root]
        return some

    async def _get_up(self, root: str) -> None:
        try:
            await self._wake(root)
        except NotFound:
            return  # removed meanwhile
        except HandoffdError as error:
            log.warning("project not woken", project=root, error=error.message, retry_s=self._retry_s)
            await anyio.sleep(self._retry_s)
            self.hint(root)
        finally:
            self._waking.release()

    # --- what a visit means ------------------------------------------------------------------------
    async def _changed(self, roots: Collection[str]) -> list[str]:
        """Return those of these projects that have to look for themselves."""
        resting = self._register.resting
        rows = {root: resting[root] for root in roots if root in resting}
        found = await self._visited(rows)
        fresh = {
            root: row for root, row in rows.items() if row.trace is None and _as_told(row, found.get(root))
        }
        usual = await self._usual({root: found[root].texts or {} for root in fresh}, fresh)
        return [
            root
            for root, row in rows.items()
            if resting.get(root) is row and not self._is_as_it_was(root, row, found.get(root), root in usual)
        ]

    async def _visited(self, rows: Mapping[str, Row]) -> Mapping[str, Found]:
        """Return what lies in the folders, but for those that are gone or do not answer."""
        state_dir = self._services.settings.state_dir
        visits = {
            root: partial(visit, state_dir, Path(root), row.tracks, texts=True, first=row.trace is None)
            for root, row in rows.items()
        }
        with anyio.move_on_after(LIMIT_S):
            alone = anyio.CapacityLimiter(1)  # a thread that hangs takes none away from those that work
            return await to_thread.run_sync(_all_of, visits, abandon_on_cancel=True, limiter=alone)
        return {}

    def _is_as_it_was(self, root: str, row: Row, found: Found | None, usual: bool) -> bool:
        """Return whether there is nothing to look at; a row that was not visited before takes it down."""
        trace = None if found is None else trace_in(found)
        if found is None or trace is None:
            return False
        if row.trace is not None or not usual:
            return row.trace == trace
        try:
            self._services.claims.take(found.lock.name, root)
        except Locked:
            return False  # it says so itself
        row.trace, row.folder, row.states = trace, found.lock.name, None
        settle(self._services.notifier, root)  # what an earlier life told of waits no more
        return True

    async def _usual(self, texts: Mapping[str, Texts], rows: Mapping[str, Row]) -> Collection[str]:
        """Return those whose own files, as they lie there, are in force and ask for nothing."""
        if not rows:
            return ()
        trusted = await self._services.journal.trusted(*rows)
        journal, clock = self._services.journal, self._services.clock
        plain, judge = [], {}
        for root, row in rows.items():
            known = trusted.get(root, {})
            if any(texts[root].values()) or any(known.values()):
                files = ProjectFiles(root, journal, clock)
                judge[root] = partial(_asks_nothing, files, texts[root], known, row)
            else:
                plain.append(root)
        return {*plain, *(await to_thread.run_sync(_those, judge) if judge else ())}


def _as_told(row: Row, found: Found | None) -> bool:
    return found is not None and states_in(found) == row.states


def _asks_nothing(files: ProjectFiles, texts: Texts, trusted: Trusted, row: Row) -> bool:
    settings, _, problems, held = files.judged(texts, trusted)
    return not problems and not held and (row.automatic or not settings.auto)


def _those(judge: Mapping[str, Callable[[], bool]]) -> list[str]:
    return [root for root, fits in judge.items() if fits()]


def _all_of(visits: Mapping[str, Callable[[], Found]]) -> Mapping[str, Found]:
    found = {}
    for root, one in visits.items():
        with suppress(StoreError):  # its own look says why
            found[root] = one()
    return found
