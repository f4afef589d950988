"""When people are told again of what waits for them: a function of how long it has, and of what was told.

How far the ladder was climbed is remembered as minutes, not as the number of a rung: so no rung is told
of twice when the settings change meanwhile, and those that were passed while nobody could look (the
machine slept, the clock was put forward) are told of as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from handoffd.settings_notify import RemindSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What is to be told now. Everything up to `reached_min` is done with then."""

    reached_min: float
    remind: bool
    escalate_to: tuple[str, ...] = ()
    """Sinks that are told besides."""


def due(since: datetime, now: datetime, reached_min: float, ladder: RemindSettings) -> Due | None:
    """Return what is to be told of a matter that has waited since then; None: nothing yet."""

    def is_new(rung_min: float) -> bool:
        return reached_min < rung_min and since + timedelta(minutes=rung_min) <= now

    rungs = [rung for rung in ladder.after_min if is_new(rung)]
    escalations = [rung for rung in ladder.escalate if is_new(rung.after_min)]
    if not rungs and not escalations:
        return None
    return Due(
        reached_min=max((*rungs, *(rung.after_min for rung in escalations))),
        remind=bool(rungs),
        escalate_to=tuple(dict.fromkeys(name for rung in escalations for name in rung.to)),
    )


def next_at(since: datetime, reached_min: float, ladder: RemindSettings) -> datetime | None:
    """Return when the next rung is reached; None after the last one."""
    rungs = (*ladder.after_min, *(rung.after_min for rung in ladder.escalate))
    later = [rung for rung in rungs if rung > reached_min]
    return since + timedelta(minutes=min(later)) if later else None
