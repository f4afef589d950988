"""What `jest --json` writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from handoffd.execute.reports import jest
from handoffd.execute.reports.report import EVERYTHING

DATA = Path(__file__).parents[3] / "data" / "reports"


def test_a_real_report() -> None:
    """Ids have the file; a file that cannot be loaded is not one whose tests fail."""
    report = jest.read((DATA / "jest.json").read_bytes())

    assert {
        "/home/me/shop/a.test.js::sum > adds": "passed",
        "/home/me/shop/a.test.js::sum > fails": "failed",
        "/home/me/shop/a.test.js::sum > later": "skipped",
        "/home/me/shop/a.test.js::sum > more": "skipped",
        "/home/me/shop/c.test.js::z": "passed",
        "/home/me/shop/c.test.js": "error",
    } == report.results
    assert ["/home/me/shop/b.test.js"] == [error.file for error in report.load_errors]
    assert "Cannot find module './missing'" in report.load_errors[0].message
    assert "Expected: 2" in report.excerpt
    assert () == report.cut_short


@pytest.mark.parametrize(("interrupted", "cut_short"), [("false", ()), ("true", (EVERYTHING,))])
def test_no_tests_are_a_valid_report(interrupted: str, cut_short: tuple[str, ...]) -> None:
    """As with --passWithNoTests; after an interruption tests are missing, not deleted."""
    report = jest.read(f'{{"testResults": [], "wasInterrupted": {interrupted}}}'.encode())

    assert ({}, None, cut_short) == (report.results, report.problem, report.cut_short)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nothing",
        b"[]",
        b"{}",
        b'{"testResults": 5}',
        b"[" * 200_000,
        b" " * (jest.MAX_BYTES + 1) + b"{}",
        b"1" * 10_000,
    ],
)
def test_another_file_is_a_problem(body: bytes) -> None:
    """It proves nothing."""
    assert jest.read(body).problem is not None


def test_odd_values_are_passed_over() -> None:
    """Values of another type than the expected one."""
    suites = [
        5,
        {"name": 7, "status": "failed", "message": []},
        {"name": "a.js", "assertionResults": [None, {"title": [], "ancestorTitles": [1], "status": {}}]},
    ]
    report = jest.read(json.dumps({"testResults": suites}).encode())

    assert {"a.js:: > (no name)": "skipped"} == report.results
    assert ["(no file)"] == [error.file for error in report.load_errors]
