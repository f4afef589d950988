"""Steps at which only a person decides, while a person edits the step table under a real daemon."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.agents import lines, shell_agent, shop
from tests.support.daemon import Daemon, Json, running
from tests.support.eventually import eventually_sync
from tests.support.house import HAND_OVER

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
