"""Reports held against baselines."""

from __future__ import annotations

import pytest

from handoffd.errors import StoreError
from handoffd.execute.evidence import (
    MAX_NAME_CHARS,
    MAX_NAMES,
    Baseline,
    baseline_of,
    bounded,
    compare,
    decode,
    encode,
)
from handoffd.execute.reports.report import EVERYTHING, LoadError, Outcome, TestReport, unusable
from handoffd.protocol.state import TestCounts

NOTHING: frozenset[str] = frozenset()


def report(*unloadable: str, unnamed: str | None = None, **results: Outcome) -> TestReport:
    """Return a report with these results and files that cannot be loaded."""
    errors = tuple(LoadError(file=file, message="broken") for file in unloadable)
    return TestReport(results=results, load_errors=errors, unnamed_failure=unnamed)


BEFORE = baseline_of(report(good="passed", bad="failed", later="skipped"))


def test_new_failures_old_failures_and_regressions_are_told_apart() -> None:
    """The three kinds of failing tests each have their own field."""
    now = report(good="failed", bad="error", later="failed", added="failed", fine="passed")

    evidence = compare(now, BEFORE, NOTHING)

    assert ("good", "later", "added") == evidence.failing
    assert ("bad",) == evidence.known_failing
    assert 1 == evidence.new_failing
    assert 2 == evidence.new_collected
    assert ("good",) == evidence.regressed
    assert 5 == evidence.collected
    assert TestCounts(passed=1, failed=4) == evidence.counts
    assert evidence.verified


def test_a_deleted_test_has_not_regressed() -> None:
    """Tests are renamed and removed for good reasons."""
    evidence = compare(report(renamed="passed"), BEFORE, NOTHING)

    assert () == evidence.regressed
    assert 1 == evidence.new_collected


def test_a_test_that_could_not_be_reached_has_regressed() -> None:
    """When its part of the run ended early, nobody can say that it still passes."""
    before = Baseline(results={"a::one": "passed", "b::two": "passed", "a::old": "failed"})
    cut = TestReport(results={"a::zero": "error"}, cut_short=("a::",))

    assert ("a::one",) == compare(cut, before, NOTHING).regressed
    everything = TestReport(cut_short=(EVERYTHING,), unnamed_failure="Bail out!")
    assert ("a::one", "b::two") == compare(everything, before, NOTHING).regressed


def test_a_changed_file_that_cannot_be_loaded_is_one_new_failure() -> None:
    """A red step may import what does not exist yet: one failure a file, collected and failing."""
    evidence = compare(report("tests/new.py", good="passed"), BEFORE, frozenset({"tests/new.py"}))

    assert ("tests/new.py",) == evidence.failing
    assert 1 == evidence.new_failing
    assert 1 == evidence.new_collected
    assert 2 == evidence.collected
    assert () == evidence.regressed
    assert TestCounts(passed=1, failed=1) == evidence.counts


def test_an_unchanged_file_that_cannot_be_loaded_is_a_regression() -> None:
    """Something else that the step changed broke it."""
    evidence = compare(report("tests/old.py"), BEFORE, lambda file: file == "tests/new.py")

    assert ("tests/old.py",) == evidence.regressed
    assert ("tests/old.py",) == evidence.failing
    assert 0 == evidence.new_failing


def test_a_file_that_never_could_be_loaded_is_a_known_failure() -> None:
    """It counts neither for red nor against green, whether or not it was changed."""
    before = baseline_of(report("tests/old.py", good="passed"))
    evidence = compare(report("tests/old.py", good="passed"), before, frozenset({"tests/old.py"}))

    assert ("tests/old.py",) == evidence.known_failing
    assert ((), (), 0) == (evidence.failing, evidence.regressed, evidence.new_failing)


def test_without_a_baseline_every_test_is_new() -> None:
    """Nothing is excused by what was never measured."""
    evidence = compare(report(a="failed", b="passed"), None, NOTHING)

    assert (("a",), 1, 2, ()) == (
        evidence.failing,
        evidence.new_failing,
        evidence.new_collected,
        evidence.regressed,
    )


def test_a_failure_without_a_name_is_failing_but_never_red() -> None:
    """A coverage threshold keeps a run from being green and proves no new test."""
    evidence = compare(report(good="passed", unnamed="exit code 1"), BEFORE, NOTHING)

    assert ("exit code 1",) == evidence.failing
    assert 0 == evidence.new_failing


def test_a_failure_without_a_name_is_excused_by_the_same_one_before() -> None:
    """But only while the run was complete: an empty run excuses nothing."""
    before = baseline_of(report(good="passed", unnamed="exit code 1"))

    complete = compare(report(good="passed", unnamed="exit code 1"), before, NOTHING)
    assert ((), ("exit code 1",)) == (complete.failing, complete.known_failing)
    assert ("exit code 1",) == compare(report(unnamed="exit code 1"), before, NOTHING).failing
    assert ("exit code 2",) == compare(report(good="passed", unnamed="exit code 2"), before, NOTHING).failing


def test_an_exit_code_is_never_excused() -> None:
    """Nothing shows that today's failure is yesterday's."""
    failure = TestReport(verified=False, unnamed_failure="exit code 1")

    evidence = compare(failure, baseline_of(failure), NOTHING)

    assert ("exit code 1",) == evidence.failing
    assert (1, 1, False) == (evidence.new_failing, evidence.collected, evidence.verified)
    assert () == compare(TestReport(verified=False), None, NOTHING).failing


def test_an_unusable_report_is_a_fault() -> None:
    """It proves nothing: no failures, no regressions, no tests."""
    evidence = compare(unusable("the report is empty"), BEFORE, NOTHING, tail="oops", seconds=2.5)

    assert "the report is empty" == evidence.fault
    assert ((), (), 0, 0) == (evidence.failing, evidence.regressed, evidence.new_failing, evidence.collected)
    assert ("oops", 2.5) == (evidence.tail, evidence.seconds)


def test_evidence_is_bounded() -> None:
    """Ten thousand failures with endless names do not become a state file."""
    many: dict[str, Outcome] = {f"{n:05}{'x' * 400}": "failed" for n in range(10_000)}
    evidence = compare(TestReport(results=many), None, NOTHING, tail="長" * 5000)

    assert (MAX_NAMES, 10_000) == (len(evidence.failing), evidence.new_failing)
    assert MAX_NAME_CHARS == max(map(len, evidence.failing))
    assert 4096 >= len(evidence.tail.encode())
    assert ("a",) == bounded(["a"])


def test_a_baseline_survives_storage() -> None:
    """What is read back is what was kept, in the same bytes each time."""
    baseline = baseline_of(report("tests/old.py", unnamed="exit code 1", 測試="passed", bad="error"))

    assert baseline == decode(encode(baseline))
    assert encode(baseline) == encode(decode(encode(baseline)))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"version":2,"results":{},"unloadable":[],"unnamed_failure":null}',
        b'{"version":1,"results":{"a":"great"},"unloadable":[],"unnamed_failure":null}',
        b'{"version":1}',
    ],
)
def test_a_damaged_baseline_is_an_error(body: bytes) -> None:
    """It is never taken for an empty one, which would excuse nothing and prove anything."""
    with pytest.raises(StoreError, match="a stored baseline of test results cannot be read"):
        decode(body)
