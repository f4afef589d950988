"""What people ask for, in the past tense: they gave it, and `decide` may refuse it. Facts are in `events`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from handoffd.protocol.rules import Complexity
from handoffd.protocol.state import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Initialised:
    """The project was given its first STATE. `done` names the stories that were done before."""

    project: str
    done: tuple[str, ...] = ()
    as_published: bool = False
    """Whether its limits are those of the protocol's initial state; False: of a release with the step's."""
    kind: Literal["initialised"] = "initialised"


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A story or custom task was asked for, and those of `then` behind it, each as said here.

    `bootstrapped` tells whether the project already has its PROJECT_CONTEXT.md; `automatic` makes
    the track Level 2. `schedule` is the one that asked, because it was `due`; None: a person did.
    """

    story: str
    task_type: str = "story"
    instruction: str | None = None
    bootstrapped: bool = True
    automatic: bool = True
    agent_teams: bool = False
    blocked_by: tuple[str, ...] = ()
    queue: bool = False
    force: bool = False
    executor: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    priority: int = 0
    complexity: Complexity | None = None
    schedule: str | None = None
    due: datetime | None = None
    tells_aside: bool = False
    """Whether the answer says which story is set aside; False: of a release that did so without a word."""
    heeds_begun: bool = False
    """Whether a story set aside behind the bootstrap shows that the project has had that; False: of a release
    in which only a story that was done did."""
    keeps_place: bool = False
    """Whether `force`, too, takes a story that was set aside up where it stood; False: of a release in which
    that began it anew."""
    by: str = "cli"
    kind: Literal["started"] = "started"


@dataclass(frozen=True, slots=True, kw_only=True)
class Continued:
    """The next story of the backlog shall start."""

    by: str = "cli"
    kind: Literal["continued"] = "continued"


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogMoved:
    """A story of the backlog shall have another place: before another one; else first, or last."""

    story: str
    before: str | None = None
    last: bool = False
    by: str = "cli"
    kind: Literal["backlog_moved"] = "backlog_moved"


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogEdited:
    """What was said of a story of the backlog shall be otherwise; None stays as it is."""

    story: str
    priority: int | None = None
    blocked_by: tuple[str, ...] | None = None
    complexity: Complexity | None = None
    executor: tuple[str, ...] | None = None
    by: str = "cli"
    kind: Literal["backlog_edited"] = "backlog_edited"


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogRemoved:
    """Stories of the backlog shall not be started."""

    stories: tuple[str, ...]
    by: str = "cli"
    kind: Literal["backlog_removed"] = "backlog_removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoContinueChosen:
    """The next story of the backlog shall start by itself, or not; None: as the settings say."""

    on: bool | None
    by: str = "cli"
    kind: Literal["auto_continue_chosen"] = "auto_continue_chosen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """A human step was approved; of `story`, if somebody said which."""

    note: str | None = None
    story: str | None = None
    by: str = "cli"
    kind: Literal["approved"] = "approved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A human step was rejected, of `story`, if somebody said which; the reason routes it."""

    reason: Reason | None = None
    note: str | None = None
    story: str | None = None
    by: str = "cli"
    kind: Literal["rejected"] = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """The current step shall be tried afresh."""

    by: str = "cli"
    kind: Literal["retried"] = "retried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """The current step shall pass without evidence."""

    by: str = "cli"
    kind: Literal["skipped"] = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """The track shall end here."""

    by: str = "cli"
    kind: Literal["aborted"] = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """Nothing shall be dispatched until `Resumed`."""

    by: str = "cli"
    kind: Literal["paused"] = "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """A pause is lifted, and a Level 1 track becomes Level 2."""

    by: str = "cli"
    kind: Literal["resumed"] = "resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """A note for the next prompt."""

    text: str
    by: str = "cli"
    kind: Literal["noted"] = "noted"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledBack:
    """The track shall go back to an earlier step."""

    step: str
    force: bool = False
    by: str = "cli"
    kind: Literal["rolled_back"] = "rolled_back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopened:
    """A story that was done is taken up again at `step`.

    `entry` is the form of what is appended to the history: 1 as releases before wrote it, 2 as the reference.
    """

    step: str
    note: str | None = None
    entry: Literal[1, 2] = 1
    by: str = "cli"
    kind: Literal["reopened"] = "reopened"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTaken:
    """A person or another tool takes the prompt of the next turn, to do that step (Level 1).

    `dispatch` is the id under which the prompt is kept; `unmet` are the stories that must be done first
    and are not; `keeps_gate` and `reopenings` as in `Advanced`.
    """

    dispatch: str
    unmet: tuple[str, ...] = ()
    by: str = "cli"
    keeps_gate: bool = False
    reopenings: int | None = None
    kind: Literal["prompt_taken"] = "prompt_taken"


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelChosen:
    """The project shall go on by itself (Level 2), or step by step, by people (Level 1)."""

    level: Literal[1, 2]
    by: str = "cli"
    kind: Literal["level_chosen"] = "level_chosen"


@dataclass(frozen=True, slots=True, kw_only=True)
class PostChecked:
    """The step's post_check was run because somebody asked for it, outside any judgement."""

    passed: bool
    by: str = "cli"
    kind: Literal["post_checked"] = "post_checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class EditConfirmed:
    """A person confirmed the edit of STATE.json that was held."""

    by: str = "cli"
    kind: Literal["edit_confirmed"] = "edit_confirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRaised:
    """More may be spent: `usd` dollars and `tokens` in all, where they are given.

    `story` names the one that was meant; it must be the one in flight.
    """

    scope: Literal["attempt", "story", "project"]
    story: str | None = None
    usd: float | None = None
    tokens: int | None = None
    by: str = "cli"
    kind: Literal["budget_raised"] = "budget_raised"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorChosen:
    """The story in flight shall be worked on by one of these, the best first; empty: as the settings say."""

    executor: tuple[str, ...] = ()
    by: str = "cli"
    kind: Literal["executor_chosen"] = "executor_chosen"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitLifted:
    """An account's limit shall not be waited for any more."""

    account: str
    by: str = "cli"
    kind: Literal["limit_lifted"] = "limit_lifted"


Verb = (
    Initialised
    | Started
    | Approved
    | Rejected
    | Retried
    | Skipped
    | Aborted
    | Paused
    | Resumed
    | Noted
    | RolledBack
    | Reopened
    | EditConfirmed
    | ExecutorChosen
    | LimitLifted
    | BudgetRaised
    | PromptTaken
    | LevelChosen
    | PostChecked
    | Continued
    | BacklogMoved
    | BacklogEdited
    | BacklogRemoved
    | AutoContinueChosen
)
