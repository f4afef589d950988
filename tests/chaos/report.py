"""What a run has found, for people (a table to paste) and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.checker import Violation
from tests.chaos.kills import Toll

from handoffd.failpoints import POINTS

Json = dict[str, Any]


@dataclass(slots=True)
class Found:
    """One house, checked: what was killed, what was done all the same, what was broken."""

    seed: str
    toll: Toll
    stories: int
    dispatches: int
    events: int
    notices: int = 0
    repeated: int = 0
    """How many notices arrived twice."""
    violations: list[Violation] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    rounds: list[str] = field(default_factory=list)
    kept: str | None = None
    """The folder with everything, kept after a violation."""

    @property
    def broken(self) -> int:
        """How many promises were broken."""
        return len(self.violations) + len(self.faults)

    def complaint(self) -> str:
        """Return what is wrong, with all that is needed to look at it."""
        head = f"seed {self.seed}: {self.broken} violations; kept in {self.kept}"
        return "\n".join((head, *map(str, self.violations), *self.faults))


@dataclass(slots=True)
class Total:
    """Everything that was found so far."""

    seed: str
    daemons: int
    houses: list[Found] = field(default_factory=list)

    @property
    def toll(self) -> Toll:
        """Return all kills together."""
        whole = Toll()
        for found in self.houses:
            whole.add(found.toll)
        return whole

    @property
    def violations(self) -> int:
        """How many promises were broken."""
        return sum(found.broken for found in self.houses)

    def summed(self, name: str) -> int:
        """Return the sum of one number over all houses."""
        return sum(getattr(found, name) for found in self.houses)


def as_json(total: Total, seconds: float, restart: Json) -> Json:
    """Return the whole result as plain values."""
    toll = total.toll
    return {
        "seed": total.seed,
        "daemons": total.daemons,
        "wall_s": round(seconds, 1),
        "kills": {
            "all": toll.all,
            "points": {point: toll.points[point] for point in POINTS},
            "random": toll.random,
            "point_not_reached": toll.missed,
            "launchers": toll.launchers,
            "shims": toll.shims,
        },
        "of_daemons": toll.of_daemons,
        "live": toll.live,
        "idle": toll.idle,
        "lives": toll.daemons,
        "houses": len(total.houses),
        "stories": total.summed("stories"),
        "dispatches": total.summed("dispatches"),
        "events": total.summed("events"),
        "notices": total.summed("notices"),
        "repeated": total.summed("repeated"),
        "restart": restart,
        "violations": total.violations,
        "complaints": [found.complaint() for found in total.houses if found.broken],
    }


def table(result: Json) -> str:
    """Return the result as a table in Markdown."""
    kills, daemons = result["kills"], max(result["of_daemons"], 1)
    rows: list[tuple[str, object]] = [
        *((f"killed at `{point}`", count) for point, count in kills["points"].items()),
        ("killed at a random instant", kills["random"]),
        ("launchers killed", kills["launchers"]),
        ("shims killed", kills["shims"]),
        ("**kills in all**", f"**{kills['all']:,}**"),
        ("of the daemons, with an attempt in flight", f"{100 * result['live'] / daemons:.0f} %"),
        ("of the daemons, before anything was recorded", f"{100 * result['idle'] / daemons:.0f} %"),
        ("daemons that lived", result["lives"]),
        ("stories brought to their end", result["stories"]),
        ("dispatches", result["dispatches"]),
        ("events checked", result["events"]),
        ("notices delivered", result["notices"]),
        ("delivered again", result["repeated"]),
        ("processor time of a restart", f"{result['restart']['cpu_ms']} ms"),
        ("wall time", f"{result['wall_s'] / 60:.1f} min"),
        (
            "seed, daemons at once, state directories",
            f"{result['seed']}, {result['daemons']}, {result['houses']}",
        ),
        ("**violations**", f"**{result['violations']}**"),
    ]
    lines = [
        f"| {name} | {value:,} |" if isinstance(value, int) else f"| {name} | {value} |"
        for name, value in rows
    ]
    return "\n".join(("| | |", "|---|---:|", *lines))


def progress(total: Total, alive: Sequence[Toll], kills: int, seconds: float) -> str:
    """Return one line about how far it is."""
    done = sum(toll.all for toll in alive) + total.toll.all
    pace = done / seconds if seconds else 0.0
    left_min = (kills - done) / pace / 60 if pace else 0.0
    return (
        f"{seconds / 60:5.1f} min  {done:,} of {kills:,} kills"
        f" ({pace * 60:.0f}/min, {max(left_min, 0):.0f} min left)"
        f"  {total.summed('stories'):,} stories checked  {total.violations} violations"
    )
