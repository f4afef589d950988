"""From a finished test run to what it proves: the exit record and the report judged together. Pure.

Neither is enough alone. A runner that could not work (missing, called wrongly, broken inside, silent)
says nothing about the agent's work: its report becomes a `problem`, hence a fault of the environment.
A runner that ends with an error its report does not explain is a failure all the same.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from handoffd.engine.events import PostCheck, TestEvidence
from handoffd.engine.wording import last_line
from handoffd.execute.base import ExitRecord
from handoffd.execute.comparison import Baseline, Changed, compare
from handoffd.execute.ending import footprint_of
from handoffd.execute.reports import cargo, gotest, jest, junit, tap
from handoffd.execute.reports.report import (
    EVERYTHING,
    LoadError,
    TestReport,
    bounded_id,
    bounded_message,
    describe_failure,
    exit_report,
    unusable,
)
from handoffd.settings.model import TestSettings

MAX_EXCLUDED = 50

_READERS: Mapping[Literal["junit", "gotest", "tap", "jest", "cargo"], Callable[[bytes], TestReport]] = {
    "junit": junit.read,
    "gotest": gotest.read,
    "tap": tap.read,
    "jest": jest.read,
    "cargo": cargo.read,
}
_CANNOT_RUN = {126: "it is not executable", 127: "it was not found"}
_PYTEST_CANNOT_RUN = {3: "pytest broke internally", 4: "pytest was called wrongly"}
_PYTEST_NOTHING_COLLECTED = 5
_PYTEST = re.compile(r"(?:.*/)?(?:pytest|py\.test)(?:-?3(?:\.\d+)?)?")
_CONFTEST = re.compile(r"^ImportError while loading conftest '([^'\n]{1,4096})'", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TestOutput:
    """What a test run left: its report (None: no such file) and what it printed.

    `complete` is False when the report is the run's own output and the middle of it is lost.
    """

    __test__ = False

    report: bytes | None
    printed: str = ""
    complete: bool = True


def fault_of(exit_record: ExitRecord) -> str | None:
    """Return why a check's run proves nothing at all; None when its end means something."""
    if exit_record.spawn_error is not None:
        return f"the command could not be started: {exit_record.spawn_error}"
    if exit_record.by == "lost":
        return "nobody saw how the command ended"
    if exit_record.by == "stop":
        return "the command was stopped before it ended"
    return None


def measured(settings: TestSettings, exit_record: ExitRecord, output: TestOutput, root: str) -> TestReport:
    """Return what one test run says; with a `problem` it says nothing. Paths are made relative to `root`."""
    if problem := _no_verdict(exit_record):
        return unusable(problem)
    if settings.report == "exit":
        report = exit_report(exit_record.code, exit_record.signal)
        return replace(report, unnamed_failure=_failure(exit_record))
    if conftest := _broken_conftest(settings, exit_record, output):
        error = replace(conftest, file=inside(conftest.file, root))
        return TestReport(load_errors=(error,), cut_short=(EVERYTHING,))
    if not output.complete:
        return unusable("the test report is too long to be kept whole: have it written to {report}")
    if output.report is None:
        how = _failure(exit_record) or "exit code 0"
        return unusable(f"the test command left no report ({how})")
    report = _READERS[settings.report](output.report)
    if report.problem is not None:
        return report
    if is_pytest(settings) and exit_record.code in _PYTEST_CANNOT_RUN:
        return unusable(_PYTEST_CANNOT_RUN[exit_record.code])
    errors = tuple(replace(error, file=inside(error.file, root)) for error in report.load_errors)
    results = {_relative(test_id, root): outcome for test_id, outcome in report.results.items()}
    unnamed = _unnamed(settings, exit_record, report)
    return replace(report, results=results, load_errors=errors, unnamed_failure=unnamed)


def evidence_of(
    report: TestReport,
    exit_record: ExitRecord,
    baseline: Baseline | None,
    changed: Changed,
    *,
    earlier_s: float = 0.0,
) -> TestEvidence:
    """Return what the run proved; `earlier_s` is what a first run before this one took."""
    seconds = exit_record.seconds + earlier_s
    tail = _tail(report, exit_record)
    if exit_record.by == "deadline":
        return TestEvidence(timed_out=True, verified=False, tail=tail, line=last_line(tail), seconds=seconds)
    return replace(compare(report, baseline, changed, tail=tail, seconds=seconds), line=last_line(tail))


def post_check_of(exit_record: ExitRecord) -> PostCheck:
    """Return how a post_check ended. Ask `fault_of` first: a check that never ran proves nothing."""
    passed = exit_record.by == "itself" and exit_record.code == 0 and exit_record.spawn_error is None
    tail = exit_record.tail or exit_record.spawn_error or ""
    return PostCheck(passed=passed, tail=tail, timed_out=exit_record.by == "deadline", line=last_line(tail))


def files_to_exclude(
    settings: TestSettings, report: TestReport, baseline: Baseline | None, changed: Changed
) -> tuple[str, ...]:
    """Return the files to leave out of a second run; empty when none is needed or possible.

    It is needed when files the step changed cannot be loaded and tests that passed in the baseline
    did not run because of that, though they live elsewhere.
    """
    is_changed = changed.__contains__ if isinstance(changed, frozenset) else changed
    files = tuple(error.file for error in report.load_errors)
    if settings.exclude_argument is None or baseline is None or not files or len(files) > MAX_EXCLUDED:
        return ()
    if report.problem is not None or report.cut_short or not all(map(is_changed, files)):
        return ()
    for test_id, outcome in baseline.results.items():
        missing = outcome == "passed" and test_id not in report.results
        if missing and not any(_lives_in(test_id, file) for file in files):
            return files
    return ()


def merge(first: TestReport, second: TestReport, excluded: tuple[str, ...]) -> TestReport:
    """Return the report of both runs together, the second made without `excluded`."""
    if second.problem is not None:
        return second
    # A file that stands in the way even when it is left out (a conftest) hides every other test.
    in_the_way = any(error.file in excluded for error in second.load_errors)
    known = {error.file for error in first.load_errors}
    more = tuple(error for error in second.load_errors if error.file not in known)
    return replace(
        second,
        results={**first.results, **second.results},
        load_errors=(*first.load_errors, *more),
        cut_short=(EVERYTHING,) if in_the_way else second.cut_short,
        excerpt=first.excerpt + second.excerpt,
    )


def inside(file: str, root: str) -> str:
    """Return `file` relative to `root` where it lies in it, in normal form; else unchanged."""
    path = posixpath.normpath(posixpath.join(root, file))
    top = posixpath.normpath(root)
    return path[len(top) :].lstrip("/") if path.startswith(f"{top}/") else file


def _relative(test_id: str, root: str) -> str:
    """Return an id that begins with a whole path (jest's) as one below `root`."""
    return test_id.removeprefix(f"{root.rstrip('/')}/")


def is_pytest(settings: TestSettings) -> bool:
    """Whether the command is known to end with pytest's exit codes."""
    return any(_PYTEST.fullmatch(word) for word in settings.command or ())


def _no_verdict(exit_record: ExitRecord) -> str | None:
    if exit_record.by == "deadline":
        return f"the tests did not end within {exit_record.seconds:.0f} s"
    if fault := fault_of(exit_record):
        return fault
    why = _CANNOT_RUN.get(exit_record.code) if exit_record.code is not None else None
    return why and f"the test command cannot be run: {why} (exit code {exit_record.code})"


def _broken_conftest(settings: TestSettings, exit_record: ExitRecord, output: TestOutput) -> LoadError | None:
    """Return the conftest.py that keeps pytest from starting: code of the project, not of the runner."""
    if not is_pytest(settings) or exit_record.code != 4:
        return None
    text = output.printed or exit_record.tail
    named = _CONFTEST.search(text)
    if named is None:
        return None
    return LoadError(file=bounded_id(named.group(1)), message=bounded_message(text[named.start() :]))


def _unnamed(settings: TestSettings, exit_record: ExitRecord, report: TestReport) -> str | None:
    if report.unnamed_failure is not None or report.names_a_failure:
        return report.unnamed_failure
    nothing = is_pytest(settings) and exit_record.code == _PYTEST_NOTHING_COLLECTED
    return None if nothing else _failure(exit_record)


def _failure(exit_record: ExitRecord) -> str | None:
    """Return how a check failed by its exit code or signal, with the limit that it met; None for success."""
    failed, taken = describe_failure(exit_record.code, exit_record.signal), footprint_of(exit_record)
    return f"{failed}; {taken.limits_met}" if failed and taken and taken.limits_met else failed


def _lives_in(test_id: str, file: str) -> bool:
    """Whether an id is one of `file`'s, for runners whose ids begin with a path or dotted module."""
    module = file.rsplit(".", 1)[0].replace("/", ".")
    return test_id.startswith((f"{file}::", f"{module}::", f"{module}."))


def _tail(report: TestReport, exit_record: ExitRecord) -> str:
    """Return what helps to repair: files that cannot be loaded, then the end of what was printed."""
    lines = [f"{error.file}: {(error.message.splitlines() or [''])[-1]}" for error in report.load_errors[:20]]
    head = "\n".join([*lines, ""])[:1500] if lines else ""
    text = report.excerpt or exit_record.tail
    return head + text[-(4096 - len(head)) :]
