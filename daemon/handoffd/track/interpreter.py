"""Carrying out what the engine orders: the only place where a decision touches the world.

Every order may be given twice (after a crash, orders not marked done are performed again under the
same ids), so each is either harmless when repeated or recognises that it was done. An order whose
outcome is a fact is marked done only after that fact has been committed.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import assert_never

import anyio
import structlog
from anyio import to_thread

from handoffd.capacity.budgets import Flight
from handoffd.engine.decision import (
    AppendHistory,
    Effect,
    MeasureBaseline,
    Notify,
    RunChecks,
    Spawn,
    StopTree,
    WriteChecklist,
)
from handoffd.engine.events import Event, ExecutorExited, SpawnRefused
from handoffd.engine.run import Exit, Wrote
from handoffd.engine.track import Phase, TrackKey, Workspace
from handoffd.errors import HandoffdError, StoreError
from handoffd.execute.base import ExitRecord
from handoffd.execute.run import Run, adopt, claimed
from handoffd.failpoints import reached
from handoffd.git.branches import StoryBranch
from handoffd.git.worktree import FIRST_LIMIT_S
from handoffd.inspection.checklist import checklist, write_checklist
from handoffd.journal.records import PendingEffect
from handoffd.notify.notices import notice_of
from handoffd.protocol.handoff import Absent
from handoffd.track.ai_folder import HISTORY, append_history, started_ns
from handoffd.track.attempts import Attempts, PassingShortageError
from handoffd.track.checks import Checks
from handoffd.track.reach import Reach
from handoffd.track.services import Home, Inbox, Services
from handoffd.track.snapshots import TrackSnapshots

log = structlog.get_logger(__name__)

RETRY_S = 2.0
"""How long a start waits for descriptors or for room on the disk, each time."""

WITH_EXECUTOR = frozenset({Phase.STARTING, Phase.EXECUTING, Phase.STOPPING})
"""The phases of a dispatch in which an executor of ours may run."""


async def _wrote(inbox: Inbox, snapshots: TrackSnapshots, run_dir: Path) -> Wrote | None:
    """Return what the step in flight has changed, by the rules by which it will be judged."""
    return await snapshots.wrote(inbox.track, inbox.rules, run_dir)


class Interpreter:
    """Performs the orders of one track."""

    def __init__(self, key: TrackKey, home: Home, services: Services, inbox: Inbox) -> None:
        self._key = key
        self._home = home
        self._files = home.files
        self._services = services
        self._inbox = inbox

        # Bound methods would keep the track alive after it is let go.
        def post(event: Event) -> None:
            inbox.post(event)

        def workspace() -> Workspace:
            return inbox.track.works_in(key.project)

        self._workspace = workspace
        self.snapshots = TrackSnapshots(key, home.files, services)
        wrote = partial(_wrote, inbox, self.snapshots)
        self.attempts = Attempts(key, home, services, post, workspace, wrote)
        self.checks = Checks(key, home, services, self.attempts.live, workspace)

    async def perform(self, pending: PendingEffect) -> None:
        """Do what an order says, or begin it; lasting work goes on in the track's task group."""
        effect = pending.effect
        assert isinstance(effect, Effect), "a track has no orders of a flow"
        match effect:
            case Spawn():
                self._inbox.begin(f"spawn {effect.dispatch}", lambda: self._spawn(effect, pending.id))
            case MeasureBaseline():
                self._inbox.begin(f"baseline {effect.dispatch}", lambda: self._baseline(effect, pending.id))
            case RunChecks():
                self._inbox.begin(f"checks {effect.dispatch}", lambda: self._check(effect, pending.id))
            case Notify():
                await self._notify(effect, pending)
            case StopTree():
                await to_thread.run_sync(self.attempts.stop, effect.dispatch)
                await self._done(pending.id)
            case WriteChecklist() | AppendHistory():
                await self._write(effect, pending.at)
                await self._done(pending.id)
            case _:
                assert_never(effect)

    async def rejoin(self, ordered: Collection[str] = ()) -> None:
        """Find the executor of a dispatch again that was started before this process was.

        Not that of an `ordered` one: its start, which was not marked done, finds it.
        """
        dispatch = self._inbox.track.ledger.dispatch
        if dispatch is None or dispatch.phase not in WITH_EXECUTOR or dispatch.id in ordered:
            return
        found = await to_thread.run_sync(adopt, self._services.run_dir(dispatch.id))
        if isinstance(found, Run):
            log.info("executor adopted", project=self._key.project, dispatch=dispatch.id, pid=found.pid)
            self._follow(dispatch.id, found)
            if dispatch.stop is not None:  # ask again: the last request may not have got through
                await to_thread.run_sync(self.attempts.stop, dispatch.id)
        elif isinstance(found, ExitRecord):
            self._inbox.begin(
                f"report {dispatch.id}",
                lambda: self.attempts.report(dispatch.id, found, lambda: self._inbox.track),
            )
        else:
            lost = Exit(by="lost")
            self._inbox.post(ExecutorExited(dispatch=dispatch.id, exit=lost, reading=Absent()))

    def watch_for_settling(self) -> None:
        """Look for the moment at which the running executor has handed over and rests."""
        dispatch = self._inbox.track.ledger.dispatch
        run = self.attempts.live.get(dispatch.id) if dispatch is not None else None
        if dispatch is None or run is None or self.attempts.settling == dispatch.id:
            return
        self.attempts.settling = dispatch.id
        self._inbox.begin(f"settle {dispatch.id}", lambda: self.attempts.settle(dispatch, run))

    async def _spawn(self, order: Spawn, effect_id: int) -> None:
        if not self._is_in(order.dispatch, WITH_EXECUTOR):
            await self._done(effect_id, "superseded")
            return
        found = await self._start(order)
        if isinstance(found, SpawnRefused):
            await self._inbox.settle(found)
            await self._done(effect_id, "refused")
            return
        if self._is_stopping(order.dispatch):  # ordered before there was a process to stop
            await to_thread.run_sync(self.attempts.stop, order.dispatch)
        self._follow(order.dispatch, found)
        await self._done(effect_id)

    async def _start(self, order: Spawn) -> Run | SpawnRefused:
        """Start it, however long a shortage of the machine lasts: that is not for a person to retry."""
        while True:
            try:
                return await self._start_now(order)
            except PassingShortageError as error:
                log.warning("start waits", dispatch=order.dispatch, why=str(error), retry_s=RETRY_S)
            await anyio.sleep(RETRY_S)

    async def _start_now(self, order: Spawn) -> Run | SpawnRefused:
        if self._is_stopping(order.dispatch):
            run = await to_thread.run_sync(claimed, self._services.run_dir(order.dispatch))
            if run is None:
                return SpawnRefused(dispatch=order.dispatch, error="it was stopped before it was started")
        return await self.attempts.execute(order)

    def _is_in(self, dispatch: str, phases: Collection[Phase]) -> bool:
        """Return whether a dispatch is in flight and in one of these phases: an order may be an old one."""
        current = self._inbox.track.ledger.dispatch
        return current is not None and current.id == dispatch and current.phase in phases

    def _is_stopping(self, dispatch: str) -> bool:
        return self._is_in(dispatch, {Phase.STOPPING})

    def _follow(self, dispatch: str, run: Run) -> None:
        self.attempts.live[dispatch] = run
        self._services.budgets.begin(dispatch, self._flight())
        self._inbox.begin(
            f"follow {dispatch}", lambda: self.attempts.follow(dispatch, run, lambda: self._inbox.track)
        )
        self.watch_for_settling()  # it may have handed over while no daemon ran

    def _flight(self) -> Flight:
        return Flight(
            key=self._key,
            track=lambda: self._inbox.track,
            caps=lambda: self._files.settings.caps,
            beside=lambda: self._home.spent_beside(self._key),
            post=self._inbox.post,  # which holds the track for as long as the run is counted
        )

    async def _baseline(self, order: MeasureBaseline, effect_id: int) -> None:
        # A second measurement would include the work of an executor.
        if not self._is_in(order.dispatch, {Phase.BASELINE}):
            await self._done(effect_id, "superseded")
            return
        step = self._inbox.track.state.step if self._inbox.track.state else ""
        rule = self._files.rules.steps.get(step)
        timeout_s = (rule.check_timeout_min if rule else 10) * 60
        await self._inbox.settle(await self.checks.baseline(order, timeout_s))
        await self._done(effect_id)

    async def _check(self, order: RunChecks, effect_id: int) -> None:
        if not self._is_in(order.dispatch, {Phase.CHECKING}):
            await self._done(effect_id, "superseded")
            return
        began_ns = await to_thread.run_sync(started_ns, self._services.run_dir(order.dispatch))
        await self._inbox.settle(await self.checks.measure(order, began_ns))
        await self._done(effect_id)

    async def _notify(self, order: Notify, pending: PendingEffect) -> None:
        if not self._inbox.lasting:
            return  # without a daemon: the next one sends it
        known = await self._home.known_for(order)
        # Done when it is recorded for every sink, which is not waited for here.
        self._services.notifier.send(notice_of(order, pending, self._inbox.track, known), pending.id)

    async def _write(self, effect: WriteChecklist | AppendHistory, ordered: datetime) -> None:
        root = self._key.project
        try:
            if isinstance(effect, WriteChecklist):
                text, where = self._checklist(effect), self._workspace().folder
                await to_thread.run_sync(write_checklist, where, effect.story, text, ordered)
            else:
                await self._enter(effect.text, ordered)
        except HandoffdError as error:  # a convenience for people; the story does not depend on it
            log.warning("project file not written", project=root, error=str(error))

    async def _enter(self, entry: str, at: datetime) -> None:
        """Append to the history that the story writes: its clone's comes home with its work.

        Where git keeps that it is committed: an agent that is asked to merge needs a clean clone.
        """
        root, where, services = self._key.project, self._workspace(), self._services
        track, author = self._inbox.track, self._files.settings.commit_author
        apart = where.kind == "clone" and await to_thread.run_sync(Path(where.folder, HISTORY).exists)
        await to_thread.run_sync(append_history, where.folder if apart else root, entry)
        if apart and track.state is not None and track.ledger.dispatch is None:
            branch = StoryBranch(root, where, services.settings.state_dir, services.environment)
            message = f"{track.state.story} reopened\n\nStory: {track.state.story}\n".encode(errors="replace")
            work = partial(branch.commit, message, author, at, only_papers=True)
            await Reach(root, services.asking).asked(work, FIRST_LIMIT_S + 10)

    def _checklist(self, effect: WriteChecklist) -> str:
        state, rules = self._inbox.track.state, self._files.rules
        steps = rules.path_from(effect.task_type, state.step if state else "")
        language = self._files.settings.language or self._services.settings.language
        return checklist(effect.story, steps, rules, language)

    async def _done(self, effect_id: int, outcome: str = "done") -> None:
        """Mark an order done. One that cannot be marked is given again to the next daemon, without harm."""
        reached("before_effect_done")
        try:
            await self._services.journal.effect_done(self._key.project, effect_id, outcome)
            reached("after_effect_done")
        except StoreError as error:
            log.warning("order not marked done", project=self._key.project, error=error.message)
