"""What a program asks of one project: to change it, to read it, to do what a message means.

Except for `peek`, the functions that only read use the project's files alone, at any level. The daemon is
where this process's environment says.
"""

from __future__ import annotations

import os
from typing import Any, Literal

from msgspec import Struct

from handoffd.engine.views import Applied, Peek
from handoffd.entrance import requests
from handoffd.entrance.place import Place
from handoffd.entrance.requests import give, say
from handoffd.errors import Json
from handoffd.forecast.plan import Tonight
from handoffd.inspection import discovery, framework, project_status, sessions
from handoffd.inspection.discovery import ListedProject
from handoffd.inspection.framework import Framework
from handoffd.inspection.project_status import PrerequisiteCheck, ProjectStatus, parsed_state, state_of
from handoffd.inspection.sessions import SessionPrompt
from handoffd.library.results import Checked, DispatchResult, accepted, dispatch_result, value_of
from handoffd.protocol.rules import Gates, Language
from handoffd.protocol.state import Reason, State
from handoffd.report.values import Report


# --- what changes a project --------------------------------------------------------------------------
def init_state(
    root: Root, project: str | None = None, settings: str | None = None, *, gates: Gates | None = None
) -> State:
    """Prepare a project: its STATE.json, its settings, a note for agents. An existing STATE stays.

    `project` names a new project; None: its files do. `settings` is the text of its `.ai/handoffd.yaml`;
    None: the tests that are found. `gates` is written into it. Raises HandoffdError.
    """
    accepted(verb("init", root, name=project, settings=settings, gates=gates))
    return state_of(path_of(root))


def start_story(
    root: Root,
    story: str | None = None,
    *,
    text: str | None = None,
    title: str | None = None,
    force: bool = False,
    go_on: bool = False,
    agent_teams: bool = False,
    blocked_by: tuple[str, ...] = (),
    automatic: bool = False,
    then: tuple[str, ...] = (),
    queue: bool = False,
    priority: int | None = None,
    complexity: Literal["S", "M", "L"] | None = None,
) -> State:
    """Begin a story, after initialising the project if it is new.

    `text` is what it shall bring, which each prompt quotes; without `story`, it then gets the project's next
    number. `title` None: what the first line of the text says.
    One that was aborted begins anew, and a ref keeps its work; with `go_on` it goes on from its old branch.
    The stories of `then` are queued behind it; with `queue` this one is queued, too, while another story is
    in flight. The project's level stays as it is; with `automatic` it becomes 2, and the daemon goes on by
    itself.
    Raises Refused (ALREADY_COMPLETED, ALREADY_RUNNING, STORY_IN_PROGRESS, INVALID_STORY, INVALID_TEXT,
    BLOCKED_IN_CIRCLE).
    """
    accepted(
        verb(
            "start", root, story=story, text=text, title=title, force=force, go_on=go_on,
            agent_teams=agent_teams, blocked_by=list(blocked_by), manual=not automatic, then=list(then),
            queue=queue, priority=priority, complexity=complexity,
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
    """Begin a custom task: `instruction` instead of a story. A story in flight resumes afterwards.

    `label` is what the task is called; None: CUSTOM and a number. Raises Refused (STORY_IN_PROGRESS).
    """
    answer = verb(
        "custom", root, text=instruction, label=label, agent_teams=agent_teams, manual=not automatic
    )
    accepted(answer)
    return state_of(path_of(root))


def dispatch(root: Root, *, story: str | None = None) -> DispatchResult:
    """Take the prompt of the next step; from then on you have it done (level 1).

    `story` names the one that is meant, where several are in flight, as in the functions that follow.
    Returns the outcome of the turn: the prompt, a gate, a wait, the end. Raises Refused (SUPERVISED at
    level 2, where the daemon dispatches; NOT_INITIALIZED).
    """
    return dispatch_result(verb("dispatch", root, story=story))


def apply_handoff(root: Root, *, story: str | None = None) -> Applied:
    """Apply the hand-off in `.ai/`, and return when its tests and post_check have ended.

    Each hand-off counts once. For one that cannot be read the type is `error`, and nothing changes.
    """
    return value_of(Applied, verb("apply", root, story=story))


def run_post_check(root: Root, *, story: str | None = None) -> Checked:
    """Run the post_check of the current step, and note in STATE whether it passed. Raises Refused."""
    return value_of(Checked, accepted(verb("check", root, story=story)))


def approve_review(root: Root, note: str | None = None, *, story: str | None = None) -> State:
    """Pass the human step; `note` goes into the next prompt. With `story`, only if it is that story's.

    Raises Refused (WRONG_STEP, WRONG_STORY, INSIDE_EXECUTOR).
    """
    accepted(verb("approve", root, note=note, story=story))
    return state_of(path_of(root), story)


def undo_approval(root: Root, *, story: str | None = None) -> State:
    """Have the human step wait for a decision again; with `story`, only if it is that story's.

    Raises Refused (TOO_LATE once the next attempt has begun, NOTHING_APPROVED, WRONG_STORY, INSIDE_EXECUTOR).
    """
    accepted(verb("undo", root, story=story))
    return state_of(path_of(root), story)


def reject_review(
    root: Root, reason: Reason | str, note: str | None = None, *, story: str | None = None
) -> State:
    """Send the story back from the human step; the reason chooses to where, at the next dispatch.

    With `story`, only if it is that story's. Raises Refused (WRONG_STEP, WRONG_STORY, BAD_ARGUMENT,
    INSIDE_EXECUTOR).
    """
    accepted(verb("reject", root, reason=str(reason), note=note, story=story))
    return state_of(path_of(root), story)


def rollback(
    root: Root,
    step: str,
    *,
    force: bool = False,
    files: bool = False,
    over: bool = False,
    story: str | None = None,
) -> State:
    """Go back to an earlier step; with `files`, also to the files as they were before it.

    `over`: also of files that not only attempts have changed since. `story`: the one that is meant,
    where several are in flight.

    Raises Refused (INVALID_TARGET, ROLLBACK_FORWARD, NEEDS_FORCE; NO_SNAPSHOT, FILES_EDITED, FILTERED_FILES).
    """
    accepted(verb("rollback", root, step=step, force=force, files=files, over=over, story=story))
    return state_of(path_of(root), story)


def reopen(root: Root, step: str, note: str | None = None, story: str | None = None) -> State:
    """Take a story that is done up again at `step`; `story` names it, where several are there.

    Raises Refused (NOT_DONE, INVALID_TARGET, REOPEN_TO_DONE).
    """
    accepted(verb("reopen", root, step=step, note=note, story=story))
    return state_of(path_of(root), story)


# --- what only reads ---------------------------------------------------------------------------------
def read_state(root: Root) -> State:
    """Return STATE.json, near-misses normalised.

    Raises Refused (NOT_INITIALIZED), InvalidFile, StoreError.
    """
    return project_status.state_of(path_of(root))


def peek(root: Root, *, story: str | None = None) -> Peek:
    """Return what the next turn would do, with its prompt where it would dispatch. Changes nothing.

    It does not start supervising a project: without a supervised one, the project's files decide.
    Raises HandoffdError, such as NotFound for a folder that has no STATE.json and is not supervised.
    """
    return value_of(Peek, requests.peek(place(), path_of(root), aside=_has_state, story=story).json)


def night_report(root: Root | None = None, since: str = "12h", until: str | None = None) -> Report:
    """Return what happened since then, what needs a person, and what goes on; of a project or of all.

    `since` and `until` are like `12h`, `7d`, `yesterday`, `2026-01-31`, or `2026-01-31T07:00`, by the local
    clock unless it has a zone.
    Raises Refused (BAD_ARGUMENT, TOO_MUCH_HISTORY), NotFound, StoreError.
    """
    project = None if root is None else path_of(root)
    return value_of(Report, requests.ask(place(), "report", project=project, since=since, until=until).json)


def tonight(*roots: Root, until: str | None = None) -> Tonight:
    """Return what would happen until then (08:00), and what stops it; in these projects, or in all.

    `until` is like `07:30`, `8h`, or `2026-01-31T07:00` (without a zone: by the local clock).
    Raises Refused (BAD_ARGUMENT), NotFound, StoreError.
    """
    named = "\n".join(path_of(root) for root in roots) or None
    return value_of(Tonight, requests.ask(place(), "tonight", projects=named, until=until).json)


def detect_framework(root: Root) -> Framework:
    """Return which files of the protocol there are, and the level (0, 1, 2) that follows."""
    return framework.detect_framework(path_of(root))


def query_project_status(root: Root) -> ProjectStatus:
    """Return the status of a project; `not_initialized` without a STATE.json."""
    return project_status.query_project_status(path_of(root))


def list_projects(folder: Root) -> tuple[ListedProject, ...]:
    """Return the projects in a folder, by name. Raises NotFound when it is not a folder."""
    return discovery.list_projects(path_of(folder))


def check_prerequisites(root: Root) -> PrerequisiteCheck:
    """Return which files of the current step's input are missing, and the step that would make them."""
    return project_status.check_prerequisites(path_of(root))


def review(root: Root, language: Language | None = None) -> SessionPrompt:
    """Return the prompt for a health check of any project, the richer the more of the protocol it has."""
    return sessions.review(path_of(root), language)


def triage(root: Root, language: Language | None = None) -> SessionPrompt:
    """Return the prompt that makes a plan of MEMORY's open issues. Raises Refused (NO_MEMORY, NO_ISSUES)."""
    return sessions.triage(path_of(root), language)


# --- text as in a chat -------------------------------------------------------------------------------
class Reply(Struct, frozen=True, kw_only=True):
    """The outcome of a message."""

    action: str
    """`query`, `dispatched`, `approved`, `noted`, `error` and so on; docs/reference/chat.md has all."""
    report: str
    """The report for the person, in the language of the message."""
    project: str | None
    """The root of the project that the message meant."""
    intent: dict[str, Any]
    """What was understood; see `Intent`."""
    result: dict[str, Any] | None
    """The answer of the verb or read behind it; of a dispatch with its `prompt` and `caller_instruction`."""


def auto(root: Root, text: str, language: Language | None = None) -> Reply:
    """Do what a message means, by rules alone: answer a question, give a verb, start a task.

    Free text never opens a gate. A message that cannot be carried out has a reply, too (action `error`, or
    `unclear`).
    """
    answer = say(place(), path_of(root), text, language).json
    return Reply(
        action=answer["action"], report=answer["report"], project=answer.get("project"),
        intent=answer["intent"], result=answer.get("result"),
    )  # fmt: skip


# --- asking the daemon ------------------------------------------------------------------------------
Root = str | os.PathLike[str]
"""A project's folder; a relative one is taken from where the process is."""


def path_of(root: Root) -> str:
    """Return the absolute path of a project's folder."""
    return os.path.abspath(os.path.expanduser(os.fspath(root)))


def place() -> Place:
    """Return where to look for the daemon: the same place as the command line."""
    return Place(config=os.environ.get("HANDOFFD_CONFIG"), environ=os.environ)


def verb(name: str, root: Root, /, **arguments: Any) -> Json:
    """Return the answer to a verb; arguments that are None are left out. Raises HandoffdError.

    A folder with a STATE.json that is not supervised yet is added first, at level 1.
    """
    given = {key: value for key, value in arguments.items() if value is not None}
    return give(place(), name, path_of(root), given, adds=_has_state).json


def _has_state(path: str) -> bool:
    """Return whether a folder has a STATE.json. Raises InvalidFile for one without meaning, StoreError."""
    return os.path.isdir(path) and parsed_state(path) is not None
