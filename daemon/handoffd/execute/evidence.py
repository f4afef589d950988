"""What a finished test run proves: exit record and report judged together, against the baseline. Pure.

Neither exit record nor report is enough alone. A runner that could not work (missing, called wrongly, broken
inside, silent) says nothing about the agent's work: its report becomes a `problem`, which is a fault of the
environment. A runner that exits with an error its report does not explain is still a failure.

The baseline holds the test results from before the story's first red step. The rules that are not obvious:

- A test that passed in the baseline and fails now has regressed. A *missing* test has not: an agent may
  rename or delete it with good reason, and a red step may break an old test file by importing code that
  does not exist yet. It has regressed, however, if it is missing because its part of the run ended early
  (`TestReport.cut_short`): then nothing shows that it still passes. And a green step is held to the ones
  that the red step's files still have (`Red.held`): with these files they must run.
- A file that cannot be loaded is one new failure if the step changed that file. If the step did not, another
  change of the step broke it, which is a regression. If it could not be loaded in the baseline either, it
  is a known failure.
- A failure without a test id (an exit code, a bail-out) keeps a run from being green and never makes
  it red. The same failure in the baseline excuses it only if the run was complete.
- An exit code that contradicts the report is such a failure: a success with failing tests in the report, or
  an error that the report does not explain.
- With nothing but an exit code (`verified` False) there are no ids: a failure counts as one new
  failure and is never excused, because nothing shows that it is the old one.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, cast, get_args

from msgspec import Struct, convert, field, to_builtins
from msgspec.structs import replace

from handoffd.engine.events import TestEvidence
from handoffd.engine.run import PostCheck, last_line
from handoffd.engine.wording import counted, first_few, shortened
from handoffd.errors import StoreError
from handoffd.execute.base import ExitRecord
from handoffd.execute.ending import footprint_of
from handoffd.execute.proof import CHANGED, Red, lost, nothing_passes, said_of, skipped, unmet
from handoffd.execute.reports.report import (
    BAD,
    EVERYTHING,
    LoadError,
    Outcome,
    TestReport,
    bounded_id,
    bounded_message,
    describe_failure,
    exit_report,
    unusable,
)
from handoffd.protocol.state import TestChanges, TestCounts
from handoffd.settings.model import TestSettings

MAX_EXCLUDED = 50
MOST_PRINTED = 16 * 1024
"""Bytes that are kept of the outputs of all checks of a post_check together."""
_COMMAND_CHARS = 60

_CANNOT_RUN = {126: "it is not executable", 127: "it was not found"}
_PYTEST_CANNOT_RUN = {3: "pytest broke internally", 4: "pytest was called wrongly"}
_PYTEST_NOTHING_COLLECTED = 5
_CONTRADICTED = "exit code 0, though the report names failing tests"
_PYTEST = re.compile(r"(?:.*/)?(?:pytest|py\.test)(?:-?3(?:\.\d+)?)?")
_CONFTEST = re.compile(r"^ImportError while loading conftest '([^'\n]{1,4096})'", re.MULTILINE)


class TestOutput(Struct, frozen=True, kw_only=True):
    """A test run's report (None: no such file) and what it printed.

    `complete` is False if the report is the run's own output and its middle is lost.
    """

    __test__ = False

    report: bytes | None
    printed: str = ""
    complete: bool = True


def fault_of(exit_record: ExitRecord) -> str | None:
    """Return why a check's run proves nothing at all; None if its end counts."""
    if exit_record.spawn_error is not None:
        return f"the command could not be started: {exit_record.spawn_error}"
    if exit_record.by == "lost":
        return "the daemon did not see how the command ended"
    if exit_record.by == "stop":
        return "the command was stopped before it ended"
    return None


def measured(settings: TestSettings, exit_record: ExitRecord, output: TestOutput, root: str) -> TestReport:
    """Return the report of one test run, or one with a `problem`. Paths become relative to `root`."""
    if problem := _no_verdict(exit_record):
        return unusable(problem)
    if settings.report == "exit":
        report = exit_report(exit_record.code, exit_record.signal)
        failure = _failure(exit_record)
        name = shortened(" ".join(settings.command or ()), _COMMAND_CHARS)  # in place of a test's
        return replace(report, unnamed_failure=failure and f"{name}: {failure}")
    if conftest := _broken_conftest(settings, exit_record, output):
        error = replace(conftest, file=inside(conftest.file, root))
        return TestReport(load_errors=(error,), cut_short=(EVERYTHING,))
    if not output.complete:
        return unusable("the test report is too long to be kept whole: let the command write it to {report}")
    if settings.reports and (broken := _not_compiled(exit_record, output)):
        errors = tuple(replace(error, file=inside(error.file, root)) for error in broken)
        return TestReport(load_errors=errors)  # one class that is not there yet keeps all others from running
    if output.report is None:
        if settings.reports and exit_record.code == 0:  # no test is there yet
            return TestReport()
        how = _failure(exit_record) or "exit code 0"
        return unusable(f"the test command left no report ({how})")
    report = _reader(settings.report)(output.report)
    if report.problem is not None:
        return report
    if is_pytest(settings) and exit_record.code in _PYTEST_CANNOT_RUN:
        return unusable(_PYTEST_CANNOT_RUN[exit_record.code])
    errors = tuple(replace(error, file=inside(error.file, root)) for error in report.load_errors)
    results = {_relative(test_id, root): outcome for test_id, outcome in report.results.items()}
    unnamed = _unnamed(settings, exit_record, report)
    return replace(report, results=results, load_errors=errors, unnamed_failure=unnamed)


def _reader(form: Literal["junit", "gotest", "tap", "jest", "cargo"]) -> Callable[[bytes], TestReport]:
    # A daemon imports them soon after its first answer (`AFTERWARDS` in app/daemon.py), not before it.
    from handoffd.execute.reports import cargo, gotest, jest, junit, tap  # noqa: PLC0415

    readers: Mapping[str, Callable[[bytes], TestReport]] = {
        "junit": junit.read,
        "gotest": gotest.read,
        "tap": tap.read,
        "jest": jest.read,
        "cargo": cargo.read,
    }
    return readers[form]


def evidence_of(
    report: TestReport,
    exit_record: ExitRecord,
    baseline: Baseline | None,
    changed: Changed,
    *,
    earlier_s: float = 0.0,
) -> TestEvidence:
    """Return what the run proved; `earlier_s` is the duration of a first run before this one."""
    seconds = exit_record.seconds + earlier_s
    tail = _tail(report, exit_record)
    if exit_record.by == "deadline":
        return TestEvidence(timed_out=True, verified=False, tail=tail, line=last_line(tail), seconds=seconds)
    return replace(compare(report, baseline, changed, tail=tail, seconds=seconds), line=last_line(tail))


def post_check_of(exit_record: ExitRecord, name: str | None = None) -> PostCheck:
    """Return how a post_check ended, or the one called `name` of several."""
    if (fault := fault_of(exit_record)) is not None:
        return PostCheck(passed=False, tail=exit_record.tail, fault=fault, name=name)
    tail, timed_out = exit_record.tail, exit_record.by == "deadline"
    return PostCheck(
        passed=exit_record.by == "itself" and exit_record.code == 0, tail=tail, timed_out=timed_out,
        line=last_line(tail), name=name, code=exit_record.code, signal=exit_record.signal,
    )  # fmt: skip


def of_bounded_size(checks: Sequence[PostCheck]) -> tuple[PostCheck, ...]:
    """Return several checks with the ends of the outputs that explain a failure, of a bounded size in all."""
    failed = sum(not one.passed for one in checks)
    return tuple(
        replace(one, tail="" if one.passed else _end_of(one.tail, MOST_PRINTED // failed)) for one in checks
    )


def _end_of(text: str, most: int) -> str:
    return text.encode(errors="replace")[-most:].decode(errors="ignore")


def files_to_exclude(
    settings: TestSettings, report: TestReport, baseline: Baseline | None, changed: Changed
) -> tuple[str, ...]:
    """Return the files to leave out of a second run; empty when none is needed or possible.

    It is needed if files that the step changed cannot be loaded and, because of that, tests in other files
    that passed in the baseline did not run.
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
    # A file that breaks the run even when it is excluded (a conftest) hides every other test.
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
    """Return `file` relative to `root`, in normal form, if it is inside; else unchanged."""
    path = posixpath.normpath(posixpath.join(root, file))
    top = posixpath.normpath(root)
    return path[len(top) :].lstrip("/") if path.startswith(f"{top}/") else file


def _relative(test_id: str, root: str) -> str:
    """Return a test id without the absolute path of `root`, with which jest's ids begin."""
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
    """Return the conftest.py that keeps pytest from starting: the project's fault, not the runner's."""
    if not is_pytest(settings) or exit_record.code != 4:
        return None
    text = output.printed or exit_record.tail
    named = _CONFTEST.search(text)
    if named is None:
        return None
    return LoadError(file=bounded_id(named.group(1)), message=bounded_message(text[named.start() :]))


def _not_compiled(exit_record: ExitRecord, output: TestOutput) -> tuple[LoadError, ...]:
    """Return the files that keep a build from coming to its tests."""
    from handoffd.execute.reports import junit  # noqa: PLC0415  (as in `_reader`)

    return junit.not_compiled(output.printed or exit_record.tail) if exit_record.code else ()


def _unnamed(settings: TestSettings, exit_record: ExitRecord, report: TestReport) -> str | None:
    if report.unnamed_failure is not None:
        return report.unnamed_failure
    if report.names_a_failure:
        return _CONTRADICTED if exit_record.code == 0 else None
    nothing = is_pytest(settings) and exit_record.code == _PYTEST_NOTHING_COLLECTED
    return None if nothing else _failure(exit_record)


def _failure(exit_record: ExitRecord) -> str | None:
    """Return the exit code or signal of a failed check, with any limit that it met; None for success."""
    failed, taken = describe_failure(exit_record.code, exit_record.signal), footprint_of(exit_record)
    return f"{failed}; {taken.limits_met}" if failed and taken and taken.limits_met else failed


def _lives_in(test_id: str, file: str) -> bool:
    """Whether a test is in `file`, for runners whose ids begin with a path or dotted module."""
    module = file.rsplit(".", 1)[0].replace("/", ".")
    return test_id.startswith((f"{file}::", f"{module}::", f"{module}."))


def _tail(report: TestReport, exit_record: ExitRecord) -> str:
    """Return what helps to fix the failure: files that cannot be loaded, then the end of the output."""
    lines = [f"{error.file}: {(error.message.splitlines() or [''])[-1]}" for error in report.load_errors[:20]]
    head = "\n".join([*lines, ""])[:1500] if lines else ""
    text = report.excerpt or exit_record.tail
    return head + text[-(4096 - len(head)) :]


# --- against the baseline ----------------------------------------------------------------------------
MAX_NAMES = 200
MOST_CHANGED = 50
"""Ids that are kept of new tests, and of others that the story has changed: a journal has each attempt's."""
MAX_NAME_CHARS = 300
MAX_TAIL_BYTES = 4096
MAX_BASELINE_BYTES = 32 * 1024 * 1024

_VERSION = 1

Changed = Callable[[str], bool] | frozenset[str]
"""Whether the step changed a file, asked with `LoadError.file`."""


class Baseline(Struct, frozen=True, kw_only=True):
    """The results of a project's tests before a story changed anything, and what its red steps have left."""

    results: dict[str, Outcome] = field(default_factory=dict)
    unloadable: frozenset[str] = frozenset()
    unnamed_failure: str | None = None
    beyond: str | None = None
    """Why its test files could not be known: there were too many."""
    red: dict[str, Red] = field(default_factory=dict)
    """What the story's red steps have left, by the dispatch that left it."""

    @property
    def counts(self) -> TestCounts:
        """How many of the tests passed, failed and were skipped."""
        values = list(self.results.values())
        failed = values.count("failed") + values.count("error") + len(self.unloadable)
        return TestCounts(passed=values.count("passed"), failed=failed, skipped=values.count("skipped"))

    def with_red(self, dispatch: str, red: Red, before: str | None) -> Baseline:
        """Return it after a red step; of earlier ones, only what `before` has left still counts."""
        kept = {before: self.red[before]} if before in self.red else {}
        return replace(self, red={**kept, dispatch: red})

    def red_at(self, dispatch: str | None) -> Red:
        """Return what a red step has left; nothing when it is not known."""
        return self.red.get(dispatch or "", Red())


def baseline_of(report: TestReport, beyond: str | None = None) -> Baseline:
    """Return a report as a baseline; the report must have no problem. `beyond` as there."""
    assert report.problem is None
    return Baseline(
        results=dict(report.results),
        unloadable=frozenset(error.file for error in report.load_errors),
        unnamed_failure=report.unnamed_failure,
        beyond=beyond,
    )


def encode(baseline: Baseline) -> bytes:
    """Return the baseline as JSON, the same bytes for the same baseline."""
    data = {
        "version": _VERSION,
        "results": baseline.results,
        "unloadable": sorted(baseline.unloadable),
        "unnamed_failure": baseline.unnamed_failure,
        "beyond": baseline.beyond,
        "red": to_builtins(baseline.red),
    }
    return json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def too_large(body: bytes) -> str | None:
    """Return why a baseline is not kept; None when it can be."""
    if len(body) <= MAX_BASELINE_BYTES:
        return None
    return f"the names of the tests take {len(body):,} bytes; at most {MAX_BASELINE_BYTES:,} are kept"


def decode(body: bytes) -> Baseline:
    """Return the baseline that `encode` wrote. Raises StoreError for anything else."""
    try:
        data: Any = json.loads(body)
        _check_version(data["version"])
        results = {str(key): _outcome(value) for key, value in data["results"].items()}
        unloadable = frozenset(map(str, data["unloadable"]))
        unnamed = data["unnamed_failure"]
        red = convert(data.get("red", {}), dict[str, Red])  # a release without it left none
        beyond = convert(data.get("beyond"), str | None)
        return Baseline(
            results=results, unloadable=unloadable, unnamed_failure=unnamed, beyond=beyond, red=red
        )
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


def bounded(names: Iterable[str], most: int = MAX_NAMES) -> tuple[str, ...]:
    """Return the first names, each cut to `MAX_NAME_CHARS`."""
    found: list[str] = []
    for name in names:
        if len(found) == most:
            break
        found.append(name if len(name) <= MAX_NAME_CHARS else f"{name[: MAX_NAME_CHARS - 1]}…")
    return tuple(found)


# --- against the red step ----------------------------------------------------------------------------
def with_passes(found: TestEvidence, report: TestReport) -> TestEvidence:
    """Return the evidence of a run that must be green: it proves nothing when no test passes."""
    if found.failing or found.unproven:
        return found
    return replace(found, unproven=nothing_passes(report, len(found.known_failing)))


def held_to(
    red: Red,
    report: TestReport,
    baseline: Baseline,
    own_skips: Collection[str],
    found: TestEvidence,
    changed: Collection[str] = (),
) -> TestEvidence:
    """Return the evidence of a green step's run, held to the tests that its red step left.

    `changed` are the test files that are not as they were then.
    """
    missed = unmet(red, report, baseline.results, own_skips, changed)
    if found.failing or not missed:
        return with_passes(found, report)
    return replace(found, failing=bounded(one.name for one in missed), unproven=said_of(missed))


class SecondRun(Struct, frozen=True, kw_only=True):
    """A run with test files as the red step left them: `changed` are the files that differ from that."""

    report: TestReport
    record: ExitRecord
    changed: tuple[str, ...]


def held_again(
    red: Red, first: TestReport, second: SecondRun, baseline: Baseline, found: TestEvidence
) -> TestEvidence:
    """Return the evidence of a green step's two runs; `found` is of the first one, which is green."""
    found = replace(found, seconds=found.seconds + second.record.seconds)
    versions = f"with the red step's versions of {first_few(second.changed)}"
    again = evidence_of(second.report, second.record, baseline, frozenset())
    own = skipped(second.report)
    if again.timed_out or again.fault is not None:
        why = again.fault or "the tests did not end in time"
        return replace(found, unproven=f"{CHANGED}: {versions}, {why}", tail=again.tail, line=again.line)
    if again.failing:
        what = f"{counted(len(again.failing), 'test fails', 'tests fail')}: {first_few(again.failing)}"
        said = f"{CHANGED}: {versions}, {what}"
        return replace(found, unproven=said, failing=again.failing, tail=again.tail, line=again.line)
    again = held_to(red, second.report, baseline, own, again)
    if again.unproven is not None:
        said = f"{CHANGED}: {versions}, {again.unproven.removeprefix(f'{CHANGED}: ')}"
        return replace(found, unproven=said, failing=again.failing)
    found = held_to(red, first, baseline, own, found, second.changed)
    if found.unproven is None and (gone := lost(first, second.report, baseline.results)):
        what = f"{counted(len(gone), 'test passes', 'tests pass')} only {versions}"
        said = f"{CHANGED}: {what}: {first_few([str(one) for one in gone])}"
        return replace(found, unproven=said, failing=bounded(one.name for one in gone))
    return replace(found, note=f"also {versions}")


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
    unnamed, known_unnamed = _judged_unnamed(report, baseline)
    excused = set(known)
    evidence = TestEvidence(
        counts=report.counts,
        failing=bounded([*broken, *unnamed, *(test_id for test_id in bad if test_id not in excused)]),
        known_failing=bounded([*known_broken, *known_unnamed, *known]),
        new_failing=sum(test_id not in baseline.results for test_id in bad) + len(new_broken),
        regressed=bounded(regressed),
        collected=len(report.results) + len(report.load_errors),
    )
    return _with_changed(evidence, report, baseline, new_broken)


def _with_changed(
    evidence: TestEvidence, report: TestReport, baseline: Baseline, new_broken: Sequence[str]
) -> TestEvidence:
    """Return the evidence with the tests that the story has added, repaired or taken away."""
    results, before = report.results, baseline.results
    added = sorted((one for one in results if one not in before), key=lambda one: results[one] not in BAD)
    fixed = [one for one in results if before.get(one) in BAD and results[one] == "passed"]
    hidden = frozenset(_never_run(report, baseline))
    gone = [one for one in before if before[one] == "passed" and one not in results and one not in hidden]
    changed = TestChanges(
        new=bounded([*new_broken, *added], MOST_CHANGED),
        fixed=bounded(fixed, MOST_CHANGED), fixed_count=len(fixed),
        gone=bounded(gone, MOST_CHANGED), gone_count=len(gone),
    )  # fmt: skip
    return replace(evidence, new_collected=len(new_broken) + len(added), changed=changed)


def _never_run(report: TestReport, baseline: Baseline) -> list[str]:
    if not report.cut_short:
        return []
    return [
        test_id
        for test_id, outcome in baseline.results.items()
        if outcome == "passed" and test_id not in report.results and test_id.startswith(report.cut_short)
    ]


def _judged_unnamed(report: TestReport, baseline: Baseline) -> tuple[list[str], list[str]]:
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
        raise ValueError(f"{value!r} is not a test outcome")
    return cast("Outcome", value)
