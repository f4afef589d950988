"""`orchestrator.statefile`: STATE.json shown mended, and left as it is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from handoffd.errors import StoreError
from handoffd.inspection.own_files import shipped_layers
from handoffd.orchestrator.reads import NEAR, REASONS, STATE, STATUSES, STEPS, BadState, NoState, read_state
from handoffd.protocol.rulebook import build_rulebook
from handoffd.protocol.rules import DONE
from handoffd.protocol.state import NEAR_STATUS, Reason, Status

GOOD: dict[str, Any] = {"project": "shop", "step": "impl", "status": "pending", "reason": None}


def written(root: Path, text: str | bytes) -> Path:
    """Write a STATE.json and return where."""
    path = root / STATE
    path.parent.mkdir()
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_the_names_are_those_of_the_protocol() -> None:
    """They stand here once more because reading them elsewhere takes a quarter of a second."""
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


def test_what_was_read_is_left_as_it_was(tmp_path: Path) -> None:
    """Keys of others, their order, and what is shown mended."""
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
    tmp_path: Path, status: str, reason: object, shown: object
) -> None:
    """With failing and needs_human, if it is one."""
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
def test_what_means_nothing_is_an_error(tmp_path: Path, text: str | bytes) -> None:
    """It is never guessed at."""
    written(tmp_path, text)

    with pytest.raises(BadState):
        read_state(str(tmp_path))


def test_a_step_of_ones_own_is_known_by_the_step_table(tmp_path: Path) -> None:
    """Which is not read for this."""
    written(tmp_path, json.dumps({**GOOD, "step": "polish"}))
    (tmp_path / ".ai/step-rules.yaml").write_text("{}")

    assert "polish" == read_state(str(tmp_path)).values["step"]


def test_no_file_and_no_folder_are_one_thing(tmp_path: Path) -> None:
    """There is no STATE.json."""
    for root in (tmp_path, tmp_path / "gone"):
        with pytest.raises(NoState):
            read_state(str(root))


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """It would lead out of the project."""
    (tmp_path / "elsewhere.json").write_text(json.dumps(GOOD))
    (tmp_path / ".ai").mkdir()
    (tmp_path / STATE).symlink_to(tmp_path / "elsewhere.json")

    with pytest.raises(StoreError):
        read_state(str(tmp_path))
