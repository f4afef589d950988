"""Counts decisions, from the track before, the event and the track after."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from handoffd.clock import Clock
from handoffd.engine.dispatching import wants_turn
from handoffd.engine.events import ChecksFinished, Event, ExecutorExited, ExecutorStarted, TestEvidence
from handoffd.engine.run import Exit
from handoffd.engine.track import Dispatch, Track, TrackKey
from handoffd.metrics.recorder import INTERRUPTED, TOKENS, Bounded
from handoffd.protocol.rules import DONE
from handoffd.protocol.state import Status

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from handoffd.metrics.prometheus import Instruments

_OPEN: Final = frozenset({Status.PENDING, Status.RUNNING})
_MOST_MARKS: Final = 10_000


class Counted:
    """The recorder of a daemon."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._step, self._executor = Bounded(), Bounded()
        self._expected: set[tuple[str, str]] = set()
        self._ended: dict[TrackKey, float] = {}
        """When (monotonic seconds) the last executor or check of a track ended, while the next is awaited."""

    @cached_property
    def _count(self) -> Instruments:
        # A daemon imports the client library soon after its first answer, not before it.
        from prometheus_client import CollectorRegistry  # noqa: PLC0415

        from handoffd.metrics.prometheus import Instruments  # noqa: PLC0415

        return Instruments(CollectorRegistry())

    @property
    def registry(self) -> CollectorRegistry:
        """What it counts in."""
        return self._count.registry

    def found(self, track: Track) -> None:
        """Create the series, at 0, of the attempt that a track has in flight, if it has one."""
        dispatch = track.ledger.dispatch
        if dispatch is not None and (labels := self._labels(dispatch)) not in self._expected:
            self._expected.add(labels)
            self._count.expect(*labels)

    def committed(self, key: TrackKey, event: Event, before: Track, after: Track, seconds: float) -> None:
        """Count one decision; `seconds` is what its commit took."""
        self._count.events.labels(event.kind).inc()
        self._count.commit_s.observe(seconds)
        gone, come = before.ledger.dispatch, after.ledger.dispatch
        if come is not None and (gone is None or gone.id != come.id):
            self._count.dispatches.labels(*self._labels(come)).inc()
            self.found(after)
        if gone is not None and (come is None or gone.id != come.id):
            self._count.attempts.labels(*self._labels(gone), verdict(after)).inc()
        if finishes(before, after):
            assert after.state is not None
            self._count.stories.labels(after.state.task_type).inc()
        self._tell(key, event, gone)
        if come is None and not wants_turn(after):
            self.waited(key)  # for a person: a review, a blocker; or it is at its end

    def _tell(self, key: TrackKey, event: Event, dispatch: Dispatch | None) -> None:
        match event:
            case ExecutorExited(exit=end) if dispatch is not None:
                self._run_over(dispatch, end)
                self._mark(key)
            case ChecksFinished():
                self._checked(event)
                self._mark(key)
            case ExecutorStarted() if key in self._ended:
                self._count.handoff_s.observe(self._clock.monotonic() - self._ended.pop(key))

    def _run_over(self, dispatch: Dispatch, end: Exit) -> None:
        step, executor = self._labels(dispatch)
        self._count.attempt_s.labels(step, executor).observe(end.seconds)
        self._count.ends.labels(executor, end.end.value if end.end is not None else end.by).inc()
        used = end.usage
        if used is None:
            return
        for kind in TOKENS:
            self._count.tokens.labels(executor, kind).inc(max(0, getattr(used, f"{kind}_tokens")))
        self._count.cost.labels(executor).inc(max(0.0, used.cost_usd or 0.0))

    def _checked(self, event: ChecksFinished) -> None:
        if event.tests is not None:
            self._count.checks.labels("tests", outcome(event.tests)).inc()
        for one in event.checked:
            self._count.checks.labels("post_check", "passed" if one.passed else "failed").inc()

    def _mark(self, key: TrackKey) -> None:
        if len(self._ended) < _MOST_MARKS or key in self._ended:
            self._ended[key] = self._clock.monotonic()

    def waited(self, key: TrackKey) -> None:
        """Remember that the next start of a track is not held up by us."""
        self._ended.pop(key, None)

    def crashed(self) -> None:
        """Count a project whose supervision failed."""
        self._count.crashes.inc()

    def lagged(self, seconds: float) -> None:
        """Count one look at how late the event loop is."""
        self._count.lag_s.observe(seconds)

    def asked(self, verb: str, result: str) -> None:
        """Count a verb with its result."""
        self._count.verbs.labels(verb, result).inc()

    def _labels(self, dispatch: Dispatch) -> tuple[str, str]:
        return self._step(dispatch.step), self._executor(dispatch.executor)


def verdict(after: Track) -> str:
    """Return the verdict on an attempt that is no longer in flight: a status, or `interrupted`."""
    judged = after.state is not None and after.state.status not in _OPEN
    return after.state.status.value if judged and after.state is not None else INTERRUPTED


def outcome(tests: TestEvidence) -> str:
    """Return how the tests ended: `green`, `red`, `timed_out`, or `fault` when they could not be run."""
    if tests.fault is not None:
        return "fault"
    if tests.timed_out:
        return "timed_out"
    return "red" if tests.failing or tests.unproven else "green"


def finishes(before: Track, after: Track) -> bool:
    """Return whether a story reaches its end with this decision."""
    if after.state is None or after.state.step != DONE:
        return False
    return before.state is None or (before.state.step, before.state.story) != (DONE, after.state.story)
