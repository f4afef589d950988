"""Whole stories, from the start to `done`, as scripts of facts and orders."""

from __future__ import annotations

import pytest
from tests.support.playbook import (
    DISPATCH,
    Playbook,
    dispatched,
    found,
    green,
    handoff,
    red,
    track_at,
    with_rule,
    without_step,
)

from handoffd.engine.decision import Basis, Dispatched, Finished, RunChecks, Spawn
from handoffd.engine.events import (
    Approved,
    DeadlinePassed,
    ExecutorExited,
    ExecutorStarted,
    HandoffSettled,
    Initialised,
    Noted,
    Paused,
    Rejected,
    Retried,
    Started,
)
from handoffd.engine.run import Exit
from handoffd.engine.track import Ledger, Phase
from handoffd.protocol.handoff import Absent
from handoffd.protocol.state import Reason, Status, TestCounts


def at_review(story: str = "US-1") -> Playbook:
    """Return a story that was worked on from its start to the review."""
    play = Playbook().given(Initialised(project="shop")).started(story)
    for _ in ("bdd", "sdd-delta", "contract"):
        play.step_passes()
    return play.turn()


def test_a_story_goes_through_every_step_to_done() -> None:
    """Each step is dispatched once, in the order of the table, with the review in a person's hands."""
    play = at_review().expect(step="review", status=Status.NEEDS_HUMAN, result="needs_human", orders="notify")
    play.given(Approved(by="mei")).expect(status=Status.PASS, result="accepted", orders="")
    for step in ("scaffold", "impl", "verify", "update-memory"):
        play.step_passes().expect(step=step, status=Status.PASS, attempt=1)

    play.turn().expect(step="done", status=Status.PASS, result="done", orders="notify")
    steps = [order.step for order in play.orders if isinstance(order, Spawn)]
    assert ["bdd", "sdd-delta", "contract", "scaffold", "impl", "verify", "update-memory"] == steps
    assert ("US-1",) == play.ledger.stories_done
    play.turn().expect(result="done", orders="")


def test_a_dispatch_is_recorded_with_what_it_needs_to_be_repeated() -> None:
    """Running, dispatched_at and the order to spawn come in one decision, under the id of the turn."""
    play = Playbook(track_at("impl", Status.FAILING, attempt=2, reason=Reason.NFR_MISSING, last_error="slow"))
    play.turn().expect(
        result="dispatched", status=Status.RUNNING, attempt=3, dispatched_at=play.now, completed_at=None,
        reason=None, last_error="slow",
    )  # fmt: skip
    order = Spawn(dispatch="d1", executor="rehearsal", story="US-1", step="impl", attempt=3, timeout_min=10)
    assert (order,) == play.decision.effects
    assert Phase.STARTING == play.dispatch.phase
    result = play.decision.result
    assert isinstance(result, Dispatched)
    assert ("shop", "US-1", "impl") == (result.project, result.story, result.step)
    assert (3, "d1") == (result.attempt, result.dispatch)


def test_passing_clears_what_belonged_to_the_step_before() -> None:
    """The next step begins at attempt 1 without the reason, error, tests and files of the last."""
    passed = track_at(
        "impl", Status.PASS, attempt=3, last_error="?", tests=TestCounts(passed=2), failing_tests=("a",),
        lint_pass=True, files_changed=("a.py",), reason=Reason.NFR_MISSING,
    )  # fmt: skip
    Playbook(passed).turn().expect(
        step="verify", attempt=1, max_attempts=2, timeout_min=5, status=Status.RUNNING, reason=None,
        last_error=None, tests=None, failing_tests=(), lint_pass=None, files_changed=(),
    )  # fmt: skip


def test_a_project_without_a_context_bootstraps_before_its_first_story_only() -> None:
    """Bootstrap runs once, for a project that has had no story yet."""
    play = Playbook().given(Initialised(project="shop")).started(bootstrapped=False)
    play.expect(step="bootstrap", attempt=1, max_attempts=1).step_passes().turn().expect(step="bdd")

    done = Playbook(track_at("done", Status.PASS)).track.with_ledger(stories_done=("US-1",))
    Playbook(done).started("US-2", bootstrapped=False).expect(step="bdd")


def test_a_custom_task_keeps_its_instruction_through_all_attempts() -> None:
    """The instruction stays in every prompt of the custom step, with further notes below it, then goes."""
    play = Playbook().given(Initialised(project="shop"))
    play.started("CUSTOM-1", task_type="custom", instruction="Rename the button.").expect(step="custom")
    play.step_fails().turn().expect(attempt=2, human_note="Rename the button.")
    play.given(Noted(text="The blue one.")).fails()
    play.turn().expect(attempt=3, human_note="Rename the button.\n\nThe blue one.")
    play.hands_over().expect(status=Status.PASS, human_note=None)
    play.turn().expect(step="update-memory", human_note=None)
    play.hands_over().turn().expect(step="done")


def test_an_approvals_note_is_in_every_prompt_until_its_step_has_passed() -> None:
    """The note reaches the step after the review, stays for its retries, and is gone afterwards."""
    play = at_review().given(Approved(note="Mind the cents."))
    play.turn().expect(step="scaffold", human_note="Mind the cents.")
    play.fails().turn().expect(step="scaffold", attempt=2, human_note="Mind the cents.")
    play.hands_over().checked(red("t.py::cents")).turn().expect(step="impl", human_note=None)


@pytest.mark.parametrize(
    ("reason", "target"),
    [
        (Reason.NEEDS_CLARIFICATION, "bdd"),
        (Reason.CONSTITUTION_VIOLATION, "sdd-delta"),
        (Reason.SCOPE_WARNING, "sdd-delta"),
        (Reason.NFR_MISSING, "bdd"),
        (None, "bdd"),
    ],
)
def test_a_rejected_review_goes_where_its_reason_says(reason: Reason | None, target: str) -> None:
    """A rejection is routed by the table, its note is in the target's prompts until that has passed."""
    play = at_review().given(Rejected(reason=reason, note="Which currency?"))
    play.expect(step="review", status=Status.FAILING, reason=reason, attempt=1)
    play.turn().expect(step=target, attempt=1, reason=None, human_note="Which currency?")
    play.fails().turn().expect(step=target, attempt=2, human_note="Which currency?")
    play.hands_over().expect(human_note=None)


def test_a_note_given_while_an_executor_runs_belongs_to_the_next_prompt() -> None:
    """The running prompt has been sent: the note waits for the attempt after it."""
    play = Playbook(track_at("bdd")).turn().given(Noted(text="Use euros.")).expect(human_note=None)
    play.fails().expect(human_note="Use euros.").turn().expect(attempt=2, human_note="Use euros.")
    play.given(Noted(text="And cents.")).hands_over().expect(human_note="And cents.")
    play.turn().expect(step="sdd-delta", human_note="And cents.")


def test_a_note_reaches_the_step_that_a_failure_leads_to() -> None:
    """The next attempt gets the note, also when that is another step."""
    play = Playbook(track_at("verify")).turn().given(Noted(text="The spec is right.")).fails()
    play.turn().expect(step="impl", human_note="The spec is right.")


def test_a_second_note_is_added_below_the_first() -> None:
    """No note is lost."""
    play = Playbook(track_at("bdd")).given(Noted(text="One.")).given(Noted(text="Two."))
    play.expect(human_note="One.\n\nTwo.", status=Status.PENDING, orders="")


def test_the_facts_of_earlier_steps_reach_later_prompts() -> None:
    """What STATE forgets at a step change, the ledger keeps: failing tests, counts, files, attempts, hash."""
    play = at_review().given(Approved())
    play.step_passes(red("t.py::adds", "t.py::rounds"), files_changed=("tests/t.py",)).turn()
    play.expect(step="impl", failing_tests=(), files_changed=())
    assert ("t.py::adds", "t.py::rounds") == play.ledger.facts.failing_tests

    play.hands_over(files_changed=("cart.py",)).checked(red("t.py::rounds"))
    play.turn().hands_over(files_changed=("cart.py", "tax.py")).checked(green(2))
    play.step_passes(green(7), commit_hash="4f9a1c", summary="Cart adds up.")

    facts = play.ledger.facts
    assert TestCounts(passed=7) == facts.tests
    assert ("tests/t.py", "cart.py", "tax.py") == facts.files
    assert {"bdd": 1, "sdd-delta": 1, "contract": 1, "scaffold": 1, "impl": 2, "verify": 1} == facts.attempts
    assert ("4f9a1c", "Cart adds up.") == (facts.commit_hash, facts.summary)
    assert () == facts.failing_tests


def test_the_end_names_the_measured_tests_and_the_next_story() -> None:
    """A question after the end is answered by what was done and what could be started."""
    play = Playbook(track_at("verify")).given(Started(story="US-2", queue=True))
    play.step_passes(green(7)).step_passes().turn()

    result = play.decision.result
    assert isinstance(result, Finished)
    assert ("US-1", "US-2") == (result.story, result.next_story)
    assert "US-1 is done, 7/7 tests pass" == result.summary
    assert "US-1 is done, 7/7 tests pass" == play.notices[0].text


def test_the_checks_of_a_step_are_ordered_with_its_limits() -> None:
    """The order to measure carries what the rule asks for."""
    rules = with_rule("impl", post_check="make lint", post_check_timeout_s=30, check_timeout_min=4)
    play = Playbook(dispatched("impl", attempt=2), rules).hands_over()
    play.expect(status=Status.RUNNING, result="accepted")
    order = RunChecks(
        dispatch=play.dispatch.id, story="US-1", step="impl", attempt=2, tests="green", check_timeout_min=4,
        post_check="make lint", post_check_timeout_s=30,
    )  # fmt: skip
    assert (order,) == play.decision.effects
    assert Phase.CHECKING == play.dispatch.phase


def test_facts_about_another_dispatch_change_nothing() -> None:
    """A result is applied at most once, and only to the attempt it belongs to."""
    play = Playbook(dispatched("bdd"))
    late = ExecutorExited(dispatch="d0", exit=Exit(code=0), reading=found(handoff()))
    for event in (late, ExecutorStarted(dispatch="d0", pid=1), HandoffSettled(dispatch="d0", quiet_s=20)):
        play.refused(event, "STALE_FACT")
    play.hands_over().expect(status=Status.PASS)
    last = ExecutorExited(dispatch=dispatched().ledger.dispatch.id, exit=Exit(code=0), reading=Absent())  # type: ignore[union-attr]
    play.refused(last, "STALE_FACT")


def test_a_step_that_the_table_lost_is_named() -> None:
    """The story stops with the step's name; nothing is guessed."""
    play = Playbook(track_at("commit", Status.PASS), without_step("commit"))
    play.turn().expect(result="error", code="UNKNOWN_STEP", step="commit", status=Status.PASS)
    assert "commit" in play.decision.why
    play.refused(Retried(), "UNKNOWN_STEP")


def test_the_end_of_an_attempt_at_a_lost_step_asks_a_person() -> None:
    """The executor ends only once: its track must not be left running for ever."""
    play = Playbook(dispatched("commit"), without_step("commit")).exits(found(handoff()))
    play.expect(status=Status.NEEDS_HUMAN, last_error="the step table has no step commit", orders="notify")
    assert play.ledger.dispatch is None


# --- what a decision rests on ---------------------------------------------------------------------
def rules_of(play: Playbook) -> dict[str, str]:
    """Return the grounds of the last decision."""
    return {one.rule: one.value for one in play.decision.grounds}


def test_every_decision_names_the_rule_that_made_it() -> None:
    """Rows of the step table where there is one, with the values they had."""
    play = Playbook(track_at("bdd", Status.PASS)).turn()
    assert {"steps.bdd.next_on_pass": "sdd-delta", "steps.sdd-delta.timeout_min": "5"} == rules_of(play)
    assert "bdd passed; sdd-delta attempt 1 of 3" == play.decision.why

    play = Playbook(track_at("contract", Status.PASS)).turn()
    assert {"steps.contract.next_on_pass": "review", "steps.review.requires_human": "true"} == rules_of(play)

    play = Playbook(track_at("impl", Status.FAILING, reason=Reason.NEEDS_CLARIFICATION)).turn()
    assert "review" == rules_of(play)["steps.impl.on_fail.needs_clarification"]
    assert "impl failed with reason needs_clarification; review is a human step" == play.decision.why

    play = Playbook(track_at("impl", Status.FAILING, attempt=2)).turn()
    retried = {"steps.impl.on_fail.default": "impl", "steps.impl.max_attempts": "3 of 5"}
    assert retried.items() <= rules_of(play).items()


def test_limits_that_stop_a_track_are_named() -> None:
    """Attempts, visits, time, free repeats, and what only a person can answer."""
    spent = Playbook(track_at("impl", Status.FAILING, attempt=5)).turn()
    assert {"steps.impl.max_attempts": "5 of 5"} == rules_of(spent)

    lost = Playbook(track_at("verify", Status.FAILING, ledger=Ledger(automatic=True, visits={"impl": 6})))
    assert "6" == rules_of(lost.turn())["steps.impl.max_visits"]

    unrouted = Playbook(track_at("bdd", Status.FAILING, reason=Reason.SCOPE_WARNING)).turn()
    assert {"steps.bdd.on_fail.scope_warning": "no route"} == rules_of(unrouted)

    vanished = Playbook(dispatched("impl")).exits(code=None, by="lost")
    assert {"limits.free_repeats": "1 of 3"} == rules_of(vanished)

    late = Playbook(dispatched("impl")).given(DeadlinePassed(dispatch=DISPATCH, elapsed_min=10.1))
    assert {"steps.impl.timeout_min": "10"} == rules_of(late)


def test_where_no_other_rule_applied_it_is_the_row_of_the_transition_table() -> None:
    """A refusal is named by its code."""
    assert {"transitions.pending.paused": "pending"} == rules_of(Playbook(track_at("bdd")).given(Paused()))
    assert {"refusals.WRONG_STEP": "approved"} == rules_of(Playbook(track_at("bdd")).given(Approved()))


def test_a_decision_carries_what_it_was_made_with() -> None:
    """With it and the event, it can be made again."""
    play = Playbook(track_at("bdd")).given(Paused())

    assert Basis(play.rules, play.now) == play.decision.basis
