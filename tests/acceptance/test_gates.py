"""Steps at which only a person decides, under a real daemon: as `gates` and edits of the table have them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from tests.support.agents import lines, project_at, shell_agent, shop
from tests.support.commands import assert_replayed, typed
from tests.support.daemon import Daemon, Json, prompts, running, sample
from tests.support.eventually import eventually_sync
from tests.support.house import HAND_OVER
from tests.support.repositories import git

AGENT = f"""\
cat > /dev/null
echo "$HANDOFFD_STEP $HANDOFFD_ATTEMPT" >> starts.log
until test -e {{base}}/$HANDOFFD_STEP; do sleep 0.05; done
{HAND_OVER}"""
"""Hands over when the test lets its step go."""

TABLE = """\
steps:
  bdd: {{next_on_pass: review, timeout_min: 5}}
  review:
    next_on_pass: update-memory
    requires_human: {human}
    timeout_min: 5
    step_instruction: {{en: Review it.}}
"""
BRIEF = "steps: {bdd: {next_on_pass: review, max_attempts: 5}, review: {next_on_pass: done}}\n"
"""Of a story that has one step, but for its gates."""
ON, OFF = (TABLE.format(human=human) for human in ("true", "false"))


def settings(base: Path) -> Json:
    """Return settings with the agent as executor, and every step but the first two let go."""
    (base / "update-memory").touch()
    return {"executor": "agent", "executors": {"agent": shell_agent(base, AGENT.format(base=base))}}


def edit_table(daemon: Daemon, project: Path, table: str) -> None:
    """Edit the step table as a person does, and trust it."""
    (project / ".ai/step-rules.yaml").write_text(table)
    trusted = daemon.verb("trust", project)["trusted"]
    assert ["steps.review.requires_human"] == trusted


def gate_of(daemon: Daemon, project: Path) -> tuple[bool, str | None]:
    """Return whether the status shows a gate, and what it tells to type there."""
    track = daemon.track(project)
    return track["gate"], track["next_command"]


@pytest.mark.parametrize("running_at", ["bdd", "review"])
def test_a_gate_that_is_turned_on_during_a_run_is_passed_by_a_person_alone(
    tmp_path: Path, running_at: str
) -> None:
    """Whether the executor of that step runs or the one before it: its hand-off opens no gate."""
    project = shop(tmp_path, OFF)
    with running(tmp_path, settings(tmp_path)) as daemon:
        daemon.verb("start", project, story="US-001")
        if running_at == "review":
            (tmp_path / "bdd").touch()
        daemon.wait_for(project, lambda track: (track["step"], track["phase"]) == (running_at, "executing"))
        edit_table(daemon, project, ON)
        for step in ("bdd", "review"):
            (tmp_path / step).touch()

        daemon.wait_at(project, "review", "needs_human")
        assert (True, f"handoffd approve {project} --story US-001") == gate_of(daemon, project)
        # Of the edit, a person may have got a notice before they trusted it.
        eventually_sync(lambda: ["review"] == [told["step"] for told in daemon.told(project) if told["step"]])
        before = lines(project, "starts.log")
        assert (["bdd 1"] if running_at == "bdd" else ["bdd 1", "review 1"]) == before

        daemon.verb("approve", project, story="US-001")
        daemon.wait_at(project, "done", "pass")
        assert [*before, "update-memory 1"] == lines(project, "starts.log")


def test_a_gate_that_is_turned_off_while_a_story_waits_there_stays_one_for_it(tmp_path: Path) -> None:
    """Status, notices and verbs agree on it, also after a restart; the next story finds none."""
    project = shop(tmp_path, ON)
    with running(tmp_path, settings(tmp_path)) as daemon:
        (tmp_path / "bdd").touch()
        daemon.to_review(project)
        waiting = (True, f"handoffd approve {project} --story US-001")
        edit_table(daemon, project, OFF)

        for _ in range(2):
            assert waiting == gate_of(daemon, project)
            assert "WRONG_STEP" == daemon.verb("skip", project)["code"]
            assert "needs_human" == daemon.get("/v1/peek", project=str(project))["result"]["type"]
            open_ = daemon.get("/v1/notices", project=str(project))["waiting"]
            assert ["US-001"] == [notice["story"] for notice in open_ if notice["story"]]
            daemon.kill()
            daemon.start()
        assert ["bdd 1"] == lines(project, "starts.log")

        assert "accepted" == daemon.verb("approve", project, story="US-001")["type"]
        daemon.wait_at(project, "done", "pass")
        (tmp_path / "review").touch()
        daemon.verb("start", project, story="US-002")
        daemon.wait_for(project, lambda track: (track["story"], track["step"]) == ("US-002", "done"))
        first, second = ["bdd 1", "update-memory 1"], ["bdd 1", "review 1", "update-memory 1"]
        assert [*first, *second] == lines(project, "starts.log")


# --- as `gates` has them --------------------------------------------------------------------------------
def test_a_night_with_its_gate_behind_the_code(tmp_path: Path) -> None:
    """No person is asked before the code; in the morning all is there to look at, and both answers count."""
    project = sample(tmp_path)
    own = project / ".ai/handoffd.yaml"
    own.write_text(json.dumps({**json.loads(own.read_text()), "gates": "after"}))
    for words in (("init", "-qb", "main"), ("add", "-A"), ("commit", "-qm", "first")):
        assert 0 == git(project, *words)
    with running(tmp_path) as daemon:
        daemon.begin(project)
        track = daemon.wait_at(project, "acceptance", "needs_human")
        assert (True, f"handoffd approve {project} --story US-001") == (track["gate"], track["next_command"])
        eventually_sync(lambda: ["needs_human"] == daemon.told_kinds(project))
        (told,) = daemon.told(project)
        assert ("acceptance", "US-001") == (told["step"], told["story"])
        passed = [one["why"] for one in daemon.events(project) if "passed over" in one["why"]]
        assert [
            "contract passed, and review is passed over (gates: after); scaffold attempt 1 of 2"
        ] == passed

        gate = typed(daemon, "gate", str(project), "--no-keys", "--json").json
        assert (["docs/bdd/US-001.md"], "acceptance") == (gate["scenarios"], gate["step"])
        assert gate["changes"]["count"] > 2
        assert gate["tests"]["measured"]["fail"] == 0
        assert {"bdd", "scaffold", "impl", "verify"} <= {one["step"] for one in gate["attempts"]}
        leads = {one["reason"]: one["leads_to"] for one in gate["answers"]}
        assert ("update-memory", "impl") == (leads[None], leads["nfr_missing"])

        said = daemon.verb("reject", project, reason="nfr_missing", note="Too slow by far.")
        assert "back to impl" in said["message"]
        daemon.wait_for(project, lambda now: (now["step"], now["status"]) == ("acceptance", "needs_human"))
        eventually_sync(lambda: 2 == sum(one["step"] == "acceptance" for one in daemon.told(project)))
        assert "Too slow by far." in prompts(project, "impl")[-1]
        daemon.verb("approve", project, story="US-001")
        daemon.wait_at(project, "done", "pass")
        assert_replayed(daemon)


def test_a_story_that_no_person_was_asked_about_never_lands_by_itself(tmp_path: Path) -> None:
    """The status warns of `gates: none` beside `land: auto`, the end of a story says why; `land` lands it."""
    agent = f"cat > /dev/null\necho 1 >> US-001.txt\n{HAND_OVER}"
    own = {"gates": "none", "workspace": "clone", "stories": {"land": "auto"}}
    project = project_at(tmp_path / "shop", BRIEF, json.dumps(own))
    (project / ".gitignore").write_text("/.ai\n")
    for words in (("init", "-qb", "main"), ("add", "-A"), ("commit", "-qm", "first")):
        assert 0 == git(project, *words)
    settings = {"executor": "agent", "executors": {"agent": shell_agent(tmp_path, agent)}}
    with running(tmp_path, settings) as daemon:
        daemon.begin(project)
        daemon.wait_at(project, "done", "pass")
        eventually_sync(lambda: "done" in daemon.told_kinds(project))
        (told,) = [one for one in daemon.told(project) if one["kind"] == "done"]
        assert "no person was asked about it, so it does not land by itself" in told["why"]
        assert f"handoffd land {project} --story US-001" == told["action"]
        (warning,) = [one for one in daemon.view(project)["warnings"] if "gates" in one]
        assert "gates: none asks no person about a story, so stories.land: auto lands none" in warning

        for story in ("US-002", "US-003"):  # and another one that begins does not land it, either
            daemon.verb("start", project, story=story)
            daemon.wait_for(project, partial(_is_done, story))
        assert [] == [one for one in daemon.events(project) if one["kind"] == "landed"]
        assert not (project / "US-001.txt").exists()
        said = typed(daemon, "land", str(project), "--story", "US-001")
        assert 0 == said.code, said
        assert (project / "US-001.txt").exists()
        assert_replayed(daemon)


def _is_done(story: str, track: Json) -> bool:
    return (track["story"], track["step"]) == (story, "done")


def test_an_agent_that_fails_in_the_same_way_three_times_waits_for_a_person(tmp_path: Path) -> None:
    """Two of its five attempts are not paid for."""
    project = shop(tmp_path, BRIEF)
    agent = "cat > /dev/null\necho $HANDOFFD_STEP >> starts.log\necho boom at $(date +%T) >&2\nexit 7\n"
    settings = {"executor": "agent", "executors": {"agent": shell_agent(tmp_path, agent)}}
    with running(tmp_path, settings) as daemon:
        daemon.verb("start", project, story="US-001")
        track = daemon.wait_at(project, "bdd", "needs_human")
        assert ["bdd"] * 3 == lines(project, "starts.log")
        assert (3, 5) == (track["attempt"], track["max_attempts"])
        assert track["last_error"].endswith("(the same 3 times in a row)")
        assert "boom at" in track["last_error"]
        log = f"handoffd log {project}"
        assert (log, f"handoffd retry {project}") == (track["look_command"], track["next_command"])
        assert "boom at" in typed(daemon, "log", str(project)).out
        eventually_sync(lambda: ["needs_human"] == daemon.told_kinds(project))
        (told,) = daemon.told(project)
        assert "bdd ended in the same way 3 times in a row, and is not tried again by itself" == told["text"]
        assert [f"To look: {log}"] == told["facts"]
        daemon.verb("retry", project)
        eventually_sync(lambda: len(lines(project, "starts.log")) == 6)
        assert_replayed(daemon)
