"""From decisions to counts, from counts and gauges to text, and nothing of that without a daemon."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families
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
from handoffd.metrics.prometheus import Instruments, exposition
from handoffd.metrics.recorder import Bounded, Gauge, Recorder, Uncounted, Values, among, single
from handoffd.protocol.handoff import Absent
from handoffd.protocol.state import Status

SHOP = TrackKey("/srv/shop")
RESTING, RUNNING = track_of(), track_of(Status.RUNNING, dispatch=dispatch_of())
PASSED = track_of(Status.PASS)
BEGAN = Advanced(dispatch="d1", executor="agent")
STARTED = ExecutorStarted(dispatch="d2", pid=4711)


class Ticking:
    """A clock that moves only by hand."""

    at_s = 100.0

    def now(self) -> datetime:
        """Return any time."""
        return NOW

    def monotonic(self) -> float:
        """Return seconds."""
        return self.at_s


class Counting:
    """A recorder and its counts."""

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
    """Each counts once; a decision in between is neither."""
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
def test_the_result_of_an_attempt(counting: Counting, after: Track, result: str) -> None:
    """It is the status after it; without a verdict the attempt was interrupted."""
    counting.commit(exited(), RUNNING, after)

    assert 1 == counting.value("attempts_total", step="bdd", executor="agent", result=result)


def test_a_story_is_done_once(counting: Counting) -> None:
    """With the decision that takes it there, not with later ones."""
    done = track_of(Status.PASS, step="done")
    counting.commit(BEGAN, PASSED, done)
    counting.commit(BEGAN, done, done)
    counting.commit(BEGAN, done, track_of(Status.PASS, step="done", story="US-002"))

    assert 2 == counting.value("stories_done_total", type="story")


def test_the_usage_of_runs(counting: Counting) -> None:
    """Tokens by kind; an unknown number, or a negative one of an agent, subtracts nothing."""
    used = Usage(input_tokens=10, output_tokens=20, cache_read_tokens=-5, cost_usd=0.5)
    counting.commit(exited(usage=used), RUNNING, PASSED)
    counting.commit(exited(usage=Usage(input_tokens=1)), RUNNING, PASSED)
    counting.commit(exited(), RUNNING, PASSED)

    kinds = ("input", "output", "cache_read", "cache_write")
    found = [counting.value("tokens_total", executor="agent", type=kind) for kind in kinds]
    assert [11, 20, 0, 0] == found
    assert 0.5 == counting.value("cost_usd_total", executor="agent")


@pytest.mark.parametrize("adopted", [False, True])
def test_the_series_of_an_attempt_exist_before_its_end(counting: Counting, adopted: bool) -> None:
    """At 0, so that its end is an increase; also if an earlier life of the daemon began it."""
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


def test_a_track_at_rest_creates_no_series(counting: Counting) -> None:
    """An executor that no track uses has none."""
    counting.counted.found(RESTING)

    assert counting.value("cost_usd_total", executor="agent") is None


def test_the_wait_for_the_next_executor(counting: Counting) -> None:
    """From the end of the last one, or of its checks; not the wait for a slot, nor another project."""
    counting.commit(exited(), RUNNING, RUNNING)
    counting.clock.at_s += 60
    counting.commit(ChecksFinished(dispatch="d1"), RUNNING, PASSED)
    counting.clock.at_s += 0.03
    counting.commit(STARTED, RUNNING, RUNNING, TrackKey("/srv/blog"))
    counting.commit(STARTED, RUNNING, RUNNING)
    counting.commit(STARTED, RUNNING, RUNNING)
    counting.commit(exited(), RUNNING, PASSED)
    counting.counted.waited(SHOP)
    counting.commit(STARTED, RUNNING, RUNNING)

    assert 1 == counting.value("handoff_seconds_count")
    assert 0.03 == pytest.approx(counting.value("handoff_seconds_sum"))


def test_the_wait_for_people_is_not_counted(counting: Counting) -> None:
    """A review that is approved in the morning is not a hand-off of eight hours."""
    counting.commit(exited(), RUNNING, PASSED)
    counting.commit(BEGAN, PASSED, track_of(Status.NEEDS_HUMAN))
    counting.clock.at_s += 8 * 3600
    counting.commit(STARTED, RUNNING, RUNNING)

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
    """Tests and post_check apart; each of several checks counts."""
    counting.commit(ChecksFinished(dispatch="d1", tests=tests), RUNNING, PASSED)
    named = tuple(PostCheck(passed=name == "a", name=name) for name in "abc")
    counting.commit(ChecksFinished(dispatch="d1", post_checks=named), RUNNING, PASSED)
    counting.commit(ChecksFinished(dispatch="d1", post_check=PostCheck(passed=False)), RUNNING, PASSED)

    assert 1 == counting.value("checks_total", kind="tests", outcome=outcome)
    assert 1 == counting.value("checks_total", kind="post_check", outcome="passed")
    assert 3 == counting.value("checks_total", kind="post_check", outcome="failed")


def test_the_rest(counting: Counting) -> None:
    """Crashes, lags and verbs."""
    counting.counted.crashed()
    counting.counted.lagged(0.004)
    counting.counted.asked("approve", "INSIDE_EXECUTOR")

    assert 1 == counting.value("project_crashes_total")
    assert 0.004 == counting.value("loop_lag_seconds_sum")
    assert 1 == counting.value("verbs_total", verb="approve", result="INSIDE_EXECUTOR")


def test_steps_that_an_agent_makes_up_are_bounded(counting: Counting) -> None:
    """Each value of a label is memory for ever."""
    for number in range(100):
        dispatch = replace(dispatch_of(f"d{number}"), step=f"step-{number}")
        counting.commit(BEGAN, RESTING, track_of(Status.RUNNING, dispatch=dispatch))

    assert 50 == counting.value("dispatches_total", step="other", executor="agent")


# --- instruments, gauges and the text -------------------------------------------------------------------
def test_labels_do_not_grow_for_ever() -> None:
    """The first values keep their name; all later ones are `other`."""
    name = Bounded(2)

    assert ["a", "b", "other", "a"] == [name("a"), name("b"), name("c"), name("a")]


def test_two_daemons_in_one_process_count_apart() -> None:
    """Nothing is registered globally."""
    one, other = CollectorRegistry(), CollectorRegistry()
    Instruments(one).crashes.inc()
    Instruments(other)

    name = "handoffd_project_crashes_total"
    assert (1, 0) == (one.get_sample_value(name), other.get_sample_value(name))


def test_outcomes_exist_before_they_are_counted() -> None:
    """To Prometheus, a counter that appears at 1 has not increased."""
    registry = CollectorRegistry()
    Instruments(registry)

    assert 0 == registry.get_sample_value("handoffd_stories_done_total", {"type": "story"})
    labels = {"kind": "tests", "outcome": "fault"}
    assert 0 == registry.get_sample_value("handoffd_checks_total", labels)


def test_a_series_without_labels() -> None:
    """It has one value, under no labels."""
    assert {(): 3} == single("slots", "How many.", 3).values


def test_what_projects_invent_is_bounded_and_nothing_is_lost() -> None:
    """The largest stay; the others become one series for each value of the fixed labels."""
    values: Values = {(f"step-{number}", "pass"): float(number) for number in range(1, 101)}
    values["odd", "failing"] = 0.5

    found = among(values, 10)

    assert 12 == len(found)
    assert sum(values.values()) == sum(found.values())
    assert (100, 0.5) == (found["step-100", "pass"], found["other", "failing"])
    assert values == among(values, 101)


def test_counts_gauges_and_the_process_in_one_text() -> None:
    """As the library's own reader understands it; an account's name may hold anything."""
    counted = CollectorRegistry()
    Counter("handoffd_events", "Decisions.", ("kind",), registry=counted).labels("advanced").inc()
    strange = 'a"b\\c\nd'
    queue = Gauge(name="account_queue", help="Parked.", labels=("account",), values={(strange,): 2})

    text = exposition(counted, (queue,)).decode()

    samples = {sample.name: sample for one in text_string_to_metric_families(text) for sample in one.samples}
    assert ({"kind": "advanced"}, 1) == (
        samples["handoffd_events_total"].labels, samples["handoffd_events_total"].value,
    )  # fmt: skip
    assert ({"account": strange}, 2) == (
        samples["handoffd_account_queue"].labels, samples["handoffd_account_queue"].value,
    )  # fmt: skip
    assert samples["process_resident_memory_bytes"].value > 0
    assert {"version", "python"} == set(samples["handoffd_build_info"].labels)


# --- without a daemon ----------------------------------------------------------------------------------
def test_without_a_daemon_every_event_is_accepted() -> None:
    """Each call of the port, with no effect."""
    recorder: Recorder = Uncounted()
    key, started = TrackKey("/srv/shop"), ExecutorStarted(dispatch="d1", pid=1)

    recorder.found(track_of())
    recorder.committed(key, started, track_of(), track_of(), 0.1)
    recorder.waited(key)
    recorder.crashed()
    recorder.lagged(0.1)
    recorder.asked("start", "accepted")


def test_without_a_daemon_the_client_library_is_not_imported() -> None:
    """That takes an eighth of a second, which such a verb need not wait for."""
    code = "import sys, handoffd.track.services; sys.exit('prometheus_client' in sys.modules)"

    subprocess.run([sys.executable, "-c", code], check=True)
