"""What agents claimed, held against what was measured: one by one, and summed up."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.journal.making import NOW
from tests.unit.report.nights import HOUR, checked, claim, night, ran

from handoffd.journal.history import Counts, Night
from handoffd.report.claims import against, claims_of, tally
from handoffd.report.values import ClaimsRow

FAILED: dict[str, Any] = {"result": "failing", "why": "pass claimed, but 2 tests fail: a, b"}


@pytest.mark.parametrize(
    ("events", "run", "told"),
    [
        (
            (claim(tests=Counts(5)), checked(Counts(3, 2))), FAILED,
            [("tests", "5 pass, 0 fail", "3 pass, 2 fail")],
        ),
        ((claim(tests=Counts(5)), checked(Counts(4))), {}, [("tests", "5 pass, 0 fail", "4 pass, 0 fail")]),
        ((claim(tests=Counts(2)), checked(Counts(90))), {}, []),
        ((claim(), checked(Counts(3, 2))), FAILED, [("outcome", "pass", "2 tests fail: a, b")]),
        ((claim(), checked()), FAILED, [("outcome", "pass", "2 tests fail: a, b")]),
        ((claim("failing", Counts(5)), checked(Counts(3, 2))), FAILED, []),
        ((claim(tests=Counts(5)), checked(Counts(), verified=False)), {}, []),
        ((claim(tests=Counts(5)), checked(Counts(), fault="no runner")), {}, []),
        ((claim(tests=Counts(5)), checked(Counts(), timed_out=True)), {}, []),
        ((claim(untouched=("a.py",)),), {}, [("files", "it changed a.py", "the file is as it was")]),
        (
            (claim(untouched=("a.py", "b.py")),), {},
            [("files", "it changed a.py, b.py", "the files are as they were")],
        ),
        ((checked(Counts(3, 2)),), FAILED, []),
    ],
)  # fmt: skip
def test_a_claim_is_false_where_a_measurement_says_otherwise(
    events: tuple[Any, ...], run: dict[str, Any], told: list[tuple[str, str, str]]
) -> None:
    """One about fewer tests, or an honest failure, is not; nor where nothing could be measured."""
    found = [one for found in claims_of(night(events=events, runs=(ran(**run),))) for one in against(*found)]
    assert told == found


# --- of a longer time --------------------------------------------------------------------------------
def month() -> Night:
    """Return a time with one claim of each kind, and one run that goes on."""
    return night(
        runs=(
            ran("met"), ran("lied", **FAILED), ran("unmeasured", step="bdd"), ran("honest", result="failing"),
            ran("silent", result="no_handoff"), ran("files", executor="codex"), ran("open", ended=None),
            ran("late", ended=NOW + 2 * HOUR),
        ),
        events=(
            claim(run="met"), checked(Counts(5), run="met"),
            claim(run="lied", untouched=("a.py",)), checked(Counts(3, 2), run="lied"),
            claim(run="unmeasured"),
            claim("failing", run="honest"), checked(Counts(3, 2), run="honest"),
            claim(run="files", untouched=("a.py",)),
            claim(run="open"), claim(run="late"), checked(Counts(5), run="late"),
        ),
    )  # fmt: skip


def numbers(row: ClaimsRow) -> tuple[Any, ...]:
    """Return whom a row is about, and its numbers."""
    false = {about: count for about, count in row.false.items() if count}
    return row.executor, row.step, row.runs, row.claims, row.measured, row.met, false


def test_claims_are_summed_up_by_executor_and_step() -> None:
    """A claim that nothing was measured of is neither met nor false; one can be false about two things."""
    rows, total = tally(month())
    assert [
        ("claude", "bdd", 1, 1, 0, 0, {}),
        ("claude", "impl", 4, 2, 2, 1, {"outcome": 1, "files": 1}),
        ("codex", "impl", 1, 1, 1, 0, {"files": 1}),
    ] == list(map(numbers, rows))
    assert (None, None, 6, 4, 3, 1, {"outcome": 1, "files": 2}) == numbers(total)
    assert ["tests", "outcome", "files"] == list(total.false)


def test_or_by_one_of_them() -> None:
    """The other one is null, and the total is the same."""
    by_executor, total = tally(month(), "executor")
    assert [("claude", None, 5), ("codex", None, 1)] == [numbers(row)[:3] for row in by_executor]
    by_step, same = tally(month(), "step")
    assert [(None, "bdd", 1), (None, "impl", 5)] == [numbers(row)[:3] for row in by_step]
    assert total == same


def test_nothing_is_summed_up_to_zero() -> None:
    """No row, and a total all the same."""
    rows, total = tally(night())
    assert ([], (None, None, 0, 0, 0, 0, {})) == (rows, numbers(total))
