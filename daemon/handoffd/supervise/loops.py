"""The loops of all projects: each one's crash is its own, and it is made anew from the journal.

What a project had in memory when it crashed is worth nothing: a commit may have been waited for and
not heard of. So another one takes its place, built from what was recorded, after a pause. People
are told. A project that rests has no loop, and is made in the same way when it is needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import anyio
import structlog
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from handoffd.engine.commands import command_for
from handoffd.engine.events import Event
from handoffd.engine.usage import Usage
from handoffd.errors import HandoffdError, NotFound
from handoffd.journal.records import PendingEffect
from handoffd.notify.notices import crash_notice
from handoffd.project.project import Project
from handoffd.project.rest import Row, stays_up
from handoffd.supervise.register import Register
from handoffd.supervise.rounds import Rounds
from handoffd.supervise.survey import survey
from handoffd.track.inbox import Bell, given_up
from handoffd.track.services import Services

log = structlog.get_logger(__name__)

BACK_OFF_S = (1.0, 5.0, 30.0, 60.0)
STEADY_S = 600.0
"""A project that ran for so long crashes for the first time again."""

_AT_ONCE = 100

END_LIMIT_S = 30.0
"""How long the end of one loop is waited for: a thread may hang in the project's folder."""


REST_AFTER_S = 2.0
"""How long a project is to be calm before it rests: a verb seldom comes alone."""


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
    gone: Bell = field(default_factory=Bell)


class Loops:
    """Runs every project of `register` that is up, and decides who is: crashed ones are replaced."""

    def __init__(self, services: Services, register: Register, after_s: float = REST_AFTER_S) -> None:
        self._services = services
        self._register = register
        self.after_s = after_s
        self._loops: dict[str, _Loop] = {}
        self._tasks: TaskGroup | None = None
        self._watching: Watching | None = None
        self._waking: dict[str, anyio.Event] = {}
        self._over = False
        self.rounds = Rounds(services, register, self.awake)
        self.ending = False
        """Whether executors are being ended: whoever gets up now starts none."""
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
        """Give every project that is up its loop, and follow hints about the others, until cancelled."""
        pending = _by_project(await self._services.journal.pending_effects())
        try:
            async with anyio.create_task_group() as tasks:
                await survey(tuple(self._register.awake.values()))
                self._tasks, self._watching = tasks, watching
                for root in tuple(self._register.awake):
                    self.begin(root, pending.get(root, ()))
                for number, root in enumerate(tuple(self._register.resting)):
                    self.visit(root)
                    if number % _AT_ONCE == 0:
                        await checkpoint()  # whoever is to answer people begins now, too
                tasks.start_soon(self.rounds.run, name="rounds")
                await anyio.sleep_forever()
        finally:
            self._tasks, self._watching, self._over = None, None, True

    # --- resting ---------------------------------------------------------------------------------
    def take_in(self, project: Project) -> bool:
        """Have a project rest that has nothing to do; return whether it does.

        Nothing is waited for between the question and the row: a hint or a verb comes before, and
        keeps it up, or after, and finds the row.
        """
        root, register = project.root, self._register
        if register.awake.get(root) is not project or stays_up(project.activity(register.guests(root))):
            return False
        register.lay_down(root, project.lie_down(register.name_of(root)))
        log.debug("project rests", project=root)
        return True

    def visit(self, root: str) -> None:
        """Have a project that rests watched from now on, and looked at soon."""
        if self._watching is not None and root in self._register.resting:
            self._watching.add(root)
            self.rounds.hint(root)

    def leave(self, root: str) -> None:
        """Let go of a project that rests."""
        row = self._register.resting.get(root)
        if row is not None:
            self._services.claims.drop(row.folder, root)
        self._register.forget(root)
        if self._watching is not None:
            self._watching.remove(root)

    def stay(self, root: str, row: Row) -> None:
        """Take a project back that was let go a moment ago."""
        if row.folder is not None:
            self._services.claims.take(row.folder, root)
        self._register.lay_down(root, row)
        self.visit(root)

    async def awake(self, root: str) -> Project:
        """Return a project, up: made from the journal if it rests. Its loop may be about to begin.

        Raises NotFound for one that is not supervised, StoreError when the journal cannot be read, and
        Refused when the daemon stops.
        """
        while (project := self._register.awake.get(root)) is None:
            if root not in self._register.resting:
                raise NotFound(f"{root} is not supervised", hint=command_for(root, "add"))
            if root in self._waking:
                await self._waking[root].wait()  # whoever makes it sets that, also when it fails
                continue
            made = self._waking[root] = anyio.Event()
            try:
                await self._get_up(root)
            finally:
                del self._waking[root]
                made.set()
        return project

    async def _get_up(self, root: str) -> None:
        if self._over:
            raise given_up()
        if (before := self._loops.get(root)) is not None:
            await before.gone.wait()  # it lies down at this moment, and still has the lock
        project, pending = await self.recorded(root)
        row = self._register.resting.get(root)
        if row is None or self._over:
            return  # removed meanwhile
        project.get_up(row)
        project.ending = self.ending
        self._register.get_up(root, project)
        self.begin(root, pending)

    def tell(self, root: str, track: str, event: Event) -> None:
        """Hand a fact to a track, whether its project is up or not."""
        project = self._register.awake.get(root)
        if project is not None:
            project.post(track, event)
        elif root in self._register.resting and self._tasks is not None:
            self._tasks.start_soon(self._tell, root, track, event)

    async def _tell(self, root: str, track: str, event: Event) -> None:
        try:
            (await self.awake(root)).post(track, event)
        except HandoffdError as error:
            log.warning("fact not told", project=root, fact=event.kind, error=error.message)

    # --- loops -----------------------------------------------------------------------------------
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
        stored, pending = await journal.tracks([root]), await journal.pending_effects(root)
        project, before = Project(root, self._services, stored), self._register.awake.get(root)
        unheard = project.spent - before.spent if before is not None else Usage()
        self._services.budgets.recorded(root, project.dispatches, unheard)
        return project, pending

    async def _contain(self, root: str, loop: _Loop, pending: tuple[PendingEffect, ...] | None) -> None:
        """Restart a crashed project with back-off, until one rests; let cancellation through."""
        clock, crashes = self._services.clock, 0
        try:
            with loop.scope:
                while True:
                    if pending is None:
                        pending = await self._made_anew(root, crashes)
                    began = clock.monotonic()
                    error = await self._run(self._register.awake[root], pending)
                    if error is None:
                        return
                    crashes = 1 if clock.monotonic() - began > STEADY_S else crashes + 1
                    self._crashed(root, error, crashes)
                    pending = error = None  # whose traceback would hold the project that is worth nothing
        finally:
            loop.gone.ring()
            if self._loops.get(root) is loop:
                del self._loops[root]

    async def _run(self, project: Project, pending: tuple[PendingEffect, ...]) -> Exception | None:
        """Run a project until it rests; return what made it crash before that."""
        try:
            await project.run(pending, self)
        except Exception as error:
            log.exception("project crashed", project=project.root)
            if self._register.awake.get(project.root) is project:
                return error
        return None

    def _crashed(self, root: str, error: Exception, crashes: int) -> None:
        self.crashes += 1
        self._services.recorder.crashed()
        project = self._register.awake[root]
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
            project.crash = self._register.awake[root].crash
            project.ending = self._register.awake[root].ending
            project.leaving = self._register.awake[root].leaving
            self._register.awake[root] = project
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
