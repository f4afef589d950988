"""Where a story goes next: attempts, routes by reason, loops, timeouts, reopenings, ends."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.support.playbook import (
    T0,
    Playbook,
    mark,
    shipped_rules,
    state_at,
    track_at,
    with_rule,
)

from handoffd.engine.decision import Finished, Ground, Moved, Notify, Situation
from handoffd.engine.events import Approved, DeadlinePassed, Rejected, Retried
from handoffd.engine.routing import MAX_ATTEMPTS, begin, follow, give_back, visit
from handoffd.engine.track import (
    Dispatch,
    Facts,
    HeldEdit,
    Ledger,
    Parked,
    Phase,
    Queued,
    SinceReview,
    Track,
    Workspace,
    lasting,
    next_parked,
)
from handoffd.protocol.state import Reason, Status


def situation(track: Track) -> Situation:
    """Return the track among the shipped rules."""
    return Situation(track, shipped_rules(), T0)


# --- attempts -------------------------------------------------------------------------------------
@pytest.mark.parametrize(("step", "most"), [("bdd", 3), ("contract", 2), ("impl", 5), ("update-memory", 2)])
def test_attempts_run_out_exactly_at_the_rules_limit(step: str, most: int) -> None:
    """A step is tried as often as its rule says; then a person is asked, and the answer is `blocked`."""
    play = Playbook(track_at(step))
    for attempt in range(1, most + 1):
        play.step_fails().expect(step=step, attempt=attempt, status=Status.FAILING)

    play.turn().expect(result="needs_human", status=Status.NEEDS_HUMAN, orders="notify")
    play.expect(blocked_by=(MAX_ATTEMPTS,), attempt=most)
    play.turn().expect(result="blocked", orders="")
    play.given(Retried()).expect(status=Status.PENDING, attempt=1, blocked_by=(), reason=None)
    play.turn().expect(result="dispatched", attempt=1)


def test_stories_that_block_stay_named_when_attempts_run_out() -> None:
    """The reserved entry is added to blocked_by, and taken out again, beside the stories in it."""
    play = Playbook(track_at("bdd", Status.FAILING, attempt=3, blocked_by=("US-0",))).turn()
    play.expect(blocked_by=("US-0", MAX_ATTEMPTS))
    play.given(Retried()).expect(blocked_by=("US-0",))


def test_attempts_count_within_a_visit_and_before_routes() -> None:
    """They begin anew when a step is entered again; without one left no routed reason is followed."""
    play = Playbook(track_at("impl")).step_fails().step_passes().expect(attempt=2)
    play.step_fails().turn().expect(step="impl", attempt=1)
    play = Playbook(track_at("impl", Status.FAILING, attempt=5, reason=Reason.CONSTITUTION_VIOLATION))
    play.turn().expect(step="impl", status=Status.NEEDS_HUMAN, blocked_by=(MAX_ATTEMPTS,))


# --- routes by reason -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("step", "reason", "target"),
    [
        ("scaffold", Reason.CONSTITUTION_VIOLATION, "sdd-delta"),
        ("scaffold", Reason.NFR_MISSING, "scaffold"),
        ("impl", None, "impl"),
        ("impl", Reason.TEST_TIMEOUT, "impl"),
        ("impl", Reason.CONSTITUTION_VIOLATION, "sdd-delta"),
        ("verify", None, "impl"),
        ("verify", Reason.CONSTITUTION_VIOLATION, "sdd-delta"),
    ],
)
def test_a_failure_goes_where_its_reason_says(step: str, reason: Reason | None, target: str) -> None:
    """The same step is another attempt, another step its first."""
    play = Playbook(track_at(step, Status.FAILING, reason=reason)).turn()
    play.expect(result="dispatched", step=target, attempt=2 if target == step else 1)


@pytest.mark.parametrize("reason", [Reason.NEEDS_CLARIFICATION, Reason.SCOPE_WARNING])
def test_implementation_can_go_back_to_the_review(reason: Reason) -> None:
    """What only a person can answer opens the gate again."""
    play = Playbook(track_at("impl", Status.FAILING, reason=reason)).turn()
    play.expect(step="review", status=Status.NEEDS_HUMAN, attempt=1, orders="notify")
    play.given(Approved(note="In scope.")).turn().expect(step="scaffold", human_note="In scope.")


@pytest.mark.parametrize("reason", [Reason.NEEDS_CLARIFICATION, Reason.SCOPE_WARNING])
@pytest.mark.parametrize(
    "step", ["bdd", "sdd-delta", "contract", "scaffold", "verify", "update-memory", "custom"]
)
def test_a_question_without_a_route_asks_a_person(step: str, reason: Reason) -> None:
    """Repeating the step would only repeat the question."""
    play = Playbook(track_at(step, Status.FAILING, reason=reason, last_error="Which currency?")).turn()
    play.expect(result="needs_human", status=Status.NEEDS_HUMAN, orders="notify")
    play.expect(step=step, reason=reason, blocked_by=())
    assert "Which currency?" == play.notices[0].why


# --- loops ----------------------------------------------------------------------------------------
def test_a_loop_between_two_steps_ends_with_a_person() -> None:
    """Each visit resets the attempts; the visits themselves are counted, and end the loop."""
    play = Playbook(track_at("scaffold")).step_passes()
    for _ in range(6):
        play.step_passes().expect(step="impl").step_fails().expect(step="verify")

    play.turn().expect(result="needs_human", step="verify", blocked_by=(), orders="notify")
    assert {"impl": 6, "verify": 6} == play.ledger.visits
    assert "max_visits of impl is 6" in (play.notices[0].why or "")


def test_a_person_who_looked_zeroes_the_visits() -> None:
    """After a verb that moves the track the loop may run its course again."""
    looping = Ledger(automatic=True, visits={"impl": 6, "verify": 6})
    play = Playbook(track_at("verify", Status.NEEDS_HUMAN, ledger=looping)).given(Retried())
    assert {} == play.ledger.visits
    play.step_fails().turn().expect(step="impl", result="dispatched")
    assert {"impl": 1} == play.ledger.visits


def test_visits_are_counted_and_limited_by_the_rule() -> None:
    """`max_visits` of the entered step says how often; a retry of the same step is not a visit."""
    play = Playbook(track_at("verify"), with_rule("impl", max_visits=1))
    play.step_fails().step_passes().step_fails().turn().expect(step="verify", status=Status.NEEDS_HUMAN)
    play = Playbook(track_at("impl")).step_fails().step_fails().turn()
    assert {} == play.ledger.visits


# --- timeouts -------------------------------------------------------------------------------------
def timed_out(play: Playbook) -> Playbook:
    """Let the attempt run out of time."""
    play.turn().runs().given(DeadlinePassed(dispatch=play.dispatch.id, elapsed_min=5.2))
    return play.exits(signal=15, code=None, by="stop")


def test_a_timeout_waits_for_a_person() -> None:
    """Without `retry_on_timeout` nothing happens by itself."""
    play = timed_out(Playbook(track_at("bdd"))).expect(status=Status.TIMEOUT, attempt=1)
    play.turn().expect(result="timeout", status=Status.TIMEOUT, orders="")
    play.given(Retried()).turn().expect(result="dispatched", attempt=1)


@pytest.mark.parametrize(("step", "retries"), [("bdd", 1), ("contract", 9)])
def test_retry_on_timeout_limits_the_timeouts_that_are_repeated(step: str, retries: int) -> None:
    """Each repetition counts as an attempt; after the last of either a person is waited for."""
    play = timed_out(Playbook(track_at(step), with_rule(step, retry_on_timeout=retries)))
    timed_out(play).expect(attempt=2, status=Status.TIMEOUT)
    play.turn().expect(result="timeout", attempt=2, status=Status.TIMEOUT)


# --- reopened stories -----------------------------------------------------------------------------
def reopened_at(step: str) -> Playbook:
    """Return a story that was reopened at a step and has come to verify again."""
    return Playbook(track_at("verify", reopened_from=step))


@pytest.mark.parametrize(
    ("step", "earlier"), [("verify", "impl"), ("impl", "scaffold"), ("contract", "sdd-delta")]
)
def test_a_reopened_story_escalates_once_when_verify_fails(step: str, earlier: str) -> None:
    """The fault must be further up: one step before the one it was reopened at. Then the table rules."""
    play = reopened_at(step).step_fails().turn().expect(step=earlier, attempt=1, reopened_from=None)
    assert play.ledger.escalated
    again = Playbook(play.track.with_state(step="verify", status=Status.FAILING).with_ledger(dispatch=None))
    again.turn().expect(step="impl")


@pytest.mark.parametrize(
    ("step", "task_type", "at"),
    [
        ("scaffold", "story", "review"),
        ("bootstrap", "story", "verify"),
        ("bdd", "story", "verify"),
        ("custom", "story", "verify"),
        ("bdd", "hotfix", "verify"),
    ],
)
def test_an_escalation_may_end_with_a_person(step: str, task_type: str, at: str) -> None:
    """At the gate before scaffold; or no step is earlier. An unknown kind of task is like a story."""
    play = Playbook(track_at("verify", task_type=task_type, reopened_from=step)).step_fails().turn()
    play.expect(step=at, status=Status.NEEDS_HUMAN, result="needs_human", orders="notify")


def test_a_reason_or_a_story_that_was_not_reopened_does_not_escalate() -> None:
    """A verify that gives its reason is routed by that; else it leads to impl, by the table."""
    play = reopened_at("impl").step_fails(Reason.CONSTITUTION_VIOLATION).turn().expect(step="sdd-delta")
    assert not play.ledger.escalated
    play = Playbook(track_at("verify")).step_fails().turn().expect(step="impl")
    assert not play.ledger.escalated


# --- the pieces -----------------------------------------------------------------------------------
@pytest.mark.parametrize("status", [Status.PENDING, Status.NEEDS_HUMAN])
def test_a_track_that_waits_is_not_moved(status: Status) -> None:
    """Following it returns it as it is."""
    track = track_at("impl", status, attempt=3)
    assert Moved(track=track) == follow(situation(track))


def test_entering_a_step_takes_its_limits_from_the_rule() -> None:
    """max_attempts and timeout_min are copied, counters of the last step are gone."""
    counted = Ledger(automatic=True, free_repeats=2, timeouts=1, told="blocked by US-0")
    route = Ground(rule="steps.bdd.next_on_pass", value="impl")
    moved = visit(situation(track_at("bdd", ledger=counted, attempt=2)), "impl", why="test", route=route)

    assert isinstance(moved, Moved)
    assert ("test", (route,)) == (moved.why, moved.grounds)
    entered = moved.track
    assert entered.state is not None
    assert (1, 5, 10) == (entered.state.attempt, entered.state.max_attempts, entered.state.timeout_min)
    assert replace(counted, visits={"impl": 1}, free_repeats=0, timeouts=0, told=None) == entered.ledger


CLONE = Workspace(kind="clone", folder="/w/shop")


def test_a_new_story_inherits_nothing_of_the_last_but_the_project() -> None:
    """Visits, facts, the red proof and pending notes are the story's; the rest is the project's."""
    old = Ledger(
        automatic=True, paused_by="mei", visits={"impl": 3}, free_repeats=1, red_done=True, new_tests=4,
        red="d7", escalated=True, skipped=("bdd",), next_note="?", told="?", facts=Facts(files=("a.py",)),
        last_mark=mark(3), stories_done=("US-1",), held_edit=HeldEdit(state=state_at(), why="?"),
        workspace=CLONE,
    )  # fmt: skip
    kept = Ledger(automatic=True, paused_by="mei", last_mark=mark(3), stories_done=("US-1",), workspace=CLONE)
    assert kept == lasting(old)

    queued = Queued(story="US-2", instruction="Hurry.", agent_teams=True, blocked_by=("US-9",))
    begun, checklist = begin(situation(track_at("done", Status.PASS, ledger=old)), queued, bootstrapped=True)
    assert kept == begun.ledger
    assert begun.state is not None
    assert ("bdd", "Hurry.") == (begun.state.step, begun.state.human_note)
    assert (True, ("US-9",)) == (begun.state.agent_teams, begun.state.blocked_by)
    assert ("US-2", "story") == (checklist.story, checklist.task_type)


def test_a_story_that_begins_waits_nowhere_else() -> None:
    """It is neither in the backlog nor parked any more: nothing is done twice."""
    waiting = Ledger(
        backlog=(Queued(story="US-2"), Queued(story="US-3")),
        parked=(Parked(state=state_at("impl", story="US-2"), ledger=Ledger(), give_back=True),),
    )
    begun, _ = begin(situation(track_at("done", ledger=waiting)), Queued(story="US-2"), bootstrapped=True)
    assert (Queued(story="US-3"),) == begun.ledger.backlog
    assert () == begun.ledger.parked


def test_a_parked_story_is_taken_up_where_it_was_set_aside() -> None:
    """Its own counters come back with it; the project's stay as they are now."""
    parked = Parked(
        state=state_at("impl", attempt=3),
        ledger=Ledger(visits={"impl": 2}, red_done=True, red="d7"),
        give_back=True,
    )
    dispatch = Dispatch(
        id="d9", story="C-1", step="custom", attempt=1, executor="x", decided_at=T0, phase=Phase.EXECUTING
    )
    now = Ledger(
        automatic=True, paused_by="mei", stories_done=("C-1",), parked=(parked,), dispatch=dispatch,
        backlog=(Queued(story="US-1"), Queued(story="US-2")),
    )  # fmt: skip
    back = give_back(situation(track_at("done", ledger=now, story="C-1")), parked)

    assert parked.state == back.state
    assert back.ledger == Ledger(
        automatic=True, paused_by="mei", stories_done=("C-1",), visits={"impl": 2}, red_done=True,
        red="d7", backlog=(Queued(story="US-2"),),
    )  # fmt: skip


def test_the_story_parked_last_is_taken_up_first() -> None:
    """What was parked for a task comes back when that task is done, not what was parked before it."""
    first, second, forced = (
        Parked(state=state_at(story=name), ledger=Ledger(), give_back=name != "US-3")
        for name in ("US-1", "C-1", "US-3")
    )
    assert second == next_parked(track_at(ledger=Ledger(parked=(first, second, forced))))
    assert next_parked(track_at(ledger=Ledger(parked=(forced,)))) is None


def test_the_end_of_a_story_clears_what_was_its_own() -> None:
    """`done` has one status, and no note or reopening is carried into the next story."""
    last = track_at("update-memory", Status.PASS, human_note="?", last_error="?", reopened_from="impl")
    last = last.with_state(attempt=2).with_ledger(stories_done=("US-0", "US-1", "US-2"))
    play = Playbook(last).turn()
    play.expect(
        step="done", status=Status.PASS, attempt=1, max_attempts=1, timeout_min=0, human_note=None,
        reopened_from=None, last_error=None, completed_at=play.now, result="done", orders="notify",
    )  # fmt: skip
    assert ("US-0", "US-2", "US-1") == play.ledger.stories_done


# --- reviews --------------------------------------------------------------------------------------
def ended(
    ledger: Ledger, story: str = "US-1", reopenings: int | None = 0, task_type: str = "story"
) -> tuple[bool, Playbook]:
    """Return whether a review is suggested at the end of a story, and how it was played."""
    last = track_at("update-memory", Status.PASS, story=story, task_type=task_type, ledger=ledger)
    play = Playbook(last).turn(reopenings=reopenings)
    result = play.decision.result
    assert isinstance(result, Finished)
    return result.review_suggested, play


def ends_of(*stories: str, ledger: Ledger | None = None, task_type: str = "story") -> list[bool]:
    """Return, for each of some stories that end one after the other, whether a review is suggested."""
    suggestions, ledger = [], ledger or Ledger()
    for story in stories:
        suggested, play = ended(ledger, story, task_type=task_type)
        suggestions.append(suggested)
        ledger = lasting(play.ledger)
    return suggestions


def test_a_review_is_suggested_at_every_third_end() -> None:
    """Of a new story, or of one that is reopened and ends again; the ends between suggest none."""
    assert [False, False, True, False, False, True] == ends_of(*(f"US-{number}" for number in range(6)))
    assert [False, False, True] == ends_of("US-1", "US-1", "US-1")


def test_a_custom_task_does_not_count_for_a_review() -> None:
    """It neither counts, nor is a review suggested at its end because there was one at the last."""
    assert [False] * 4 == ends_of("C-1", "C-2", "C-3", "C-4", task_type="custom")
    after = Ledger(review=SinceReview(ends=0, suggested=True))
    suggested, play = ended(after, "C-1", task_type="custom")
    assert (False, 0) == (suggested, play.ledger.review.ends)


def test_what_was_done_before_it_was_counted_counts_once() -> None:
    """In a project that comes from elsewhere, or from a release that did not count."""
    done = Ledger(stories_done=("US-1", "US-2", "US-3", "US-4"))
    assert [True, False, False, True] == ends_of("US-5", "US-6", "US-7", "US-8", ledger=done)


def test_three_reopenings_are_a_reason_too() -> None:
    """The history has them, which other tools write as well; each is a reason once."""
    ledger = Ledger()
    for reopenings, expected in ((3, True), (5, False), (6, True), (1, False), (4, True)):  # 1: begun anew
        suggested, play = ended(ledger, reopenings=reopenings)
        assert expected == suggested
        ledger = lasting(play.ledger)


def test_a_suggested_review_is_in_the_notice_and_in_the_answers() -> None:
    """Again when the end is asked about; the next story ends that."""
    suggested, play = ended(Ledger(review=SinceReview(ends=2)))
    assert suggested
    (notice,) = [order for order in play.orders if isinstance(order, Notify)]
    assert "a review of the whole project is suggested" in (notice.why or "")
    assert "handoffd review {project}" in play.decision.result.caller_instruction
    play.turn()
    assert isinstance(play.decision.result, Finished)
    assert play.decision.result.review_suggested
    play.started("US-2")
    assert not ended(lasting(play.ledger), "US-2")[0]


def test_ends_of_a_release_that_did_not_count_are_decided_as_they_were() -> None:
    """Their events do not have the history; so the journal of then replays."""
    suggested, play = ended(Ledger(stories_done=("US-8", "US-9")), reopenings=None)
    assert (False, SinceReview()) == (suggested, play.ledger.review)


def test_a_failing_gate_has_no_limit_of_attempts() -> None:
    """A person may reject as often as it takes."""
    play = Playbook(track_at("review", Status.NEEDS_HUMAN, attempt=1, max_attempts=1))
    play.given(Rejected(reason=Reason.SCOPE_WARNING)).turn().expect(step="sdd-delta", status=Status.RUNNING)


def test_every_step_of_the_story_is_on_its_path() -> None:
    """The shipped table leads from bootstrap to the memory update."""
    steps = "bootstrap bdd sdd-delta contract review scaffold impl verify update-memory"
    assert steps == " ".join(shipped_rules().path("story"))
