"""What of the past may go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoffd.journal.retention import Condition, Past, Size, plan, sizes

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


def past(
    days: float = 31,
    *,
    condition: Condition = "ended",
    number: int = 1,
    project: str | None = "/srv/shop",
    kind: Literal["run", "copy"] = "run",
    weight: int = 100,
) -> Past:
    """Return a run that ended so many days ago."""
    since = NOW - timedelta(days=days)
    return Past(
        kind=kind, id=f"{since:%Y%m%dT%H%M%S}-{number:08x}", project=project, condition=condition,
        since=since, bytes=weight,
    )  # fmt: skip


def gone(*found: Past, days: float | None = 30, newest: int = 0) -> list[str]:
    """Return the ids that go."""
    return [doomed.id for doomed, _ in plan(found, NOW, days, newest).doomed]


@pytest.mark.parametrize(
    ("days", "condition", "goes", "why"),
    [
        (31, "ended", True, "ended 31 days ago (retention.runs_days: 30)"),
        (30, "ended", False, "young"),
        (0, "ended", False, "young"),
        (-5, "ended", False, "young"),
        (400, "running", False, "running"),
        (400, "unjudged", False, "unjudged"),
        (400, "foreign", False, "foreign"),
        (31, "unknown", True, "is unknown to the journal, and was changed last 31 days ago"),
        (29, "unknown", False, "young"),
    ],
)
def test_only_what_is_over_and_old_goes(days: float, condition: Condition, goes: bool, why: str) -> None:
    """Each with its reason, and so does what stays."""
    planned = plan([past(days, condition=condition)], NOW, 30, 0)

    assert goes == bool(planned.doomed)
    assert why in (planned.doomed[0][1] if goes else planned.kept)


def test_for_ever_is_for_ever() -> None:
    """Without a limit nothing is old."""
    assert [] == gone(past(9999), days=None)
    assert {"kept for ever": 1} == plan([past(9999)], NOW, None, 0).kept


def test_the_newest_runs_of_each_project_stay() -> None:
    """However old they are; copies are counted for themselves, and so is what belongs to no project."""
    shop = [past(days) for days in (100, 90, 80)]
    other = [past(200, project="/srv/other")]
    copies = [past(100, kind="copy")]
    nobody = [past(300, project=None, condition="unknown", number=number) for number in (1, 2)]

    assert [shop[0].id, nobody[0].id] == gone(*shop[:2], *other, *copies, *nobody, newest=1)
    assert {"copied": 1} == plan([past(9999)], NOW, 30, 0, {past(9999).id: "copied"}).kept
    assert {"newest": 4} == plan([*shop[:2], *other, *copies, *nobody], NOW, 30, 1).kept


def test_young_ones_are_among_the_newest() -> None:
    """A project that works a lot keeps no old ones beside them."""
    assert [past(50).id] == gone(past(50), past(1), past(2), newest=2)


PASTS = st.builds(
    past,
    st.floats(-10, 1000),
    condition=st.sampled_from(["running", "unjudged", "foreign", "ended", "unknown"]),
    number=st.integers(0, 2**32 - 1),
    project=st.sampled_from([None, "/a", "/b"]),
    kind=st.sampled_from(["run", "copy"]),
)


@given(st.lists(PASTS, max_size=30), st.floats(1, 500), st.integers(0, 5))
def test_nothing_goes_that_somebody_may_need(found: list[Past], days: float, newest: int) -> None:
    """Whatever there is: each either goes or is counted, and what goes is over, old and not the newest."""
    planned = plan(found, NOW, days, newest)

    assert len(found) == len(planned.doomed) + sum(planned.kept.values())
    for doomed, _ in planned.doomed:
        assert doomed.condition in {"ended", "unknown"}
        assert NOW - doomed.since > timedelta(days=days)
        newer = [
            one for one in found
            if (one.kind, one.project) == (doomed.kind, doomed.project) and one.id > doomed.id
        ]  # fmt: skip
        assert len(newer) >= newest


def test_sizes_are_summed_by_kind_and_project() -> None:
    """The largest first."""
    found = [past(1, weight=10), past(2, weight=5), past(1, weight=400, kind="copy"), past(1, project=None)]

    assert (
        Size(kind="copy", project="/srv/shop", count=1, bytes=400),
        Size(kind="run", project=None, count=1, bytes=100),
        Size(kind="run", project="/srv/shop", count=2, bytes=15),
    ) == sizes(found)
