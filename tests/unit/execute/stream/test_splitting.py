"""Bytes into lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from handoffd.execute.stream.reader import LineSplitter


def test_lines_come_when_they_end() -> None:
    """The last one when everything does."""
    lines = LineSplitter()

    assert [b"ab", b""] == [*lines.feed(b"a"), *lines.feed(b"b\n\nc")]
    assert 1 == lines.held
    assert b"c" == lines.end()
    assert b"" == lines.end()


def test_a_line_that_is_too_long_is_dropped_as_it_comes() -> None:
    """And what follows it is read again."""
    lines = LineSplitter(most=10)

    assert [] == [line for _ in range(1000) for line in lines.feed(b"x" * 7)]
    assert [None, b"y" * 10, None] == list(lines.feed(b"x\n" + b"y" * 10 + b"\n" + b"z" * 11 + b"\n"))
    assert b"" == lines.end()


@given(st.lists(st.sampled_from([b"a", b"\n", b"bcd", b"\xff\n\n", b"e" * 9])))
def test_pieces_make_no_difference(pieces: list[bytes]) -> None:
    """Wherever they end."""
    whole, parts = LineSplitter(most=5), LineSplitter(most=5)

    assert [*whole.feed(b"".join(pieces)), whole.end()] == [
        *(line for piece in pieces for line in parts.feed(piece)),
        parts.end(),
    ]
