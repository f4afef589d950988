"""What a prompt speaks of, and which templates make it."""

from __future__ import annotations

from pathlib import Path

from tests.support.house import make_project, track_of

from handoffd.engine.track import Facts, TrackKey
from handoffd.inspection.own_files import shipped_layers, templates_for
from handoffd.protocol.prompt import PromptContext, render_prompt
from handoffd.protocol.rulebook import build_rulebook
from handoffd.protocol.state import TestCounts
from handoffd.track.prompts import prompt_context

RULES = build_rulebook(shipped_layers(None))


def context(root: str, step: str, facts: Facts) -> PromptContext:
    """Return the context of an attempt of `step`."""
    track = track_of(step=step)
    return prompt_context(TrackKey(root), track.with_ledger(facts=facts), "d1", RULES, "en")


def test_facts_come_from_the_journal_and_not_from_the_cleared_state(tmp_path: Path) -> None:
    """impl is given scaffold's failing tests, which STATE.json has forgotten at the step change."""
    facts = Facts(failing_tests=("t::new",), tests=TestCounts.model_validate({"pass": 3}), files=("a.py",))

    found = context(make_project(tmp_path), "impl", facts)

    assert (("t::new",), "green", ("a.py",)) == (found.failing_tests, found.tests_expected, found.facts.files)


def test_a_red_step_is_not_shown_what_failed_before(tmp_path: Path) -> None:
    """Failing tests are what it is to write, not to mend."""
    found = context(make_project(tmp_path), "scaffold", Facts(failing_tests=("t::old",)))

    assert ((), "red") == (found.failing_tests, found.tests_expected)


def test_a_persons_note_and_the_last_error_are_in_the_prompt(tmp_path: Path) -> None:
    """What a person said, and how the attempt before ended, reach the agent."""
    track = track_of(step="impl", human_note="Mind the cents.", last_error="exited with code 7")

    found = prompt_context(TrackKey(make_project(tmp_path)), track, "d1", RULES, "en")

    assert ("Mind the cents.", "exited with code 7") == (found.human_note, found.last_error)


def test_paths_are_expanded_and_looked_for(tmp_path: Path) -> None:
    """What is missing is named, with the step that would make it."""
    found = context(make_project(tmp_path), "sdd-delta", Facts())

    assert "docs/bdd/US-001.md" in found.reads
    assert ("docs/deltas/US-001.md",) == found.writes
    assert ("PROJECT_MEMORY.md", "docs/bdd/US-001.md", "docs/sdd.md") == found.missing
    assert "SDD delta" == found.display_name


def test_the_projects_own_template_is_laid_over_the_shipped_one(tmp_path: Path) -> None:
    """Only the one step that it is for changes."""
    root = make_project(tmp_path)
    steps = Path(root, ".ai/prompts/en/steps")
    steps.mkdir(parents=True)
    (steps / "bdd.j2").write_text("Write haiku.\n")

    templates = templates_for(root)

    assert "Write haiku." in render_prompt(context(root, "bdd", Facts()), templates)
    assert "Write haiku." not in render_prompt(context(root, "impl", Facts()), templates)
