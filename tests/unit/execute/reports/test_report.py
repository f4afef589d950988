"""The form all reports share, and its limits."""

from __future__ import annotations

from handoffd.execute.reports.report import (
    MAX_EXCERPT_CHARS,
    MAX_ID_CHARS,
    Collector,
    bounded_id,
    bounded_message,
    printable,
    size_problem,
)
from handoffd.protocol.state import TestCounts


def test_the_worse_of_two_results_for_one_id_stays() -> None:
    """A test that passed and then failed in its teardown has failed, in whatever order it was told."""
    for order in (("passed", "error"), ("error", "passed")):
        found = Collector()
        for outcome in order:
            found.add("test_a", outcome)

        assert {"test_a": "error"} == found.report().results


def test_counts_are_of_ids_and_files_that_cannot_be_loaded() -> None:
    """Errors and unloadable files are failures; nothing is counted twice."""
    found = Collector()
    found.add("a", "passed")
    found.add("b", "failed")
    found.add("c", "error")
    found.add("d", "skipped")
    found.add_load_error("test_e.py", "no module")
    found.add_load_error("test_e.py", "no module, again")

    assert TestCounts(passed=1, failed=3, skipped=1) == found.report().counts


def test_long_ids_stay_distinct() -> None:
    """Two ids that differ only beyond the limit are still two tests, the same in every run."""
    one, other = bounded_id("x" * 900 + "1"), bounded_id("x" * 900 + "2")

    assert one != other
    assert one == bounded_id("x" * 900 + "1")
    assert MAX_ID_CHARS == len(one)


def test_ids_can_be_printed_and_encoded() -> None:
    """Escape sequences and lone surrogates cannot get out of a report."""
    text = printable("a\x1b[31m\ud800長")

    assert "a\N{REPLACEMENT CHARACTER}[31m?長" == text
    assert text.encode()


def test_messages_keep_their_lines_and_lose_their_length() -> None:
    """A message is several lines at most two thousand characters long."""
    assert "one\ntwo" == bounded_message("one\ntwo\n")
    assert 2000 == len(bounded_message("x" * 10_000))


def test_the_excerpt_is_bounded() -> None:
    """However much failing tests print, the excerpt keeps the beginning."""
    found = Collector()
    for _ in range(10):
        found.explain("got 2, want 3\n" * 100)

    assert MAX_EXCERPT_CHARS == len(found.report().excerpt)


def test_an_empty_report_is_a_problem() -> None:
    """Blank is no report; anything else is left to its reader."""
    empty = size_problem(b" \n")

    assert empty is not None
    assert "the report is empty" == empty.problem
    assert size_problem(b"x") is None
