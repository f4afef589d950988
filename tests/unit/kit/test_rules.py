"""`probe`, `scaffold` and `append-rules`: the rules of a project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.kit.boards import board, given, row

from handoffd.errors import InvalidFile, Refused
from handoffd.kit.given import Answer, Board, Done
from handoffd.kit.rules import append_rules, probe, scaffold


def _apply(root: Path, done: Done) -> None:
    for path, content in done.writes.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)


def test_a_project_is_known_once_it_was_described(tmp_path: Path) -> None:
    """A file that is not JSON does not count."""
    assert "fresh" == probe(given(tmp_path)).outcome
    (tmp_path / "docs").mkdir()
    for text, outcome in (("{", "fresh"), ("[]", "fresh"), ("{}", "initialised")):
        (tmp_path / "docs/project-tech.json").write_text(text)
        assert outcome == probe(given(tmp_path)).outcome


def test_a_file_is_laid_out_for_each_topic(tmp_path: Path) -> None:
    """Files that are there stay; their rules are counted."""
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs/naming.md").write_text("# Mine\n\n- one\n- two\n")

    done = scaffold(given(tmp_path, words={"folder": "specs/"}))

    assert {"count": 2, "made": 4} == done.fields
    assert "specs/naming.md" not in done.writes
    _apply(tmp_path, done)
    assert {"count": 2, "made": 0} == scaffold(given(tmp_path, words={"folder": "specs/"})).fields
    with pytest.raises(InvalidFile, match="must be a path below"):
        scaffold(given(tmp_path, words={"folder": "../specs"}))


def _learned(tmp_path: Path) -> Board:
    rows = [
        {"id": "L1", "kind": "convention", "text": "Times are UTC.", "topic": "coding"},
        {"id": "L2", "kind": "learning", "text": "Mocks\n# hide bugs", "topic": "quality"},
    ]
    return board(
        tmp_path / "b", [row("extract", "updates.json")], {"extract/updates.json": {"learnings": rows}}
    )


def _appended(tmp_path: Path, one: Board, choice: str | None = "apply", text: str = "") -> Done:
    answers = {} if choice is None else {"approve": Answer(choice, text)}
    done = append_rules(given(tmp_path / "w", board=one, answers=answers, words={"dedupe": True}))
    _apply(tmp_path / "w", done)
    return done


def test_approved_rules_are_added_each_once(tmp_path: Path) -> None:
    """A second time changes nothing; a rule on several lines becomes one line."""
    one = _learned(tmp_path)

    assert {"added": 2, "known": 0} == _appended(tmp_path, one).fields
    assert "# Coding\n\n- Times are UTC.\n" == (tmp_path / "w/specs/coding.md").read_text()
    assert "- Mocks # hide bugs\n" in (tmp_path / "w/specs/quality.md").read_text()
    again = _appended(tmp_path, one)
    assert ({"added": 0, "known": 2}, {}) == (again.fields, again.writes)


def test_only_the_rules_that_a_person_named_are_added(tmp_path: Path) -> None:
    """Without an approval none is."""
    assert {"added": 1, "known": 0} == _appended(tmp_path, _learned(tmp_path), text="L2").fields
    for choice in (None, "skip"):
        with pytest.raises(Refused, match="no person approved"):
            _appended(tmp_path, _learned(tmp_path), choice)


def test_a_rule_that_is_there_in_other_signs_is_known(tmp_path: Path) -> None:
    """Other text stays where it is."""
    (tmp_path / "w/specs").mkdir(parents=True)
    (tmp_path / "w/specs/coding.md").write_text("# Coding\n\nRead this first.\n\n* times are utc\n")

    assert {"added": 1, "known": 1} == _appended(tmp_path, _learned(tmp_path)).fields
    assert "Read this first." in (tmp_path / "w/specs/coding.md").read_text()


def test_answers_to_the_questions_become_rules(tmp_path: Path) -> None:
    """A line for each; questions that were skipped and other items leave nothing."""
    rows: list[dict[str, Any]] = [
        row("wizard[naming]", outcome="answered", text="- snake_case\nbranches: topic/name\n"),
        row("wizard[files]", outcome="skip", text="none"),
        row("wizard[other]", outcome="answered", text="x"),
    ]
    done = _appended(tmp_path, board(tmp_path / "b", rows, {}), None)

    assert ["specs/naming.md"] == list(done.writes)
    assert (tmp_path / "w/specs/naming.md").read_text().endswith("\n\n- snake_case\n- branches: topic/name\n")


def test_a_topic_cannot_name_a_file_elsewhere(tmp_path: Path) -> None:
    """It comes from an agent."""
    rows = [{"id": "L1", "kind": "learning", "text": "x", "topic": "../../etc/x"}]
    one = board(tmp_path / "b", [row("e", "updates.json")], {"e/updates.json": {"learnings": rows}})

    with pytest.raises(Refused, match="cannot name a file"):
        _appended(tmp_path, one)
