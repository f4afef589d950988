"""An open gate as values: the question, what a person needs for the answer, and where each answer leads.

`handoffd gate`, `status PROJECT`, the API, chat and the tools of MCP show them. The daemon has measured what
they hold, or has read it from git; a claim is an agent's own word. What is not known is null, and `unknown`
has the reason.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from handoffd.engine.run import Moment
from handoffd.protocol.state import TestCounts

MOST_LISTED: Final = 200
"""Files, tests, attempts and open points in one answer; `more` counts the rest."""
MOST_CLAIMED: Final = 2000
"""Characters of an agent's summary."""


class ChangedFile(Struct, frozen=True, kw_only=True):
    """A file of the project that differs. Lines are null in a file that git takes for binary."""

    path: str
    status: Literal["added", "changed", "removed"]
    added: int | None
    removed: int | None
    outside: tuple[str, ...] = ()
    """The steps that changed it although the step table does not let them write there."""


class Changes(Struct, frozen=True, kw_only=True):
    """The files that differ between two snapshots of a story."""

    since: str
    """The earlier snapshot: `bdd-0`, or how the files were when the gate was decided last."""
    until: str
    base: str
    """The commit of the earlier snapshot."""
    end: str
    """The commit of the later one."""
    count: int
    added: int
    removed: int
    outside: int
    """How many of the files were changed by a step that may not write there."""
    files: tuple[ChangedFile, ...]
    more: int = 0
    again: bool = False
    """Whether they are compared with how the gate was seen last, not with the beginning of the story."""


class GateTests(Struct, frozen=True, kw_only=True):
    """The project's tests: before the story, as an agent says, and as the daemon has measured them."""

    before: TestCounts | None = None
    claimed: TestCounts | None = None
    measured: TestCounts | None = None
    verified: bool | None = None
    """False: only the exit code of the test command is known, so nothing is counted."""
    run: str | None = None
    """The attempt after which they were measured last."""
    failing: tuple[str, ...] = ()
    """The tests that fail, without the ones that failed before the story."""
    regressed: tuple[str, ...] = ()
    """The failing ones that passed before the story."""
    new: tuple[str, ...] = ()
    """The failing ones that the story has added. Of new tests that pass, only the number is kept."""
    new_collected: int | None = None
    """How many tests the story has added."""
    files: tuple[str, ...] = ()
    """The changed files that hold tests, by the step table."""


class GateAttempt(Struct, frozen=True, kw_only=True):
    """One attempt of the story."""

    run: str
    step: str
    attempt: int
    executor: str
    result: str | None
    why: str | None
    """Why it failed, or was not judged; null where it passed."""
    seconds: float | None
    sandbox: str | None
    """The level that held it: strict, namespaces, landlock, or off; null: its records are gone."""


class OpenPoint(Struct, frozen=True, kw_only=True):
    """A line of the story's files that is still open: an unclear point, or an unticked box."""

    file: str
    line: int
    text: str
    section: str | None = None


class GateAnswer(Struct, frozen=True, kw_only=True):
    """One of the answers, and where it leads. `leads_to` null: to nowhere, a person is asked again."""

    answer: Literal["approve", "reject"]
    reason: str | None
    leads_to: str | None
    command: str


class GateView(Struct, frozen=True, kw_only=True):
    """The screen of an open gate."""

    project: str
    folder: str
    """Where the story's files are: the project's root, or the story's clone."""
    story: str
    step: str
    title: str | None
    text: str | None
    """What the story shall bring, in a person's words."""
    asked: str
    why: str
    done: tuple[str, ...]
    """The steps that are behind the story."""
    ahead: tuple[str, ...]
    """The steps that follow an approval."""
    scenarios: tuple[str, ...]
    """The files that say what the story comes to, below `folder`."""
    changes: Changes | None
    tests: GateTests
    attempts: tuple[GateAttempt, ...]
    unclear: tuple[OpenPoint, ...]
    """The lines that are marked `[NEEDS CLARIFICATION]`."""
    unticked: tuple[OpenPoint, ...]
    """The boxes of CHECKLIST.md that the steps behind the story have left open."""
    tokens: int | None
    cost_usd: float | None
    seconds: float
    """How long its agents have run."""
    sandbox: str | None
    """The weakest level that held one of its agents."""
    claim: str | None
    """What the agent says it did: its own summary."""
    note: str | None
    answers: tuple[GateAnswer, ...]
    unknown: tuple[str, ...] = ()
    """What is not known, and why."""
    at: Moment | None = None
    """The moment that it shows."""


class GateInShort(Struct, frozen=True, kw_only=True):
    """An open gate in one line."""

    project: str
    name: str
    story: str
    title: str | None
    step: str
    since: Moment | None
    """Since when it waits, as far as a notice was made of it."""
    command: str
