"""How attempts end, under the real daemon: hanging, idle, half-written, garbage, stale."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.agents import shell_agent
from tests.support.daemon import Daemon, running, sample
from tests.support.eventually import eventually_sync
from tests.support.house import HAND_OVER
from tests.support.runs import working_in

SETTINGS = {"execute": {"handoff_grace_s": 1}}
"""The daemon finds an idle executor after a second."""


def standing(state: Path) -> tuple[str, str]:
    """Return step and status in a STATE.json."""
    shown = json.loads(state.read_text())
    return shown["step"], shown["status"]


def refusals(daemon: Daemon, project: Path) -> list[str | None]:
    """Return the codes of what was refused."""
    return [(event["result"] or {}).get("code") for event in daemon.events(project)]


def test_a_hung_executor_ends_with_its_orphans_at_the_timeout(daemon: Daemon, tmp_path: Path) -> None:
    """The status is timeout, a person gets a notice, and no process of the attempt is left."""
    rules = "steps: {bdd: {timeout_min: 0.12}}"
    project = sample(tmp_path, script={"bdd": ["orphan+ignore-term"]}, rules=rules)

    daemon.begin(project)
    eventually_sync(lambda: len(working_in(project)) == 3)  # the agent and its two orphans
    track = daemon.wait_at(project, "bdd", "timeout")

    assert "ran out of time" in track["last_error"]
    eventually_sync(lambda: daemon.told_kinds(project) == ["timeout"])
    assert [] == working_in(project)


def test_a_valid_handoff_at_the_deadline_counts(tmp_path: Path) -> None:
    """What was handed over before the time was up is not thrown away."""
    rules = "steps: {bdd: {timeout_min: 0.12, next_on_pass: review}}"
    project = sample(tmp_path, rules=rules, executor="prompt")
    agent = shell_agent(tmp_path, f"cat > /dev/null\n{HAND_OVER}sleep 600\n")
    with running(tmp_path, {"executors": {"prompt": agent}, "execute": {"handoff_grace_s": 600}}) as daemon:
        daemon.to_review(project)

        ends = [one["event"]["exit"]["by"] for one in daemon.events(project) if "exit" in one["event"]]
        assert ends in (["deadline"], ["stop"])  # by the shim or the poller, as one looks first


def test_an_executor_that_has_handed_over_and_rests_is_ended(daemon: Daemon, tmp_path: Path) -> None:
    """Its hand-off counts at once, long before the timeout."""
    project = sample(tmp_path, script={"bdd": ["linger"]})

    daemon.to_review(project)

    assert "handoff_settled" in [event["kind"] for event in daemon.events(project)]


def test_a_stalled_executor_is_ended_after_a_warning(tmp_path: Path) -> None:
    """Long before its timeout; the attempt counts, and the error names the missing signs of life."""
    rules = "steps: {bdd: {next_on_pass: review}}"
    project = sample(tmp_path, script={"bdd": ["hang", "pass"]}, rules=rules)
    with running(tmp_path, {"execute": {"stall_min": 0.1}}) as daemon:
        daemon.to_review(project)

        kinds = [event["kind"] for event in daemon.events(project)]
        assert kinds.index("executor_quiet") < kinds.index("executor_stalled")
        first, second = (run for run in daemon.runs(project) if run["step"] == "bdd")
        assert ("failing", "pass") == (first["result"], second["result"])
        assert "s of processor time" in first["why"]
        eventually_sync(lambda: "warning" in daemon.told_kinds(project))


def test_a_stale_handoff_changes_nothing(daemon: Daemon, tmp_path: Path) -> None:
    """A hand-off of another attempt does not count; the agent is asked for its own."""
    project = sample(tmp_path, script={"bdd": ["stale", "pass"]})

    daemon.to_review(project)

    first, second = [run for run in daemon.runs(project) if run["step"] == "bdd"]
    assert (1, "no_handoff") == (first["attempt"], first["result"])
    assert "only a stale hand-off" in first["why"]
    assert (1, "pass") == (second["attempt"], second["result"])


@pytest.mark.parametrize("act", ["half", "garbage", "old-format"])
def test_a_broken_handoff_fails_at_the_exit_with_its_line(daemon: Daemon, tmp_path: Path, act: str) -> None:
    """Read at its exit and asked for again in vain, it fails the attempt; the error names the line."""
    project = sample(tmp_path, script={"bdd": [act] * 6})

    daemon.begin(project)
    track = daemon.wait_at(project, "bdd", "needs_human")

    assert ".ai/HANDOFF.md:" in track["last_error"]


def test_a_half_written_handoff_changes_nothing_while_the_executor_lives(
    daemon: Daemon, tmp_path: Path
) -> None:
    """It might still be writing; only its end makes it an error."""
    project = sample(tmp_path, script={"bdd": ["half+hang"]})

    daemon.begin(project)
    eventually_sync((project / ".ai/HANDOFF.md").exists)
    before = daemon.events(project)[-1]["seq"]
    daemon.verb("note", project, text="Still there?")
    after = [event["kind"] for event in daemon.events(project) if event["seq"] > before]

    assert {"noted"} == set(after) - {"executor_started"}
    assert "running" == daemon.track(project)["status"]
    assert "accepted" == daemon.verb("abort", project)["type"]
    daemon.wait_for(project, lambda t: t["status"] == "needs_human")
    assert [] == working_in(project)


def test_a_second_crash_in_a_row_costs_an_attempt_and_says_how(daemon: Daemon, tmp_path: Path) -> None:
    """The first is repeated at no cost; then it is failing, with the signal in last_error."""
    project = sample(tmp_path, script={"bdd": ["crash", "crash", "pass"]})

    daemon.to_review(project)

    runs = [run for run in daemon.runs(project) if run["step"] == "bdd"]
    told = [(run["attempt"], run["result"]) for run in runs]
    assert [(1, "crash"), (1, "failing"), (2, "pass")] == told
    assert "signal 9" in runs[0]["why"]


def test_a_state_file_written_by_the_executor_is_restored(daemon: Daemon, tmp_path: Path) -> None:
    """While an executor runs the daemon restores STATE.json and sends a notice."""
    project = sample(tmp_path, script={"bdd": ["tamper+hang", "pass"]})
    state = project / ".ai/STATE.json"

    daemon.begin(project)
    eventually_sync(lambda: "STATE_TAMPERED" in refusals(daemon, project))
    eventually_sync(lambda: ("bdd", "running") == standing(state))
    eventually_sync(lambda: ["warning"] == daemon.told_kinds(project))
    assert "accepted" == daemon.verb("abort", project)["type"]
    daemon.wait_at(project, "bdd", "needs_human")
    daemon.to_review(project)

    steps = [run["step"] for run in daemon.runs(project)]
    assert ["bdd", "bdd", "sdd-delta", "contract"] == steps
