"""What `jest --json` writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from handoffd.execute.reports import jest
from handoffd.execute.reports.report import EVERYTHING

DATA = Path(__file__).parents[3] / "data" / "reports"


def test_a_real_report() -> None:
    """Ids have the file; a file that cannot be loaded is told from one whose tests fail."""
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


def test_no_tests_are_none() -> None:
    """As with --passWithNoTests."""
    report = jest.read(b'{"testResults": [], "wasInterrupted": false}')

    assert ({}, None, ()) == (report.results, report.problem, report.cut_short)


def test_a_run_that_was_interrupted_was_cut_short() -> None:
    """What is missing was not deleted."""
    assert (EVERYTHING,) == jest.read(b'{"testResults": [], "wasInterrupted": true}').cut_short


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
def test_what_is_no_report_is_a_problem(body: bytes) -> None:
    """It proves nothing."""
    assert jest.read(body).problem is not None


def test_odd_values_are_passed_over() -> None:
    """Whatever has another type than it should have."""
    suites = [
        5,
        {"name": 7, "status": "failed", "message": []},
        {"name": "a.js", "assertionResults": [None, {"title": [], "ancestorTitles": [1], "status": {}}]},
    ]
    report = jest.read(json.dumps({"testResults": suites}).encode())

    assert {"a.js:: > (no name)": "skipped"} == report.results
    assert ["(no file)"] == [error.file for error in report.load_errors]
