"""The report of a runner that writes none: its exit code.

It proves little (a runner that collected nothing exits with 0, too), so it is marked unverified, and
since it names no test, no failure can be excused as one that was there before.
"""

from __future__ import annotations

from handoffd.execute.reports.report import TestReport


def read(code: int | None, signal: int | None) -> TestReport:
    """Return what the exit code (or the signal that ended the runner) says; counts are unknown."""
    return TestReport(verified=False, unnamed_failure=describe_failure(code, signal))


def describe_failure(code: int | None, signal: int | None) -> str | None:
    """Return `exit code 1` or `signal 11`; None for success."""
    if signal is not None:
        return f"signal {signal}"
    return f"exit code {code}" if code else None
