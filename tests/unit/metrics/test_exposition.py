"""The text that Prometheus reads."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families

from handoffd.metrics.prometheus import exposition
from handoffd.metrics.recorder import Gauge


def test_counts_standings_and_the_process_in_one_text() -> None:
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
