"""The loops of all projects: each one's crash is its own, and it is made anew from the journal.

What a project had in memory when it crashed is worth nothing: a commit may have been waited for and
not heard of. So another one takes its place, built from what was recorded, after a pause. People
are told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import anyio
import anyio.abc
import structlog

from handoffd.errors import HandoffdError
from handoffd.store.records import PendingEffect, StoredTrack
from handoffd.supervise.notices import crash_notice
from handoffd.supervise.project import Project
from handoffd.supervise.services import Services
from handoffd.supervise.survey import survey

log = structlog.get_logger(__name__)

BACK_OFF_S = (1.0, 5.0, 30.0, 60.0)
STEADY_S = 600.0
"""A project that ran for so long crashes for the first time again."""

END_LIMIT_S = 30.0
"""How long the end of one loop is waited for: a thread may hang in the project's folder."""


class Watching(Protocol):
    """What tells the roster to look: the watcher and the sweep behind it."""

    def add(self, root: str) -> None:
        """Hint about this root from now on."""

    def remove(self, root: str) -> None:
        """Hint about it no more."""

    @property
    def degraded(self) -> Mapping[str, str]:
        """The roots that are only looked at now and then, each with the reason."""


@dataclass(slots=True)
class _Loop:
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    gone: anyio.Event = field(default_factory=anyio.Event)


class Loops:
    """Runs every project of `projects`, which it also changes: a crashed one is replaced."""

    def __init__(self, services: Services, projects: dict[str, Project]) -> None:
        self._services = services
        self._projects = projects
        self._loops: dict[str, _Loop] = {}
        self._tasks: anyio.abc.TaskGroup | None = None
        self._watching: Watching | None = None
        self.crashes = 0

    @property
    def run_here(self) -> bool:
        """Whether this is a daemon, and not a verb given without one."""
        return self._tasks is not None

    def swept(self, root: str) -> str | None:
        """Return why changes of a project are not seen at once; None when they are."""
        return self._watching.degraded.get(root) if self._watching is not None else None

    def unwatched(self, root: str) -> str | None:
        """Return the same as a warning."""
        why, every_s = self.swept(root), self._services.settings.watch.sweep_s
        return why and f"changes are seen by the sweep every {every_s:g} s, not at once: {why}"

    async def run(self, watching: Watching) -> None:
        """Give every project its loop, until cancelled."""
        pending = _by_project(await self._services.journal.pending_effects())
        try:
            async with anyio.create_task_group() as tasks:
                await survey(tuple(self._projects.values()))
                self._tasks, self._watching = tasks, watching
                for root in self._projects:
                    self.begin(root, pending.get(root, ()))
                await anyio.sleep_forever()
        finally:
            self._tasks = self._watching = None

    def begin(self, root: str, pending: tuple[PendingEffect, ...] | None = ()) -> None:
        """Give a project its loop, with the orders that are not done; without a daemon it needs none.

        With `pending` None it is made anew from the journal first.
        """
        if self._tasks is None or self._watching is None:
            return
        self._watching.add(root)
        loop = self._loops[root] = _Loop()
        self._tasks.start_soon(self._contain, root, loop, pending, name=f"project {root}")

    async def end(self, root: str) -> None:
        """End the loop of a project, if it has one."""
        loop = self._loops.pop(root, None)
        if loop is None:
            return
        if self._watching is not None:
            self._watching.remove(root)
        loop.scope.cancel()
        with anyio.move_on_after(END_LIMIT_S) as limit:
            await loop.gone.wait()
        if limit.cancelled_caught:
            log.warning("project does not end", project=root, waited_s=END_LIMIT_S)

    async def recorded(self, root: str) -> tuple[Project, tuple[PendingEffect, ...]]:
        """Return a project as the journal knows it, with the orders that are not done."""
        journal = self._services.journal
        stored = [entry for entry in await journal.tracks() if entry.key.project == root]
        pending = _by_project(await journal.pending_effects()).get(root, ())
        return Project(root, self._services, tuple(stored)), pending

    async def _contain(self, root: str, loop: _Loop, pending: tuple[PendingEffect, ...] | None) -> None:
        """Restart a crashed project with back-off; let cancellation through."""
        clock, crashes = self._services.clock, 0
        try:
            with loop.scope:
                while True:
                    if pending is None:
                        pending = await self._made_anew(root, crashes)
                    began = clock.monotonic()
                    try:
                        await self._projects[root].run(pending)
                    except Exception as error:
                        crashes = 1 if clock.monotonic() - began > STEADY_S else crashes + 1
                        log.exception("project crashed", project=root, crashes=crashes)
                        self._crashed(root, error, crashes)
                        pending = None
        finally:
            loop.gone.set()

    def _crashed(self, root: str, error: Exception, crashes: int) -> None:
        self.crashes += 1
        self._services.recorder.crashed()
        project = self._projects[root]
        project.dismiss()
        project.crash = f"its supervision failed and is started again ({_innermost(error)!r})"
        if crashes == 1:
            self._services.notifier.send(crash_notice(root, project.crash, self._services.clock))

    async def _made_anew(self, root: str, crashes: int) -> tuple[PendingEffect, ...]:
        while True:
            await anyio.sleep(BACK_OFF_S[max(min(crashes, len(BACK_OFF_S)) - 1, 0)])
            try:
                project, pending = await self.recorded(root)
            except HandoffdError as error:
                log.warning("project not made anew", project=root, error=error.message)
                continue
            project.crash = self._projects[root].crash
            project.ending = self._projects[root].ending
            project.leaving = self._projects[root].leaving
            self._projects[root] = project
            return pending


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _by_project(pending: tuple[PendingEffect, ...]) -> dict[str, tuple[PendingEffect, ...]]:
    grouped: defaultdict[str, list[PendingEffect]] = defaultdict(list)
    for order in pending:
        grouped[order.key.project].append(order)
    return {root: tuple(orders) for root, orders in grouped.items()}


def by_project(stored: tuple[StoredTrack, ...]) -> dict[str, tuple[StoredTrack, ...]]:
    """Return tracks by the root of their project."""
    grouped: defaultdict[str, list[StoredTrack]] = defaultdict(list)
    for entry in stored:
        grouped[entry.key.project].append(entry)
    return {root: tuple(tracks) for root, tracks in grouped.items()}
