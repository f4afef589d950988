"""STATE.json changed outside handoffd: adopted, held, or undone; and a journal older than it."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from msgspec.structs import replace
from tests.support.playbook import Playbook, dispatched, state_at, track_at, with_rule

from handoffd.engine.decision import next_command
from handoffd.engine.events import (
    Aborted,
    Approved,
    EditConfirmed,
    Event,
    Noted,
    Rejected,
    Restored,
    Resumed,
    Retried,
    RolledBack,
    Started,
    StateEdited,
)
from handoffd.engine.run import Finding
from handoffd.engine.track import Facts, Ledger, Queued, Track
from handoffd.protocol.state import State, Status

EXTERNAL = track_at("impl", Status.RUNNING)


def edited(
    step: str, status: Status = Status.PENDING, policy: Any = "hold_gates", **fields: Any
) -> StateEdited:
    """Return the fact that STATE.json now says this."""
    return StateEdited(state=state_at(step, status, **fields), policy=policy)


# --- adopted --------------------------------------------------------------------------------------
def test_a_state_found_in_a_project_is_adopted() -> None:
    """handoffd may be added to a project that other tools began."""
    play = Playbook(Track()).given(edited("impl", Status.RUNNING)).expect(result="accepted", orders="")
    assert state_at("impl", Status.RUNNING) == play.state


def test_a_story_that_was_done_before_is_done() -> None:
    """It is not done again, others may wait for it, and a project that has done one needs no bootstrap."""
    found = StateEdited(state=state_at("done", Status.PASS), done=("US-0", "US-1"))
    play = Playbook(Track()).given(found)
    assert ("US-0", "US-1") == play.ledger.stories_done
    play.refused(Started(story="US-0"), "ALREADY_COMPLETED")
    play.given(Started(story="US-2", blocked_by=("US-0",), bootstrapped=False)).expect(step="bdd")


def test_an_edit_that_is_held_brings_no_story_to_its_end_before_it_is_confirmed() -> None:
    """What others claim opens no gate, and nothing that waits for the story."""
    edit = StateEdited(state=state_at("done", Status.PASS), done=("US-1",))
    play = Playbook(track_at("contract")).given(edit)
    assert () == play.ledger.stories_done
    assert ("US-1",) == play.given(EditConfirmed()).ledger.stories_done


def test_done_has_one_status_whatever_an_edit_says() -> None:
    """It is a step that has passed."""
    play = Playbook(track_at("update-memory")).given(edited("done", Status.PENDING))
    play.expect(step="done", status=Status.PASS)


@pytest.mark.parametrize("policy", ["hold_gates", "adopt"])
@pytest.mark.parametrize("status", list(Status))
def test_an_edit_that_passes_no_gate_is_adopted(status: Status, policy: str) -> None:
    """People and Level 1 tools may write the file while no executor of ours runs."""
    play = Playbook(track_at("scaffold")).given(edited("impl", status, policy, attempt=2))
    play.expect(step="impl", status=status, attempt=2, result="accepted", orders="")
    assert play.ledger.dispatch is None


def test_an_edit_passes_no_gate_that_was_turned_off_while_a_person_was_asked() -> None:
    """It is held as before; a gate without a question to a person is not passed."""
    off = with_rule("review", requires_human=False)
    play = Playbook(track_at("contract", Status.PASS)).turn()
    play.rules = off
    play.given(edited("scaffold")).expect(step="review", status=Status.NEEDS_HUMAN, result="needs_human")
    assert play.ledger.held_edit is not None
    Playbook(track_at("review"), off).given(edited("scaffold")).expect(step="scaffold", result="accepted")


@pytest.mark.parametrize(
    ("step", "status", "kind", "gate"),
    [
        ("bdd", Status.NEEDS_HUMAN, "needs_human", None),
        ("bdd", Status.TIMEOUT, "timeout", None),
        ("review", Status.NEEDS_HUMAN, "needs_human", "review"),
    ],
)
def test_a_wait_for_a_person_since_an_edit_is_in_a_notice(
    step: str, status: Status, kind: str, gate: str | None
) -> None:
    """With the command that leads on; the same edit again makes no second notice."""
    event = replace(edited(step, status), tells=True)
    play = Playbook(track_at("impl")).given(event)
    (notice,) = play.notices
    assert (kind, step, next_command(play.track, play.rules)) == (notice.notice, notice.step, notice.action)
    assert gate == play.ledger.gate
    play.given(replace(event, state=event.state.with_(human_note="?"))).expect(orders="")
    Playbook(track_at("impl")).given(edited(step, status)).expect(orders="")  # of an earlier release


def test_an_edit_that_moves_a_story_makes_another_notice_of_our_own_pause() -> None:
    """The first one names another step."""
    ledger = Ledger(automatic=True, paused_by="handoffd: claude is gone", remedy="handoffd doctor")
    play = Playbook(track_at("impl", ledger=ledger)).given(replace(edited("bdd", Status.PENDING), tells=True))
    (notice,) = play.notices
    assert ("blocked", "bdd") == (notice.notice, notice.step)
    assert "handoffd doctor && handoffd resume {project}" == notice.action


@pytest.mark.parametrize(
    ("step", "status", "capped"),
    [
        ("bdd", Status.PENDING, False),
        ("bdd", Status.RUNNING, False),
        ("bdd", Status.FAILING, False),
        ("impl", Status.PENDING, True),
    ],
)
def test_a_cap_of_one_step_is_not_that_of_another_to_which_an_edit_moves_the_story(
    step: str, status: Status, capped: bool
) -> None:
    """Its notice names the first one; the next turn counts again."""
    ledger = Ledger(automatic=True, capped=Finding(scope="attempt", unit="usd", spent=9, cap=8))
    event = replace(edited(step, status), tells=True)
    play = Playbook(track_at("impl", Status.FAILING, ledger=ledger)).given(event).expect(orders="")
    assert capped == (play.ledger.capped is not None)


def test_an_edit_does_not_open_a_track_that_was_aborted() -> None:
    """Only a start and a rollback do."""
    play = Playbook(track_at("bdd")).given(Aborted()).given(edited("bdd"))
    play.expect(step="bdd", status=Status.PENDING)
    assert play.ledger.closed
    play.turn().expect(result="blocked", orders="")


def test_an_attempt_that_is_not_ours_may_be_finished_by_an_edit() -> None:
    """Hooks at Level 1 write the result; a note given meanwhile is for the next prompt."""
    play = Playbook(EXTERNAL).given(Noted(text="Cents.")).given(edited("impl", Status.PASS))
    play.expect(status=Status.PASS, human_note="Cents.")
    assert play.ledger.next_note is None


def test_the_same_story_keeps_its_ledger_and_another_begins_with_its_own() -> None:
    """What was proved for one story is not taken for proof of the next."""
    kept = Ledger(automatic=True, stories_done=("US-0",))
    ledger = replace(kept, red_done=True, new_tests=2, visits={"impl": 2}, facts=Facts(files=("a",)))
    play = Playbook(track_at("impl", ledger=ledger))
    assert ledger == Playbook(play.track).given(edited("scaffold")).ledger
    other = play.given(edited("bdd", story="US-2"))
    assert kept == other.ledger


def test_what_counts_within_a_step_begins_anew_at_another() -> None:
    """Timeouts and free repetitions count for one step; a wait has a new notice."""
    ledger = Ledger(automatic=True, timeouts=1, free_repeats=2, told="blocked by US-0")
    play = Playbook(track_at("impl", ledger=ledger))
    same = Playbook(play.track).given(edited("impl", Status.FAILING))
    assert Ledger(automatic=True, timeouts=1, free_repeats=2) == same.ledger
    assert Ledger(automatic=True) == play.given(edited("scaffold")).ledger


# --- held -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (state_at("bdd"), state_at("impl")),
        (state_at("bdd"), state_at("done", Status.PASS)),
        (state_at("bdd"), state_at("review", Status.PASS)),
        (state_at("review", Status.NEEDS_HUMAN), state_at("review", Status.PASS)),
        (state_at("review", Status.NEEDS_HUMAN), state_at("scaffold")),
        (state_at("bdd"), state_at("commit")),
        (state_at("bdd"), state_at("custom")),
        (state_at("bdd"), state_at("custom", task_type="custom")),
        (state_at("bdd"), state_at("update-memory", task_type="custom")),
        (state_at("impl"), state_at("impl", story="US-2")),
        (state_at("bootstrap", story=None), state_at("impl")),
        (state_at("custom", task_type="custom"), state_at("verify")),
    ],
)
def test_an_edit_past_a_gate_is_held_until_a_person_confirms_it(before: State, after: State) -> None:
    """A gate opens only through a verb: by no leap, no detour, no other pipeline, no other story."""
    play = Playbook(Track(state=before, ledger=Ledger(automatic=True))).given(StateEdited(state=after))
    assert before == play.state
    play.expect(result="needs_human", orders="notify")
    assert "human step review" in play.notices[0].text
    play.turn().expect(result="blocked", orders="")

    play.given(EditConfirmed(by="mei")).expect(result="accepted")
    assert after == play.state
    assert play.ledger.held_edit is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (state_at("contract", Status.PASS), state_at("review")),
        (state_at("contract", Status.PASS), state_at("review", Status.NEEDS_HUMAN)),
        (state_at("review", Status.NEEDS_HUMAN), state_at("review", Status.FAILING)),
        (state_at("review", Status.PASS), state_at("scaffold")),
        (state_at("impl"), state_at("bdd")),
        (state_at("impl"), state_at("done", Status.PASS)),
        (state_at("done", Status.PASS), state_at("impl")),
        (state_at("impl"), state_at("custom", task_type="custom", story="C-1")),
        (state_at("custom", task_type="custom"), state_at("done", Status.PASS, task_type="custom")),
    ],
)
def test_an_edit_that_only_comes_to_a_gate_is_adopted(before: State, after: State) -> None:
    """Up to the gate, back by a rejection, on from one that was opened, or backwards: none is passed."""
    play = Playbook(Track(state=before)).given(StateEdited(state=after)).expect(result="accepted")
    assert after == play.state


def test_a_confirmation_is_a_look_by_a_person() -> None:
    """The counters against endless loops begin anew."""
    ledger = Ledger(automatic=True, visits={"bdd": 5}, free_repeats=2)
    play = Playbook(track_at("bdd", ledger=ledger)).given(edited("impl")).given(EditConfirmed())
    assert Ledger(automatic=True) == play.ledger


def test_only_a_held_edit_is_confirmed_and_not_while_an_executor_runs() -> None:
    """After an abort there is none; while an attempt runs it would pull its STATE from under it."""
    Playbook(track_at("bdd")).refused(EditConfirmed(), "NOTHING_HELD")
    play = Playbook(track_at("bdd")).given(edited("impl"))
    running = Playbook(dispatched("bdd").with_ledger(held_edit=play.ledger.held_edit))
    running.refused(EditConfirmed(), "ALREADY_RUNNING")
    play.given(Aborted()).refused(EditConfirmed(), "NOTHING_HELD")


# --- undone ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("policy", ["hold_gates", "adopt", "refuse"])
def test_an_edit_while_an_executor_of_ours_runs_is_undone(
    policy: Literal["hold_gates", "adopt", "refuse"],
) -> None:
    """No agent writes its own result; a person is warned."""
    play = Playbook(dispatched("impl"))
    play.refused(edited("impl", Status.PASS, policy), "STATE_TAMPERED").expect(orders="notify")
    assert "warning" == play.notices[0].notice


@pytest.mark.parametrize("status", [Status.PASS, Status.NEEDS_HUMAN])
def test_an_edit_seen_while_an_executor_ran_is_undone_when_that_has_ended(status: Status) -> None:
    """It is decided on in its turn, and the executor's end may have come first."""
    made = edited("done", Status.PASS, "adopt")
    for seen in (replace(made, dispatch="d1"), replace(made, overtaken=True)):
        play = Playbook(track_at("review", status)).refused(seen, "STATE_TAMPERED").expect(orders="notify")

        assert ("review", None) == (play.state.step, play.ledger.held_edit)


@pytest.mark.parametrize("verb", [Approved(), Rejected(), RolledBack(step="bdd")])
def test_a_verb_that_moves_the_story_drops_the_edit_that_is_held(verb: Event) -> None:
    """It began at the story's earlier step; confirmed now, it would lead somewhere else."""
    play = Playbook(track_at("review", Status.NEEDS_HUMAN)).given(edited("impl"))
    assert None is not play.ledger.held_edit

    assert None is play.given(verb).ledger.held_edit


@pytest.mark.parametrize("policy", ["hold_gates", "adopt"])
def test_an_edit_to_an_unknown_step_is_undone(policy: Literal["hold_gates", "adopt"]) -> None:
    """Nothing could follow from it; the warning names the step."""
    play = Playbook(track_at("impl")).refused(edited("deploy", policy=policy), "UNKNOWN_STEP")
    assert "deploy" in play.notices[0].text


@pytest.mark.parametrize("story", ["US-2", None])
def test_an_edit_gives_the_own_track_of_a_story_to_no_other_one(story: str | None) -> None:
    """Its clone, its branch and its name are that story's, with any policy."""
    edit = replace(edited("impl", policy="adopt", story=story), own="US-1")
    play = Playbook(track_at("bdd", story="US-1")).refused(edit, "OTHER_TRACK")
    assert "US-1 has this track to itself" in play.notices[0].text
    play.given(replace(edited("impl", policy="adopt", story="US-1"), own="US-1")).expect(result="accepted")


def test_an_edit_does_not_take_up_a_story_that_has_a_track_of_its_own() -> None:
    """Two agents would work in its clone."""
    ledger = Ledger(automatic=True, beside=(Queued(story="US-2"),))
    play = Playbook(track_at("impl", ledger=ledger))
    play.refused(edited("impl", policy="adopt", story="US-2"), "OTHER_TRACK")
    assert "US-2 has a track of its own" in play.notices[0].text


def test_a_project_may_refuse_every_edit_or_trust_every_writer() -> None:
    """`external_edits: refuse`, and `external_edits: adopt`, which lets edits pass gates."""
    play = Playbook(track_at("impl")).refused(edited("impl", Status.PASS, "refuse"), "EDIT_REFUSED")
    play.expect(orders="notify")
    Playbook(track_at("bdd")).given(edited("impl", policy="adopt")).expect(step="impl", result="accepted")


def test_an_adopted_edit_is_worked_on_like_any_other_state() -> None:
    """The next turn goes on from there."""
    play = Playbook(track_at("scaffold")).given(edited("impl", Status.FAILING, attempt=4))
    play.turn().expect(result="dispatched", attempt=5).given(Retried()).expect(code="ALREADY_RUNNING")


# --- restored -------------------------------------------------------------------------------------
def test_after_a_restore_nothing_is_dispatched_until_a_person_resumes() -> None:
    """What has happened since the backup is not known here."""
    play = Playbook(track_at("impl")).given(Restored(overtaken=False, by="eve")).turn()

    play.expect(result="blocked", orders="", status=Status.PENDING)
    play.given(Resumed(by="eve")).turn().expect(result="dispatched")


def test_an_attempt_that_a_restore_overtook_is_let_go_at_no_cost() -> None:
    """It may have ended long ago; its end is not waited for, and its attempt not counted."""
    play = Playbook(dispatched("impl", attempt=2)).given(Noted(text="Cents."))

    play.given(Restored(overtaken=True), after_min=5)

    play.expect(status=Status.PENDING, attempt=2, human_note="Cents.", orders="")
    assert None is play.ledger.dispatch
    assert "when the journal was backed up" in str(play.state.last_error)


def test_a_restore_keeps_the_latest_attempt_and_a_persons_pause() -> None:
    """The end of the attempt will be judged as ever."""
    play = Playbook(dispatched("impl")).given(Restored(overtaken=False)).expect(status=Status.RUNNING)
    play.exits().expect(status=Status.FAILING)
    paused = Playbook(track_at("impl").with_ledger(paused_by="mei"))
    assert "mei" == paused.given(Restored(overtaken=False)).ledger.paused_by


def test_a_project_that_comes_back_from_another_daemon_waits_and_says_so() -> None:
    """What was done there only its files tell; a story that it carried past a gate waits for `confirm`."""
    back = Restored(overtaken=True, by="another handoffd", owner="/var/lib/handoffd")
    play = Playbook(dispatched("impl")).given(back)
    assert None is play.ledger.dispatch
    play.expect(status=Status.PENDING, orders="notify")
    assert "when another handoffd took the project" in str(play.state.last_error)
    play.turn().expect(result="blocked")

    past = Playbook(track_at("review", Status.NEEDS_HUMAN)).given(back).given(edited("done", Status.PASS))
    past.expect(step="review", status=Status.NEEDS_HUMAN)
    past.given(EditConfirmed(by="mei")).expect(step="done", status=Status.PASS)
