"""A track's turn, in the order of docs/reference/protocol/turns.md; level 1; choices of executors."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace
from tests.support.everything import rules
from tests.support.playbook import (
    DISPATCH,
    T0,
    Playbook,
    dispatched,
    found,
    green,
    handoff,
    mark,
    red,
    shipped_rules,
    state_at,
    track_at,
    with_rule,
)

from handoffd.engine.decide import decide
from handoffd.engine.decision import (
    AlreadyRunning,
    Decision,
    Dispatched,
    MeasureBaseline,
    NeedsHuman,
    Refusal,
    Spawn,
)
from handoffd.engine.dispatching import wants_turn
from handoffd.engine.ends import time_limit_min
from handoffd.engine.events import (
    BaselineMeasured,
    DispatchFailed,
    Event,
    ExecutorChosen,
    HandoffArrived,
    LevelChosen,
    Paused,
    PostChecked,
    PromptTaken,
    Resumed,
    Retried,
    Started,
)
from handoffd.engine.run import PostCheck
from handoffd.engine.track import EXTERNAL, Facts, HeldEdit, Ledger, Parked, Phase, Queued, Track, Workspace
from handoffd.protocol.handoff import Absent, HandoffMark
from handoffd.protocol.state import Status


# --- waits ----------------------------------------------------------------------------------------
def test_a_running_attempt_is_reported_with_its_minutes() -> None:
    """It is not dispatched again."""
    play = Playbook(dispatched("impl", last_error="crashed once"))
    play.now = T0 + timedelta(minutes=4, seconds=15)
    play.turn().expect(result="already_running", orders="", status=Status.RUNNING)
    assert isinstance(play.decision.result, AlreadyRunning)
    assert (4.2, "crashed once") == (play.decision.result.elapsed_min, play.decision.result.last_error)


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.RUNNING])
def test_a_paused_track_is_left_as_it_is(status: Status) -> None:
    """A pause holds whatever the status, and changes nothing in STATE."""
    play = Playbook(track_at("impl", status)).given(Paused(by="mei"))
    before = play.track
    play.turn().expect(result="blocked", orders="")
    assert before == play.track
    assert "paused by mei" == play.decision.why
    play.given(Resumed())
    assert play.ledger.paused_by is None


def test_a_held_edit_holds_the_track() -> None:
    """Nothing is dispatched until a person has confirmed it."""
    held = HeldEdit(state=state_at("impl"), why="STATE.json was edited past the human step review")
    Playbook(track_at("bdd").with_ledger(held_edit=held)).turn().expect(result="blocked", orders="")


def test_an_unfinished_story_blocks_with_one_notice() -> None:
    """blocked_by is checked before anything is dispatched; there is one notice."""
    play = Playbook(track_at("bdd", blocked_by=("US-0",)))
    play.turn(unmet=("US-0",)).expect(result="blocked", orders="notify", status=Status.PENDING)
    assert "US-0" in play.notices[0].text
    before = play.track
    play.turn(unmet=("US-0",)).expect(result="blocked", orders="")
    assert before == play.track
    play.turn(unmet=("US-0", "US-7")).expect(orders="notify")
    play.turn().expect(result="dispatched")


def test_a_blocked_gate_is_not_opened() -> None:
    """The order is: blocked first, then what follows the last attempt."""
    play = Playbook(track_at("contract", Status.PASS)).turn(unmet=("US-0",))
    play.expect(result="blocked", step="contract", status=Status.PASS)
    play.turn().expect(result="needs_human", step="review", status=Status.NEEDS_HUMAN)


# --- gates ----------------------------------------------------------------------------------------
def test_a_gate_names_the_files_to_review_in_one_notice() -> None:
    """What was changed comes first, then what the steps before may have written."""
    ledger = Ledger(automatic=True, facts=Facts(files=("docs/bdd/US-1.md", "docs/api/openapi.yaml")))
    play = Playbook(track_at("contract", Status.PASS, ledger=ledger)).turn()
    play.expect(result="needs_human", step="review", status=Status.NEEDS_HUMAN, orders="notify")
    result = play.decision.result
    assert isinstance(result, NeedsHuman)
    assert result.review == play.notices[0].review
    assert ("docs/bdd/US-1.md", "docs/api/openapi.yaml") == result.review[:2]
    assert "docs/deltas/US-1.md" in result.review
    play.turn().expect(result="needs_human", orders="", status=Status.NEEDS_HUMAN)


def test_a_timeout_at_a_gate_opens_it_again() -> None:
    """Only a table that answers timeouts does that; the gate then waits for its person."""
    rules = with_rule("review", retry_on_timeout=1, max_attempts=2)
    play = Playbook(track_at("review", Status.TIMEOUT, max_attempts=2), rules).turn()
    play.expect(result="needs_human", status=Status.NEEDS_HUMAN)


# --- the baseline ---------------------------------------------------------------------------------
def test_the_baseline_is_measured_before_the_first_red_step() -> None:
    """The tests run first, the hand-off is marked afterwards, then the executor starts: once."""
    play = Playbook(track_at("scaffold")).turn(baseline=True)
    assert (MeasureBaseline(dispatch="d1", story="US-1"),) == play.decision.effects
    play.expect(result="dispatched", status=Status.RUNNING)
    play.given(BaselineMeasured(dispatch="d1", mark=mark(9))).expect(orders="spawn", status=Status.RUNNING)
    assert (Phase.STARTING, mark(9)) == (play.dispatch.phase, play.dispatch.mark)
    play.refused(BaselineMeasured(dispatch="d1", mark=mark(9)), "STALE_FACT")
    play.runs().refused(BaselineMeasured(dispatch="d1", fault="?"), "STALE_FACT")
    assert 1 == sum(isinstance(order, Spawn) for order in play.orders)


@pytest.mark.parametrize(("step", "red_done"), [("bdd", False), ("impl", False), ("scaffold", True)])
def test_no_other_step_measures_a_baseline(step: str, red_done: bool) -> None:
    """It belongs to the story's first red step alone."""
    play = Playbook(track_at(step, ledger=Ledger(automatic=True, red_done=red_done))).turn(baseline=True)
    play.expect(orders="spawn")


def test_tests_that_cannot_be_run_ask_a_person_before_an_attempt_is_spent() -> None:
    """A missing runner is a fault of the environment."""
    play = Playbook(track_at("scaffold")).turn(baseline=True)
    play.given(BaselineMeasured(dispatch="d1", fault="pytest: not found"))
    play.expect(status=Status.NEEDS_HUMAN, last_error="pytest: not found", orders="notify", attempt=1)
    assert play.ledger.dispatch is None
    play.given(Retried()).turn(baseline=True).expect(orders="measure_baseline", attempt=1)


def test_a_second_pass_through_scaffold_need_not_be_red() -> None:
    """The tests of the first pass are green by then; only tests added since must fail."""
    play = Playbook(track_at("scaffold")).step_passes(red("t::a", "t::b"))
    play.step_passes(green(2)).expect(step="impl", status=Status.PASS)
    back = Playbook(play.track.with_state(step="scaffold", status=Status.PENDING))
    back.turn().hands_over().checked(green(2)).expect(status=Status.PASS)
    added = Playbook(play.track.with_state(step="scaffold", status=Status.PENDING))
    added.turn().hands_over().checked(green(3)).expect(status=Status.FAILING)
    added.turn().hands_over().checked(green(3)).expect(status=Status.FAILING)
    added.given(Retried()).turn().hands_over().checked(red("t::c", new_collected=3))
    added.expect(status=Status.PASS)


def test_tests_of_a_failed_attempt_are_still_new_in_the_next() -> None:
    """Tests that were added without failing do not become old by having been counted once."""
    ledger = Ledger(automatic=True, red_done=True, new_tests=2)
    play = Playbook(track_at("scaffold", ledger=ledger), with_rule("scaffold", post_check="make lint"))
    play.turn().hands_over().checked(red("t::c", new_collected=3), PostCheck(passed=False))
    play.expect(status=Status.FAILING)
    assert 2 == play.ledger.new_tests
    play.turn().hands_over().checked(green(3), PostCheck(passed=True)).expect(status=Status.FAILING)


# --- dispatches that could not be prepared --------------------------------------------------------
@pytest.mark.parametrize(
    ("step", "status", "at", "attempt"),
    [
        ("bdd", Status.PENDING, "bdd", 1),
        ("bdd", Status.PASS, "sdd-delta", 1),
        ("bdd", Status.FAILING, "bdd", 2),
        ("verify", Status.FAILING, "impl", 1),
    ],
)
def test_a_failed_dispatch_stops_at_the_step_it_was_for(
    step: str, status: Status, at: str, attempt: int
) -> None:
    """With a notice that names the step and the reason, as of a broken template."""
    play = Playbook(track_at(step, status)).given(DispatchFailed(code="BAD_TEMPLATE", message="line 3: {{"))
    play.expect(result="needs_human", orders="notify", status=Status.NEEDS_HUMAN)
    play.expect(step=at, attempt=attempt, last_error="line 3: {{")
    assert "BAD_TEMPLATE" == play.notices[0].why
    play.given(Retried()).turn().expect(result="dispatched", step=at)


@pytest.mark.parametrize(
    "track",
    [
        track_at("done", Status.PASS),
        track_at("update-memory", Status.PASS),
        track_at("bdd", Status.FAILING, attempt=3),
        track_at("bdd", Status.TIMEOUT),
    ],
)
def test_a_failed_dispatch_where_none_was_due_is_ignored(track: Track) -> None:
    """Such a fact cannot end a story or use up anything."""
    Playbook(track).refused(DispatchFailed(code="X", message="?"), "STALE_FACT")


# --- whose turn it is -----------------------------------------------------------------------------
@pytest.mark.parametrize("status", list(Status))
def test_a_level_2_track_wants_its_turn_unless_it_runs_or_waits(status: Status) -> None:
    """Pending, pass, failing and timeout go on by themselves."""
    goes_on = {Status.PENDING, Status.PASS, Status.FAILING, Status.TIMEOUT}
    assert (status in goes_on) == wants_turn(track_at("bdd", status))


def test_a_track_that_waits_for_a_person_wants_no_turn() -> None:
    """Level 1, a pause, a closed track, a held edit, no story, no STATE, the end."""
    held = HeldEdit(state=state_at(), why="?")
    waiting = [
        Track(),
        track_at("bdd", story=None),
        track_at("bdd", ledger=Ledger(automatic=False)),
        track_at("bdd", ledger=Ledger(automatic=True, paused_by="mei")),
        track_at("bdd", ledger=Ledger(automatic=True, closed=True)),
        track_at("bdd", ledger=Ledger(automatic=True, held_edit=held)),
        track_at("done", Status.PASS),
    ]
    assert [False] * len(waiting) == [wants_turn(track) for track in waiting]


def test_the_end_of_a_custom_task_gives_the_parked_story_back() -> None:
    """It is taken up in one turn and dispatched in the next, which knows what blocks it."""
    play = Playbook(track_at("impl", Status.FAILING, attempt=2))
    play.started("C-1", task_type="custom", instruction="Fix the typo.")
    play.step_passes().step_passes().turn().expect(step="done", result="done")
    assert wants_turn(play.track)
    play.turn().expect(result="accepted", orders="")
    play.expect(step="impl", story="US-1", status=Status.FAILING, attempt=2)
    assert ("C-1",) == play.ledger.stories_done
    play.turn(unmet=("US-0",)).expect(result="blocked", attempt=2)
    play.turn().expect(result="dispatched", step="impl", attempt=3)


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.RUNNING])
def test_a_story_is_given_back_in_whatever_status_it_was_parked(status: Status) -> None:
    """One that waited for a person waits for a person again."""
    parked = Parked(state=state_at("impl", status), ledger=Ledger(), give_back=True)
    clone = Workspace(kind="clone", folder="/w/shop")
    ledger = Ledger(automatic=True, parked=(parked,), workspace=clone)
    play = Playbook(track_at("done", Status.PASS, story="C-1", ledger=ledger)).turn()
    play.expect(step="impl", status=status, story="US-1")
    assert clone == play.ledger.workspace


def test_nothing_is_dispatched_before_the_first_story_or_after_an_abort() -> None:
    """STATE is at bootstrap; or the answer repeats by whom it was aborted."""
    Playbook(track_at("bootstrap", story=None)).turn().expect(result="blocked", orders="")
    closed = track_at("bdd", Status.NEEDS_HUMAN, last_error="aborted by mei", ledger=Ledger(closed=True))
    play = Playbook(closed).turn().expect(result="blocked", orders="")
    assert "aborted by mei" == play.decision.why


@pytest.mark.parametrize(("step_min", "handoff_min"), [(10, 5), (3, 3), (0, 5)])
def test_a_hand_off_takes_five_minutes_at_most(step_min: float, handoff_min: float) -> None:
    """Less if the step has less; also where the step has no limit."""
    working = dispatched("impl", timeout_min=step_min)
    assert working.ledger.dispatch is not None
    asked = working.with_ledger(dispatch=replace(working.ledger.dispatch, ask="handoff"))
    assert (step_min, handoff_min) == (time_limit_min(working), time_limit_min(asked))


def test_a_dispatch_is_for_the_executor_of_the_turn() -> None:
    """Which program works is decided at the turn, and recorded with the dispatch."""
    play = Playbook(track_at("bdd")).turn(executor="codex", dispatch=DISPATCH)
    assert ("codex", DISPATCH, mark(1)) == (play.dispatch.executor, play.dispatch.id, play.dispatch.mark)
    assert shipped_rules().steps["bdd"].timeout_min == play.state.timeout_min


# --- the backlog ----------------------------------------------------------------------------------
ENDED, NEXT = track_at("done", Status.PASS), (Queued(story="US-2"),)


@pytest.mark.parametrize(
    ("track", "wants"),
    [
        (ENDED.with_ledger(backlog=NEXT), True),
        (ENDED.with_ledger(backlog=NEXT, automatic=False), False),
        (ENDED.with_ledger(backlog=(Queued(story="US-2", blocked_by=("US-9",)),)), False),
        (ENDED.with_ledger(backlog=NEXT, paused_by="x"), False),
        (track_at("bootstrap", story=None).with_ledger(backlog=NEXT), True),
        (ENDED, False),
    ],
)
def test_a_backlog_is_a_turn_where_it_goes_on_by_itself(track: Track, wants: bool) -> None:
    """And only there; a track that wants a turn moves at it."""
    assert not wants_turn(track)
    assert wants is wants_turn(track, auto_continue=True)
    play = Playbook(track).turn(auto_continue=True)
    assert wants is (play.track != track)


# --- level 1 -----------------------------------------------------------------------------------------
BY_HAND = Ledger()

TAKEN = PromptTaken(dispatch="d-7", by="mei")


def decided(track: Track, event: Event) -> Decision:
    """Return what follows, by the shipped table."""
    return decide(track, event, rules(), T0)


def taken() -> Track:
    """Return a track whose prompt was taken."""
    return decided(track_at("impl", ledger=BY_HAND), TAKEN).track


def arrival(at: HandoffMark, **changes: object) -> HandoffArrived:
    """Return a hand-off that passes impl."""
    values: dict[str, object] = {
        "dispatch": "d-7", "step": "impl", "attempt": 1, "reading": found(handoff(Status.PASS)),
    }  # fmt: skip
    return HandoffArrived(mark=at, **values | changes)  # type: ignore[arg-type]


def code(decision: Decision) -> str | None:
    """Return why an event was refused."""
    return decision.result.code if isinstance(decision.result, Refusal) else None


def test_the_attempt_belongs_to_the_one_who_takes_the_prompt() -> None:
    """No process of ours runs; STATE says running all the same, and a second caller gets that answer."""
    decision = decided(track_at("impl", ledger=BY_HAND), TAKEN)

    assert isinstance(decision.result, Dispatched)
    assert ("impl", 1, "d-7") == (decision.result.step, decision.result.attempt, decision.result.dispatch)
    assert decision.track.state is not None
    assert (Status.RUNNING, T0) == (decision.track.state.status, decision.track.state.dispatched_at)
    assert (None, "d-7") == (decision.track.ledger.dispatch, decision.track.ledger.handed_out)
    assert () == decision.effects
    assert "already_running" == decided(taken(), TAKEN).result.type


def test_asking_for_a_prompt_is_like_any_other_turn() -> None:
    """A step that passed leads to the next one; a gate waits for a person, and gives no prompt."""
    result = decided(track_at("bdd", Status.PASS, ledger=BY_HAND), TAKEN).result
    assert isinstance(result, Dispatched)
    assert "sdd-delta" == result.step
    decision = decided(track_at("contract", Status.PASS, ledger=BY_HAND), TAKEN)

    assert ("needs_human", None) == (decision.result.type, decision.track.ledger.handed_out)


def test_at_level_2_the_daemon_dispatches() -> None:
    """Nothing is changed by asking, not even the step."""
    track = track_at("bdd", Status.PASS)
    decision = decided(track, TAKEN)

    assert ("SUPERVISED", track) == (code(decision), decision.track)


def test_the_bootstrap_of_a_project_needs_no_story() -> None:
    """Every other step does."""
    assert isinstance(decided(track_at("bootstrap", story=None, ledger=BY_HAND), TAKEN).result, Dispatched)
    assert "blocked" == decided(track_at("bdd", story=None, ledger=BY_HAND), TAKEN).result.type


@pytest.mark.parametrize(("minutes", "kind"), [(9.9, "already_running"), (10.1, "timeout")])
def test_an_external_attempt_has_the_limit_of_its_step(minutes: float, kind: str) -> None:
    """The caller may be the only one to notice."""
    begun = T0 - timedelta(minutes=minutes)
    track = track_at("impl", Status.RUNNING, ledger=BY_HAND, dispatched_at=begun, timeout_min=10)

    assert kind == decided(track, TAKEN).result.type


def test_a_handoff_of_others_is_judged_under_their_dispatch() -> None:
    """At a step whose claims are checked, that is next."""
    dispatch = decided(taken(), arrival(mark(2))).track.ledger.dispatch

    assert dispatch is not None
    assert ("d-7", EXTERNAL) == (dispatch.id, dispatch.executor)


@pytest.mark.parametrize(
    ("number", "changes", "expected"),
    [
        (2, {"step": "verify"}, "STALE_FACT"),  # the same file was read twice, and the track has gone on
        (2, {"attempt": 2}, "STALE_FACT"),
        (1, {}, "STALE_FACT"),  # after a rollback the old file is still there
        (2, {"reading": Absent()}, "NO_HANDOFF"),
        (2, {}, None),
    ],
)
def test_a_handoff_counts_once_and_for_its_own_attempt(
    number: int, changes: dict[str, object], expected: str | None
) -> None:
    """Also for an attempt with the same number."""
    assert expected == code(decided(taken().with_ledger(last_mark=mark(1)), arrival(mark(number), **changes)))


@pytest.mark.parametrize(("level", "automatic"), [(1, False), (2, True)])
def test_the_level_says_who_dispatches(level: int, automatic: bool) -> None:
    """In any status, and back again."""
    for status in Status:
        before = track_at("impl", status, ledger=Ledger(automatic=not automatic))
        decision = decided(before, LevelChosen(level=level))  # type: ignore[arg-type]
        assert automatic == decision.track.ledger.automatic
        assert decision.track.state is not None
        assert status == decision.track.state.status


def test_a_post_check_outside_a_judgement_decides_nothing() -> None:
    """It is noted."""
    track = track_at("impl", Status.PASS)
    decision = decided(track, PostChecked(passed=False))

    assert track.with_state(lint_pass=False) == decision.track


def test_a_level_that_a_person_chose_is_not_changed_by_a_start() -> None:
    """Without a choice a start leads to level 2; a resume is a person's choice."""
    fresh = track_at("done", Status.PASS, ledger=BY_HAND)
    chosen = decided(fresh, LevelChosen(level=1)).track
    started = decided(chosen, Started(story="US-2")).track

    assert decided(fresh, Started(story="US-2")).track.ledger.automatic
    assert not started.ledger.automatic
    assert decided(started, Resumed()).track.ledger.automatic
    assert not decided(started, Resumed()).track.ledger.by_hand


# --- choices of executors ----------------------------------------------------------------------------
USE_CODEX = ExecutorChosen(executor=("codex", "claude"), by="mei")


@pytest.mark.parametrize("track", [track_at("impl"), track_at("impl", Status.FAILING), dispatched("impl")])
def test_a_choice_is_kept_whatever_the_story_does_just_now(track: Track) -> None:
    """An attempt that runs goes on with the executor that it has."""
    play = Playbook(track).given(USE_CODEX)
    assert ("codex", "claude") == play.ledger.executor
    assert track.ledger.dispatch == play.ledger.dispatch
    assert () == play.given(ExecutorChosen()).ledger.executor


@pytest.mark.parametrize(
    "track",
    [track_at("done", Status.PASS), track_at("bootstrap", story=None), track_at(ledger=Ledger(closed=True))],
)
def test_without_a_story_in_flight_there_is_nothing_to_choose_for(track: Track) -> None:
    """The refusal says what to do instead."""
    decision = Playbook(track).given(USE_CODEX).decision
    assert isinstance(decision.result, Refusal)
    assert decision.result.next_command is not None


def test_a_choice_is_the_storys_own() -> None:
    """The next one has what it was started with; one that is set aside finds its own again."""
    play = Playbook(track_at("impl")).given(USE_CODEX)
    play.started("C-1", task_type="custom", instruction="Fix.")
    assert ("C-1", ()) == (play.state.story, play.ledger.executor)
    for _ in play.rules.path("custom"):
        play.turn().hands_over()
    play.turn().turn()
    assert ("US-1", ("codex", "claude")) == (play.state.story, play.ledger.executor)


def test_a_story_may_be_started_with_its_executors_also_behind_another() -> None:
    """They wait with it."""
    play = Playbook(track_at("done", Status.PASS)).started("US-2", executor=("codex",))
    assert ("codex",) == play.ledger.executor
    play.started("US-3", queue=True, executor=("gemini",))
    assert ("gemini",) == play.ledger.backlog[0].executor
    ended = Playbook(track_at("done", Status.PASS, ledger=play.ledger)).given(Resumed())
    assert ("US-3", ("gemini",)) == (ended.state.story, ended.ledger.executor)


def test_the_event_of_a_dispatch_names_executors_that_were_passed_over() -> None:
    """It is a ground of the decision, and the dispatch keeps its account."""
    over = "claude is limited until 22:20 UTC (in 5 min)"
    play = Playbook(track_at("impl")).turn(executor="codex", account="work", passed_over=(over,))
    assert ("codex", "work") == (play.dispatch.executor, play.dispatch.account)
    assert ("executor.passed_over", over) in [(one.rule, one.value) for one in play.decision.grounds]
