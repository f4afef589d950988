"""From decisions to counts."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from tests.support.house import NOW, dispatch_of, track_of

from handoffd.engine.events import (
    Advanced,
    ChecksFinished,
    Event,
    ExecutorExited,
    ExecutorStarted,
    TestEvidence,
)
from handoffd.engine.run import End, Exit, PostCheck, Usage
from handoffd.engine.track import Track, TrackKey
from handoffd.metrics.counters import Counted
from handoffd.protocol.handoff import Absent
from handoffd.protocol.state import Status

SHOP = TrackKey("/srv/shop")
RESTING, RUNNING = track_of(), track_of(Status.RUNNING, dispatch=dispatch_of())
PASSED = track_of(Status.PASS)
BEGAN = Advanced(dispatch="d1", executor="agent")
STARTED = ExecutorStarted(dispatch="d2", pid=4711)


class Ticking:
    """A clock that stands still until it is moved."""

    at_s = 100.0

    def now(self) -> datetime:
        """Return any time."""
        return NOW

    def monotonic(self) -> float:
        """Return seconds."""
        return self.at_s


class Counting:
    """A recorder, and what it has counted."""

    def __init__(self) -> None:
        self.clock = Ticking()
        self.counted = Counted(self.clock)

    def commit(self, event: Event, before: Track, after: Track, key: TrackKey = SHOP) -> None:
        """Count a decision that took 2 ms to commit."""
        self.counted.committed(key, event, before, after, 0.002)

    def value(self, name: str, **labels: str) -> float | None:
        """Return a sample; None when there is none."""
        return self.counted.registry.get_sample_value(f"handoffd_{name}", labels)


@pytest.fixture
def counting() -> Counting:
    """A recorder that has counted nothing."""
    return Counting()


def exited(**exit_: Any) -> ExecutorExited:
    """Return the end of d1's executor, after 42 s."""
    return ExecutorExited(dispatch="d1", exit=Exit(**{"code": 0, "seconds": 42.0} | exit_), reading=Absent())


def test_an_attempt_from_its_beginning_to_its_verdict(counting: Counting) -> None:
    """Each once; a decision within it is neither."""
    counting.commit(BEGAN, RESTING, RUNNING)
    counting.commit(STARTED, RUNNING, RUNNING)
    counting.commit(exited(end=End.CLEAN), RUNNING, PASSED)

    labels = {"step": "bdd", "executor": "agent"}
    assert 1 == counting.value("dispatches_total", **labels)
    assert 1 == counting.value("attempts_total", **labels, result="pass")
    assert 42 == counting.value("attempt_seconds_sum", **labels)
    assert 1 == counting.value("executor_ends_total", executor="agent", end=End.CLEAN.value)
    assert 1 == counting.value("events_total", kind="executor_started")
    assert 3 == counting.value("journal_commit_seconds_count")


@pytest.mark.parametrize(
    ("after", "result"),
    [
        (track_of(Status.FAILING), "failing"),
        (track_of(Status.NEEDS_HUMAN), "needs_human"),
        (track_of(Status.PENDING), "interrupted"),
        (track_of(Status.RUNNING, dispatch=dispatch_of("d2")), "interrupted"),
        (Track(), "interrupted"),
    ],
)
def test_how_an_attempt_is_over(counting: Counting, after: Track, result: str) -> None:
    """By the status that it leaves; without a verdict it was interrupted."""
    counting.commit(exited(), RUNNING, after)

    assert 1 == counting.value("attempts_total", step="bdd", executor="agent", result=result)


def test_a_story_is_done_once(counting: Counting) -> None:
    """With the decision that takes it there, not with what is decided of it afterwards."""
    done = track_of(Status.PASS, step="done")
    counting.commit(BEGAN, PASSED, done)
    counting.commit(BEGAN, done, done)
    counting.commit(BEGAN, done, track_of(Status.PASS, step="done", story="US-002"))

    assert 2 == counting.value("stories_done_total", type="story")


def test_what_runs_used(counting: Counting) -> None:
    """Tokens by kind; what is not known, and what an agent makes up, subtracts nothing."""
    used = Usage(input_tokens=10, output_tokens=20, cache_read_tokens=-5, cost_usd=0.5)
    counting.commit(exited(usage=used), RUNNING, PASSED)
    counting.commit(exited(usage=Usage(input_tokens=1)), RUNNING, PASSED)
    counting.commit(exited(), RUNNING, PASSED)

    kinds = ("input", "output", "cache_read", "cache_write")
    found = [counting.value("tokens_total", executor="agent", type=kind) for kind in kinds]
    assert [11, 20, 0, 0] == found
    assert 0.5 == counting.value("cost_usd_total", executor="agent")


@pytest.mark.parametrize("adopted", [False, True])
def test_what_an_attempt_will_be_counted_in_is_there_before(counting: Counting, adopted: bool) -> None:
    """At 0, so that its end is an increase; of one that an earlier life has begun, too."""
    if adopted:
        counting.counted.found(RUNNING)
    else:
        counting.commit(BEGAN, RESTING, RUNNING)

    assert 0 == counting.value("cost_usd_total", executor="agent")
    assert 0 == counting.value("tokens_total", executor="agent", type="cache_read")
    assert 0 == counting.value("executor_ends_total", executor="agent", end=End.CLEAN.value)
    assert 0 == counting.value("attempt_seconds_count", step="bdd", executor="agent")
    for result in ("pass", "failing", "needs_human", "timeout", "interrupted"):
        assert 0 == counting.value("attempts_total", step="bdd", executor="agent", result=result)


def test_where_nothing_runs_nothing_is_expected(counting: Counting) -> None:
    """An executor that nobody takes has no series."""
    counting.counted.found(RESTING)

    assert counting.value("cost_usd_total", executor="agent") is None


def test_how_long_the_next_executor_is_waited_for(counting: Counting) -> None:
    """From the end of the last one, or of its checks; not when it waited for a slot, and not twice."""
    counting.commit(exited(), RUNNING, RUNNING)
    counting.clock.at_s += 60
    counting.commit(ChecksFinished(dispatch="d1"), RUNNING, PASSED)
    counting.clock.at_s += 0.03
    counting.commit(STARTED, RUNNING, RUNNING)
    counting.commit(STARTED, RUNNING, RUNNING)
    counting.commit(exited(), RUNNING, PASSED)
    counting.counted.waited(SHOP)
    counting.commit(STARTED, RUNNING, RUNNING)

    assert 1 == counting.value("handoff_seconds_count")
    assert 0.03 == pytest.approx(counting.value("handoff_seconds_sum"))


def test_how_long_people_take_is_not_how_long_the_next_executor_is_waited_for(counting: Counting) -> None:
    """A review that is approved in the morning is no hand-off of eight hours."""
    counting.commit(exited(), RUNNING, PASSED)
    counting.commit(BEGAN, PASSED, track_of(Status.NEEDS_HUMAN))
    counting.clock.at_s += 8 * 3600
    counting.commit(STARTED, RUNNING, RUNNING)

    assert 0 == counting.value("handoff_seconds_count")


def test_projects_are_told_apart(counting: Counting) -> None:
    """The end of one is not the beginning of the other."""
    counting.commit(exited(), RUNNING, PASSED)
    counting.commit(STARTED, RUNNING, RUNNING, TrackKey("/srv/blog"))

    assert 0 == counting.value("handoff_seconds_count")


@pytest.mark.parametrize(
    ("tests", "outcome"),
    [
        (TestEvidence(), "green"),
        (TestEvidence(failing=("a",)), "red"),
        (TestEvidence(failing=("a",), timed_out=True), "timed_out"),
        (TestEvidence(fault="no runner", timed_out=True), "fault"),
    ],
)
def test_measured_claims(counting: Counting, tests: TestEvidence, outcome: str) -> None:
    """Tests and post_check apart."""
    counting.commit(ChecksFinished(dispatch="d1", tests=tests), RUNNING, PASSED)
    counting.commit(ChecksFinished(dispatch="d1", post_check=PostCheck(passed=False)), RUNNING, PASSED)

    assert 1 == counting.value("checks_total", kind="tests", outcome=outcome)
    assert 1 == counting.value("checks_total", kind="post_check", outcome="failed")


def test_the_rest(counting: Counting) -> None:
    """Crashes, lags and verbs."""
    counting.counted.crashed()
    counting.counted.lagged(0.004)
    counting.counted.asked("approve", "INSIDE_EXECUTOR")

    assert 1 == counting.value("project_crashes_total")
    assert 0.004 == counting.value("loop_lag_seconds_sum")
    assert 1 == counting.value("verbs_total", verb="approve", result="INSIDE_EXECUTOR")


def test_steps_that_an_agent_makes_up_are_bounded(counting: Counting) -> None:
    """Each label is memory for ever."""
    for number in range(100):
        dispatch = replace(dispatch_of(f"d{number}"), step=f"step-{number}")
        counting.commit(BEGAN, RESTING, track_of(Status.RUNNING, dispatch=dispatch))

    assert 50 == counting.value("dispatches_total", step="other", executor="agent")
