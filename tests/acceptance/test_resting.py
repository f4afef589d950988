"""Projects at rest, under the real daemon: killed while they sleep, edited, woken, and let alone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.daemon import Daemon, running, sample
from tests.support.eventually import eventually_sync


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A running daemon."""
    with running(tmp_path) as daemon:
        yield daemon


def rests(daemon: Daemon) -> bool:
    """Return whether the daemon holds no project's lock: then they all rest."""
    locks = str(daemon.state_dir / "locks")
    folder = Path(f"/proc/{daemon.pid}/fd")
    held = [_target(link) for link in folder.iterdir()]
    return not any(name.startswith(locks) for name in held)


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except FileNotFoundError:  # closed since
        return ""


def edit(project: Path, **changes: object) -> None:
    """Change STATE.json as another tool would."""
    path = project / ".ai/STATE.json"
    state = json.loads(path.read_text())
    new = path.with_suffix(".new")
    new.write_text(json.dumps(state | changes))
    new.replace(path)


def test_a_story_sleeps_at_its_gate_through_a_kill_and_wakes_to_an_approval(
    daemon: Daemon, tmp_path: Path
) -> None:
    """Nothing runs twice for it, and what somebody wrote meanwhile is found."""
    project = sample(tmp_path)
    daemon.verb("start", project, story="US-001")
    daemon.wait_at(project, "review", "needs_human")
    eventually_sync(lambda: rests(daemon))

    daemon.kill()
    edit(project, human_note="Mind the rounding.")
    daemon.start()
    daemon.wait_for(project, lambda track: track["human_note"] == "Mind the rounding.")
    eventually_sync(lambda: rests(daemon))
    edit(project, human_note="And the signs.")
    daemon.wait_for(project, lambda track: track["human_note"] == "And the signs.")

    assert "error" != daemon.verb("approve", project)["type"]
    daemon.wait_at(project, "done", "pass")
    eventually_sync(lambda: rests(daemon))
    started = daemon.starts(project)
    daemon.kill()
    daemon.start()
    eventually_sync(lambda: rests(daemon))
    assert ("done", "pass") == (daemon.track(project)["step"], daemon.track(project)["status"])
    assert len(set(started)) == len(started) == len(daemon.starts(project))
    assert ["state_edited"] * 2 == [
        event["kind"] for event in daemon.events(project) if event["kind"] == "state_edited"
    ]


def test_a_sleeping_project_is_removed_and_comes_back_as_it_was(daemon: Daemon, tmp_path: Path) -> None:
    """Its journal and its files stay; and a verb finds it as soon as it is back."""
    project = sample(tmp_path)
    daemon.verb("init", project)
    eventually_sync(lambda: rests(daemon))
    before = daemon.track(project)

    assert "removed" == daemon.verb("remove", project)["type"]
    assert "added" == daemon.verb("add", project)["type"]

    assert before == daemon.track(project)
    daemon.verb("note", project, text="Wake up.")
    assert "Wake up." == daemon.track(project)["human_note"]
