"""What a hook says."""

from __future__ import annotations

from handoffd.hooks.event import Reply


def test_what_tools_printed_cannot_harm_a_terminal() -> None:
    """Control characters are shown as such, lines stay lines."""
    assert "a?[2Jb\nc" == Reply(2, text="a\x1b[2Jb\nc").text


def test_a_flood_is_cut() -> None:
    """An agent is shown so much and no more."""
    assert 8000 == len(Reply(2, text="x" * 100_000).text)
    assert ("", "", 0) == (Reply().text, Reply().note, Reply().code)
