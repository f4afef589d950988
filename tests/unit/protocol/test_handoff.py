"""The values of hand-offs."""

from __future__ import annotations

import pytest

from handoffd.protocol.handoff import Claimed, FileMark, HandoffMark, worst
from handoffd.protocol.state import Status


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ((Status.PASS,), Status.PASS),
        ((Status.PASS, Status.FAILING), Status.FAILING),
        ((Status.FAILING, Status.PASS), Status.FAILING),
        ((Status.NEEDS_HUMAN, Status.FAILING), Status.NEEDS_HUMAN),
        ((Status.PASS, Status.FAILING, Status.NEEDS_HUMAN), Status.NEEDS_HUMAN),
    ],
)
def test_the_worse_claim_counts(claims: tuple[Claimed, ...], expected: Status) -> None:
    """needs_human, then failing, then pass, in whatever order they are given."""
    assert expected == worst(*claims)


@pytest.mark.parametrize("change", [{"digest": "b"}, {"inode": 2}, {"mtime_ns": 2}])
def test_any_difference_makes_another_mark(change: dict[str, object]) -> None:
    """A byte-identical rewrite has another inode or time, and so another mark."""
    mark = FileMark(digest="a", inode=1, mtime_ns=1)

    assert HandoffMark(handoff=mark) != HandoffMark(handoff=mark.model_copy(update=change))
    assert HandoffMark(handoff=mark) == HandoffMark(handoff=mark.model_copy())


def test_files_that_are_there_repeat_an_earlier_mark_or_are_new() -> None:
    """A file that is gone since does not count; without any file nothing is repeated."""
    mark, other = (FileMark(digest="a", inode=number, mtime_ns=1) for number in (1, 2))
    both = HandoffMark(handoff=mark, result=mark)

    assert both.repeats(both)
    assert HandoffMark(handoff=mark).repeats(both)
    assert not HandoffMark().repeats(both)
    assert not HandoffMark(handoff=mark, result=other).repeats(both)
    assert not both.repeats(HandoffMark(handoff=mark))
