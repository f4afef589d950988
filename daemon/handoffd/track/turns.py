"""A track's turn: what is known when it comes, what it would decide, and what a dispatch needs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from anyio import to_thread
from msgspec.structs import replace

from handoffd.engine.decide import decide
from handoffd.engine.decision import Decision, Dispatched, MeasureBaseline, Spawn
from handoffd.engine.events import (
    Advanced,
    CauseEnded,
    DispatchFailed,
    Event,
    ExecutorExited,
    PromptTaken,
    SpawnRefused,
)
from handoffd.engine.limits import WORKS_AFTER
from handoffd.engine.routing import MAX_ATTEMPTS
from handoffd.engine.run import POLICIES, End, Exit, Finding, Then
from handoffd.engine.track import Ledger, Track, TrackKey, Workspace
from handoffd.errors import StoreError
from handoffd.execute.base import StartRecord
from handoffd.inspection.own_files import Texts, read_texts
from handoffd.protocol.handoff import HandoffMark
from handoffd.protocol.rules import DONE
from handoffd.protocol.state import Status
from handoffd.settings.model import ProjectSettings, Settings
from handoffd.track.ai_folder import HandoffFiles, reopenings
from handoffd.track.executor_choice import ExecutorChoice, worked
from handoffd.track.prompts import Prompts, dispatch_id
from handoffd.track.services import Home, Services

_Looked = tuple[Texts | None, HandoffMark, Workspace]
"""The project's own files, None while they must not change, the identity of the hand-off, and where it is."""


class Turns:
    """Looks up what a turn of one track depends on. Changes nothing but the files of a dispatch.

    `of_turn` returns where an attempt of the turn works; it blocks.
    """

    def __init__(
        self, key: TrackKey, home: Home, services: Services, of_turn: Callable[[Track], Workspace]
    ) -> None:
        self._key = key
        self._of_turn = of_turn
        self._home = home
        self._files = home.files
        self._services = services
        # A bound method would keep the project alive after it is let go.
        self._prompts = Prompts(key, home.files, services, lambda name: home.schema(name))  # noqa: PLW0108
        self._executor_choice = ExecutorChoice(key, home.files, services)
        self._looked: _Looked | None = None

    def look_ahead(self, track: Track) -> None:
        """Look at what the turn depends on that follows at once; blocks on the disk.

        In the visit to a thread that shows the decision before: the next executor waits for both.
        """
        with suppress(StoreError):  # then `next` looks, and raises it
            self._looked = self._look(track)

    def forget(self) -> None:
        """Drop what was found ahead: the turn has not followed at once."""
        self._looked = None

    async def next(self, track: Track) -> tuple[Advanced, Decision]:
        """Return the track's turn as a fact, and what the engine decides on it.

        Between two runs is when edits of the project's files take effect. Raises StoreError when they
        cannot be read.
        """
        looked, self._looked = self._looked, None
        if looked is None:
            looked = await to_thread.run_sync(self._look, track)
        texts, mark, where = looked
        if texts is not None:
            await self._files.take(texts)
        event = await self._turn(track, mark, where)
        now = self._services.clock.now()
        decision = decide(track, event, self._files.rules, now)
        if dispatches(decision):  # the current step may want another one
            assigned = await self._assigned(event, decision.track)
            if assigned != event:
                event, decision = assigned, decide(track, assigned, self._files.rules, now)
        return event, decision

    def _look(self, track: Track) -> _Looked:
        """Return the project's own files, if they must be read, and the identity of the hand-off.

        In one visit to a thread: the next executor waits for it.
        """
        texts = read_texts(Path(self._key.project)) if track.ledger.dispatch is None else None
        where = self._of_turn(track)
        return texts, HandoffFiles(where.folder).mark(), where

    async def _assigned(self, event: Advanced, track: Track) -> Advanced:
        choice = await self._executor_choice.choose(track)
        return replace(
            event,
            executor=choice.executor,
            account=choice.account,
            passed_over=choice.passed_over,
            resume=self._prompts.resumes(track, choice.executor),
        )

    async def informed(self, event: Event, track: Track) -> Event:
        """Return a fact about an executor that could not be used with who else could have its attempt."""
        match event:
            case ExecutorExited(exit=Exit(end=End() as end)) | SpawnRefused(end=End() as end):
                wanted = track.ledger.dispatch.executor if track.ledger.dispatch is not None else None
            case DispatchFailed(end=End() as end, executor=str() as wanted):
                pass
            case _:
                return event
        if wanted is None or event.standby is not None or POLICIES[end].then not in {Then.PAUSE, Then.PARK}:
            return event
        return replace(event, standby=await self._executor_choice.standby(track, wanted))

    def cause_ended(self, track: Track, start: StartRecord | None) -> CauseEnded | None:
        """Return that executors can be tried again; blocks on the disk. `start`: of the one that runs."""
        faults, now = track.passing_faults, self._services.clock.now()
        usable = [fault.executor for fault in faults if self._executor_choice.is_over(fault)]
        if usable or (usable := self._proven(track, start)):
            return CauseEnded(executors=tuple(usable))
        due = tuple(fault.executor for fault in faults if fault.is_due(now, worked(fault, self._services)))
        return CauseEnded(executors=due, trial=True) if due else None

    def _proven(self, track: Track, start: StartRecord | None) -> list[str]:
        """Return the executor that is tried again and has worked for so long that its fault is over."""
        dispatch = track.ledger.dispatch
        if dispatch is None or start is None:
            return []
        ran_s = self._services.clock.monotonic() - start.monotonic
        names = [fault.executor for fault in track.ledger.faults if fault.trying]
        return [name for name in names if name == dispatch.executor and ran_s >= WORKS_AFTER.total_seconds()]

    async def stage(self, event: Advanced, decision: Decision) -> bool:
        """Stage the files that the dispatch needs. Raises HandoffdError if one is unavailable.

        Returns False while the repository is in the middle of a merge or the like.
        """
        return await self._prompts.stage(decision.track, event.dispatch)

    async def taken(self, track: Track, by: str) -> PromptTaken:
        """Return that a person or tool takes the prompt of the next turn. Raises StoreError like `next`."""
        if track.ledger.dispatch is None:
            await self._files.refresh()
        return PromptTaken(
            dispatch=dispatch_id(self._services.clock), unmet=self.unmet(track), by=by, keeps_gate=True,
            reopenings=await self._reopenings(track),
        )  # fmt: skip

    async def lay_out(self, track: Track, dispatch: str) -> None:
        """Keep the prompt of an attempt that a person or another tool makes. Raises HandoffdError."""
        await self._prompts.lay_out(track, dispatch)

    async def peek(self, track: Track) -> tuple[Decision, Advanced, str | None, tuple[str, ...]]:
        """Return what the next turn would decide, with the prompt if it would dispatch.

        Of a story at level 1 that is what taking the prompt would give; of an attempt that others
        have in hand it is that attempt's.
        """
        event, decision = await self.next(track)
        by_hand = not track.ledger.automatic and track.state is not None and track.state.story is not None
        if by_hand:
            taken = await self.taken(track, "peek")
            decision = decide(track, taken, self._files.rules, self._services.clock.now())
        given_away = isinstance(decision.result, Dispatched)
        if not dispatches(decision) and not given_away and not _is_others(track):
            return decision, event, None, ()
        prompt, warnings = await self._prompts.prompt(decision.track, event.dispatch)
        return decision, event, prompt, warnings

    async def _turn(self, track: Track, mark: HandoffMark, where: Workspace) -> Advanced:
        state = track.state
        assert state is not None
        baseline = False
        if self._files.settings.test.command and not track.ledger.red_done:
            baseline = await self._services.journal.load_baseline(self._key, state.story) is None
        choice = await self._executor_choice.choose(track)
        return Advanced(
            keeps_gate=True,
            reopenings=await self._reopenings(track),
            dispatch=dispatch_id(self._services.clock),
            executor=choice.executor,
            account=choice.account,
            group=self._files.settings.group,
            mark=mark,
            unmet=self.unmet(track),
            baseline=baseline,
            over=self.over(track),
            auto_continue=self.auto_continue(track),
            workspace=where if where != track.works_in(self._key.project) else None,
        )

    async def _reopenings(self, track: Track) -> int:
        """Return the number of reopenings in the history, if the turn may be the one that ends the story."""
        state = track.state
        rule = self._files.rules.steps.get(state.step) if state is not None else None
        if state is None or rule is None or state.status is not Status.PASS or rule.next_on_pass != DONE:
            return 0
        return await to_thread.run_sync(reopenings, self._key.project)

    def unmet(self, track: Track) -> tuple[str, ...]:
        """Return the stories that must be done before the track goes on, and are not."""
        assert track.state is not None
        done = self._home.stories_done()
        return tuple(name for name in track.state.blocked_by if name not in done and name != MAX_ATTEMPTS)

    def auto_continue(self, track: Track) -> bool:
        """Return whether the next story of the backlog starts without being asked for."""
        settings = self._files.settings, self._services.settings
        return goes_on_by_itself(track.ledger, *settings) and not self._home.lands_first(track)

    def over(self, track: Track) -> Finding | None:
        """Return the cap that lets nothing more be started for the track, if one does."""
        beside = self._home.spent_beside(self._key)
        return self._services.budgets.over(self._key, track, self._files.settings.caps, beside)


def _is_others(track: Track) -> bool:
    """Return whether an attempt is in flight that a person or another tool makes."""
    return track.state is not None and track.state.status is Status.RUNNING and track.ledger.dispatch is None


def dispatches(decision: Decision) -> bool:
    """Return whether a decision starts an executor, or the tests before it."""
    return any(isinstance(effect, Spawn | MeasureBaseline) for effect in decision.effects)


def goes_on_by_itself(ledger: Ledger, project: ProjectSettings, daemon: Settings) -> bool:
    """Return whether the next story starts without being asked for: a person's choice, else the settings'.

    The project's own settings go before the daemon's. Several at once are wanted where they are allowed.
    """
    if ledger.auto_continue is not None:
        return ledger.auto_continue
    if project.auto_continue is not None:
        return project.auto_continue
    return daemon.auto_continue or project.stories.parallel > 1
