"""A track's inbox: order, answers, and what becomes of those that wait when it ends."""

from __future__ import annotations

import anyio
import pytest

from handoffd.engine.decision import Accepted, Decision
from handoffd.engine.events import DispatchFailed, Event, ExecutorStarted, Noted, Retried
from handoffd.engine.track import Track
from handoffd.errors import Refused, StoreError
from handoffd.track.inbox import Question, Questions, must_not_be_lost

DECISION = Decision(
    track=Track(),
    result=Accepted(step="bdd", status="pending", message="taken", caller_instruction="go on"),
    why="a test says so",
)
STARTED = ExecutorStarted(dispatch="d1", pid=1)


async def test_questions_are_taken_in_the_order_they_were_put() -> None:
    """Facts, verbs and turns alike."""
    questions = Questions()
    for event in (STARTED, None, Retried()):
        questions.put(event)

    taken = [(await questions.take()).event for _ in range(3)]

    assert ([STARTED, None, Retried()], 0) == (taken, len(questions))


async def test_whoever_takes_waits_for_the_next_one() -> None:
    """And gets it when it comes."""
    questions, taken = Questions(), list[Question]()

    async def take() -> None:
        taken.append(await questions.take())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take)
        await anyio.wait_all_tasks_blocked()
        assert [] == taken
        questions.put(STARTED)

    assert [STARTED] == [question.event for question in taken]


async def test_the_asker_is_told_what_was_decided() -> None:
    """Once it is answered."""
    question = Questions().put(Retried())
    question.decision = DECISION
    question.answer()

    assert DECISION == await question.decided()


async def test_the_asker_waits_for_the_answer() -> None:
    """And all who ask for the same one are told."""
    question, told = Questions().put(Retried()), list[Decision]()

    async def ask() -> None:
        told.append(await question.decided())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        assert [] == told
        question.decision = DECISION
        question.answer()

    assert [DECISION, DECISION] == told


async def test_a_decision_that_was_committed_counts_whatever_came_after_it() -> None:
    """A turn that failed after the verb is not the verb's failure."""
    question = Question(Retried(), decision=DECISION)
    question.fail(StoreError("the disk is full"))

    assert DECISION == await question.decided()


async def test_nobody_waits_for_a_track_that_has_ended() -> None:
    """Those that wait and those that come later are refused; putting itself never fails."""
    questions = Questions()
    waiting = questions.put(Retried())

    questions.close()

    for question in (waiting, questions.put(Noted(text="late"))):
        with pytest.raises(Refused) as refused:
            await question.decided()
        assert "RESTARTING" == refused.value.code
    assert (True, 0) == (questions.closed, len(questions))


async def test_what_must_stay_is_not_turned_away() -> None:
    """A journal that cannot be written fails the verbs; the end of an executor waits for it."""
    questions = Questions()
    fact, verb, turn = (questions.put(event) for event in (STARTED, Retried(), None))

    questions.turn_away(StoreError("the disk is full"), keep=must_not_be_lost)

    for question in (verb, turn):
        with pytest.raises(StoreError):
            await question.decided()
    assert fact is await questions.take()


@pytest.mark.parametrize(
    ("event", "kept"),
    [(STARTED, True), (Retried(), False), (DispatchFailed(code="X", message="x"), False)],
)
def test_what_exists_nowhere_else_must_not_be_lost(event: Event, kept: bool) -> None:
    """What a person asked can be asked again, and a turn comes again by itself."""
    assert kept is must_not_be_lost(event)
