"""What is handed over can be read, whatever it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from handoffd.rehearsal.assignment import (
    Assignment,
    Counts,
    Report,
    front_matter,
    hand_over,
    previous_facts,
    result_text,
    tick,
)
from handoffd.rehearsal.workspace import Workspace

FIELDS = {
    "story", "step", "attempt", "dispatch", "status", "reason", "files_changed",
    "tests_pass", "tests_fail", "tests_skip", "failing_tests", "summary",
}  # fmt: skip


def loaded(assignment: Assignment, report: Report) -> Any:
    """Return the front matter as a YAML 1.2 reader sees it."""
    match = re.fullmatch(r"---\n(.*)---\n", front_matter(assignment, report), re.DOTALL)
    assert match
    return yaml.safe_load(match[1])


@pytest.mark.parametrize(
    "text", ["007", "1e3", "2026-11-21", "no", "null", "a: b # c", "---", "- x", "狀態", '"']
)
def test_any_text_stays_the_text_it_is(text: str) -> None:
    """No name turns into a number, a date or a boolean, and no character breaks the block."""
    found = loaded(
        Assignment(text, text, 2, text, ""), Report(summary=text, files=(text, text), failing=(text,))
    )

    assert [text] * 4 == [found[key] for key in ("step", "story", "dispatch", "summary")]
    assert ([text, text], [text], 2) == (found["files_changed"], found["failing_tests"], found["attempt"])


def test_every_field_is_there_also_when_it_is_empty() -> None:
    """Readers find all fields of the protocol; a commit only where there was one."""
    empty = loaded(Assignment("bdd", None, 1, None, ""), Report(summary="s"))
    full = loaded(Assignment("commit", "US-1", 1, "d", ""), Report(summary="s", commit="abc"))

    assert (FIELDS, FIELDS | {"commit_hash"}) == (empty.keys(), full.keys())
    assert (None, None, None, []) == tuple(
        empty[key] for key in ("story", "dispatch", "reason", "files_changed")
    )


def test_the_flat_form_names_a_reason_only_if_there_is_one() -> None:
    """One `key: value` a line."""
    assert "status: pass\nsummary: s\n" == result_text(Report("s"))
    assert "status: failing\nreason: scope_warning\nsummary: s\n" == result_text(
        Report("s", status="failing", reason="scope_warning")
    )


def test_an_identical_handoff_is_written_again(tmp_path: Path) -> None:
    """A second attempt with the same words leaves files of a new identity, and no temporary ones."""
    workspace, inodes = Workspace(str(tmp_path)), []
    for _ in range(2):
        hand_over(workspace, Assignment("bdd", "US-1", 1, "d", ""), Report("s"))
        inodes.append({path.name: path.stat().st_ino for path in (tmp_path / ".ai").iterdir()})

    assert [{"HANDOFF.md", "executor-result"}] * 2 == [set(found) for found in inodes]
    assert all(inodes[0][name] != inodes[1][name] for name in inodes[0])


def test_facts_are_read_back(tmp_path: Path) -> None:
    """The next step finds counts and commit of its own story in what the step before handed over."""
    workspace = Workspace(str(tmp_path))
    assert (Counts(), None) == previous_facts(workspace, "007")

    hand_over(
        workspace, Assignment("commit", "007", 1, "d", ""), Report("s", tests=Counts(3, 1, 2), commit="0ab")
    )

    assert (Counts(3, 1, 2), "0ab") == previous_facts(workspace, "007")
    assert (Counts(), None) == previous_facts(workspace, "008")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "# US-1 impl\n\n## sdd-delta\n- [ ] a contract\n\n## contract\n- [ ] b\n- [x] c\n* [ ] d\n",
            "# US-1 impl\n\n## sdd-delta\n- [ ] a contract\n\n## contract\n- [x] b\n- [x] c\n* [x] d\n",
        ),
        ("- [ ] **contract** b\n- [ ] `sdd-delta` a\n", "- [x] **contract** b\n- [ ] `sdd-delta` a\n"),
        ("- [ ] contract-free\n- [ ] subcontract\n", "- [ ] contract-free\n- [ ] subcontract\n"),
        ("## 契約 (contract)\r\n- [ ] 端點\r\n", "## 契約 (contract)\r\n- [x] 端點\r\n"),
    ],
)
def test_only_the_steps_own_boxes_are_ticked(tmp_path: Path, before: str, after: str) -> None:
    """Those under its heading or, where headings name no step, those that name it."""
    workspace = Workspace(str(tmp_path))
    workspace.replace(".ai/CHECKLIST.md", before.encode())

    tick(workspace, "contract")

    assert after.encode() == (tmp_path / ".ai/CHECKLIST.md").read_bytes()


def test_without_a_checklist_nothing_is_ticked(tmp_path: Path) -> None:
    """It is the orchestrator that makes one."""
    tick(Workspace(str(tmp_path)), "impl")

    assert [] == list(tmp_path.iterdir())
