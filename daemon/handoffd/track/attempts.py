"""The executors of one track as live processes: started, followed to their end, stopped, found again.

Everything here can be done twice without harm: the launcher starts a run at most once, however often it is
asked to, and a run that is over answers with its exit record.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import structlog
from anyio import to_thread
from msgspec.structs import replace

from handoffd.capacity.machine import passes_by_itself
from handoffd.clock import Clock
from handoffd.engine.decision import Spawn
from handoffd.engine.events import Event, ExecutorExited, ExecutorStarted, HandoffSettled, SpawnRefused
from handoffd.engine.judging import is_known
from handoffd.engine.run import LIMITS, End, Exit, Usage, Wrote, last_line
from handoffd.engine.track import Dispatch, StopReason, Track, TrackKey, Workspace
from handoffd.errors import HandoffdError
from handoffd.execute.base import ExitRecord, RunSpec, Vitals
from handoffd.execute.checks import any_changed_since, files_untouched_since, runs_of
from handoffd.execute.ending import Ended, Ending, ending_of, footprint_of
from handoffd.execute.environment import child_environment, run_variables
from handoffd.execute.executor import Executor, Idle, InvocationContext, invocation
from handoffd.execute.meter import Source, heard_at
from handoffd.execute.output import read_output
from handoffd.execute.registry import is_unknown
from handoffd.execute.run import Run, adopt
from handoffd.execute.sandbox.plan import OFF
from handoffd.execute.sandbox.planning import combined, variables_of
from handoffd.execute.stream.format import StreamFormat
from handoffd.execute.stream.reader import Seen, last_words, plain_words
from handoffd.execute.witness import Witness
from handoffd.failpoints import reached
from handoffd.git.clones import number_of
from handoffd.notify.notices import survivors_notice
from handoffd.protocol.handoff import Found, Reading
from handoffd.track.ai_folder import HandoffFiles, output_path, started_ns
from handoffd.track.services import Home, Services

log = structlog.get_logger(__name__)

OVERDUE_S = 90.0
"""Added to all that a shim may rightly take: it waits a minute for a full disk before it gives up."""

AWAY_LIMIT_S = 600.0
"""How long an executor's end waits for a project that was moved away: no event repeats it."""
AWAY_LOOK_S = 0.5

MOST_UNTOUCHED = 50
"""Files noted of one hand-off that are not as it says."""


class PassingShortageError(HandoffdError):
    """The machine lacks what a start needs: descriptors, or room on the disk."""


class Attempts:
    """The runs of one track. `post` puts facts into its inbox; `workspace` returns where it works now.

    `wrote` returns what the step in flight has changed, for the run with that folder.
    """

    def __init__(
        self,
        key: TrackKey,
        home: Home,
        services: Services,
        post: Callable[[Event], None],
        workspace: Callable[[], Workspace],
        wrote: Callable[[Path], Awaitable[Wrote | None]],
    ) -> None:
        self._key = key
        self._home = home
        self._services = services
        self._post = post
        self._workspace = workspace
        self._wrote = wrote
        self._starting: set[str] = set()
        self._asked: dict[str, float] = {}
        """When (monotonic seconds) a run was asked to end."""
        self.live: dict[str, Run] = {}
        self.settling: str | None = None
        """The dispatch whose rest is being looked for."""
        self._settling: anyio.CancelScope | None = None
        """Ends that look."""

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
        executor, folder = self._services.executors.get(order.executor), self._workspace().folder
        prompt = str(run_dir / "prompt.md")
        asked = self._home.files.settings.sandbox
        sandbox = combined(self._services.settings.sandbox, asked)
        call = invocation(
            executor,
            InvocationContext(
                python=sys.executable,
                prompt_file=prompt,
                session=order.session,
                step=order.step,
                sandboxed=sandbox.level != OFF,
            ),
        )
        environment = child_environment(
            self._services.environment,
            self._services.settings.execute.env_allow,
            call.env,
            variables_of(sandbox),
            project=self._home.files.settings.env,
            variables=run_variables(
                run_id=order.dispatch, story=order.story, step=order.step, attempt=order.attempt,
                workspace=number_of(folder, self._services.settings.state_dir),
            ),
        )  # fmt: skip
        place = self._services.place(folder, self._key.project, self._home.files.settings.workspace.link)
        return RunSpec(
            run_id=order.dispatch,
            argv=call.argv,
            env=environment,
            cwd=folder,
            project=self._key.project,
            stdin=prompt if call.prompt == "stdin" else None,
            output=output_path(self._key.project, order.dispatch),
            deadline_s=order.timeout_min * 60 or None,
            ladder=call.ladder,
            partial=call.partial,
            memory_max=self._services.settings.execute.memory_max,
            tasks_max=self._services.settings.execute.tasks_max,
            sandbox=self._services.sandbox(asked, place, call.argv, environment, executor=executor),
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
            self._end_settling(dispatch)
        await self.report(dispatch, record, track)

    async def settle(self, dispatch: Dispatch, run: Run) -> None:
        """Post `HandoffSettled` once the executor has handed over and rests; return when it has ended."""
        if dispatch.id not in self.live:
            return
        grace_s = self._services.settings.execute.handoff_grace_s
        with anyio.CancelScope() as self._settling:
            witness, clock = self._services.launcher.witness, self._services.clock
            idle = self._services.executors.idle(dispatch.executor)
            handoffs = HandoffFiles(self._workspace().folder)
            await until_settled(run, dispatch, handoffs, clock, grace_s, witness=witness, idle=idle)
            self._post(HandoffSettled(dispatch=dispatch.id, quiet_s=grace_s))

    def _end_settling(self, dispatch: str) -> None:
        if self.settling == dispatch and self._settling is not None:
            self._settling.cancel()

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
            where = self._workspace()
            left = await to_thread.run_sync(self._left_by, current, record, source, where, patient)
            if left is None:
                await anyio.sleep(AWAY_LOOK_S)
        wrote = await self._wrote(self._services.run_dir(dispatch))
        invented = await to_thread.run_sync(_invented, left, wrote, self._workspace().folder)
        delivered = await self._home.delivered(track(), left.reading)
        untouched = (*left.untouched, *invented)
        self._post(replace(left, wrote=wrote, untouched=untouched, delivered=delivered))
        reached("after_exit_taken")

    def _tell_of_survivors(self, dispatch: str, record: ExitRecord) -> None:
        if record.survived:
            log.warning("processes outlive their run", dispatch=dispatch, count=record.survived)
            root, clock = self._key.project, self._services.clock
            self._services.notifier.send(survivors_notice(root, dispatch, record.survived, clock))

    def _left_by(
        self,
        dispatch: Dispatch,
        record: ExitRecord,
        source: Source | None,
        where: Workspace,
        patient: bool,
    ) -> ExecutorExited | None:
        """Return how the executor ended, and its hand-off; None while its folder is away.

        All in one visit to a thread: the next executor waits for it.
        """
        if patient and not (self._home.is_there() and Path(where.folder).is_dir()):
            return None
        run_dir = self._services.run_dir(dispatch.id)
        reading, mark = HandoffFiles(where.folder).read(dispatch, run_dir)
        return ExecutorExited(
            dispatch=dispatch.id, exit=ended(dispatch, record, source, self._services), reading=reading,
            mark=mark, untouched=_untouched(reading, where, run_dir),
        )  # fmt: skip

    def stop(self, dispatch: str) -> None:
        """Ask every run of a dispatch (the executor, its checks) to end; the shims do the rest."""
        named = (name for name in tuple(self.live) if name.startswith(f"{dispatch}."))  # checks with names
        for name in dict.fromkeys((*runs_of(dispatch), *named)):
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


def _untouched(reading: Reading, where: Workspace, run_dir: Path) -> tuple[str, ...]:
    """Return the files that a hand-off names as changed and that were not; of the first ones it names."""
    claimed = reading.handoff.files_changed if isinstance(reading, Found) else ()
    began_ns = started_ns(run_dir) if claimed else 0
    return files_untouched_since(Path(where.folder), claimed, began_ns)[:MOST_UNTOUCHED] if began_ns else ()


def _invented(left: ExecutorExited, wrote: Wrote | None, folder: str) -> tuple[str, ...]:
    """Return the files that a hand-off names as changed, and that are not there and were not removed."""
    if not isinstance(left.reading, Found) or not is_known(wrote) or wrote.count > len(wrote.files):
        return ()
    changed = {*wrote.files, *wrote.reverted, *left.untouched}
    names = (os.path.normpath(name) for name in left.reading.handoff.files_changed[:MOST_UNTOUCHED])
    others = (name for name in names if name not in changed and "\0" not in name)
    return tuple(name for name in others if not os.path.lexists(os.path.join(folder, name)))


def _with_remedy(error: Exception) -> str:
    """Return an error in one line, with the next command if there is one."""
    hint = error.hint if isinstance(error, HandoffdError) else None
    return f"{error}; next: {hint}" if hint else str(error)


# --- when an executor has handed over and rests -------------------------------------------------------
SAMPLES_PER_GRACE = 10


async def until_settled(
    run: Run,
    dispatch: Dispatch,
    handoffs: HandoffFiles,
    clock: Clock,
    grace_s: float,
    *,
    witness: Witness,
    idle: Idle,
) -> None:
    """Return when a valid hand-off has been there, and the tree no busier than `idle`, for `grace_s` seconds.

    Ends only by that or by cancellation: the caller cancels it when the run has ended.
    """
    pause_s = grace_s / SAMPLES_PER_GRACE
    quiet_since: float | None = None
    last: Vitals | None = None
    while True:
        await anyio.sleep(pause_s)  # first, too: an executor that ends at once costs no look
        now = await to_thread.run_sync(run.vitals, witness)
        at_rest = last is not None and is_at_rest(last, now, pause_s, idle)
        last = now
        if not at_rest or not await to_thread.run_sync(_handed_over, handoffs, dispatch):
            quiet_since = None
            continue
        quiet_since = quiet_since or clock.monotonic()
        if clock.monotonic() - quiet_since >= grace_s:
            return


def _handed_over(handoffs: HandoffFiles, dispatch: Dispatch) -> bool:
    reading, _ = handoffs.read(dispatch)
    return isinstance(reading, Found) and reading.source != "old-format"


# --- what counts as rest ------------------------------------------------------------------------------
BURST_S = 60.0
"""Idle programs tidy their databases about once a minute, so that so much may be stored at once."""

_TICK_S = 0.01
"""The kernel counts processor time in these."""


def is_at_rest(before: Vitals, after: Vitals, seconds: float, idle: Idle) -> bool:
    """Return whether a process tree did no more between two looks `seconds` apart than when `idle`.

    Processes that end take their figures along, so less is as much a sign of life as more.
    """
    return (
        (before.output_bytes, before.heard_ns) == (after.output_bytes, after.heard_ns)
        and abs(after.stored_bytes - before.stored_bytes) <= idle.stored * max(seconds, BURST_S)
        and abs(after.written_bytes - before.written_bytes) <= idle.written * seconds
        and abs(after.cpu_s - before.cpu_s) <= idle.cpu * seconds + _TICK_S
        and content_bytes(before, after, idle) == 0
    )


def content_bytes(before: Vitals, after: Vitals, idle: Idle) -> int:
    """Return what the connections have received between two looks, without what may be pings.

    Pings come in segments of their own. A connection that is gone takes its figures along and tells nothing.
    """
    earlier = {one.number: one for one in before.received}
    content = 0
    for one in after.received:
        was = earlier.get(one.number)
        received = one.data_bytes - (was.data_bytes if was else 0)
        segments = one.segments - (was.segments if was else 0)
        content += max(0, received - idle.ping * segments)
    return content


# --- what the engine learns about a run's end --------------------------------------------------------
OUTPUT_END_BYTES = 256 * 1024
"""How much of the end of an output is searched for what went wrong, and for what the agent said last."""


def source_of(track: Track, project: str, services: Services) -> Source | None:
    """Return how the output of the dispatch in flight is read; None if there is none, or no such executor."""
    dispatch = track.ledger.dispatch
    executor = services.executors.executors.get(dispatch.executor) if dispatch is not None else None
    if dispatch is None or executor is None:
        return None
    last = track.ledger.session
    return Source(
        executor=executor,
        run_dir=services.run_dir(dispatch.id),
        output=output_path(project, dispatch.id),
        before=last.used if last is not None and last.id == dispatch.session else None,
        prices=services.prices,
        folder=Path(track.works_in(project).folder),
    )


def ended(dispatch: Dispatch, record: ExitRecord, source: Source | None, services: Services) -> Exit:
    """Return how the run of a dispatch ended; blocks while the rest of its output is read."""
    exit_ = _ended(dispatch, record, source, services)
    # Our own order is recorded before a shim gets it.
    return replace(exit_, by="outside") if exit_.by == "stop" and dispatch.stop is None else exit_


def _ended(dispatch: Dispatch, record: ExitRecord, source: Source | None, services: Services) -> Exit:
    if source is None:
        return exit_of(record, tail=plain_words(record.tail))
    run = Ended(record=record, seen=services.meters.finish(dispatch.id, source), last=b"")
    if not _went_well(run):
        run = replace(run, last=read_output(source.run_dir, source.output, last=OUTPUT_END_BYTES))
    now = services.clock.now()
    # A limit counts from when the agent reported it: the daemon may have been away since.
    said_at = min(heard_at(source.run_dir) or ended_at(record) or now, now)
    ending = ending_of(source.executor, run, said_at, said_at.astimezone().tzinfo or UTC)
    if ending.end in LIMITS and not services.settings.limits.wait:
        ending = Ending(end=End.FAILED)  # limits are not waited for: a failure as any other
    if ending.end is End.REFUSED and source.executor.output == "text" and _has_worked(record, source):
        ending = Ending(end=End.FAILED)
    return exit_of(record, tail=_last_words(source.executor, run), seen=run.seen, ending=ending)


def _has_worked(record: ExitRecord, source: Source) -> bool:
    """Return whether a file changed during a run: plain output need not mention a tool's call."""
    if source.folder is None or record.ended_ns is None:
        return False
    return any_changed_since(source.folder, record.ended_ns - int(record.seconds * 1e9))


def _went_well(run: Ended) -> bool:
    result = run.seen.result
    return run.record.code == 0 and result is not None and result.is_error is False


def _last_words(executor: Executor, run: Ended) -> str:
    """Return the end of an output for people: a stream is for programs, and is put into words."""
    if executor.output == "text":
        return plain_words(run.record.tail)
    return last_words(executor.stream or StreamFormat(), run.seen.result, run.last)


def ended_at(record: ExitRecord) -> datetime | None:
    """Return when a run ended, by the wall clock; None where its shim did not see it."""
    return None if record.ended_ns is None else datetime.fromtimestamp(record.ended_ns / 1e9, UTC)


def exit_of(record: ExitRecord, *, tail: str, seen: Seen | None = None, ending: Ending | None = None) -> Exit:
    """Return an exit record in the engine's form, together with the facts from the output."""
    seen, ending = seen or Seen(), ending or Ending(end=None)
    return Exit(
        code=record.code,
        signal=record.signal,
        by=record.by,
        tail=tail,
        seconds=record.seconds,
        stream_error=seen.result is not None and seen.result.is_error is True,
        end=ending.end,
        session=seen.session,
        usage=seen.usage if seen.usage != Usage() else None,
        model=seen.model,
        retry_at=ending.retry_at,
        line=last_line(tail),
        at=ended_at(record),
        footprint=footprint_of(record),
    )
