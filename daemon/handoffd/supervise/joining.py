"""Projects that a person names, one or many at a time: trusted as their files are now.

A path that is written out in the settings is named by a person, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import anyio
from anyio import to_thread

from handoffd.engine.commands import command_for, mending
from handoffd.errors import Foreign, HandoffdError, Locked, Refused, remedies
from handoffd.files.locks import Holder
from handoffd.inspection.discovery import unfit
from handoffd.journal.database import supervised_elsewhere
from handoffd.journal.records import Newcomer
from handoffd.project.project import Project
from handoffd.supervise.membership import Membership
from handoffd.supervise.register import name_of
from handoffd.track.reach import resolved

_T = TypeVar("_T")

Outcome = Mapping[str, str | HandoffdError]
"""Where each project lies, by the root that was asked for, or why it is not supervised."""

_AT_ONCE = 32
"""So many folders are looked at, and trusted, at once."""
_RECORDED_AT_ONCE = 200


class Joining:
    """Takes projects in on a person's word, beside what the settings bring."""

    def __init__(self, members: Membership) -> None:
        self._members = members
        self._register = members.register

    async def add(self, root: str, *, take: bool = False) -> str:
        """Supervise a project, and return where it lies. Raises HandoffdError.

        One that only the settings had brought is the person's from now on, and trusted. One that belongs
        to another daemon is refused, unless the person says to `take` it.
        """
        outcome = await self.add_many((root,), take=take)
        added = outcome[root]
        if isinstance(added, HandoffdError):
            raise added
        return added

    async def add_many(self, roots: Sequence[str], *, take: bool = False) -> Outcome:
        """Supervise projects; return where each lies, or why it is not supervised."""
        outcome: dict[str, str | HandoffdError] = {}
        places = await _each(dict.fromkeys(roots), self._place, outcome)
        async with self._members.changing:  # asked for twice at once, it is one project all the same
            known = {root: at for root, at in places.items() if at in self._register}
            await _each(known, lambda root: self._adopt(known[root], take=take), outcome)
            new = {at: root for root, at in places.items() if at not in self._register}
            fresh = {root: at for at, root in new.items()}  # two names of one folder are one project
            others = await self._of_others() if fresh and not take else {}
            lock = partial(_lock, take=take, others=others)
            made = await _each(fresh, lambda root: self._made(fresh[root], lock), outcome)
            await self._record(made, outcome, None)
        return {root: outcome.get(root, places.get(root, root)) for root in roots}

    async def enrol(self, root: str, entry: str) -> str | None:
        """Supervise a project that the settings name outright; return its root.

        None when it is supervised already, or a person has removed it. Raises HandoffdError.
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
        """Return what the daemons that run here beside this one supervise, by root."""
        return await to_thread.run_sync(supervised_elsewhere, self._members.services.settings.journal)

    async def _made(self, root: str, lock: Callable[[Project], Awaitable[None]] | None = None) -> Project:
        """Return a project with its files trusted, not yet supervised; with `lock`, locked before.

        Where the settings bring it, its first look tells whether it can be had.
        """
        members = self._members
        stored = await members.services.journal.tracks([root])
        project = Project(root, members.services, stored)
        try:
            if lock is not None:
                await lock(project)
            with remedies(root):
                await project.admit()
        except BaseException:
            project.dismiss()
            raise
        return project

    async def _record(
        self, made: Mapping[str, Project], outcome: dict[str, str | HandoffdError], entry: str | None
    ) -> None:
        """Have the journal know of projects, and supervise them."""
        members, waiting = self._members, {project.root: given for given, project in made.items()}
        projects = {project.root: project for project in made.values()}
        for some in _in_turn(projects.values()):
            newcomers = [Newcomer(root=one.root, name=name_of(one), brought_by=entry) for one in some]
            try:
                await members.services.journal.add_projects(newcomers, members.services.clock.now())
            except HandoffdError as error:
                outcome.update((waiting[one.root], error) for one in some)
                for one in some:
                    one.dismiss()
                continue
            for one in some:
                self._take(one, entry)

    def _take(self, project: Project, entry: str | None) -> None:
        if entry is None:
            self._members.of_a_person(project.root)
        else:
            self._members.brought_by[project.root] = entry
        self._register.awake[project.root] = project
        self._members.loops.begin(project.root)

    async def _adopt(self, root: str, *, take: bool) -> None:
        """Make a project a person's own that the settings have brought: trusted, and not let go by them."""
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
    """Lock a project for a person who adds it. Raises Locked when it is another one's, but for `take`."""
    taking = command_for(project.root, "add", "--take")
    if others is not None and (holder := others.get(project.root)) is not None:
        hint = f"{taking}  # has it here; or say there: {command_for(project.root, 'remove')}"
        raise Foreign(f"the project {project.root} is supervised by {holder}", hint=hint)
    try:
        await project.lock(take=take)
    except Locked as locked:
        if locked.hint != mending(project.root, "locked"):
            raise
        raise Locked(locked.message, hint=f"{taking}  # when that process has ended") from locked


async def _each(
    roots: Iterable[str],
    work: Callable[[str], Awaitable[_T]],
    outcome: dict[str, str | HandoffdError],
) -> dict[str, _T]:
    """Return what `work` returns of each, a few at once; what it raises goes into `outcome`."""
    found: dict[str, _T] = {}
    limit = anyio.CapacityLimiter(_AT_ONCE)

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
