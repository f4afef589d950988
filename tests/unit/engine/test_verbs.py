"""What people may order, and when it is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.playbook import (
    T0,
    Playbook,
    dispatched,
    shipped_rules,
    state_at,
    track_at,
    with_rule,
    without_step,
)

from handoffd.engine.decision import AppendHistory, Notify, next_command
from handoffd.engine.events import (
    Aborted,
    Advanced,
    Approved,
    DispatchFailed,
    Event,
    Initialised,
    Noted,
    Paused,
    PromptTaken,
    Rejected,
    Reopened,
    Resumed,
    Retried,
    RolledBack,
    Skipped,
    Started,
    StateEdited,
    Undone,
    Verb,
)
from handoffd.engine.routing import MAX_ATTEMPTS
from handoffd.engine.run import Finding
from handoffd.engine.track import Ledger, Parked, Queued, Track
from handoffd.protocol.state import Reason, State, Status

AT_REST = [status for status in Status if status is not Status.RUNNING]
COUNTED = Ledger(automatic=True, visits={"impl": 4}, free_repeats=2, timeouts=1, told="blocked by US-0")


def closed_at(step: str) -> Playbook:
    """Return a track that was aborted at a step."""
    return Playbook(track_at(step)).given(Aborted(by="mei"))


# --- refusals -------------------------------------------------------------------------------------
DONE, NEW = track_at("done", Status.PASS), track_at("bootstrap", story=None)
OPEN = track_at("review", Status.NEEDS_HUMAN)
PASSED = Playbook(OPEN).given(Approved()).track
ABORTED = closed_at("review").track


@pytest.mark.parametrize(
    ("track", "verb", "code"),
    [
        # before any STATE
        (Track(), Started(story="US-1"), "NOT_INITIALIZED"),
        (Track(), Retried(), "NOT_INITIALIZED"),
        (Track(), Noted(text="?"), "NOT_INITIALIZED"),
        (Track(), Advanced(dispatch="d1", executor="x"), "NOT_INITIALIZED"),
        # while an attempt runs
        (dispatched("bdd"), Retried(), "ALREADY_RUNNING"),
        (dispatched("bdd"), Skipped(), "ALREADY_RUNNING"),
        (dispatched("bdd"), Approved(), "ALREADY_RUNNING"),
        (dispatched("bdd"), Reopened(step="bdd"), "ALREADY_RUNNING"),
        (dispatched("bdd"), DispatchFailed(code="X", message="?"), "ALREADY_RUNNING"),
        # a human step is decided, not passed over; only a human step, and once
        *((track_at("review", status), Skipped(), "WRONG_STEP") for status in AT_REST),
        *((track_at("impl", status), Approved(), "WRONG_STEP") for status in AT_REST),
        *((track_at("impl", status), Rejected(), "WRONG_STEP") for status in AT_REST),
        (PASSED, Approved(), "WRONG_STEP"),
        (PASSED, Rejected(), "WRONG_STEP"),
        # the story that is named waits at no gate
        (track_at("bdd", story=None), Approved(story="US-1"), "WRONG_STORY"),
        (ABORTED, Approved(story="US-2"), "WRONG_STORY"),
        # after an abort only a start or a rollback opens the track
        (ABORTED, Retried(), "CLOSED"),
        (ABORTED, Skipped(), "CLOSED"),
        (ABORTED, Aborted(), "CLOSED"),
        (ABORTED, Approved(), "CLOSED"),
        (ABORTED, Rejected(), "CLOSED"),
        (ABORTED, Reopened(step="bdd"), "NOT_DONE"),
        # without a story in flight
        (NEW, Aborted(), "NOTHING_TO_ABORT"),
        (DONE, Aborted(), "NOTHING_TO_ABORT"),
        (DONE, Retried(), "ALREADY_DONE"),
        (DONE, Skipped(), "ALREADY_DONE"),
        (NEW, Retried(), "NO_STORY"),
        (NEW, Skipped(), "NO_STORY"),
        # only to an earlier step of the pipeline, to the bootstrap only if that is meant
        (track_at("impl", Status.FAILING), RolledBack(step="impl"), "ROLLBACK_FORWARD"),
        (track_at("impl", Status.FAILING), RolledBack(step="verify"), "ROLLBACK_FORWARD"),
        (track_at("impl", Status.FAILING), RolledBack(step="done"), "INVALID_TARGET"),
        (track_at("impl", Status.FAILING), RolledBack(step="custom"), "INVALID_TARGET"),
        (track_at("impl", Status.FAILING), RolledBack(step="nonsense"), "INVALID_TARGET"),
        (track_at("impl", Status.FAILING), RolledBack(step="bootstrap"), "NEEDS_FORCE"),
        (track_at("impl", task_type="hotfix"), RolledBack(step="bootstrap"), "NEEDS_FORCE"),
        # only a story that is done, at one of its steps
        *((track_at("verify", status), Reopened(step="impl"), "NOT_DONE") for status in AT_REST),
        (DONE, Reopened(step="done"), "REOPEN_TO_DONE"),
        (DONE, Reopened(step="custom"), "INVALID_TARGET"),
        (DONE, Reopened(step="nonsense"), "INVALID_TARGET"),
    ],
)
def test_a_verb_is_refused_where_it_has_no_place(track: Track, verb: Event, code: str) -> None:
    """With a code of its own; nothing is changed or ordered, and the answer says what to do."""
    play = Playbook(track).given(verb).expect(result="error", code=code, orders="")
    assert track is play.track
    assert "handoffd " in play.decision.result.caller_instruction


# --- init -----------------------------------------------------------------------------------------
def test_a_first_state_is_at_bootstrap() -> None:
    """Initialising gives the track its STATE, and dispatches nothing."""
    play = Playbook().given(Initialised(project="shop")).expect(result="accepted", orders="")
    assert State(project="shop", timeout_min=10) == play.state
    assert not play.ledger.automatic


def test_the_first_state_is_that_of_the_protocol() -> None:
    """Whatever limits the project's own bootstrap has: they count from the first story on."""
    play = Playbook().given(Initialised(project="shop", as_published=True))
    assert State(project="shop") == play.state
    assert 10 == play.given(Started(story="US-1", bootstrapped=False)).state.timeout_min


# --- approve, reject ------------------------------------------------------------------------------
@pytest.mark.parametrize("status", [Status.PENDING, Status.NEEDS_HUMAN])
def test_a_gate_is_opened_before_and_after_its_notice(status: Status) -> None:
    """Approving passes the step; the counters against loops begin anew."""
    play = Playbook(track_at("review", status, ledger=COUNTED, last_error="?")).given(Approved(note="Fine."))
    play.expect(status=Status.PASS, human_note="Fine.", completed_at=play.now, reason=None, orders="")
    assert Ledger(automatic=True) == play.ledger


def test_an_approval_without_a_note_leaves_none() -> None:
    """The next prompt has no instruction block then."""
    Playbook(track_at("review", Status.NEEDS_HUMAN)).given(Approved()).expect(human_note=None)


@pytest.mark.parametrize("verb", [Approved(story="US-0"), Rejected(story="US-0")])
def test_the_gate_of_another_story_than_was_named_stays_as_it_is(verb: Approved | Rejected) -> None:
    """A notice that is hours old decides nothing that no person has seen."""
    play = Playbook(track_at("review", Status.NEEDS_HUMAN)).refused(verb, "WRONG_STORY")
    assert "handoffd status" in str(play.decision.result)
    play.given(replace(verb, story="US-1")).expect(orders="")
    assert play.state.status in {Status.PASS, Status.FAILING}


# --- undo -------------------------------------------------------------------------------------------
APPROVED = Approved(note="Fine.", by="mei", undoable=True)
FINDING = Finding(scope="story", unit="usd", spent=4.1, cap=4)


def approved(**fields: Any) -> Playbook:
    """Return a story whose review was approved just now."""
    return Playbook(track_at("review", Status.NEEDS_HUMAN, **fields)).given(APPROVED)


def test_an_approval_can_be_taken_back_and_the_gate_is_told_again() -> None:
    """The note is gone with it; the notice has the command, so that reminders go on."""
    play = approved(human_note="Cents.").given(Undone(by="bob"))

    play.expect(step="review", status=Status.NEEDS_HUMAN, human_note="Cents.", completed_at=None)
    assert ("review", None) == (play.ledger.gate, play.ledger.approval)
    assert "the approval of review by mei was taken back by bob" == play.decision.why
    [told] = play.decision.effects
    assert isinstance(told, Notify)
    assert ("needs_human", "handoffd approve {project} --story US-1") == (told.notice, told.action)
    assert told.review
    play.given(Approved()).turn().expect(step="scaffold", status=Status.RUNNING)


def test_a_note_that_came_after_the_approval_stays() -> None:
    """It is another person's."""
    approved().given(Noted(text="Use UTC.")).given(Undone()).expect(human_note="Fine.\n\nUse UTC.")


def test_an_approval_that_led_to_the_next_step_is_taken_back_until_that_begins() -> None:
    """A budget or a start that failed held it up there; a further gate as well."""
    play = approved().turn(over=FINDING).expect(step="scaffold", status=Status.PENDING)
    play.given(Undone()).expect(step="review", status=Status.NEEDS_HUMAN, attempt=1)
    assert "review" == play.ledger.gate

    play = approved()
    play.rules = with_rule("scaffold", requires_human=True)
    play.turn().expect(step="scaffold", status=Status.NEEDS_HUMAN)
    play.given(Undone()).expect(step="review", status=Status.NEEDS_HUMAN)

    play = approved().given(DispatchFailed(code="X", message="no prompt")).expect(step="scaffold")
    play.given(Undone()).expect(step="review", status=Status.NEEDS_HUMAN, last_error=None)


def test_it_is_too_late_once_an_attempt_has_begun() -> None:
    """Ours or another tool's; also when it was interrupted, and begins again."""
    play = approved().turn().refused(Undone(), "TOO_LATE")
    assert "handoffd status {project} --watch" in str(play.decision.result)
    assert "scaffold has begun: the approval of review cannot be taken back any more" in play.decision.why
    play.given(Aborted())

    level_1 = Playbook(track_at("review", Status.NEEDS_HUMAN, ledger=Ledger())).given(APPROVED)
    level_1.given(PromptTaken(dispatch="d9")).expect(status=Status.RUNNING).refused(Undone(), "TOO_LATE")
    rest = Playbook(track_at("scaffold", Status.FAILING)).refused(Undone(), "TOO_LATE")
    assert "handoffd rollback {project} review" in str(rest.decision.result)


def test_what_a_person_has_moved_since_is_not_taken_back() -> None:
    """A rollback, a skip or another decision replaces the approval; so does an edit of STATE.json."""
    approved().given(RolledBack(step="bdd")).refused(Undone(), "NOTHING_APPROVED")
    approved().given(StateEdited(state=state_at("bdd"))).refused(Undone(), "NOTHING_APPROVED")
    approved().given(Aborted()).refused(Undone(), "CLOSED")


@pytest.mark.parametrize(
    ("track", "code"),
    [
        (track_at("bdd"), "NOTHING_APPROVED"),
        (track_at("review", Status.NEEDS_HUMAN), "NOTHING_APPROVED"),
        (track_at("done", Status.PASS), "ALREADY_DONE"),
        (track_at("bootstrap", story=None), "NO_STORY"),
        (Track(), "NOT_INITIALIZED"),
    ],
)
def test_without_an_approval_there_is_nothing_to_take_back(track: Track, code: str) -> None:
    """Each refusal has its own word."""
    Playbook(track).refused(Undone(), code)


def test_an_approval_of_another_story_or_of_an_earlier_release_stays() -> None:
    """The story is named by a command that was typed hours later; old approvals are final."""
    approved().refused(Undone(story="US-0"), "WRONG_STORY").given(Undone(story="US-1"))
    Playbook(track_at("review", Status.NEEDS_HUMAN)).given(Approved()).refused(Undone(), "NOTHING_APPROVED")


GATE_OFF = {"requires_human": False}
REROUTED = {"requires_human": False, "next_on_pass": "impl", "on_fail": {"default": "contract"}}
LIMITED = {"requires_human": False, "max_attempts": 3, "timeout_min": 5, "step_instruction": "Review it."}


@pytest.mark.parametrize("edit", [GATE_OFF, REROUTED, LIMITED, {"next_on_pass": "impl"}])
def test_a_gate_at_which_a_person_was_asked_stays_one_whatever_the_table_says(edit: dict[str, Any]) -> None:
    """What leads on is the decision, the decision is taken, and it goes where the table leads now."""
    play = Playbook(track_at("contract", Status.PASS)).turn().expect(step="review", result="needs_human")
    play.rules = with_rule("review", **edit)
    review = play.rules.steps["review"]

    assert "handoffd approve {project} --story US-1" == next_command(play.track, play.rules)
    play.refused(Skipped(), "WRONG_STEP").turn().expect(result="needs_human", orders="")
    asked = play.track
    play.given(Approved()).turn().expect(step=review.next_on_pass, status=Status.RUNNING)
    assert play.ledger.gate is None

    play.track = asked
    play.given(Rejected()).turn().expect(step=review.on_fail["default"], status=Status.RUNNING)
    play.track = asked
    play.given(Retried()).turn().expect(step="review", status=Status.NEEDS_HUMAN, orders="notify")


def test_a_gate_that_is_turned_off_before_a_person_was_asked_is_a_step_like_any_other() -> None:
    """So it is the next time the story comes to it."""
    off = with_rule("review", requires_human=False)
    Playbook(track_at("contract", Status.PASS), off).turn().expect(step="review", status=Status.RUNNING)
    play = Playbook(track_at("contract", Status.PASS)).turn()
    play.rules = off
    play.given(RolledBack(step="contract")).step_passes().turn().expect(step="review", status=Status.RUNNING)


def test_a_step_that_waits_for_a_person_may_be_made_a_gate_and_none_again() -> None:
    """No person was asked at a gate: the step is tried again."""
    play = Playbook(track_at("impl", Status.NEEDS_HUMAN), with_rule("impl", requires_human=True))
    assert "handoffd approve {project} --story US-1" == next_command(play.track, play.rules)
    play.rules = shipped_rules()
    assert "handoffd retry {project}" == next_command(play.track, play.rules)
    play.refused(Approved(), "WRONG_STEP")


def test_a_gate_that_is_gone_from_the_table_takes_no_decision() -> None:
    """It leads nowhere: what leads on is a look at the table, for the status as for the verbs."""
    play = Playbook(track_at("contract", Status.PASS)).turn()
    play.rules = without_step("review")
    assert "handoffd rules check {project}" == next_command(play.track, play.rules)
    play.refused(Approved(), "UNKNOWN_STEP").refused(Rejected(), "UNKNOWN_STEP")


def test_a_rejection_names_where_it_leads() -> None:
    """Its reason stays in STATE until the next dispatch."""
    play = Playbook(track_at("review", Status.NEEDS_HUMAN, last_error="?"))
    play.given(Rejected(reason=Reason.SCOPE_WARNING, note="Too much."))
    play.expect(
        status=Status.FAILING, reason=Reason.SCOPE_WARNING, last_error=None, human_note="Too much.",
        completed_at=play.now,
    )  # fmt: skip
    assert "back to sdd-delta" in play.decision.why


# --- abort ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("status", AT_REST)
def test_an_abort_closes_the_track(status: Status) -> None:
    """STATE says by whom; a person needs no notice of their own abort."""
    play = Playbook(track_at("impl", status)).given(Aborted(by="mei")).expect(result="needs_human", orders="")
    play.expect(status=Status.NEEDS_HUMAN, last_error="aborted by mei", step="impl")
    assert play.ledger.closed


def test_a_start_or_a_rollback_opens_an_aborted_track() -> None:
    """The story may begin anew or go on from an earlier step."""
    play = closed_at("impl").given(Started(story="US-1")).expect(step="bdd", status=Status.PENDING)
    assert not play.ledger.closed
    play = closed_at("impl").given(RolledBack(step="contract")).expect(step="contract", status=Status.PENDING)
    assert not play.ledger.closed
    play.turn().expect(result="dispatched", step="contract")


# --- pause, resume --------------------------------------------------------------------------------
@pytest.mark.parametrize("track", [*(track_at("bdd", status) for status in AT_REST), dispatched("bdd")])
def test_a_pause_leaves_state_alone(track: Track) -> None:
    """Only the daemon rests; STATE.json does not show it."""
    play = Playbook(track).given(Paused(by="mei"))
    assert (track.state, "mei") == (play.state, play.ledger.paused_by)
    play.refused(Paused(by="ana"), "ALREADY_PAUSED")
    play.given(Resumed())
    assert (track.state, None) == (play.state, play.ledger.paused_by)


def test_a_running_attempt_ends_normally_during_a_pause() -> None:
    """Its result is judged; what follows waits for the resume."""
    play = Playbook(track_at("bdd")).turn().given(Paused()).hands_over()
    play.expect(status=Status.PASS).turn().expect(result="blocked", step="bdd")
    play.given(Resumed()).turn().expect(result="dispatched", step="sdd-delta")


def test_a_resume_takes_the_project_to_level_2() -> None:
    """Without a pause, too."""
    play = Playbook(track_at("bdd", ledger=Ledger())).given(Resumed())
    assert play.expect(orders="", status=Status.PENDING).ledger.automatic


def test_a_resume_after_the_end_starts_the_next_of_the_backlog() -> None:
    """With everything the person said when it was queued."""
    queued = Started(story="US-2", queue=True, blocked_by=("US-1",), agent_teams=True, instruction="Hurry.")
    play = Playbook(track_at("update-memory")).given(queued).given(Started(story="US-3", queue=True))
    play.step_passes().turn().given(Resumed())
    play.expect(
        story="US-2", step="bdd", status=Status.PENDING, blocked_by=("US-1",), agent_teams=True,
        human_note="Hurry.", orders="write_checklist",
    )  # fmt: skip
    assert ["US-3"] == [queued.story for queued in play.ledger.backlog]


def test_a_resume_passes_over_what_waits_for_another_story() -> None:
    """It would be in flight and blocked, and in the way of what it waits for."""
    ledger = Ledger(backlog=(Queued(story="US-2", blocked_by=("US-3",)), Queued(story="US-3")))
    Playbook(track_at("done", Status.PASS, ledger=ledger)).given(Resumed()).expect(story="US-3", step="bdd")


def test_a_resume_gives_a_parked_story_back_before_the_backlog() -> None:
    """What was interrupted comes before what is new."""
    parked = Parked(state=state_at("impl"), ledger=Ledger(), give_back=True)
    ledger = Ledger(automatic=True, paused_by="mei", parked=(parked,), backlog=(Queued(story="US-2"),))
    play = Playbook(track_at("done", Status.PASS, story="C-1", ledger=ledger)).given(Resumed())
    play.expect(story="C-1", step="done").turn().expect(story="US-1", step="impl")


# --- retry, skip ----------------------------------------------------------------------------------
@pytest.mark.parametrize("status", AT_REST)
def test_a_retry_tries_the_step_afresh(status: Status) -> None:
    """Attempt 1 of all the rule allows, the note kept, the counters at zero."""
    track = track_at(
        "impl", status, ledger=COUNTED, attempt=5, max_attempts=2, reason=Reason.NFR_MISSING, human_note="?",
        blocked_by=("US-0", MAX_ATTEMPTS),
    )  # fmt: skip
    play = Playbook(track).given(Retried())
    play.expect(
        step="impl", status=Status.PENDING, attempt=1, max_attempts=5, reason=None, blocked_by=("US-0",),
        human_note="?", orders="",
    )  # fmt: skip
    assert Ledger(automatic=True) == play.ledger


@pytest.mark.parametrize("status", AT_REST)
def test_a_skip_passes_a_step_without_evidence(status: Status) -> None:
    """It is recorded as such, and the story goes on."""
    track = track_at("impl", status, ledger=COUNTED, last_error="?", blocked_by=(MAX_ATTEMPTS,))
    play = Playbook(track).given(Skipped(by="mei"))
    play.expect(status=Status.PASS, last_error=None, blocked_by=(), tests=None, result="accepted")
    assert ("impl",) == play.ledger.skipped
    assert "without evidence" in play.decision.why
    play.turn().expect(step="verify", result="dispatched")


# --- rollback -------------------------------------------------------------------------------------
def test_a_rollback_goes_back_to_an_earlier_step() -> None:
    """The step's fields are reset, the note and the stories that block are kept."""
    track = track_at(
        "verify", Status.NEEDS_HUMAN, ledger=COUNTED, attempt=2, last_error="?", failing_tests=("a",),
        human_note="Cents.", blocked_by=("US-0", MAX_ATTEMPTS),
    )  # fmt: skip
    play = Playbook(track).given(RolledBack(step="sdd-delta"))
    play.expect(
        step="sdd-delta", status=Status.PENDING, attempt=1, max_attempts=3, last_error=None, failing_tests=(),
        human_note="Cents.", blocked_by=("US-0",), completed_at=None, orders="",
    )  # fmt: skip
    assert Ledger(automatic=True) == play.ledger


def test_a_rollback_to_the_bootstrap_can_be_forced() -> None:
    """It starts the whole project anew."""
    Playbook(track_at("impl")).given(RolledBack(step="bootstrap", force=True)).expect(step="bootstrap")


def test_a_rollback_leads_out_of_a_step_the_table_lost() -> None:
    """The way out of a table in which too much was changed."""
    play = Playbook(track_at("commit", Status.PASS), without_step("commit"))
    play.given(RolledBack(step="verify")).expect(step="verify", status=Status.PENDING)


def test_a_story_that_is_rolled_back_is_not_done() -> None:
    """Stories that wait for it wait again."""
    done = track_at("done", Status.PASS, ledger=Ledger(stories_done=("US-0", "US-1")))
    assert ("US-0",) == Playbook(done).given(RolledBack(step="impl")).ledger.stories_done


def test_kinds_of_tasks_without_a_pipeline_roll_back_like_stories() -> None:
    """task_type is an open set."""
    Playbook(track_at("verify", task_type="hotfix")).given(RolledBack(step="impl")).expect(step="impl")


@pytest.mark.parametrize(("note", "line"), [("Cents\nare lost.", "Cents are lost."), (None, "N/A")])
def test_the_entry_of_a_reopening_has_the_form_that_other_tools_read(note: str | None, line: str) -> None:
    """A heading with story and step, and three fields."""
    play = Playbook(track_at("done", Status.PASS)).given(Reopened(step="impl", note=note, entry=2))
    (order,) = play.decision.effects
    assert isinstance(order, AppendHistory)
    heading, date, *fields = order.text.splitlines()
    assert "### Reopen — US-1 → impl" == heading
    assert ["- **From**: done → impl", f"- **Note**: {line}"] == fields
    assert re.fullmatch(r"- \*\*Date\*\*: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", date)


# --- reopen ---------------------------------------------------------------------------------------
def test_a_story_that_is_done_is_reopened_at_a_step() -> None:
    """It is not done any more, the history says why, and the note is in the next prompt."""
    ledger = Ledger(automatic=True, stories_done=("US-0", "US-1"), escalated=True, visits={"impl": 2})
    play = Playbook(track_at("done", Status.PASS, ledger=ledger, completed_at=T0))
    play.given(Reopened(step="impl", note="Cents are lost."))
    play.expect(
        step="impl", status=Status.PENDING, attempt=1, max_attempts=5, reopened_from="impl",
        human_note="Cents are lost.", completed_at=None,
    )  # fmt: skip
    entry = "\n### Reopen US-1 at impl (2026-01-31)\n\nCents are lost.\n"  # of a recorded event, for replays
    assert (AppendHistory(text=entry),) == play.decision.effects
    assert Ledger(automatic=True, stories_done=("US-0",)) == play.ledger


# --- note -----------------------------------------------------------------------------------------
def test_notes_given_while_an_executor_runs_are_collected() -> None:
    """Both are for the prompt after the running one; an empty note adds nothing to it."""
    Playbook(track_at("bdd", human_note="One.")).given(Noted(text="")).expect(human_note="One.")
    play = Playbook(dispatched("bdd")).given(Noted(text="One.")).given(Noted(text="Two."))
    assert "One.\n\nTwo." == play.ledger.next_note
    play.expect(human_note=None, status=Status.RUNNING)


# --- what leads on --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("play", "verb", "advice"),
    [
        (Playbook(track_at("impl")), RolledBack(step="verify"), "rollback {project} scaffold"),
        (Playbook(track_at("impl")), RolledBack(step="ipml"), "rollback {project} scaffold"),
        (Playbook(track_at("impl")), RolledBack(step="bootstrap"), "rollback {project} bootstrap --force"),
        (Playbook(track_at("bdd")), RolledBack(step="impl"), "status {project}"),
        (Playbook(track_at("impl")), Reopened(step="bdd"), "rollback {project} bdd"),
        (Playbook(track_at("impl")), Reopened(step="verify"), "rollback {project} scaffold"),
        (Playbook(track_at("bdd", story=None)), Reopened(step="bdd"), "start {project} STORY"),
        (Playbook(track_at("done", Status.PASS)), Reopened(step="ipml"), "reopen {project} STEP"),
        (Playbook(track_at("done", Status.PASS)), Retried(), "start {project} STORY"),
        (Playbook(track_at("impl", Status.TIMEOUT)), Approved(), "retry {project}"),
        (Playbook(track_at("review", Status.NEEDS_HUMAN)), Skipped(), "approve {project} --story US-1"),
        (Playbook(track_at("review", Status.TIMEOUT)), Skipped(), "retry {project}"),
        (Playbook(dispatched("impl")), Retried(), "status {project} --watch"),
        (closed_at("impl"), Retried(), "start {project} STORY"),
    ],
)
def test_a_refusal_advises_what_fits(play: Playbook, verb: Verb, advice: str) -> None:
    """The step, the story and the options are filled in where they are known."""
    assert f"handoffd {advice}" == play.given(verb).decision.result.next_command
