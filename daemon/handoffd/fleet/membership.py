"""Adding and removing projects, many at a time: the origin of each, what may remove it, and its name.

A person outranks the settings: a project that a person added stays when the settings no longer cover it, and
the settings do not bring back a project that a person removed. A project that a person names (on the command
line, or by its full path in the settings) is trusted with its current files. Projects that the settings find
below a folder are supervised without trust: no person has checked their files.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from heapq import nsmallest
from pathlib import Path
from typing import TypeVar

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint
from msgspec import Struct, field

from handoffd.engine.wording import command_for, first_few, repair_command
from handoffd.errors import Foreign, HandoffdError, Locked, NotFound, Refused, StoreError, remedies
from handoffd.files.locks import Holder
from handoffd.files.ownership import leave
from handoffd.fleet.loops import Loops
from handoffd.fleet.register import Register, by_project, enter, name_of
from handoffd.git.clones import root_of_clone
from handoffd.inspection.discovery import unfit
from handoffd.inspection.own_files import RULES, SETTINGS
from handoffd.journal.database import supervised_elsewhere
from handoffd.journal.projects import checked_path
from handoffd.journal.records import Newcomer, PendingEffect, StoredTrack
from handoffd.notify.notices import settle
from handoffd.project.project import Project
from handoffd.track.reach import resolved
from handoffd.track.services import Services

# --- what the settings bring --------------------------------------------------------------------------
_BROUGHT_AT_ONCE = 200
"""How many projects one transaction records; other tasks run after each batch."""
_ENDS_AT_ONCE = 64
_LEAVE_LIMIT_S = 5.0

UNTRUSTED: Mapping[str, str] = {SETTINGS: "", RULES: ""}


class LetGo(Struct, frozen=True, kw_only=True):
    """Projects that left (`gone`), and projects that will leave when their run has ended (`busy`)."""

    gone: frozenset[str] = frozenset()
    busy: frozenset[str] = frozenset()


class Membership(Struct):
    """Changes `register`, one change at a time."""

    services: Services
    register: Register
    loops: Loops
    changing: anyio.Lock
    brought_by: dict[str, str] = field(default_factory=dict)
    """The entry of the settings that brought a project, by root."""
    kept_out: set[str] = field(default_factory=set)
    """Roots that a person has removed."""

    async def load(self) -> None:
        """Read the origin of each project from the journal."""
        origins = await self.services.journal.origins()
        self.brought_by.update(origins.brought_by)
        self.kept_out.update(origins.kept_out)

    def of_a_person(self, root: str, *, removed: bool = False) -> bool:
        """Record a person's decision about a project; return whether only the settings had brought it."""
        self.kept_out.discard(root)
        if removed:
            self.kept_out.add(root)
        return self.brought_by.pop(root, None) is not None

    async def bring(self, found: Mapping[str, str]) -> tuple[str, ...]:
        """Supervise projects that the settings found, without trust; return the new roots.

        `found` maps each root to its entry of the settings. A `refused` root is left out.
        """
        async with self.changing:
            new = [
                Newcomer(root=root, name=Path(root).name, brought_by=entry)
                for root, entry in found.items()
                if root not in self.register and root not in self.kept_out and self.refused(root) is None
            ]
            for start in range(0, len(new), _BROUGHT_AT_ONCE):
                await self._bring(new[start : start + _BROUGHT_AT_ONCE])
        return tuple(one.root for one in new)

    def refused(self, root: str) -> str | None:
        """Return why a found folder cannot be supervised; None if it can."""
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
        """Stop supervising projects that the settings brought; a busy one leaves when its run has ended."""
        async with self.changing, AsyncExitStack() as guests:
            mine = [root for root in roots if root in self.register and root in self.brought_by]
            for root in mine:  # guests keep a project from going to rest meanwhile
                guests.enter_context(self.register.guest(root))
            busy = {root for root, project in self._up(mine) if await project.has_processes()}
            for _, project in self._up(busy):
                project.leaving = True
            leaving = [root for root in mine if root not in busy]
            if not leaving:
                return LetGo(busy=frozenset(busy))
            rows = {root: row for root in leaving if (row := self.register.resting.get(root)) is not None}
            for root in rows:  # from now on nothing can wake them
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
        """Cancel pending removals: the settings mean these projects again."""
        for _, project in self._up(roots):
            if project.leaving:
                project.leaving = False
                project.touched()

    async def _end(self, roots: Sequence[str]) -> None:
        """End the loops of projects side by side, because one may hang."""
        limit = anyio.CapacityLimiter(_ENDS_AT_ONCE)

        async def end(root: str) -> None:
            async with limit:
                await self.loops.end(root)
                self.register.awake[root].dismiss()

        async with anyio.create_task_group() as tasks:
            for root in roots:
                tasks.start_soon(end, root)

    async def _let_go(self, roots: Sequence[str]) -> frozenset[str]:
        """Remove projects without a loop from the journal; return the ones with an attempt in flight."""
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
        """Release folders: settle their notices, and let other daemons supervise them.

        It does not wait for a disk that hangs.
        """
        for root in roots:
            settle(self.services.notifier, root)
        with anyio.move_on_after(_LEAVE_LIMIT_S):
            alone = anyio.CapacityLimiter(1)  # a hanging thread must not use up the shared limit
            left = partial(leave, roots, self.services.settings.state_dir)
            await to_thread.run_sync(left, abandon_on_cancel=True, limiter=alone)


def _is_recordable(root: str) -> bool:
    """Return whether the journal can hold a path: it must be UTF-8."""
    try:
        checked_path(root)
    except StoreError:
        return False
    return True


def _in_flight(stored: StoredTrack) -> bool:
    return stored.track.ledger.dispatch is not None


# --- what a person adds -------------------------------------------------------------------------------
_T = TypeVar("_T")

Outcome = Mapping[str, str | HandoffdError]
"""By requested root: the root of the project, or why it is not supervised."""

_ASKED_AT_ONCE = 32
"""How many folders are read and trusted at once."""
_RECORDED_AT_ONCE = 200


class Joining:
    """Adds projects on a person's request, beside projects that the settings bring."""

    def __init__(self, members: Membership) -> None:
        self._members = members
        self._register = members.register

    async def add(self, root: str, *, take: bool = False) -> str:
        """Supervise a project, and return its root without links. Raises HandoffdError.

        A project that only the settings had brought becomes the person's, and trusted. One that belongs to
        another daemon is refused, unless the person chooses to `take` it.
        """
        outcome = await self.add_many((root,), take=take)
        added = outcome[root]
        if isinstance(added, HandoffdError):
            raise added
        return added

    async def add_many(self, roots: Sequence[str], *, take: bool = False) -> Outcome:
        """Supervise projects; return the root of each, or why it is not supervised."""
        outcome: dict[str, str | HandoffdError] = {}
        places = await _each(dict.fromkeys(roots), self._place, outcome)
        async with self._members.changing:  # two simultaneous requests must add one project
            known = {root: at for root, at in places.items() if at in self._register}
            await _each(known, lambda root: self._adopt(known[root], take=take), outcome)
            new = {at: root for root, at in places.items() if at not in self._register}
            fresh = {root: at for at, root in new.items()}  # two paths of one folder are one project
            others = await self._of_others() if fresh and not take else {}
            lock = partial(_lock, take=take, others=others)
            made = await _each(fresh, lambda root: self._made(fresh[root], lock), outcome)
            await self._record(made, outcome, None)
        return {root: outcome.get(root, places.get(root, root)) for root in roots}

    async def enrol(self, root: str, entry: str) -> str | None:
        """Supervise a project that the settings list by path; return its root.

        None if it is already supervised, or if a person has removed it. Raises HandoffdError.
        """
        root = await self._place(root)
        async with self._members.changing:
            if root in self._register or root in self._members.kept_out:
                return None
            outcome: dict[str, str | HandoffdError] = {}
            await self._record({root: await self._made(root)}, outcome, entry)
            for error in outcome.values():
                assert isinstance(error, HandoffdError)
                raise error
        return root

    async def _place(self, root: str) -> str:
        if root in self._register:
            return root
        place = await resolved(root)
        if (why := unfit(place, self._members.services.settings.state_dir)) is not None:
            raise Refused(
                f"{place} can be no project: {why}", code="BAD_ARGUMENT", hint="handoffd add PROJECT"
            )
        return place

    async def _of_others(self) -> Mapping[str, Holder]:
        """Return the projects of the other daemons on this machine, by root."""
        return await to_thread.run_sync(supervised_elsewhere, self._members.services.settings.journal)

    async def _made(self, root: str, lock: Callable[[Project], Awaitable[None]] | None = None) -> Project:
        """Return a project with its files trusted, not yet supervised; with `lock`, locked before.

        A project that the settings bring is locked by its first look instead.
        """
        members = self._members
        stored = await members.services.journal.tracks([root])
        project = Project(root, members.services, stored)
        try:
            if lock is not None:
                await lock(project)
            with remedies(root):
                await project.files.trust()  # it may have been here before without trust
        except BaseException:
            project.dismiss()
            raise
        return project

    async def _record(
        self, made: Mapping[str, Project], outcome: dict[str, str | HandoffdError], entry: str | None
    ) -> None:
        """Record projects in the journal, and supervise them."""
        members, waiting = self._members, {project.root: given for given, project in made.items()}
        projects = {project.root: project for project in made.values()}
        for some in _in_turn(projects.values()):
            newcomers = [Newcomer(root=one.root, name=name_of(one), brought_by=entry) for one in some]
            try:
                # The last orders before a project was removed may not have been carried out.
                pending = by_project(await members.services.journal.pending_effects())
                await members.services.journal.add_projects(newcomers, members.services.clock.now())
            except HandoffdError as error:
                outcome.update((waiting[one.root], error) for one in some)
                for one in some:
                    one.dismiss()
                continue
            for one in some:
                self._take(one, entry, pending.get(one.root, ()))

    def _take(self, project: Project, entry: str | None, pending: tuple[PendingEffect, ...]) -> None:
        if entry is None:
            self._members.of_a_person(project.root)
        else:
            self._members.brought_by[project.root] = entry
        self._register.awake[project.root] = project
        self._members.loops.begin(project.root, pending)

    async def _adopt(self, root: str, *, take: bool) -> None:
        """Make a project of the settings the person's own: trusted, and not removed by the settings."""
        services, brought = self._members.services, root in self._members.brought_by
        up = self._register.awake.get(root)
        locked = up is not None and up.condition == "locked"
        if not (brought or take or locked):
            return
        with self._register.guest(root):
            project = await self._members.loops.awake(root)
            if take or locked:
                await _lock(project, take=take)
                await project.look()
            if not brought:
                return
            with remedies(root):
                await project.trust()
            await services.journal.add_project(root, name_of(project), services.clock.now())
            self._members.of_a_person(root)
            self._members.keep((root,))
            project.touched()


async def _lock(project: Project, *, take: bool, others: Mapping[str, Holder] | None = None) -> None:
    """Lock a project for a person who adds it. Without `take`, raises Locked if another daemon has it."""
    taking = command_for(project.root, "add", "--take")
    if others is not None and (holder := others.get(project.root)) is not None:
        hint = f"{taking}  # has it here; or say there: {command_for(project.root, 'remove')}"
        raise Foreign(f"the project {project.root} is supervised by {holder}", hint=hint)
    try:
        await project.reconciler.lock(take=take)
    except Locked as locked:
        if locked.hint != repair_command(project.root, "locked"):
            raise
        raise Locked(locked.message, hint=f"{taking}  # when that process has ended") from locked


async def _each(
    roots: Iterable[str],
    work: Callable[[str], Awaitable[_T]],
    outcome: dict[str, str | HandoffdError],
) -> dict[str, _T]:
    """Return the result of `work` for each root, a few at once; its errors go into `outcome`."""
    found: dict[str, _T] = {}
    limit = anyio.CapacityLimiter(_ASKED_AT_ONCE)

    async def one(root: str) -> None:
        async with limit:
            try:
                found[root] = await work(root)
            except HandoffdError as error:
                outcome[root] = error

    async with anyio.create_task_group() as tasks:
        for root in roots:
            tasks.start_soon(one, root)
    return {root: found[root] for root in roots if root in found}


def _in_turn(projects: Iterable[Project]) -> Iterable[Sequence[Project]]:
    all_of_them = tuple(projects)
    return (all_of_them[at : at + _RECORDED_AT_ONCE] for at in range(0, len(all_of_them), _RECORDED_AT_ONCE))


# --- names of projects --------------------------------------------------------------------------------
MOST_NAMES = 20
"""How many names an error lists at most."""


def root_called(name: str, register: Register, state_dir: Path) -> str:
    """Return the root of the project named `name`, or located at or above the path `name`.

    A path in a clone is in its project. Raises NotFound, with the known names, and Refused, with their roots,
    when several have the name.
    """
    if name in register:
        return name  # without a look at the disk, which may not answer
    path = Path(name)
    resolved = _resolved(path)
    for folder in (resolved, *resolved.parents) if resolved else ():
        if str(folder) in register:
            return str(folder)
    cloned = root_of_clone(resolved, state_dir.resolve()) if resolved else None
    if cloned is not None and cloned in register:
        return cloned  # an agent asks from where it works
    called = register.called(name)
    if len(called) == 1:
        return called[0]
    if called:
        message = f"{name} is the name of several projects; give a path: {first_few(called, MOST_NAMES)}"
        raise Refused(message, hint="handoffd projects")
    names = nsmallest(MOST_NAMES, map(register.name_of, register))
    known = first_few(names, MOST_NAMES, count=len(register)) or "none yet"
    message = f"no supervised project named or located at {name} (known: {known})"
    addable = resolved and os.path.isdir(resolved) and unfit(str(resolved), state_dir) is None
    raise NotFound(message, hint=command_for(name, "add") if addable else "handoffd projects")


def _resolved(path: Path) -> Path | None:
    """Return a path with links resolved; None for a name, which has nothing to do with the working folder."""
    try:
        return path.resolve() if path.is_absolute() else None
    except (OSError, RuntimeError, ValueError):  # links in a circle, and characters that no path can have
        return None
