"""A look at a folder that is not supervised: what its own files lead to."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd.entrance.offline import peek
from handoffd.errors import InvalidFile, Refused

BDD = '{"project": "shop", "story": "US-2", "step": "bdd", "status": "pending"}'


def shop(folder: Path, state: str) -> str:
    """Make a project whose STATE.json is no text of ours, and return its root."""
    (folder / ".ai").mkdir()
    (folder / ".ai/STATE.json").write_text(state)
    return str(folder)


def files(folder: Path) -> dict[Path, tuple[bytes, int]]:
    """Return every file below a folder, with when it was written."""
    return {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()}


def test_a_prompt_is_shown_and_nothing_is_changed(tmp_path: Path) -> None:
    """It names no dispatch: there is none."""
    root = shop(tmp_path, BDD)
    before = files(tmp_path)

    seen = peek(root, "en")

    assert ("bdd", 1, "dispatched") == (seen["step"], seen["attempt"], seen["result"]["type"])
    assert "US-2" in seen["prompt"]
    assert "dispatch: null" in seen["prompt"]
    assert ["PROJECT_CONTEXT.md is missing", "PROJECT_MEMORY.md is missing"] == seen["warnings"]
    assert before == files(tmp_path)


@pytest.mark.parametrize(
    ("more", "kind", "step"),
    [
        ('"step": "contract", "status": "pass"', "needs_human", "review"),
        ('"step": "update-memory", "status": "pass"', "done", "done"),
        ('"step": "impl", "status": "pending", "blocked_by": ["US-9"]', "blocked", "impl"),
        ('"step": "impl", "status": "pending", "blocked_by": ["US-1"]', "dispatched", "impl"),
        ('"step": "impl", "status": "failing", "max_attempts": 5', "dispatched", "impl"),
        ('"step": "impl", "status": "running"', "already_running", "impl"),
    ],
)
def test_a_turn_is_what_it_would_be(tmp_path: Path, more: str, kind: str, step: str) -> None:
    """What was done before counts; a command in the answer is for this project."""
    root = shop(tmp_path, f'{{"project": "shop", "story": "US-2", {more}}}')
    (tmp_path / "PROJECT_MEMORY.md").write_text("## DONE\n- US-1: prices\n")

    seen = peek(root, "en")

    assert (kind, step) == (seen["result"]["type"], seen["step"])
    assert (kind in {"dispatched", "already_running"}) == (seen["prompt"] is not None)
    assert "{project}" not in str(seen)


@pytest.mark.parametrize(("context", "step"), [(False, "bootstrap"), (True, "bdd")])
def test_without_a_story_one_has_to_be_started(tmp_path: Path, context: bool, step: str) -> None:
    """The step is the one at which it would begin."""
    root = shop(tmp_path, '{"project": "shop", "step": "bootstrap", "status": "pending"}')
    if context:
        (tmp_path / "PROJECT_CONTEXT.md").write_text("A shop.\n")

    seen = peek(root, "en")

    assert ("blocked", step, None) == (seen["result"]["type"], seen["step"], seen["prompt"])


def test_what_its_own_files_say_holds(tmp_path: Path) -> None:
    """The table and the language; without that of the project, the one that was given."""
    root = shop(tmp_path, BDD.replace("bdd", "audit"))
    (tmp_path / ".ai/step-rules.yaml").write_text(
        "steps:\n  bdd: {next_on_pass: audit}\n"
        "  audit: {next_on_pass: done, next_on_fail: bdd, step_instruction: {en: Count the cents.}}\n"
    )
    assert "Count the cents." in peek(root, "en")["prompt"]
    assert "步驟：audit" in peek(root, "zh-TW")["prompt"]
    (tmp_path / ".ai/handoffd.yaml").write_text("language: zh-TW\n")
    assert "步驟：audit" in peek(root, "en")["prompt"]


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    """No STATE.json, or one that means nothing."""
    with pytest.raises(Refused) as refused:
        peek(str(tmp_path), "en")
    assert "NOT_INITIALIZED" == refused.value.code
    with pytest.raises(InvalidFile):
        peek(shop(tmp_path, BDD.replace("pending", "finished")), "en")
