"""CHECKLIST.md and history.md: the two files of a project that the daemon writes for people."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.supervise.making import make_project

from handoffd.errors import StoreError
from handoffd.inspection.table import shipped_layers
from handoffd.protocol.rulebook import build_rulebook
from handoffd.supervise.checklist import append_history, checklist, write_checklist

RULES = build_rulebook(shipped_layers(None))
STEPS = RULES.path("story")


def test_there_is_one_box_for_each_step_of_the_pipeline() -> None:
    """In passing order, bootstrap included; a custom task has its own."""
    assert "# CUSTOM-1\n\n- [ ] custom\n- [ ] update-memory\n" == checklist("CUSTOM-1", RULES.path("custom"))
    assert [f"- [ ] {step}" for step in STEPS] == checklist("US-1", STEPS).split("\n")[2:-1]


def test_a_checklist_is_written_when_its_story_starts(tmp_path: Path) -> None:
    """It takes the place of the one of the story before."""
    root = make_project(tmp_path)
    write_checklist(root, "US-1", STEPS)

    write_checklist(root, "US-2", STEPS)

    assert Path(root, ".ai/CHECKLIST.md").read_text().startswith("# US-2\n")


def test_ticked_boxes_survive_an_order_given_twice(tmp_path: Path) -> None:
    """After a crash the order is carried out again, and an executor may have worked meanwhile."""
    root = make_project(tmp_path)
    write_checklist(root, "US-1", STEPS)
    file = Path(root, ".ai/CHECKLIST.md")
    file.write_text(file.read_text().replace("- [ ] bdd", "- [x] bdd"))

    write_checklist(root, "US-1", STEPS)

    assert "- [x] bdd" in file.read_text()


def test_history_is_appended_to_once(tmp_path: Path) -> None:
    """What executors wrote stays; the same entry is not added twice in a row."""
    root = make_project(tmp_path)
    file = Path(root, ".ai/history.md")
    file.write_text("# History\n")

    append_history(root, "\n### Reopen US-1\n")
    append_history(root, "\n### Reopen US-1\n")

    assert "# History\n\n### Reopen US-1\n" == file.read_text()


def test_a_link_out_of_the_project_is_not_followed(tmp_path: Path) -> None:
    """Neither to write nor to append."""
    root = make_project(tmp_path)
    outside = tmp_path / "outside"
    outside.write_text("untouched")
    for name in ("CHECKLIST.md", "history.md"):
        Path(root, ".ai", name).symlink_to(outside)

    with pytest.raises(StoreError):
        write_checklist(root, "US-1", STEPS)
    with pytest.raises(StoreError):
        append_history(root, "text")
    assert "untouched" == outside.read_text()
