"""`handoffd auto`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.commands import Commands
from tests.support.controlled import Controlled

from handoffd.engine.events import Approved


@pytest.mark.parametrize(
    "words",
    [
        ("shop", "approve"),
        ("/srv/shop", "approve"),
        ("approve", "@shop"),
        ("shop: approve",),
        ("shop", "核准"),
    ],
)
def test_the_project_may_stand_before_the_text_or_in_it(
    control: Controlled, handoffd: Commands, words: tuple[str, ...]
) -> None:
    """By name, or by path."""
    said = handoffd("auto", *words)

    assert (0, "") == (said.code, said.err)
    [(root, verb)] = control.supervision.given
    assert ("/srv/shop", True) == (root, isinstance(verb, Approved))


def test_a_text_needs_no_quotes(control: Controlled, handoffd: Commands) -> None:
    """Its words are put together."""
    said = handoffd("auto", "what", "is", "the", "status", "of", "shop", "--json")

    assert ("query", "/srv/shop") == (said.json["action"], said.json["project"])


def test_the_report_is_in_the_language_of_choice(control: Controlled, handoffd: Commands) -> None:
    """Else in the message's own."""
    assert "審查已核准 ✓" == handoffd("auto", "shop", "approve", "--language", "zh-TW").lines[0]
    assert "審查已核准 ✓" == handoffd("auto", "shop", "核准").lines[0]
    assert 2 == handoffd("auto", "shop", "approve", "--language", "tlh").code


def test_what_could_not_be_done_is_an_error(control: Controlled, handoffd: Commands) -> None:
    """On standard error, with what was understood."""
    said = handoffd("auto", "shop", "approve US-9")

    assert (1, "") == (said.code, said.out)
    assert "Understood: approve" in said.err
    assert 1 == handoffd("auto", "shop", "approve US-9", "--json").code


def test_a_prompt_follows_the_report(control: Controlled, handoffd: Commands, tmp_path: Path) -> None:
    """It is to be carried out."""
    said = handoffd("auto", str(tmp_path), "review the project")

    assert "a prompt for a read-only review session; give it to an agent" == said.lines[0]
    assert len(said.lines) > 3


def test_without_a_daemon_it_works_as_well(alone: Path, handoffd: Commands, tmp_path: Path) -> None:
    """A question leaves no trace; a start hands out a prompt, and `continue` hears what was handed over."""
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "PROJECT_CONTEXT.md").write_text("A shop.\n")

    asked = handoffd("auto", str(shop), "狀態", "--json").json
    assert ("query", "not_initialized") == (asked["action"], asked["result"]["status"])
    assert ["PROJECT_CONTEXT.md"] == [path.name for path in shop.iterdir()]

    taken = handoffd("auto", str(shop), "開始 US-001", "--json").json
    assert ("dispatched", "bdd", 1) == (taken["action"], taken["result"]["step"], taken["result"]["attempt"])
    assert taken["result"]["prompt"]
    assert "running" == json.loads((shop / ".ai/STATE.json").read_text())["status"]
    assert "already_running" == handoffd("auto", str(shop), "繼續", "--json").json["action"]

    (shop / ".ai/HANDOFF.md").write_text(
        "---\nstory: US-001\nstep: bdd\nattempt: 1\nstatus: pass\n---\nDone.\n"
    )
    said = handoffd("auto", str(shop), "繼續")
    assert [
        "US-001 情境完成 ✓ 進入規格差異",
        "US-001 規格差異第 1 次：提示詞在這裡",
    ] == said.lines[:2]


def test_a_misspelt_name_before_a_text_is_not_found(control: Controlled, handoffd: Commands) -> None:
    """Taken for a part of the text, it would start work in the folder one happens to be in."""
    said = handoffd("auto", "shpo", "start US-1")

    assert (4, []) == (said.code, control.supervision.given)
    assert "'shpo'" in said.err
    assert "handoffd projects" in said.err


def test_words_without_quotes_start_nothing_in_a_folder_that_is_no_project(
    control: Controlled, handoffd: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of them may be meant as a name."""
    monkeypatch.chdir(tmp_path)
    said = handoffd("auto", "shpo", "add", "a", "footer", "--json")
    asked = handoffd("auto", "shpo", "start", "US-1", "--json")

    assert (1, "PROJECT_MISSING") == (said.code, said.json["result"]["code"])
    assert (0, "unclear") == (asked.code, asked.json["intent"]["kind"])
    assert ([], []) == (control.supervision.given, list(tmp_path.iterdir()))


def test_in_a_projects_folder_nobody_has_to_name_it(
    control: Controlled, handoffd: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its STATE.json says that it is one, also where nobody supervises it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".ai").mkdir()
    (tmp_path / ".ai/STATE.json").write_text("{}")

    assert str(tmp_path) == handoffd("auto", "status", "--json").json["project"]


@pytest.mark.parametrize("words", [("fix the login",), ("start", "US-1"), ("CC, fix it",), ("init project",)])
def test_a_folder_that_nobody_named_is_not_begun_with(
    control: Controlled,
    handoffd: Commands,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    """Although one is in it, and it looks like a project: the answer says how to name it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package.json").write_text("{}")

    said = handoffd("auto", *words, "--json")

    assert (1, []) == (said.code, control.supervision.given)
    assert "FOLDER_NOT_NAMED" == said.json["result"]["code"]
    assert f"handoffd auto {tmp_path} " in said.json["report"]
    assert ["package.json"] == [path.name for path in tmp_path.iterdir()]


def test_opening_a_project_touches_neither_it_nor_the_current_folder(
    control: Controlled, handoffd: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a question about the one that is named."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package.json").write_text("{}")

    for text in ("開啟專案 shop", "open project shop", "打開 shop"):
        said = handoffd("auto", text, "--json")
        assert ("query", "/srv/shop") == (said.json["action"], said.json["project"]), text
    assert "/srv/shop" == handoffd("auto", "open", "shop", "--json").json["project"]
    assert [] == control.supervision.given


def test_a_word_of_the_text_is_no_folder(
    control: Controlled, handoffd: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although one of that name is there; a project's folder is meant."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()

    assert str(tmp_path / "docs") != handoffd("auto", "docs", "status", "please", "--json").json["project"]
    (tmp_path / "docs/go.mod").touch()
    assert str(tmp_path / "docs") == handoffd("auto", "docs", "status", "please", "--json").json["project"]
