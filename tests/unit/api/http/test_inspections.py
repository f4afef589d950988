"""Any folder, asked over the socket."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.controlled import Controlled
from tests.unit.api.http.test_shapes import told
from tests.unit.inspection.making import write, write_state

from handoffd.errors import HandoffdError


@pytest.mark.parametrize("read", ["detect", "query", "check-prereqs", "review", "triage", "list-projects"])
@pytest.mark.parametrize("language", [None, "zh-TW"])
def test_every_answer_has_its_shape(
    control: Controlled, tmp_path: Path, read: str, language: str | None
) -> None:
    """Of a folder that nobody supervises; a language is a question of prompts only."""
    write_state(tmp_path / "shop", tests={"pass": 1, "fail": 0, "skip": 0})
    write(tmp_path / "shop", "PROJECT_MEMORY.md", "## ISSUES\n- [ ] one\n")
    asked = {"folder": tmp_path} if read == "list-projects" else {"project": tmp_path / "shop"}
    if read in {"review", "triage"}:
        asked["language"] = language  # type: ignore[assignment]

    assert [] == told(control.client.get(f"/v1/{read}", **asked), f"/v1/{read}")


def test_of_a_supervised_project_the_journal_is_asked(control: Controlled) -> None:
    """By its name; its folder is gone, which is told."""
    found = control.client.get("/v1/query", project="shop")

    assert [] == told(found, "/v1/query")
    assert ("/srv/shop", True, "a person's decision") == (
        found["root"], found["supervised"], found["waits_for"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("detect", "BAD_ARGUMENT"),
        ("list-projects?folder=work", "BAD_ARGUMENT"),
        ("query?project=nobody", "NOT_FOUND"),
        ("review?project=shop&language=fr", "BAD_ARGUMENT"),
        ("triage?project=/", "NO_MEMORY"),
    ],
)
def test_what_cannot_be_answered_is_an_error(control: Controlled, path: str, code: str) -> None:
    """With a command that leads on."""
    with pytest.raises(HandoffdError) as caught:
        control.client.get(f"/v1/{path}")

    assert code == caught.value.code
    assert caught.value.hint
