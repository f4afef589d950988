"""Messages made comparable, whatever keyboard they come from."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from handoffd.chat.text import cleaned, folded, is_chinese, trimmed


def test_what_nobody_sees_is_gone() -> None:
    """Zero-width and control characters, and blanks around; half of a character leaves a mark."""
    assert "approve it\nnow\ufffd" == cleaned(" \ufeffapp\u200brove\x1b it\nnow\ud800 \u2060")


def test_what_looks_the_same_is_the_same() -> None:
    """Full-width signs, capitals, either form of a character, ideographic blanks and quotes."""
    assert 'us-009: "繼續" 狀態?' == folded("ＵＳ－００９： 「继续」　状态？")


def test_signs_and_emoji_around_say_nothing() -> None:
    """But a question mark does."""
    assert "approve" == trimmed(" 「approve」!! 👍".replace("「", '"').replace("」", '"'))
    assert "approve?" == trimmed("approve?")


def test_one_ideograph_is_chinese() -> None:
    """A message with English words in it, too."""
    assert (True, False) == (is_chinese("start story 了"), is_chinese("start, s'il vous plaît"))


@settings(deadline=None)
@given(st.text())
def test_folding_keeps_places(text: str) -> None:
    """A place found in the folded text is a place in the text."""
    assert len(text) == len(folded(text))
    assert trimmed(folded(text)) in folded(text)
