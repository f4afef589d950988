"""Whether a hand-off may be news."""

from __future__ import annotations

import pytest
from tests.support.hooking import DISPATCHED, DISPATCHED_NS

from handoffd.hooks.answering import SLACK_NS, is_fresh, is_fresh_again, moment_ns
from handoffd.hooks.project import Standing


@pytest.mark.parametrize(
    ("written_ns", "fresh"),
    [
        (None, False),
        (DISPATCHED_NS, True),
        (DISPATCHED_NS - SLACK_NS, True),
        (DISPATCHED_NS - SLACK_NS - 1, False),
    ],
)
def test_a_handoff_from_before_the_dispatch_is_old(written_ns: int | None, fresh: bool) -> None:
    """With two seconds for those who round."""
    assert fresh == is_fresh(Standing("/srv/shop", {"dispatched_at": DISPATCHED}, written_ns))


def test_a_handoff_of_an_attempt_without_a_time_may_be_news() -> None:
    """The engine will know."""
    assert is_fresh(Standing("/srv/shop", {"dispatched_at": None}, 1))
    assert is_fresh(Standing("/srv/shop", {"dispatched_at": "yesterday"}, 1))


def test_a_handoff_after_the_verdict_is_another_one() -> None:
    """The one that was judged is older than its verdict."""
    judged: dict[str, object] = {"completed_at": DISPATCHED}

    assert is_fresh_again(Standing("/srv/shop", judged, DISPATCHED_NS + 1))
    assert not is_fresh_again(Standing("/srv/shop", judged, DISPATCHED_NS - 1))
    assert not is_fresh_again(Standing("/srv/shop", {}, DISPATCHED_NS))


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        (DISPATCHED, DISPATCHED_NS),
        ("2026-01-01T10:00:00.000001+00:00", DISPATCHED_NS + 1000),
        ("2026-01-01T11:00:00+01:00", DISPATCHED_NS),
        ("2026-01-01T10:00:00", DISPATCHED_NS),
        ("", None),
        (5, None),
        (None, None),
    ],
)
def test_times_are_read_as_the_protocol_writes_them(text: object, moment: int | None) -> None:
    """UTC where nothing is said."""
    assert moment == moment_ns(text)
