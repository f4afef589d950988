"""`orchestrator.turns`: a prompt out, a hand-off in, at level 1 and without a daemon."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

from tests.support.commands import Commands
from tests.unit.orchestrator.conftest import Say, Shop

from handoffd.clock import SystemClock, rfc3339
from handoffd.orchestrator.console import Said


def meta(said: Said) -> dict[str, Any]:
    """Return what the block behind a prompt says, cut out as scripts do."""
    found = re.search(r"\n<task-meta>\n(.*)\n</task-meta>", "\n".join(said.out), re.DOTALL)
    assert found is not None
    told: dict[str, Any] = json.loads(found[1])
    return told


def test_a_dispatch_prints_the_prompt_and_its_block(say: Say, shop: Shop) -> None:
    """And STATE.json says that the attempt runs."""
    shop.written()

    said = say("dispatch")

    assert {
        "task_name": "US-001-impl", "project": "shop", "story": "US-001", "step": "impl", "attempt": 1,
        "fw_lv": 1,
    } == meta(said)  # fmt: skip
    assert ("running", 0) == (shop.state["status"], said.code)
    assert "US-001" in said.out[0]


def test_a_peek_shows_the_same_and_changes_nothing(say: Say, shop: Shop, handoffd: Commands) -> None:
    """Neither the project nor which projects there are."""
    shop.written()
    before = shop.state

    assert "US-001-impl" == meta(say("peek"))["task_name"]
    assert before == shop.state
    assert [] == handoffd("projects", "--json").json["projects"]


def test_a_peek_at_what_runs_shows_its_prompt(say: Say, shop: Shop) -> None:
    """Scripts dispatch in one place and fetch the prompt in another; when its time is over, there is none."""
    shop.written()
    say("dispatch")
    assert "US-001-impl" == meta(say("peek"))["task_name"]

    long_ago = rfc3339(SystemClock().now() - timedelta(minutes=60))
    shop.written(status="running", dispatched_at=long_ago)
    late = say("peek")
    assert ((), True) == (late.out, late.err[0].startswith("[peek] TIMEOUT"))


def test_what_leads_to_no_prompt_is_no_error(say: Say, shop: Shop) -> None:
    """stdout stays empty, so that nothing is piped to an agent."""
    shop.written(step="review", status="pending")

    said = say("dispatch")

    assert ((), 0, True) == (said.out, said.code, said.err[0].startswith("[dispatch] NEEDS HUMAN REVIEW"))


def test_a_dispatch_without_a_state_is_an_error(say: Say) -> None:
    """For a peek the exit code is 0, as in the reference."""
    assert (1, 0) == (say("dispatch").code, say("peek").code)


def test_a_hand_off_is_applied_once(say: Say, shop: Shop) -> None:
    """With the keys of STATE.json in the answer."""
    shop.written()
    say("dispatch")
    assert "pending" == json.loads(say("apply-handoff").out[0])["type"]
    shop.handed_over("impl", "status: pass", "tests_pass: 3")

    applied, again = say("apply-handoff"), say("apply-handoff")

    answer = json.loads(applied.out[0])
    assert ["type", "state"] == list(answer)
    assert ("pass", 3) == (answer["state"]["status"], answer["state"]["tests"]["pass"])
    assert ["type", "state", "message"] == list(json.loads(again.out[0]))
    assert "stale" == json.loads(again.out[0])["type"]
    assert "taken already: impl attempt 1 of US-001 is pass" == json.loads(again.out[0])["message"]


def test_a_hand_off_that_cannot_be_read_can_be_mended(say: Say, shop: Shop) -> None:
    """That is the exit code 2."""
    shop.written()
    say("dispatch")
    (shop.root / ".ai/HANDOFF.md").write_text("---\nstatus: pass\n")

    assert 2 == say("apply-handoff").code


def test_a_post_check_is_run(say: Say, shop: Shop) -> None:
    """A step without one has passed it."""
    shop.written()
    assert (("post_check: PASSED",), 0) == (say("post-check").out, say("post-check").code)


def test_a_post_check_may_fail(say: Say, shop: Shop) -> None:
    """With what it printed on stderr; STATE.json keeps the result."""
    shop.written()
    (shop.root / ".ai/step-rules.yaml").write_text("steps:\n  impl:\n    post_check: echo dirty; false\n")

    said = say("post-check")

    assert (("post_check: FAILED",), ("dirty",), 1) == (said.out, said.err, said.code)
    assert shop.state["lint_pass"] is False


def test_a_crash_is_reported_as_a_result(say: Say, shop: Shop) -> None:
    """The attempt is failing; without one that runs there is nothing to report."""
    shop.written()
    assert 1 == say("report-error", "no tokens left").code
    say("dispatch")

    said = say("report-error", "no tokens left")

    assert ('Recorded error for step "impl": no tokens left',) == said.out
    assert ("failing", None) == (shop.state["status"], shop.state["reason"])
    assert "no tokens left" in shop.state["last_error"]


def test_a_whole_story(say: Say, shop: Shop) -> None:
    """Turn by turn, with a review between; nothing on stdout when there is nothing to do."""
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
