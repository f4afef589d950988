"""Notes that take a decision back. Most phrases are in tests/data/intents."""

from __future__ import annotations

import pytest

from handoffd.chat.restraints import has_refusing_sign, takes_back, turns_round


@pytest.mark.parametrize(
    "note",
    ["not yet", "well, we should wait", "*not* now", "bob has to look first", "prices are fine, but not yet",
     "looks good, unless bob minds", "但改完再上線", "其實先不要", "測試過的話", "bob 還沒看"],
)  # fmt: skip
def test_what_forbids_or_puts_off_takes_back(note: str) -> None:
    """At the beginning by any such word; later on by the plain ones."""
    assert takes_back(note)


@pytest.mark.parametrize(
    "note",
    ["mind the prices", "notes are fine", "iffy names, but fine", "use cents, not floats", "no objections",
     "firstly named fields", "holders are named", "注意價格", "不錯",
     "不過記得四捨五入", "沒問題", "金額要能再算一次"],
)  # fmt: skip
def test_other_notes_do_not(note: str) -> None:
    """Nor words that only begin like one."""
    assert not takes_back(note)


def test_what_is_wrong_is_often_a_negation() -> None:
    """So a rejection is turned round by fewer words."""
    assert [True, True, False, False] == [
        turns_round(note, loose=False)
        for note in ("not yet", "先等等", "not clear", "if it is negative show zero")
    ]
    assert turns_round("if it is red", loose=True)


def test_signs_that_say_no() -> None:
    """Among others."""
    assert [True, False] == [has_refusing_sign(text) for text in ("fine 👍 ❌", "fine 👍")]


def test_a_long_note_is_looked_through_quickly() -> None:
    """Nothing in it makes the search start over and over."""
    assert not takes_back("well, " * 600 + "mind it")
    assert not takes_back("looks good " * 400)
