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


# --- maven and gradle ---------------------------------------------------------------------------------
def test_the_files_of_maven_are_one_report() -> None:
    """One for each class: parameters, classes inside of classes, tests that pass when repeated, outputs."""
    files = [(DATA / name).read_bytes() for name in ("surefire-1.xml", "surefire-2.xml")]
    report = junit.read(junit.united(files))

    assert report.problem is None
    assert {
        "shop.CartTest::sums": "passed",
        "shop.CartTest::fails": "failed",
        "shop.CartTest::breaks": "error",
        "shop.CartTest::later": "skipped",
        "shop.CartTest::each(int)[1]": "passed",
        "shop.CartTest::each(int)[2]": "passed",
        "shop.CartTest::repeated": "passed",
        "shop.CartTest$Empty::isZero": "passed",
    } == report.results
    assert [("shop/PriceTest.class", "java.lang.ExceptionInInitializerError")] == [
        (error.file, error.message.splitlines()[0]) for error in report.load_errors
    ]


def test_the_files_of_gradle_are_one_report() -> None:
    """Methods have parentheses there, and a class that cannot begin a name of its own."""
    report = junit.read(junit.united([(DATA / "gradle.xml").read_bytes()]))

    assert {
        "shop.CartTest::sums()": "passed",
        "shop.CartTest::fails()": "failed",
        "shop.CartTest::later()": "skipped",
        "shop.CartTest::[1] 1": "passed",
    } == report.results
    assert ["shop/PriceTest.class"] == [error.file for error in report.load_errors]


@pytest.mark.parametrize("more", [b"", b"nothing", b"<testsuite>", b"</testsuites><testsuites>", b"<html/>"])
def test_one_file_that_is_no_report_makes_all_of_them_unusable(more: bytes) -> None:
    """It may be half a file of a runner that was killed. An empty one has no result."""
    found = junit.read(junit.united([suite('<testcase classname="a" name="b"/>'), more]))
    assert (found.problem is None) == (more in {b"", b"nothing", b"<html/>"})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[ERROR] {file}.java:[5,20] cannot find symbol", "cannot find symbol"),
        ("{file}.java:5: error: cannot find symbol", "cannot find symbol"),
        ("[ERROR] {file}.kt:[3,5] Unresolved reference: Cart", "Unresolved reference: Cart"),
        ("e: file://{file}.kt:3:5 Unresolved reference: Cart", "Unresolved reference: Cart"),
        ("e: {file}.kt: (3, 5): Unresolved reference: Cart", "Unresolved reference: Cart"),
    ],
)
def test_what_a_compiler_complains_of_is_a_file(line: str, message: str) -> None:
    """As maven and gradle print it; warnings are none, nor is a line of a program's own."""
    line = line.format(file="/w/src/test/java/shop/CartTest")
    printed = f"[INFO] compiling\n{line}\n{line}\n[WARNING] /w/A.java:[1,2] deprecated\n at /w/B.java:7\n"
    (found,) = junit.not_compiled(printed)
    assert message == found.message
    assert found.file.partition(".")[0] == "/w/src/test/java/shop/CartTest"
