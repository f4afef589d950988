"""A track's inbox: order, answers, and its end."""

from __future__ import annotations

import anyio
import pytest

from handoffd.engine.decision import Accepted, Decision
from handoffd.engine.events import DispatchFailed, Event, ExecutorStarted, Noted, Retried
from handoffd.engine.track import Track
from handoffd.errors import Refused, StoreError
from handoffd.track.inbox import Question, Questions
from handoffd.track.track import must_not_be_lost

DECISION = Decision(
    track=Track(),
    result=Accepted(step="bdd", status="pending", message="taken", caller_instruction="go on"),
    why="a test decides",
)
Inbox = Questions[Event, Decision]
STARTED = ExecutorStarted(dispatch="d1", pid=1)


async def test_questions_are_taken_in_order() -> None:
    """Facts, verbs and turns alike; an empty inbox waits for the next one."""
    questions: Inbox = Questions()
    events: list[Event | None] = [STARTED, None, Retried(), STARTED]
    taken: list[Event | None] = []

    async def take() -> None:
        while len(taken) < len(events):
            taken.append((await questions.take()).event)

    for event in events[:3]:
        questions.put(event)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take)
        await anyio.wait_all_tasks_blocked()
        assert (events[:3], 0) == (taken, len(questions))
        questions.put(events[3])

    assert events == taken


async def test_every_caller_of_a_question_gets_the_decision() -> None:
    """Once it is answered."""
    questions: Inbox = Questions()
    question, answers = questions.put(Retried()), list[Decision]()

    async def ask() -> None:
        answers.append(await question.decided())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        assert [] == answers
        question.decision = DECISION
        question.answer()

    assert [DECISION, DECISION] == answers


async def test_a_committed_decision_counts_in_spite_of_later_errors() -> None:
    """A failed turn after a verb does not fail the verb."""
    question = Question[Event, Decision](Retried(), decision=DECISION)
    question.fail(StoreError("the disk is full"))

    assert DECISION == await question.decided()


async def test_an_ended_track_refuses_all_questions() -> None:
    """Waiting ones and later ones; putting a fact never fails."""
    questions: Inbox = Questions()
    waiting = questions.put(Retried())

    questions.close()

    for question in (waiting, questions.put(Noted(text="late"))):
        with pytest.raises(Refused) as refused:
            await question.decided()
        assert "RESTARTING" == refused.value.code
    assert (True, 0) == (questions.closed, len(questions))


async def test_an_unwritable_journal_turns_away_verbs_only() -> None:
    """The end of an executor waits for it."""
    questions: Inbox = Questions()
    fact, verb, turn = (questions.put(event) for event in (STARTED, Retried(), None))

    questions.turn_away(StoreError("the disk is full"), keep=must_not_be_lost)

    for question in (verb, turn):
        with pytest.raises(StoreError):
            await question.decided()
    assert fact is await questions.take()


@pytest.mark.parametrize(
    ("event", "kept"), [(STARTED, True), (Retried(), False), (DispatchFailed(code="X", message="x"), False)]
)
def test_only_facts_without_another_record_must_not_be_lost(event: Event, kept: bool) -> None:
    """A person can repeat a verb, and a turn repeats itself."""
    assert kept is must_not_be_lost(event)
