"""Projects at rest, under the real daemon: killed while they sleep, edited, woken, and let alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.support.agents import GATED
from tests.support.daemon import Daemon, sample
from tests.support.eventually import eventually_sync


def rests(daemon: Daemon, project: Path) -> bool:
    """Return whether the daemon does not hold the project's lock, which is its root, held open."""
    folder = Path(f"/proc/{daemon.pid}/fd")
    return str(project) not in {_target(link) for link in folder.iterdir()}


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
    """Nothing runs twice for it, and the daemon finds what was written meanwhile."""
    project = sample(tmp_path, rules=GATED)
    daemon.to_review(project)
    eventually_sync(lambda: rests(daemon, project))

    daemon.kill()
    edit(project, human_note="Mind the rounding.")
    daemon.start()
    daemon.wait_for(project, lambda track: track["human_note"] == "Mind the rounding.")
    eventually_sync(lambda: rests(daemon, project))
    edit(project, human_note="And the signs.")
    daemon.wait_for(project, lambda track: track["human_note"] == "And the signs.")

    assert "error" != daemon.verb("approve", project)["type"]
    daemon.wait_at(project, "done", "pass")
    eventually_sync(lambda: rests(daemon, project))
    started = daemon.starts(project)
    daemon.kill()
    daemon.start()
    eventually_sync(lambda: rests(daemon, project))
    assert ("done", "pass") == (daemon.track(project)["step"], daemon.track(project)["status"])
    assert len(set(started)) == len(started) == len(daemon.starts(project))
    assert ["state_edited"] * 2 == [
        event["kind"] for event in daemon.events(project) if event["kind"] == "state_edited"
    ]


def test_a_sleeping_project_is_removed_and_comes_back_as_it_was(daemon: Daemon, tmp_path: Path) -> None:
    """Its journal and its files stay; and a verb finds it as soon as it is back."""
    project = sample(tmp_path, rules=GATED)
    daemon.verb("init", project)
    eventually_sync(lambda: rests(daemon, project))
    before = daemon.track(project)

    assert "removed" == daemon.verb("remove", project)["type"]
    assert "added" == daemon.verb("add", project)["type"]

    assert before == daemon.track(project)
    daemon.verb("note", project, text="Wake up.")
    assert "Wake up." == daemon.track(project)["human_note"]


def test_edits_in_quick_succession_are_all_taken(daemon: Daemon, tmp_path: Path) -> None:
    """One that is made while the answer to the one before is being written is not written over."""
    project = sample(tmp_path, rules=GATED)
    daemon.to_review(project)

    for number in range(18):  # from 20 on they are a storm, of which only some are taken
        edit(project, human_note=str(number))
        daemon.wait_for(project, lambda track, note=str(number): track["human_note"] == note)  # type: ignore[misc]
