"""The executors of one track as live processes: started, followed, stopped, found again.

Everything here can be done twice without harm: the launcher starts a run at most once, whoever
asks and however often, and a run that is over answers with its exit record.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import anyio
import structlog
from anyio import to_thread

from handoffd.capacity.machine import passes_by_itself
from handoffd.engine.decision import Spawn
from handoffd.engine.ends import End
from handoffd.engine.events import Event, ExecutorExited, ExecutorStarted, Exit, HandoffSettled, SpawnRefused
from handoffd.engine.track import Dispatch, StopReason, Track, TrackKey
from handoffd.errors import HandoffdError
from handoffd.execute.base import ExitRecord, RunSpec
from handoffd.execute.checks import runs_of
from handoffd.execute.environment import child_environment, run_variables
from handoffd.execute.executor import InvocationContext, invocation
from handoffd.execute.meter import Source
from handoffd.execute.process import Run, adopt
from handoffd.execute.registry import is_unknown
from handoffd.failpoints import reached
from handoffd.notify.notices import survivors_notice
from handoffd.protocol.handoff import HandoffMark, Reading
from handoffd.supervise.exits import ended, source_of
from handoffd.supervise.handoffs import HandoffFiles
from handoffd.supervise.home import Home
from handoffd.supervise.runfolders import output_path
from handoffd.supervise.services import Services
from handoffd.supervise.settling import until_settled

log = structlog.get_logger(__name__)

OVERDUE_S = 90.0
"""Added to all that a shim may rightly take: it waits a minute for a full disk before it gives up."""

AWAY_LIMIT_S = 600.0
"""How long the end of an executor waits for a project that was moved away: it is told nowhere else."""
AWAY_LOOK_S = 0.5


class PassingShortageError(HandoffdError):
    """The machine lacks what a start needs: descriptors, or room on the disk."""


class Attempts:
    """The runs of one track. `post` puts facts into the track's inbox."""

    def __init__(self, key: TrackKey, home: Home, services: Services, post: Callable[[Event], None]) -> None:
        self._key = key
        self._home = home
        self._services = services
        self._post = post
        self._handoffs = HandoffFiles(key.project)
        self._starting: set[str] = set()
        self._asked: dict[str, float] = {}
        """When (monotonic seconds) a run was asked to end."""
        self.live: dict[str, Run] = {}
        self.settling: str | None = None
        """The dispatch whose rest is being looked for."""

    @property
    def count(self) -> int:
        """How many processes of ours run for the track, or are about to: its executor, a check."""
        return len(self.live.keys() | self._starting)

    async def execute(self, order: Spawn) -> Run | SpawnRefused:
        """Start the executor, or find it again; or return why it could not be started.

        Raises PassingShortageError when the machine has no room for it just now.
        """
        run_dir = self._services.run_dir(order.dispatch)
        self._starting.add(order.dispatch)
        try:
            spec = self._specify(order, run_dir)
            run = self.live[order.dispatch] = await self._services.launcher.start(run_dir, spec)
        except (HandoffdError, OSError, ValueError) as error:
            if passes_by_itself(error):
                raise PassingShortageError(str(error)) from error
            log.warning("executor not started", dispatch=order.dispatch, error=str(error))
            end = End.MISSING_BINARY if is_unknown(error) else None
            return SpawnRefused(dispatch=order.dispatch, error=_with_remedy(error), end=end)
        finally:
            self._starting.discard(order.dispatch)
        return run

    def _specify(self, order: Spawn, run_dir: Path) -> RunSpec:
        executor = self._services.executors.get(order.executor)
        prompt = str(run_dir / "prompt.md")
        call = invocation(
            executor,
            InvocationContext(
                python=sys.executable, prompt_file=prompt, session=order.session, step=order.step
            ),
        )
        environment = child_environment(
            self._services.environment,
            self._services.settings.execute.env_allow,
            call.env,
            project=self._home.files.settings.env,
            variables=run_variables(
                run_id=order.dispatch, story=order.story, step=order.step, attempt=order.attempt
            ),
        )
        return RunSpec(
            run_id=order.dispatch,
            argv=call.argv,
            env=environment,
            cwd=self._key.project,
            stdin=prompt if call.prompt == "stdin" else None,
            output=output_path(self._key.project, order.dispatch),
            deadline_s=order.timeout_min * 60 or None,
            ladder=call.ladder,
            partial=call.partial,
            memory_max=self._services.settings.execute.memory_max,
            tasks_max=self._services.settings.execute.tasks_max,
        )

    async def follow(self, dispatch: str, run: Run, track: Callable[[], Track]) -> None:
        """Wait for the end of an executor, however long it takes, and post what it left.

        The wait has no limit of its own: the shim enforces the deadline and the poller checks it.
        """
        structlog.contextvars.bind_contextvars(project=self._key.project, run=dispatch)  # of this task
        self.live[dispatch] = run
        if source := source_of(track(), self._key.project, self._services):
            self._services.meters.begin(dispatch, source)
        try:
            start = await run.started()
            if start is not None:
                began = timedelta(seconds=self._services.clock.monotonic() - start.monotonic)
                at = self._services.clock.now() - began
                self._post(ExecutorStarted(dispatch=dispatch, pid=start.pid, at=at))
            record = await run.wait()
        finally:
            self.live.pop(dispatch, None)
            self._asked.pop(dispatch, None)
        await self.report(dispatch, record, track)

    async def settle(self, dispatch: Dispatch, run: Run) -> None:
        """Post `HandoffSettled` once the executor has handed over and rests."""
        grace_s = self._services.settings.execute.handoff_grace_s
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._until_over, run, tasks.cancel_scope)
            witness, clock = self._services.launcher.witness, self._services.clock
            idle = self._services.executors.idle(dispatch.executor)
            await until_settled(run, dispatch, self._handoffs, clock, grace_s, witness=witness, idle=idle)
            self._post(HandoffSettled(dispatch=dispatch.id, quiet_s=grace_s))
            tasks.cancel_scope.cancel()

    async def _until_over(self, run: Run, scope: anyio.CancelScope) -> None:
        await run.wait()
        scope.cancel()

    async def report(self, dispatch: str, record: ExitRecord, track: Callable[[], Track]) -> None:
        """Post the end of an executor, with the hand-off it left read after its last process."""
        reached("before_exit_taken")
        self._tell_of_survivors(dispatch, record)
        if record.spawn_error is not None:
            self._services.meters.forget(dispatch)
            end = End.MISSING_BINARY if record.no_program else None
            self._post(SpawnRefused(dispatch=dispatch, error=record.spawn_error, end=end))
            return
        left, give_up_at = None, anyio.current_time() + AWAY_LIMIT_S
        while left is None:
            current = track().ledger.dispatch
            if current is None or current.id != dispatch:
                self._services.meters.forget(dispatch)
                return  # judged already, before a restart
            patient = anyio.current_time() < give_up_at and current.stop is not StopReason.ABORT
            source = source_of(track(), self._key.project, self._services)
            left = await to_thread.run_sync(self._left_by, current, record, source, patient)
            if left is None:
                await anyio.sleep(AWAY_LOOK_S)
        reading, mark, exit_ = left
        self._post(ExecutorExited(dispatch=dispatch, exit=exit_, reading=reading, mark=mark))
        reached("after_exit_taken")

    def _tell_of_survivors(self, dispatch: str, record: ExitRecord) -> None:
        if record.survived:
            log.warning("processes outlive their run", dispatch=dispatch, count=record.survived)
            root, clock = self._key.project, self._services.clock
            self._services.notifier.send(survivors_notice(root, dispatch, record.survived, clock))

    def _left_by(
        self, dispatch: Dispatch, record: ExitRecord, source: Source | None, patient: bool
    ) -> tuple[Reading, HandoffMark, Exit] | None:
        """Return what the executor handed over, and how it ended; None while its project is away.

        All in one visit to a thread: the next executor waits for it.
        """
        if patient and not self._home.is_there():
            return None
        reading, mark = self._handoffs.read(dispatch)
        self._handoffs.copy_to(self._services.run_dir(dispatch.id))
        return reading, mark, ended(dispatch, record, source, self._services)

    def stop(self, dispatch: str) -> None:
        """Ask every run of a dispatch (the executor, its checks) to end; the shims do the rest."""
        for name in runs_of(dispatch):
            run = self.live.get(name) or adopt(self._services.run_dir(name))
            if isinstance(run, Run):
                self._asked.setdefault(name, self._services.clock.monotonic())
                run.stop()

    def end_overdue(self) -> None:
        """Kill the shims that should have ended their run and do not: stopped ones, ones that hang.

        The run is then lost, and what is left of it is ended from outside; else its track would
        be stopping for ever.
        """
        now = self._services.clock.monotonic()
        for run_id, run in tuple(self.live.items()):
            latest = run.latest_end(self._asked.get(run_id))
            if latest is not None and now > latest + OVERDUE_S:
                log.error("shim does not end its run, killed", run=run_id, shim=run.shim_pid)
                run.kill()


def _with_remedy(error: Exception) -> str:
    """Return an error in one line, with what to type next where that is known."""
    hint = error.hint if isinstance(error, HandoffdError) else None
    return f"{error}; next: {hint}" if hint else str(error)
