"""What those who do steps themselves are answered."""

from __future__ import annotations

from typing import get_args

import pytest

from handoffd.api.service import applied_json, checked_json, tried_json
from handoffd.engine.events import TestEvidence
from handoffd.engine.run import PostCheck
from handoffd.engine.views import Applied, AppliedKind, Tried
from handoffd.engine.wording import command
from handoffd.protocol.state import State, TestCounts

STATE = State(project="shop", story="US-001")


@pytest.mark.parametrize("kind", get_args(AppliedKind))
def test_every_answer_says_what_to_do_next(kind: AppliedKind) -> None:
    """For people, and in a sentence for programs; with the state as it is."""
    applied = Applied(type=kind, message="so it is", state=STATE, code="X", next_command=command("dispatch"))
    told = applied_json(applied, "/srv/shop")

    assert (kind, "handoffd dispatch /srv/shop") == (told["type"], told["next_command"])
    assert told["caller_instruction"].startswith("so it is; ")
    assert told["caller_instruction"].endswith("; next: handoffd dispatch /srv/shop")
    assert ("shop", "US-001", "pending") == tuple(
        told["state"][key] for key in ("project", "story", "status")
    )
    assert ("code" in told) == (kind == "error")


def test_checks_that_go_on_are_asked_for_again() -> None:
    """The attempt is not judged before."""
    told = applied_json(Applied(type="applied", message="claimed", state=STATE, checking=True), "/srv/shop")

    assert told["checking"]
    assert "its claims are being checked" in told["caller_instruction"]


@pytest.mark.parametrize(
    ("ended", "passed", "message"),
    [
        (None, None, "the step has no post_check"),
        (PostCheck(passed=True), True, "post_check passed"),
        (PostCheck(passed=False, tail="x.go:3"), False, "post_check failed"),
        (PostCheck(passed=False, timed_out=True), False, "post_check did not end in time"),
        (PostCheck(passed=False, fault="no shell"), False, "post_check could not be run: no shell"),
    ],
)
def test_how_a_post_check_ended(ended: PostCheck | None, passed: bool | None, message: str) -> None:
    """Null where there is none."""
    told = checked_json("make lint", ended, "/srv/shop")

    assert (passed, message, "make lint") == (told["passed"], told["message"], told["command"])


@pytest.mark.parametrize(
    ("evidence", "passed", "tests"),
    [
        (TestEvidence(counts=TestCounts(passed=2, skipped=1)), True, {"pass": 2, "fail": 0, "skip": 1}),
        (TestEvidence(counts=TestCounts(failed=1), failing=("a",)), False, {"pass": 0, "fail": 1, "skip": 0}),
        (TestEvidence(verified=False), True, None),
        (TestEvidence(verified=False, failing=("exit code 1",)), False, None),
        (TestEvidence(timed_out=True, verified=False), None, None),
        (TestEvidence(fault="no report", verified=False), None, None),
        (None, None, None),
    ],
)
def test_how_tests_went_that_were_tried(
    evidence: TestEvidence | None, passed: bool | None, tests: dict[str, int] | None
) -> None:
    """Counts only where they were measured; what did not end has neither passed nor failed."""
    command = None if evidence is None else ("make", "test")
    told = tried_json(Tried(command=command, path="/bin", evidence=evidence), "/srv/shop")

    assert ("tried", "/srv/shop", passed, tests) == tuple(
        told[key] for key in ("type", "project", "passed", "tests")
    )
    assert (None if command is None else list(command)) == told["command"]
