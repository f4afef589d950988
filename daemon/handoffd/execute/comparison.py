"""What a test run proved: a report held against the baseline, as `TestEvidence`. Pure.

The baseline is what the tests said before the story's first red step. The rules, where one could
decide otherwise:

- A test that passed in the baseline and fails now has regressed. One that is *gone* has not: tests
  are renamed and deleted for good reasons, and a red step may put an old test file out of action by
  importing what does not exist yet. It has, however, when it is missing because its part of the run
  ended early (`TestReport.cut_short`): then nobody can say that it still passes.
- A file that cannot be loaded is one new failure when the step changed that file; when it did not,
  something the step changed broke it, which is a regression. One that could not be loaded in the
  baseline either is a known failure.
- A failure that no id carries (an exit code, a bail-out) keeps a run from being green and never makes
  it red. It is excused by the same failure in the baseline only while the run was complete.
- With nothing but an exit code (`verified` False) there are no ids: a failure counts as one new
  failure and is never excused, since nothing shows that it is the old one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, cast, get_args

from handoffd.engine.events import TestEvidence
from handoffd.errors import StoreError
from handoffd.execute.reports.report import BAD, Outcome, TestReport

MAX_NAMES = 200
MAX_NAME_CHARS = 300
MAX_TAIL_BYTES = 4096

_VERSION = 1

Changed = Callable[[str], bool] | frozenset[str]
"""Whether the step changed a file, asked with `LoadError.file`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What a project's tests said before a story touched them."""

    results: dict[str, Outcome] = field(default_factory=dict)
    unloadable: frozenset[str] = frozenset()
    unnamed_failure: str | None = None


def baseline_of(report: TestReport) -> Baseline:
    """Return the baseline a report makes; only a report without a problem makes one."""
    assert report.problem is None
    return Baseline(
        results=dict(report.results),
        unloadable=frozenset(error.file for error in report.load_errors),
        unnamed_failure=report.unnamed_failure,
    )


def encode(baseline: Baseline) -> bytes:
    """Return the baseline as JSON, the same bytes for the same baseline."""
    data = {
        "version": _VERSION,
        "results": baseline.results,
        "unloadable": sorted(baseline.unloadable),
        "unnamed_failure": baseline.unnamed_failure,
    }
    return json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def decode(body: bytes) -> Baseline:
    """Return the baseline that `encode` wrote. Raises StoreError for anything else."""
    try:
        data: Any = json.loads(body)
        _check_version(data["version"])
        results = {str(key): _outcome(value) for key, value in data["results"].items()}
        unloadable = frozenset(map(str, data["unloadable"]))
        unnamed = data["unnamed_failure"]
        return Baseline(results=results, unloadable=unloadable, unnamed_failure=unnamed)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(f"a stored baseline of test results cannot be read: {error}") from error


def compare(
    report: TestReport, baseline: Baseline | None, changed: Changed, *, tail: str = "", seconds: float = 0.0
) -> TestEvidence:
    """Return what `report` proves. With no baseline, every test counts as new.

    `tail` is the end of the runner's output, `seconds` what it took.
    """
    tail = tail.encode("utf-8", "replace")[-MAX_TAIL_BYTES:].decode("utf-8", "ignore")
    if report.problem is not None:
        return TestEvidence(fault=report.problem, verified=False, tail=tail, seconds=seconds)
    if not report.verified:
        evidence = _unverified(report)
    else:
        evidence = _verified(report, baseline or Baseline(), _question(changed))
    return replace(evidence, tail=tail, seconds=seconds)


def bounded(names: Iterable[str]) -> tuple[str, ...]:
    """Return the first `MAX_NAMES` names, each cut to `MAX_NAME_CHARS`."""
    found: list[str] = []
    for name in names:
        if len(found) == MAX_NAMES:
            break
        found.append(name if len(name) <= MAX_NAME_CHARS else f"{name[: MAX_NAME_CHARS - 1]}…")
    return tuple(found)


def _unverified(report: TestReport) -> TestEvidence:
    failure = report.unnamed_failure
    return TestEvidence(
        failing=(failure,) if failure else (),
        new_failing=1 if failure else 0,
        new_collected=1,
        collected=1,
        verified=False,
    )


def _verified(report: TestReport, baseline: Baseline, changed: Callable[[str], bool]) -> TestEvidence:
    bad = [test_id for test_id, outcome in report.results.items() if outcome in BAD]
    known = [test_id for test_id in bad if baseline.results.get(test_id) in BAD]
    broken = [error.file for error in report.load_errors if error.file not in baseline.unloadable]
    known_broken = [error.file for error in report.load_errors if error.file in baseline.unloadable]
    new_broken = [file for file in broken if changed(file)]
    regressed = [test_id for test_id in bad if baseline.results.get(test_id) == "passed"]
    regressed += [file for file in broken if not changed(file)]
    regressed += _never_run(report, baseline)
    unnamed, known_unnamed = _unnamed(report, baseline)
    excused = set(known)
    new = sum(test_id not in baseline.results for test_id in report.results)
    return TestEvidence(
        counts=report.counts,
        failing=bounded([*broken, *unnamed, *(test_id for test_id in bad if test_id not in excused)]),
        known_failing=bounded([*known_broken, *known_unnamed, *known]),
        new_failing=sum(test_id not in baseline.results for test_id in bad) + len(new_broken),
        new_collected=new + len(new_broken),
        regressed=bounded(regressed),
        collected=len(report.results) + len(report.load_errors),
    )


def _never_run(report: TestReport, baseline: Baseline) -> list[str]:
    if not report.cut_short:
        return []
    return [
        test_id
        for test_id, outcome in baseline.results.items()
        if outcome == "passed" and test_id not in report.results and test_id.startswith(report.cut_short)
    ]


def _unnamed(report: TestReport, baseline: Baseline) -> tuple[list[str], list[str]]:
    """Return the unnamed failure as (counted, excused)."""
    failure = report.unnamed_failure
    if failure is None:
        return [], []
    same = failure == baseline.unnamed_failure
    if same and report.results and not report.cut_short:
        return [], [failure]
    return [failure], []


def _question(changed: Changed) -> Callable[[str], bool]:
    return changed.__contains__ if isinstance(changed, frozenset) else changed


def _check_version(version: object) -> None:
    if version != _VERSION:
        raise ValueError(f"its version is {version!r}, not {_VERSION}")


def _outcome(value: object) -> Outcome:
    if value not in get_args(Outcome):
        raise ValueError(f"{value!r} is no outcome of a test")
    return cast("Outcome", value)
