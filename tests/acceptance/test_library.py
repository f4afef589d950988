"""The library beside the real daemon: what it writes is judged, and what it looks at stays as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.agents import HELD, release
from tests.support.commands import environment_of
from tests.support.daemon import Daemon, sample
from tests.support.eventually import eventually_sync

from handoffd import NotFound, Refused, approve_review, dispatch, peek, read_state, start_story, write_state

SETTINGS = HELD


@pytest.fixture(autouse=True)
def _found(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the library of this process find the daemon."""
    for name, value in environment_of(daemon).items():
        monkeypatch.setenv(name, value)


def test_a_state_that_is_written_is_adopted(daemon: Daemon, tmp_path: Path) -> None:
    """At once, without a verb; what is not ours in it stays."""
    project = sample(tmp_path)
    start_story(project, "US-001")

    write_state(project, read_state(project).model_copy(update={"human_note": "Cents."}))

    daemon.wait_for(project, lambda track: track["human_note"] == "Cents.")
    assert "state_edited" in [event["kind"] for event in daemon.events(project)]


@pytest.mark.parametrize(
    "past", [{"step": "review", "status": "pass"}, {"step": "scaffold"}, {"step": "done", "status": "pass"}]
)
def test_no_gate_is_passed_by_writing(daemon: Daemon, tmp_path: Path, past: dict[str, str]) -> None:
    """The daemon holds every such edit and sends a notice; only a confirmation passes it."""
    project = sample(tmp_path)
    start_story(project, "US-001")
    before = read_state(project)

    write_state(project, {**json.loads((project / ".ai/STATE.json").read_text()), **past})

    daemon.wait_saying(project, "edited past the human step review")
    eventually_sync(lambda: read_state(project) == before)
    eventually_sync(lambda: "needs_human" in daemon.told_kinds(project))
    assert "blocked" == dispatch(project).type
    with pytest.raises(Refused):
        approve_review(project)
    assert [] == daemon.starts(project)


def test_what_is_written_while_an_executor_runs_is_undone(daemon: Daemon, tmp_path: Path) -> None:
    """And told: it may have been the agent."""
    project = sample(tmp_path, executor="held")
    start_story(project, "US-001", automatic=True)
    daemon.wait_executing(project)
    before = read_state(project)

    write_state(project, before.with_(step="verify", status="pass"))

    eventually_sync(lambda: read_state(project) == before)
    told = [event["result"] for event in daemon.events(project) if event["kind"] == "state_edited"]
    assert ["STATE_TAMPERED"] == [result["code"] for result in told]
    release(project, "bdd")


def test_a_folder_is_peeked_at_beside_a_daemon(daemon: Daemon, tmp_path: Path) -> None:
    """It is not supervised for that, and its STATE.json is the text that it was."""
    project = sample(tmp_path)
    with pytest.raises(NotFound):
        peek(project)
    state = project / ".ai/STATE.json"
    state.write_text('{"project": "shop", "story": "US-002", "step": "impl", "status": "pending"}')

    seen = peek(project)

    assert ("impl", "dispatched") == (seen.step, seen.result.type)
    assert "US-002" in (seen.prompt or "")
    assert '{"project": "shop", "story": "US-002", "step": "impl", "status": "pending"}' == state.read_text()
    assert str(project) not in [one["project"] for one in daemon.get("/v1/status")["projects"]]
