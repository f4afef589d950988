"""An agent that speaks in JSON lines, under the real daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.commands import environment, program
from tests.support.daemon import Daemon, prompts, running, sample
from tests.support.eventually import eventually_sync


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A running daemon."""
    with running(tmp_path_factory.mktemp("daemon")) as lent:
        yield lent


def test_what_it_reports_is_told_in_words(daemon: Daemon, tmp_path: Path) -> None:
    """To the next attempt and to a reader of the log; its exit code tells nothing."""
    script = {"stream": {"input_tokens": 1000, "cost_usd": 0.5}, "bdd": ["error:the moon is full", "pass"]}
    project = sample(tmp_path, script=script, executor="rehearsal-stream")

    assert "accepted" == daemon.verb("start", project, story="US-001")["type"]
    daemon.wait_at(project, "review", "needs_human")

    attempts = [run for run in daemon.runs(project) if run["step"] == "bdd"]
    assert [1, 2] == [run["attempt"] for run in attempts]
    assert "it reported: the moon is full" in prompts(project, "bdd")[1]
    eventually_sync(lambda: "[result] bdd is over (1000 tokens in, $0.50)" in log(daemon, attempts[1]["run"]))
    assert "rehearsal: " not in log(daemon, attempts[1]["run"])


def log(daemon: Daemon, run: str) -> str:
    """Return the output of a run as people read it."""
    env = environment(daemon.runtime_dir, HANDOFFD_STATE_DIR=str(daemon.state_dir))
    return program("log", "--run", run, env=env).out
