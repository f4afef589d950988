"""An executor without activity: a warning, then its end; its hand-off counts all the same."""

from __future__ import annotations

import pytest
from tests.support.playbook import DISPATCH, Playbook, dispatched, found, handoff

from handoffd.engine.decision import StopTree
from handoffd.engine.events import Aborted, ExecutorQuiet, ExecutorStalled
from handoffd.engine.run import Silence
from handoffd.engine.track import Phase, StopReason
from handoffd.protocol.handoff import Absent
from handoffd.protocol.state import Status

QUIET = ExecutorQuiet(
    dispatch=DISPATCH,
    silence=Silence(quiet_min=5.2, limit_min=10, output_bytes=41_213, cpu_s=0.31, written_bytes=96),
)
STALLED = ExecutorStalled(
    dispatch=DISPATCH,
    silence=Silence(quiet_min=10.1, limit_min=10, output_bytes=41_213, cpu_s=0.64, written_bytes=192),
)
SIGNS = "no output (after 41,213 bytes), 0.6 s of processor time, 192 bytes written"


def test_people_are_warned_while_there_is_time_to_look() -> None:
    """The notice says what was checked, what will happen, and how to look; the attempt goes on."""
    play = Playbook(dispatched("bdd")).given(QUIET).expect(status=Status.RUNNING, orders="notify")

    (warning,) = play.notices
    assert ("warning", "handoffd log {project}") == (warning.notice, warning.action)
    assert "bdd: rehearsal shows no sign of life for 5.2 min" == warning.text
    assert str(warning.why).endswith("it is ended after 10 min of that")
    assert Phase.EXECUTING is play.dispatch.phase


def test_a_stalled_executor_is_ended_and_its_attempt_has_failed() -> None:
    """The error names the signs that were checked, and its last output."""
    play = Playbook(dispatched("bdd")).given(STALLED)
    assert (StopTree(dispatch=DISPATCH, why=StopReason.STALL),) == play.decision.effects
    assert ["settings.execute.stall_min"] == [ground.rule for ground in play.decision.grounds]

    play.exits(Absent(), code=None, signal=15, by="stop", tail="waiting for the model\n")
    error = f"ended without a hand-off, it showed no activity for 10.1 min: {SIGNS} (waiting for the model)"
    play.expect(status=Status.FAILING, last_error=error).turn().expect(attempt=2)


def test_a_hand_off_of_a_stalled_executor_counts() -> None:
    """It was there, and the agent would not end."""
    play = Playbook(dispatched("bdd")).given(STALLED)
    play.exits(found(handoff()), code=None, signal=15, by="stop").expect(status=Status.PASS, last_error=None)


def test_one_that_ended_by_itself_in_that_moment_is_judged_by_its_end() -> None:
    """The stop came too late."""
    play = Playbook(dispatched("bdd")).given(STALLED).exits(Absent(), code=3)
    play.expect(status=Status.FAILING, last_error="exited with code 3, without a hand-off")


def test_a_shim_that_had_to_be_killed_makes_no_free_repetition_of_a_stall() -> None:
    """An agent that cannot be ended would stall again."""
    play = Playbook(dispatched("bdd")).given(STALLED).exits(Absent(), code=None, by="lost")
    play.expect(status=Status.FAILING)


def test_a_person_may_abort_what_is_being_ended() -> None:
    """As with every other reason to end it."""
    play = Playbook(dispatched("bdd")).given(STALLED).given(Aborted(by="mei")).expect(orders="stop_tree")
    play.exits(Absent(), code=None, signal=9, by="stop")
    play.expect(status=Status.NEEDS_HUMAN, last_error="aborted by mei")


@pytest.mark.parametrize("phase", [Phase.BASELINE, Phase.STOPPING, Phase.CHECKING])
def test_silence_is_asked_of_the_executor_only(phase: Phase) -> None:
    """Checks have limits of their own, and what is being ended already is."""
    play = Playbook(dispatched("impl", phase))
    play.refused(QUIET, "STALE_FACT").refused(STALLED, "STALE_FACT")
