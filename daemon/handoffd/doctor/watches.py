"""Whether the kernel lets all projects be watched, and which of them are only swept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from handoffd.doctor.finding import Finding, fine, warning
from handoffd.doctor.inotify import Holder, Limit, Limits
from handoffd.engine.usage import counted
from handoffd.watch.backend import LIMIT_REACHED, Demand

CHECK = "watches"
LASTING = "/etc/sysctl.d/60-handoffd.conf"

_PLENTY: Mapping[str, int] = {"watches": 1_048_576, "instances": 1024, "events": 65_536}
_NAMED = 5
"""So many projects of several are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchFacts:
    """`others` is what else of this account watches files; None: it could not be found out.

    `swept` maps the roots that the running daemon only sweeps to the reasons.
    """

    projects: int
    demand: Demand
    limits: Limits
    others: Sequence[Holder] | None
    swept: Mapping[str, str]
    sweep_s: float


def check(facts: WatchFacts) -> tuple[Finding, ...]:
    """Return which projects are only swept and why, and which limit is too low for those there are."""
    limited = sorted(root for root, why in facts.swept.items() if why == LIMIT_REACHED)
    found: list[Finding] = []
    if limited:
        why, raised = f"{LIMIT_REACHED}; {_held(facts)}", _short(facts) or list(_limits(facts))
        found.append(warning(CHECK, _only_swept(limited, facts), why, _raise(raised, facts)))
    elif short := _short(facts):
        found.append(_too_low(facts, short))
    else:
        found += _queue(facts)
    found += _otherwise_swept(facts)
    return tuple(found) or (fine(CHECK, _enough(facts)),)


def _only_swept(roots: Sequence[str], facts: WatchFacts) -> str:
    verb = "is" if len(roots) == 1 else "are"
    more = f" and {len(roots) - _NAMED} more" if len(roots) > _NAMED else ""
    of, every = f"{len(roots)} of {counted(facts.projects, 'project')}", f"{facts.sweep_s:g} s"
    return f"{of} {verb} only looked at every {every}: {', '.join(roots[:_NAMED])}{more}"


def _limits(facts: WatchFacts) -> Iterator[tuple[str, Limit]]:
    known = {"watches": facts.limits.watches, "instances": facts.limits.instances}
    yield from ((name, limit) for name, limit in known.items() if limit is not None)


def _short(facts: WatchFacts) -> list[tuple[str, Limit]]:
    """Return the limits that leave less than the projects need."""
    return [(name, limit) for name, limit in _limits(facts) if _needed(name, facts) > limit.value]


def _needed(name: str, facts: WatchFacts) -> int:
    """Return how many this account needs, with what others of it hold."""
    others: int = sum(getattr(holder, name) for holder in facts.others or ())
    wanted: int = getattr(facts.demand, name)
    return wanted + others


def _too_low(facts: WatchFacts, short: Sequence[tuple[str, Limit]]) -> Finding:
    wanted = " and ".join(
        f"{getattr(facts.demand, name)} {name} of at most {limit.value}" for name, limit in short
    )
    what = f"the limit of file watches is too low for {counted(facts.projects, 'project')}"
    why = f"they need {wanted}; {_held(facts)}. The rest is looked at every {facts.sweep_s:g} s only"
    return warning(CHECK, what, why, _raise(short, facts))


def _held(facts: WatchFacts) -> str:
    limits = ", ".join(f"{limit.key} = {limit.value}" for _, limit in _limits(facts))
    if not facts.others:
        return limits
    most = facts.others[0]
    watches, instances = (
        sum(getattr(one, name) for one in facts.others) for name in ("watches", "instances")
    )
    held = f"{counted(watches, 'watch', 'watches')} and {counted(instances, 'instance')}"
    return (
        f"{limits}; other programs of this account hold {held}, "
        f"the most of them {most.command} (process {most.pid}) with {most.watches}"
    )


def _raise(short: Sequence[tuple[str, Limit]], facts: WatchFacts) -> str:
    """Return the command that raises limits, now and for good."""
    values = [f"{limit.key}={_raised(name, limit, facts)}" for name, limit in short]
    if not values:
        return "sysctl fs.inotify"
    words = " ".join(values)
    return f"sudo sysctl {words} && printf '%s\\n' {words} | sudo tee {LASTING}"


def _raised(name: str, limit: Limit, facts: WatchFacts) -> int:
    wanted = facts.demand.events if name == "events" else _needed(name, facts)
    value = max(_PLENTY[name], 2 * limit.value if limit.value >= _PLENTY[name] else 0)
    while value < 2 * wanted:
        value *= 2
    return value


def _otherwise_swept(facts: WatchFacts) -> Iterator[Finding]:
    reasons: dict[str, list[str]] = {}
    for root, why in sorted(facts.swept.items()):
        if why != LIMIT_REACHED:
            reasons.setdefault(why, []).append(root)
    for why, roots in reasons.items():
        yield warning(CHECK, _only_swept(roots, facts), why, f"ls -la {quote(roots[0])}")


def _queue(facts: WatchFacts) -> Iterator[Finding]:
    queue = facts.limits.events
    if queue is not None and facts.demand.events > queue.value:
        why = (
            f"{queue.key} = {queue.value}, and {facts.demand.events} may come at once; what is lost "
            f"is found by a sweep, at the latest after {facts.sweep_s:g} s"
        )
        action = _raise([("events", queue)], facts)
        yield warning(CHECK, "a burst of changes may be more than the kernel keeps", why, action)


def _enough(facts: WatchFacts) -> str:
    count = counted(facts.projects, "project needs", "projects need")
    limits = ", ".join(
        f"{getattr(facts.demand, name)} of {limit.value} {name}" for name, limit in _limits(facts)
    )
    return f"{count} {limits}" if limits else "the kernel names no limit"
