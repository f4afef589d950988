"""The daemon ends while an executor works; the next one finds it again."""

from __future__ import annotations

import json
import socket
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.agents import HELD, release
from tests.support.daemon import Daemon, running, sample
from tests.support.eventually import eventually_sync
from tests.support.runs import descends, unit, working_in

import handoffd


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_an_executor_outlives_the_daemon_and_is_adopted(tmp_path: Path, how: str) -> None:
    """It is not started twice, its result is applied, and the story finishes."""
    project = sample(tmp_path, executor="held")
    release(project, "bdd", "sdd-delta", "contract", "scaffold")
    with running(tmp_path, HELD) as daemon:
        daemon.to_review(project)
        daemon.verb("approve", project)
        before = daemon.wait_executing(project, "impl")

        getattr(daemon, how)()
        daemon.start()
        adopted = daemon.wait_for(project, lambda t: t["pid"] is not None)
        release(project, "impl", "verify", "update-memory")

        assert before["dispatch"] == adopted["dispatch"]
        assert before["pid"] == adopted["pid"]
        daemon.wait_at(project, "done", "pass")
        dispatches = daemon.starts(project)
        assert len(set(dispatches)) == len(dispatches)


def test_an_end_without_a_daemon_is_judged_at_the_next_start(tmp_path: Path) -> None:
    """The executor finishes while no daemon runs; its exit code was kept."""
    project = sample(tmp_path, executor="held")
    with running(tmp_path, HELD) as daemon:
        daemon.started(project)
        daemon.kill()
        release(project, "bdd", "sdd-delta", "contract")
        eventually_sync(lambda: any(daemon.state_dir.glob("runs/*/exit.json")))

        daemon.start()

        daemon.wait_at(project, "review", "needs_human")
        assert 3 == len(daemon.starts(project))


def test_an_attempt_was_over_when_its_executor_ended(tmp_path: Path) -> None:
    """Not when a daemon was there again to see it."""
    project = sample(tmp_path, executor="held", rules="steps: {bdd: {next_on_pass: review}}")
    with running(tmp_path, HELD) as daemon:
        daemon.started(project)
        daemon.kill()
        release(project, "bdd")
        record = eventually_sync(lambda: next(daemon.state_dir.glob("runs/*/exit.json"), None))
        assert record is not None
        ended_s = json.loads(record.read_text())["ended_ns"] / 1e9
        eventually_sync(lambda: datetime.now(UTC).timestamp() > ended_s + 2)  # noqa: TID251

        daemon.start()

        told = daemon.wait_at(project, "review", "needs_human")["completed_at"]
        assert abs(datetime.fromisoformat(told).timestamp() - ended_s) < 0.01


def test_a_hung_executor_ends_at_its_deadline_while_no_daemon_runs(tmp_path: Path) -> None:
    """Its shim has the deadline; the next daemon finds the end and says timeout."""
    rules = "steps: {bdd: {timeout_min: 0.06}}"
    project = sample(tmp_path, script={"bdd": ["orphan+ignore-term"]}, rules=rules)
    with running(tmp_path) as daemon:
        daemon.started(project)
        daemon.kill()

        exits = eventually_sync(lambda: [*daemon.state_dir.glob("runs/*/exit.json")])

        assert ["deadline"] == [json.loads(path.read_text())["by"] for path in exits]
        assert [] == working_in(project)
        daemon.start()
        assert "ran out of time" in daemon.wait_at(project, "bdd", "timeout")["last_error"]


def test_stop_with_executors_ends_them_and_costs_no_attempt(tmp_path: Path) -> None:
    """The interrupted attempt is repeated by the next daemon, under its old number."""
    project = sample(tmp_path, script={"bdd": ["hang", "pass"]})
    with running(tmp_path) as daemon:
        daemon.started(project)
        eventually_sync((project / ".ai/rehearsal-count.json").exists)  # else `hang` would come again
        daemon.stop(executors=True)
        eventually_sync(lambda: not daemon.processes())

        daemon.start()
        daemon.wait_at(project, "review", "needs_human")

        attempts = [run["attempt"] for run in daemon.runs(project) if run["step"] == "bdd"]
        assert [1, 1] == attempts


def test_under_a_service_manager_agents_belong_to_the_launchers_unit(tmp_path: Path) -> None:
    """The daemon waits for the launcher of the other unit; one of its own would end with it."""
    project = sample(tmp_path, script={"bdd": ["hang"]})
    program = Path(handoffd.__file__).parent / "execute/runner/launcher.py"
    daemon = Daemon(tmp_path)
    with closing(daemon), closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
        manager.bind(str(daemon.runtime_dir / "notify.sock"))
        daemon.environment["NOTIFY_SOCKET"] = str(daemon.runtime_dir / "notify.sock")
        daemon.start()
        daemon.verb("start", project, story="US-001")
        eventually_sync(lambda: any(daemon.state_dir.glob("runs/*/spec.json")))
        with unit(program, daemon.runtime_dir / "launcher.sock") as launcher:
            running_now = daemon.wait_executing(project)

            assert descends(running_now["pid"], launcher)


def test_a_daemon_imports_what_only_later_work_needs_once_it_answers(tmp_path: Path) -> None:
    """Not before, which would delay the answer; and not when first used, as an upgrade may come before."""
    later = {"apscheduler", "jinja2", "junitparser", "pathspec", "prometheus_client"}
    with closing(Daemon(tmp_path)) as daemon:
        daemon.environment = {"PYTHONPROFILEIMPORTTIME": "1"}
        daemon.fresh = True

        daemon.start()

        eventually_sync(lambda: later <= imported(daemon.log()))
        before, ready, _ = daemon.log().partition("info    ready")
        assert ready
        assert set() == later & imported(before)
        assert "rich.console" not in daemon.log()  # structlog would import it if it could


def imported(log: str) -> set[str]:
    """Return the packages of which Python has timed the import of a module in a log."""
    lines = (line for line in log.splitlines() if line.startswith("import time:"))
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
