"""What Prometheus reads from a real daemon, and what its dashboard asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.daemon import REPOSITORY, Daemon, running, sample
from tests.support.eventually import eventually_sync
from tests.support.loopback import free_port

from handoffd.api.http.auth import ensured

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
PROMETHEUS = REPOSITORY / "config" / "prometheus"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with a port, in which a story was done; it is only looked at."""
    folder = tmp_path_factory.mktemp("metrics")
    settings = {
        "control": {"tcp": {"port": free_port()}}, "log": {"format": "json"},
        "scheduling": {"per_executor": {"rehearsal": 2}},
    }  # fmt: skip
    with running(folder, settings) as lent:
        project = sample(folder)
        lent.to_review(project)
        lent.verb("approve", project)
        lent.wait_at(project, "done", "pass")
        eventually_sync(lambda: deliveries(lent) >= 2)
        yield lent


def scraped(daemon: Daemon) -> str:
    """Return what Prometheus gets: over the port, with the token."""
    settings = json.loads((daemon.base / "handoffd.yaml").read_text())
    url = f"http://127.0.0.1:{settings['control']['tcp']['port']}/metrics"
    assert 401 == httpx.get(url).status_code
    token = ensured(daemon.state_dir / "control.token")
    answer = httpx.get(url, headers={"Authorization": f"Bearer {token}"})
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    return answer.raise_for_status().text


def samples(text: str) -> Samples:
    """Return every sample, by name and labels."""
    families = text_string_to_metric_families(text)
    return {(one.name, frozenset(one.labels.items())): one.value for fam in families for one in fam.samples}


def deliveries(daemon: Daemon) -> float:
    """Return how many notices have been delivered."""
    found = samples(scraped(daemon)).items()
    return sum(value for (name, _), value in found if name == "handoffd_deliveries")


def test_a_story_in_numbers(daemon: Daemon) -> None:
    """Seven attempts, one done, measured tests, a journal that grew; at least 25 series of our own."""
    text = scraped(daemon)
    found = samples(text)
    families = {one.name for one in text_string_to_metric_families(text) if one.name.startswith("handoffd_")}
    assert len(families) >= 25, sorted(families)

    def total(name: str, **labels: str) -> float:
        wanted = set(labels.items())
        return sum(value for (known, has), value in found.items() if known == name and wanted <= has)

    assert 7 == total("handoffd_attempts_total", result="pass", executor="rehearsal")
    assert 7 == total("handoffd_attempt_seconds_count") == total("handoffd_dispatches_total")
    assert 1 == total("handoffd_stories_done_total", type="story")
    assert 1 == total("handoffd_tracks", step="done", status="pass")
    assert 1 == total("handoffd_verbs_total", verb="approve")
    assert total("handoffd_checks_total", kind="tests", outcome="green") >= 1
    assert total("handoffd_handoff_seconds_count") >= 5
    assert total("handoffd_journal_events") > 20


def test_dashboard_and_alerts_ask_for_what_there_is(daemon: Daemon) -> None:
    """The daemon has every series that they name, but that of accounts at their limit: there is none."""
    told = {name for name, _ in samples(scraped(daemon))}
    asked = set(re.findall(r"\b(?:handoffd|process)_[a-z_]+", (PROMETHEUS / "dashboard.json").read_text()))
    alerts = re.findall(r"expr: (.*)", (PROMETHEUS / "alerts.yaml").read_text())
    asked |= {name for rule in alerts for name in re.findall(r"\bhandoffd_[a-z_]+", rule)}

    assert len(asked) > 25
    assert {"handoffd_account_queue"} >= asked - told


def test_log_lines_tell_the_run(daemon: Daemon) -> None:
    """From the decision to start it to the verdict, in the JSON that a log collector reads."""
    lines = [json.loads(line) for line in daemon.log().splitlines() if line.startswith("{")]
    decided = [line for line in lines if line["event"] == "decided"]
    runs = daemon.runs(daemon.base / "shop")

    assert 7 == len(runs)
    for run in runs:
        told = [line for line in decided if line.get("run") == run["run"]]
        begun = [line["step"] for line in told if line["status"] == "running" and line["fact"] == "advanced"]
        assert ([run["step"]], "advanced") == (begun, told[0]["fact"])
        assert "executor_exited" in {line["fact"] for line in told}
    assert all("project" in line for line in lines if "run" in line)
