"""An agent that speaks in JSON lines, under the real daemon."""

from __future__ import annotations

from pathlib import Path

from tests.support.commands import environment_of, program
from tests.support.daemon import Daemon, prompts, sample
from tests.support.eventually import eventually_sync


def test_what_it_reports_is_told_in_words(daemon: Daemon, tmp_path: Path) -> None:
    """To the next attempt and to a reader of the log; its exit code tells nothing."""
    script = {"stream": {"input_tokens": 1000, "cost_usd": 0.5}, "bdd": ["error:the moon is full", "pass"]}
    project = sample(tmp_path, script=script, executor="rehearsal-stream")

    daemon.begin(project)
    daemon.wait_at(project, "review", "needs_human")

    attempts = [run for run in daemon.runs(project) if run["step"] == "bdd"]
    assert [1, 2] == [run["attempt"] for run in attempts]
    assert "it reported: the moon is full" in prompts(project, "bdd")[1]
    eventually_sync(lambda: "[result] bdd is over (1000 tokens in, $0.50)" in log(daemon, attempts[1]["run"]))
    assert "rehearsal: " not in log(daemon, attempts[1]["run"])


def log(daemon: Daemon, run: str) -> str:
    """Return the output of a run as people read it."""
    return program("log", "--run", run, env=environment_of(daemon)).out
