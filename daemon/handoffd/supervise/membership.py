"""Projects that come and go many at a time, and how each of them came.

A person's word outranks the settings: what a person added stays when the settings do not mean it any
more, and what a person removed is not brought back by them. Whatever the settings find below a folder is
supervised without being trusted: nobody has looked at its files.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.lowlevel

from handoffd.errors import StoreError
from handoffd.inspection.table import RULES, SETTINGS
from handoffd.store.records import Newcomer, StoredTrack
from handoffd.store.tables import checked_path
from handoffd.supervise.loops import Loops, by_project
from handoffd.supervise.project import Project
from handoffd.supervise.services import Services

_AT_ONCE = 200
"""So many are recorded in one transaction, and made before others have a turn."""
_ENDS_AT_ONCE = 64

UNTRUSTED: Mapping[str, str] = {SETTINGS: "", RULES: ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class LetGo:
    """Whom the settings brought and have let go, and who still runs: they go when that is over."""

    gone: frozenset[str] = frozenset()
    busy: frozenset[str] = frozenset()


@dataclass(slots=True)
class Membership:
    """Changes `projects` and `former` (the tracks of those that may come back), one change at a time."""

    services: Services
    projects: dict[str, Project]
    former: dict[str, tuple[StoredTrack, ...]]
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

        `found` has the entry that means each root. A root that the journal cannot hold is left out.
        """
        async with self.changing:
            there = self.projects.keys() | self.kept_out
            new = [
                Newcomer(root=root, name=Path(root).name, brought_by=found[root])
                for root in found
                if root not in there and is_recordable(root)
            ]
            trusted = await self.services.journal.trusted() if new else {}
            for start in range(0, len(new), _AT_ONCE):
                await self._bring(new[start : start + _AT_ONCE], trusted)
        return tuple(one.root for one in new)

    async def _bring(self, newcomers: Sequence[Newcomer], trusted: Mapping[str, Mapping[str, str]]) -> None:
        now = self.services.clock.now()
        await self.services.journal.add_projects(newcomers, now, untrusted=tuple(UNTRUSTED))
        for one in newcomers:
            texts = {**UNTRUSTED, **trusted.get(one.root, {})}  # who was here before may be trusted
            self.projects[one.root] = Project(one.root, self.services, self.former.pop(one.root, ()), texts)
            self.brought_by[one.root] = one.brought_by or ""
            self.loops.begin(one.root)
        await anyio.lowlevel.checkpoint()

    async def let_go(self, roots: Collection[str]) -> LetGo:
        """Supervise projects no longer that the settings have brought; those that run go on, and go later."""
        async with self.changing:
            mine = [root for root in roots if root in self.projects and root in self.brought_by]
            busy = {root for root in mine if await self.projects[root].has_processes()}
            for root in busy:
                self.projects[root].leaving = True
            leaving = [root for root in mine if root not in busy]
            if not leaving:
                return LetGo(busy=frozenset(busy))
            await self._end(leaving)
            try:
                begun = await self._let_go(leaving)
            except BaseException:
                for root in leaving:
                    self.loops.begin(root, None)
                raise
            return LetGo(gone=frozenset(leaving) - begun, busy=frozenset(busy | begun))

    def keep(self, roots: Collection[str]) -> None:
        """Have projects stay that were to leave: the settings mean them again."""
        for root in roots:
            project = self.projects.get(root)
            if project is not None and project.leaving:
                project.leaving = False
                project.touched()

    async def _end(self, roots: Sequence[str]) -> None:
        """End the loops of projects; one that hangs keeps no other one waiting."""
        limit = anyio.CapacityLimiter(_ENDS_AT_ONCE)

        async def end(root: str) -> None:
            async with limit:
                await self.loops.end(root)
                self.projects[root].dismiss()

        async with anyio.create_task_group() as tasks:
            for root in roots:
                tasks.start_soon(end, root)

    async def _let_go(self, roots: Sequence[str]) -> frozenset[str]:
        """Have the journal let go of projects that have no loop; return those that began to run before."""
        stored = by_project(await self.services.journal.tracks())
        begun = frozenset(root for root in roots if any(map(_in_flight, stored.get(root, ()))))
        await self.services.journal.let_go(
            [root for root in roots if root not in begun], self.services.clock.now()
        )
        for root in roots:
            if root in begun:
                self.loops.begin(root, None)
                continue
            del self.projects[root], self.brought_by[root]
            self.former[root] = stored.get(root, ())
        return begun


def is_recordable(root: str) -> bool:
    """Return whether the journal can hold a path: it is UTF-8."""
    try:
        checked_path(root)
    except StoreError:
        return False
    return True


def _in_flight(stored: StoredTrack) -> bool:
    return stored.track.ledger.dispatch is not None
