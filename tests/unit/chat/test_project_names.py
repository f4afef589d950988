"""The project that a message names explicitly. Whole messages are in tests/data/intents."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoffd.chat.project_names import compares, named_project
from handoffd.chat.text import cleaned, folded, trimmed


def named(text: str) -> tuple[str, str | None] | None:
    """Return how a message names a project, and the name as it is written."""
    core = trimmed(folded(cleaned(text)))
    found = named_project(core)
    return None if found is None else (found.how, found.name_in(text[folded(text).find(core) :]))


@pytest.mark.parametrize(
    ("text", "how", "name"),
    [
        ("Open project A", "opened", "A"),
        ("開啟專案 A", "opened", "A"),
        ("打開 legacy-api", "opened", "legacy-api"),
        ("打開我的 todo-app 專案", "opened", "todo-app"),
        ("switch to Shop, please", "opened", "Shop"),
        ("open a project", "opened", None),
        ("open /srv/shop", "opened", "/srv/shop"),
        ("create project Shop", "made", "Shop"),
        ("開專案 B", "opened", "B"),
        ("回到 A", "opened", "A"),
        ("load project A", "opened", "A"),
        ("打開", "opened", None),
        ("pause project A", "paused", "A"),
        ("停止 A 專案", "paused", "A"),
        ("開一個新專案 C", "made", "C"),
        ("幫 nosuch 做 code review", "about", "nosuch"),
        ("Create/init project", "made", None),
        ("建立 todo-app 專案", "made", "todo-app"),
        ("Continue project B", "going_on", "B"),
        ("繼續 legacy-api", "going_on", "legacy-api"),
        ("A 專案加入購物車功能", "about", "A"),
        ("project A: status", "about", "A"),
        ("幫我建立 todo-app 專案，先做規格", "to_make", "todo-app"),
    ],
)
def test_a_name_is_found(text: str, how: str, name: str | None) -> None:
    """By the word for a project beside it, or by a verb for projects alone."""
    assert (how, name) == named(text)


@pytest.mark.parametrize(
    "text",
    [
        "open the door for all", "open a PR", "open source it", "打開深色模式", "開啟深色模式",
        "create a settings page for the project", "新增專案列表頁面", "continue the migration", "continue",
        "幫我做 code review", "use the repository pattern", "load fixtures", "pause project?",
        "continue?", "Rename all UserDTO references across the project", "please rename the project to shop",
        "這個專案有沒有用 framework", "修正 shop 專案的錯誤",
    ],
)  # fmt: skip
def test_other_words_are_not_names(text: str) -> None:
    """They belong to the work."""
    assert named(text) is None


def test_the_rest_of_a_message_begins_behind_the_name() -> None:
    """The name does not belong to the order."""
    found = named_project("a 專案的 us-003 缺少文件")

    assert found is not None
    assert "us-003 缺少文件" == "a 專案的 us-003 缺少文件"[found.rest_at :]


def test_two_things_are_put_side_by_side() -> None:
    """They need not be projects."""
    assert (True, True, False) == (compares("compare a and b"), compares("a 跟 b 的比較"), compares("status"))


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    """A name is a part of the text."""
    found = named_project(folded(text))

    assert found is None or 0 <= found.start <= found.end <= len(text)
