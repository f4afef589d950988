"""The report as a value: what an answer of the API has, and what the renderers show."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from handoffd.engine.run import LandedBy, Moment, Scope, Unit

MOST_LISTED: Final = 100
"""Entries of one list; the ones that are left out are counted."""


About = Literal["tests", "outcome", "files"]
"""What a claim was about: counts of tests, that the step passes, changed files."""


class Entry(Struct, frozen=True, kw_only=True):
    """One line of a list: about a story of a project, or (without a story) about a project."""

    project: str
    """Its root."""
    name: str
    """What commands call it."""
    story: str | None
    title: str | None = None
    """The story's title, where it has a text."""


class EndedStory(Entry, frozen=True, kw_only=True):
    """A story that came to its end."""

    outcome: Literal["landed", "done"]
    """`done`: in the project's folder, or on a branch that is not landed yet."""
    onto: str | None
    commit: str | None
    branch: str | None
    """Of one that is done and not landed: where it is, if it has a branch."""
    at: Moment
    how: LandedBy | None = None
    """Of one that is landed."""
    told: str | None = None
    """What the command has printed that has taken it."""
    says: str | None = None
    command: str | None = None
    """Of one that is done and on no branch: where it is, in words, and what shows it."""


class DroppedStory(Entry, frozen=True, kw_only=True):
    """A story that a person has aborted or discarded, and the command that takes it up again."""

    outcome: Literal["aborted", "discarded"]
    by: str | None
    at: Moment
    kept: str | None
    """Of a discarded one: the ref that has its work."""
    branch: str | None = None
    """Of an aborted one: where its work is, if it has one; `says` has in words what there is."""
    says: str | None = None
    command: str
    instead: str | None = None
    """Throws away what an aborted one has done."""


class WaitingStory(Entry, frozen=True, kw_only=True):
    """What needs a person, and the command to type."""

    step: str | None
    why: str
    since: Moment | None
    command: str
    instead: str | None = None
    """The other command: to throw a finished story away, to try a failed step again."""


class FailedStep(Entry, frozen=True, kw_only=True):
    """A step of which attempts failed."""

    step: str
    attempts: int
    """How many failed."""
    why: str
    """Of the last one."""
    passed: bool
    """Whether a later attempt has passed, or the story has come to its end all the same."""


class Falsehood(Entry, frozen=True, kw_only=True):
    """What an agent claimed of an attempt, and what the daemon measured of it."""

    step: str
    attempt: int
    run: str
    about: About
    claimed: str
    measured: str


ClaimsBy = Literal["executor", "step"]
"""What claims are summed up by, if not by both."""


class ClaimsRow(Struct, frozen=True, kw_only=True):
    """How often the claims of an executor about a step were met. What a row sums over is null.

    `runs` have ended; `claims` of them say that the step passes. Of `measured` of these the daemon knows
    better, and `met` are as claimed. `false` counts what was not so; a claim may be false about two things.
    """

    executor: str | None
    step: str | None
    runs: int
    claims: int
    measured: int
    met: int
    false: dict[About, int]


class Claims(Struct, frozen=True, kw_only=True):
    """How often agents' claims were met, by executor and step. `project` null: all of them."""

    project: str | None
    since: Moment
    until: Moment
    by: ClaimsBy | None
    rows: list[ClaimsRow]
    total: ClaimsRow


class CapUse(Struct, frozen=True, kw_only=True):
    """What is spent of a cap that all projects share."""

    scope: Scope
    unit: Unit
    spent: float
    cap: float


class Cost(Struct, frozen=True, kw_only=True):
    """What the runs used that ended in the time."""

    runs: int
    unmeasured: int
    """How many of them did not report their tokens."""
    unpriced: int
    """How many did, and have no known cost."""
    tokens: int
    usd: float
    running: int
    """How many runs had not ended."""
    caps: tuple[CapUse, ...]


class TimeSpent(Struct, frozen=True, kw_only=True):
    """Seconds, summed over all stories, by what each story waited for."""

    agents: float = 0.0
    checks: float = 0.0
    slots: float = 0.0
    limits: float = 0.0
    people: float = 0.0
    stories: float = 0.0
    """For another story that must be done before."""
    down: float = 0.0
    """For a daemon."""


class Down(Struct, frozen=True, kw_only=True):
    """A time without a daemon. `until` None: there was none by the end."""

    since: Moment
    until: Moment | None
    how: Literal["stopped", "slept", "died"]
    """It was asked to end; the machine slept, or hung; it was killed, or the machine was switched off."""


class Coming(Entry, frozen=True, kw_only=True):
    """What goes on by itself, as far as is known."""

    step: str | None
    then: tuple[str, ...]
    """The stories that follow it by themselves, in this order unless one has to wait."""
    at: Moment | None
    """When a schedule starts it; None: at once, or as soon as it can."""
    waits_for: str | None


class More(Struct, frozen=True, kw_only=True):
    """How many entries each list leaves out."""

    landed: int = 0
    waiting: int = 0
    failed: int = 0
    false: int = 0
    next: int = 0
    paused: int = 0
    dropped: int = 0


class Report(Struct, frozen=True, kw_only=True):
    """What happened from `since` until `until`, and where everything was `at` the time of the report."""

    since: Moment
    until: Moment
    at: Moment
    project: str | None
    """The root of the one that it is about; null: all."""
    events: int
    """How many events there were."""
    projects: int = 0
    """In how many projects something happened, or waits for a person."""
    incomplete: str | None
    """Why some of them are missing; null: none is."""
    down: tuple[Down, ...]
    landed: tuple[EndedStory, ...]
    waiting: tuple[WaitingStory, ...]
    failed: tuple[FailedStep, ...]
    false: tuple[Falsehood, ...]
    cost: Cost
    time: TimeSpent
    next: tuple[Coming, ...]
    more: More
    paused: tuple[WaitingStory, ...] = ()
    """The stories that a person has paused."""
    dropped: tuple[DroppedStory, ...] = ()
    tonight: str | None = None
    """What would happen until the next morning, in short; null: nothing."""

    @property
    def unplaced(self) -> list[tuple[str, str]]:
        """The stories, by root, of which it does not say yet where their work is."""
        done = (one for one in self.landed if one.outcome == "done" and one.branch is None)
        dropped = (one for one in self.dropped if one.kept is None)
        return [(one.project, one.story) for one in (*done, *dropped) if one.story is not None]

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has happened."""
        return not self.events and not self.down
