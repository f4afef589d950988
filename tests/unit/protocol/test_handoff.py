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
