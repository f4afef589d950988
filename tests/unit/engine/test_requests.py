"""A choice of executors: when it is taken, and for how long it holds."""

from __future__ import annotations

import pytest
from tests.support.playbook import Playbook, dispatched, track_at

from handoffd.engine.decision import Refusal
from handoffd.engine.events import ExecutorChosen, Resumed
from handoffd.engine.track import Ledger, Track
from handoffd.protocol.state import Status

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
