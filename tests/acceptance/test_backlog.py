"""Backlogs and schedules under the real daemon."""

from __future__ import annotations

import json
import shlex
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.agents import HELD, release
from tests.support.commands import assert_replayed, typed
from tests.support.daemon import Daemon, running, sample
from tests.support.dying import VARIABLE
from tests.support.eventually import eventually_sync

from handoffd.clock import SystemClock

ONE_STEP = "pipelines: {story: {first: bdd}}\nsteps: {bdd: {next_on_pass: done}}\n"
"""A story is over after one step, which the rehearsal does in a moment."""
MORE = ["US-002", "US-003", "US-004"]


def done(daemon: Daemon, project: Path) -> list[str]:
    """Return the stories that were brought to their end, in order, as the notices reported them."""
    return [
        order["story"]
        for event in daemon.events(project)
        for order in event["orders"]
        if order["kind"] == "notify" and order["notice"] == "done"
    ]


def begun(daemon: Daemon, project: Path) -> Counter[str]:
    """Return how often each story was begun: its checklist is ordered with that."""
    return Counter(
        order["story"]
        for event in daemon.events(project)
        for order in event["orders"]
        if order["kind"] == "write_checklist"
    )


def wait_until_done(daemon: Daemon, project: Path, *stories: str) -> None:
    """Wait until these stories are done, and no others."""
    eventually_sync(lambda: len(done(daemon, project)) >= len(stories), within_s=120)
    assert sorted(stories) == sorted(done(daemon, project))


def test_stories_follow_one_another_by_themselves(tmp_path: Path) -> None:
    """By priority behind what runs; the blocked one when it can; what cannot start stays."""
    project = sample(tmp_path, executor="held", rules=ONE_STEP)
    with running(tmp_path, {"auto_continue": True, **HELD}) as daemon:
        daemon.verb("start", project, story="US-001", then=MORE)
        daemon.verb("backlog_edit", project, story="US-002", blocked_by=["US-004"])
        daemon.verb("start", project, story="US-005", queue=True, blocked_by=["US-999"])
        daemon.verb("start", project, story="US-006", queue=True, priority=5)

        told = daemon.get("/v1/backlog", project=str(project))
        assert ["US-006", "US-002", "US-003", "US-004", "US-005"] == [one["story"] for one in told["stories"]]
        assert "waits for US-999 (never started, and not in the backlog)" == told["stories"][-1]["waits_for"]

        release(project, "bdd")
        wait_until_done(daemon, project, "US-001", *MORE, "US-006")
        assert ["US-001", "US-006", "US-003", "US-004", "US-002"] == done(daemon, project)
        assert {1} == set(begun(daemon, project).values())
        assert ["US-005"] == daemon.track(project)["backlog"]
        assert daemon.track(project)["next_story"] is None
        eventually_sync(
            lambda: any("US-005 waits for US-999" in (one["why"] or "") for one in daemon.told(project))
        )
        assert_replayed(daemon)


def test_after_three_stories_a_review_is_suggested(tmp_path: Path) -> None:
    """In the notice of the third, in status, and to who asks for the next step, also after a restart."""
    project = sample(tmp_path, rules=ONE_STEP)
    with running(tmp_path, {"auto_continue": True}) as daemon:
        daemon.verb("start", project, story="US-001", then=["US-002", "US-003"])
        wait_until_done(daemon, project, "US-001", "US-002", "US-003")
        eventually_sync(lambda: 3 <= daemon.told_kinds(project).count("done"))

        told = {one["story"]: one["why"] for one in daemon.told(project) if one["kind"] == "done"}
        assert ["US-003"] == [story for story, why in told.items() if "a review of the whole project" in why]
        daemon.kill()
        daemon.start()
        assert daemon.track(project)["review_suggested"]
        ended = daemon.verb("dispatch", project)
        assert ("done", True) == (ended["type"], ended["review_suggested"])
        assert f"handoffd review {project}" in ended["caller_instruction"]

        daemon.verb("start", project, story="US-004")
        daemon.wait_for(project, lambda track: (track["story"], track["step"]) == ("US-004", "done"))
        assert not daemon.track(project)["review_suggested"]
        assert_replayed(daemon)


def test_a_person_has_each_story_start_and_a_restart_changes_nothing(tmp_path: Path) -> None:
    """The backlog is what it was, and a `continue` is one story."""
    project = sample(tmp_path, rules=ONE_STEP)
    with running(tmp_path) as daemon:
        daemon.verb("start", project, story="US-001", then=MORE)
        daemon.wait_for(project, lambda track: track["step"] == "done")
        assert "US-002" == daemon.track(project)["next_story"]
        assert f"handoffd continue {project}" == daemon.track(project)["next_command"]
        daemon.verb("backlog_move", project, story="US-004")

        daemon.kill()
        daemon.start()

        assert ["US-004", "US-002", "US-003"] == daemon.track(project)["backlog"]
        assert "accepted" == daemon.verb("continue", project)["type"]
        daemon.wait_for(project, lambda track: (track["story"], track["step"]) == ("US-004", "done"))
        assert ["US-001", "US-004"] == done(daemon, project)
        daemon.verb("backlog_auto", project, auto="on")
        wait_until_done(daemon, project, "US-001", *MORE)


@pytest.mark.parametrize("aside", [False, True])
def test_the_next_commands_lead_on_until_a_blocked_story_is_done(tmp_path: Path, aside: bool) -> None:
    """The story that it waits for is unknown, or was set aside at its second step for this one."""
    gate = "review: {next_on_pass: done}"
    rules = f"pipelines: {{story: {{first: bdd}}}}\nsteps: {{bdd: {{next_on_pass: review}}, {gate}}}\n"
    project = sample(tmp_path, rules=rules)
    with running(tmp_path) as daemon:
        if aside:
            daemon.verb("start", project, story="US-000")
            daemon.wait_at(project, "review", "needs_human")
        daemon.verb("start", project, story="US-001", blocked_by=["US-000"], force=aside)
        daemon.wait_saying(project, "US-000")

        said: list[str] = []
        while done(daemon, project)[-1:] != ["US-001"] and len(said) < 6:
            said.append(daemon.track(project)["next_command"])
            assert 0 == typed(daemon, *shlex.split(said[-1], comments=True)[1:]).code
            daemon.wait_for(project, lambda track: track["next_command"] not in {None, said[-1]})

        assert ["US-000", "US-001"] == done(daemon, project)
        assert 1 == begun(daemon, project)["US-000"]


def test_a_story_that_needs_a_person_is_followed_by_none(tmp_path: Path) -> None:
    """Until that person has dealt with it."""
    rules = "pipelines: {story: {first: bdd}}\nsteps: {bdd: {next_on_pass: done, max_attempts: 1}}\n"
    project = sample(tmp_path, script={"bdd": ["fail", "pass"]}, rules=rules)
    with running(tmp_path, {"auto_continue": True}) as daemon:
        daemon.verb("start", project, story="US-001", then=["US-002"])
        daemon.wait_at(project, "bdd", "needs_human")
        assert ["US-002"] == daemon.track(project)["backlog"]
        daemon.verb("retry", project)
        wait_until_done(daemon, project, "US-001", "US-002")


def finished(daemon: Daemon) -> int:
    """Return how many stories the journal says are done, whether a daemon runs or not."""
    with closing(sqlite3.connect(daemon.state_dir / "journal.db", timeout=60)) as journal:
        [(body,)] = journal.execute("SELECT body FROM tracks").fetchall()
    return len(json.loads(body)["ledger"]["stories_done"])


def dies(daemon: Daemon, at: str, stories: int) -> bool:
    """Let a daemon live that is killed at a point; return whether it was before all stories were done."""
    daemon.environment[VARIABLE] = at
    daemon.launch()  # it may die before it has answered
    process = daemon._process
    assert process is not None
    eventually_sync(lambda: process.poll() is not None or finished(daemon) == stories, within_s=120)
    died = process.poll() is not None
    if died:
        daemon.lost()
    else:
        daemon.kill()
    return died


@pytest.mark.slow
def test_each_story_is_begun_once_however_often_the_daemon_is_killed(tmp_path: Path) -> None:
    """Before and after commits, renames and starts: the pop of the backlog and the begin are one."""
    project = sample(tmp_path, rules=ONE_STEP)
    stories = ["US-001", *MORE]
    points = ["before_commit", "after_commit", "before_rename", "after_rename", "before_spawn", "after_spawn"]
    with running(tmp_path, {"auto_continue": True}) as daemon:
        daemon.verb("start", project, story=stories[0], then=stories[1:])
        daemon.kill()
        kills, going = 0, True
        while going and kills < 40:
            often = 1 + 2 * (kills // len(points))
            going = dies(daemon, f"{points[kills % len(points)]}:{often}", len(stories))
            kills += going
        del daemon.environment[VARIABLE]
        daemon.start()
        wait_until_done(daemon, project, *stories)

        assert kills >= len(points)
        assert dict.fromkeys(stories, 1) == dict(begun(daemon, project))
        assert stories == done(daemon, project)
        starts = daemon.starts(project)
        assert len(set(starts)) == len(starts)
        assert_replayed(daemon)


# --- schedules -------------------------------------------------------------------------------------
def schedules(**changes: Any) -> dict[str, Any]:
    """Return settings with a schedule that was due this morning, whenever that was."""
    entry = {
        "name": "nightly", "cron": "0 0 * * *", "timezone": "UTC", "projects": ["*"], "start": "R-{date}",
        "catch_up": "one", **changes,
    }  # fmt: skip
    return {"schedule": {"poll_s": 0.2, "starts": [entry]}}


def grow_old(daemon: Daemon, days: int = 2) -> None:
    """Have the journal say that it has known its schedules for `days` days."""
    then = (SystemClock().now() - timedelta(days=days)).isoformat()
    with closing(sqlite3.connect(daemon.state_dir / "journal.db", timeout=60)) as journal:
        journal.execute("UPDATE schedules SET armed_at = ?", (then,))
        journal.commit()


def schedule(daemon: Daemon, project: Path) -> dict[str, Any]:
    """Return the schedule of a project, as status reports it."""
    [found] = daemon.get("/v1/schedules", project=str(project))["schedules"]
    told: dict[str, Any] = found
    return told


def armed(daemon: Daemon) -> bool:
    """Return whether the journal knows a schedule."""
    with closing(sqlite3.connect(daemon.state_dir / "journal.db", timeout=60)) as journal:
        return bool(journal.execute("SELECT count(*) FROM schedules").fetchone()[0])


def test_what_was_missed_while_no_daemon_ran_is_made_up_for_once(tmp_path: Path) -> None:
    """And never again, however often the daemon is killed after it."""
    project = sample(tmp_path, rules=ONE_STEP)
    with running(tmp_path, schedules()) as daemon:
        daemon.post("/v1/verbs/add", {"project": str(project)})
        eventually_sync(lambda: armed(daemon))
        assert schedule(daemon, project)["last_outcome"] is None
        daemon.kill()
        grow_old(daemon)

        daemon.start()
        eventually_sync(lambda: schedule(daemon, project)["last_outcome"])
        told = schedule(daemon, project)
        assert "started" == told["last_outcome"]
        story = told["last_story"]
        for _ in range(2):
            daemon.kill()
            daemon.start()
        wait_until_done(daemon, project, story)
        assert {story: 1} == dict(begun(daemon, project))
        [start] = [event for event in daemon.events(project) if event["kind"] == "started"]
        assert ("nightly", "schedule nightly") == (start["event"]["schedule"], start["event"]["by"])
        assert_replayed(daemon)


def test_what_is_due_behind_a_story_in_flight_waits_in_the_backlog(tmp_path: Path) -> None:
    """Where it shall; and starts when that is done, while what a person queued waits for a `continue`."""
    project = sample(
        tmp_path, rules="pipelines: {story: {first: review}}\nsteps: {review: {next_on_pass: done}}\n"
    )
    settings = schedules(overlap="queue", custom="Look around.", start=None)
    with running(tmp_path, settings) as daemon:
        daemon.verb("start", project, story="US-001", then=["US-002"])
        daemon.wait_at(project, "review", "needs_human")
        eventually_sync(lambda: armed(daemon))
        daemon.kill()
        grow_old(daemon)
        daemon.start()

        eventually_sync(lambda: schedule(daemon, project)["last_outcome"] == "queued")
        eventually_sync(lambda: len(daemon.track(project)["backlog"]) == 2)
        [asked, waiting] = daemon.get("/v1/backlog", project=str(project))["stories"]
        assert ("US-002", None) == (asked["story"], asked["schedule"])
        assert ("nightly", "custom", "Look around.") == (
            waiting["schedule"], waiting["task_type"], waiting["instruction"],
        )  # fmt: skip
        daemon.verb("approve", project)
        daemon.wait_for(project, lambda track: track["story"] == waiting["story"])


def test_a_schedule_that_means_nothing_keeps_the_daemon_from_starting(tmp_path: Path) -> None:
    """With the line, and what would do."""
    daemon = Daemon(tmp_path, schedules(cron="61 * * * *"))
    try:
        with pytest.raises(
            AssertionError, match=r"schedule.starts.0.cron: '61' is not a minute .allowed: 0 to 59"
        ):
            daemon.start()
        daemon.lost()
    finally:
        daemon.close()
