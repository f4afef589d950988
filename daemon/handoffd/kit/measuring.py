"""`tests` and `compare-baseline`: runs the project's own tests, and counts or compares how they ended.

The command comes from the project's settings, never from a parameter or an agent. Its report says which test
ended how; without one only the exit code is known, and nothing is read out of what the tests print.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from handoffd.errors import Refused, StoreError
from handoffd.execute.reports.report import MAX_REPORT_BYTES, TestReport
from handoffd.files.rooted import read_project_file
from handoffd.kit.given import Done, Given, as_json, invalid, parsed

FILE: Final = "tests.json"
FORMS: Final = ("junit", "gotest", "tap", "jest", "cargo", "exit")
_ON_OUTPUT: Final = frozenset({"gotest", "tap", "cargo"})
"""Forms that are printed where the command names no {report}."""
_SHOWN: Final = 8_000
_MOST_NAMED: Final = 20
_COVERAGE: Final = ("coverage.xml", "coverage/cobertura-coverage.xml", "coverage/lcov.info", "lcov.info")
_LINE_RATE: Final = re.compile(rb"<coverage\b[^>]*?\bline-rate=\"([0-9.]+)\"")
_LCOV: Final = re.compile(rb"^(LF|LH):(\d+)", re.MULTILINE)


class Measured(Struct, frozen=True, kw_only=True):
    """How a run of the tests ended."""

    exit_code: int
    report: TestReport
    output: str
    coverage: float | None = None

    @property
    def named(self) -> bool:
        """Whether the report names each test."""
        return bool(self.report.results)

    @property
    def numbers(self) -> dict[str, float]:
        """The figures of the run; without a report it is one test that passed or failed."""
        counts = self.report.counts
        if not self.named and not self.report.load_errors:
            good = self.exit_code == 0
            return {
                "total": 1,
                "passed": int(good),
                "failed": int(not good),
                "skipped": 0,
                "pass_rate": float(good),
            }
        ran = counts.passed + counts.failed
        # A failure that no test has, such as a bail-out, keeps a run from being whole.
        failed = counts.failed + (self.exit_code != 0 and counts.failed == 0)
        rate = counts.passed / (counts.passed + failed) if ran else float(self.exit_code == 0)
        total = counts.passed + failed + counts.skipped
        return {
            "total": total, "passed": counts.passed, "failed": failed, "skipped": counts.skipped,
            "pass_rate": round(rate, 6),
        }  # fmt: skip


def tests(given: Given) -> Done:
    """Run the tests and count. Raises Refused where they cannot be run."""
    measured = measure(given)
    numbers = measured.numbers
    summary = f"{numbers['passed']:g} of {numbers['total']:g} passed, {numbers['failed']:g} failed."
    fields = {**numbers, "coverage": measured.coverage or 0.0}
    return Done(fields=fields, summary=summary, out={FILE: as_json(as_data(measured))})


tests.__test__ = False  # type: ignore[attr-defined]  # by its name


def compare_baseline(given: Given) -> Done:
    """Run the tests and compare them with the ones before the change."""
    file, before = given.find(FILE)
    measured = measure(given)
    worse = regressions(before, as_data(measured), file)
    out = {FILE: as_json(as_data(measured))}
    if not worse:
        return Done(fields={"regressions": 0}, summary="No test is worse than before.", out=out)
    shown = [
        *worse[:_MOST_NAMED],
        *([f"and {len(worse) - _MOST_NAMED} more"] if len(worse) > _MOST_NAMED else []),
    ]
    return Done(outcome="regression", fields={"regressions": len(worse)}, summary="\n".join(shown), out=out)


def regressions(before: Any, after: Mapping[str, Any], file: str) -> list[str]:
    """Return what is worse than before, by the name of the test. Raises InvalidFile.

    A test that is gone or skipped counts: a change of behaviour is easily hidden so. One that failed before
    does not.
    """
    old = before.get("results") if isinstance(before, dict) else None
    if not isinstance(old, dict):
        invalid(file, "results", "must be an object of tests with how each ended")
    new = after["results"]
    passed = [test for test, how in old.items() if how == "passed"]
    worse = [f"{test}: {new.get(test, 'gone')}" for test in sorted(passed) if new.get(test) != "passed"]
    if not old and before.get("exit_code") == 0 and after["exit_code"] != 0:
        worse.append(f"the tests end with {after['exit_code']}, and ended with 0")
    fresh = sorted(test for test, how in new.items() if how in {"failed", "error"} and test not in old)
    return [*worse, *(f"{test}: new, and {new[test]}" for test in fresh)]


def as_data(measured: Measured) -> dict[str, Any]:
    """Return the results as the file of the schema tests/1 has them."""
    coverage = {} if measured.coverage is None else {"coverage": measured.coverage}
    results = dict(sorted(measured.report.results.items()))
    return {
        "exit_code": measured.exit_code, **measured.numbers, **coverage, "named": measured.named,
        "results": results, "output": measured.output,
    }  # fmt: skip


# --- running ------------------------------------------------------------------------------------------
def measure(given: Given) -> Measured:
    """Run the project's tests in the workspace. Raises Refused and InvalidFile."""
    command, form = command_of(given.test), given.test.get("report", "exit")
    if form not in FORMS:
        invalid("HANDOFFD_TEST_REPORT", "", f"unknown value '{form[:80]}'", FORMS)
    with tempfile.TemporaryDirectory(prefix="handoffd-kit-") as folder:
        report, output = Path(folder) / "report", Path(folder) / "output"
        words = [word.replace("{report}", str(report)) for word in command]
        code = _ran(words, given.root, output)
        printed = _end_of(output, _SHOWN).decode("utf-8", "replace")
        body = _body(given, form, report, output)
    read = _read(form, body)
    if read.problem is not None and code == 0:
        raise Refused(f"the tests ended with 0, but their report cannot be used: {read.problem}")
    return Measured(exit_code=code, report=read, output=printed, coverage=coverage_in(given.root))


def command_of(test: Mapping[str, str]) -> list[str]:
    """Return the command that tests the project. Raises Refused where it has none."""
    if not test.get("command"):
        raise Refused("the project has no test command", hint="handoffd init")
    words = parsed(test["command"].encode(), "HANDOFFD_TEST_COMMAND")
    if not isinstance(words, list) or not words or not all(isinstance(one, str) for one in words):
        invalid("HANDOFFD_TEST_COMMAND", "", "must be a JSON list of words")
    return words


def _ran(words: list[str], root: Path, output: Path) -> int:
    """Return the exit code; of a process that a signal ended, 128 and the signal."""
    # An agent wrote the code under test: it does not learn where the result of the task is written.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HANDOFFD_")}
    try:
        with output.open("wb") as file:
            code = subprocess.run(
                words,
                cwd=root,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
    except OSError as error:
        raise Refused(f"the tests cannot be run: {words[0]}: {error.strerror}") from error
    return code if code >= 0 else 128 - code


def _body(given: Given, form: str, report: Path, output: Path) -> bytes | None:
    """Return the report that a run left; None where its form has none."""
    if form == "exit":
        return None
    if report.is_file() and not report.is_symlink():
        return _beginning_of(report)
    if form in _ON_OUTPUT:
        return _beginning_of(output)
    patterns = json.loads(given.test.get("reports") or "[]")
    if form == "junit" and patterns:
        from handoffd.execute.checks import report_files  # noqa: PLC0415  (only few projects need it)
        from handoffd.execute.reports import junit  # noqa: PLC0415

        return junit.united(_beginning_of(path) for path in report_files(given.root, patterns))
    return b""


def _read(form: str, body: bytes | None) -> TestReport:
    if body is None:
        return TestReport(verified=False)
    from handoffd.execute.reports import cargo, gotest, jest, junit, tap  # noqa: PLC0415  (slow to import)

    readers: Mapping[str, Callable[[bytes], TestReport]] = {
        "junit": junit.read, "gotest": gotest.read, "tap": tap.read, "jest": jest.read, "cargo": cargo.read,
    }  # fmt: skip
    return readers[form](body)


def _beginning_of(path: Path) -> bytes:
    """Return as much of a file as a reader of reports takes, and one byte, which shows that there is more."""
    with path.open("rb") as file:
        return file.read(MAX_REPORT_BYTES + 1)


def _end_of(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - most))
        return file.read(most)


def _body_at(root: Path, name: str) -> bytes:
    """Return a file of the workspace; nothing where it is missing, too large, or reached by a link."""
    try:
        found = read_project_file(root, name, MAX_REPORT_BYTES)
    except StoreError:
        return b""
    return b"" if found is None else found.content


def coverage_in(root: Path) -> float | None:
    """Return the share of lines that the tests cover, by the first report that is found; None: no report."""
    for name in _COVERAGE:
        body = _body_at(root, name)
        if found := _LINE_RATE.search(body):
            return min(1.0, float(found[1]))
        sums = {b"LF": 0, b"LH": 0}
        for kind, number in _LCOV.findall(body):
            sums[kind] += int(number)
        if sums[b"LF"]:
            return round(min(1.0, sums[b"LH"] / sums[b"LF"]), 6)
    return None
