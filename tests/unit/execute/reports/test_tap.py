"""TAP 13 and 14."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd.execute.reports import tap
from handoffd.execute.reports.report import TestReport

DATA = Path(__file__).parents[3] / "data" / "reports"


def sample(name: str) -> TestReport:
    """Read one of the kept reports."""
    return tap.read((DATA / name).read_bytes())


def test_a_real_report_of_node() -> None:
    """Subtests, skip and todo are understood; a file that cannot be imported is a load error."""
    report = sample("node-test.tap")

    assert {
        "adds": "passed",
        "wallet::empty": "passed",
        "wallet::rounds # up": "failed",
        "wallet": "failed",
        "later": "skipped",
        "known": "skipped",
    } == report.results
    assert ["/home/me/shop/tests/b.test.mjs"] == [error.file for error in report.load_errors]
    assert (None, ()) == (report.unnamed_failure, report.cut_short)


def test_subtests_of_version_13() -> None:
    """YAML details are data, never test points."""
    report = sample("subtests-13.tap")

    assert {
        "opens the store": "passed",
        "cart::is empty": "passed",
        "cart::adds up": "failed",
        "cart": "failed",
        "sends mail": "skipped",
        "prints": "skipped",
    } == report.results
    assert report.unnamed_failure is None


def test_nested_subtests_of_version_14() -> None:
    """Names come from every level; durations and escapes are not part of them."""
    report = sample("subtests-14.tap")

    assert {
        "checkout::card::accepts": "passed",
        "checkout::card::declines # 7": "failed",
        "checkout::card": "failed",
        "checkout": "failed",
        "test 2": "passed",
        "todo that works": "passed",
    } == report.results
    assert report.unnamed_failure is None


def test_a_bail_out_ends_the_report() -> None:
    """Later lines are not read, and missing tests never ran."""
    report = sample("bail-out.tap")

    assert {"connects": "passed"} == report.results
    assert "Bail out! Database is gone." == report.unnamed_failure
    assert ("",) == report.cut_short


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("1..3\nok 1\n", "3 tests were planned, 1 were run"),
        ("ok 1 - a\nok 2 - b\n", "the output ends without a plan"),
        ("1..1\n    ok 1 - inner\n", "the output ends inside a subtest"),
    ],
)
def test_a_stream_that_stops_is_no_success(text: str, failure: str) -> None:
    """All points passed, yet the run did not end well."""
    report = tap.read(text.encode())

    assert failure == report.unnamed_failure
    assert ("",) == report.cut_short


def test_a_plan_of_nothing_is_a_valid_report() -> None:
    """`1..0 # SKIP` means that there was nothing to do."""
    assert TestReport() == tap.read(b"TAP version 13\n1..0 # SKIP no database\n")


@pytest.mark.parametrize(
    ("text", "results"),
    [
        ("1..2\nok 1 - a\n  ---\n  x: 1\nnot ok 2 - b\n", {"a": "passed", "b": "failed"}),
        ("okay then\nok-ish\nok 1 - a\n1..1\n", {"a": "passed"}),
    ],
)
def test_only_test_points_are_results(text: str, results: dict[str, str]) -> None:
    """An open YAML block ends where the indentation does; words that begin with `ok` are not points."""
    assert results == tap.read(text.encode()).results


@pytest.mark.parametrize("body", [b"", b"Error: Cannot find module 'tape'\n", b"\xff\xfe\x00\x01"])
def test_output_without_tap_is_a_problem(body: bytes) -> None:
    """The command did not even begin to test."""
    report = tap.read(body)

    assert report.problem is not None
    assert not report.results


def test_tests_of_one_name_are_numbered_from_the_best_on() -> None:
    """Their ids do not say their file: a new test that fails does not take the place of an old one."""
    lines = "not ok 1 - sum", "ok 2 - sum # SKIP", "ok 3 - sum", "1..3"
    expected = {"sum": "passed", "sum (2)": "skipped", "sum (3)": "failed"}
    assert expected == tap.read("\n".join(lines).encode()).results
