"""What the plan of a night is made from: the projects, the daemon's limits, and what steps took before.

A step's numbers are the medians of this project's own stories. Before a project has had a step done, the
protocol's reference counts: its range of tokens, and the step's time limit, so that a plan without a past
is rather too slow than too fast. A cost has no reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, tzinfo
from statistics import median
from typing import Final, Literal

from msgspec import Struct

from handoffd.capacity.accounts import AccountView
from handoffd.engine.run import Scope, Usage
from handoffd.engine.track import Track
from handoffd.engine.views import ProjectView, ScheduleView
from handoffd.journal.history import StepTook
from handoffd.protocol.rules import Rule, RuleBook
from handoffd.settings.model import CapSettings, ProjectSettings, SchedulingSettings
from handoffd.settings.notify import QuietSettings

REFERENCE: Final[Mapping[str, tuple[int, int]]] = {
    "bdd": (2_000, 5_000),
    "sdd-delta": (3_000, 8_000),
    "contract": (1_000, 3_000),
    "review": (0, 0),
    "scaffold": (2_000, 5_000),
    "impl": (5_000, 15_000),
    "verify": (1_000, 3_000),
    "update-memory": (500, 1_000),
}
"""Expected tokens of one run of a step: low and high, from the protocol."""

_UNLIMITED_S: Final = 600.0
"""Of a step without a past and without a time limit."""

LEAST_S: Final = 1.0
"""No step is taken to be quicker: a past of rehearsals would give a night of a million runs."""

Basis = Literal["past", "reference"]


class Estimate(Struct, frozen=True, kw_only=True):
    """What a step is expected to take. None: nothing is known of that."""

    seconds: float
    tokens: int | None
    cost_usd: float | None
    basis: Basis

    @property
    def usage(self) -> Usage:
        """It as what budgets are compared with; what is not known counts as nothing."""
        return Usage(input_tokens=self.tokens or 0, cost_usd=self.cost_usd)


class ProjectNow(Struct, frozen=True, kw_only=True):
    """A project. `tracks` by name, `main` first; `continues`: whether its backlog goes on by itself."""

    view: ProjectView
    tracks: Mapping[str, Track]
    rules: RuleBook
    settings: ProjectSettings
    continues: bool


class FleetNow(Struct, frozen=True, kw_only=True):
    """The projects that have anything to do, and what the daemon's settings allow.

    `accounts` has the account of each executor, `agents` the ones that `auto` may stand for; `executor` are
    the daemon's own choice.
    """

    projects: tuple[ProjectNow, ...]
    slots: int
    scheduling: SchedulingSettings
    caps: CapSettings
    executor: tuple[str, ...]
    accounts: Mapping[str, str]
    agents: tuple[str, ...]
    quiet: QuietSettings | None = None


class Snapshot(Struct, frozen=True, kw_only=True):
    """All that a plan is made from. `midnights` are the local ones in the time, when a day's cap begins anew.

    `took` has, by root and step, what the past says; `spent` what counts against the caps that all projects
    share; `zone` names the days (None: the machine's); `idle` how many projects have nothing to do.
    """

    at: datetime
    until: datetime
    fleet: FleetNow
    took: Mapping[str, Mapping[str, Estimate]]
    limits: tuple[AccountView, ...] = ()
    schedules: tuple[ScheduleView, ...] = ()
    spent: Mapping[Scope, Usage] = {}
    midnights: tuple[datetime, ...] = ()
    zone: tzinfo | None = None
    idle: int = 0


def medians(took: Iterable[StepTook]) -> dict[str, Estimate]:
    """Return, by step, what it took a story in the median; None where a story's number is not known."""
    steps: dict[str, list[StepTook]] = {}
    for one in took:
        steps.setdefault(one.step, []).append(one)
    return {step: _median(found) for step, found in steps.items()}


def _median(found: list[StepTook]) -> Estimate:
    tokens = [one.tokens for one in found if one.tokens is not None]
    costs = [one.cost_usd for one in found if one.cost_usd is not None]
    return Estimate(
        seconds=max(median(one.seconds for one in found), LEAST_S),
        tokens=round(median(tokens)) if tokens else None,
        cost_usd=median(costs) if costs else None,
        basis="past",
    )


def referenced(step: str, rule: Rule) -> Estimate:
    """Return what the protocol expects of a step."""
    expected = REFERENCE.get(step)
    return Estimate(
        seconds=rule.timeout_min * 60 or _UNLIMITED_S,
        tokens=None if expected is None else sum(expected) // 2,
        cost_usd=None,
        basis="reference",
    )
