"""Noticing that an executor has handed over and does nothing more.

Some agent CLIs keep a process alive after their work is done. Once a valid hand-off lies there and
the whole tree shows no sign of life for the grace, the attempt is over.
"""

from __future__ import annotations

import anyio
from anyio import to_thread

from handoffd.clock import Clock
from handoffd.engine.track import Dispatch
from handoffd.execute.base import Vitals
from handoffd.execute.executor import Idle
from handoffd.execute.process import Run
from handoffd.execute.witness import Witness
from handoffd.protocol.handoff import Found
from handoffd.supervise.handoffs import HandoffFiles
from handoffd.supervise.stillness import is_at_rest

SAMPLES_PER_GRACE = 10


async def until_settled(
    run: Run,
    dispatch: Dispatch,
    handoffs: HandoffFiles,
    clock: Clock,
    grace_s: float,
    *,
    witness: Witness,
    idle: Idle,
) -> None:
    """Return when a valid hand-off has been there, and the tree no busier than `idle`, for `grace_s` seconds.

    Ends only by that or by cancellation: the caller cancels it when the run has ended.
    """
    pause_s = grace_s / SAMPLES_PER_GRACE
    quiet_since: float | None = None
    last: Vitals | None = None
    while True:
        await anyio.sleep(pause_s)  # first, too: whoever ends at once costs no look
        now = await to_thread.run_sync(run.vitals, witness)
        at_rest = last is not None and is_at_rest(last, now, pause_s, idle)
        last = now
        if not at_rest or not await to_thread.run_sync(_handed_over, handoffs, dispatch):
            quiet_since = None
            continue
        quiet_since = quiet_since or clock.monotonic()
        if clock.monotonic() - quiet_since >= grace_s:
            return


def _handed_over(handoffs: HandoffFiles, dispatch: Dispatch) -> bool:
    reading, _ = handoffs.read(dispatch)
    return isinstance(reading, Found) and reading.source != "old-format"
