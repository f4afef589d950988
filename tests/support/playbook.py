"""A script for the engine: given this fact, expect that track, those orders, this answer.

A `Playbook` holds one track and feeds it facts as the daemon would, each with the ids and marks that
belong to it, so that a test names only what it is about. The step table is the shipped one;
`with_rule` makes a variation of it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from handoffd.engine.decide import decide
from handoffd.engine.decision import Decision, Effect, Notify, Refusal
from handoffd.engine.events import (
    Advanced,
    ChecksFinished,
    Event,
    ExecutorExited,
    ExecutorStarted,
    Started,
    TestEvidence,
)
from handoffd.engine.run import Exit, PostCheck
from handoffd.engine.track import Dispatch, Ledger, Phase, Standby, Track
from handoffd.protocol.handoff import Absent, FileMark, Found, Handoff, HandoffMark, Reading
from handoffd.protocol.rule_merge import Layer
from handoffd.protocol.rulebook import build_rulebook
from handoffd.protocol.rules import RuleBook
from handoffd.protocol.state import Reason, State, Status, TestCounts
from handoffd.settings.paths import shared

T0 = datetime(2026, 1, 31, 22, 0, tzinfo=UTC)
DISPATCH = "20260131T220000-00000000"


@lru_cache(maxsize=1)
def shipped_rules() -> RuleBook:
    """Return the step table that handoffd ships with."""
    table = shared("config", "step-rules.yaml")
    return build_rulebook([Layer("config/step-rules.yaml", table.read_text("utf-8"))])


def with_rule(step: str, rules: RuleBook | None = None, **changes: Any) -> RuleBook:
    """Return a step table (the shipped one) in which the rule of `step` has `changes`."""
    book = rules or shipped_rules()
    changed = book.steps[step].model_copy(update=changes)
    return book.model_copy(update={"steps": {**book.steps, step: changed}})


def without_step(step: str) -> RuleBook:
    """Return the shipped table without `step`."""
    book = shipped_rules()
    return book.model_copy(
        update={"steps": {name: rule for name, rule in book.steps.items() if name != step}}
    )


def state_at(step: str = "bdd", status: Status = Status.PENDING, **fields: Any) -> State:
    """Return the STATE of US-1 of the project `shop` at a step, its limits copied from the rule."""
    rule = shipped_rules().steps.get(step)
    known = {"max_attempts": rule.max_attempts, "timeout_min": rule.timeout_min} if rule else {}
    return State(project="shop", story="US-1", step=step, status=status).with_(**{**known, **fields})


def track_at(
    step: str = "bdd", status: Status = Status.PENDING, *, ledger: Ledger | None = None, **fields: Any
) -> Track:
    """Return a Level 2 track of US-1 at a step."""
    return Track(state=state_at(step, status, **fields), ledger=ledger or Ledger(automatic=True))


def dispatched(step: str = "bdd", phase: Phase = Phase.EXECUTING, **fields: Any) -> Track:
    """Return a track of US-1 whose step is being worked on, under the id `DISPATCH`."""
    track = track_at(step, Status.RUNNING, dispatched_at=T0, **fields)
    assert track.state is not None
    dispatch = Dispatch(
        id=DISPATCH, story=track.state.story, step=step, attempt=track.state.attempt, executor="rehearsal",
        decided_at=T0, phase=phase,
    )  # fmt: skip
    return track.with_ledger(dispatch=dispatch)


def handoff(status: Status | None = Status.PASS, **fields: Any) -> Handoff:
    """Return what an executor hands over; a pass unless told otherwise."""
    return Handoff.model_validate({"status": status, **fields})


def found(claim: Handoff) -> Found:
    """Return the reading of a hand-off that counts."""
    return Found(handoff=claim, source="front-matter")


def mark(number: int) -> HandoffMark:
    """Return the identity of the hand-off written as the `number`th."""
    return HandoffMark(handoff=FileMark(digest=f"{number:064x}", inode=number, mtime_ns=number))


def red(*failing: str, **fields: Any) -> TestEvidence:
    """Return a measurement in which the tests `failing`, all of them new, fail."""
    counts = TestCounts(passed=0, failed=len(failing))
    values: dict[str, Any] = {
        "counts": counts, "failing": failing, "new_failing": len(failing), "new_collected": len(failing),
        "collected": len(failing), "tail": "E   assert",
    }  # fmt: skip
    return TestEvidence(**{**values, **fields})


def green(passed: int = 3, **fields: Any) -> TestEvidence:
    """Return a measurement in which `passed` tests pass and none fails."""
    values: dict[str, Any] = {
        "counts": TestCounts(passed=passed), "new_collected": passed, "collected": passed,
    }  # fmt: skip
    return TestEvidence(**{**values, **fields})


class Playbook:
    """One track, and the facts it is given. Methods return the playbook: a test reads as a script."""

    def __init__(self, track: Track | None = None, rules: RuleBook | None = None) -> None:
        self.track = track or Track()
        self.rules = rules or shipped_rules()
        self.now = T0
        self.last: Decision | None = None
        self.orders: list[Effect] = []
        """Everything ordered so far."""
        self._numbers = 0

    # --- what is the case ------------------------------------------------------------------------
    @property
    def state(self) -> State:
        """The STATE as it is now."""
        assert self.track.state is not None
        return self.track.state

    @property
    def ledger(self) -> Ledger:
        """What the journal remembers beside it."""
        return self.track.ledger

    @property
    def decision(self) -> Decision:
        """The decision on the last fact."""
        assert self.last is not None
        return self.last

    @property
    def notices(self) -> tuple[Notify, ...]:
        """The notices of the last decision."""
        return tuple(order for order in self.decision.effects if isinstance(order, Notify))

    @property
    def dispatch(self) -> Dispatch:
        """The dispatch in flight."""
        assert self.ledger.dispatch is not None
        return self.ledger.dispatch

    # --- facts -----------------------------------------------------------------------------------
    def given(self, event: Event, *, after_min: float = 0) -> Playbook:
        """Decide on a fact that comes `after_min` minutes later."""
        self.now += timedelta(minutes=after_min)
        self.last = decide(self.track, event, self.rules, self.now)
        self.track = self.last.track
        self.orders += self.last.effects
        return self

    def started(self, story: str = "US-1", **fields: Any) -> Playbook:
        """Start a story."""
        return self.given(Started(story=story, **fields))

    def turn(self, **fields: Any) -> Playbook:
        """Let the track take its turn, with a new id for what it may dispatch."""
        self._numbers += 1
        values: dict[str, Any] = {
            "dispatch": f"d{self._numbers}", "executor": "rehearsal", "mark": mark(self._numbers),
            "keeps_gate": True, "reopenings": 0,
        }  # fmt: skip
        return self.given(Advanced(**{**values, **fields}))

    def runs(self) -> Playbook:
        """Tell that the executor's process runs."""
        return self.given(ExecutorStarted(dispatch=self.dispatch.id, pid=4711))

    def exits(
        self,
        reading: Reading | None = None,
        *,
        after_min: float = 1,
        standby: Standby | None = None,
        **exit_fields: Any,
    ) -> Playbook:
        """Tell that the executor is gone, and what it left (nothing)."""
        exit_ = replace(Exit(code=0, seconds=after_min * 60), **exit_fields)
        event = ExecutorExited(
            dispatch=self.dispatch.id,
            exit=exit_,
            reading=reading or Absent(),
            mark=mark(1000 + self._numbers),
            standby=standby,
        )
        return self.given(event, after_min=after_min)

    def hands_over(self, status: Status | None = Status.PASS, **fields: Any) -> Playbook:
        """Tell that the executor runs, and ends with a hand-off."""
        if self.dispatch.phase is Phase.STARTING:
            self.runs()
        return self.exits(found(handoff(status, **fields)))

    def fails(self, reason: Reason | None = None, **fields: Any) -> Playbook:
        """Tell that the executor hands over a failure; measured tests fail, too, where any are asked for."""
        self.hands_over(Status.FAILING, reason=reason, **fields)
        return self.checked(tests=red("t.py::old")) if self.ledger.dispatch else self

    def checked(self, tests: TestEvidence | None = None, post_check: PostCheck | None = None) -> Playbook:
        """Tell what was measured."""
        return self.given(ChecksFinished(dispatch=self.dispatch.id, tests=tests, post_check=post_check))

    def step_passes(self, tests: TestEvidence | None = None, **fields: Any) -> Playbook:
        """Dispatch the current step and let it pass, with fitting test results where tests are asked for."""
        self.turn()
        assert self.state.status is Status.RUNNING, self.decision.why
        self.hands_over(**fields)
        if self.ledger.dispatch is not None:
            expected = self.rules.steps[self.state.step].tests
            measured = tests or (red("t.py::new") if expected == "red" else green())
            self.checked(tests=measured)
        return self

    def step_fails(self, reason: Reason | None = None, **fields: Any) -> Playbook:
        """Dispatch the current step and let it fail."""
        self.turn()
        assert self.state.status is Status.RUNNING, self.decision.why
        return self.fails(reason, **fields)

    # --- expectations ----------------------------------------------------------------------------
    def expect(
        self, *, result: str | None = None, code: str | None = None, orders: str | None = None, **fields: Any
    ) -> Playbook:
        """Compare the last decision: its result type, refusal code, kinds of orders, and fields of STATE.

        `orders` holds the kinds in order, separated by spaces; "" for none.
        """
        if result is not None:
            assert result == self.decision.result.type, self.decision.why
        if code is not None:
            assert isinstance(self.decision.result, Refusal), self.decision.why
            assert code == self.decision.result.code
        if orders is not None:
            assert orders == " ".join(order.kind for order in self.decision.effects)
        assert fields == {name: getattr(self.state, name) for name in fields}, self.decision.why
        return self

    def refused(self, event: Event, code: str) -> Playbook:
        """Give a fact that must change nothing, and must be answered with `code`."""
        before = self.track
        self.given(event).expect(result="error", code=code)
        assert before == self.track
        return self
