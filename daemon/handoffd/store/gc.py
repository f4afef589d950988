"""What of the past may go, and why: decided from facts, by nothing that acts.

Kept in any case is what somebody still needs or might: runs that live, runs that were not judged, the
newest ones of each project, and whatever is younger than the settings say. What is not ours has no place
in these facts, so it cannot be told to go.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, Literal

Kind = Literal["run", "copy", "notice", "events"]
"""Records of a run; the copies of it in its project; notices that were sent; events of finished stories."""

Condition = Literal["running", "unjudged", "foreign", "edited", "unverifiable", "ended", "unknown"]
"""How a run stands. Foreign: its folder holds what is not ours. Edited: somebody has written into its copy,
which its records are needed to tell; without them it is unverifiable. Unknown: the journal says nothing of
it, as after a restore."""
_STAYS: Final = frozenset({"running", "unjudged", "foreign", "edited", "unverifiable"})

Needed = Literal["edited", "copied", "unanswered"]
"""Why records stay that are old enough: their copy was written into, or stays for another reason, or lies in
a project that does not answer. Without them nobody could tell what becomes of it."""
_NONE_NEEDED: Final[Mapping[str, Needed]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """One run as it is found on the disk. `since`: when it ended, or was changed last; `bytes` it takes."""

    kind: Kind
    id: str
    project: str | None
    condition: Condition
    since: datetime
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Doomed:
    """Something that goes, with the reason. `what` is its path, or what it is in words."""

    kind: Kind
    what: str
    project: str | None
    bytes: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much there is of a kind, before anything goes; `project` None: it is nobody's alone."""

    kind: str
    project: str | None
    count: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What went (or would, in a dry run), what there was, what stays and why, and what could not be done."""

    dry_run: bool
    doomed: tuple[Doomed, ...]
    sizes: tuple[Size, ...]
    kept: Mapping[str, int]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The runs that go, with why, and how many stay for which reason."""

    doomed: tuple[tuple[Past, str], ...]
    kept: Mapping[str, int]


def plan(
    found: Sequence[Past],
    now: datetime,
    days: float | None,
    newest: int,
    needed: Mapping[str, Needed] = _NONE_NEEDED,
) -> Plan:
    """Return which runs go that ended more than `days` ago (None: none does), but for the `newest`.

    `needed`: those that stay all the same, by id.
    """
    spared = _newest(found, newest)
    doomed, kept = [], Counter[str]()
    for past in found:
        reason = _reason_to_stay(past, now, days, spared) or needed.get(past.id)
        if reason is None:
            doomed.append((past, _why(past, now, days or 0)))
        else:
            kept[reason] += 1
    return Plan(doomed=tuple(doomed), kept=dict(kept))


def _newest(found: Iterable[Past], count: int) -> frozenset[tuple[str, str]]:
    """Return kind and id of the newest runs of each project. Ids begin with the time of the decision."""
    by_project: defaultdict[tuple[str, str | None], list[str]] = defaultdict(list)
    for past in found:
        by_project[past.kind, past.project].append(past.id)
    return frozenset(
        (kind, one) for (kind, _), ids in by_project.items() for one in sorted(ids, reverse=True)[:count]
    )


def _reason_to_stay(
    past: Past, now: datetime, days: float | None, spared: frozenset[tuple[str, str]]
) -> str | None:
    if past.condition in _STAYS:
        return past.condition
    if days is None:
        return "kept for ever"
    if now - past.since <= timedelta(days=days):
        return "young"
    return "newest" if (past.kind, past.id) in spared else None


def _why(past: Past, now: datetime, days: float) -> str:
    age = (now - past.since) / timedelta(days=1)
    did = "is unknown to the journal, and was changed last" if past.condition == "unknown" else "ended"
    return f"{did} {age:.0f} days ago (retention.runs_days: {days:g})"


def sizes(found: Iterable[Past]) -> tuple[Size, ...]:
    """Return how much there is, by kind and project; the largest first."""
    counts: Counter[tuple[str, str | None]] = Counter()
    weights: Counter[tuple[str, str | None]] = Counter()
    for past in found:
        counts[past.kind, past.project] += 1
        weights[past.kind, past.project] += past.bytes
    return tuple(
        Size(kind=kind, project=project, count=counts[kind, project], bytes=weight)
        for (kind, project), weight in sorted(weights.items(), key=lambda item: (-item[1], str(item[0])))
    )
