"""Verbs that change a project, as the reference confirms them, at level 1; with a daemon and without."""

from __future__ import annotations

import json
import os
import re
from datetime import timedelta
from typing import Any

import pytest
from tests.support.commands import Commands
from tests.support.controlled import Controlled
from tests.unit.orchestrator.conftest import Say, Shop

from handoffd.clock import SystemClock, rfc3339
from handoffd.orchestrator.console import Said
from handoffd.orchestrator.verbs import Door


@pytest.mark.parametrize(
    ("state", "words", "code"),
    [
        ({}, "start-story US-002", "STORY_IN_PROGRESS"),
        ({}, "start-story US-001", "ALREADY_RUNNING"),
        ({"step": "done"}, "start-story US-001", "ALREADY_COMPLETED"),
        (None, "approve", "STATE_NOT_FOUND"),
        ({}, "approve", "WRONG_STEP"),
        ({"step": "review", "status": "needs_human"}, "reject dislike", "BAD_ARGUMENT"),
        ({"status": "failing"}, "rollback verify", "ROLLBACK_FORWARD"),
        ({"status": "failing"}, "rollback polish", "INVALID_TARGET"),
        ({"status": "failing"}, "rollback bootstrap", "BOOTSTRAP_NEEDS_FORCE"),
        ({}, "reopen impl", "NOT_DONE"),
    ],
)
def test_a_refusal_has_the_code_of_the_reference(
    say: Say, shop: Shop, state: dict[str, Any] | None, words: str, code: str
) -> None:
    """And the exit code 1."""
    if state is not None:
        shop.written(**state)

    said = say(*words.split())

    assert (code, 1) == (json.loads(said.out[0])["code"], said.code)


def test_init_confirms_what_it_made(say: Say, shop: Shop) -> None:
    """STATE.json under the given name, and the pointer for agents, once."""
    made, again = say("init", "my shop"), say("init", "other")

    assert (
        'Initialized .ai/STATE.json for "my shop"',
        "Created CLAUDE.md (CC will auto-detect ACF on session start)",
    ) == made.out
    assert ("STATE.json already exists (step: bootstrap, status: pending)",) == again.out
    assert "my shop" == shop.state["project"]


def test_an_existing_claude_md_is_not_called_new(say: Say, shop: Shop) -> None:
    """It only gets a block."""
    (shop.root / "CLAUDE.md").write_text("# Mine\n")

    assert 1 == len(say("init", "shop").out)
    assert (shop.root / "CLAUDE.md").read_text().startswith("# Mine\n")


def test_a_story_is_started(say: Say, shop: Shop) -> None:
    """In an unknown project, and at level 1; with `--force` also while another one is in flight."""
    assert ("Started story US-001 (step: bdd, attempt: 1)",) == say("start-story", "US-001").out
    assert ("US-001", "bdd", "pending") == (shop.state["story"], shop.state["step"], shop.state["status"])
    assert ("Started story US-002 (step: bdd, attempt: 1)",) == say("start-story", "US-002", "--force").out


@pytest.mark.parametrize(
    ("words", "label", "teams"),
    [
        (("tidy up",), "CUSTOM-", False), (("tidy up", "CLEAN-1"), "CLEAN-1", False),
        (("tidy up", "CLEAN-1", "--agent-teams"), "CLEAN-1", True),
        (("tidy up", "--agent-teams"), "CUSTOM-", True), (("整理一下",), "CUSTOM-", False),
    ],
)  # fmt: skip
def test_a_task_is_started(say: Say, shop: Shop, words: tuple[str, ...], label: str, teams: bool) -> None:
    """With its instruction, its label and its wish for a team."""
    said = say("start-custom", *words)

    state = shop.state
    told = f"  label: {state['story']}, step: custom, task_type: custom"
    assert (f'Started custom task: "{words[0]}"', told) == said.out
    assert (words[0], teams) == (state["human_note"], state["agent_teams"])
    assert state["story"].startswith(label)


@pytest.mark.parametrize(
    ("words", "printed", "status", "reason", "note"),
    [
        (("approve", "價格要含稅"), 'Review approved (note: "價格要含稅")', "pass", None, "價格要含稅"),
        (
            ("reject", "scope_warning", "too much"),
            "Review rejected (reason: scope_warning)",
            "failing",
            "scope_warning",
            "too much",
        ),
    ],
)
def test_a_review_is_decided(
    say: Say, shop: Shop, words: tuple[str, ...], printed: str, status: str, reason: str | None, note: str
) -> None:
    """With a note in any language."""
    shop.written(step="review", status="needs_human", max_attempts=1)

    assert (printed,) == say(*words).out
    assert {"status": status, "reason": reason, "human_note": note}.items() <= shop.state.items()


def test_a_story_goes_back(say: Say, shop: Shop) -> None:
    """To an earlier step."""
    shop.written(status="failing")

    assert ('Rolled back to step "bdd" (status: pending, attempt: 1)',) == say("rollback", "bdd").out


def test_a_story_is_reopened(say: Say, shop: Shop) -> None:
    """After it is done."""
    shop.written(step="done", status="pass")
    told = 'Reopened story "US-001" at step "verify" (status: pending, attempt: 1)'
    assert (told,) == say("reopen", "verify", "the total is wrong").out
    assert ("verify", "the total is wrong") == (shop.state["reopened_from"], shop.state["human_note"])


# --- turns: a prompt out, a hand-off in --------------------------------------------------------------
def meta(said: Said) -> dict[str, Any]:
    """Return the block behind a prompt, cut out as scripts do."""
    found = re.search(r"\n<task-meta>\n(.*)\n</task-meta>", "\n".join(said.out), re.DOTALL)
    assert found is not None
    told: dict[str, Any] = json.loads(found[1])
    return told


def test_a_dispatch_prints_the_prompt_and_its_block(say: Say, shop: Shop, handoffd: Commands) -> None:
    """The attempt runs by then; a peek shows the same before, changes nothing, and adds no project."""
    shop.written()
    before = shop.state
    assert "US-001-impl" == meta(say("peek"))["task_name"]
    assert (before, []) == (shop.state, handoffd("projects", "--json").json["projects"])

    said = say("dispatch")

    assert {
        "task_name": "US-001-impl", "project": "shop", "story": "US-001", "step": "impl", "attempt": 1,
        "fw_lv": 1,
    } == meta(said)  # fmt: skip
    assert ("running", 0) == (shop.state["status"], said.code)
    assert "US-001" in said.out[0]


def test_a_peek_at_a_running_attempt_shows_its_prompt(say: Say, shop: Shop) -> None:
    """Scripts dispatch in one place and fetch the prompt in another; after its time limit, there is none."""
    shop.written()
    say("dispatch")
    assert "US-001-impl" == meta(say("peek"))["task_name"]

    long_ago = rfc3339(SystemClock().now() - timedelta(minutes=60))
    shop.written(status="running", dispatched_at=long_ago)
    late = say("peek")
    assert ((), True) == (late.out, late.err[0].startswith("[peek] TIMEOUT"))


def test_a_turn_without_a_prompt_is_no_error(say: Say, shop: Shop) -> None:
    """stdout stays empty, so that nothing is piped to an agent; without a state a dispatch is one."""
    assert (1, 0) == (say("dispatch").code, say("peek").code)
    shop.written(step="review", status="pending")

    said = say("dispatch")

    assert ((), 0, True) == (said.out, said.code, said.err[0].startswith("[dispatch] NEEDS HUMAN REVIEW"))


def test_a_hand_off_is_applied_once(say: Say, shop: Shop) -> None:
    """The answer has the keys of STATE.json."""
    shop.written()
    say("dispatch")
    assert "pending" == json.loads(say("apply-handoff").out[0])["type"]
    shop.handed_over("impl", "status: pass", "tests_pass: 3")

    applied, again = (json.loads(say("apply-handoff").out[0]) for _ in range(2))

    assert ["type", "state"] == list(applied)
    assert ("pass", 3) == (applied["state"]["status"], applied["state"]["tests"]["pass"])
    assert ["type", "state", "message"] == list(again)
    assert ("stale", "taken already: impl attempt 1 of US-001 is pass") == (again["type"], again["message"])


def test_a_hand_off_that_cannot_be_read_may_be_repaired(say: Say, shop: Shop) -> None:
    """The exit code is 2."""
    shop.written()
    say("dispatch")
    (shop.root / ".ai/HANDOFF.md").write_text("---\nstatus: pass\n")

    assert 2 == say("apply-handoff").code


@pytest.mark.parametrize(
    ("rules", "expected", "lint"),
    [
        ("{}", Said(("post_check: PASSED",)), None),
        (
            "steps: {impl: {post_check: {a: echo dirty; exit 3, b: exit 4, c: echo fine}}}",
            Said(
                ("post_check: FAILED",),
                ("a: failed with exit code 3", "dirty", "", "b: failed with exit code 4"),
                1,
            ),
            False,
        ),
        (
            "steps: {impl: {post_check: echo dirty; false}}",
            Said(("post_check: FAILED",), ("dirty",), 1),
            False,
        ),
    ],
)
def test_a_post_check_is_run(say: Say, shop: Shop, rules: str, expected: Said, lint: bool | None) -> None:
    """A step without one passes; its output goes to stderr, and STATE.json has the result."""
    shop.written()
    (shop.root / ".ai/step-rules.yaml").write_text(rules)

    assert (expected, lint) == (say("post-check"), shop.state["lint_pass"])


def test_a_crash_is_reported_as_a_result(say: Say, shop: Shop) -> None:
    """The attempt fails; without a running one there is nothing to report."""
    shop.written()
    assert 1 == say("report-error", "no tokens left").code
    say("dispatch")

    said = say("report-error", "no tokens left")

    assert ('Recorded error for step "impl": no tokens left',) == said.out
    assert ("failing", None) == (shop.state["status"], shop.state["reason"])
    assert "no tokens left" in shop.state["last_error"]


def test_a_whole_story(say: Say, shop: Shop) -> None:
    """Turn by turn, with a review in between; stdout is empty when there is nothing to do."""
    say("start-story", "US-001")
    asked = []
    for _ in range(20):
        said = say("dispatch")
        if not said.out:
            if shop.state["step"] == "done":
                break
            assert ("Review approved",) == say("approve").out
            continue
        step = meta(said)["step"]
        asked.append(step)
        shop.handed_over(step, "story: US-001", "status: pass")
        assert "applied" == json.loads(say("apply-handoff").out[0])["type"]

    assert ["bdd", "sdd-delta", "contract", "scaffold", "impl", "verify", "update-memory"] == asked
    assert ("done", "pass") == (shop.state["step"], shop.state["status"])


# --- the way to the engine ---------------------------------------------------------------------------
def test_a_verb_adds_an_unknown_project_first(shop: Shop) -> None:
    """A refusal is an answer with its code, as in the reference."""
    shop.written(step="review", status="needs_human", max_attempts=1)
    door = Door(str(shop.root), os.environ)

    answer = door.give("reject", reason="dislike")
    assert ("error", "BAD_ARGUMENT") == (answer["type"], answer["code"])
    assert "accepted" == door.give("approve")["type"]


def test_a_verb_goes_to_the_daemon(control: Controlled) -> None:
    """It may change the projects that it supervises."""
    answer = Door("/srv/shop", os.environ).give("approve", note="fine")

    assert "accepted" == answer["type"]
    assert "approved" == control.supervision.given[-1][1].kind
