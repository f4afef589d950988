"""Exit records and reports judged together, and compared with baselines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace

from handoffd.engine.events import TestEvidence
from handoffd.engine.run import PostCheck
from handoffd.errors import StoreError
from handoffd.execute.base import ExitRecord
from handoffd.execute.evidence import (
    MAX_BASELINE_BYTES,
    MAX_NAME_CHARS,
    MAX_NAMES,
    Baseline,
    SecondRun,
    TestOutput,
    baseline_of,
    bounded,
    compare,
    decode,
    encode,
    evidence_of,
    fault_of,
    files_to_exclude,
    held_again,
    inside,
    is_pytest,
    measured,
    merge,
    post_check_of,
    too_large,
)
from handoffd.execute.proof import Red
from handoffd.execute.reports.report import EVERYTHING, LoadError, Outcome, TestReport, unusable
from handoffd.protocol.state import TestCounts
from handoffd.settings.model import TestSettings

DATA = Path(__file__).parents[2] / "data" / "reports"
ROOT = "/home/me/shop"
PYTEST = TestSettings(
    command=("python3", "-m", "pytest", "--junitxml={report}"),
    report="junit",
    exclude_argument="--ignore={file}",
)
MAKE = TestSettings(command=("make", "test"), report="junit")
GO = TestSettings(command=("go", "test", "-json", "./..."), report="gotest")


OLD = "tests.test_old::test_old"
BEFORE = baseline_of(TestReport(results={OLD: "passed", "tests.test_new::test_was": "passed"}))
BROKEN = TestReport(load_errors=(LoadError(file="tests/test_new.py"),))
CHANGED = frozenset({"tests/test_new.py"})


def ended(
    code: int | None = 0,
    *,
    signal: int | None = None,
    by: Literal["itself", "deadline", "stop", "lost"] = "itself",
    spawn_error: str | None = None,
    tail: str = "",
) -> ExitRecord:
    """Return the record of a run of 1.5 s."""
    return ExitRecord(
        run_id="r.tests", code=code, signal=signal, by=by, seconds=1.5, tail=tail, spawn_error=spawn_error
    )


def sample(name: str) -> TestOutput:
    """Return a kept report as the output of a run."""
    return TestOutput(report=(DATA / name).read_bytes())


def suite(*failing: str, passing: tuple[str, ...] = ()) -> TestOutput:
    """Return a small JUnit report."""
    bad = "".join(f'<testcase classname="t" name="{name}"><failure/></testcase>' for name in failing)
    good = "".join(f'<testcase classname="t" name="{name}"/>' for name in passing)
    return TestOutput(report=f"<testsuite>{bad}{good}</testsuite>".encode())


@pytest.mark.parametrize(
    ("record", "output", "problem"),
    [
        (ended(126), suite("a"), "the test command cannot be run: it is not executable (exit code 126)"),
        (ended(127), suite("a"), "the test command cannot be run: it was not found (exit code 127)"),
        (ended(None, spawn_error="No such file"), suite(), "the command could not be started: No such file"),
        (ended(None, by="lost"), suite(passing=("a",)), "the daemon did not see how the command ended"),
        (ended(None, signal=15, by="stop"), suite("a"), "the command was stopped before it ended"),
        (ended(None, signal=9, by="deadline"), suite("a"), "the tests did not end within 2 s"),
        (ended(1), TestOutput(report=None), "the test command left no report (exit code 1)"),
        (ended(0), TestOutput(report=None), "the test command left no report (exit code 0)"),
        (ended(None, signal=11), TestOutput(report=None), "the test command left no report (signal 11)"),
        (ended(0), TestOutput(report=b""), "the report is empty"),
        (ended(3), sample("pytest-nothing.xml"), "pytest broke internally"),
        (ended(4), sample("pytest-nofile.xml"), "pytest was called wrongly"),
        (ended(3), sample("pytest-internal.xml"), "the test runner broke: RuntimeError: plugin bug"),
        (
            ended(1),
            TestOutput(report=b"<testsuite/>", complete=False),
            "the test report is too long to be kept whole: let the command write it to {report}",
        ),
    ],
)
def test_a_runner_that_could_not_work_is_a_fault(
    record: ExitRecord, output: TestOutput, problem: str
) -> None:
    """Neither red nor green follows from it, and nothing in its report is believed."""
    report = measured(PYTEST, record, output, ROOT)

    assert problem == report.problem
    assert ({}, ()) == (report.results, report.load_errors)


def test_failing_tests_are_not_a_fault() -> None:
    """Exit code 1 with failures in the report is a test run like any other."""
    report = measured(PYTEST, ended(1), sample("pytest-mixed.xml"), ROOT)

    assert (None, None) == (report.problem, report.unnamed_failure)
    assert 10 == len(report.results)


def test_no_collected_test_is_not_a_failure_of_pytest() -> None:
    """Its exit code 5 is a valid run of no tests; another runner's is a failure."""
    assert TestReport() == measured(PYTEST, ended(5), sample("pytest-nothing.xml"), ROOT)
    assert "exit code 5" == measured(MAKE, ended(5), sample("pytest-nothing.xml"), ROOT).unnamed_failure


def test_an_error_that_the_report_does_not_explain_is_a_failure() -> None:
    """A coverage threshold fails a run in which every test passed."""
    threshold = measured(PYTEST, ended(1), sample("pytest-threshold.xml"), ROOT)
    crash = measured(PYTEST, ended(None, signal=11), suite(passing=("a",)), ROOT)

    assert ("exit code 1", "signal 11") == (threshold.unnamed_failure, crash.unnamed_failure)


def test_paths_are_made_relative_to_the_root() -> None:
    """The same file has the same name in every report, wherever the project is."""
    report = measured(PYTEST, ended(2), sample("pytest-collection-errors.xml"), ROOT)

    assert ["tests/test_new.py", "tests/test_syntax.py"] == [error.file for error in report.load_errors]
    assert None is report.unnamed_failure
    assert "a/b.py" == inside("./a//b.py", ROOT)
    assert "/home/me/shopping/b.py" == inside("/home/me/shopping/b.py", ROOT)


def test_ids_that_begin_with_a_path_are_made_relative_to_the_root() -> None:
    """For easy reading; a file elsewhere keeps its path."""
    suites = [
        {"name": f"{place}/a.test.js", "assertionResults": [{"title": "adds", "status": "passed"}]}
        for place in ("/p", "/past")
    ]
    body = json.dumps({"testResults": suites}).encode()
    settings = TestSettings(command=("npm", "test"), report="jest")

    report = measured(settings, ExitRecord(run_id="r", code=0), TestOutput(report=body), "/p")

    assert ["a.test.js::adds", "/past/a.test.js::adds"] == list(report.results)


def test_a_conftest_that_cannot_be_imported_is_the_projects_fault() -> None:
    """pytest calls it a usage error, but it is code like the tests."""
    printed = (DATA / "pytest-conftest.out").read_text()
    report = measured(PYTEST, ended(4), TestOutput(report=None, printed=printed), ROOT)

    assert ["tests/conftest.py"] == [error.file for error in report.load_errors]
    assert report.load_errors[0].message.endswith("No module named 'nonexistent_thing'")
    assert None is report.problem
    assert (OLD,) == evidence_of(report, ended(4), BEFORE, frozenset({"tests/conftest.py"})).regressed[:1]


def test_a_build_that_does_not_come_to_its_tests_is_the_projects_fault() -> None:
    """A red step's tests of a class that is not there yet cannot be compiled: they are red."""
    settings = TestSettings(command=("mvn",), report="junit", reports=("target/*.xml",))
    printed = "[ERROR] /srv/shop/src/test/java/shop/CartTest.java:[5,20] cannot find symbol\n"
    found = measured(settings, ended(1), TestOutput(report=None, printed=printed), "/srv/shop")

    assert ["src/test/java/shop/CartTest.java"] == [error.file for error in found.load_errors]
    old = Baseline(results={"shop.ShopTest::old": "passed"})
    red = evidence_of(found, ended(1), old, frozenset({"src/test/java/shop/CartTest.java"}))
    assert (1, ()) == (red.new_failing, red.regressed)
    outside = evidence_of(found, ended(1), old, frozenset())
    assert ("src/test/java/shop/CartTest.java",) == outside.regressed
    output = TestOutput(report=None, printed="[ERROR] no network\n")
    assert (
        "the test command left no report (exit code 1)" == measured(settings, ended(1), output, "/").problem
    )
    assert TestReport() == measured(settings, ended(0), TestOutput(report=None), "/srv/shop")


def test_go_is_read_from_its_output() -> None:
    """A build failure explains the exit code."""
    report = measured(GO, ended(1), sample("go-build-failure.json"), ROOT)

    assert ["cart/wallet_test.go", "cart/coupon_test.go"] == [error.file for error in report.load_errors]
    assert None is report.unnamed_failure


def test_an_exit_code_alone_is_unverified() -> None:
    """With no report to read, the code is all there is."""
    settings = TestSettings(command=("make", "check"), report="exit")

    assert TestReport(verified=False) == measured(settings, ended(0), TestOutput(report=None), ROOT)
    failed = measured(settings, ended(2), TestOutput(report=None), ROOT)
    assert "make check: exit code 2" == failed.unnamed_failure


def test_the_failure_of_tests_that_met_a_limit_names_it() -> None:
    """The signal alone would look like a crash of the tests."""
    settings = TestSettings(command=("make", "check"), report="exit")
    record = ExitRecord(run_id="r", signal=9, memory_kills=1, memory_max=1 << 30)

    failure = measured(settings, record, TestOutput(report=None), ROOT).unnamed_failure
    limit = "the kernel ended a process of it at its memory limit (execute.memory_max: 1 GiB)"
    assert f"make check: signal 9; {limit}" == failure
    assert f"(signal 9; {limit})" in (measured(GO, record, TestOutput(report=None), ROOT).problem or "")


def test_tests_that_do_not_end_are_timed_out() -> None:
    """A limit is neither a fault of the runner nor a list of failures."""
    record = ended(None, signal=9, by="deadline", tail="still going")
    evidence = evidence_of(measured(PYTEST, record, suite("a"), ROOT), record, None, frozenset())

    assert (True, None, ()) == (evidence.timed_out, evidence.fault, evidence.failing)
    assert ("still going", 1.5) == (evidence.tail, evidence.seconds)


def test_the_tail_begins_with_files_that_cannot_be_loaded() -> None:
    """The end of a long output often hides them; the tests' words replace a stream of JSON."""
    record = ended(2, tail="2 errors in 1.81s")
    report = measured(PYTEST, record, sample("pytest-collection-errors.xml"), ROOT)
    evidence = evidence_of(report, record, None, frozenset(), earlier_s=2.0)

    assert evidence.tail.startswith("tests/test_new.py: E   ModuleNotFoundError: No module named 'money'\n")
    assert evidence.tail.endswith("2 errors in 1.81s")
    assert 3.5 == evidence.seconds

    go = ended(1, tail='{"Action":"fail"}')
    tail = evidence_of(measured(GO, go, sample("go-mixed.json"), ROOT), go, None, frozenset()).tail
    assert "got 2, want 3" in tail
    assert "Action" not in tail


@pytest.mark.parametrize(
    ("settings", "report", "changed", "excluded"),
    [
        (PYTEST, BROKEN, CHANGED, ("tests/test_new.py",)),
        (MAKE, BROKEN, CHANGED, ()),
        (PYTEST, BROKEN, frozenset[str](), ()),
        (PYTEST, TestReport(results={OLD: "failed"}, load_errors=BROKEN.load_errors), CHANGED, ()),
        (PYTEST, TestReport(), CHANGED, ()),
        (PYTEST, unusable("the report is empty"), CHANGED, ()),
    ],
)
def test_old_tests_that_did_not_run_get_a_second_run_without_the_broken_file(
    settings: TestSettings, report: TestReport, changed: frozenset[str], excluded: tuple[str, ...]
) -> None:
    """Unless files cannot be excluded, a regression is certain already, or all other tests have run."""
    assert excluded == files_to_exclude(settings, report, BEFORE, changed)


def test_two_runs_are_one_report() -> None:
    """The failure to load stays, the old tests' results come from the second run."""
    merged = merge(BROKEN, TestReport(results={OLD: "passed"}), ("tests/test_new.py",))
    evidence = evidence_of(merged, ended(), BEFORE, CHANGED)

    assert (1, (), ("tests/test_new.py",)) == (evidence.new_failing, evidence.regressed, evidence.failing)
    assert 2 == evidence.collected


def test_a_file_that_cannot_be_left_out_hides_the_old_tests() -> None:
    """A broken conftest fails the second run, too: then the old tests count as regressed."""
    merged = merge(BROKEN, BROKEN, ("tests/test_new.py",))

    assert (OLD, "tests.test_new::test_was") == evidence_of(merged, ended(), BEFORE, CHANGED).regressed
    assert 1 == len(merged.load_errors)


def test_the_fault_of_a_second_run_is_the_fault_of_both() -> None:
    """Together they prove nothing."""
    assert "the report is empty" == merge(BROKEN, unusable("the report is empty"), ()).problem


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (ended(0, tail="fine"), PostCheck(passed=True, tail="fine", line="fine", code=0)),
        (ended(1, tail="vet: bad"), PostCheck(passed=False, tail="vet: bad", line="vet: bad", code=1)),
        (ended(None, signal=9, by="deadline"), PostCheck(passed=False, timed_out=True, line="", signal=9)),
        (ended(None, signal=11), PostCheck(passed=False, line="", signal=11)),
        (
            ended(None, spawn_error="no sh"),
            PostCheck(passed=False, fault="the command could not be started: no sh"),
        ),
    ],
)
def test_how_a_post_check_ended(record: ExitRecord, expected: PostCheck) -> None:
    """It passes only if it ends by itself, with exit code 0."""
    assert expected == post_check_of(record)


def test_a_check_that_never_ran_is_a_fault() -> None:
    """Its absence is not the agent's doing; a failing one is."""
    assert None is fault_of(ended(1))
    assert None is fault_of(ended(None, signal=9, by="deadline"))
    assert "the daemon did not see how the command ended" == fault_of(ended(None, by="lost"))


def test_pytest_is_recognised_in_a_command() -> None:
    """Its exit codes have their meaning only when it is really pytest that ends the command."""
    for command in ("pytest", "uv run pytest", ".venv/bin/py.test", "python3 -m pytest"):
        assert is_pytest(TestSettings(command=tuple(command.split())))
    for other in ("make pytest-all", "tox", "grep xpytest"):
        assert not is_pytest(TestSettings(command=tuple(other.split())))


# --- held against baselines ---------------------------------------------------------------------------
NOTHING: frozenset[str] = frozenset()


def report(*unloadable: str, unnamed: str | None = None, **results: Outcome) -> TestReport:
    """Return a report with these results and files that cannot be loaded."""
    errors = tuple(LoadError(file=file, message="broken") for file in unloadable)
    return TestReport(results=results, load_errors=errors, unnamed_failure=unnamed)


EARLIER = baseline_of(report(good="passed", bad="failed", later="skipped"))


def test_new_failures_known_failures_and_regressions_have_their_own_fields() -> None:
    """A test may be failing and regressed, but a known failure is neither."""
    now = report(good="failed", bad="error", later="failed", added="failed", fine="passed")

    evidence = compare(now, EARLIER, NOTHING)

    assert (("good", "later", "added"), ("bad",)) == (evidence.failing, evidence.known_failing)
    assert (("good",), 1) == (evidence.regressed, evidence.new_failing)
    assert (2, 5) == (evidence.new_collected, evidence.collected)
    assert TestCounts(passed=1, failed=4) == evidence.counts
    assert evidence.verified


def test_a_deleted_test_has_not_regressed() -> None:
    """Tests are renamed and removed."""
    evidence = compare(report(renamed="passed"), EARLIER, NOTHING)

    assert () == evidence.regressed
    assert 1 == evidence.new_collected
    assert (("renamed",), ("good",)) == (evidence.changed.new, evidence.changed.gone)


def test_the_changed_tests_are_named_with_how_many_there_are() -> None:
    """The failing new ones first; what was never run is not gone."""
    many: dict[str, Outcome] = {f"new_{number}": "passed" for number in range(60)}
    now = report(**many, bad="passed", red="failed")

    changed = compare(now, EARLIER, NOTHING).changed

    assert ("red", "new_0", 50) == (changed.new[0], changed.new[1], len(changed.new))
    assert (("bad",), 1, ("good",), 1) == (
        changed.fixed, changed.fixed_count, changed.gone, changed.gone_count,
    )  # fmt: skip
    cut = compare(replace(now, cut_short=(EVERYTHING,)), EARLIER, NOTHING).changed
    assert ((), 0) == (cut.gone, cut.gone_count)


def test_a_test_that_could_not_be_reached_has_regressed() -> None:
    """When its part of the run ended early, it is not known to pass still."""
    before = Baseline(results={"a::one": "passed", "b::two": "passed", "a::old": "failed"})
    cut = TestReport(results={"a::zero": "error"}, cut_short=("a::",))

    assert ("a::one",) == compare(cut, before, NOTHING).regressed
    everything = TestReport(cut_short=(EVERYTHING,), unnamed_failure="Bail out!")
    assert ("a::one", "b::two") == compare(everything, before, NOTHING).regressed


def test_a_changed_file_that_cannot_be_loaded_is_one_new_failure() -> None:
    """A red step may import what does not exist yet: one failure a file, collected and failing."""
    evidence = compare(report("tests/new.py", good="passed"), EARLIER, frozenset({"tests/new.py"}))

    assert (("tests/new.py",), ()) == (evidence.failing, evidence.regressed)
    assert (1, 1, 2) == (evidence.new_failing, evidence.new_collected, evidence.collected)
    assert TestCounts(passed=1, failed=1) == evidence.counts


def test_an_unchanged_file_that_cannot_be_loaded_is_a_regression() -> None:
    """Something else that the step changed broke it."""
    evidence = compare(report("tests/old.py"), EARLIER, lambda file: file == "tests/new.py")

    assert ("tests/old.py",) == evidence.regressed == evidence.failing
    assert 0 == evidence.new_failing


def test_a_file_that_never_could_be_loaded_is_a_known_failure() -> None:
    """It counts neither for red nor against green, whether or not it was changed."""
    before = baseline_of(report("tests/old.py", good="passed"))
    evidence = compare(report("tests/old.py", good="passed"), before, frozenset({"tests/old.py"}))

    assert ("tests/old.py",) == evidence.known_failing
    assert ((), (), 0) == (evidence.failing, evidence.regressed, evidence.new_failing)


def test_without_a_baseline_every_test_is_new() -> None:
    """Only a measured failure excuses a later one."""
    evidence = compare(report(a="failed", b="passed"), None, NOTHING)

    assert (("a",), ()) == (evidence.failing, evidence.regressed)
    assert (1, 2) == (evidence.new_failing, evidence.new_collected)


def test_a_failure_without_a_name_is_failing_but_never_red() -> None:
    """As by a coverage threshold. The same one before excuses it if the run was complete."""
    evidence = compare(report(good="passed", unnamed="exit code 1"), EARLIER, NOTHING)
    assert (("exit code 1",), 0) == (evidence.failing, evidence.new_failing)

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
    evidence = compare(unusable("the report is empty"), EARLIER, NOTHING, tail="oops", seconds=2.5)

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
    """In the same bytes each time."""
    baseline = baseline_of(report("tests/old.py", unnamed="exit code 1", 測試="passed", bad="error"))

    red = Red(ids=("t::a",), files=("tests/new.py",), more=3)
    baseline = baseline.with_red("d1", Red(), None).with_red("d2", red, "d1").with_red("d3", Red(), "d2")

    assert baseline == decode(encode(baseline))
    assert ({"d2", "d3"}, red, Red()) == ({*baseline.red}, baseline.red_at("d2"), baseline.red_at(None))
    assert encode(baseline) == encode(decode(encode(baseline)))


def test_a_baseline_of_an_earlier_release_has_no_red_tests() -> None:
    """Its stories go on as they began."""
    body = b'{"version":1,"results":{"a":"passed"},"unloadable":[],"unnamed_failure":null}'
    assert Baseline(results={"a": "passed"}) == decode(body)


def test_a_baseline_has_a_limit() -> None:
    """A report may be as large as it likes."""
    assert None is too_large(b"{}")
    assert "at most 33,554,432 are kept" in (too_large(b"x" * (MAX_BASELINE_BYTES + 1)) or "")


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


# --- against the red step ----------------------------------------------------------------------------
RED = Red(ids=("a",), files=("tests/test_new.py",))


def second(*files: str, record: ExitRecord | None = None, **results: Outcome) -> SecondRun:
    """Return a run of 1.5 s with two files as the red step left them."""
    return SecondRun(
        report=report(*files, **results), record=record or ended(), changed=("conftest.py", "tests/test_a.py")
    )


VERSIONS = "with the red step's versions of conftest.py, tests/test_a.py"


@pytest.mark.parametrize(
    ("first", "again", "said"),
    [
        (report(a="passed"), second(a="passed", new="passed"), "1 test passes only"),
        (report(a="passed", new="skipped"), second(a="passed", new="passed"), "new is skipped"),
        (report(a="passed"), second(a="failed"), f"{VERSIONS}, 1 test fails: a"),
        (report(a="passed"), second("tests/test_new.py", a="passed"), "1 test fails: tests/test_new.py"),
        (report(a="passed"), second(new="passed"), f"{VERSIONS}, 1 test that was red did not run and pass"),
        (report(a="passed"), second(a="skipped"), f"{VERSIONS}, 1 test that was red did not run and pass"),
        (
            report(a="passed"), SecondRun(report=unusable("left no report"), record=ended(), changed=("x",)),
            "with the red step's versions of x, left no report",
        ),
        (report(a="passed"), second(record=ended(None, by="deadline")), "the tests did not end in time"),
    ],
)  # fmt: skip
def test_the_second_run_must_show_the_same(first: TestReport, again: SecondRun, said: str) -> None:
    """Whatever differs is named: a test that fails, one that is missing, a run that proves nothing."""
    red = Red(ids=("a",))
    found = held_again(red, first, again, Baseline(), TestEvidence(seconds=2))

    assert found.unproven is not None
    assert found.unproven.startswith("tests_changed: ")
    assert said in found.unproven
    assert 3.5 == found.seconds


def test_two_runs_that_show_the_same_prove_it() -> None:
    """Old tests may be gone from the first one; what the red step's own file skips may be skipped."""
    known = Baseline(results={"old": "passed", "bad": "failed"})
    new: dict[str, Outcome] = {"tests.test_new::x": "passed", "tests.test_new::own": "skipped"}
    first = TestReport(results={"a": "passed", **new})
    results: dict[str, Outcome] = {**first.results, "old": "passed", "bad": "failed"}
    again = SecondRun(report=TestReport(results=results), record=ended(), changed=("x",))

    found = held_again(RED, first, again, known, TestEvidence())

    assert (None, "also with the red step's versions of x") == (found.unproven, found.note)
