"""One recorded decision in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import anyio
import pytest
from tests.support.playbook import DISPATCH, found, green, handoff, red, state_at
from tests.support.recorded import story, write
from tests.unit.journal.making import record, track

from handoffd.api.events import _FACTS, _ORDERS, follows, happened
from handoffd.engine.decision import Effect, Notify, Refusal, RunChecks, Spawn
from handoffd.engine.events import (
    Advanced,
    Approved,
    BaselineMeasured,
    ChecksFinished,
    DeadlinePassed,
    Event,
    ExecutorExited,
    HandoffArrived,
    Rejected,
    Started,
    StateEdited,
    TestEvidence,
)
from handoffd.engine.run import End, Exit, Footprint, PostCheck, Usage
from handoffd.errors import Problem
from handoffd.journal.journal import Journal
from handoffd.journal.records import Record, StoredEvent
from handoffd.protocol.handoff import Absent, HandoffMark, Malformed, Reading, Stale
from handoffd.protocol.state import Reason, Status


def stored(path: Path, *records: Record) -> list[StoredEvent]:
    """Return records as the journal tells them."""

    async def commit() -> list[StoredEvent]:
        journal = await Journal.open(path / "journal.db")
        try:
            for one in records:
                await journal.commit(one)
            return list(await journal.events())
        finally:
            await journal.close()

    return anyio.run(commit)


def told(path: Path, event: Event) -> str:
    """Return what happened."""
    return happened(stored(path, record(event))[-1])


def exited(reading: Reading, **how: Any) -> ExecutorExited:
    """Return the end of an executor."""
    return ExecutorExited(dispatch=DISPATCH, exit=Exit(**how), reading=reading)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (
            exited(found(handoff(files_changed=("a", "b"))), code=0, seconds=94.2),
            "exited with code 0 after 94 s; it handed over pass, it says 2 files changed",
        ),
        (exited(Absent(), signal=9), "was killed by signal 9; it left no hand-off"),
        (exited(Stale(why="of attempt 1"), code=3), "code 3; only a stale hand-off is there: of attempt 1"),
        (
            exited(Malformed(problem=Problem(file="HANDOFF.md", message="not closed")), code=0),
            "its hand-off cannot be read: not closed",
        ),
        (
            exited(Absent(), code=0, seconds=94.2, usage=Usage(output_tokens=12_400, cost_usd=0.21)),
            "exited with code 0 after 94 s and 12.4k tokens, $0.21; it left no hand-off",
        ),
        (exited(Absent(), code=0, usage=Usage(output_tokens=1)), "exited with code 0 after 1 token; "),
        (
            exited(Absent(), code=0, seconds=9, footprint=Footprint(memory_peak=812 << 20, tasks_peak=41)),
            "exited with code 0 after 9 s (at most 812 MiB, 41 tasks); it left no hand-off",
        ),
        (exited(Absent(), signal=9, end=End.MEMORY_LIMIT), "killed by signal 9 (memory limit); it left"),
        (exited(Absent(), by="lost"), "vanished, and its exit is unknown"),
        (exited(Absent(), by="outside", code=None, signal=15), "was ended from outside"),
        (exited(Absent(), code=1, end=End.LOGGED_OUT), "exited with code 1 (logged out); it left"),
        (exited(Absent(), code=1, end=End.FAILED), "exited with code 1; it left no hand-off"),
        (exited(Absent(), code=0, stream_error=True), "its stream says that it failed"),
        (ChecksFinished(dispatch="d1", tests=green(3)), "d1 was checked: 3 tests pass and 0 fail"),
        (ChecksFinished(dispatch="d1", tests=red("t")), "1 fails, 1 of the failing is new"),
        (ChecksFinished(dispatch="d1", tests=TestEvidence(fault="no pytest")), "not be run: no pytest"),
        (ChecksFinished(dispatch="d1", tests=TestEvidence(timed_out=True)), "did not end in time"),
        (ChecksFinished(dispatch="d1", tests=TestEvidence(verified=False)), "the test command succeeded"),
        (ChecksFinished(dispatch="d1", post_check=PostCheck(passed=False)), "post_check failed"),
        (ChecksFinished(dispatch="d1"), "no check was due"),
        (Approved(note="Mind it.", by="eve"), "approved, with the note 'Mind it.', by eve"),
        (Rejected(reason=Reason.SCOPE_WARNING, by="eve"), "rejected for scope_warning, by eve"),
        (Started(story="US-1", queue=True, by="mei"), "story US-1 was asked for (queue), by mei"),
        (Advanced(dispatch="d1", executor="claude", unmet=("US-0",)), "not done yet: US-0"),
        (StateEdited(state=state_at("impl")), "STATE.json was changed from outside, to impl pending"),
        (BaselineMeasured(dispatch="d1", fault="no pytest"), "could not be run: no pytest"),
        (DeadlinePassed(dispatch=None, elapsed_min=5), "an external attempt ran out of time: 5.0 min"),
        (
            HandoffArrived(dispatch="d1", reading=found(handoff()), mark=HandoffMark()),
            "a hand-off came for an external attempt: it handed over pass",
        ),
    ],
)
def test_a_fact_is_told_with_what_was_decided_on(tmp_path: Path, event: Event, words: str) -> None:
    """Exit code, claim, measurement, reason, and who gave a verb."""
    assert words in told(tmp_path, event)


def test_every_fact_and_every_order_has_its_words() -> None:
    """One that somebody adds fails here, instead of reading like a code."""
    assert _FACTS.keys() == {kind.__dataclass_fields__["kind"].default for kind in get_args(Event)}
    assert _ORDERS.keys() == {kind.__dataclass_fields__["kind"].default for kind in get_args(Effect)}


def test_a_whole_story_can_be_told(tmp_path: Path) -> None:
    """Every event of it says what happened and what follows."""
    path = tmp_path / "journal.db"
    write(path, story())

    for event in stored(tmp_path, record()):
        assert happened(event)
        assert follows(event)


def test_what_is_ordered_comes_next(tmp_path: Path) -> None:
    """An executor with its limit, checks with what is expected of them."""
    spawn = Spawn(
        dispatch="d1", executor="claude", story="US-1", step="impl", attempt=2, timeout_min=10, session="s1"
    )  # fmt: skip
    checks = RunChecks(
        dispatch="d1", story="US-1", step="impl", attempt=2, tests="green", check_timeout_min=10,
        post_check="make lint", post_check_timeout_s=60,
    )  # fmt: skip

    one, two = stored(tmp_path, record(effects=(spawn,)), record(effects=(checks,)))

    assert "claude is started for impl attempt 2, in its session s1, for 10 min at most" == follows(one)
    assert "the tests are run (green is expected), post_check is run" == follows(two)


def test_a_person_is_told_what_to_type(tmp_path: Path) -> None:
    """The command of the notice, with the project in it."""
    tell = Notify(
        notice="needs_human",
        story="US-1",
        step="impl",
        text="no attempt left",
        action="handoffd retry {project}",
    )

    (event,) = stored(tmp_path, record(after=track(status=Status.NEEDS_HUMAN), effects=(tell,)))

    assert (
        "handoffd notifies people: no attempt left; it waits for a person: handoffd retry /srv/shop"
        == follows(event)
    )


@pytest.mark.parametrize(
    ("step", "status", "words"),
    [
        ("impl", Status.FAILING, "where a failure of impl leads"),
        ("impl", Status.PASS, "what comes after impl"),
        ("impl", Status.TIMEOUT, "whether impl is tried again"),
        ("impl", Status.RUNNING, "until its executor ends"),
        ("impl", Status.PENDING, "impl is dispatched at its next turn"),
        ("done", Status.PASS, "the story is done"),
    ],
)
def test_without_an_order_the_status_says_what_follows(
    tmp_path: Path, step: str, status: Status, words: str
) -> None:
    """And by which rule that will be decided."""
    assert words in follows(stored(tmp_path, record(after=track(step, status)))[-1])


def test_a_refusal_changes_nothing(tmp_path: Path) -> None:
    """What was refused, and why; and what people were told of it."""
    refusal = Refusal(code="STATE_TAMPERED", message="it was restored", caller_instruction="do not")
    event = stored(tmp_path, record())[-1]
    refused = replace(event, before=event.after, result={"type": "error", "message": refusal.message})

    assert "nothing changed: it was restored" == follows(refused)


def test_a_journal_of_before_says_less(tmp_path: Path) -> None:
    """An event of a kind that is not known is named all the same."""
    event = replace(stored(tmp_path, record())[-1], kind="moon_landed", event={}, after=None)

    assert ("moon landed", "nothing") == (happened(event), follows(event))
