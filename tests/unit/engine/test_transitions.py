"""The transition table, walked whole: every kind of fact meets every condition a track can be in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import get_args

import pytest
from tests.support.playbook import (
    DISPATCH,
    T0,
    dispatched,
    found,
    green,
    handoff,
    mark,
    red,
    state_at,
    track_at,
    with_rule,
)

from handoffd.engine.decide import decide
from handoffd.engine.effects import Notify
from handoffd.engine.events import (
    Aborted,
    Advanced,
    Approved,
    BaselineMeasured,
    ChecksFinished,
    DeadlinePassed,
    DispatchFailed,
    EditConfirmed,
    Event,
    ExecutorExited,
    ExecutorStarted,
    Exit,
    HandoffArrived,
    HandoffSettled,
    Initialised,
    Interrupted,
    Noted,
    Paused,
    PostCheck,
    Rejected,
    Reopened,
    Resumed,
    Retried,
    RolledBack,
    Skipped,
    SpawnRefused,
    Started,
    StateEdited,
    TestEvidence,
)
from handoffd.engine.judging import FREE_REPEATS
from handoffd.engine.results import Refusal
from handoffd.engine.track import HeldEdit, Ledger, Parked, Phase, Queued, StopReason, Track
from handoffd.engine.transitions import TRANSITIONS, diagram
from handoffd.errors import Problem
from handoffd.protocol.handoff import Absent, Found, Handoff, Malformed, Reading, Stale
from handoffd.protocol.rules import RuleBook
from handoffd.protocol.state import Reason, State, Status

AT_REST = [status for status in Status if status is not Status.RUNNING]
LOST = "deploy"
"""A step that the table does not have."""


@lru_cache(maxsize=1)
def rules() -> RuleBook:
    """Return the shipped table with a post_check, an answered timeout and a gate that may time out."""
    book = with_rule("impl", post_check="make lint", retry_on_timeout=1)
    return with_rule("review", book, retry_on_timeout=1, max_attempts=2)


# --- tracks ---------------------------------------------------------------------------------------
def tracks() -> Iterator[Track]:
    """Return tracks in every status at every step, and in every condition the ledger can add."""
    yield Track()
    yield track_at("done", Status.PASS)
    for step in [*rules().steps, LOST]:
        for status in Status:
            yield track_at(step, status)
            if status in {Status.FAILING, Status.TIMEOUT}:
                yield track_at(step, status, attempt=2, max_attempts=2, reason=Reason.SCOPE_WARNING)
        for phase in Phase:
            yield running(step, phase)
    yield track_at("review", Status.TIMEOUT, max_attempts=2)
    for phase in Phase:
        for stop in StopReason:
            yield running("scaffold", phase, stop)
    yield from odd_tracks()


def running(step: str, phase: Phase, stop: StopReason | None = None) -> Track:
    """Return a track whose dispatch has come so far, and may have been told to end."""
    track = dispatched(step, phase)
    assert track.ledger.dispatch is not None
    claim = handoff() if phase is Phase.CHECKING else None
    return track.with_ledger(dispatch=replace(track.ledger.dispatch, stop=stop, claim=claim))


def odd_tracks() -> Iterator[Track]:
    """Return tracks whose ledger holds more than a plain one's."""
    for status in Status:
        for ledger in ledgers():
            yield track_at("impl", status, ledger=ledger)
            yield track_at("review", status, ledger=ledger)
        yield track_at("bootstrap", status, story=None)
        yield track_at("impl", status, task_type="hotfix", reopened_from="bdd")
    for ledger in ledgers():
        yield track_at("done", Status.PASS, ledger=ledger, story="C-1")


def ledgers() -> Iterator[Ledger]:
    """Return what the journal may remember beside a STATE."""
    yield Ledger(automatic=True, paused_by="mei")
    yield Ledger(automatic=True, closed=True)
    yield Ledger(automatic=True, visits=dict.fromkeys(rules().steps, 6), free_repeats=FREE_REPEATS)
    yield Ledger(automatic=True, backlog=(Queued(story="US-2"),), stories_done=("US-1",))
    for status in Status:
        yield Ledger(automatic=True, held_edit=HeldEdit(state=state_at("impl", status), why="held"))
    for status in AT_REST:
        parked = Parked(state=state_at("verify", status, story="US-2"), ledger=Ledger(), give_back=True)
        yield Ledger(automatic=True, parked=(parked,))


# --- facts ----------------------------------------------------------------------------------------
def readings() -> Iterator[Reading]:
    """Return what an executor can leave."""
    yield Absent()
    yield Stale(why="it names attempt 3")
    yield Malformed(problem=Problem(file=".ai/HANDOFF.md", line=3, message="never closed"))
    yield Found(handoff=Handoff(status=None), source="old-format")
    yield found(handoff(Status.PASS))
    yield found(handoff(Status.FAILING))
    yield found(handoff(Status.FAILING, reason=Reason.NEEDS_CLARIFICATION))
    yield found(handoff(Status.NEEDS_HUMAN, error="which one?"))


def verbs() -> Iterator[Event]:
    """Return every verb, with the arguments that matter."""
    yield Initialised(project="shop")
    for story in ("US-1", "US-2"):
        yield Started(story=story)
        yield Started(story=story, queue=True)
        yield Started(story=story, force=True, bootstrapped=False)
        yield Started(story=story, task_type="custom", instruction="Fix.")
    yield Started(story="US-1", task_type="unheard-of")
    yield Approved(note="Fine.")
    for reason in (None, *Reason):
        yield Rejected(reason=reason)
    yield from (Retried(), Skipped(), Aborted(), Paused(), Resumed(), Noted(text="Cents."), EditConfirmed())
    for step in ("bootstrap", "sdd-delta", "impl", "custom", "done", LOST):
        yield RolledBack(step=step)
        yield RolledBack(step=step, force=True)
        yield Reopened(step=step, note="Cents.")


def facts(dispatch: str) -> Iterator[Event]:
    """Return every fact the daemon finds out, about one dispatch."""
    yield Advanced(dispatch="d2", executor="rehearsal")
    yield Advanced(dispatch="d2", executor="rehearsal", unmet=("US-0",), baseline=True)
    yield DispatchFailed(code="BAD_TEMPLATE", message="line 3")
    yield BaselineMeasured(dispatch=dispatch)
    yield BaselineMeasured(dispatch=dispatch, fault="pytest: not found")
    yield ExecutorStarted(dispatch=dispatch, pid=4711)
    yield SpawnRefused(dispatch=dispatch, error="no such file")
    yield HandoffSettled(dispatch=dispatch, quiet_s=20)
    yield DeadlinePassed(dispatch=dispatch, elapsed_min=10.2)
    yield DeadlinePassed(dispatch=None, elapsed_min=10.2)
    yield Interrupted()
    for reading in readings():
        for exit_ in (Exit(code=0), Exit(code=1, tail="?"), Exit(signal=9, by="deadline"), Exit(by="lost")):
            yield ExecutorExited(dispatch=dispatch, exit=exit_, reading=reading, mark=mark(2))
        yield HandoffArrived(dispatch="e1", reading=reading, mark=mark(2))
    for tests in (None, green(), red("t"), TestEvidence(timed_out=True), TestEvidence(fault="no runner")):
        for post_check in (
            None,
            PostCheck(passed=True),
            PostCheck(passed=False),
            PostCheck(passed=False, fault="?"),
        ):
            yield ChecksFinished(dispatch=dispatch, tests=tests, post_check=post_check)


def edits() -> Iterator[Event]:
    """Return STATE.json changed to anything, under every policy."""
    for status in Status:
        for step in ("impl", "review", LOST):
            yield StateEdited(state=state_at(step, status))
        yield StateEdited(state=state_at("bdd", status, story="US-2"), policy="adopt")
    yield StateEdited(state=state_at("done", Status.PENDING), policy="adopt")
    yield StateEdited(state=state_at("impl"), policy="refuse")
    yield StateEdited(state=State(project="shop", task_type="hotfix"))


@lru_cache(maxsize=1)
def events() -> tuple[Event, ...]:
    """Return every fact there is, those about a dispatch also as stale ones."""
    stale = tuple(
        event for event in facts("d0") if event.kind not in {"advanced", "dispatch_failed", "interrupted"}
    )
    return (*verbs(), *facts(DISPATCH), *edits(), *stale[:12])


# --- the walk -------------------------------------------------------------------------------------
@lru_cache(maxsize=1)
def walked() -> dict[tuple[Status | None, str], set[Status]]:
    """Decide on every fact in every condition; return which statuses came of it. Checks each decision."""
    seen: dict[tuple[Status | None, str], set[Status]] = defaultdict(set)
    for track in tracks():
        before = track.state.status if track.state is not None else None
        for event in events():
            decision = decide(track, event, rules(), T0)
            after = decision.track
            if isinstance(decision.result, Refusal):
                assert after is track, (event, decision.why)
                assert all(isinstance(order, Notify) for order in decision.effects), event
                continue
            assert after.state is not None
            assert event.kind in TRANSITIONS[before], (before, event)
            assert_sound(after)
            seen[before, event.kind].add(after.state.status)
    return seen


def assert_sound(track: Track) -> None:
    """Check what holds of every track, however it came about."""
    assert track.state is not None
    if track.ledger.dispatch is not None:
        assert Status.RUNNING is track.state.status
        assert (track.state.step, track.state.attempt) == (
            track.ledger.dispatch.step,
            track.ledger.dispatch.attempt,
        )
        assert (track.ledger.dispatch.claim is not None) == (track.ledger.dispatch.phase is Phase.CHECKING)
    if track.state.step == "done":
        assert Status.PASS is track.state.status


def test_nothing_that_can_happen_leaves_the_table() -> None:
    """Every fact in every condition is decided without a crash; what is refused changes nothing."""
    for (before, kind), reached in walked().items():
        assert reached <= TRANSITIONS[before][kind], (before, kind)


def test_every_status_in_the_table_is_reached() -> None:
    """A target that no fact leads to would be a lie in the diagram."""
    reached = walked()
    unreached = {
        (before, kind): wanted - reached[before, kind]
        for before, kinds in TRANSITIONS.items()
        for kind, wanted in kinds.items()
        if wanted - reached[before, kind]
    }
    assert {} == unreached


def test_the_same_fact_gives_the_same_decision() -> None:
    """`decide` is a function of its arguments."""
    for track in list(tracks())[::7]:
        for event in events()[::3]:
            assert decide(track, event, rules(), T0) == decide(track, event, rules(), T0)


def test_the_walk_meets_every_kind_of_fact() -> None:
    """A fact that somebody adds is walked, too, or this fails."""
    kinds = {kind.__dataclass_fields__["kind"].default for kind in get_args(Event)}
    assert kinds == {event.kind for event in events()}
    assert {kind for row in TRANSITIONS.values() for kind in row} <= kinds


@pytest.mark.parametrize("status", list(Status))
def test_every_status_can_be_left(status: Status) -> None:
    """Nothing is a dead end: some fact leads on, and a person's verb is among them or ends it first."""
    targets = {
        target for kind, row in TRANSITIONS[status].items() if kind != "state_edited" for target in row
    }
    assert targets - {status}


def test_every_status_is_reached_from_the_start() -> None:
    """Without anybody editing STATE.json."""
    reached: set[Status | None] = {None}
    for _ in Status:
        for before in tuple(reached):
            for kind, row in TRANSITIONS[before].items():
                reached |= row if kind not in {"state_edited", "edit_confirmed"} else set()
    assert {None, *Status} == reached


def test_no_status_but_running_is_reached_by_a_stale_fact() -> None:
    """Facts about a dispatch have a place in the table only while something runs."""
    of_a_dispatch = {
        "baseline_measured", "executor_started", "spawn_refused", "handoff_settled", "deadline_passed",
        "interrupted", "executor_exited", "checks_finished", "handoff_arrived",
    }  # fmt: skip
    for status in AT_REST:
        assert not of_a_dispatch & TRANSITIONS[status].keys()
    assert of_a_dispatch <= TRANSITIONS[Status.RUNNING].keys()


# --- the diagram ----------------------------------------------------------------------------------
def test_the_diagram_draws_every_status_and_every_arrow_once() -> None:
    """It is the table, line by line, and the same every time."""
    lines = diagram().splitlines()
    assert ["stateDiagram-v2", "    [*] --> pending: initialised"] == lines[:2]
    arrows = [line.split(":")[0].strip() for line in lines[1:]]
    assert len(arrows) == len(set(arrows))
    named = {word for arrow in arrows for word in arrow.split(" --> ")}
    assert {"[*]", *map(str, Status)} == named
    assert diagram() == diagram()
    assert diagram().endswith("\n")


def test_the_diagram_tells_of_the_gate_and_leaves_edits_out() -> None:
    """What people look for is there; what would hide it is not."""
    lines = diagram().splitlines()
    assert "    needs_human --> failing: started, rejected" in lines
    assert "    running --> timeout: deadline_passed, executor_exited" in lines
    assert not any("edit" in line for line in lines)
