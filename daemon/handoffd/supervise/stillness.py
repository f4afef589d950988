"""Whether a process tree does anything, told from two looks at it.

No sign alone tells: an agent that thinks may print nothing for minutes, so may one that compiles. And an idle
one does not stand still. Timers fire, garbage is collected, the threads of a runtime wake each other by small
writes that no file ever sees, a provider pings. How much of that an executor shows while it waits is
measured, and is data (`idle` of config/executors.yaml). What is not more than that is silence.
"""

from __future__ import annotations

from handoffd.execute.base import Vitals
from handoffd.execute.executor import Idle

BURST_S = 60.0
"""Idle programs tidy their databases about once a minute, so that so much may be stored at once."""

_TICK_S = 0.01
"""The kernel counts processor time in these."""


def is_at_rest(before: Vitals, after: Vitals, seconds: float, idle: Idle) -> bool:
    """Return whether a process tree did no more between two looks `seconds` apart than when `idle`.

    Processes that end take their figures along, so less is as much a sign of life as more.
    """
    return (
        (before.output_bytes, before.heard_ns) == (after.output_bytes, after.heard_ns)
        and abs(after.stored_bytes - before.stored_bytes) <= idle.stored * max(seconds, BURST_S)
        and abs(after.written_bytes - before.written_bytes) <= idle.written * seconds
        and abs(after.cpu_s - before.cpu_s) <= idle.cpu * seconds + _TICK_S
        and content_bytes(before, after, idle) == 0
    )


def content_bytes(before: Vitals, after: Vitals, idle: Idle) -> int:
    """Return what the connections have received between two looks, without what may be pings.

    Those come in segments of their own. A connection that is gone takes its figures along and tells nothing.
    """
    earlier = {one.number: one for one in before.received}
    content = 0
    for one in after.received:
        was = earlier.get(one.number)
        received = one.data_bytes - (was.data_bytes if was else 0)
        segments = one.segments - (was.segments if was else 0)
        content += max(0, received - idle.ping * segments)
    return content
