"""Whole stories under the real daemon: every step a real process, every count measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.agents import FALSE_CLAIM
from tests.support.commands import typed
from tests.support.daemon import Daemon, prompts, sample
from tests.support.eventually import eventually_sync


def pass_review(daemon: Daemon, project: Path, **arguments: str) -> None:
    """Approve at the review."""
    daemon.wait_at(project, "review", "needs_human")
    assert "accepted" == daemon.verb("approve", project, **arguments)["type"]


def test_a_story_runs_from_bdd_to_done(daemon: Daemon, tmp_path: Path) -> None:
    """Only the review asks a person, and the project's own tests pass in the end."""
    project = sample(tmp_path)

    daemon.begin(project)
    pass_review(daemon, project)
    daemon.wait_at(project, "done", "pass")

    steps = [run["step"] for run in daemon.runs(project)]
    assert ["bdd", "sdd-delta", "contract", "scaffold", "impl", "verify", "update-memory"] == steps
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--disable-plugin-autoload"],
        cwd=project,
        capture_output=True,
        check=False,
    )
    assert 0 == tests.returncode, tests.stdout.decode()
    checklist = (project / ".ai/CHECKLIST.md").read_text()
    assert "## BDD scenarios (bdd)\n\n- [x] " in checklist
    assert "## Review checkpoint (review)\n\nA person decides" in checklist
    assert "[ ]" not in checklist
    eventually_sync(lambda: ["needs_human", "done"] == daemon.told_kinds(project))


def test_impl_fails_twice_then_passes(daemon: Daemon, tmp_path: Path) -> None:
    """Each failure is an attempt, and the story goes on with the third."""
    project = sample(tmp_path, script={"impl": ["fail", "fail", "pass"]})

    daemon.begin(project)
    pass_review(daemon, project)
    daemon.wait_at(project, "done", "pass")

    attempts = [run["attempt"] for run in daemon.runs(project) if run["step"] == "impl"]
    assert [1, 2, 3] == attempts


def test_a_lie_is_measured(daemon: Daemon, tmp_path: Path) -> None:
    """An impl that claims to pass while tests fail is failing, and says which."""
    project = sample(tmp_path, script={"impl": [FALSE_CLAIM, "pass"]})

    daemon.begin(project)
    pass_review(daemon, project)
    track = daemon.wait_at(project, "done", "pass")

    assert track["tests_measured"] is True  # by an earlier step: the last one runs none, and claims some
    verdicts = [e["why"] for e in daemon.events(project) if e["kind"] == "checks_finished"]
    assert any("pass claimed, but" in why for why in verdicts)
    assert "test_a_valid_code_lowers_the_total" in prompts(project, "impl")[1]


def test_what_was_measured_is_told_as_such(daemon: Daemon, tmp_path: Path) -> None:
    """Numbers beside a failure are the daemon's own where it ran the tests."""
    rules = "steps:\n  impl:\n    max_attempts: 1\n"
    project = sample(tmp_path, script={"impl": FALSE_CLAIM}, rules=rules)

    daemon.begin(project)
    pass_review(daemon, project)
    track = daemon.wait_at(project, "impl", "needs_human")

    assert track["tests"]["fail"] > 0
    assert track["tests_measured"] is True
    assert daemon.view(project)["test_command"]


def test_a_constitution_violation_goes_back_to_the_delta(daemon: Daemon, tmp_path: Path) -> None:
    """The reason selects the route."""
    project = sample(tmp_path, script={"impl": ["fail:constitution_violation", "pass"]})

    daemon.begin(project)
    pass_review(daemon, project)
    pass_review(daemon, project)
    daemon.wait_at(project, "done", "pass")

    steps = [run["step"] for run in daemon.runs(project)]
    assert ["impl", "sdd-delta", "contract"] == steps[steps.index("impl") :][:3]


def test_a_need_for_clarification_goes_to_the_review(daemon: Daemon, tmp_path: Path) -> None:
    """What only a person can answer waits for one."""
    project = sample(tmp_path, script={"impl": ["fail:needs_clarification", "pass"]})

    daemon.begin(project)
    pass_review(daemon, project)
    daemon.wait_for(project, lambda t: t["step"] == "review" and t["status"] == "needs_human")
    eventually_sync(lambda: ["needs_human"] * 2 == daemon.told_kinds(project))


def test_what_an_agent_asks_is_on_each_screen(daemon: Daemon, tmp_path: Path) -> None:
    """Not only that it asks; with the note of a person beside it, until the step has passed."""
    script = {"bdd": ["needs_human:needs_clarification", "needs_human:needs_clarification", "pass"]}
    project = sample(tmp_path, script=script)
    daemon.begin(project)
    daemon.wait_for(project, lambda t: t["status"] == "needs_human")
    question = daemon.track(project)["waits_for"]
    assert question.startswith("your answer to: ")
    assert len(question) > len("your answer to: ")
    eventually_sync(lambda: len(daemon.told(project)) == 1)
    (told,) = daemon.told(project)
    assert f"The agent asks: {question.removeprefix('your answer to: ')}" in told["facts"]
    daemon.verb("note", project, text="Euro.")
    daemon.verb("retry", project)
    eventually_sync(lambda: len(daemon.told(project)) == 2, within_s=60)
    assert daemon.track(project)["waits_for"] == f"{question} (your note so far: Euro.)"


def test_a_rejected_review_is_routed_by_its_reason(daemon: Daemon, tmp_path: Path) -> None:
    """The note is in the prompt of the step it leads to, and not in the one after."""
    project = sample(tmp_path)

    daemon.to_review(project)
    daemon.verb("reject", project, reason="constitution_violation", note="Use whole cents.")
    pass_review(daemon, project)

    steps = [run["step"] for run in daemon.runs(project)]
    assert ["bdd", "sdd-delta", "contract", "sdd-delta", "contract"] == steps[:5]
    assert "Use whole cents." in prompts(project, "sdd-delta")[1]
    assert "Use whole cents." not in prompts(project, "contract")[1]


def test_an_approvals_note_is_in_the_next_prompt_and_its_retry(daemon: Daemon, tmp_path: Path) -> None:
    """Until the step it was given for has passed, no prompt forgets it."""
    project = sample(tmp_path, script={"scaffold": ["fail", "pass"]})

    daemon.begin(project)
    pass_review(daemon, project, note="Mind the rounding.")
    daemon.wait_at(project, "done", "pass")

    assert [True, True] == ["Mind the rounding." in text for text in prompts(project, "scaffold")]
    assert ["Mind the rounding." in text for text in prompts(project, "impl")] == [False]


def test_a_reopened_story_goes_further_back_once(daemon: Daemon, tmp_path: Path) -> None:
    """Verify fails without a reason: one step before where it was reopened; then as the table says."""
    project = sample(tmp_path, script={"verify": ["pass", "fail", "fail", "pass"]})
    daemon.begin(project)
    pass_review(daemon, project)
    daemon.wait_at(project, "done", "pass")
    before = len(daemon.runs(project))

    assert "accepted" == daemon.verb("reopen", project, step="impl", note="Cents are lost.")["type"]
    daemon.wait_at(project, "done", "pass")

    steps = [run["step"] for run in daemon.runs(project)][before:]
    assert ["impl", "verify", "scaffold", "impl", "verify", "impl", "verify", "update-memory"] == steps
    assert "Cents are lost." in prompts(project, "impl")[1]
    history = (project / ".ai/history.md").read_text()
    assert 1 == history.count("### Reopen — US-001 → impl\n")
    assert "Cents are lost." in history


def test_a_custom_instruction_is_in_every_attempts_prompt(daemon: Daemon, tmp_path: Path) -> None:
    """A custom task is custom, update-memory, done; its text stays through its attempts."""
    project = sample(tmp_path, script={"custom": ["fail", "pass"]})

    assert "accepted" == daemon.verb("custom", project, text="Write down the opening hours.")["type"]
    daemon.wait_at(project, "done", "pass")

    assert [True, True] == ["Write down the opening hours." in text for text in prompts(project, "custom")]
    steps = [run["step"] for run in daemon.runs(project)]
    assert ["custom", "custom", "update-memory"] == steps


def test_what_an_agent_reports_in_json_lines_is_told_in_words(daemon: Daemon, tmp_path: Path) -> None:
    """To the next attempt and to a reader of the log; its exit code tells nothing."""
    script = {"stream": {"input_tokens": 1000, "cost_usd": 0.5}, "bdd": ["error:the moon is full", "pass"]}
    project = sample(tmp_path, script=script, executor="rehearsal-stream")

    daemon.begin(project)
    daemon.wait_at(project, "review", "needs_human")

    attempts = [run for run in daemon.runs(project) if run["step"] == "bdd"]
    assert [1, 2] == [run["attempt"] for run in attempts]
    assert "it reported: the moon is full" in prompts(project, "bdd")[1]
    eventually_sync(lambda: "[result] bdd is over (1000 tokens in, $0.50)" in log(daemon, attempts[1]["run"]))
    assert "rehearsal: " not in log(daemon, attempts[1]["run"])


def log(daemon: Daemon, run: str) -> str:
    """Return the output of a run as people read it."""
    return typed(daemon, "log", "--run", run).out


def test_used_up_attempts_ask_a_person(daemon: Daemon, tmp_path: Path) -> None:
    """The last attempt is followed by a notice, not by another one; a retry begins anew."""
    project = sample(tmp_path, script={"bdd": ["fail", "fail", "fail", "pass"]})

    daemon.begin(project)
    track = daemon.wait_at(project, "bdd", "needs_human")

    assert ["max_attempts_exceeded"] == track["blocked_by"]
    assert "bdd failed, no attempt left" == track["waits_for"]
    assert (1, False) == (track["tests"]["fail"], track["tests_measured"])  # its own word
    assert 3 == len(daemon.starts(project))
    eventually_sync(lambda: daemon.told(project))
    notice = daemon.told(project)[-1]
    assert ("needs_human", f"handoffd retry {project}") == (notice["kind"], notice["action"])
    daemon.verb("retry", project)
    daemon.wait_at(project, "review", "needs_human")


def test_the_reason_of_the_last_attempt_is_what_it_waits_for(daemon: Daemon, tmp_path: Path) -> None:
    """Where no error says it, the list of projects still tells why a person is needed."""
    rules = "steps:\n  bdd:\n    max_attempts: 1\n"
    project = sample(tmp_path, script={"bdd": "fail:scope_warning"}, rules=rules)

    daemon.begin(project)
    track = daemon.wait_at(project, "bdd", "needs_human")

    assert "bdd failed: scope_warning, no attempt left" == track["waits_for"]
