"""Level 1: what people, hooks and other tools do themselves: take a prompt, hand in, have checked.

With a daemon the project's loops carry out what follows from that. Without one the track is lent a
loop for as long as the verb lasts, in which nothing is dispatched.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio import to_thread
from msgspec.structs import replace

from handoffd.engine.decision import Dispatched, Refusal, Result, RunChecks, at_gate, way_on
from handoffd.engine.events import PostChecked
from handoffd.engine.run import PostCheck, all_passed
from handoffd.engine.track import EXTERNAL, Dispatch, Phase, Track, Workspace, own_story
from handoffd.engine.views import Applied, AppliedKind, Tried
from handoffd.engine.wording import addressed, command, command_for, repair_command
from handoffd.errors import Refused
from handoffd.files.rooted import read_project_file
from handoffd.journal.dispatches import NOT_STARTED
from handoffd.journal.records import INTERRUPTED
from handoffd.project.external_changes import arrived, expected_of
from handoffd.project.project import Project
from handoffd.protocol.handoff import Absent, Found, HandoffMark, Malformed, Reading, Stale
from handoffd.protocol.reading import Expected
from handoffd.protocol.rules import DONE, Commands
from handoffd.protocol.state import State, Status
from handoffd.track.ai_folder import HandoffFiles
from handoffd.track.checks import Checks
from handoffd.track.prompts import PROMPT, dispatch_id
from handoffd.track.services import Services
from handoffd.track.track import TrackSupervisor

MOST_TURNS = 10
"""Turns that lead to no dispatch, one after the other: a parked story is given back, and so on."""

TRY_S = 40.0
"""How long tests may take that are only tried: less than a client waits for an answer."""
LOOK_S = 0.02
_RECENT_RUNS = 20
_MAX_PROMPT = 1024 * 1024


class Manual:
    """Level-1 operations on a track of a project: on `main`, or as it is found by one of the functions."""

    def __init__(self, project: Project, services: Services, track: TrackSupervisor | None = None) -> None:
        self._project = project
        self._track = project.main if track is None else track
        self._services = services

    @property
    def own(self) -> str | None:
        """The story whose own track it is; None: the project's first."""
        return own_story(self._track.key)

    async def hand_out(self, by: str) -> tuple[Result, str | None]:
        """Take the track to the next attempt and give it away: return the result, and its prompt.

        Raises HandoffdError when there is no STATE.json or the prompt cannot be made.
        """
        self._require_state()
        if await self._project.has_unfinished_git():
            hint = repair_command(self._project.root, "unfinished_git")
            raise Refused(f"{self._project.root}: {self._project.detail}", code="UNFINISHED_GIT", hint=hint)
        result: Result | None = None
        for _ in range(MOST_TURNS):
            event = await self._track.taken(by)
            result = (await self._track.give(event)).result
            if isinstance(result, Dispatched):
                return result, await to_thread.run_sync(self._prompt_of, event.dispatch)
            if result.type != "accepted":
                break
        assert result is not None
        return result, None

    def _prompt_of(self, dispatch: str) -> str:
        seen = read_project_file(self._services.run_dir(dispatch), PROMPT, _MAX_PROMPT)
        return seen.content.decode("utf-8", errors="replace") if seen is not None else ""

    async def apply(self, within_s: float | None) -> Applied:
        """Take in the hand-off that is there now, and have its claims checked.

        After `within_s` seconds the checks go on without being waited for, if there is a daemon.
        """
        self._require_state()
        dispatch = self._track.track.ledger.dispatch
        if dispatch is None:
            reading = await self._take_in()
            if reading is not None and self._checked() is None:
                return await self._not_taken(reading)
        elif self._daemons_own():
            return self._told(
                "pending", f"{dispatch.id} is the daemon's own: its hand-off is read when it ends"
            )
        await self._conclude(within_s)
        return self._told("applied", self._standing())

    async def _take_in(self) -> Reading | None:
        """Give the hand-off to the engine; return its reading if it is for no attempt in flight."""
        before = self._track.track
        assert before.state is not None
        if self._may_be_corrected(before.state):
            return await self._take_in_corrected(before.state)
        if before.state.status is not Status.RUNNING:
            mark = await to_thread.run_sync(self._handoffs().mark)
            there = mark.handoff is not None or mark.result is not None
            return Stale(why=self._standing()) if there else Absent()
        reading, mark = await to_thread.run_sync(self._handoffs().read_for, expected_of(before))
        return await self._give(before, reading, mark) if isinstance(reading, Found) else reading

    async def _give(self, before: Track, reading: Found, mark: HandoffMark) -> Reading | None:
        decision = await self._track.give(arrived(before, reading, mark, self._services.clock))
        return Stale(why=decision.result.message) if isinstance(decision.result, Refusal) else None

    def _may_be_corrected(self, state: State) -> bool:
        """Return whether a corrected hand-off may count as the next attempt of the step."""
        rule = self._project.files.rules.steps.get(state.step)
        if state.status is not Status.FAILING or self._track.track.ledger.automatic or rule is None:
            return False
        again = rule.target(state.reason) == state.step and state.attempt < state.max_attempts
        return again and not at_gate(self._track.track, self._project.files.rules)

    async def _take_in_corrected(self, failed: State) -> Reading | None:
        """Take a hand-off that was written after the verdict as the next attempt of the same step.

        Its maker has received the failures and gone on: for that maker there was no end and no new prompt.
        """
        expected = Expected(
            mark=self._track.track.ledger.last_mark,
            story=failed.story,
            step=failed.step,
            since=failed.completed_at,
        )
        reading, mark = await to_thread.run_sync(self._handoffs().read_for, expected)
        if not isinstance(reading, Found):
            return reading
        taken = await self._track.give(await self._track.taken("apply"))
        if not isinstance(taken.result, Dispatched):
            return Stale(why=self._standing())
        return await self._give(self._track.track, reading, mark)

    async def _not_taken(self, reading: Reading) -> Applied:
        state = self._require_state()
        mark = await to_thread.run_sync(self._handoffs().mark)
        if mark.repeats(self._track.track.ledger.last_mark):
            return self._told("taken", f"taken already: {await self._taken_of(state)}")
        running = state.status is Status.RUNNING
        match reading:
            case Malformed(problem=problem):
                return self._told("error", str(problem), code="MALFORMED_HANDOFF")
            case Stale(why=why):
                return self._told("stale", f"the hand-off is not for a running attempt: {why}")
            case _ if running:
                return self._told("pending", f"{state.step} runs, and .ai/HANDOFF.md is not there yet")
            case _:
                return self._told(
                    "missing", f"there is no .ai/HANDOFF.md, and nothing runs: {self._standing()}"
                )

    async def _taken_of(self, state: State) -> str:
        """Return the outcome of the current hand-off: the story's status, or the hand-off awaited."""
        if state.status is not Status.RUNNING:
            return self._standing()
        runs = await self._services.journal.runs(self._project.root, _RECENT_RUNS)
        of = next((run for run in runs if run.result not in {None, INTERRUPTED, NOT_STARTED}), None)
        whose = f"{_attempt(of.step, of.attempt, of.story)}, which is over" if of else "an earlier attempt"
        awaited = _attempt(state.step, state.attempt, state.story)
        return f"what is in .ai/ was handed over by {whose}; {awaited} runs, and its hand-off is awaited"

    async def _conclude(self, within_s: float | None) -> None:
        """Wait for the checks of a hand-off; without a daemon, carry them out."""
        if self._checked() is None:
            return
        async with self._loop():
            with anyio.move_on_after(within_s):
                # A commit is shown in STATE.json a moment later, and the asker may look there next.
                while self._checked() is not None or self._track.committed.behind:  # noqa: ASYNC110
                    await anyio.sleep(LOOK_S)

    def _daemons_own(self) -> bool:
        dispatch = self._track.track.ledger.dispatch
        return dispatch is not None and dispatch.executor != EXTERNAL

    def _checked(self) -> Dispatch | None:
        """Return the attempt of others whose hand-off is being checked, while one is."""
        dispatch = self._track.track.ledger.dispatch
        if dispatch is None or dispatch.executor != EXTERNAL or dispatch.phase is not Phase.CHECKING:
            return None
        return dispatch

    @asynccontextmanager
    async def _loop(self) -> AsyncIterator[None]:
        """Lend the track a loop if it has none: it takes up what was ordered, and dispatches nothing."""
        if self._track.lasting:
            yield
            return
        dispatch = self._checked()
        orders = [
            order
            for order in await self._services.journal.pending_effects(self._project.root)
            if isinstance(order.effect, RunChecks) and dispatch and order.effect.dispatch == dispatch.id
        ]
        self._project.ending = True
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._track.run, tuple(orders))
            yield
            tasks.cancel_scope.cancel()
        self._project.ending = False
        self._track.reopen()  # one answer to a person may be several verbs

    async def post_check(self, by: str) -> tuple[Commands | None, tuple[PostCheck, ...]]:
        """Run the post_check of the current step; return its commands and how each ended, if there are any.

        Raises Refused while an attempt is in flight that the daemon checks by itself.
        """
        state = self._require_state()
        dispatch = self._track.track.ledger.dispatch
        if dispatch is not None:
            hint = command_for(self._project.root, "status")
            raise Refused(f"{dispatch.id} is checked by the daemon", code="ALREADY_RUNNING", hint=hint)
        rule = self._project.files.rules.steps.get(state.step) if state.step != DONE else None
        if rule is None or rule.checks is None:
            return None, ()
        checks = Checks(self._track.key, self._project, self._services, {}, self._workspace)
        order = RunChecks(
            dispatch=dispatch_id(self._services.clock), story=state.story, step=state.step,
            attempt=state.attempt, tests=None, check_timeout_min=rule.check_timeout_min,
            post_check=rule.checks, post_check_timeout_s=rule.post_check_timeout_s,
        )  # fmt: skip
        finished = await checks.measure(order, 0)
        if finished.tests is not None:  # not even one run could be made
            return rule.checks, (PostCheck(passed=False, fault=finished.tests.fault),)
        if (passed := all_passed(finished.checked)) is not None:
            ends = tuple(replace(one, tail="") for one in finished.checked)
            await self._track.give(PostChecked(passed=passed, checks=ends, by=by))
        return rule.checks, finished.checked

    async def try_tests(self) -> Tried:
        """Run the project's tests once, in the environment in which the daemon measures them.

        Raises Refused while an attempt is in flight, whose work they could disturb.
        """
        track = self._track.track
        if track.ledger.dispatch is not None or (track.state and track.state.status is Status.RUNNING):
            hint = command_for(self._project.root, "status")
            message = f"{self._standing()}, which its tests could disturb; try them when it has ended"
            raise Refused(message, code="ALREADY_RUNNING", hint=hint)
        command = self._project.files.settings.test.command
        if command is None:
            return Tried(held=any(key.startswith("test.") for key in self._project.files.held))
        checks = Checks(self._track.key, self._project, self._services, {}, self._workspace)
        evidence = await checks.trial(f"{dispatch_id(self._services.clock)}.trial", TRY_S)
        return Tried(command=command, path=checks.environment["PATH"], evidence=evidence)

    def _workspace(self) -> Workspace:
        return self._track.workspace

    def _handoffs(self) -> HandoffFiles:
        return HandoffFiles(self._workspace().folder)

    def _require_state(self) -> State:
        state = self._track.track.state
        if state is None:
            hint = command_for(self._project.root, "init")
            raise Refused(f"{self._project.root} has no STATE.json", code="NOT_INITIALIZED", hint=hint)
        return state

    def _standing(self) -> str:
        state = self._require_state()
        if state.step == DONE:
            return f"{state.story or 'the story'} is done"
        why = f": {state.last_error}" if state.last_error and state.status is not Status.PASS else ""
        return f"{_attempt(state.step, state.attempt, state.story)} is {state.status}{why}"

    def _following(self, kind: AppliedKind) -> str:
        """Return the next command: another `apply` while an external attempt is not judged yet."""
        track = self._track.track
        theirs = track.state is not None and track.state.status is Status.RUNNING and not self._daemons_own()
        again = theirs or kind == "error"
        following = command("apply") if again else way_on(track, self._project.files.rules)
        return following if self.own is None else addressed(following, self._project.root, self.own)

    def _told(self, kind: AppliedKind, message: str, *, code: str | None = None) -> Applied:
        return Applied(
            type=kind,
            message=message,
            code=code,
            state=self._require_state(),
            checking=self._checked() is not None,
            next_command=self._following(kind),
        )


def may_be_taken(track: Track) -> bool:
    """Return whether the next attempt of a story could be given to a person."""
    return track.state is not None and track.state.status is not Status.RUNNING


def may_be_handed_in(track: Track) -> bool:
    """Return whether others are at an attempt of a story, or may correct the one that failed."""
    state, dispatch = track.state, track.ledger.dispatch
    theirs = dispatch is None or dispatch.executor == EXTERNAL
    return state is not None and theirs and state.status in {Status.RUNNING, Status.FAILING}


def _attempt(step: str, attempt: int, story: str | None) -> str:
    return f"{step} attempt {attempt}{f' of {story}' if story is not None else ''}"
