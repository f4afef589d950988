"""The form all reports share, and its limits."""

from __future__ import annotations

import pytest

from handoffd.execute.reports.report import (
    MAX_EXCERPT_CHARS,
    MAX_ID_CHARS,
    Collector,
    Outcome,
    TestReport,
    bounded_id,
    bounded_message,
    exit_report,
    printable,
    size_problem,
)
from handoffd.protocol.state import TestCounts

OUTCOMES: tuple[Outcome, ...] = ("passed", "failed", "error", "skipped")


def test_the_worse_of_two_results_for_one_id_stays() -> None:
    """A test that passed and then failed in its teardown has failed, in either order."""
    for order in (("passed", "error"), ("error", "passed")):
        found = Collector()
        for outcome in order:
            found.add("test_a", outcome)

        assert {"test_a": "error"} == found.report().results


def test_counts_are_of_ids_and_files_that_cannot_be_loaded() -> None:
    """Errors and unloadable files are failures; nothing is counted twice."""
    found = Collector()
    for outcome in OUTCOMES:
        found.add(f"test_{outcome}", outcome)
    found.add_load_error("test_e.py", "no module")
    found.add_load_error("test_e.py", "no module, again")

    assert TestCounts(passed=1, failed=3, skipped=1) == found.report().counts


def test_long_ids_stay_distinct() -> None:
    """Two ids that differ only beyond the limit are still two tests, the same in every run."""
    one, other = bounded_id("x" * 900 + "1"), bounded_id("x" * 900 + "2")

    assert one != other
    assert one == bounded_id("x" * 900 + "1")
    assert MAX_ID_CHARS == len(one)


def test_texts_are_printable_and_bounded() -> None:
    """Escape sequences and lone surrogates cannot get out of a report; messages keep their lines."""
    text = printable("a\x1b[31m\ud800長")
    assert "a\N{REPLACEMENT CHARACTER}[31m?長" == text
    assert text.encode()

    assert "one\ntwo" == bounded_message("one\ntwo\n")
    assert "one\n    two" == bounded_message("one\n\ttwo\n")
    assert 2000 == len(bounded_message("x" * 10_000))

    found = Collector()
    for _ in range(10):
        found.explain("got 2, want 3\n" * 100)
    assert MAX_EXCERPT_CHARS == len(found.report().excerpt)


def test_an_empty_report_is_a_problem() -> None:
    """Anything that is not blank is left to its reader."""
    assert "the report is empty" == getattr(size_problem(b" \n"), "problem", None)
    assert size_problem(b"x") is None


@pytest.mark.parametrize(
    ("code", "signal", "failure"), [(0, None, None), (1, None, "exit code 1"), (None, 11, "signal 11")]
)
def test_an_exit_code_is_unverified(code: int | None, signal: int | None, failure: str | None) -> None:
    """It tells success from failure, and nothing about tests."""
    assert TestReport(verified=False, unnamed_failure=failure) == exit_report(code, signal)
