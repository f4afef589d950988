"""JUnit XML reports, real ones and hostile ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd.execute.reports import junit
from handoffd.execute.reports.report import MAX_REPORT_BYTES, TestReport
from handoffd.protocol.state import TestCounts

DATA = Path(__file__).parents[3] / "data" / "reports"


def sample(name: str) -> TestReport:
    """Read one of the kept reports."""
    return junit.read((DATA / name).read_bytes())


def suite(cases: str) -> bytes:
    """Return a report with `cases`."""
    return f'<testsuites><testsuite name="unit">{cases}</testsuite></testsuites>'.encode()


def test_every_outcome_of_pytest_is_recognised() -> None:
    """Failures, errors of fixtures, skips and expected failures; ids are stable."""
    report = sample("pytest-mixed.xml")

    assert {
        "tests.test_money::test_adds": "passed",
        "tests.test_money::test_rounds": "failed",
        "tests.test_money::test_parses[1.00]": "passed",
        "tests.test_money::test_parses[a::b <&>]": "passed",
        "tests.test_money::test_parses[\\u9577]": "passed",
        "tests.test_money::test_later": "skipped",
        "tests.test_money::test_known": "skipped",
        "tests.test_money::test_needs_fixture": "error",
        "tests.test_money::test_leaks": "error",
        "tests.test_money.TestWallet::test_empty": "passed",
    } == report.results
    assert TestCounts(passed=5, failed=3, skipped=2) == report.counts
    assert report.problem is None


@pytest.mark.parametrize("name", ["pytest-collection-errors.xml", "pytest-collection-errors-continued.xml"])
def test_collection_errors_of_pytest_are_load_errors(name: str) -> None:
    """A module that cannot be imported or parsed is not a test; its file and message are known."""
    report = sample(name)

    assert ["/home/me/shop/tests/test_new.py", "tests/test_syntax.py"] == [e.file for e in report.load_errors]
    assert report.load_errors[0].message.endswith("ModuleNotFoundError: No module named 'money'")
    assert not any("test_new" in test_id for test_id in report.results)


def test_a_conftest_that_breaks_collection_is_the_load_error() -> None:
    """The file named is the one to repair, not the folder pytest was collecting."""
    text = "ImportError while loading conftest '/p/tests/api/conftest.py'."
    error = f'<error message="collection failure">{text}</error>'
    case = f'<testcase classname="" name="tests.api">{error}</testcase>'

    assert ["/p/tests/api/conftest.py"] == [e.file for e in junit.read(suite(case)).load_errors]


def test_a_suite_that_vitest_cannot_load_is_a_load_error() -> None:
    """vitest reports it as one failed case named after the file."""
    report = sample("vitest.xml")

    assert {
        "test/a.test.js::adds": "passed",
        "test/a.test.js::fails": "failed",
        "test/a.test.js::later": "skipped",
    } == report.results
    assert ["test/b.test.js"] == [error.file for error in report.load_errors]


def test_no_collected_test_is_valid_and_an_internal_error_is_a_problem() -> None:
    """The runner broke: whatever else is in its report proves nothing."""
    assert TestReport() == sample("pytest-nothing.xml")
    assert "the test runner broke: RuntimeError: plugin bug" == sample("pytest-internal.xml").problem


@pytest.mark.parametrize(
    ("cases", "results"),
    [
        # A module that skips itself has no classname.
        (
            '<testcase classname="" name="tests.test_x"><skipped message="collection skipped"/></testcase>',
            {"tests.test_x": "skipped"},
        ),
        # pytest reports a test and its failed teardown as two cases.
        (
            '<testcase classname="t" name="a"><failure message="no"/></testcase>'
            '<testcase classname="t" name="a"><error message="failed on teardown"/></testcase>',
            {"t::a": "error"},
        ),
        # Some runners write the group into the suite alone; suites may be nested.
        (
            '<testsuite name="o"><testsuite name="i"><testcase name="a"/></testsuite>'
            '<testcase name="b"/></testsuite>',
            {"i::a": "passed", "o::b": "passed"},
        ),
    ],
)
def test_odd_cases_are_understood(cases: str, results: dict[str, str]) -> None:
    """Each test has one id and one result."""
    assert results == junit.read(suite(cases)).results


def test_a_run_that_was_ended_inside_a_test_is_not_complete() -> None:
    """As by `pytest.exit`: the test has no name, and no result."""
    report = junit.read(suite('<testcase classname="c" name="a"/><testcase time="0.000" />'))
    assert ({"c::a": "passed"}, ("",)) == (report.results, report.cut_short)
    assert "the run was ended inside a test" == report.unnamed_failure


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_doctype_is_refused_before_entities_exist(encoding: str) -> None:
    """An entity bomb costs nothing, however the document is encoded."""
    entities = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 10}">' for n in range(9))
    doctype = f'<!DOCTYPE x [<!ENTITY e0 "ha">{entities}]>'
    text = f'<?xml version="1.0" encoding="{encoding}"?>{doctype}<testsuites>&e9;</testsuites>'

    problem = junit.read(text.encode(encoding)).problem

    assert "the JUnit report was refused: it has a DOCTYPE, which no test runner writes" == problem


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (b"", "empty"),
        (b"<testsuites><testsuite>", "not well-formed"),
        (b"\x00\xff\xfe", "not well-formed"),
        (b"<html/>", "root is <html>"),
        (b'<?xml version="1.0" encoding="klingon"?><testsuites/>', "not well-formed"),
        (b"<testsuites>" + b"<a>" * 100, "64 levels"),
        (b" " * MAX_REPORT_BYTES + b"<x/>", "larger than 64 MiB"),
    ],
)
def test_another_file_is_a_problem(body: bytes, part: str) -> None:
    """A broken, foreign or excessive file never passes for a run without failures."""
    report = junit.read(body)

    assert part in (report.problem or "")
    assert not report.results
