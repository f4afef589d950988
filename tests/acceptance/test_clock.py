"""The wall clock jumps, forward and back, for the daemon, the launcher and the shims."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.acceptance.test_notices import ids, untold
from tests.support.agents import lines, released, shim_of, shop
from tests.support.daemon import Daemon, Json
from tests.support.eventually import eventually_sync
from tests.support.notices import Server, serving
from tests.support.runs import PYTHON
from tests.support.wallclock import WallClock

from handoffd.execute.runner import launcher

DAY_S = 86_400
IMPATIENT = """\
steps:
  bdd: {next_on_pass: review, timeout_min: 0.1}
"""


@contextmanager
def living_by(clock: WallClock, base: Path, more: Callable[[Daemon], Json]) -> Iterator[Daemon]:
    """Lend a daemon whose processes all believe that clock; of its environment a launcher gets nothing."""
    daemon = Daemon(base, more)
    daemon.environment.update(clock.environment)
    socket = str(daemon.runtime_dir / "launcher.sock")
    command = [PYTHON, "-I", "-S", str(launcher.__file__), socket]
    try:
        subprocess.run(command, env={**os.environ, **clock.environment}, check=True, timeout=60)
        daemon.start()
        yield daemon
    finally:
        daemon.close()


def telling(server: Server, base: Path) -> Callable[[Daemon], Json]:
    """Return settings with the agent, the person's command and a web address."""

    def made(daemon: Daemon) -> Json:
        notify = {
            "command": [str(daemon.base / "sink.sh")], "webhook": {"url": server.address("/hook")},
            "backoff_s": 0.2, "backoff_max_s": 0.5,
        }  # fmt: skip
        return released(base, notify=notify)

    return made


def day_of(moment: str) -> float:
    """Return by how many days a moment differs from now, rounded."""
    away = datetime.fromisoformat(moment) - datetime.now(UTC)  # noqa: TID251  (compared with the machine's)
    return round(away.total_seconds() / DAY_S)


@pytest.mark.parametrize("days", [1, -1])
def test_a_jump_of_the_wall_clock_changes_no_attempt_no_limit_and_no_notice(
    tmp_path: Path, days: int
) -> None:
    """Runs keep their time limits, a deaf server gets its retries as before, and work goes on."""
    clock = WallClock(tmp_path)
    project, slow, later = shop(tmp_path), shop(tmp_path / "slow"), shop(tmp_path / "later")
    (slow / ".ai/step-rules.yaml").write_text(IMPATIENT)
    with serving(500) as server, living_by(clock, tmp_path, telling(server, tmp_path)) as daemon:
        shim = shim_of(daemon.started(project)["pid"])
        assert "wallclock.so" in Path(f"/proc/{shim.pid}/maps").read_text()
        daemon.verb("start", slow, story="US-002")
        daemon.wait_at(slow, "bdd", "timeout")
        eventually_sync(lambda: untold(daemon, "webhook").get("failed_tries"))
        daemon.verb("retry", slow)
        eventually_sync(lambda: ["bdd 1"] * 2 == lines(slow, "starts.log"))

        clock.set_off(days * DAY_S)

        tried = len(server.requests)
        eventually_sync(lambda: len(server.requests) >= tried + 2)
        daemon.wait_at(slow, "bdd", "timeout")  # its time is over all the same, and no earlier
        assert all(run["seconds"] >= 3 for run in daemon.runs(slow))
        assert ("running", 1) == (daemon.track(project)["status"], daemon.track(project)["attempt"])
        (tmp_path / "release").touch()
        daemon.verb("start", later, story="US-003")
        for root in (project, later):
            daemon.wait_at(root, "review", "needs_human")
            assert [("bdd", 1, "pass")] == daemon.results(root)
            assert ["bdd 1"] == lines(root, "starts.log")
            assert all(0 <= run["seconds"] < DAY_S / 2 for run in daemon.runs(root))
        assert days == day_of(daemon.events(later)[-1]["at"])  # the daemon does believe that clock

        assert not untold(daemon, "webhook").get("given_up")
        server.status = 200
        daemon.wait_delivered()
        roots = (project, slow, later)
        told = {notice["id"]: notice["kind"] for root in roots for notice in daemon.told(root)}
        assert ["needs_human"] * 2 + ["timeout"] * 2 == sorted(told.values())
        assert set(told) == {name for name in ids(server) if not name.startswith("report-")}


# --- what housekeeping removes a month later ---------------------------------------------------------
def keeping(base: Path, *, daily: bool) -> Json:
    """Return settings with the agent, that keep no run for being among the newest."""
    return released(base, retention={"runs_keep": 0, "daily": daily})


def run_to_review(daemon: Daemon, project: Path, base: Path) -> str:
    """Let the first agent of a story hand over, and return its run."""
    daemon.started(project)
    (base / "release").touch()
    daemon.wait_at(project, "review", "needs_human")
    (run,) = daemon.runs(project)
    return str(run["run"])


def test_what_is_old_goes_and_the_story_goes_on(tmp_path: Path) -> None:
    """Judged runs go from state and project; the one that lives is judged when it ends."""
    project, clock = shop(tmp_path), WallClock(tmp_path)
    with living_by(clock, tmp_path, lambda _: keeping(tmp_path, daily=False)) as daemon:
        old = run_to_review(daemon, project, tmp_path)
        (tmp_path / "release").unlink()
        clock.set_off(40 * DAY_S)
        daemon.verb("reject", project, reason="needs_clarification", note="Again.")
        living = daemon.wait_executing(project)

        planned = daemon.post("/v1/gc", {"dry_run": True})
        done = daemon.post("/v1/gc", {})

        assert planned["doomed"] == done["doomed"]
        runs = [one for one in done["doomed"] if one["kind"] != "notice"]
        assert [("copy", old), ("run", old)] == sorted((one["kind"], Path(one["what"]).name) for one in runs)
        assert done["freed_bytes"] > 0
        assert [living["dispatch"]] == [
            name for name in os.listdir(daemon.state_dir / "runs") if "." not in name
        ]
        (tmp_path / "release").touch()
        daemon.wait_at(project, "review", "needs_human")
        assert ["pass", "pass"] == [run["result"] for run in daemon.runs(project)]
        assert ["bdd 1", "bdd 1"] == lines(project, "starts.log")


def test_it_is_done_once_a_day_by_itself(tmp_path: Path) -> None:
    """The daemon does it by itself."""
    project, clock = shop(tmp_path), WallClock(tmp_path)
    with living_by(clock, tmp_path, lambda _: keeping(tmp_path, daily=True)) as daemon:
        old = run_to_review(daemon, project, tmp_path)

        clock.set_off(40 * DAY_S)  # the hour is over, too

        eventually_sync(lambda: not (daemon.state_dir / "runs" / old).exists())
        eventually_sync(lambda: "cleaned up" in daemon.log())
        assert not (project / ".ai/runs" / old).exists()
        assert [old] == [run["run"] for run in daemon.runs(project)]
