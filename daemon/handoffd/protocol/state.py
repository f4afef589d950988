"""STATE.json, the public face of a track, as a value.

The file is a contract with other tools: unknown keys survive a round trip, in their place, and
near-misses of known values are normalised with a warning, never silently. `document.py` turns text
into these models and back; this module holds the models and the names that people misspell.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from handoffd.clock import rfc3339

MAX_NUMBER = 1_000_000_000
"""No count and no number of minutes is larger: what is would break dates and the journal's columns."""


def _moment(value: object) -> datetime:
    """Return a moment in UTC; a text without an offset is taken as UTC, as tools' `date -u` means it."""
    if not isinstance(value, str | datetime):
        raise ValueError("must be a date and time such as 2026-01-31T22:15:09Z")  # noqa: TRY004
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("must be a date and time such as 2026-01-31T22:15:09Z") from None


Moment = Annotated[
    datetime,
    BeforeValidator(_moment),
    PlainSerializer(rfc3339, return_type=str, when_used="json"),
]
"""A moment in UTC, RFC 3339 in files."""

_Count = Annotated[int, Field(strict=True, ge=0, le=MAX_NUMBER)]
_Ordinal = Annotated[int, Field(strict=True, ge=1, le=MAX_NUMBER)]


def _as_written(value: object, check: ValidatorFunctionWrapHandler) -> object:
    checked = check(value)
    return value if isinstance(value, int) else checked


Minutes = Annotated[
    float,
    Field(strict=True, ge=0, le=MAX_NUMBER, allow_inf_nan=False),
    WrapValidator(_as_written),
    PlainSerializer(lambda minutes: minutes, return_type=int | float),
]
"""A number of minutes, kept as it was written: 5 stays 5."""


class Status(StrEnum):
    """Where the current attempt of the current step stands."""

    PENDING = "pending"
    RUNNING = "running"
    PASS = "pass"  # noqa: S105
    FAILING = "failing"
    NEEDS_HUMAN = "needs_human"
    TIMEOUT = "timeout"


class Reason(StrEnum):
    """Why an attempt failed or needs a person; selects the route in the step table."""

    CONSTITUTION_VIOLATION = "constitution_violation"
    NEEDS_CLARIFICATION = "needs_clarification"
    NFR_MISSING = "nfr_missing"
    SCOPE_WARNING = "scope_warning"
    TEST_TIMEOUT = "test_timeout"


NEAR_STATUS: Mapping[str, Status] = {
    **dict.fromkeys(("passing", "passed", "done", "complete", "completed"), Status.PASS),
    **dict.fromkeys(("failed", "fail", "failure"), Status.FAILING),
    **dict.fromkeys(("timed_out", "timedout"), Status.TIMEOUT),
    **dict.fromkeys(("human", "blocked"), Status.NEEDS_HUMAN),
}
"""Other words for a status that the protocol accepts, with a warning."""

STEP_ALIASES: Mapping[str, str] = {
    **dict.fromkeys(("api-contract", "api_contract", "contract-update", "api-contract-update"), "contract"),
    **dict.fromkeys(("test-scaffolding", "test_scaffolding", "scaffolding", "test-scaffold"), "scaffold"),
    **dict.fromkeys(("sdd_delta", "sdd", "delta", "delta-spec"), "sdd-delta"),
    **dict.fromkeys(("quality-gate", "quality_gate"), "verify"),
    **dict.fromkeys(("update_memory", "memory-update"), "update-memory"),
    "implementation": "impl",
    "commit-changes": "commit",
}
"""Other names under which hand-offs may speak of a step; none of them can be a step's own name."""


def near_status(word: str) -> Status | None:
    """Return the status that `word` means, whatever its case and separators; None for no status."""
    spelt = _spelt(word)
    return Status(spelt) if spelt in set(Status) else NEAR_STATUS.get(spelt)


def near_reason(word: str) -> Reason | None:
    """Return the reason that `word` means, whatever its case and separators; None for no reason."""
    spelt = _spelt(word)
    return Reason(spelt) if spelt in set(Reason) else None


def canonical_step(word: str) -> str:
    """Return the step that `word` names, aliases resolved; a name that is no alias is only respelt."""
    spelt = "-".join(word.strip().lower().split())
    hyphened = spelt.replace("_", "-")
    return STEP_ALIASES.get(spelt) or STEP_ALIASES.get(hyphened) or hyphened


def same_step(one: str, other: str) -> bool:
    """Tell whether two names mean one step, aliases and spelling aside."""
    return canonical_step(one) == canonical_step(other)


def _spelt(word: str) -> str:
    return word.strip().lower().replace("-", "_").replace(" ", "_")


class TestCounts(BaseModel):
    """Numbers of test results."""

    __test__ = False  # not a test class, whatever its name says to pytest

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True, serialize_by_alias=True)

    passed: _Count = Field(0, alias="pass", description="Tests that passed.")
    failed: _Count = Field(0, alias="fail", description="Tests that failed or could not run.")
    skipped: _Count = Field(0, alias="skip", description="Tests that were skipped.")


class State(BaseModel):
    """One STATE.json: where a track stands. Unknown keys are kept.

    Two states are equal when their values are; the order of keys is presentation. `with_` copies
    share their document's key order.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    project: str = Field(min_length=1, description="Name of the project.")
    story: str | None = Field(None, description="Id of the story or custom task, such as US-005.")
    step: str = Field("bootstrap", min_length=1, description="The step of the pipeline that is in hand.")
    attempt: _Ordinal = Field(1, description="Attempt of this step; rises only on a retry.")
    max_attempts: _Ordinal = Field(1, description="Attempts the step may take, copied from its rule.")
    status: Status = Field(Status.PENDING, description="Where the attempt stands.")
    reason: Reason | None = Field(None, description="Why the attempt failed or needs a person.")
    dispatched_at: Moment | None = Field(None, description="When the executor was sent off (RFC 3339, UTC).")
    completed_at: Moment | None = Field(None, description="When the attempt was over (RFC 3339, UTC).")
    timeout_min: Minutes = Field(5, description="Minutes an attempt may take; 0 for no limit.")
    tests: TestCounts | None = Field(None, description="Test results of the attempt.")
    failing_tests: tuple[str, ...] = Field((), description="Names of the tests that fail.")
    lint_pass: bool | None = Field(None, strict=True, description="Result of the rule's post_check.")
    files_changed: tuple[str, ...] = Field((), description="Files the attempt changed.")
    blocked_by: tuple[str, ...] = Field(
        (), description="Stories that must be done first; max_attempts_exceeded is reserved."
    )
    human_note: str | None = Field(None, description="A person's note for the next prompt.")
    last_error: str | None = Field(None, description="What went wrong last, in one line.")
    task_type: str = Field("story", min_length=1, description="Which pipeline: story, custom or another.")
    agent_teams: bool = Field(False, strict=True, description="Ask the executor to lead a team of agents.")
    reopened_from: str | None = Field(None, description="The step at which a finished story was taken up.")

    _layout: tuple[str, ...] = PrivateAttr(())
    """The keys of the document this came from, in their order (see `document.py`)."""

    def with_(self, **changes: Any) -> State:
        """Return a copy with `changes`; values are trusted, as the engine is the only caller.

        What nobody changes is shared with it: each track keeps one, and a new one for every decision.
        """
        assert changes.keys() <= self.__dict__.keys(), f"no such field in {sorted(changes)}"
        copy = object.__new__(State)
        object.__setattr__(copy, "__dict__", {**self.__dict__, **changes})
        object.__setattr__(copy, "__pydantic_extra__", self.__pydantic_extra__)
        object.__setattr__(copy, "__pydantic_fields_set__", self.__pydantic_fields_set__)
        object.__setattr__(copy, "__pydantic_private__", dict(self.__pydantic_private__ or {}))
        return copy

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State):
            return NotImplemented
        return self.__dict__ == other.__dict__ and self.__pydantic_extra__ == other.__pydantic_extra__

    def __hash__(self) -> int:
        return hash((self.project, self.story, self.step, self.attempt, self.status))
