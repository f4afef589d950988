"""Reads of files, which need neither daemon nor journal: STATE.json, and what surrounds it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.orchestrator.conftest import Say, Shop

from handoffd.errors import StoreError
from handoffd.inspection.own_files import shipped_layers
from handoffd.orchestrator.reads import NEAR, REASONS, STATE, STATUSES, STEPS, BadState, NoState, read_state
from handoffd.protocol.rulebook import build_rulebook
from handoffd.protocol.rules import DONE
from handoffd.protocol.state import NEAR_STATUS, Reason, Status

GOOD: dict[str, Any] = {"project": "shop", "step": "impl", "status": "pending", "reason": None}


def written(root: Path, text: str | bytes) -> Path:
    """Write a STATE.json and return its path."""
    path = root / STATE
    path.parent.mkdir()
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_the_names_are_those_of_the_protocol() -> None:
    """Importing them from there would take a quarter of a second."""
    steps = {*build_rulebook(shipped_layers(None)).steps, DONE}

    assert (steps, set(Status), set(Reason)) == (set(STEPS), set(STATUSES), set(REASONS))
    assert {word: str(status) for word, status in NEAR_STATUS.items()} == NEAR


def test_reading_needs_the_standard_library_alone() -> None:
    """Scripts ask for `status` again and again."""
    heavy = "pydantic|click|anyio|yaml|structlog|jinja2"
    code = "import handoffd.orchestrator.reads, handoffd.orchestrator.main, sys, re\n"
    code += f"print([name for name in sys.modules if re.fullmatch('{heavy}', name)])"

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "[]" == found.stdout.strip()


def test_corrections_leave_the_file_as_it_is(tmp_path: Path) -> None:
    """Keys of others and their order stay in what is shown."""
    text = '{"owner": "Ann", "project": "shop", "step": "impl", "status": "PASSED", "reason": null}'
    path = written(tmp_path, text)

    shown = read_state(str(tmp_path))

    assert {**json.loads(text), "status": "pass"} == shown.values
    assert ["owner", "project", "step", "status", "reason"] == list(shown.values)
    assert (1, text) == (len(shown.corrections), path.read_text())


@pytest.mark.parametrize(
    ("status", "reason", "shown"),
    [
        ("pass", "scope_warning", None), ("failing", "scope_warning", "scope_warning"),
        ("failing", "the moon", None), ("needs_human", "scope_warning", "scope_warning"),
        ("failing", 7, None), ("pending", "x", None),
    ],
)  # fmt: skip
def test_a_reason_is_shown_where_one_belongs(
    tmp_path: Path, status: str, reason: object, shown: str | None
) -> None:
    """With failing and needs_human, if it is a reason of the protocol."""
    written(tmp_path, json.dumps({**GOOD, "status": status, "reason": reason}))

    assert shown == read_state(str(tmp_path)).values["reason"]


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", b"\xff\xfe\xff", "[" * 100_000, " " * 2_000_000,
        json.dumps({**GOOD, "status": "fine"}), json.dumps({**GOOD, "step": "polish"}),
        json.dumps({**GOOD, "project": ""}), json.dumps({**GOOD, "attempt": -1}),
        json.dumps({**GOOD, "max_attempts": 0}), json.dumps({**GOOD, "status": ["x"]}),
        json.dumps({**GOOD, "step": 7}),
    ],
)  # fmt: skip
def test_a_state_without_meaning_is_an_error(tmp_path: Path, text: str | bytes) -> None:
    """It is never guessed."""
    written(tmp_path, text)

    with pytest.raises(BadState):
        read_state(str(tmp_path))


def test_with_a_step_table_any_step_is_allowed(tmp_path: Path) -> None:
    """The table itself is not read for this."""
    written(tmp_path, json.dumps({**GOOD, "step": "polish"}))
    (tmp_path / ".ai/step-rules.yaml").write_text("{}")

    assert "polish" == read_state(str(tmp_path)).values["step"]


def test_without_a_file_there_is_no_state(tmp_path: Path) -> None:
    """Or without a folder; a link is not followed, because it would lead out of the project."""
    for root in (tmp_path, tmp_path / "gone"):
        with pytest.raises(NoState):
            read_state(str(root))
    (tmp_path / "elsewhere.json").write_text(json.dumps(GOOD))
    (tmp_path / ".ai").mkdir()
    (tmp_path / STATE).symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(StoreError):
        read_state(str(tmp_path))


# --- the verbs ---------------------------------------------------------------------------------------
def told(say: Say, *words: str) -> Any:
    """Return the JSON that a verb prints."""
    return json.loads(say(*words).out[0])


def test_the_status_is_the_file(say: Say, shop: Shop) -> None:
    """With its keys in their order; without one the reference throws, hence the exit code 127."""
    missing = say("status")
    assert ("INTERNAL_ERROR", 127) == (json.loads(missing.out[0])["code"], missing.code)

    shop.written()
    assert (list(shop.state), shop.state) == (list(told(say, "status")), told(say, "status"))


def test_a_query_has_the_next_step(say: Say, shop: Shop) -> None:
    """By the project's own table; without a STATE.json the answer lacks its keys."""
    found = told(say, "query")
    assert ("not_initialized", "none", 1) == (found["status"], found["step"], found["has_framework"]["level"])
    assert {"next_step", "last_error", "warnings"}.isdisjoint(found)

    shop.written(step="verify")
    assert "update-memory" == told(say, "query")["next_step"]
    (shop.root / ".ai/handoffd.yaml").write_text("preset: with-commit\n")
    assert "commit" == told(say, "query")["next_step"]


def test_missing_files_are_printed_in_words_and_as_json(say: Say, shop: Shop) -> None:
    """With the step that would have made them."""
    shop.written()
    *lines, document = say("check-prereqs").out

    found = json.loads(document)
    assert [False, "bdd"] == [found["ok"], found["suggested_rollback"]]
    assert f"Missing {len(found['missing'])} prerequisite file(s):" == lines[0]
    assert "Suggested action: orchestrator rollback . bdd" == lines[-1]

    shop.written(step="done", status="pass")
    assert "All prerequisite files present." == say("check-prereqs").out[0]


def test_projects_of_a_folder_are_listed(say: Say, shop: Shop) -> None:
    """Without any, a sentence is printed, as in the reference."""
    assert ("No projects found with .ai/STATE.json",) == say("list-projects").out

    (shop.root / "one").mkdir()
    (shop.root / "one/package.json").write_text('{"name": "first"}')
    assert [("first", "one")] == [(found["name"], found["dir"]) for found in told(say, "list-projects")]


def test_sessions_are_prompts(say: Say, shop: Shop) -> None:
    """A triage needs open issues, and both need a folder."""
    assert "shop" in say("review").out[0]
    assert "NO_MEMORY" == told(say, "triage")["code"]
    (shop.root / "PROJECT_MEMORY.md").write_text("## ISSUES\n- [ ] totals are rounded twice\n")
    assert "totals are rounded twice" in say("triage").out[0]

    shop.root.rename(shop.root.with_name("moved"))
    for words in (("review",), ("triage",), ("auto", "review"), ("auto", "triage")):
        said = say(*words)
        assert ("NOT_FOUND", 1) == (json.loads(said.out[0])["code"], said.code)
