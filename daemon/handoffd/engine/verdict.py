"""The verdict on one attempt: a claim, lowered by what was measured."""

from __future__ import annotations

from dataclasses import dataclass

from handoffd.engine.changing import changed
from handoffd.engine.events import ChecksFinished
from handoffd.engine.evidence import green_problem, red_problem
from handoffd.engine.measurements import PostCheck, TestEvidence
from handoffd.engine.track import Facts, Ledger
from handoffd.engine.wording import said_last, with_line
from handoffd.protocol.handoff import Handoff
from handoffd.protocol.rules import Rule
from handoffd.protocol.state import Reason, Status, TestCounts

MOST_FILES = 500
"""Files remembered per story; a story that changes more is not described by listing them."""

_COMMAND = 200
"""Characters of a command quoted in last_error."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What becomes of an attempt, and the facts later prompts get from it."""

    status: Status
    why: str
    facts: Facts
    reason: Reason | None = None
    error: str | None = None
    tests: TestCounts | None = None
    """Measured, else claimed."""
    measured: TestCounts | None = None
    failing_tests: tuple[str, ...] = ()
    files_changed: tuple[str, ...] = ()
    lint_pass: bool | None = None
    red_shown: bool = False
    new_tests: int | None = None
    """Tests beyond the baseline; None when it was not measured."""


def verdict_on(claim: Handoff, rule: Rule, ledger: Ledger, checks: ChecksFinished) -> Verdict:
    """Return the verdict on `claim`, given what the checks measured (both parts may be missing)."""
    evidence, post = checks.tests, checks.post_check
    assert claim.status is not None
    measured = evidence.counts if evidence and evidence.verified else None
    verdict = Verdict(
        status=claim.status,
        why=claim.error or f"{claim.status} claimed",
        facts=_facts(claim, ledger.facts, evidence),
        reason=claim.reason,
        error=claim.error,
        tests=measured or _claimed_tests(claim),
        measured=measured,
        failing_tests=evidence.failing if evidence else claim.failing_tests,
        files_changed=claim.files_changed,
        lint_pass=post.passed if post and not post.fault else None,
    )
    if evidence is None and _is_red_without_tests(claim, rule):
        return changed(
            verdict, status=Status.PASS, why="failing tests are what this step is for", red_shown=True
        )
    if claim.status is not Status.PASS:
        return verdict
    if evidence is not None:
        verdict = _measured(verdict, rule, ledger, evidence)
    if post is not None and not post.passed and verdict.status is Status.PASS:
        fault = with_line(post.fault, post) if post.fault else None
        return _fault(verdict, "post_check", fault) if fault else _lint_failed(verdict, post, rule.post_check)
    return verdict


def _claimed_tests(claim: Handoff) -> TestCounts | None:
    """Return the counts that were claimed; all zero means that no test was run, not that none exists."""
    counts = claim.tests
    return counts if counts and (counts.passed or counts.failed or counts.skipped) else None


def _fault(verdict: Verdict, what: str, fault: str) -> Verdict:
    """Ask a person: what cannot be run says nothing about the agent's work."""
    error = f"{what} could not be run: {fault}"
    return changed(verdict, status=Status.NEEDS_HUMAN, error=error, why="a fault of the environment")


def _is_red_without_tests(claim: Handoff, rule: Rule) -> bool:
    """With no test command, an agent that reports its new tests as failing did what it should."""
    told_nothing_else = claim.reason is None and claim.error is None
    return rule.tests == "red" and claim.status is Status.FAILING and told_nothing_else


def _measured(verdict: Verdict, rule: Rule, ledger: Ledger, evidence: TestEvidence) -> Verdict:
    if evidence.fault is not None:
        return _fault(verdict, "the tests", with_line(evidence.fault, evidence))
    if evidence.timed_out:
        error = "the tests did not end in time"
        return changed(verdict, status=Status.FAILING, reason=Reason.TEST_TIMEOUT, error=error, why=error)
    if rule.tests == "red":
        return _expect_red(verdict, ledger, evidence)
    problem = green_problem(evidence)
    return _failed_tests(verdict, problem, evidence) if problem else _counted(verdict, evidence)


def _expect_red(verdict: Verdict, ledger: Ledger, evidence: TestEvidence) -> Verdict:
    if ledger.red_done and evidence.new_collected <= ledger.new_tests:
        return _counted(verdict, evidence)
    problem = red_problem(evidence)
    if problem:
        return _failed_tests(verdict, f"not red: {problem}", evidence)
    why = f"red: {evidence.new_failing} new tests fail"
    return changed(verdict, why=why, red_shown=True, new_tests=evidence.new_collected)


def _failed_tests(verdict: Verdict, problem: str, evidence: TestEvidence) -> Verdict:
    facts = changed(verdict.facts, check_tail=evidence.tail or None)
    return changed(
        verdict, status=Status.FAILING, error=problem, why=f"pass claimed, but {problem}", facts=facts
    )


def _counted(verdict: Verdict, evidence: TestEvidence) -> Verdict:
    counts = evidence.counts
    known = f", {len(evidence.known_failing)} failed before this story" if evidence.known_failing else ""
    measured = (
        f"{counts.passed} tests pass{known}"
        if evidence.verified
        else "the test command succeeded (unverified)"
    )
    return changed(verdict, why=measured, new_tests=evidence.new_collected)


def _shown(command: str | None) -> str:
    """Return a command in one line, short enough for last_error."""
    line = " ".join((command or "the command").split())
    return line if len(line) <= _COMMAND else f"{line[: _COMMAND - 1]}…"


def _lint_failed(verdict: Verdict, post: PostCheck, command: str | None) -> Verdict:
    said = said_last(post) or f"{_shown(command)} exited with another code than 0, without any output"
    problem = "post_check did not end in time" if post.timed_out else f"post_check failed: {said}"
    facts = changed(verdict.facts, check_tail=post.tail or None)
    return changed(
        verdict, status=Status.FAILING, error=problem, why=f"pass claimed, but {problem}", facts=facts
    )


def _facts(claim: Handoff, old: Facts, evidence: TestEvidence | None) -> Facts:
    measured = evidence is not None and evidence.fault is None and not evidence.timed_out
    files = tuple(dict.fromkeys((*old.files, *claim.files_changed)))[:MOST_FILES]
    return changed(
        old,
        files=files,
        failing_tests=evidence.failing if measured and evidence else claim.failing_tests or old.failing_tests,
        tests=evidence.counts if measured and evidence and evidence.verified else old.tests,
        check_tail=_tail_kept(claim, evidence),
        commit_hash=claim.commit_hash or old.commit_hash,
        summary=claim.summary or old.summary,
    )


def _tail_kept(claim: Handoff, evidence: TestEvidence | None) -> str | None:
    """Return the end of the check that bears an honest `failing` out: the next attempt needs it as much.

    What a claimed pass failed at is added where that is judged.
    """
    if evidence is None or evidence.line is None:  # an earlier release kept none
        return None
    failed = bool(evidence.failing or evidence.counts.failed or evidence.timed_out)
    return evidence.tail or None if claim.status is not Status.PASS and failed else None
