"""The report of `jest --json`: one JSON document, with a suite for each file and its tests inside.

The whole document is parsed at once, so its size limit is lower than that of other reports.
"""

from __future__ import annotations

import json
from typing import Any

from handoffd.execute.reports.report import (
    EVERYTHING,
    Collector,
    Outcome,
    TestReport,
    TooManyResults,
    size_problem,
    unusable,
)

MAX_BYTES = 16 * 1024 * 1024

_OUTCOMES: dict[str, Outcome] = {"passed": "passed", "failed": "failed"}


def read(body: bytes) -> TestReport:
    """Return the results in a report of jest; ids are `file::describe > test`."""
    if bad := size_problem(body):
        return bad
    if len(body) > MAX_BYTES:
        return unusable(f"the jest report is larger than {MAX_BYTES // 1024 // 1024} MiB")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        return unusable(f"the jest report is not JSON: {error}")
    suites = document.get("testResults") if isinstance(document, dict) else None
    if not isinstance(suites, list):
        return unusable("the jest report has no `testResults`")
    found = Collector()
    try:
        for suite in suites:
            _read_suite(suite if isinstance(suite, dict) else {}, found)
    except TooManyResults as excess:
        return unusable(f"the jest report was refused: {excess}")
    ended_early = document.get("wasInterrupted") is True
    return found.report(cut_short=(EVERYTHING,) if ended_early else ())


def _read_suite(suite: dict[str, Any], found: Collector) -> None:
    file, message = _text(suite.get("name")) or "(no file)", _text(suite.get("message"))
    tests = suite.get("assertionResults")
    tests = [test for test in tests if isinstance(test, dict)] if isinstance(tests, list) else []
    failed = suite.get("status") == "failed"
    if failed and not tests:
        found.add_load_error(file, message)
        return
    for test in tests:
        found.add(f"{file}::{_name(test)}", _OUTCOMES.get(_text(test.get("status")), "skipped"))
    if failed and all(test.get("status") != "failed" for test in tests):
        found.add(file, "error")  # its set-up or tear-down failed
    if failed:
        found.explain(message)


def _name(test: dict[str, Any]) -> str:
    above = test.get("ancestorTitles")
    titles = [_text(title) for title in above] if isinstance(above, list) else []
    return " > ".join([*titles, _text(test.get("title")) or "(no name)"])


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
