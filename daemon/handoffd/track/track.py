"""One track's consumer: facts in, one at a time; decided, committed, projected, carried out.

Nothing else changes the track. Watcher, poller, executors and people only put facts into its inbox.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from shlex import quote
from weakref import proxy

import anyio
import anyio.abc
import structlog
from anyio import to_thread

from handoffd.capacity.machine import Room, Shortage, descriptor_shortage, shortage_in
from handoffd.capacity.runqueue import Bid, bid_of, bid_of_run
from handoffd.engine.beside import is_at_code, is_code
from handoffd.engine.decide import decide
from handoffd.engine.decision import Decision, Dispatched, Spawn
from handoffd.engine.dispatching import wants_turn
from handoffd.engine.events import Advanced, DispatchFailed, Event, PromptTaken, RolledBack
from handoffd.engine.limits import news_of
from handoffd.engine.run import End
from handoffd.engine.story_texts import named
from handoffd.engine.track import Track, Workspace
from handoffd.engine.wording import command_for
from handoffd.errors import HandoffdError, StoreError
from handoffd.execute.base import StartRecord
from handoffd.execute.meter import Live, noted
from handoffd.execute.registry import is_unknown
from handoffd.journal.codec import decode_event, encode
from handoffd.journal.records import PendingEffect
from handoffd.protocol.rules import RuleBook
from handoffd.track.attempts import Attempts
from handoffd.track.committed_state import CommittedState
from handoffd.track.inbox import Consumer, Question
from handoffd.track.interpreter import Interpreter
from handoffd.track.reach import Reach
from handoffd.track.services import Home, Services
from handoffd.track.snapshots import TrackSnapshots
from handoffd.track.turns import Turns, dispatches
from handoffd.track.workspace import TrackWorkspace

log = structlog.get_logger(__name__)

_Question = Question[Event, Decision]
RETRY_S = 5.0
"""How long a fact waits at most for a journal that cannot be written, before it is tried again."""


class TrackSupervisor(Consumer[Event, Decision]):
    """The one place where a track changes."""

    committed: CommittedState

    def __init__(self, committed: CommittedState, home: Home, services: Services, retry_s: float) -> None:
        self.key = key = committed.key
        super().__init__(log.bind(project=key.project, track=key.track))
        self.retry_s = retry_s
        self.committed = committed
        self._home = home
        self._files = home.files
        self._services = services
        self._interpreter = Interpreter(key, home, services, proxy(self))
        self.place = TrackWorkspace(key, home.files, services, proxy(self), self._interpreter.checks)
        self._turns = Turns(key, home, services, self.place.of_turn)
        self._room = Room(key.project, services, Reach(key.project, services.asking))
        self._shortage: Shortage | None = None
        self._waits_for_another = False
        """Whether its story waits for another one that means the same files."""
        self._rules: RuleBook | None = None
        """By what the attempt in flight was begun, and will be judged; None: there is none, or not known."""
        self._left: tuple[PendingEffect, ...] = ()
        """Orders that were committed while there was no loop."""

    @property
    def track(self) -> Track:
        """The track as it is now."""
        return self.committed.track

    @property
    def what(self) -> str:
        """What it works on: a story, or a task of a flow."""
        task, state = self.track.ledger.task, self.track.state
        if task is not None:
            return f"{task.node} of {task.flow}"
        return (state.story if state is not None else None) or self.key.track

    @property
    def workspace(self) -> Workspace:
        """Where its agents work now."""
        return self.track.works_in(self.key.project)

    @property
    def idle(self) -> bool:
        """Whether its loop only waits for the next fact: nothing is decided or carried out."""
        return self._listens and not self._questions and not self._lasting and not self._left

    # --- the consumer ----------------------------------------------------------------------------
    async def run(
        self,
        pending: tuple[PendingEffect, ...],
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Take up what an earlier life left undone, then consume facts until cancelled."""
        structlog.contextvars.bind_contextvars(project=self.key.project)  # of this task
        await self.consume(pending, task_status.started)

    def must_not_be_lost(self, event: Event) -> bool:
        """Return whether a fact exists nowhere else."""
        return must_not_be_lost(event)

    def _context(self) -> Mapping[str, str]:
        return _run_of(self.track)

    def _rest(self) -> None:
        self._turns.forget()
        self._give_back()

    async def _take_up(self, pending: tuple[PendingEffect, ...]) -> None:
        """Carry out what was ordered before there was this loop, and find what was started then."""
        orders = {order.id: order for order in (*pending, *self._left)}
        self._left = ()
        for order in orders.values():
            await self._interpreter.perform(order)
        ordered = {order.effect.dispatch for order in orders.values() if isinstance(order.effect, Spawn)}
        await self._interpreter.rejoin(ordered)
        self.wake()

    async def _apply(self, question: _Question) -> Decision:
        assert question.event is not None
        try:
            return await self._decide(question.event, question)
        except StoreError as error:
            if error.code != "UNWRITABLE":
                raise
            # An agent's output may hold half a character. The journal could never take that, so
            # the event is what it would have read again.
            return await self._decide(decode_event(encode(question.event)), question)

    async def _decide(self, event: Event, question: _Question) -> Decision:
        event = await self._turns.informed(named(self.track, event), self.track)
        decision = decide(self.track, event, self._rules_in_force(), self._services.clock.now())
        if isinstance(event, PromptTaken) and isinstance(decision.result, Dispatched):
            await self._turns.lay_out(decision.track, event.dispatch)  # before: without it the prompt is lost
        if isinstance(event, RolledBack) and event.files:
            event = await self.snapshots.bring_back(self.track, event, decision)
            decision = decide(self.track, event, self._rules_in_force(), self._services.clock.now())
        await self._keep(event, decision)
        await self._commit(event, decision, question)
        return decision

    @property
    def rules(self) -> RuleBook:
        """The step table by which the attempt in flight is judged."""
        return self._rules_in_force()

    def _rules_in_force(self) -> RuleBook:
        """Return the step table to decide by: an edit takes effect at the track's own next turn.

        But for one that makes a gate of the step in hand: only a person passes that.
        """
        newest, dispatch = self._files.rules, self.track.ledger.dispatch
        rule = newest.steps.get(dispatch.step) if dispatch is not None else None
        if dispatch is None or (rule is not None and rule.requires_human):
            return newest
        self._rules = self._rules or newest
        return self._rules

    async def _keep(self, event: Event, decision: Decision) -> None:
        """Keep what is in the files before a decision takes effect after which they may change."""
        await self.snapshots.keep(self.track, event, decision)
        await self.place.keep(self.track, event, decision, self.snapshots.seen)

    async def _commit(self, event: Event, decision: Decision, question: _Question | None = None) -> None:
        """Make a decision happen; what is logged of it names the attempt that it begins, or else is about."""
        run = _run_of(decision.track) or _run_of(self.track)
        with structlog.contextvars.bound_contextvars(**run):
            await self._carry_on(event, decision, question)

    async def _carry_on(self, event: Event, decision: Decision, question: _Question | None) -> None:
        before, ran = self.track, self.track.ledger.dispatch is not None
        ends = ran and decision.track.ledger.dispatch is None
        orders = await self.committed.commit(
            event,
            decision,
            question.request if question else None,
            partial(self._turns.look_ahead, decision.track) if ends else None,
        )
        self._rules = decision.basis.rules if decision.basis and decision.track.ledger.dispatch else None
        if question is not None:
            question.decision = decision  # whatever ends the track from here on, this is the answer
        if self.committed.left_alone:
            self._home.touched()
        if self.track != before:  # else each look would wake it for a turn that asks for another look
            self._home.stirred()
        if self._tasks is None or not self._may_go_on():
            self._give_back()
        elif ends:
            # Its turn comes at once; what that does not use is given back after it.
            self._services.slots.ended(self.key)
            self._services.accounts.leave(self.key)
        if self._tasks is None:
            self._left += orders
        for order in orders:
            await self._interpreter.perform(order)

    # --- its turn --------------------------------------------------------------------------------
    async def _take_turn(self) -> None:
        """Go as far as the track can go by itself: to a dispatch, a gate, a wait or its end."""
        while self._may_go_on():
            event, decision = await self._turns.next(self.track)
            if dispatches(decision):
                await self._dispatch(event, decision)
                return
            before = self.track
            await self._commit(event, decision)
            if self.track == before:
                return

    def _may_go_on(self) -> bool:
        wants = wants_turn(
            self.track, auto_continue=self.continues, beside=self._home.beside,
            landing=self._home.lands_first(self.track),
        )  # fmt: skip
        return wants and self._home.workable and self.committed.shown

    async def _dispatch(self, event: Advanced, decision: Decision) -> None:
        if not self._may_ask(event):
            self._services.slots.release(self.key)
            self._services.recorder.waited(self.key)
            return  # woken when its account may be asked
        try:
            self._shortage = await self._lacks(decision.track)
        except HandoffdError as error:
            hint = f"; next: {error.hint}" if error.hint else ""
            await self._apply(Question(DispatchFailed(code=error.code, message=f"{error.message}{hint}")))
            return
        if self._shortage is not None:
            self._stand_back()
            return
        if not self._services.slots.ask(self._bid(event, decision), self.wake, self.committed.waited_s()):
            self._services.accounts.leave(self.key)  # only a track with a slot may try the account
            self._services.recorder.waited(self.key)
            return  # woken when it is this track's turn
        with self._home.room_for(self.key) as crowd:
            if crowd is None:
                await self._begin(event, decision)
                return
        self._shortage = Shortage(why=crowd, action=command_for(self.key.project, "status"))
        self._stand_back()

    async def _begin(self, event: Advanced, decision: Decision) -> None:
        """Begin the attempt of a turn: its files first, then the decision."""
        try:
            await self._home.furnish(self.track)
            staged = await self._turns.stage(event, decision)
        except HandoffdError as error:
            self._shortage = shortage_in(error)
            if self._shortage is None:
                end = End.MISSING_BINARY if is_unknown(error) else None
                failed = DispatchFailed(
                    code=error.code, message=error.message, end=end, executor=event.executor if end else None
                )
                await self._apply(Question(failed))
            return
        if staged:
            await self._keep(event, decision)
            await self._commit(event, decision)
            return
        self._stand_back()
        if not await self._home.has_unfinished_git():  # else a look finds out that it is over
            self.wake()

    def _stand_back(self) -> None:
        """Release the slot, or its place in line, so that the poller reminds the track of its turn."""
        self._services.slots.release(self.key)
        self._services.accounts.leave(self.key)
        self._services.recorder.waited(self.key)

    async def _lacks(self, track: Track) -> Shortage | None:
        """Return what a track that is about to be dispatched must wait for.

        Raises HandoffdError where a person must help: its clone cannot be made.
        """
        short = descriptor_shortage(self._services) or await self._room.shortage()
        short = short or await self.place.shortage(track) or await self._no_clone()
        overlap = await self._home.overlap(self.key) if not short and self._begins_code(track) else None
        self._waits_for_another = overlap is not None
        return short or overlap

    def _begins_code(self, track: Track) -> bool:
        """Return whether a track is about to be dispatched for the first code of its story."""
        step, rules = track.state.step if track.state is not None else "", self._files.rules
        return is_code(step, rules) and not is_at_code(self.track, rules)

    async def _no_clone(self) -> Shortage | None:
        """Return that the track's own clone is gone; looks at the project find out about its root."""
        where = self.workspace
        if where.kind == "root" or await to_thread.run_sync(os.path.isdir, where.folder):
            return None
        return Shortage(why=f"its clone {where.folder} is gone", action=f"ls -ld {quote(where.folder)}")

    def _bid(self, event: Advanced, decision: Decision) -> Bid:
        account = event.account or event.executor
        return bid_of(self.key, decision.track, event.executor, account, self._files.settings)

    def occupy(self) -> None:
        """Count the attempt in flight, if there is one, as one that has its slot: it runs already."""
        if (dispatch := self.track.ledger.dispatch) is not None:
            self._services.slots.occupy(bid_of_run(self.key, self.track, dispatch, self._files.settings))

    def _may_ask(self, event: Advanced) -> bool:
        account = event.account or event.executor
        return self._services.accounts.ask(self.key, account, self.wake, self._services.clock.now())

    def _give_back(self) -> None:
        """Release the slot unless an attempt runs, and leave the queue unless there is something to run."""
        slots = self._services.slots
        if self.track.ledger.dispatch is not None:
            return
        if slots.holds(self.key) or self._questions.closed or not self._may_go_on():
            slots.release(self.key)
            self._services.accounts.leave(self.key)

    def remind(self) -> None:
        """Wake the track if it has a turn that it did not take: one that failed, or was not noticed."""
        waits = self._services.slots.waits(self.key) or self._services.accounts.waits(self.key)
        if self._may_go_on() and not waits and not self._still_capped():
            self.wake()

    def _still_capped(self) -> bool:
        """Whether a turn would wait for the same budget as the last one; so that asking costs no turn."""
        known = self.track.ledger.capped
        found = self._turns.over(self.track) if known is not None else None
        return found is not None and not news_of(found, known)

    async def look_at_faults(self) -> None:
        """Find out whether an executor that could not be used can be tried again."""
        if self.track.ledger.faults:
            ended = await to_thread.run_sync(self._turns.cause_ended, self.track, self._start_record())
            if ended is not None:
                self.post(ended)

    async def taken(self, by: str) -> PromptTaken:
        """Return the fact that a person or tool takes the prompt of the next turn, for `give`."""
        return await self._turns.taken(self.track, by)

    # --- for views -------------------------------------------------------------------------------
    @property
    def continues(self) -> bool:
        """Whether the next story of the backlog starts by itself when this one is done."""
        return self._turns.auto_continue(self.track)

    async def peek(self) -> tuple[Decision, Advanced, str | None, tuple[str, ...]]:
        """Return what the next turn would decide, with the prompt if it would dispatch."""
        return await self._turns.peek(self.track)

    @property
    def shortage(self) -> Shortage | None:
        """Why the turn it has starts nothing, if the machine is the reason."""
        return self._shortage if self._may_go_on() else None

    @property
    def held_up(self) -> bool:
        """Whether its story waits for an account, or for another story to be done or landed."""
        state = self.track.state
        if state is None or not self._may_go_on():
            return False
        waits = self._waits_for_another or self.place.unlanded or bool(self._turns.unmet(self.track))
        return waits or self.limited is not None

    @property
    def limited(self) -> str | None:
        """Which account it waits for, in words, if that is what its turn waits for."""
        wait = self._services.accounts.wait_of(self.key, now := self._services.clock.now())
        return wait.words(now) if wait is not None else None

    def pid(self) -> int | None:
        """Return the executor's own process id; None when none runs, or has not begun to."""
        start = self._start_record()
        return start.pid if start is not None else None

    def _start_record(self) -> StartRecord | None:
        dispatch = self.track.ledger.dispatch
        run = self.attempts.live.get(dispatch.id) if dispatch is not None else None
        return run.start_record() if run is not None else None

    async def live(self) -> Live | None:
        """Return what the output of the attempt in flight has told; without a loop, what was noted of it."""
        dispatch = self.track.ledger.dispatch
        if dispatch is None:
            return None
        if self.lasting:
            return self._services.meters.live(dispatch.id)
        return await to_thread.run_sync(noted, self._services.run_dir(dispatch.id))

    @property
    def snapshots(self) -> TrackSnapshots:
        """The files of its stories, as they are kept."""
        return self._interpreter.snapshots

    @property
    def attempts(self) -> Attempts:
        """The processes of ours that run for the track."""
        return self._interpreter.attempts

    def hint(self) -> None:
        """Take a hint that the hand-off files may have changed."""
        self._interpreter.watch_for_settling()


def _run_of(track: Track) -> dict[str, str]:
    """Return what a line of the log says of the attempt in flight; nothing when there is none."""
    dispatch = track.ledger.dispatch
    return {} if dispatch is None else {"run": dispatch.id}


def must_not_be_lost(event: Event) -> bool:
    """Return whether a fact exists nowhere else: what a person asked can be asked again, an end cannot."""
    return event.kind in {
        "baseline_measured", "executor_exited", "checks_finished", "spawn_refused", "executor_started",
        "handoff_settled", "landed", "landing_refused",
    }  # fmt: skip
