"""One project at levels 0, 1 and 2 and back, with the real daemon and without any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.agents import carry_out
from tests.support.commands import environment
from tests.support.daemon import Daemon, sample

from handoffd import Dispatched, apply_handoff, approve_review, dispatch, start_story

SETTINGS = {"execute": {"settle_s": 0.1}}
"""The daemon takes a hand-off soon."""


def test_a_story_goes_through_all_levels(daemon: Daemon, tmp_path: Path) -> None:
    """By hand, by the daemon, by hand again, and the daemon brings it to its end."""
    project = sample(tmp_path)
    state = project / ".ai/STATE.json"

    assert "not_initialized" == daemon.get("/v1/query", project=str(project))["status"]  # level 0
    assert not state.exists()

    daemon.verb("start", project, story="US-001", manual=True)  # level 1
    taken = daemon.verb("dispatch", project)
    assert ("dispatched", "bdd") == (taken["type"], taken["step"])
    carry_out(taken["prompt"], project)
    daemon.wait_at(project, "bdd", "pass")  # applied although no person handed it in
    assert ["external"] == [run["executor"] for run in daemon.runs(project)]
    told = daemon.verb("apply", project)
    assert ("taken", "taken already: bdd attempt 1 of US-001 is pass") == (told["type"], told["message"])

    assert "accepted" == daemon.verb("level", project, level=2)["type"]
    assert daemon.verb("dispatch", project)["type"] != "dispatched"
    daemon.wait_at(project, "review", "needs_human")
    assert ["external", "rehearsal", "rehearsal"] == [run["executor"] for run in daemon.runs(project)]

    assert "accepted" == daemon.verb("level", project, level=1)["type"]
    daemon.verb("approve", project)
    taken = daemon.verb("dispatch", project)
    assert ("dispatched", "scaffold") == (taken["type"], taken["step"])
    carry_out(taken["prompt"], project)
    applied = daemon.verb("apply", project)
    assert applied["type"] in {"applied", "taken"}  # the daemon may have heard it first
    daemon.wait_at(project, "scaffold", "pass")
    assert daemon.track(project)["tests_measured"]

    daemon.verb("level", project, level=2)
    daemon.wait_at(project, "done", "pass")
    mine = [run["step"] for run in daemon.runs(project) if run["executor"] == "external"]
    assert ["bdd", "scaffold"] == mine


def test_the_next_story_is_a_persons_again(daemon: Daemon, tmp_path: Path) -> None:
    """Nothing is dispatched by itself at level 1, however long the daemon is there."""
    project = sample(tmp_path)
    daemon.to_review(project)
    daemon.verb("level", project, level=1)
    daemon.verb("approve", project)

    seen = daemon.track(project)
    assert ("review", "pass") == (seen["step"], seen["status"])
    assert "you or another tool to dispatch it: the project is at level 1" == seen["waits_for"]
    assert str(seen["next_command"]).startswith("handoffd dispatch ")


def test_level_2_in_the_settings_goes_before_the_verb(daemon: Daemon, tmp_path: Path) -> None:
    """It would be level 2 again at once, so it is refused."""
    project = sample(tmp_path)
    settings = project / ".ai/handoffd.yaml"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "auto": True}))
    daemon.verb("init", project)

    assert "AUTO_IS_SET" == daemon.verb("level", project, level=1)["code"]


def test_a_whole_story_by_hand_without_a_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each prompt into an agent, each hand-off handed in, until it is done; the tests are measured."""
    for name, value in environment(tmp_path / "run").items():
        monkeypatch.setenv(name, value)
    project = sample(tmp_path)

    start_story(project, "US-001")
    judged: list[tuple[str, str, bool]] = []
    while (turn := dispatch(project)).type != "done":
        if isinstance(turn, Dispatched):
            carry_out(turn.prompt or "", project)
            state = apply_handoff(project).state
            judged.append((state.step, state.status, state.tests is not None))
        else:
            assert "needs_human" == turn.type
            approve_review(project)
        assert len(judged) < 20

    untested = [(step, "pass", False) for step in ("bdd", "sdd-delta", "contract")]
    tested = [(step, "pass", True) for step in ("scaffold", "impl", "verify")]
    assert [*untested, *tested, ("update-memory", "pass", True)] == judged
