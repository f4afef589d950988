"""The step is found in any prompt, no part of which becomes a path unchecked; hand-offs can be read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from handoffd.protocol.prompt import PromptContext, PromptFacts, PromptTemplates, render_prompt
from handoffd.protocol.rules import Language
from handoffd.protocol.state import TestCounts
from handoffd.rehearsal.assignment import (
    Assignment,
    BadAssignment,
    Counts,
    Report,
    front_matter,
    hand_over,
    previous_facts,
    result_text,
    tick,
    understand,
)
from handoffd.rehearsal.documents import facts
from handoffd.rehearsal.workspace import Workspace
from handoffd.settings.paths import shared

BLOCK = """---
story: {story}
step: {step}
attempt: {attempt}
dispatch: {dispatch}
status: pass | failing
---
"""


def block(story: str = "US-007", step: str = "impl", attempt: str = "2", dispatch: str = "d-1") -> str:
    """Return the template of the front matter, filled."""
    return BLOCK.format(story=story, step=step, attempt=attempt, dispatch=dispatch)


def parse(prompt: str, tmp_path: Path, **environ: str) -> tuple[str, str | None, int, str | None]:
    """Return step, story, attempt and dispatch of a prompt."""
    found = understand(prompt, environ, Workspace(str(tmp_path)))
    return found.step, found.story, found.attempt, found.dispatch


@pytest.mark.parametrize(
    "prompt",
    [
        "Do it.\n\n" + block(),
        "請完成這一步。\n\n```yaml\n" + block() + "```\n完成後請停止。\n",
        block(story='"US-007"', dispatch="'d-1'", attempt="2  # of 5"),
        block() + "".join(f"> {line}\n" for line in block(step="bdd").splitlines()),
        "\n".join("    " + line for line in block().splitlines()),
        block(step="bdd", dispatch="older") + "\nsaid before\n\n" + block(),
        block() + "\nreason: one of\n---\nsomething: else\n---\n",
        block().removesuffix("---\n"),
    ],
)
def test_the_last_front_matter_with_a_dispatch_counts(prompt: str, tmp_path: Path) -> None:
    """Language, quoting, fences and the text around the block make no difference."""
    assert ("impl", "US-007", 2, "d-1") == parse(prompt, tmp_path)


@pytest.mark.parametrize("language", ["en", "zh-TW"])
def test_the_shipped_prompts_are_understood(language: Language, tmp_path: Path) -> None:
    """In both languages, with the facts, and with a person's note that quotes a block."""
    folder = shared("config", "prompts")
    texts = {str(path.relative_to(folder)): path.read_text("utf-8") for path in folder.rglob("*.j2")}
    run = {"attempt": 2, "max_attempts": 3, "dispatch": "20261121T073312-4f9a1c", "language": language}
    note = "---\ndispatch: forged\nstep: impl\n---\n"
    measured = PromptFacts(tests=TestCounts(passed=7, failed=1, skipped=2), commit_hash="0123abcd")
    names = {"project": "shop", "story": "007", "step": "update-memory", "display_name": "Memory"}
    context = PromptContext(**names, **run, human_note=note, facts=measured)  # type: ignore[arg-type]

    prompt = render_prompt(context, PromptTemplates.layered(texts))

    assert ("update-memory", "007", 2, "20261121T073312-4f9a1c") == parse(prompt, tmp_path)
    assert (Counts(7, 1, 2), "0123abcd") == facts(
        Workspace(str(tmp_path)), Assignment("update-memory", "007", 2, None, prompt)
    )


def test_without_a_block_the_state_counts(tmp_path: Path) -> None:
    """A prompt of the user's own need not have one."""
    (tmp_path / ".ai").mkdir()
    (tmp_path / ".ai/STATE.json").write_text('{"story": "US-3", "step": "verify", "attempt": 4}')

    assert ("verify", "US-3", 4, "r-9") == parse("Just do it", tmp_path, HANDOFFD_RUN="r-9")


def test_a_project_without_a_story_has_none(tmp_path: Path) -> None:
    """`null` in the block means that there is no story."""
    assert ("bootstrap", None, 1, "d-1") == parse(
        block(story="null", step="bootstrap", attempt="1"), tmp_path
    )


@pytest.mark.parametrize("state", [None, "{", "[]", '{"story": "US-1"}'])
def test_without_a_step_there_is_an_error(state: str | None, tmp_path: Path) -> None:
    """No step is guessed."""
    if state is not None:
        (tmp_path / ".ai").mkdir()
        (tmp_path / ".ai/STATE.json").write_text(state)

    with pytest.raises(BadAssignment, match="names a step"):
        parse("Just do it", tmp_path)


@pytest.mark.parametrize("story", ["../../etc", "a/b", "US..1", "x" * 65, "-rf"])
def test_a_story_that_is_not_a_name_is_refused(story: str, tmp_path: Path) -> None:
    """A story becomes part of paths."""
    with pytest.raises(BadAssignment, match="is not a name"):
        parse(block(story=story), tmp_path)


@pytest.mark.parametrize(
    ("story", "label", "slug"),
    [("US-013", "US-013", "us_013"), ("013", "US-013", "us_013"), ("CUSTOM-17", "CUSTOM-17", "custom_17")],
)
def test_a_story_is_named_once_in_paths(story: str, label: str, slug: str) -> None:
    """`013` and `US-013` are the same story; the prefix is not doubled."""
    assignment = Assignment("bdd", story, 1, None, "")

    assert (label, slug) == (assignment.label, assignment.slug)


FIELDS = {
    "story", "step", "attempt", "dispatch", "status", "reason", "files_changed",
    "tests_pass", "tests_fail", "tests_skip", "failing_tests", "summary",
}  # fmt: skip


def loaded(assignment: Assignment, report: Report) -> Any:
    """Return the front matter, read by a YAML parser."""
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
    """All fields of the protocol are there; a commit's only with a commit."""
    empty = loaded(Assignment("bdd", None, 1, None, ""), Report(summary="s"))
    full = loaded(Assignment("commit", "US-1", 1, "d", ""), Report(summary="s", commit="abc"))

    assert (FIELDS, FIELDS | {"commit_hash"}) == (empty.keys(), full.keys())
    assert (None, None, None, []) == tuple(
        empty[key] for key in ("story", "dispatch", "reason", "files_changed")
    )


def test_the_flat_form_names_a_reason_only_if_there_is_one() -> None:
    """It has one `key: value` per line."""
    assert "status: pass\nsummary: s\n" == result_text(Report("s"))
    assert "status: failing\nreason: scope_warning\nsummary: s\n" == result_text(
        Report("s", status="failing", reason="scope_warning")
    )


def test_an_identical_handoff_is_written_again(tmp_path: Path) -> None:
    """A second attempt with the same words leaves new files, and no temporary ones."""
    workspace, inodes = Workspace(str(tmp_path)), []
    for _ in range(2):
        hand_over(workspace, Assignment("bdd", "US-1", 1, "d", ""), Report("s"))
        inodes.append({path.name: path.stat().st_ino for path in (tmp_path / ".ai").iterdir()})

    assert [{"HANDOFF.md", "executor-result"}] * 2 == [set(found) for found in inodes]
    assert all(inodes[0][name] != inodes[1][name] for name in inodes[0])


def test_facts_are_read_back(tmp_path: Path) -> None:
    """The next step reads counts and commit of its story from the last hand-off."""
    workspace = Workspace(str(tmp_path))
    assert (Counts(), None) == previous_facts(workspace, "007")

    report = Report("s", tests=Counts(3, 1, 2), commit="0ab")
    hand_over(workspace, Assignment("commit", "007", 1, "d", ""), report)

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
    """The boxes under its heading or, where headings name no step, the boxes that name it."""
    workspace = Workspace(str(tmp_path))
    workspace.replace(".ai/CHECKLIST.md", before.encode())

    tick(workspace, "contract")

    assert after.encode() == (tmp_path / ".ai/CHECKLIST.md").read_bytes()


def test_without_a_checklist_nothing_is_ticked(tmp_path: Path) -> None:
    """The orchestrator creates it."""
    tick(Workspace(str(tmp_path)), "impl")

    assert [] == list(tmp_path.iterdir())
