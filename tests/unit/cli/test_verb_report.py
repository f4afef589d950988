"""What each kind of answer says."""

from __future__ import annotations

from typing import get_args

import pytest
from pydantic import TypeAdapter

from handoffd.cli.verbs import report
from handoffd.cli.wording import UNMEASURED
from handoffd.engine import decision
from handoffd.engine.views import AppliedKind


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (
            decision.Dispatched(
                project="shop", story="US-1", step="bdd", attempt=2, dispatch="d1", caller_instruction="wait"
            ),
            "US-1: bdd, attempt 2, is dispatched as d1",
        ),
        (decision.Finished(story="US-1", summary="US-1 is done", caller_instruction="x"), "US-1 is done"),
        (
            decision.Finished(
                story="US-3", summary="US-3 is done", caller_instruction="x", review_suggested=True
            ),
            "US-3 is done\n  a review of the project is suggested: handoffd review /srv/shop",
        ),
        (
            decision.NeedsHuman(step="review", message="look", caller_instruction="x", review=("docs/a.md",)),
            "look\n  review: docs/a.md",
        ),
        (decision.Blocked(step="bdd", reason="US-0", caller_instruction="x"), "bdd is blocked: US-0"),
        (
            decision.AlreadyRunning(step="bdd", elapsed_min=3.5, last_error=None, caller_instruction="x"),
            "bdd has been running for 3.5 min",
        ),
        (decision.TimedOut(step="bdd", elapsed_min=9, message="over", caller_instruction="x"), "over"),
        (
            decision.Refusal(code="NO", message="no", caller_instruction="x", next_command="handoffd status"),
            "handoffd: no [NO]\n  next: handoffd status",
        ),
        (
            decision.Accepted(step="bdd", status="pending", message="\x1b[2J", caller_instruction="x"),
            "\\x1b[2J (bdd, pending)",
        ),
    ],
)
def test_each_result_is_told(result: decision.Result, line: str) -> None:
    """In one line, or a few."""
    adapter: TypeAdapter[decision.Result] = TypeAdapter(decision.Result)

    answer = {"project": "/srv/shop", **adapter.dump_python(result, mode="json")}
    assert line.split("\n") == report(answer)


def test_a_command_inside_a_message_calls_the_project_by_its_name() -> None:
    """As the one in the line below it does."""
    answer = {
        "type": "accepted", "project": "/srv/shop", "called": "corner-shop", "step": "bdd",
        "status": "pending", "message": "aside: `handoffd start /srv/shop US-1 --queue` takes it up again",
    }  # fmt: skip
    (line,) = report(answer)
    assert line.startswith("aside: `handoffd start corner-shop US-1 --queue` takes")


def test_no_result_is_forgotten() -> None:
    """The cases above are all there are."""
    assert 8 == len(get_args(decision.Result))


@pytest.mark.parametrize("status", ["failing", "pass"])
def test_a_decided_gate_is_not_said_to_stand_where_it_stood(status: str) -> None:
    """The message names where the story goes; the step and status of before contradict it."""
    answer = {"type": "accepted", "message": "review rejected by root, back to bdd", "step": "review"}
    assert ["review rejected by root, back to bdd"] == report(
        {**answer, "status": status, "next_command": None}
    )


@pytest.mark.parametrize("kind", get_args(AppliedKind))
def test_what_became_of_a_hand_off_begins_the_line(kind: str) -> None:
    """One that was taken before says so in words."""
    message = "taken already: bdd is pass" if kind == "taken" else "bdd is pass"
    expected = (
        message
        if kind == "taken"
        else f"handoffd: {message} [X]"
        if kind == "error"
        else f"{kind}: {message}"
    )

    assert [expected] == report({"type": kind, "message": message, "code": "X"})


@pytest.mark.parametrize(
    ("command", "created", "lines"),
    [
        (None, (".ai/handoffd.yaml",), [
            f"  tests: none chosen; {UNMEASURED}",
            "  found, but not run: web (npm test), a b (go test ./...), c (make test) and 1 more;"
            " .ai/handoffd.yaml has a commented line for them",
        ]),
        (None, (), [
            f"  tests: none chosen; {UNMEASURED}",
            "  found, but not run: web (npm test), a b (go test ./...), c (make test) and 1 more",
        ]),
        (["cargo", "test"], (".ai/handoffd.yaml",), [
            "  tests: cargo test   (change it in .ai/handoffd.yaml)",
            "  found, but not run: web (npm test), a b (go test ./...), c (make test) and 1 more",
        ]),
    ],
)  # fmt: skip
def test_tests_that_nothing_runs_are_named(
    command: list[str] | None, created: tuple[str, ...], lines: list[str]
) -> None:
    """What was found beside the command, or instead of one."""
    others = [("web", "npm test"), ("a b", "go test ./..."), ("c", "make test"), ("d", "make test")]
    said = report(
        {
            "type": "initialised", "project": "/srv/shop", "name": "shop", "level": 0, "created": created,
            "missing": [], "test_command": command, "warnings": [],
            "other_tests": [{"folder": folder, "command": typed.split()} for folder, typed in others],
        }
    )  # fmt: skip

    assert lines == [line for line in said if "tests:" in line or "found" in line]
