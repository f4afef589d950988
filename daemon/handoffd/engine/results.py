"""What a decision says to whoever asked: the result types of the protocol, as values.

They are the JSON of the CLI and of the control API. Each carries `caller_instruction`, one sentence
that tells an LLM caller what is true now and what to do next, and `next_command`, what a person would
type next; both hold `{project}` for a project that is put in by whoever shows them (`commands.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Dispatched:
    """An executor is being started."""

    project: str
    story: str | None
    step: str
    attempt: int
    dispatch: str
    caller_instruction: str
    next_command: str | None = None
    type: Literal["dispatched"] = "dispatched"


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The story is done."""

    story: str | None
    summary: str
    caller_instruction: str
    next_command: str | None = None
    next_story: str | None = None
    review_suggested: bool = False
    """Three stories have ended, or were reopened, since a review of the whole project was suggested last."""
    type: Literal["done"] = "done"


@dataclass(frozen=True, kw_only=True)
class NeedsHuman:
    """A person must act."""

    step: str
    message: str
    caller_instruction: str
    next_command: str | None = None
    review: tuple[str, ...] = ()
    type: Literal["needs_human"] = "needs_human"


@dataclass(frozen=True, kw_only=True)
class Blocked:
    """Nothing can be dispatched until something else changes."""

    step: str
    reason: str
    caller_instruction: str
    next_command: str | None = None
    type: Literal["blocked"] = "blocked"


@dataclass(frozen=True, kw_only=True)
class AlreadyRunning:
    """An attempt is in flight."""

    step: str
    elapsed_min: float
    last_error: str | None
    caller_instruction: str
    next_command: str | None = None
    type: Literal["already_running"] = "already_running"


@dataclass(frozen=True, kw_only=True)
class TimedOut:
    """The attempt ran out of time."""

    step: str
    elapsed_min: float
    message: str
    caller_instruction: str
    next_command: str | None = None
    type: Literal["timeout"] = "timeout"


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """The event was refused or ignored; nothing changed. `recoverable`: asking later may work."""

    code: str
    message: str
    caller_instruction: str
    next_command: str | None = None
    step: str | None = None
    recoverable: bool = True
    type: Literal["error"] = "error"


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """The event was taken; the track stands at `step` with `status`."""

    step: str
    status: str
    message: str
    caller_instruction: str
    next_command: str | None = None
    type: Literal["accepted"] = "accepted"


Result = Dispatched | Finished | NeedsHuman | Blocked | AlreadyRunning | TimedOut | Refusal | Accepted
