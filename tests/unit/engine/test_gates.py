"""A story under each value of `gates`: where it stops, what the record says, whether it lands."""

from __future__ import annotations

from typing import get_args

import pytest
from tests.support.playbook import Playbook, green, red, state_at, track_at

from handoffd.engine.beside import may_land
from handoffd.engine.decision import Ground, Notify
from handoffd.engine.events import Approved, EditConfirmed, Landed, Rejected, RolledBack, StateEdited, Undone
from handoffd.engine.routing import left_to_land
from handoffd.engine.track import Ledger, Workspace
from handoffd.inspection.own_files import shipped_layers
from handoffd.protocol.rulebook import build_rulebook
from handoffd.protocol.rules import Gates, RuleBook
from handoffd.protocol.state import Reason, Status

CLONE = Workspace(folder="/c", kind="clone", branch="handoffd/US-1")
OVER = Ground(rule="settings.gates", value="after")


def rules(gates: Gates) -> RuleBook:
    """Return the shipped table with `gates` laid over it."""
    return build_rulebook(shipped_layers(None), gates=gates)


def story(gates: Gates, step: str = "bdd", status: Status = Status.PENDING) -> Playbook:
    """Return a story in a clone."""
    return Playbook(track_at(step, status, ledger=Ledger(automatic=True, workspace=CLONE)), rules(gates))


def goes_on(play: Playbook) -> Playbook:
    """Let every step pass, until a person is asked or the story is done."""
    while True:
        play.turn()
        if play.ledger.dispatch is None:
            return play
        play.runs()
        step = play.state.step
        play.hands_over()
        if play.ledger.dispatch is not None:
            expected = play.rules.steps[step].tests
            play.checked(tests=red("t.py::new") if expected == "red" else green())


# --- where it stops -----------------------------------------------------------------------------------
@pytest.mark.parametrize("gates", get_args(Gates))
def test_a_story_stops_at_each_gate_that_is_wanted_and_nowhere_else(gates: Gates) -> None:
    """In the order of its steps, and is done when each was approved."""
    wanted = {"before": ["review"], "after": ["acceptance"], "both": ["review", "acceptance"], "none": []}
    play, stops = goes_on(story(gates)), []
    while play.state.status is Status.NEEDS_HUMAN:
        stops.append(play.state.step)
        goes_on(play.given(Approved()))

    assert wanted[gates] == stops
    play.expect(result="done", step="done")


def test_a_gate_that_is_passed_over_is_in_the_record() -> None:
    """In words, and as what the decision rests on."""
    play = story("after", "contract").step_passes().turn()

    play.expect(result="dispatched", step="scaffold")
    assert "contract passed, and review is passed over (gates: after)" in play.decision.why
    assert OVER in play.decision.grounds
    assert play.ledger.unseen


def test_a_rejected_acceptance_goes_back_to_the_code_with_what_the_person_wrote() -> None:
    """And comes to a person again, who then approves, and can take that back."""
    play = goes_on(story("after", "impl")).expect(step="acceptance", status=Status.NEEDS_HUMAN)
    assert play.notices[0].review
    play.given(Rejected(reason=Reason.NFR_MISSING, note="Too slow.")).expect(status=Status.FAILING)
    play.turn().expect(result="dispatched", step="impl", attempt=1, human_note="Too slow.")
    play.hands_over().checked(tests=green())

    goes_on(play).expect(step="acceptance", status=Status.NEEDS_HUMAN)
    play.given(Approved(by="mei", undoable=True)).given(Undone(by="mei")).expect(step="acceptance")
    goes_on(play.given(Approved())).expect(step="done")


@pytest.mark.parametrize(
    ("gates", "reason", "step"),
    [
        ("after", Reason.NEEDS_CLARIFICATION, "bdd"),
        ("both", Reason.NEEDS_CLARIFICATION, "review"),
        ("after", Reason.CONSTITUTION_VIOLATION, "sdd-delta"),
        ("both", Reason.SCOPE_WARNING, "impl"),
    ],
)
def test_the_reason_of_a_rejection_says_where_it_leads(gates: Gates, reason: Reason, step: str) -> None:
    """As the step table has it."""
    play = story(gates, "acceptance", Status.NEEDS_HUMAN).given(Rejected(reason=reason))
    assert f"back to {step}" in play.decision.why
    play.turn().expect(step=step)


def test_a_question_at_the_code_is_asked_there_where_there_is_no_review() -> None:
    """The night stops for a question, not for a gate that was not wanted."""
    play = story("after", "impl").step_fails(Reason.NEEDS_CLARIFICATION).turn()
    play.expect(result="needs_human", step="impl", status=Status.NEEDS_HUMAN)
    assert "handoffd note {project} TEXT" == play.decision.result.next_command


# --- while `gates` is changed -------------------------------------------------------------------------
@pytest.mark.parametrize("gates", get_args(Gates))
@pytest.mark.parametrize("step", ["review", "acceptance"])
def test_a_story_that_waits_at_a_gate_is_decided_there_whatever_gates_is_by_then(
    step: str, gates: Gates
) -> None:
    """No turn and no edit of STATE.json takes it past, and an approval leads on."""
    asked = Ledger(automatic=True, gate=step)
    play = Playbook(track_at(step, Status.NEEDS_HUMAN, ledger=asked), rules(gates))
    play.turn().expect(step=step, status=Status.NEEDS_HUMAN)
    for passed in (state_at(step, Status.PASS), state_at("update-memory"), state_at("done", Status.PASS)):
        play.given(StateEdited(state=passed, policy="hold_gates")).expect(result="needs_human", step=step)
        assert play.ledger.held_edit is not None
    play.given(Approved()).turn().expect(result="dispatched", step=rules(gates).steps[step].next_on_pass)


def test_an_edit_past_a_gate_off_the_way_is_a_persons_to_confirm() -> None:
    """A story may come to a review that is on no way, by a route of the project's own."""
    play = story("after", "review", Status.NEEDS_HUMAN)
    play.given(StateEdited(state=state_at("impl"), policy="hold_gates")).expect(step="review")
    play.given(EditConfirmed()).expect(step="impl")


def test_a_story_that_runs_comes_to_a_gate_that_is_turned_on() -> None:
    """From the next step on: what was passed by then was passed."""
    play = story("before", "verify")
    play.turn().runs()
    play.rules = rules("both")
    play.hands_over().checked(tests=green())
    play.turn().expect(step="acceptance", status=Status.NEEDS_HUMAN)


# --- what lands ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("gates", get_args(Gates))
def test_only_what_a_person_was_asked_about_lands_by_itself(gates: Gates) -> None:
    """And the end of any other story says why not, and what to type."""
    play = story(gates)
    while play.state.step != "done":
        goes_on(play)
        if play.state.status is Status.NEEDS_HUMAN:
            play.given(Approved())
    (told,) = [order for order in play.decision.effects if isinstance(order, Notify)]
    said = "no person was asked about it, so it does not land by itself"

    assert (gates != "none") == may_land(play.track)
    assert (
        (gates == "none") == (said in (told.why or "")) == (said in play.decision.result.caller_instruction)
    )
    assert "handoffd land {project} --story US-1" == told.action
    assert (("US-1",) if gates != "none" else ()) == left_to_land(play.track, "US-2")
    play.given(Landed(story="US-1", onto="main", commit="0" * 40, by="mei"))
    assert not play.ledger.unseen


def test_a_gate_that_comes_too_late_is_no_look_at_what_was_passed() -> None:
    """`gates` may be changed while a story is at work; only an approval makes up for a gate passed over."""
    play = story("none", "contract").step_passes().turn()
    play.rules = rules("before")
    assert not may_land(goes_on(_passing(play)).expect(step="done").track)

    play = story("none", "contract").step_passes().turn()
    play.rules = rules("before")
    _passing(play).given(RolledBack(step="review"))
    goes_on(play.turn().given(Approved()))
    assert may_land(play.expect(step="done").track)


def test_a_custom_task_lands_by_itself_but_where_nothing_does() -> None:
    """A person has asked for it in words of their own; with `gates: none`, nothing lands."""
    for gates in get_args(Gates):
        ledger = Ledger(automatic=True, workspace=CLONE)
        play = Playbook(track_at("custom", task_type="custom", ledger=ledger), rules(gates))
        assert (gates != "none") == may_land(goes_on(play).expect(step="done").track)


def test_outside_of_a_clone_there_is_nothing_to_land() -> None:
    """The end says only that no person was asked."""
    play = goes_on(Playbook(track_at("update-memory"), rules("none")))
    assert play.notices[0].why is not None
    assert play.notices[0].why.endswith("no person was asked about it")


def _passing(play: Playbook) -> Playbook:
    """Let the scaffold that runs pass."""
    return play.hands_over().checked(tests=red("t.py::new"))
