"""The verbs people can give, as one table: what each takes, which event it is, and which are for people only.

Commands, endpoints and their description, the tools of MCP, the checks of what was given and the tables of
the manual are made from it; the functions of the library are held against it. Standard library only: the
command line reads it at every start. What a type of parameter takes is in `arguments`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

MAX_TEXT = 64 * 1024
"""Characters of a note or an instruction; more would crowd out the rest of a prompt."""

MOST_PATHS = 1000
"""So many projects can be named at once."""

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One argument of a verb, beside its project."""

    name: str
    type: Literal[
        "text", "story", "stories", "step", "reason", "flag", "executors", "amount", "count", "level",
        "priority", "paths",
    ]  # fmt: skip
    required: bool = False
    help: str = ""
    choices: tuple[str, ...] = ()
    """Of a text: the only ones it may be."""
    guards: bool = False
    """Whether what is left empty is refused: a variable of a script that is not set shall open nothing."""
    trailing: bool = False
    """Of stories: on a command line, the words behind those that must be said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbSpec:
    """One verb. `guard` says when it is refused to processes of executors.

    `always`: it opens a gate, lifts a limit or trusts something; `forced`: only when `force` is
    given; `unknown`: only when forced, for a project that is not supervised yet, or where it would have a
    project dispatched that people dispatch (level 1). `event` is the kind of the one event that it is for the
    engine; None: it is none, or does more (see `service`). `adds`: it takes nothing away, what was there
    before is there after. `repeats`: it does nothing more when it is given again.
    """

    name: str
    help: str
    parameters: tuple[Parameter, ...] = ()
    guard: Literal["never", "forced", "unknown", "always"] = "never"
    event: str | None = None
    adds: bool = False
    repeats: bool = False

    @property
    def typed(self) -> str:
        """How it is typed behind `handoffd`: `backlog_move` is `backlog move`."""
        return self.name.replace("_", " ")


TAKE = Parameter(name="take", type="flag", help="also what belongs to another handoffd, which loses it")
_NOTE = Parameter(name="note", type="text", help="what the next prompt shall say")
_WHOSE_GATE = Parameter(
    name="story", type="story", guards=True, help="refuse, if by now it is another story that waits"
)
_FORCE = Parameter(name="force", type="flag", help="do it although something speaks against it")
_QUEUE = Parameter(name="queue", type="flag", help="begin when the story in flight is done")
_EXECUTORS = Parameter(
    name="executor", type="executors", help="who works on it: NAME, or NAME,NAME with the best first"
)
_TEAMS = Parameter(name="agent_teams", type="flag", help="ask the executor to lead an agent team")
_PRIORITY = Parameter(name="priority", type="priority", help="how urgent it is; more is sooner, 0 is usual")
_COMPLEXITY = Parameter(
    name="complexity", type="text", choices=("S", "M", "L"), help="how much it is: S, M or L"
)
_REASONS = (
    "selects the step it goes back to: needs_clarification (→ bdd), constitution_violation (→ sdd-delta), "
    "scope_warning (→ sdd-delta), nfr_missing (→ bdd), test_timeout (→ bdd); a project's own rules may differ"
)
_QUEUED = Parameter(name="story", type="story", required=True, help="a story of the backlog")

_MANUAL = Parameter(
    name="manual", type="flag", help="dispatch nothing: the level stays as it is, 1 for a new project"
)

_SPECS: Final = (
    VerbSpec(
        name="init",
        help="Prepare a project: STATE.json, settings, a pointer for agents; supervise it.",
        parameters=(Parameter(name="name", type="text", help="what a new project is called"),),
        guard="always",
        adds=True,
        repeats=True,
    ),
    VerbSpec(
        name="add",
        help="Supervise a project; dispatches nothing, unless its settings say `auto`.",
        parameters=(TAKE,),
        guard="always",
        adds=True,
        repeats=True,
    ),
    VerbSpec(name="remove", help="Supervise a project no longer; its files and its history stay."),
    VerbSpec(
        name="trust",
        help="Put edits of a project's settings and rules that are held into force.",
        guard="always",
        adds=True,
        repeats=True,
    ),
    VerbSpec(
        name="start",
        help="Start a story; further ones wait in the backlog.",
        parameters=(
            Parameter(name="story", type="story", required=True, help="its id, e.g. US-001"),
            Parameter(
                name="then", type="stories", trailing=True, help="further stories, for the backlog behind it"
            ),
            _QUEUE,
            Parameter(name="force", type="flag", help="replace the story in flight, or do a done one again"),
            Parameter(name="blocked_by", type="stories", help="a story that must be done first"),
            _PRIORITY,
            _COMPLEXITY,
            _TEAMS,
            _EXECUTORS,
            _MANUAL,
        ),
        guard="unknown",
        event="started",
        adds=True,
    ),
    VerbSpec(
        name="custom",
        help="Start a custom task: an instruction of your own instead of a story.",
        parameters=(
            Parameter(name="text", type="text", required=True, help="what shall be done"),
            Parameter(name="label", type="story", help="what the task is called; else CUSTOM and a number"),
            _QUEUE,
            _PRIORITY,
            _COMPLEXITY,
            _TEAMS,
            _EXECUTORS,
            _MANUAL,
        ),
        guard="unknown",
        event="started",
        adds=True,
    ),
    VerbSpec(
        name="dispatch",
        help="Take the prompt of the next step, to have it done by hand or by another tool (level 1).",
        adds=True,
    ),
    VerbSpec(
        name="apply",
        help="Hear the hand-off of a step that was done by hand, and check what it claims (level 1).",
        adds=True,
        repeats=True,
    ),
    VerbSpec(
        name="check",
        help="Run the post_check of the current step.",
        adds=True,
    ),
    VerbSpec(
        name="level",
        help="Choose who dispatches: 2 handoffd, 1 people and other tools.",
        parameters=(Parameter(name="level", type="level", required=True, help="1 or 2; for 0, remove it"),),
        guard="always",
        event="level_chosen",
        repeats=True,
    ),
    VerbSpec(
        name="approve",
        help="Pass the human step the story waits at.",
        parameters=(_NOTE, _WHOSE_GATE),
        guard="always",
        event="approved",
    ),
    VerbSpec(
        name="reject",
        help="Send the story back from the human step it waits at.",
        parameters=(
            Parameter(name="reason", type="reason", required=True, help=_REASONS),
            _NOTE,
            _WHOSE_GATE,
        ),
        guard="always",
        event="rejected",
    ),
    VerbSpec(
        name="retry",
        help="Try the current step afresh, with all its attempts.",
        guard="always",
        event="retried",
    ),
    VerbSpec(
        name="skip",
        help="Pass the current step without evidence; recorded as such.",
        guard="always",
        event="skipped",
    ),
    VerbSpec(
        name="abort",
        help="End the executor and close the story.",
        event="aborted",
    ),
    VerbSpec(
        name="pause",
        help="Dispatch nothing more; what runs ends normally.",
        event="paused",
        adds=True,
        repeats=True,
    ),
    VerbSpec(
        name="resume",
        help="Lift a pause; dispatch by itself; start the next story of the backlog.",
        guard="always",
        event="resumed",
        adds=True,
        repeats=True,
    ),
    VerbSpec(
        name="continue",
        help="Start the next story of the backlog, where none is in flight.",
        event="continued",
        adds=True,
    ),
    VerbSpec(
        name="backlog_move",
        help="Give a story of the backlog another place; first, unless told otherwise.",
        parameters=(
            _QUEUED,
            Parameter(name="before", type="story", help="the story before which it shall stand"),
            Parameter(name="last", type="flag", help="behind all others"),
        ),
        event="backlog_moved",
        adds=True,
        repeats=True,
    ),
    VerbSpec(
        name="backlog_edit",
        help="Change what was said of a story of the backlog.",
        parameters=(
            _QUEUED,
            _PRIORITY,
            Parameter(
                name="blocked_by", type="stories", help="a story that must be done first, and no other"
            ),
            Parameter(name="unblock", type="flag", help="it waits for no story any more"),
            _COMPLEXITY,
            _EXECUTORS,
        ),
        event="backlog_edited",
        repeats=True,
    ),
    VerbSpec(
        name="backlog_remove",
        help="Take stories out of the backlog.",
        parameters=(
            Parameter(
                name="stories", type="stories", required=True, trailing=True, help="stories of the backlog"
            ),
        ),
        event="backlog_removed",
    ),
    VerbSpec(
        name="backlog_auto",
        help="Choose whether the next story of the backlog starts by itself.",
        parameters=(
            Parameter(
                name="auto",
                type="text",
                required=True,
                choices=("on", "off", "default"),
                help="on; off, a `continue` starts it; or default, as the settings say",
            ),
        ),
        guard="always",
        event="auto_continue_chosen",
        adds=True,
        repeats=True,
    ),
    VerbSpec(
        name="note",
        help="Say something in the next prompt.",
        parameters=(Parameter(name="text", type="text", required=True, help="the note"),),
        event="noted",
        adds=True,
    ),
    VerbSpec(
        name="use",
        help="Choose who works on the story in flight, from its next attempt on.",
        parameters=(
            Parameter(
                name="executor",
                type="executors",
                required=True,
                help="NAME; NAME,NAME with the best first; auto; or default, for what the settings say",
            ),
        ),
        guard="always",
        event="executor_chosen",
        repeats=True,
    ),
    VerbSpec(
        name="rollback",
        help="Go back to an earlier step.",
        parameters=(
            Parameter(name="step", type="step", required=True, help="an earlier step of the pipeline"),
            _FORCE,
        ),
        guard="forced",
        event="rolled_back",
    ),
    VerbSpec(
        name="reopen",
        help="Take a story that is done up again.",
        parameters=(Parameter(name="step", type="step", required=True, help="the step to begin at"), _NOTE),
        guard="always",
        event="reopened",
    ),
    VerbSpec(
        name="budget",
        help="Let a project, its story or each attempt spend more than the settings do.",
        parameters=(
            Parameter(name="story", type="story", help="the story in flight, and not the project as a whole"),
            Parameter(name="attempt", type="flag", help="each attempt of the story in flight"),
            Parameter(name="usd", type="amount", help="how many dollars in all"),
            Parameter(name="tokens", type="count", help="how many tokens in all"),
        ),
        guard="always",
        event="budget_raised",
    ),
    VerbSpec(
        name="confirm",
        help="Adopt the edit of STATE.json that is held.",
        guard="always",
        event="edit_confirmed",
    ),
)

VERBS: Final[Mapping[str, VerbSpec]] = {spec.name: spec for spec in _SPECS}
