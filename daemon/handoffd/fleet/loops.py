"""The loops of all projects. A crash stops only its own project, which is rebuilt from the journal.

The memory of a crashed project cannot be trusted: a commit may have succeeded without an answer. So after a
pause a new object, built from the journal, takes its place, and a notice reports the crash.

A resting project has no loop, and is built in the same way when it is needed. A hint about it costs one visit
of its folder in a thread. Only if the folder differs from the row, or cannot be read, is the project built to
look for itself. A hint that arrives during a visit causes another visit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Protocol

import anyio
import structlog
from anyio import to_thread
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint
from msgspec import Struct, field

from handoffd.engine.events import Event
from handoffd.engine.run import Usage
from handoffd.engine.wording import command_for
from handoffd.errors import HandoffdError, Locked, NotFound, StoreError
from handoffd.fleet.register import Register, by_project, survey
from handoffd.inspection.own_files import Texts
from handoffd.journal.records import PendingEffect
from handoffd.notify.notices import crash_notice, settle
from handoffd.project.files import ProjectFiles, Trusted
from handoffd.project.folder import Found, visit
from handoffd.project.project import Project
from handoffd.project.rest import Row, states_in, stays_up, trace_in
from handoffd.track.inbox import given_up
from handoffd.track.services import Services

log = structlog.get_logger(__name__)

BACK_OFF_S = (1.0, 5.0, 30.0, 60.0)
STEADY_S = 600.0
"""After this time without a crash, the back-off starts over."""

_HINTED_AT_ONCE = 100

END_LIMIT_S = 30.0
"""How long to wait for the end of one loop: a thread may hang in the project's folder."""


REST_AFTER_S = 2.0
"""How long a project must be idle before it rests: a verb seldom comes alone."""


class Watching(Protocol):
    """The source of hints: the watcher and the sweep behind it."""

    def add(self, root: str) -> None:
        """Start sending hints about this root."""

    def remove(self, root: str) -> None:
        """Stop sending hints about it."""

    @property
    def degraded(self) -> Mapping[str, str]:
        """The roots that only the sweep sees, each with the reason."""


class _Loop(Struct):
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    gone: anyio.Event = field(default_factory=anyio.Event)


class Loops:
    """Runs every project of `register` that is up, wakes and rests projects, and replaces crashed ones."""

    def __init__(
        self,
        services: Services,
        register: Register,
        after_s: float = REST_AFTER_S,
        back_off_s: Sequence[float] = BACK_OFF_S,
    ) -> None:
        self._services = services
        self._register = register
        self._back_off_s = back_off_s
        self.after_s = after_s
        self._loops: dict[str, _Loop] = {}
        self._tasks: TaskGroup | None = None
        self._watching: Watching | None = None
        self._waking: dict[str, anyio.Event] = {}
        self._over = False
        self.rounds = Rounds(services, register, self.awake)
        self.ending = False
        """Whether executors are being ended: a project that wakes now starts none."""
        self.crashes = 0

    @property
    def run_here(self) -> bool:
        """Whether this is a daemon, not a verb without one."""
        return self._tasks is not None

    def swept(self, root: str) -> str | None:
        """Return why changes of a project are not seen at once; None when they are."""
        return self._watching.degraded.get(root) if self._watching is not None else None

    def unwatched(self, root: str) -> str | None:
        """Return the reason of `swept` as a warning."""
        why, every_s = self.swept(root), self._services.settings.watch.sweep_s
        return why and f"changes are seen by the sweep every {every_s:g} s, not at once: {why}"

    async def run(self, watching: Watching) -> None:
        """Run the loop of every project that is up, and follow hints about the others, until cancelled."""
        pending = by_project(await self._services.journal.pending_effects())
        try:
            async with anyio.create_task_group() as tasks:
                await survey(tuple(self._register.awake.values()))
                self._tasks, self._watching = tasks, watching
                for root in tuple(self._register.awake):
                    self.begin(root, pending.get(root, ()))
                for number, root in enumerate(tuple(self._register.resting)):
                    self.visit(root)
                    if number % _HINTED_AT_ONCE == 0:
                        await checkpoint()  # let the control API start, too
                tasks.start_soon(self.rounds.run, name="rounds")
                await anyio.sleep_forever()
        finally:
            self._tasks, self._watching, self._over = None, None, True

    # --- resting ---------------------------------------------------------------------------------
    def take_in(self, project: Project) -> bool:
        """Put an idle project to rest; return whether it rests.

        There is no await between the check and the row: a hint or a verb comes either before, and keeps
        the project up, or after, and finds the row.
        """
        root, register = project.root, self._register
        if register.awake.get(root) is not project or stays_up(project.activity(register.guests(root))):
            return False
        register.lay_down(root, project.lie_down(register.name_of(root)))
        log.debug("project rests", project=root)
        return True

    def visit(self, root: str) -> None:
        """Watch a resting project from now on, and visit it soon."""
        if self._watching is not None and root in self._register.resting:
            self._watching.add(root)
            self.rounds.hint(root)

    def leave(self, root: str) -> None:
        """Drop a resting project."""
        row = self._register.resting.get(root)
        if row is not None:
            self._services.claims.drop(row.folder, root)
        self._register.forget(root)
        if self._watching is not None:
            self._watching.remove(root)

    def stay(self, root: str, row: Row) -> None:
        """Take back a project that was dropped a moment ago."""
        if row.folder is not None:
            self._services.claims.take(row.folder, root)
        self._register.lay_down(root, row)
        self.visit(root)

    async def awake(self, root: str) -> Project:
        """Return a project, built from the journal first if it rests. Its loop may not have begun yet.

        Raises NotFound for an unknown project, StoreError when the journal cannot be read, and
        Refused when the daemon stops.
        """
        while (project := self._register.awake.get(root)) is None:
            if root not in self._register.resting:
                raise NotFound(f"{root} is not supervised", hint=command_for(root, "add"))
            if root in self._waking:
                await self._waking[root].wait()  # set even when building it fails
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
            await before.gone.wait()  # it is just going to rest, and still has the lock
        project, pending = await self.recorded(root)
        row = self._register.resting.get(root)
        if row is None or self._over:
            return  # removed meanwhile
        project.get_up(row)
        project.ending = self.ending
        self._register.get_up(root, project)
        self.begin(root, pending)

    def tell(self, root: str, track: str, event: Event) -> None:
        """Post a fact to a track, waking its project if necessary."""
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
        """Start the loop of a project with its unfinished orders; do nothing without a daemon.

        With `pending` None the project is rebuilt from the journal first.
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
        """Return a project as the journal records it, with its unfinished orders."""
        journal = self._services.journal
        stored, pending = await journal.tracks([root]), await journal.pending_effects(root)
        flows, before = await journal.unfinished_flows([root]), self._register.awake.get(root)
        project = Project(root, self._services, stored, None, flows)
        unheard = project.spent - before.spent if before is not None else Usage()
        self._services.budgets.recorded(root, project.dispatches, unheard)
        return project, pending

    async def _contain(self, root: str, loop: _Loop, pending: tuple[PendingEffect, ...] | None) -> None:
        """Restart a crashed project with back-off, until it rests; let cancellation through."""
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
                    pending = error = None  # the traceback would keep the crashed project in memory
        finally:
            loop.gone.set()
            if self._loops.get(root) is loop:
                del self._loops[root]

    async def _run(self, project: Project, pending: tuple[PendingEffect, ...]) -> Exception | None:
        """Run a project until it rests; return the error if it crashes."""
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
            await anyio.sleep(self._back_off_s[max(min(crashes, len(self._back_off_s)) - 1, 0)])
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


# --- hints about projects at rest ---------------------------------------------------------------------
VISIT_LIMIT_S = 0.5
"""How long one batch of visits may take; after that each project looks for itself."""
VISITED_AT_ONCE = 50
WOKEN_AT_ONCE = 8
RETRY_S = 5.0
"""How long to wait before building a project again after a failure."""

Wake = Callable[[str], Awaitable[object]]


class Rounds:
    """Visits the folders of resting projects after hints. `wake` builds a project from its row."""

    def __init__(self, services: Services, register: Register, wake: Wake, retry_s: float = RETRY_S) -> None:
        self._services = services
        self._register = register
        self._wake = wake
        self._retry_s = retry_s
        self._hinted: dict[str, None] = {}
        self._filled = asyncio.Event()
        self._waking = anyio.Semaphore(WOKEN_AT_ONCE)
        self.been = anyio.Event()
        """Set once no project is left to visit."""

    def hint(self, root: str) -> None:
        """Queue a visit of a project."""
        row = self._register.resting.get(root)
        if row is not None:
            row.forget_view()
            self._hinted[root] = None
            self._filled.set()

    async def run(self) -> None:
        """Follow hints until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                if not self._hinted:
                    self.been.set()
                    self._filled.clear()
                    await self._filled.wait()
                for root in await self._changed_of(self._taken()):
                    await self._waking.acquire()
                    tasks.start_soon(self._get_up, root, name=f"wake {root}")

    async def visit_all(self) -> None:
        """Visit every resting project now, and wake the changed ones."""
        roots = tuple(self._register.resting)
        for begin in range(0, len(roots), VISITED_AT_ONCE):
            for root in await self._changed(roots[begin : begin + VISITED_AT_ONCE]):
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
        some = tuple(islice(self._hinted, VISITED_AT_ONCE))
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

    # --- judging a visit ---------------------------------------------------------------------------
    async def _changed(self, roots: Collection[str]) -> list[str]:
        """Return the projects among `roots` whose folder has changed."""
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
        """Return the contents of the folders, except for missing or silent ones."""
        state_dir = self._services.settings.state_dir
        visits = {
            root: partial(visit, state_dir, Path(root), row.tracks, texts=True, first=row.trace is None)
            for root, row in rows.items()
        }
        with anyio.move_on_after(VISIT_LIMIT_S):
            alone = anyio.CapacityLimiter(1)  # a hanging thread must not use up the shared limit
            return await to_thread.run_sync(_all_of, visits, abandon_on_cancel=True, limiter=alone)
        return {}

    def _is_as_it_was(self, root: str, row: Row, found: Found | None, usual: bool) -> bool:
        """Return whether nothing has changed; the first visit records the folder in the row."""
        trace = None if found is None else trace_in(found)
        if found is None or trace is None:
            return False
        if row.trace is not None or not usual:
            return row.trace == trace
        try:
            self._services.claims.take(found.lock.name, root)
        except Locked:
            return False  # the woken project reports the lock itself
        row.trace, row.folder, row.states = trace, found.lock.name, None
        settle(self._services.notifier, root)  # notices of an earlier daemon are out of date
        return True

    async def _usual(self, texts: Mapping[str, Texts], rows: Mapping[str, Row]) -> Collection[str]:
        """Return the projects whose own files are trusted as they are, and ask for no action."""
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
        with suppress(StoreError):  # the woken project reports the error itself
            found[root] = one()
    return found
