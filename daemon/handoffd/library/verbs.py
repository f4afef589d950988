"""The functions that change a project."""

from __future__ import annotations

from typing import Literal

from handoffd.inspection.project_status import state_of
from handoffd.library.asking import Root, path_of, verb
from handoffd.library.results import (
    Applied,
    Checked,
    DispatchResult,
    accepted,
    applied_result,
    checked_result,
    dispatch_result,
)
from handoffd.protocol.state import Reason, State


def init_state(root: Root, project: str | None = None) -> State:
    """Prepare a project: its STATE.json, its settings, a note for agents. One that has a STATE keeps it.

    `project` is what a new one is called; None: what its own files call it. Raises HandoffdError.
    """
    accepted(verb("init", root, name=project))
    return state_of(path_of(root))


def start_story(
    root: Root,
    story: str,
    *,
    force: bool = False,
    agent_teams: bool = False,
    blocked_by: tuple[str, ...] = (),
    automatic: bool = False,
    then: tuple[str, ...] = (),
    queue: bool = False,
    priority: int | None = None,
    complexity: Literal["S", "M", "L"] | None = None,
) -> State:
    """Begin a story; a project that is not initialised yet is, first.

    Those of `then` wait in the backlog behind it, and with `queue` all of them do while another story is
    in flight. The project's level stays as it is; with `automatic` it becomes 2, and the daemon goes on by
    itself.
    Raises Refused (ALREADY_COMPLETED, ALREADY_RUNNING, STORY_IN_PROGRESS, INVALID_STORY, BLOCKED_IN_CIRCLE).
    """
    accepted(
        verb(
            "start", root, story=story, force=force, agent_teams=agent_teams,
            blocked_by=list(blocked_by), manual=not automatic, then=list(then), queue=queue,
            priority=priority, complexity=complexity,
        )
    )  # fmt: skip
    return state_of(path_of(root))


def start_next(root: Root) -> State:
    """Begin the next story of the backlog.

    Raises Refused (STORY_IN_PROGRESS, BACKLOG_EMPTY, BLOCKED, PAUSED).
    """
    accepted(verb("continue", root))
    return state_of(path_of(root))


def start_custom(
    root: Root,
    instruction: str,
    *,
    label: str | None = None,
    agent_teams: bool = False,
    automatic: bool = False,
) -> State:
    """Begin a custom task: `instruction` instead of a story. A story in flight is given back afterwards.

    `label` is what the task is called; None: CUSTOM and a number. Raises Refused (STORY_IN_PROGRESS).
    """
    answer = verb(
        "custom", root, text=instruction, label=label, agent_teams=agent_teams, manual=not automatic
    )
    accepted(answer)
    return state_of(path_of(root))


def dispatch(root: Root) -> DispatchResult:
    """Take the prompt of the next step, which is yours to have done from then on (level 1).

    Returns what the turn came to: the prompt, a gate, a wait, the end. Raises Refused (SUPERVISED at
    level 2, where the daemon dispatches; NOT_INITIALIZED).
    """
    return dispatch_result(verb("dispatch", root))


def apply_handoff(root: Root) -> Applied:
    """Hear the hand-off that lies in `.ai/`, and return when its tests and post_check have ended.

    Each hand-off counts once. One that cannot be read is of type `error`, and changes nothing.
    """
    return applied_result(verb("apply", root))


def run_post_check(root: Root) -> Checked:
    """Run the post_check of the current step, and note in STATE whether it passed. Raises Refused."""
    return checked_result(verb("check", root))


def approve_review(root: Root, note: str | None = None, *, story: str | None = None) -> State:
    """Pass the human step; `note` goes into the next prompt. With `story`, only if it is that story's.

    Raises Refused (WRONG_STEP, WRONG_STORY, INSIDE_EXECUTOR).
    """
    accepted(verb("approve", root, note=note, story=story))
    return state_of(path_of(root))


def reject_review(
    root: Root, reason: Reason | str, note: str | None = None, *, story: str | None = None
) -> State:
    """Send the story back from the human step; the reason chooses to where, at the next dispatch.

    With `story`, only if it is that story's. Raises Refused (WRONG_STEP, WRONG_STORY, BAD_ARGUMENT,
    INSIDE_EXECUTOR).
    """
    accepted(verb("reject", root, reason=str(reason), note=note, story=story))
    return state_of(path_of(root))


def rollback(root: Root, step: str, *, force: bool = False) -> State:
    """Go back to an earlier step. Raises Refused (INVALID_TARGET, ROLLBACK_FORWARD, NEEDS_FORCE)."""
    accepted(verb("rollback", root, step=step, force=force))
    return state_of(path_of(root))


def reopen(root: Root, step: str, note: str | None = None) -> State:
    """Take a story that is done up again at `step`.

    Raises Refused (NOT_DONE, INVALID_TARGET, REOPEN_TO_DONE).
    """
    accepted(verb("reopen", root, step=step, note=note))
    return state_of(path_of(root))
