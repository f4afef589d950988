"""What an executor hands over, as values: the claim, its source, and whether it counts at all.

`reading.py` makes these from text. An agent wrote that text, so nothing here is trusted beyond its
shape: a hand-off is a claim, and the engine decides what it is worth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field

from handoffd.errors import Problem
from handoffd.protocol.state import Reason, Status, TestCounts

HANDOFF_FILE = ".ai/HANDOFF.md"
RESULT_FILE = ".ai/executor-result"
MAX_FILE_BYTES = 1024 * 1024
"""A larger hand-off is not read; a reader of the file needs to read no more than one byte beyond."""

Claimed = Literal[Status.PASS, Status.FAILING, Status.NEEDS_HUMAN]
"""The statuses a hand-off can have."""

Scalar = float | bool | str
"""The value of a field; every number is a double."""
Severity = Literal["info", "low", "medium", "high", "critical"]
"""How much a note matters."""

_SEVERITY: tuple[Claimed, ...] = (Status.PASS, Status.FAILING, Status.NEEDS_HUMAN)


def worst(first: Claimed, *others: Claimed) -> Claimed:
    """Return the status that counts where claims disagree: needs_human, then failing, then pass."""
    return max((first, *others), key=_SEVERITY.index)


class FileMark(BaseModel):
    """The identity of one file at one moment; any difference means that it was written again."""

    model_config = ConfigDict(frozen=True)

    digest: str
    inode: int
    mtime_ns: int


class HandoffMark(BaseModel):
    """The identity of HANDOFF.md and executor-result; None where the file was missing."""

    model_config = ConfigDict(frozen=True)

    handoff: FileMark | None = None
    result: FileMark | None = None

    def repeats(self, earlier: HandoffMark) -> bool:
        """Return whether there is a file, and none that was written since `earlier`."""
        there = {"handoff": self.handoff, "result": self.result}
        marks = [(mark, getattr(earlier, name)) for name, mark in there.items() if mark is not None]
        return bool(marks) and all(mark == before for mark, before in marks)


class Note(BaseModel):
    """Something that other agents of a flow should know."""

    model_config = ConfigDict(frozen=True)

    text: str
    tag: str | None = None
    severity: Severity = "info"
    files: tuple[str, ...] = ()


class FrontMatter(BaseModel):
    """What an executor writes between the `---` lines of HANDOFF.md. Other keys are kept and ignored."""

    model_config = ConfigDict(frozen=True, extra="allow")

    story: str | None = Field(None, description="Id of the story that was worked on.")
    step: str | None = Field(None, description="The step that was worked on.")
    attempt: int | None = Field(None, ge=1, description="The attempt, as the prompt gave it.")
    status: Claimed | None = Field(
        None, description="How it ended. Without it: failing if tests_fail is above 0, else pass."
    )
    reason: Reason | None = Field(None, description="Why it failed or needs a person; outranks pass.")
    files_changed: tuple[str, ...] = Field((), description="Paths of the changed files, from the root.")
    tests_pass: int | None = Field(None, ge=0, description="Tests that passed.")
    tests_fail: int | None = Field(None, ge=0, description="Tests that failed.")
    tests_skip: int | None = Field(None, ge=0, description="Tests that were skipped.")
    dispatch: str | None = Field(None, description="Id of the dispatch, as the prompt gave it.")
    commit_hash: str | None = Field(None, description="The commit that was made, if one was.")
    summary: str | None = Field(None, description="What was done, in a sentence or two.")
    failing_tests: tuple[str, ...] = Field((), description="Names of the tests that fail.")
    outcome: str | None = Field(
        None, description="Of a task of a flow: what the result is, one of the outcomes in the prompt."
    )
    fields: Mapping[str, Scalar] = Field({}, description="Of a task of a flow: values by name.")
    notes: tuple[Note | str, ...] = Field((), description="Of a task of a flow: what others should know.")
    question: str | None = Field(
        None, description="Of a task of a flow: what a person is asked; with the status needs_human, or none."
    )


class Handoff(BaseModel):
    """One hand-off, normalised: aliases resolved, near-misses mapped.

    `status` is None only in the old format (no front matter), where the exit code decides.
    """

    model_config = ConfigDict(frozen=True)

    status: Claimed | None
    reason: Reason | None = None
    story: str | None = None
    step: str | None = None
    attempt: int | None = None
    dispatch: str | None = None
    tests: TestCounts | None = None
    failing_tests: tuple[str, ...] = ()
    files_changed: tuple[str, ...] = ()
    summary: str | None = None
    commit_hash: str | None = None
    error: str | None = None
    """Problems of the claim itself (an unknown status, a reason not in the enum)."""
    outcome: str | None = None
    """What the result is, in a word of its author's."""
    fields: Mapping[str, Scalar] = {}
    notes: tuple[Note, ...] = ()
    question: str | None = None
    """What a person is asked before the work can go on."""


class Absent(Struct, frozen=True, kw_only=True, tag_field="kind", tag="absent"):
    """No hand-off was written (missing, empty or blank)."""


class Stale(Struct, frozen=True, kw_only=True, tag_field="kind", tag="stale"):
    """There is a hand-off, but it does not belong to the running attempt."""

    why: str


class Malformed(Struct, frozen=True, kw_only=True, tag_field="kind", tag="malformed"):
    """A hand-off was begun and cannot be read."""

    problem: Problem


class Found(Struct, frozen=True, kw_only=True, tag_field="kind", tag="found"):
    """A hand-off that belongs to the running attempt. `warnings` say what was normalised."""

    handoff: Handoff
    source: Literal["front-matter", "old-format", "executor-result"]
    warnings: tuple[str, ...] = ()


Reading = Absent | Stale | Malformed | Found
