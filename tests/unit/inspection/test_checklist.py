"""CHECKLIST.md: its boxes in both languages, and when it is replaced."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.unit.inspection.making import write, write_state

from handoffd.errors import Refused, StoreError
from handoffd.inspection.checklist import (
    CHECKLIST,
    boxes_in,
    checklist,
    generate_checklist,
    unticked,
    write_checklist,
)
from handoffd.inspection.own_files import book_of, shipped_layers
from handoffd.protocol.rule_merge import Layer
from handoffd.protocol.rulebook import build_rulebook
from handoffd.protocol.rules import Language
from handoffd.rehearsal.assignment import tick
from handoffd.rehearsal.workspace import Workspace

RULES = book_of(shipped_layers(None))
STEPS = RULES.path("story")
LANGUAGES: tuple[Language, ...] = ("en", "zh-TW")


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_step_that_ships_has_one_to_four_boxes(language: Language) -> None:
    """Except steps of people; no boxes are for steps that do not exist."""
    rules = book_of(shipped_layers("with-commit"))
    boxes = boxes_in(language).steps

    assert {name for name, rule in rules.steps.items() if not rule.requires_human} == set(boxes)
    assert all(1 <= len(texts) <= 4 for texts in boxes.values())


def test_there_is_a_section_for_each_step_of_the_pipeline() -> None:
    """In order, including bootstrap; a person's step has no box."""
    text = checklist("US-1", STEPS, RULES)

    assert [f"({step})" for step in STEPS] == [
        heading.rsplit(" ", 1)[1] for heading in text.split("\n") if heading.startswith("## ")
    ]
    assert text.startswith("# US-1\n\n## Bootstrap (bootstrap)\n\n- [ ] ")
    assert "## Review checkpoint (review)\n\nA person decides here; there is no box to tick.\n" in text


def test_a_step_without_texts_has_a_plain_box() -> None:
    """Its name may be any text, and becomes one line."""
    table = """
steps:
  polish:
    display_name: {en: "Polish\\n- [x] all"}
    step_instruction: {en: Polish it.}
    next_on_pass: done
    next_on_fail: polish
  update-memory: {next_on_pass: polish}
"""
    rules = build_rulebook((*shipped_layers(None), Layer("own", table)))

    text = checklist("US-1", ("polish",), rules)

    plain = "# US-1\n\n## Polish - [x] all (polish)\n\n- [ ] What the prompt of this step asks for is done\n"
    assert plain == text


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("step", ["contract", "sdd-delta", "update-memory"])
def test_an_executor_finds_the_boxes_of_its_step(tmp_path: Path, language: Language, step: str) -> None:
    """By the step's name in the heading."""
    write(tmp_path, CHECKLIST, checklist("US-1", STEPS, RULES, language))

    tick(Workspace(str(tmp_path)), step)

    ticked = (tmp_path / CHECKLIST).read_text(encoding="utf-8").count("- [x] ")
    assert len(boxes_in(language).steps[step]) == ticked


def test_a_checklist_takes_the_place_of_the_story_before(tmp_path: Path) -> None:
    """One of the same story stays as it is: an executor may have ticked it."""
    root = str(tmp_path)
    assert write_checklist(root, "US-1", "# US-1\n\n- [ ] one\n")
    write(tmp_path, CHECKLIST, "# US-1\n\n- [x] one\n")

    assert not write_checklist(root, "US-1", "# US-1\n\n- [ ] one\n")
    assert "- [x] one" in (tmp_path / CHECKLIST).read_text(encoding="utf-8")
    assert write_checklist(root, "US-2", "# US-2\n")
    assert "# US-2\n" == (tmp_path / CHECKLIST).read_text(encoding="utf-8")


def test_a_story_that_starts_anew_has_nothing_ticked(tmp_path: Path) -> None:
    """A file from before the start is replaced; a later one may be an executor's."""
    root, start = str(tmp_path), datetime(2026, 1, 31, tzinfo=UTC)
    file = tmp_path / CHECKLIST
    for written_s, made, box in ((1, False, "[x]"), (-1, True, "[ ]")):
        write(tmp_path, CHECKLIST, "# US-1\n\n- [x] one\n")
        os.utime(file, (start.timestamp() + written_s,) * 2)

        assert made == write_checklist(root, "US-1", "# US-1\n\n- [ ] one\n", start)
        assert f"# US-1\n\n- {box} one\n" == file.read_text(encoding="utf-8")


def test_a_checklist_can_be_made_without_a_start(tmp_path: Path) -> None:
    """By the project's own table and language; bootstrap is in it only during that step."""
    assert generate_checklist(str(tmp_path), "CUSTOM-1", "custom")
    text = (tmp_path / CHECKLIST).read_text(encoding="utf-8")
    assert ["## Custom task (custom)", "## Memory update (update-memory)"] == [
        heading for heading in text.split("\n") if heading.startswith("## ")
    ]

    write_state(tmp_path, step="bootstrap")
    write(tmp_path, ".ai/handoffd.yaml", "language: zh-TW\npreset: with-commit\n")
    assert generate_checklist(str(tmp_path), "US-1")
    text = (tmp_path / CHECKLIST).read_text(encoding="utf-8")
    assert "# US-1\n\n## 專案啟動 (bootstrap)\n" in text
    assert "## 提交變更 (commit)\n" in text
    assert not generate_checklist(str(tmp_path), "US-1")


def test_no_checklist_is_written_for_an_invalid_story(tmp_path: Path) -> None:
    """Its id would be the title, and elsewhere a path."""
    with pytest.raises(Refused):
        generate_checklist(str(tmp_path), "../US-1")
    assert [] == list(tmp_path.iterdir())


def test_a_link_out_of_the_project_is_not_followed(tmp_path: Path) -> None:
    """An agent could make us write anywhere."""
    outside = tmp_path / "outside"
    outside.write_text("untouched", encoding="utf-8")
    root = tmp_path / "project"
    (root / ".ai").mkdir(parents=True)
    (root / CHECKLIST).symlink_to(outside)

    with pytest.raises(StoreError):
        generate_checklist(str(root), "US-1")
    assert "untouched" == outside.read_text(encoding="utf-8")


def test_boxes_are_unticked_where_a_step_is_behind() -> None:
    """Steps ahead have theirs still; a heading that an agent has changed counts as behind."""
    text = """# US-1

## Scenarios (bdd)

- [x] done
- [ ] each has a tag
  * [ ] also below
- [ ]
## mine
- [ ] unknown
## Implementation (impl)
- [ ] later
"""
    assert [
        (6, "Scenarios (bdd)", "each has a tag"),
        (7, "Scenarios (bdd)", "also below"),
        (10, "mine", "unknown"),
    ] == [*unticked(text.splitlines(), {"impl"})]
