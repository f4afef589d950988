"""Housekeeping of a real daemon: what it removes a month later, and what goes on all the same."""

from __future__ import annotations

import os
from pathlib import Path

from tests.acceptance.test_clock import DAY_S, living_by
from tests.support.agents import lines, released, shop
from tests.support.daemon import Json
from tests.support.eventually import eventually_sync
from tests.support.wallclock import WallClock


def keeping(base: Path, *, daily: bool) -> Json:
    """Return settings with the agent, that keep no run for being among the newest."""
    return released(base, retention={"runs_keep": 0, "daily": daily})


def test_what_is_old_goes_and_the_story_goes_on(tmp_path: Path) -> None:
    """Judged runs go from state and project; the one that lives is judged when it ends."""
    project, clock = shop(tmp_path), WallClock(tmp_path)
    with living_by(clock, tmp_path, lambda _: keeping(tmp_path, daily=False)) as daemon:
        daemon.started(project)
        (tmp_path / "release").touch()
        daemon.wait_at(project, "review", "needs_human")
        (old,) = [run["run"] for run in daemon.runs(project)]
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
        daemon.started(project)
        (tmp_path / "release").touch()
        daemon.wait_at(project, "review", "needs_human")
        (old,) = [run["run"] for run in daemon.runs(project)]

        clock.set_off(40 * DAY_S)  # the hour is over, too

        eventually_sync(lambda: not (daemon.state_dir / "runs" / old).exists())
        eventually_sync(lambda: "cleaned up" in daemon.log())
        assert not (project / ".ai/runs" / old).exists()
        assert [old] == [run["run"] for run in daemon.runs(project)]
