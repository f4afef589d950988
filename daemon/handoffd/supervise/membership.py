"""Projects that come and go many at a time, and how each of them came.

A person's word outranks the settings: what a person added stays when the settings do not mean it any
more, and what a person removed is not brought back by them. Whatever the settings find below a folder is
supervised without being trusted: nobody has looked at its files.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint

from handoffd.errors import StoreError
from handoffd.files.ownership import leave
from handoffd.inspection.discovery import unfit
from handoffd.inspection.own_files import RULES, SETTINGS
from handoffd.journal.projects import checked_path
from handoffd.journal.records import Newcomer, StoredTrack
from handoffd.notify.notices import settle
from handoffd.project.project import Project
from handoffd.supervise.loading import by_project, enter
from handoffd.supervise.loops import Loops
from handoffd.supervise.register import Register
from handoffd.track.services import Services

_AT_ONCE = 200
"""So many are recorded in one transaction, and made before others have a turn."""
_ENDS_AT_ONCE = 64
_LEAVE_LIMIT_S = 5.0

UNTRUSTED: Mapping[str, str] = {SETTINGS: "", RULES: ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class LetGo:
    """Whom the settings brought and have let go, and who still runs: they go when that is over."""

    gone: frozenset[str] = frozenset()
    busy: frozenset[str] = frozenset()


@dataclass(slots=True)
class Membership:
    """Changes `register`, one change at a time."""

    services: Services
    register: Register
    loops: Loops
    changing: anyio.Lock
    brought_by: dict[str, str] = field(default_factory=dict)
    """The entry of the settings that brought a project, by root."""
    kept_out: set[str] = field(default_factory=set)
    """The roots that a person has removed."""

    async def load(self) -> None:
        """Learn from the journal how the projects came."""
        origins = await self.services.journal.origins()
        self.brought_by.update(origins.brought_by)
        self.kept_out.update(origins.kept_out)

    def of_a_person(self, root: str, *, removed: bool = False) -> bool:
        """Take a person's word about a project; return whether only the settings had brought it."""
        self.kept_out.discard(root)
        if removed:
            self.kept_out.add(root)
        return self.brought_by.pop(root, None) is not None

    async def bring(self, found: Mapping[str, str]) -> tuple[str, ...]:
        """Supervise what the settings have found, untrusted; return the roots that are new.

        `found` has the entry that means each root. One that is `refused` is left out.
        """
        async with self.changing:
            new = [
                Newcomer(root=root, name=Path(root).name, brought_by=entry)
                for root, entry in found.items()
                if root not in self.register and root not in self.kept_out and self.refused(root) is None
            ]
            for start in range(0, len(new), _AT_ONCE):
                await self._bring(new[start : start + _AT_ONCE])
        return tuple(one.root for one in new)

    def refused(self, root: str) -> str | None:
        """Return why a folder that was found cannot be supervised; None: it can."""
        if not _is_recordable(root):
            return "its name is not UTF-8"
        return unfit(root, self.services.settings.state_dir)

    async def _bring(self, newcomers: Sequence[Newcomer]) -> None:
        now = self.services.clock.now()
        await self.services.journal.add_projects(newcomers, now, untrusted=tuple(UNTRUSTED))
        self.brought_by.update((one.root, one.brought_by or "") for one in newcomers)
        for root in await enter([one.root for one in newcomers], self.register, self.services):
            self.loops.begin(root, await self.services.journal.pending_effects(root))
        for one in newcomers:
            self.loops.visit(one.root)
        await checkpoint()

    async def let_go(self, roots: Collection[str]) -> LetGo:
        """Supervise projects no longer that the settings have brought; those that run go on, and go later."""
        async with self.changing, AsyncExitStack() as guests:
            mine = [root for root in roots if root in self.register and root in self.brought_by]
            for root in mine:  # nobody lies down meanwhile
                guests.enter_context(self.register.guest(root))
            busy = {root for root, project in self._up(mine) if await project.has_processes()}
            for _, project in self._up(busy):
                project.leaving = True
            leaving = [root for root in mine if root not in busy]
            if not leaving:
                return LetGo(busy=frozenset(busy))
            rows = {root: row for root in leaving if (row := self.register.resting.get(root)) is not None}
            for root in rows:  # from now on nobody can make them get up
                self.loops.leave(root)
            try:
                await self._end([root for root in leaving if root not in rows])
                begun = await self._let_go(leaving)
            except BaseException:
                for root, row in rows.items():
                    self.loops.stay(root, row)
                for root in leaving:
                    if root in self.register.awake:
                        self.loops.begin(root, None)
                raise
            return LetGo(gone=frozenset(leaving) - begun, busy=frozenset(busy | begun))

    def _up(self, roots: Collection[str]) -> list[tuple[str, Project]]:
        up = self.register.awake
        return [(root, up[root]) for root in roots if root in up]

    def keep(self, roots: Collection[str]) -> None:
        """Have projects stay that were to leave: the settings mean them again."""
        for _, project in self._up(roots):
            if project.leaving:
                project.leaving = False
                project.touched()

    async def _end(self, roots: Sequence[str]) -> None:
        """End the loops of projects; one that hangs keeps no other one waiting."""
        limit = anyio.CapacityLimiter(_ENDS_AT_ONCE)

        async def end(root: str) -> None:
            async with limit:
                await self.loops.end(root)
                self.register.awake[root].dismiss()

        async with anyio.create_task_group() as tasks:
            for root in roots:
                tasks.start_soon(end, root)

    async def _let_go(self, roots: Sequence[str]) -> frozenset[str]:
        """Have the journal let go of projects that have no loop; return those that began to run before."""
        up = [root for root, _ in self._up(roots)]
        stored = by_project(await self.services.journal.tracks(up)) if up else {}
        begun = frozenset(root for root in up if any(map(_in_flight, stored.get(root, ()))))
        gone = [root for root in roots if root not in begun]
        await self.services.journal.let_go(gone, self.services.clock.now())
        for root in begun:
            self.loops.begin(root, None)
        for root in gone:
            self.register.forget(root)
            del self.brought_by[root]
        await self.leave(gone)
        return begun

    async def leave(self, roots: Sequence[str]) -> None:
        """Let go of folders: their notices wait no more, and others may have them.

        A disk that hangs is not waited for.
        """
        for root in roots:
            settle(self.services.notifier, root)
        with anyio.move_on_after(_LEAVE_LIMIT_S):
            alone = anyio.CapacityLimiter(1)  # a thread that hangs takes none away from those that work
            left = partial(leave, roots, self.services.settings.state_dir)
            await to_thread.run_sync(left, abandon_on_cancel=True, limiter=alone)


def _is_recordable(root: str) -> bool:
    """Return whether the journal can hold a path: it is UTF-8."""
    try:
        checked_path(root)
    except StoreError:
        return False
    return True


def _in_flight(stored: StoredTrack) -> bool:
    return stored.track.ledger.dispatch is not None
