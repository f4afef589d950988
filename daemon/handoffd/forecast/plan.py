"""The plan of a night as a value: what an answer of the API has, and what the screen shows."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from handoffd.engine.run import Moment, Scope, Unit
from handoffd.forecast.snapshot import Basis

MOST_LISTED: Final = 100
"""Entries of one list; the ones that are left out are counted."""

Outcome = Literal["done", "stops", "goes_on", "waits"]
"""Of a story: it ends; something stops it; it is worked on when the time ends; or it is not begun by then."""

StopKind = Literal[
    "gate", "person", "by_hand", "level", "paused", "held", "auto_continue", "blocked", "cap", "limit",
    "condition", "land",
]  # fmt: skip


class PlannedStep(Struct, frozen=True, kw_only=True):
    """One step of a story, with all its attempts. Tokens and cost are null where nothing is known of them."""

    step: str
    executor: str
    starts_at: Moment
    ends_at: Moment
    tokens: int | None
    cost_usd: float | None
    basis: Basis


class PlannedStory(Struct, frozen=True, kw_only=True):
    """A story, in the order in which its project works on it."""

    project: str
    """Its root."""
    name: str
    """What commands call the project."""
    story: str
    title: str | None
    priority: int
    blocked_by: tuple[str, ...]
    """The stories that must be done before it, as far as they were not when it began."""
    schedule: str | None
    """The schedule that starts it; null: none does."""
    outcome: Outcome
    steps: tuple[PlannedStep, ...]
    """What is done for it in the time."""
    ends_at: Moment | None
    """When it is done, or stops."""
    stops_at: str | None
    """The step at which it stops."""
    why: str | None
    """What stops it, or keeps it from its beginning."""


class Stop(Struct, frozen=True, kw_only=True):
    """What stops stories of a project, and what to type for it to go on."""

    project: str
    name: str
    kind: StopKind
    step: str | None
    before_code: bool
    """Whether it stops them before their first line of code: no step with tests is behind them."""
    why: str
    command: str | None
    """Null: nothing can be typed, as with a usage limit, or another entry has it."""
    stories: tuple[str, ...]
    """At most ten."""
    count: int
    """How many stories it stops."""
    at: Moment | None
    """When it stops the first one; null: it does already."""

    @property
    def may_wait(self) -> bool:
        """Whether it is nothing for the evening: a decision about code, or what no command ends."""
        return self.command is None or (self.kind == "gate" and self.at is not None and not self.before_code)


class Expected(Struct, frozen=True, kw_only=True):
    """What all of it takes: of the steps that begin in the time."""

    steps: int
    seconds: float
    """Of agents at work, summed."""
    tokens: int
    unmeasured: int
    """How many of the steps have no known number of tokens."""
    cost_usd: float
    unpriced: int
    """How many have no known cost."""
    basis: Literal["past", "reference", "mixed", "nothing"]
    """Where the numbers come from: the projects' own past, the protocol's reference, or both."""


class SlotsAhead(Struct, frozen=True, kw_only=True):
    """How many agents run at once."""

    total: int
    most: int
    """The most that are planned at once."""
    waited: int
    """How many steps have to wait for a slot."""


class LimitAhead(Struct, frozen=True, kw_only=True):
    """An account at its usage limit."""

    account: str
    until: Moment
    why: str


class CapAhead(Struct, frozen=True, kw_only=True):
    """A cap, and what is spent of it. Of the narrower scopes, only the ones that stop a story are listed."""

    scope: Scope
    unit: Unit
    day: str | None
    """Of a cap on a day: which one."""
    whose: str | None
    """The project, or project and story; null: all projects share it."""
    spent: float
    """By now."""
    expected: float
    """By the end of the time, or of the day."""
    cap: float
    stops: str | None
    """The first story that it stops; null: none."""
    unsure: int
    """How many steps spend from it of which no number is known: it may stop the night earlier."""


class QuietAhead(Struct, frozen=True, kw_only=True):
    """Hours in which only urgent notices are sent, as the settings say."""

    start: str
    end: str
    now: bool


class ScheduledStart(Struct, frozen=True, kw_only=True):
    """What a schedule will start."""

    project: str
    name: str
    schedule: str
    at: Moment
    story: str
    outcome: Literal["starts", "queued", "skipped"]
    why: str | None


class More(Struct, frozen=True, kw_only=True):
    """How many entries each list leaves out."""

    stories: int = 0
    stops: int = 0
    caps: int = 0
    schedules: int = 0


class Tonight(Struct, frozen=True, kw_only=True):
    """What would happen from `at` until `until`, if each step takes what it took before."""

    at: Moment
    until: Moment
    daemon: bool
    """Whether a daemon runs: without one, nothing of it happens."""
    projects: int
    """How many projects have anything to do."""
    idle: int
    """How many have nothing to do."""
    outcomes: dict[Outcome, int]
    """How many stories come to which end; none is left out."""
    ahead: int
    """How many stories are not over yet."""
    before_code: int
    """How many of these stop at a human step, before their first line of code."""
    gated: bool
    """Whether all of them do."""
    whole: bool
    """False: there is more work than is played through, and the rest is not in it."""
    expected: Expected
    slots: SlotsAhead
    stories: tuple[PlannedStory, ...]
    stops: tuple[Stop, ...]
    limits: tuple[LimitAhead, ...]
    caps: tuple[CapAhead, ...]
    quiet: QuietAhead | None
    schedules: tuple[ScheduledStart, ...]
    more: More
