"""One writer per project on a machine: two daemons, verbs without one, and agents that lock it."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.agents import GATED, held_starts, release, scripted
from tests.support.commands import typed
from tests.support.daemon import Daemon, running, sample
from tests.support.eventually import eventually_sync

Json = dict[str, Any]

AGENTS = scripted("held", "locker")


def place(base: Path, name: str) -> Path:
    """Return a folder for a daemon of that name."""
    (base / name).mkdir()
    return base / name


def test_two_daemons_never_work_on_one_project(tmp_path: Path) -> None:
    """The second says who has it, refuses verbs, tells a person once, and takes it only when told to."""
    project = sample(tmp_path, executor="held")
    mine = {**AGENTS, "projects": [str(project)]}
    with running(place(tmp_path, "a"), AGENTS) as first:
        first.verb("start", project, story="US-001")
        first.wait_executing(project)
        with running(place(tmp_path, "b"), mine) as second:
            eventually_sync(lambda: second.condition(project) == "locked")
            seen = second.view(project)
            refused = second.verb("start", project, story="US-002", force=True)
            eventually_sync(lambda: second.told(project))

            assert f"belongs to the handoffd whose state directory is {first.state_dir}" in seen["detail"]
            assert ("LOCKED", seen["detail"]) == (refused["code"], refused["message"])
            assert "handoffd remove" in refused["hint"]
            release(project, "bdd")
            first.wait_executing(project, "sdd-delta")
            assert 1 == len(second.told(project))
            eventually_sync(lambda: len(held_starts(project)) == 2)

            first.kill()  # its agent works on, and keeps the second one out
            refused = second.verb("add", project, take=True)
            assert "LOCKED" == refused["code"]
            assert "agent of another handoffd" in refused["message"]
            first.start()
            release(project, "sdd-delta")
            first.wait_executing(project, "contract")

            first.kill()
            release(project, "contract")  # with it the last run of the first one ends
            eventually_sync(lambda: second.verb("add", project, take=True)["type"] == "added")

            assert "ok" == second.condition(project)
            first.start()
            eventually_sync(lambda: first.condition(project) == "locked")
            assert f"whose state directory is {second.state_dir}" in first.view(project)["detail"]
            assert "LOCKED" == first.verb("retry", project)["code"]
            assert 3 == len(set(held_starts(project))) == len(held_starts(project))


def test_a_project_that_another_daemon_works_on_is_not_added(tmp_path: Path) -> None:
    """And nothing is recorded."""
    project = sample(tmp_path, executor="held")
    with (
        running(place(tmp_path, "a"), AGENTS) as first,
        running(place(tmp_path, "b")) as second,
    ):
        first.verb("start", project, story="US-001")
        first.wait_executing(project)

        refused = second.verb("add", project)

        assert "LOCKED" == refused["code"]
        assert f"process {first.pid}" in refused["message"]
        assert f"handoffd add {project}" in refused["hint"]
        assert [] == second.get("/v1/status")["projects"]


def test_a_project_that_rests_under_another_daemon_is_not_added(tmp_path: Path) -> None:
    """It has no lock then, and both would put back what the other one does; removed there, it may come."""
    project = sample(tmp_path, rules=GATED)
    with running(place(tmp_path, "a")) as first, running(place(tmp_path, "b")) as second:
        first.verb("start", project, story="US-001")
        first.wait_at(project, "review", "needs_human")

        refused = second.verb("add", project)
        assert "LOCKED" == refused["code"]
        assert str(first.state_dir) in refused["message"]
        assert f"handoffd add {project} --take" in refused["hint"]
        assert [] == second.get("/v1/status")["projects"]

        first.verb("remove", project)
        assert "added" == second.verb("add", project)["type"]


def test_a_project_whose_daemon_is_stopped_belongs_to_it_all_the_same(tmp_path: Path) -> None:
    """Else both would have it when that one is back, and a finished story would come back to its review."""
    project = sample(tmp_path, rules=GATED)
    with running(place(tmp_path, "a")) as first, running(place(tmp_path, "b")) as second:
        first.verb("start", project, story="US-001")
        first.wait_at(project, "review", "needs_human")
        first.stop(executors=True)

        refused = second.verb("start", project, story="US-001")

        assert "LOCKED" == refused["code"]
        assert f"belongs to the handoffd whose state directory is {first.state_dir}" in refused["message"]
        assert [] == second.get("/v1/status")["projects"]
        first.start()
        first.verb("approve", project, story="US-001")
        first.wait_at(project, "done", "pass")


def test_two_daemons_of_one_workspace_share_nothing(tmp_path: Path) -> None:
    """The first to come has the project. The other one names it, and takes nothing there for an edit."""
    project = sample(tmp_path, rules=GATED)
    both = {"workspaces": [str(project.parent)]}
    with running(place(tmp_path, "a"), both) as first:
        eventually_sync(lambda: first.get("/v1/status")["projects"])
        with running(place(tmp_path, "b"), both) as second:
            first.verb("trust", project)
            assert "error" != first.verb("start", project, story="US-001")["type"]
            first.wait_at(project, "review", "needs_human")
            eventually_sync(lambda: second.condition(project) == "locked")

            refused = second.verb("approve", project, story="US-001")
            first.verb("approve", project, story="US-001")

            assert "LOCKED" == refused["code"]
            first.wait_at(project, "done", "pass")
            assert [] == second.runs(project)
            kinds = {event["kind"] for event in first.get("/v1/events", project=str(project))["events"]}
            assert "state_edited" not in kinds


@pytest.mark.parametrize("back", ["removed there", "taken back"])
def test_a_project_that_comes_back_goes_on_from_what_was_done_there(tmp_path: Path, back: str) -> None:
    """A story that was finished there is not done again: it waits for a person, with the edit held."""
    project = sample(tmp_path, rules=GATED)
    with running(place(tmp_path, "a")) as first, running(place(tmp_path, "b")) as second:
        first.verb("start", project, story="US-001")
        first.wait_at(project, "review", "needs_human")
        eventually_sync(lambda: second.verb("add", project, take=True)["type"] == "added")
        second.verb("level", project, level=2)
        second.verb("approve", project, story="US-001")
        second.wait_at(project, "done", "pass", 60)
        eventually_sync(lambda: json.loads((project / ".ai/STATE.json").read_text())["step"] == "done")
        eventually_sync(lambda: first.condition(project) == "locked")
        before = len(first.runs(project))

        if back == "removed there":
            second.verb("remove", project)
        else:
            eventually_sync(lambda: first.verb("add", project, take=True)["type"] == "added")

        held = "STATE.json was edited past the human step review (to done pass)"
        first.wait_saying(project, held)
        assert "another handoffd" == first.view(project)["paused_by"]
        confirmed = first.verb("confirm", project)
        assert ("done", "pass") == (confirmed["step"], confirmed["status"])
        first.verb("resume", project)
        first.wait_at(project, "done", "pass")
        assert before == len(first.runs(project))


def test_an_attempt_in_flight_is_not_begun_again_when_the_project_comes_back(tmp_path: Path) -> None:
    """Its daemon was killed, and another one has gone on with the story: that is where it goes on from."""
    project = sample(tmp_path, executor="held")
    with running(place(tmp_path, "a"), AGENTS) as first, running(place(tmp_path, "b"), AGENTS) as second:
        first.verb("start", project, story="US-001")
        first.wait_executing(project)
        first.kill()
        release(project, "bdd")
        eventually_sync(lambda: second.verb("add", project, take=True)["type"] == "added")
        second.verb("level", project, level=2)
        second.wait_executing(project, "sdd-delta")
        second.verb("pause", project)
        release(project, "sdd-delta")
        second.wait_at(project, "sdd-delta", "pass", 60)
        first.start()
        eventually_sync(lambda: first.condition(project) == "locked")

        second.verb("remove", project)

        first.wait_at(project, "sdd-delta", "pass", 60)
        assert "another handoffd" == first.view(project)["paused_by"]
        came_back = f"was with another handoffd ({second.state_dir})"
        eventually_sync(lambda: any(came_back in notice["text"] for notice in first.told(project)))
        first.verb("resume", project)
        first.wait_executing(project, "contract")
        eventually_sync(lambda: len(held_starts(project)) == 3)
        assert 3 == len(set(held_starts(project)))


def test_a_name_that_an_agent_has_forged_does_not_part_it_from_its_daemon(tmp_path: Path) -> None:
    """While it works there, the project is its daemon's; a second agent would be begun beside it else."""
    project = sample(tmp_path, executor="held")
    with running(place(tmp_path, "a"), AGENTS) as daemon:
        daemon.verb("start", project, story="US-001")
        daemon.wait_executing(project)
        daemon.kill()
        forged = b"owns\0%d\x001\0/tmp" % project.stat().st_ino
        os.setxattr(project, "user.handoffd", forged)
        daemon.start()

        release(project, "bdd")

        daemon.wait_executing(project, "sdd-delta")
        eventually_sync(lambda: len(held_starts(project)) == 2)
        assert 2 == len(set(held_starts(project)))
        assert forged != os.getxattr(project, "user.handoffd")


def test_a_project_that_was_moved_away_belongs_to_its_daemon(tmp_path: Path) -> None:
    """Worked on there by another one, and moved back, its story would be done twice."""
    project = sample(tmp_path, rules=GATED)
    with running(place(tmp_path, "a")) as first, running(place(tmp_path, "b")) as second:
        first.verb("start", project, story="US-001")
        first.wait_at(project, "review", "needs_human")
        moved = project.rename(tmp_path / "moved")

        refused = second.verb("add", moved)

        assert "LOCKED" == refused["code"]
        assert f"belongs to the handoffd whose state directory is {first.state_dir}" in refused["message"]


def test_a_verb_without_a_daemon_is_refused_while_another_one_has_the_project(tmp_path: Path) -> None:
    """It takes the same lock."""
    project = sample(tmp_path, executor="held")
    with closing(Daemon(place(tmp_path, "b"))) as alone, running(place(tmp_path, "a"), AGENTS) as first:
        assert 0 == typed(alone, "add", str(project)).code
        first.verb("add", project, take=True)
        first.verb("start", project, story="US-001")
        first.wait_executing(project)

        refused = typed(alone, "note", str(project), "Hello.")

        assert 1 == refused.code, refused.err
        assert f"belongs to the handoffd whose state directory is {first.state_dir}" in refused.err


def test_an_agent_that_locks_its_project_against_the_daemon_is_ended(tmp_path: Path) -> None:
    """It took the lock while no daemon ran. Only that process is ended, and a person gets a notice."""
    project = sample(tmp_path, executor="locker")
    own_pids = {"level": "off"}  # in a sandbox a process has another number for itself
    with running(tmp_path, {**AGENTS, "sandbox": own_pids}) as daemon:
        daemon.verb("start", project, story="US-001")
        eventually_sync((project / ".ai/locking").exists)
        daemon.kill()
        eventually_sync((project / ".ai/locker").exists)
        locker = (project / ".ai/locker").read_text()

        daemon.start()

        daemon.wait_at(project, "review", "needs_human")
        assert not Path(f"/proc/{locker}/fd/0").exists()
        told = [notice for notice in daemon.told(project) if "locked" in notice["text"]]
        assert [True] == [f"process {locker} " in notice["why"] for notice in told]
