"""The exit code as a report."""

from __future__ import annotations

import pytest

from handoffd.execute.reports.report import TestReport, exit_report


@pytest.mark.parametrize(
    ("code", "signal", "failure"), [(0, None, None), (1, None, "exit code 1"), (None, 11, "signal 11")]
)
def test_an_exit_code_is_unverified(code: int | None, signal: int | None, failure: str | None) -> None:
    """It tells success from failure, and nothing about tests."""
    assert TestReport(verified=False, unnamed_failure=failure) == exit_report(code, signal)
