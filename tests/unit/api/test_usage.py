"""Reports of usage: rows, their reference values, and the questions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
from tests.support.playbook import shipped_rules

from handoffd.api.reads import REFERENCE, begin_of, grouping, usage_report
from handoffd.engine.run import Usage
from handoffd.errors import Refused
from handoffd.journal.dispatches import Grouping
from handoffd.journal.records import UsageSum

NOW = datetime(2026, 1, 31, 22, 15, tzinfo=UTC)
USED = Usage(
    input_tokens=4000, output_tokens=5000, cache_read_tokens=90_000, cache_write_tokens=3000, cost_usd=0.5,
    priced="table",
)  # fmt: skip


def summed(*key: str | None, runs: int = 2, measured: int = 2, usage: Usage = USED) -> UsageSum:
    """Return a sum of two runs."""
    return UsageSum(key=key, runs=runs, measured=measured, unpriced=0, usage=usage)


def row(*key: str | None, by: Grouping, **more: Any) -> dict[str, Any]:
    """Return the row that a sum becomes."""
    (only,) = usage_report([summed(*key, **more)], by, {"/srv/shop": "corner"})["rows"]
    assert isinstance(only, dict)
    return only


def test_a_row_has_every_number() -> None:
    """Each token once, and the origin of the cost."""
    found = row("claude", by="executor")
    assert {
        "executor": "claude", "runs": 2, "measured": 2, "unpriced": 0, "input_tokens": 4000,
        "output_tokens": 5000, "cache_read_tokens": 90_000, "cache_write_tokens": 3000, "tokens": 102_000,
        "cost_usd": 0.5, "priced": "table",
    } == found  # fmt: skip


def test_steps_are_compared_by_run_and_without_cached_tokens() -> None:
    """Each call of the model reads the same context again; unmeasured runs are not compared."""
    assert row("bdd", by="step", measured=0, usage=Usage())["new_tokens"] is None
    found = row("bdd", by="step")
    assert (6000, [2000, 5000], True) == (found["new_tokens"], found["reference"], found["above"])
    assert not row("impl", by="step")["above"]
    own = row("security", by="step")
    assert (6000, None, None) == (own["new_tokens"], own["reference"], own["above"])


def test_stories_are_compared_whole() -> None:
    """A custom task has no reference."""
    found = row("/srv/shop", "US-1", by="story")
    assert ("corner", "US-1", 12_000, [15_000, 40_000], False) == (
        found["name"], found["story"], found["new_tokens"], found["reference"], found["above"],
    )  # fmt: skip
    assert row("/srv/shop", "CUSTOM-1", by="story")["reference"] is None


def test_the_total_is_of_all_rows() -> None:
    """Of none it is nothing."""
    whole = usage_report([summed("bdd"), summed("impl", runs=3)], "step", {})["total"]
    assert (5, 4, 204_000, 1.0) == (whole["runs"], whole["measured"], whole["tokens"], whole["cost_usd"])
    nothing = usage_report([], "step", {})["total"]
    assert (0, 0, None) == (nothing["runs"], nothing["tokens"], nothing["cost_usd"])


def test_the_reference_names_existing_steps() -> None:
    """Also after a step is renamed."""
    assert REFERENCE.keys() <= shipped_rules().steps.keys()


def test_a_grouping_is_asked_for_by_name() -> None:
    """By step without a name."""
    assert "step" == grouping(None)
    assert list(get_args(Grouping)) == [grouping(by) for by in get_args(Grouping)]
    with pytest.raises(Refused, match="by must be one of step, story") as caught:
        grouping("month")
    assert "BAD_ARGUMENT" == caught.value.code


@pytest.mark.parametrize(("text", "ago"), [("7d", 7 * 24), ("12h", 12), ("2w", 14 * 24)])
def test_a_span_is_counted_back_from_now(text: str, ago: int) -> None:
    """Hours, days and weeks."""
    assert NOW - timedelta(hours=ago) == begin_of(text, NOW)


def test_a_date_is_its_midnight_here() -> None:
    """A time with a zone is that time."""
    here = begin_of("2026-01-30", NOW)
    assert here is not None
    assert "2026-01-30T00:00:00" == here.replace(tzinfo=None).isoformat()
    assert datetime(2026, 1, 30, 12, tzinfo=UTC) == begin_of("2026-01-30T20:00:00+08:00", NOW)
    assert begin_of(None, NOW) is None


@pytest.mark.parametrize("text", ["yesterday", "7", "0001-01-01T00:00+23:59", "99999d", "2026-13-01", "-3d"])
def test_a_wrong_time_is_refused(text: str) -> None:
    """The refusal has examples."""
    with pytest.raises(Refused, match="must be like 7d, 12h, 2w or 2026-01-31"):
        begin_of(text, NOW)
