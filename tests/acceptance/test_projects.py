"""Projects under the real daemon: edited, paused, broken, repaired, waiting, worked on by hand."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from tests.support.agents import GATED, project_at, scripted, state_of
from tests.support.daemon import EXECUTORS, Daemon, prompts, running, sample
from tests.support.eventually import eventually_sync

Json = dict[str, Any]


SETTINGS = {"execute": {"slots": 1, "settle_s": 0.1}, "watch": {"sweep_s": 1}, **scripted("gated")}
"""With a single slot a second executor has to wait."""


def edit_state(project: Path, **changes: object) -> None:
    """Change STATE.json as an editor would: a new file in its place."""
    put_state(project, json.dumps({**state_of(project), **changes}))


def put_state(project: Path, text: str) -> None:
    """Write STATE.json whole: in place it would be empty for a moment, and be read like that."""
    changed = project / ".ai/changed.json"
    changed.write_text(text)
    changed.rename(project / ".ai/STATE.json")


def initialised(daemon: Daemon, base: Path) -> Path:
    """Return a project that is supervised and has a STATE, at Level 1."""
    project = sample(base)
    daemon.verb("add", project)
    daemon.verb("init", project)
    return project


def test_adding_dispatches_nothing(daemon: Daemon, tmp_path: Path) -> None:
    """A project is at Level 1 until a person starts a story."""
    project = initialised(daemon, tmp_path)

    view = daemon.view(project)

    assert 1 == view["level"]
    assert [] == daemon.runs(project)


def test_a_file_that_is_wrong_is_refused_with_its_place(daemon: Daemon, tmp_path: Path) -> None:
    """The next command opens it in an editor, and programs get every problem."""
    project = sample(tmp_path)
    (project / ".ai/handoffd.yaml").write_text("auto: maybe\npreset: rust\n")

    told = daemon.verb("add", project)

    assert ("INVALID_FILE", f"${{EDITOR:-vi}} +1 {project}/.ai/handoffd.yaml") == (told["code"], told["hint"])
    assert [("auto", 1)] == [(one["key"], one["line"]) for one in told["problems"]]


def test_unknown_keys_of_state_stay_in_place(daemon: Daemon, tmp_path: Path) -> None:
    """What another tool keeps in STATE.json is there after our own writes."""
    project = initialised(daemon, tmp_path)
    edited = {"x_team": {"lead": "ada"}, **state_of(project)}
    put_state(project, json.dumps(edited))

    eventually_sync(lambda: "state_edited" in [e["kind"] for e in daemon.events(project)])
    daemon.verb("note", project, text="Hello.")

    after = state_of(project)
    assert "Hello." == after["human_note"]
    assert ("x_team", {"lead": "ada"}) == next(iter(after.items()))


def test_a_handoff_of_a_session_that_is_not_ours_counts(daemon: Daemon, tmp_path: Path) -> None:
    """Level 1: a person runs an agent by hand; its hand-off moves the STATE and dispatches nothing."""
    project = initialised(daemon, tmp_path)
    begun = {"dispatched_at": "2026-01-01T00:00:00Z", "timeout_min": 0}
    edit_state(project, story="US-001", step="bdd", status="running", **begun)
    daemon.wait_at(project, "bdd", "running")

    draft = project / ".ai/draft"
    draft.write_text("---\nstory: US-001\nstep: bdd\nstatus: pass\n---\nDone.\n")
    draft.rename(project / ".ai/HANDOFF.md")

    daemon.wait_at(project, "bdd", "pass")
    assert [] == daemon.starts(project)


def test_an_edit_past_a_gate_is_held_until_it_is_confirmed(daemon: Daemon, tmp_path: Path) -> None:
    """Writing `scaffold` into STATE.json is not an approval."""
    project = initialised(daemon, tmp_path)
    edit_state(project, story="US-001", step="review", status="needs_human")
    daemon.wait_at(project, "review", "needs_human")

    edit_state(project, step="scaffold", status="pending")
    daemon.wait_saying(project, "edited past the human step review")

    eventually_sync(lambda: state_of(project)["step"] == "review")
    eventually_sync(lambda: "needs_human" in daemon.told_kinds(project))
    daemon.verb("confirm", project)
    daemon.wait_at(project, "scaffold", "pending")


def test_an_unreadable_state_is_quarantined_until_it_can_be_read(daemon: Daemon, tmp_path: Path) -> None:
    """It is left alone, named with its place, and the project goes on when it is readable again."""
    project = initialised(daemon, tmp_path)
    good = (project / ".ai/STATE.json").read_text()
    put_state(project, good.replace('"pending"', '"pondering"'))

    eventually_sync(lambda: daemon.condition(project) == "invalid_state")
    detail = daemon.view(project)["detail"]
    assert "pondering" in detail
    assert "needs_human" in detail  # the allowed values
    put_state(project, good)
    eventually_sync(lambda: daemon.condition(project) == "ok")


def test_a_deleted_folder_is_rebuilt_from_the_journal(daemon: Daemon, tmp_path: Path) -> None:
    """STATE.json is a projection: losing it loses nothing."""
    project = initialised(daemon, tmp_path)
    before = state_of(project)

    (project / ".ai").rename(tmp_path / "deleted")  # at once: what is deleted bit by bit is rebuilt meanwhile
    shutil.rmtree(tmp_path / "deleted")

    eventually_sync((project / ".ai/STATE.json").exists)
    assert before == state_of(project)


def test_a_paused_project_dispatches_nothing_until_it_is_resumed(daemon: Daemon, tmp_path: Path) -> None:
    """What runs ends normally; what follows waits."""
    project = sample(tmp_path, executor="gated", rules=GATED)
    daemon.started(project)

    daemon.verb("pause", project)
    (project / ".ai/release").touch()

    track = daemon.wait_at(project, "bdd", "pass")
    assert track["waits_for"].startswith("paused by")
    daemon.verb("resume", project)
    daemon.wait_at(project, "review", "needs_human")


def test_a_second_executor_waits_for_the_slot(daemon: Daemon, tmp_path: Path) -> None:
    """Status says why a track waits, and it goes on by itself."""
    first = sample(tmp_path / "a", executor="gated", rules=GATED)
    second = sample(tmp_path / "b", executor="gated", rules=GATED)
    daemon.started(first)

    daemon.verb("start", second, story="US-001")

    daemon.wait_saying(second, "1st for a slot")
    for project in (first, second):
        (project / ".ai/release").touch()
    for project in (first, second):
        daemon.wait_at(project, "review", "needs_human")


def test_an_edited_command_waits_for_trust(daemon: Daemon, tmp_path: Path) -> None:
    """An agent that writes itself a friendlier check does not get it."""
    project = initialised(daemon, tmp_path)
    (project / ".ai/step-rules.yaml").write_text("steps: {impl: {post_check: 'true', max_attempts: 9}}\n")

    eventually_sync(lambda: "steps.impl.post_check" in "".join(daemon.view(project)["warnings"]))
    trusted = daemon.verb("trust", project)["trusted"]
    assert {"steps.impl.max_attempts", "steps.impl.post_check"} == set(trusted)
    assert [] == daemon.view(project)["warnings"]


def test_peek_changes_nothing(daemon: Daemon, tmp_path: Path) -> None:
    """It shows the prompt that the next turn would send."""
    project = initialised(daemon, tmp_path)
    edit_state(project, story="US-001", step="bdd", status="pending")
    daemon.wait_at(project, "bdd", "pending")
    before = daemon.events(project)

    seen = daemon.get("/v1/peek", project=str(project))

    assert "dispatched" == seen["result"]["type"]
    assert "step: bdd" in seen["prompt"]
    assert before == daemon.events(project)


def test_a_verb_moves_the_story_back(daemon: Daemon, tmp_path: Path) -> None:
    """Rollback goes to an earlier step only, and the story is worked on from there."""
    project = sample(tmp_path)
    daemon.to_review(project)

    assert "ROLLBACK_FORWARD" == daemon.verb("rollback", project, step="impl")["code"]
    assert "WRONG_STEP" == daemon.verb("skip", project)["code"]
    assert "accepted" == daemon.verb("rollback", project, step="contract")["type"]

    daemon.wait_at(project, "review", "needs_human")
    assert 2 == sum(run["step"] == "contract" for run in daemon.runs(project))


def test_an_executor_gives_no_verb(tmp_path: Path) -> None:
    """For no project, under no name; not even a note, which the next prompt would call a person's."""
    other = project_at(tmp_path / "other", rules=GATED)

    def forger(daemon: Daemon) -> Json:
        argv = [sys.executable, str(EXECUTORS / "forger.py"), str(daemon.socket), str(other)]
        return {"executors": {"forger": {"extends": "command", "argv": argv}}}

    project = sample(tmp_path, executor="forger")
    with running(tmp_path, forger) as daemon:
        daemon.verb("add", other)
        before = daemon.view(other)
        daemon.to_review(project)

        said = next((project / ".ai/runs").glob("*/output.log")).read_text()
        assert 2 * 10 == said.count("INSIDE_EXECUTOR")
        assert {"a person"}.isdisjoint(one["event"].get("by") for one in daemon.events(project))
        assert before == daemon.view(other)


def test_an_edit_between_two_attempts_takes_effect_at_the_next_one(daemon: Daemon, tmp_path: Path) -> None:
    """The table is not read while an executor runs, but before the next is started."""
    project = sample(tmp_path, executor="gated")
    daemon.started(project)

    (project / ".ai/step-rules.yaml").write_text("steps: {sdd-delta: {step_instruction: {en: Be brief.}}}\n")
    (project / ".ai/release").touch()
    daemon.wait_at(project, "review", "needs_human")

    assert "Be brief." in prompts(project, "sdd-delta")[0]
