"""The functions that change a project, as a program uses them: on real projects, without a daemon."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from handoffd import (
    Dispatched,
    DispatchResult,
    Finished,
    NotFound,
    Refused,
    Status,
    apply_handoff,
    approve_review,
    dispatch,
    init_state,
    peek,
    read_state,
    reject_review,
    reopen,
    rollback,
    run_post_check,
    start_custom,
    start_next,
    start_story,
)
from handoffd.library.project import verb

PASS = "---\nstatus: pass\n---\nDone.\n"


def hand_over(root: Path) -> None:
    """Write a hand-off as an agent would."""
    (root / ".ai" / "HANDOFF.md").write_text(PASS)


def test_a_folder_with_a_state_is_taken_in(shop: Path) -> None:
    """As the reference's functions take any: what it had done counts, and what it has in hand goes on."""
    state = (
        '{"project": "shop", "story": "US-002", "step": "bdd", "status": "pending", "blocked_by": ["US-001"]}'
    )
    (shop / ".ai" / "STATE.json").write_text(state)
    (shop / "PROJECT_MEMORY.md").write_text("## DONE\n- US-001: prices\n")

    taken = dispatch(shop)

    assert isinstance(taken, Dispatched)
    assert "US-002" == taken.story


def test_a_folder_without_a_state_is_not_taken_in(shop: Path) -> None:
    """A dispatch begins nothing by itself; nor is a folder that was never there a project that is gone."""
    for root in (shop, shop.with_name("nowhere")):
        for ask in (dispatch, peek):
            with pytest.raises(NotFound):
                ask(root)


def test_a_story_that_was_done_before_is_not_begun_again(shop: Path) -> None:
    """Also where a start initialises the project, and it needs no bootstrap then."""
    (shop / "PROJECT_CONTEXT.md").unlink()
    (shop / ".ai" / "history.md").write_text("### US-001 done\n")

    with pytest.raises(Refused) as refused:
        start_story(shop, "US-001")

    assert "ALREADY_COMPLETED" == refused.value.code
    assert "bdd" == start_story(shop, "US-002").step


def test_a_story_by_hand(shop: Path) -> None:
    """Every step taken, handed in and judged; the gate is a person's."""
    assert "shop" == init_state(shop).project
    assert ("US-001", "bdd") == (start_story(shop, "US-001").story, read_state(shop).step)

    taken = dispatch(shop)
    assert isinstance(taken, Dispatched)
    assert taken.prompt is not None
    assert ("bdd", 1, 1) == (taken.step, taken.attempt, taken.fw_lv)
    assert "already_running" == dispatch(shop).type
    assert "pending" == apply_handoff(shop).type
    hand_over(shop)
    applied = apply_handoff(shop)
    assert ("applied", Status.PASS) == (applied.type, applied.state.status)

    assert "needs_human" == dispatch(shop).type
    assert Status.FAILING is reject_review(shop, "needs_clarification", "Which currency?").status
    again = dispatch(shop)
    assert isinstance(again, Dispatched)
    assert "Which currency?" in (again.prompt or "")
    hand_over(shop)
    apply_handoff(shop)
    assert "needs_human" == dispatch(shop).type
    for decide in (approve_review, partial(reject_review, reason="scope_warning")):
        with pytest.raises(Refused) as refused:
            decide(shop, story="US-002")
        assert "WRONG_STORY" == refused.value.code
    assert Status.PASS is approve_review(shop, "Fine.", story="US-001").status

    assert "dispatched" == dispatch(shop).type
    hand_over(shop)
    apply_handoff(shop)
    assert "done" == dispatch(shop).type
    assert ("bdd", "bdd") == (reopen(shop, "bdd", "Once more.").step, read_state(shop).reopened_from)


def ends(root: Path, story: str) -> DispatchResult:
    """Do a story to its end, and return what that is."""
    start_story(root, story)
    while (turn := dispatch(root)).type in {"dispatched", "needs_human"}:
        if turn.type == "needs_human":
            approve_review(root)
        else:
            hand_over(root)
            assert "applied" == apply_handoff(root).type
    return turn


def test_after_three_stories_a_review_is_suggested(shop: Path) -> None:
    """By the answer at the end of the third, and as long as that is the last."""
    ended = [ends(shop, f"US-00{number}") for number in (1, 2, 3)]

    assert [False, False, True] == [isinstance(turn, Finished) and turn.review_suggested for turn in ended]
    again = dispatch(shop)
    assert isinstance(again, Finished)
    assert again.review_suggested
    assert "handoffd review" in again.caller_instruction


def test_reopenings_of_before_speak_for_a_review(shop: Path) -> None:
    """The reference wrote them into the history, and suggested it because of them."""
    (shop / ".ai/history.md").write_text("### Reopen — US-9 → impl\n- **Note**: N/A\n" * 3)
    (shop / ".ai/STATE.json").write_text(
        '{"project": "shop", "story": "US-001", "step": "update-memory", "status": "pass"}'
    )
    seen = peek(shop).result
    assert isinstance(seen, Finished)
    assert seen.review_suggested

    ended = dispatch(shop)

    assert isinstance(ended, Finished)
    assert ended.review_suggested


def test_stories_wait_behind_one_another_until_the_next_is_asked_for(shop: Path) -> None:
    """As urgent as was said; while one is in flight, nothing of the backlog starts."""
    init_state(shop)
    start_story(shop, "US-001", then=("US-002",), complexity="L")
    assert "US-001" == start_story(shop, "US-003", queue=True, priority=5).story
    with pytest.raises(Refused) as refused:
        start_next(shop)
    assert "STORY_IN_PROGRESS" == refused.value.code
    verb("abort", shop)
    assert "US-003" == start_next(shop).story
    verb("abort", shop)
    assert "US-002" == start_next(shop).story
    verb("abort", shop)
    with pytest.raises(Refused) as refused:
        start_next(shop)
    assert "BACKLOG_EMPTY" == refused.value.code


def test_what_is_refused_is_raised(shop: Path) -> None:
    """With its code, and a command for a person."""
    init_state(shop, "Corner shop")
    start_story(shop, "US-001")

    with pytest.raises(Refused) as refused:
        approve_review(shop)
    assert "WRONG_STEP" == refused.value.code
    assert (refused.value.hint or "").startswith("handoffd ")
    with pytest.raises(Refused, match="is not before") as refused:
        rollback(shop, "review")
    assert "ROLLBACK_FORWARD" == refused.value.code
    assert "Corner shop" == read_state(shop).project


def test_a_custom_task_starts_a_project_that_is_not_initialised(shop: Path) -> None:
    """Its level stays 1: nothing is dispatched by itself."""
    state = start_custom(shop, "Rename the receipt.", label="rename")

    assert ("rename", "custom", "Rename the receipt.") == (state.story, state.step, state.human_note)
    seen = peek(shop)
    assert ("custom", True) == (seen.step, "Rename the receipt." in (seen.prompt or ""))
    assert run_post_check(shop).passed is None
