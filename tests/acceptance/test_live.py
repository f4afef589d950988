"""Under the real daemon: status reports what a running agent does and uses, across a `kill -9`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.benchmarks import flood
from tests.benchmarks.stream_memory import faults, measure
from tests.support.agents import shell_agent
from tests.support.daemon import Daemon, running, sample
from tests.support.eventually import eventually_sync
from tests.support.house import HAND_OVER

AGENT = f"""\
cat > /dev/null
cat {{base}}/first
until test -e {{base}}/go; do sleep 0.05; done
cat {{base}}/second
until test -e {{base}}/over; do sleep 0.05; done
{HAND_OVER}"""
PADDING = "x" * 2000


def turns(count: int, begin: int) -> str:
    """Return `count` turns of an agent, of 30 tokens each, in lines of 2 KB."""
    return "".join(_turn(number) for number in range(begin, begin + count))


def _turn(number: int) -> str:
    content = [{"type": "text", "text": f"Turn {number}. {PADDING}"}]
    message = {"id": f"m{number}", "content": content, "usage": {"input_tokens": 10, "output_tokens": 20}}
    return json.dumps({"type": "assistant", "session_id": "s-1", "message": message}) + "\n"


def settings_of(base: Path) -> dict[str, Any]:
    """Return settings with an agent that says its two parts when the test releases them."""
    agent = shell_agent(base, AGENT.format(base=base), extends="rehearsal-stream")
    return {"executors": {"agent": agent}, "execute": {"meter_s": 0.02}}


def used(daemon: Daemon, project: Path) -> int | None:
    """Return the tokens that the latest run has used."""
    usage = daemon.runs(project)[-1]["usage"]
    return usage["tokens"] if usage else None


def test_what_an_agent_does_and_uses_is_told_while_it_runs_and_outlives_the_daemon(tmp_path: Path) -> None:
    """Its output is longer than what is kept of it; nothing is counted twice, and nothing of it is lost."""
    rules = "steps: {bdd: {next_on_pass: review}}"
    project = sample(tmp_path, rules=rules, executor="agent")
    (tmp_path / "first").write_text(turns(100, 0))
    with running(tmp_path, settings_of(tmp_path)) as daemon:
        daemon.verb("start", project, story="US-001")
        track = daemon.wait_for(project, lambda track: track["tokens"] == 3000)
        assert str(track["activity"]).startswith("says Turn 99. xxx")
        assert ("s-1", True) == (track["session"], track["last_output_at"] is not None)
        eventually_sync(lambda: used(daemon, project) == 3000)

        daemon.kill()
        (tmp_path / "second").write_text(turns(600, 100))
        (tmp_path / "go").touch()
        daemon.start()
        # All of it went by before the daemon read along: its middle may be gone.
        track = daemon.wait_for(project, lambda track: "Turn 699" in str(track["activity"]))
        so_far = used(daemon, project)
        assert so_far is not None
        assert 3000 < so_far <= 21_000

        (tmp_path / "over").touch()
        daemon.wait_at(project, "review", "needs_human")
        assert so_far == used(daemon, project)
        exited = next(one for one in daemon.events(project) if one["kind"] == "executor_exited")
        assert ("s-1", so_far) == (
            exited["event"]["exit"]["session"],
            sum(exited["event"]["exit"]["usage"][kind] for kind in ("input_tokens", "output_tokens")),
        )
        assert "tokens" in exited["what"]


def test_a_long_stream_costs_the_daemon_no_memory(tmp_path: Path) -> None:
    """This is a slice; `make bench-stream` does the same with 1 GiB."""
    assert [] == faults(measure(tmp_path, 30, pace=100))


def test_a_flood_of_output_is_bounded_everywhere(tmp_path: Path) -> None:
    """A slice of `python -m tests.benchmarks.flood`: memory stays, and so do the beginning and the end."""
    assert [] == flood.faults(flood.measure(tmp_path, 64))
