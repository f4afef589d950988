"""What Prometheus reads: counters and histograms, and the text that has them together with the gauges.

What is in the journal or in memory anyway is not counted a second time but read when Prometheus asks
(see `recorder.Gauge`). Labels are names from definitions and tables of this engine; what a project can name
(steps, executors) is bounded by `Bounded`, because each new value of a label is memory for ever.

A series whose labels are known beforehand exists, at 0, before it is counted: to Prometheus, a series that
appears with a value has not increased by it.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import handoffd
from handoffd.engine.run import End
from handoffd.metrics.recorder import INTERRUPTED, TOKENS, Gauge
from handoffd.protocol.state import Status

ATTEMPT_BUCKETS_S: Final = (1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200)
HANDOFF_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60)
SHORT_BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1, 5)

VERDICTS: Final = (Status.PASS, Status.FAILING, Status.NEEDS_HUMAN, Status.TIMEOUT, INTERRUPTED)
"""How an attempt can end."""


class Instruments:
    """Counters and histograms of one daemon, in `registry`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"handoffd_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"handoffd_{name}", text, labels, buckets=buckets, registry=registry)

        self.events = counter("events", "Decisions that were committed, by what they were about.", "kind")
        self.dispatches = counter("dispatches", "Attempts that were begun.", "step", "executor")
        self.attempts = counter(
            "attempts", "Attempts that are over, by verdict.", "step", "executor", "result"
        )
        self.attempt_s = histogram(
            "attempt_seconds", "How long executors ran.", ATTEMPT_BUCKETS_S, "step", "executor"
        )
        self.ends = counter("executor_ends", "How executors ended.", "executor", "end")
        self.handoff_s = histogram(
            "handoff_seconds",
            "From the end of an executor, or of its checks, to the start of the next one.",
            HANDOFF_BUCKETS_S,
        )
        self.checks = counter("checks", "Measured claims: tests and post_check.", "kind", "outcome")
        self.stories = counter("stories_done", "Stories and tasks that reached their end.", "type")
        self.tokens = counter("tokens", "Tokens of runs that ended.", "executor", "type")
        self.cost = counter("cost_usd", "US dollars for runs that ended, where that is known.", "executor")
        self.verbs = counter("verbs", "Verbs that were given, by result.", "verb", "result")
        self.crashes = counter("project_crashes", "How often the supervision of a project failed.")
        self.commit_s = histogram(
            "journal_commit_seconds", "How long decisions waited for their commit.", SHORT_BUCKETS_S
        )
        self.lag_s = histogram(
            "loop_lag_seconds", "How late the event loop was, asked once a second.", SHORT_BUCKETS_S
        )
        self._expect_outcomes()

    def _expect_outcomes(self) -> None:
        for kind in ("story", "custom"):
            self.stories.labels(kind)
        for outcome in ("green", "red", "timed_out", "fault"):
            self.checks.labels("tests", outcome)
        for outcome in ("passed", "failed"):
            self.checks.labels("post_check", outcome)

    def expect(self, step: str, executor: str) -> None:
        """Create the series that an attempt will be counted in when it is over."""
        self.attempt_s.labels(step, executor)
        for verdict in VERDICTS:
            self.attempts.labels(step, executor, str(verdict))
        for end in End:
            self.ends.labels(executor, end.value)
        for kind in TOKENS:
            self.tokens.labels(executor, kind)
        self.cost.labels(executor)


# --- the text ----------------------------------------------------------------------------------------
class _Gauges(Collector):
    def __init__(self, gauges: Sequence[Gauge]) -> None:
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        """Yield each gauge as the client library wants it."""
        for gauge in self._gauges:
            family = GaugeMetricFamily(f"handoffd_{gauge.name}", gauge.help, labels=gauge.labels)
            for labels, value in sorted(gauge.values.items()):
                family.add_metric(labels, value)
            yield family


class _Together:
    """Several registries as one: counters last, gauges are made for one answer."""

    def __init__(self, registries: Iterable[CollectorRegistry]) -> None:
        self._registries = tuple(registries)

    def collect(self) -> Iterator[Metric]:
        """Yield the series of all of them."""
        for registry in self._registries:
            yield from registry.collect()


def exposition(counted: CollectorRegistry, gauges: Sequence[Gauge]) -> bytes:
    """Return the text format, version 0.0.4: `handoffd_...` and the library's own `process_...`."""
    standing = CollectorRegistry(auto_describe=False)
    standing.register(_Gauges((_build(), *gauges)))
    ProcessCollector(registry=standing)
    return generate_latest(_Together((counted, standing)))


def _build() -> Gauge:
    version, python = handoffd.__version__, platform.python_version()
    return Gauge(
        name="build_info", help="What runs.", labels=("version", "python"), values={(version, python): 1}
    )
