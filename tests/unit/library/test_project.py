"""One project as a program uses it: real files, without a daemon unless a test has one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from tests.support.controlled import Controlled
from tests.support.refusals import refused

from handoffd import (
    Dispatched,
    DispatchResult,
    Finished,
    NotFound,
    Refused,
    Status,
    apply_handoff,
    approve_review,
    auto,
    check_prerequisites,
    classify,
    detect_framework,
    dispatch,
    generate_checklist,
    init_state,
    list_projects,
    night_report,
    peek,
    query_project_status,
    read_state,
    reject_review,
    reopen,
    review,
    rollback,
    run_post_check,
    start_custom,
    start_next,
    start_story,
    tonight,
    triage,
)
from handoffd.engine.events import Noted, PromptTaken
from handoffd.entrance.requests import account
from handoffd.library.project import path_of, verb
from handoffd.library.results import accepted, dispatch_result


def hand_over(root: Path) -> None:
    """Write a hand-off as an agent would."""
    (root / ".ai" / "HANDOFF.md").write_text("---\nstatus: pass\n---\nDone.\n")


def test_a_folder_with_a_state_is_added(shop: Path) -> None:
    """The reference takes any folder; stories that were done count, and the current one goes on."""
    state = (
        '{"project": "shop", "story": "US-002", "step": "bdd", "status": "pending", "blocked_by": ["US-001"]}'
    )
    (shop / ".ai" / "STATE.json").write_text(state)
    (shop / "PROJECT_MEMORY.md").write_text("## DONE\n- US-001: prices\n")

    taken = dispatch(shop)

    assert isinstance(taken, Dispatched)
    assert "US-002" == taken.story


def test_a_folder_without_a_state_is_not_added(shop: Path) -> None:
    """A dispatch begins nothing by itself, and a folder that never existed is not a lost project."""
    for root in (shop, shop.with_name("nowhere")):
        for ask in (dispatch, peek):
            with pytest.raises(NotFound):
                ask(root)


def test_a_done_story_does_not_begin_again(shop: Path) -> None:
    """Also where a start initialises the project, which then needs no bootstrap."""
    (shop / "PROJECT_CONTEXT.md").unlink()
    (shop / ".ai" / "history.md").write_text("### US-001 done\n")

    with refused("ALREADY_COMPLETED"):
        start_story(shop, "US-001")
    assert "bdd" == start_story(shop, "US-002").step


def test_a_story_by_hand(shop: Path) -> None:
    """A person dispatches, hands over and decides each step."""
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
        with refused("WRONG_STORY"):
            decide(shop, story="US-002")
    assert Status.PASS is approve_review(shop, "Fine.", story="US-001").status

    assert "dispatched" == dispatch(shop).type
    hand_over(shop)
    apply_handoff(shop)
    assert "done" == dispatch(shop).type
    assert ("bdd", "bdd") == (reopen(shop, "bdd", "Again.").step, read_state(shop).reopened_from)


def ends(root: Path, story: str) -> DispatchResult:
    """Do a story, and return its end."""
    start_story(root, story)
    while (turn := dispatch(root)).type in {"dispatched", "needs_human"}:
        if turn.type == "needs_human":
            approve_review(root)
        else:
            hand_over(root)
            assert "applied" == apply_handoff(root).type
    return turn


def test_after_three_stories_a_review_is_suggested(shop: Path) -> None:
    """By the end of the third, as long as that is the last."""
    ended = [ends(shop, f"US-00{number}") for number in (1, 2, 3)]

    assert [False, False, True] == [isinstance(turn, Finished) and turn.review_suggested for turn in ended]
    again = dispatch(shop)
    assert isinstance(again, Finished)
    assert again.review_suggested
    assert "handoffd review" in again.caller_instruction


def test_old_reopenings_suggest_a_review(shop: Path) -> None:
    """The reference wrote them into the history."""
    (shop / ".ai/history.md").write_text("### Reopen — US-9 → impl\n- **Note**: N/A\n" * 3)
    (shop / ".ai/STATE.json").write_text(
        '{"project": "shop", "story": "US-001", "step": "update-memory", "status": "pass"}'
    )
    for ended in (peek(shop).result, dispatch(shop)):
        assert isinstance(ended, Finished)
        assert ended.review_suggested


def test_queued_stories_wait_for_a_request(shop: Path) -> None:
    """By priority; while a story is in flight, none of them starts."""
    init_state(shop)
    start_story(shop, "US-001", then=("US-002",), complexity="L")
    assert "US-001" == start_story(shop, "US-003", queue=True, priority=5).story
    with refused("STORY_IN_PROGRESS"):
        start_next(shop)
    verb("abort", shop)
    assert "US-003" == start_next(shop).story
    verb("abort", shop)
    assert "US-002" == start_next(shop).story
    verb("abort", shop)
    with refused("BACKLOG_EMPTY"):
        start_next(shop)


def test_a_refusal_is_raised(shop: Path) -> None:
    """With its code, and a command for a person."""
    init_state(shop, "Corner shop")
    start_story(shop, "US-001")

    with pytest.raises(Refused) as caught:
        approve_review(shop)
    assert "WRONG_STEP" == caught.value.code
    assert (caught.value.hint or "").startswith("handoffd ")
    with refused("ROLLBACK_FORWARD", match="is not before"):
        rollback(shop, "review")
    assert "Corner shop" == read_state(shop).project


def test_a_custom_task_initialises_a_project(shop: Path) -> None:
    """At level 1: the daemon dispatches nothing."""
    state = start_custom(shop, "Rename the receipt.", label="rename")

    assert ("rename", "custom", "Rename the receipt.") == (state.story, state.step, state.human_note)
    seen = peek(shop)
    assert ("custom", True) == (seen.step, "Rename the receipt." in (seen.prompt or ""))
    assert run_post_check(shop).passed is None


# --- reads -------------------------------------------------------------------------------------------
def test_reads_need_nothing(shop: Path) -> None:
    """Neither a journal nor a STATE.json; and they make nothing."""
    assert "not_initialized" == query_project_status(shop).status
    assert 1 == detect_framework(shop).level
    assert ["shop"] == [found.dir for found in list_projects(shop.parent)]
    assert review(shop).prompt
    with refused("NO_MEMORY", match="PROJECT_MEMORY"):
        triage(shop)
    with pytest.raises(Refused, match="no STATE"):
        read_state(shop)
    assert not (shop / ".ai" / "STATE.json").exists()


def test_a_report_has_the_night_of_a_project_or_of_all(shop: Path) -> None:
    """As far back as is asked for."""
    start_story(shop, "US-001")
    for found in (night_report(shop), night_report(since="7d")):
        assert not found.is_quiet
        assert () == found.landed
    assert night_report(since="3d", until="2d").is_quiet
    with refused("BAD_ARGUMENT", match="since must be like"):
        night_report(since="soon")


def test_a_plan_of_the_night_is_of_some_projects_or_of_all(shop: Path) -> None:
    """Until the time that is asked for; without a daemon nothing of it happens."""
    start_story(shop, "US-001")
    for found in (tonight(shop), tonight(until="8h")):
        assert ["US-001"] == [one.story for one in found.stories]
        assert not found.daemon
    with refused("BAD_ARGUMENT", match="until must be like"):
        tonight(until="soon")


def test_a_peek_does_not_add_the_folder(shop: Path) -> None:
    """Its files decide."""
    with pytest.raises(NotFound):
        peek(shop)
    state = shop / ".ai" / "STATE.json"
    state.write_text('{"project": "shop", "story": "US-002", "step": "bdd", "status": "pending"}')
    before = state.read_bytes()

    seen = peek(shop)

    assert ("bdd", "dispatched") == (seen.step, seen.result.type)
    assert "US-002" in (seen.prompt or "")
    assert before == state.read_bytes()
    assert ["STATE.json", "step-rules.yaml"] == sorted(path.name for path in (shop / ".ai").iterdir())


def test_prerequisites_and_checklist(shop: Path) -> None:
    """The missing files of the current step; boxes for a story."""
    init_state(shop)
    start_story(shop, "US-001")

    assert ("PROJECT_MEMORY.md",) == check_prerequisites(shop).missing
    assert not generate_checklist(str(shop), "US-001")
    assert generate_checklist(str(shop), "US-002")


# --- messages ----------------------------------------------------------------------------------------
def test_a_message_is_carried_out(shop: Path) -> None:
    """A question makes nothing; at level 1 the reply to a start has the prompt."""
    assert "query" == auto(shop, "what is the status?").action
    assert not (shop / ".ai" / "STATE.json").exists()
    started = auto(shop, "start US-001")
    assert ("dispatched", "bdd") == (started.action, (started.result or {})["step"])
    assert (started.result or {})["prompt"]

    asked = auto(shop, "目前進度如何？")
    assert ("query", "US-001") == (asked.action, read_state(shop).story)
    assert "US-001" in asked.report


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("approve", "approve"),
        ("LGTM", "approve"),
        ("進度？", "query"),
        ("rename the receipt", "start_custom"),
    ],
)
def test_a_message_is_classified(text: str, kind: str) -> None:
    """By rules, without a project."""
    assert kind == classify(text).kind


# --- asking, and answers as values -------------------------------------------------------------------
def test_a_running_daemon_is_asked(control: Controlled) -> None:
    """With exactly the given arguments."""
    verb("note", "/srv/shop", text="Cents.", note=None)
    taken = dispatch("/srv/shop")

    given = [asked for _, asked in control.supervision.given]
    assert [Noted(text="Cents.", by=account()), PromptTaken(dispatch="d-1", by=account())] == given
    assert taken.type == "dispatched"
    assert "# Do bdd" == taken.prompt
    assert "bdd" == peek("/srv/shop").step


def test_the_path_of_a_project_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From text or a path; relative, or below a home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/mei")

    assert str(tmp_path / "shop") == path_of("shop") == path_of(Path("shop"))
    assert "/home/mei/shop" == path_of("~/shop")


TAKEN = {
    "type": "dispatched", "project": "/srv/shop", "story": "US-1", "step": "bdd", "attempt": 1,
    "dispatch": "d-1", "caller_instruction": "do it", "prompt": "# Do bdd", "fw_lv": 2, "waits_for": None,
}  # fmt: skip


def test_an_answer_becomes_a_value_or_is_raised() -> None:
    """By its type; unknown keys are left out, because a later release may add some."""
    result = dispatch_result(TAKEN)
    assert result.type == "dispatched"
    assert ("# Do bdd", 2) == (result.prompt, result.fw_lv)
    blocked = {"type": "blocked", "step": "bdd", "reason": "by US-0", "caller_instruction": "wait"}
    assert "blocked" == dispatch_result(blocked).type

    command = "handoffd level . 1"
    answer = {"type": "error", "code": "SUPERVISED", "message": "level 2", "next_command": command}
    with refused("SUPERVISED", command, match="level 2"):
        accepted(answer)
