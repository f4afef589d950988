"""Noticing that an executor has handed over and does nothing more.

Some agent CLIs keep a process alive after their work is done. Once a valid hand-off lies there and
the whole tree shows no output, no CPU time and no writing for the grace, the attempt is over.
"""

from __future__ import annotations

import anyio
from anyio import to_thread

from handoffd.clock import Clock
from handoffd.engine.track import Dispatch
from handoffd.execute.base import Vitals
from handoffd.execute.process import Run
from handoffd.protocol.handoff import Found
from handoffd.supervise.handoffs import HandoffFiles

SAMPLES_PER_GRACE = 10
IDLE_CPU_SHARE = 0.01
"""An idle runtime still ticks (timers, garbage collection): under this share of a core is rest."""


async def until_settled(
    run: Run, dispatch: Dispatch, handoffs: HandoffFiles, clock: Clock, grace_s: float
) -> None:
    """Return when a valid hand-off has been there, and the tree at rest, for `grace_s` seconds.

    Ends only by that or by cancellation: the caller cancels it when the run has ended.
    """
    pause_s = grace_s / SAMPLES_PER_GRACE
    quiet_since: float | None = None
    last = await to_thread.run_sync(run.vitals)
    while True:
        await anyio.sleep(pause_s)
        now = await to_thread.run_sync(run.vitals)
        at_rest = is_at_rest(last, now, pause_s)
        last = now
        if not at_rest or not await to_thread.run_sync(_handed_over, handoffs, dispatch):
            quiet_since = None
            continue
        quiet_since = quiet_since or clock.monotonic()
        if clock.monotonic() - quiet_since >= grace_s:
            return


def is_at_rest(before: Vitals, after: Vitals, seconds: float) -> bool:
    """Return whether a process tree did nothing between two looks `seconds` apart."""
    silent = before.output_bytes == after.output_bytes and before.written_bytes == after.written_bytes
    return silent and abs(after.cpu_s - before.cpu_s) <= IDLE_CPU_SHARE * seconds + 0.01


def _handed_over(handoffs: HandoffFiles, dispatch: Dispatch) -> bool:
    reading, _ = handoffs.read(dispatch)
    return isinstance(reading, Found) and reading.source != "old-format"
