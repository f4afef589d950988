"""The verdict on an attempt: a claim, lowered by what was measured, never raised."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.playbook import green, handoff, red, shipped_rules

from handoffd.engine.events import ChecksFinished, TestEvidence
from handoffd.engine.judging import MOST_FILES, Verdict, green_problem, red_problem, verdict_on
from handoffd.engine.run import PostCheck, Wrote, all_passed
from handoffd.engine.track import Facts, Ledger
from handoffd.protocol.handoff import Handoff
from handoffd.protocol.state import Reason, Status, TestCounts

REGRESSED = red("new", regressed=("old",), failing=("old", "new"))


def judge(
    step: str,
    claim: Handoff | None = None,
    tests: TestEvidence | None = None,
    post_check: PostCheck | None = None,
    post_checks: tuple[PostCheck, ...] = (),
    **ledger: Any,
) -> Verdict:
    """Return the verdict on a claim (a pass) at a step."""
    checks = ChecksFinished(dispatch="d1", tests=tests, post_check=post_check, post_checks=post_checks)
    return verdict_on(claim or handoff(), shipped_rules().steps[step], Ledger(**ledger), checks, step)


# --- green ----------------------------------------------------------------------------------------
def test_measured_counts_replace_the_claimed_ones() -> None:
    """Counts without a measurement behind them are an agent's claim."""
    claim = handoff(tests=TestCounts(passed=9))
    verdict = judge("impl", claim, green(3))
    assert (Status.PASS, (), "3 tests pass") == (verdict.status, verdict.failing_tests, verdict.why)
    assert TestCounts(passed=3) == verdict.tests == verdict.measured
    assert (TestCounts(passed=9), None) == ((unmeasured := judge("impl", claim)).tests, unmeasured.measured)
    assert None is judge("impl", claim, green(0, verified=False)).measured


def test_a_pass_whose_tests_fail_has_failed() -> None:
    """The tests are named, and the tail of their output is kept for the next prompt."""
    verdict = judge("verify", tests=red("t.py::a", "t.py::b"))
    assert (Status.FAILING, None) == (verdict.status, verdict.reason)
    assert "2 tests fail: t.py::a, t.py::b" == verdict.error
    assert ("t.py::a", "t.py::b") == verdict.failing_tests == verdict.facts.failing_tests
    assert "E   assert" == verdict.facts.check_tail


def test_failures_of_the_baseline_are_shown_and_excused() -> None:
    """They are not the story's; but a command that collects nothing proves nothing."""
    verdict = judge("impl", tests=green(3, known_failing=("old::flaky",)))
    assert (Status.PASS, "3 tests pass, 1 failed before this story") == (verdict.status, verdict.why)
    assert Status.FAILING is judge("impl", tests=green(0)).status


def test_an_exit_code_alone_is_marked_unverified() -> None:
    """No counts are invented; the claim's stand, and the facts keep what was measured last."""
    evidence = green(0, verified=False, new_collected=1, collected=1)
    before = Facts(tests=TestCounts(passed=5))
    verdict = judge("impl", handoff(tests=TestCounts(passed=9)), evidence, facts=before)
    assert (Status.PASS, TestCounts(passed=9)) == (verdict.status, verdict.tests)
    assert TestCounts(passed=5) == verdict.facts.tests
    assert "the test command succeeded (unverified)" == verdict.why
    failed = red("the command exited with code 1", verified=False)
    assert Status.FAILING is judge("impl", tests=failed).status


def test_green_is_no_failing_test_of_the_storys_own() -> None:
    """Known failures do not count, collecting nothing does; of many tests the first few are named."""
    assert green_problem(green(3, known_failing=("old",))) is None
    assert "1 test fails: t" == green_problem(red("t"))
    assert "the test command collected no test" == green_problem(green(0))
    no_rule = "make: *** No rule to make target 'test'.  Stop."
    ended = red("make test: exit code 2", verified=False, line=no_rule)
    assert f"make test: exit code 2 ({no_rule})" == green_problem(ended)
    assert green_problem(green(0, verified=False)) is None
    names = tuple(f"t{number}" for number in range(8))
    assert "8 tests fail: t0, t1, t2, t3, t4 and 3 more" == green_problem(red(*names))


def test_tests_that_prove_nothing_are_a_failure() -> None:
    """What was found wrong is the error, without a reason; evidence of earlier releases never says it."""
    unproven = green(2, unproven="tests_changed: 1 test is missing", failing=("t::a",))
    verdict = judge("impl", tests=unproven)
    assert (Status.FAILING, None, ("t::a",)) == (verdict.status, verdict.reason, verdict.failing_tests)
    assert "tests_changed: 1 test is missing" == verdict.error
    assert "3 tests pass; not held" == judge("impl", tests=green(3, note="not held")).why


# --- red ------------------------------------------------------------------------------------------
def test_red_is_a_new_failing_test() -> None:
    """One is enough; none, only old ones, or a broken old one, which is named, is not."""
    assert red_problem(red("t.py::new")) is None
    assert "no new test fails" in (red_problem(green(3)) or "")
    assert "no new test fails" in (red_problem(red("old", new_failing=0)) or "")
    problem = red_problem(red("t.py::new", regressed=("t.py::old",)))
    assert "tests that passed before this story fail now: t.py::old" == problem


@pytest.mark.parametrize(
    ("evidence", "status"),
    [
        (red("new"), Status.PASS),
        (green(2), Status.FAILING),
        (red(collected=0), Status.FAILING),
        (REGRESSED, Status.FAILING),
        (red("exit code 1", verified=False), Status.PASS),
        (green(0, verified=False), Status.FAILING),
    ],
)
def test_red_needs_a_new_failing_test_and_no_broken_old_one(evidence: TestEvidence, status: Status) -> None:
    """At least one test beyond the baseline fails, nothing that passed in it does."""
    verdict = judge("scaffold", tests=evidence)
    assert (status, status is Status.PASS) == (verdict.status, verdict.red_shown)


def test_red_is_asked_for_again_only_when_the_step_added_tests() -> None:
    """When the story comes by again its tests may be green already; new ones must fail."""
    verdict = judge("scaffold", tests=green(3), red_done=True, new_tests=3)
    assert (Status.PASS, "3 tests pass", False) == (verdict.status, verdict.why, verdict.red_shown)
    assert Status.FAILING is judge("scaffold", tests=green(4), red_done=True, new_tests=3).status
    again = judge("scaffold", tests=red("d", new_collected=4), red_done=True, new_tests=3)
    assert (Status.PASS, 4) == (again.status, again.new_tests)


@pytest.mark.parametrize(("evidence", "held"), [(red("t", held=True), True), (red("t"), False)])
def test_what_a_red_step_left_is_held_if_it_was_kept(evidence: TestEvidence, held: bool) -> None:
    """Earlier releases kept nothing: their stories go on as before."""
    assert held == judge("scaffold", tests=evidence).red_held
    again = judge("scaffold", tests=replace(evidence, new_collected=0), red_done=True)
    assert (Status.PASS, held) == (again.status, again.red_held)


def test_failing_is_what_a_red_step_is_for_when_nothing_is_measured() -> None:
    """With no test command a failure without a reason is the red that was asked for."""
    verdict = judge("scaffold", handoff(Status.FAILING, failing_tests=("a",)))
    assert (Status.PASS, True, ("a",)) == (verdict.status, verdict.red_shown, verdict.facts.failing_tests)


@pytest.mark.parametrize(
    ("step", "claim"),
    [
        ("scaffold", handoff(Status.FAILING, reason=Reason.CONSTITUTION_VIOLATION)),
        ("scaffold", handoff(Status.FAILING, error="exited with code 1, without a hand-off")),
        ("impl", handoff(Status.FAILING)),
    ],
)
def test_other_failures_stay_failures_without_tests(step: str, claim: Handoff) -> None:
    """A reason, a crash, or a step that is not red."""
    assert Status.FAILING is judge(step, claim).status


# --- a claim is never raised ----------------------------------------------------------------------
@pytest.mark.parametrize("step", ["scaffold", "impl"])
@pytest.mark.parametrize("status", [Status.FAILING, Status.NEEDS_HUMAN])
@pytest.mark.parametrize("evidence", [green(3), red("t"), TestEvidence(fault="no runner")])
def test_measuring_never_raises_a_claim(step: str, status: Status, evidence: TestEvidence) -> None:
    """failing and needs_human stand, whatever the tests say."""
    assert status is judge(step, handoff(status), evidence, PostCheck(passed=True)).status


# --- faults and limits ----------------------------------------------------------------------------
@pytest.mark.parametrize("step", ["scaffold", "impl", "verify"])
def test_tests_that_cannot_be_run_or_do_not_end_have_their_own_verdict(step: str) -> None:
    """Without a runner a person is asked, it is never red or failing; the table routes test_timeout."""
    verdict = judge(step, tests=TestEvidence(fault="pytest: not found", verified=False))
    assert (Status.NEEDS_HUMAN, None, False) == (verdict.status, verdict.reason, verdict.red_shown)
    assert "the tests could not be run: pytest: not found" == verdict.error
    verdict = judge(step, tests=TestEvidence(timed_out=True, verified=False))
    assert (Status.FAILING, Reason.TEST_TIMEOUT) == (verdict.status, verdict.reason)


@pytest.mark.parametrize(
    ("post_check", "status", "lint_pass", "error"),
    [
        (PostCheck(passed=True), Status.PASS, True, None),
        (PostCheck(passed=False, tail="E501\nE502\n"), Status.FAILING, False, "failed: E501 | E502"),
        (PostCheck(passed=False, timed_out=True), Status.FAILING, False, "did not end in time"),
        (PostCheck(passed=False, fault="code 127"), Status.NEEDS_HUMAN, None, "could not be run: code 127"),
    ],
)
def test_post_check_lowers_a_pass(
    post_check: PostCheck, status: Status, lint_pass: bool | None, error: str | None
) -> None:
    """It fails the attempt, and says nothing when it could not be run."""
    verdict = judge("impl", tests=green(3), post_check=post_check)
    assert (status, lint_pass) == (verdict.status, verdict.lint_pass)
    assert verdict.error == (error and f"post_check {error}")
    assert (post_check.tail or None) == verdict.facts.check_tail


@pytest.mark.parametrize("tail", ["", " \n"])
def test_a_post_check_that_says_nothing_is_named(tail: str) -> None:
    """In one line of bounded length."""
    checks = ChecksFinished(dispatch="d1", post_check=PostCheck(passed=False, tail=tail))
    bdd = shipped_rules().steps["bdd"]
    errors = [
        verdict_on(handoff(), bdd.model_copy(update={"post_check": command}), Ledger(), checks, "bdd").error
        for command in ("test -e a\n  test -e b\n", "x" * 999)
    ]

    how = "exited with another code than 0, without any output"
    assert f"post_check failed: test -e a test -e b {how}" == errors[0]
    assert f"post_check failed: {'x' * 199}… {how}" == errors[1]


def test_failing_tests_are_told_before_a_failing_post_check() -> None:
    """Both are recorded; the tests are the reason."""
    verdict = judge("impl", tests=red("t"), post_check=PostCheck(passed=False, tail="E501"))
    assert ("1 test fails: t", False) == (verdict.error, verdict.lint_pass)


# --- several checks by name ------------------------------------------------------------------------
ENDS: dict[str, dict[str, Any]] = {
    "passed": {"passed": True, "code": 0, "line": "all good"},
    "failed with exit code 3 (E501)": {"passed": False, "code": 3, "line": "E501", "tail": "a.py: E501"},
    "failed with exit code 1": {"passed": False, "code": 1, "line": ""},
    "was killed by signal 9": {"passed": False, "signal": 9, "line": ""},
    "did not end in time (1 %)": {"passed": False, "signal": 15, "timed_out": True, "line": "1 %"},
    "could not be run: no shell": {"passed": False, "fault": "no shell"},
}
"""How a check can end, by the words for it."""


def named(*ends: str) -> tuple[PostCheck, ...]:
    """Return checks called a, b, c that ended so."""
    return tuple(PostCheck(name=name, **ENDS[end]) for name, end in zip("abc", ends, strict=False))


@pytest.mark.parametrize("ends", [ends for count in (1, 2, 3) for ends in product(ENDS, repeat=count)])
def test_several_checks_lower_a_pass_together(ends: Sequence[str]) -> None:
    """All must pass; each that did not is named with how it ended. One that cannot be run asks a person."""
    verdict = judge("impl", tests=green(3), post_checks=named(*ends))

    bad = [f"{name} {end}" for name, end in zip("abc", ends, strict=False) if end != "passed"]
    faulty, failed = "no shell" in str(bad), [one for one in bad if "no shell" not in one]
    assert (Status.NEEDS_HUMAN if faulty else Status.FAILING if bad else Status.PASS) == verdict.status
    assert (f"post_check: {', '.join(bad)}" if bad else None) == verdict.error
    assert (False if failed else None if faulty else True) is verdict.lint_pass
    assert [one[0] for one in failed] == [one.name for one in verdict.facts.failed_checks]
    assert None is verdict.facts.check_tail
    assert None is verdict.reason


def test_failing_tests_and_an_honest_failing_outrank_several_checks() -> None:
    """What they showed is recorded in lint_pass, and the next prompt is not about them."""
    bad = named("failed with exit code 1", "passed")
    tested = judge("impl", tests=red("t"), post_checks=bad)
    assert ("1 test fails: t", False, ()) == (tested.error, tested.lint_pass, tested.facts.failed_checks)
    before = Facts(failed_checks=bad)
    assert () == judge("impl", handoff(Status.FAILING), facts=before).facts.failed_checks
    assert () == judge("impl", tests=green(1), facts=before).facts.failed_checks


def test_the_error_of_many_checks_stays_short() -> None:
    """Each has its name, its exit code, and 100 characters of what it said."""
    bad = tuple(PostCheck(passed=False, code=1, line="x" * 200, name=f"{n}{'n' * 39}") for n in range(10))

    error = judge("impl", post_checks=bad).error or ""

    assert 10 == error.count("failed with exit code 1 (x")
    assert len(error) < 2000


def test_no_check_proves_nothing() -> None:
    """lint_pass stays null."""
    assert None is all_passed(())


# --- facts ----------------------------------------------------------------------------------------
def test_facts_without_a_measurement_come_from_the_claim() -> None:
    """The newest named failing tests count; what it leaves out is kept."""
    before = Facts(failing_tests=("old",), commit_hash="1", summary="s", files=("a",), check_tail="gone")
    kept = judge("impl", handoff(Status.FAILING), facts=before).facts
    assert (("old",), "1", "s", ("a",), None) == (
        kept.failing_tests, kept.commit_hash, kept.summary, kept.files, kept.check_tail,
    )  # fmt: skip
    claim = handoff(Status.FAILING, failing_tests=("new",), commit_hash="2", files_changed=("b", "a"))
    told = judge("impl", claim, facts=before).facts
    assert (("new",), "2", ("a", "b")) == (told.failing_tests, told.commit_hash, told.files)


def test_an_unusable_runner_teaches_no_facts() -> None:
    """What was measured before is still what is known."""
    before = Facts(failing_tests=("old",), tests=TestCounts(passed=1, failed=1))
    for nothing in (TestEvidence(fault="?"), TestEvidence(timed_out=True)):
        facts = judge("impl", tests=nothing, facts=before).facts
        assert (before.failing_tests, before.tests) == (facts.failing_tests, facts.tests)


def test_the_files_of_a_story_are_bounded() -> None:
    """A hand-off cannot make the journal grow without end."""
    claim = handoff(files_changed=tuple(f"{number}.py" for number in range(2 * MOST_FILES)))
    assert MOST_FILES == len(judge("bdd", claim).facts.files)


def test_an_honest_failing_brings_what_its_tests_said_as_a_false_pass_does() -> None:
    """The next attempt needs the measured tests and the end of their output either way."""
    evidence = red("cart::adds", tail="E   assert 1 == 2", line="E   assert 1 == 2")
    for status in (Status.FAILING, Status.PASS):
        facts = judge("impl", handoff(status), tests=evidence).facts
        assert (("cart::adds",), "E   assert 1 == 2") == (facts.failing_tests, facts.check_tail)


def test_an_honest_failing_whose_tests_pass_brings_no_output_of_tests() -> None:
    """It does not explain the failure."""
    passing = green(tail="3 passed", line="3 passed")
    assert None is judge("impl", handoff(Status.FAILING), tests=passing).facts.check_tail


# --- what a step has changed ----------------------------------------------------------------------
STRAY = Wrote(files=("a.py", "docs/a.md"), count=2, outside=("docs/a.md",), strays=1)
UNKNOWN = Wrote(unknown="git is not found")


def enforced(mode: str, wrote: Wrote | None, claim: Handoff | None = None, step: str = "impl") -> Verdict:
    """Return the verdict on a claim (a pass) of a step that has changed files."""
    rule = shipped_rules().steps[step].model_copy(update={"enforce_writes": mode, "tests": None})
    ledger = Ledger(wrote=wrote)
    return verdict_on(claim or handoff(), rule, ledger, ChecksFinished(dispatch="d1"), step)


def test_the_files_that_were_found_outrank_the_claimed_ones() -> None:
    """In STATE and in what later prompts get; the claim counts where nothing was found out."""
    claim = handoff(files_changed=("made-up.py",))
    found = enforced("warn", STRAY, claim)
    assert STRAY.files == found.files_changed == found.facts.files
    assert found.facts.files_measured
    for unknown in (None, UNKNOWN):
        claimed = enforced("warn", unknown, claim)
        assert ("made-up.py",) == claimed.files_changed == claimed.facts.files
        assert not claimed.facts.files_measured


@pytest.mark.parametrize(
    ("mode", "wrote", "status", "reason"),
    [
        ("warn", STRAY, Status.PASS, None),
        ("fail", STRAY, Status.FAILING, Reason.SCOPE_WARNING),
        ("revert", STRAY, Status.PASS, None),
        ("revert", replace(STRAY, fault="no snapshot"), Status.NEEDS_HUMAN, None),
        ("fail", replace(STRAY, strays=0, outside=()), Status.PASS, None),
        ("warn", UNKNOWN, Status.PASS, None),
        ("fail", UNKNOWN, Status.NEEDS_HUMAN, None),
        ("revert", UNKNOWN, Status.NEEDS_HUMAN, None),
        ("fail", None, Status.PASS, None),
    ],
)
def test_a_file_outside_of_the_scope_lowers_a_pass_as_the_rule_says(
    mode: str, wrote: Wrote | None, status: Status, reason: Reason | None
) -> None:
    """Never another claim: that has its own reason."""
    verdict = enforced(mode, wrote)
    assert (status, reason) == (verdict.status, verdict.reason)
    assert ("docs/a.md" in verdict.why + (verdict.error or "")) == bool(wrote and wrote.strays)
    failing = enforced(mode, wrote, handoff(status=Status.FAILING, reason=Reason.NFR_MISSING))
    assert (Status.FAILING, Reason.NFR_MISSING) == (failing.status, failing.reason)


def test_beside_papers_nothing_passes_in_a_clone() -> None:
    """Its commit lands without another look; in the project's own folder nothing lands."""
    assert Reason.SCOPE_WARNING is enforced("warn", STRAY, step="update-memory").reason
    shared = enforced("warn", replace(STRAY, shared=True), step="update-memory")
    assert Status.PASS is shared.status
    assert "by its agent or by others meanwhile: docs/a.md" in shared.why
