"""The text that Prometheus reads: what was counted, how things stand, and the process itself."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import handoffd
from handoffd.metrics.gauge import Gauge

MEDIA = "text/plain; version=0.0.4; charset=utf-8"


class _Standing(Collector):
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
    """Several registries as one: what is counted lasts, what stands is made for one answer."""

    def __init__(self, registries: Iterable[CollectorRegistry]) -> None:
        self._registries = tuple(registries)

    def collect(self) -> Iterator[Metric]:
        """Yield the series of all of them."""
        for registry in self._registries:
            yield from registry.collect()


def exposition(counted: CollectorRegistry, gauges: Sequence[Gauge]) -> bytes:
    """Return the text format, version 0.0.4: `handoffd_...` and the library's own `process_...`."""
    standing = CollectorRegistry(auto_describe=False)
    standing.register(_Standing((_build(), *gauges)))
    ProcessCollector(registry=standing)
    return generate_latest(_Together((counted, standing)))


def _build() -> Gauge:
    version, python = handoffd.__version__, platform.python_version()
    return Gauge(
        name="build_info", help="What runs.", labels=("version", "python"), values={(version, python): 1}
    )
