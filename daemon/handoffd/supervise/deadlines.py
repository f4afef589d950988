"""How long attempts have been running, and which of them have had their time.

The poller's part of one project. It reads the daemon's own records only, never the project's
folder: one that hangs must not hold up the clock of the others.
"""

from __future__ import annotations

from datetime import datetime

from anyio import to_thread

from handoffd.engine.dispatching import time_limit_min
from handoffd.engine.events import DeadlinePassed
from handoffd.engine.track import TrackKey
from handoffd.execute.base import StartRecord
from handoffd.execute.process import claimed
from handoffd.protocol.state import Status
from handoffd.track.services import Services
from handoffd.track.track import TrackSupervisor


class Deadlines:
    """The clock of one project's tracks."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._begun: dict[TrackKey, tuple[datetime, float]] = {}
        """For attempts of others: what STATE.json says, and the monotonic second that was at first sight."""

    async def check(self, track: TrackSupervisor, *, external: bool = True) -> None:
        """Tell a track that its time is over, and end what does not end by itself.

        Without `external`, attempts that others started are left alone.
        """
        if track.attempts.live:
            await to_thread.run_sync(track.attempts.end_overdue)
        elapsed_min = await self.elapsed_min(track)
        dispatch = track.track.ledger.dispatch
        limit_min = time_limit_min(track.track)
        if elapsed_min is None or not limit_min:
            return
        if elapsed_min > limit_min and (dispatch is not None or external):
            name = dispatch.id if dispatch is not None else None
            track.post(DeadlinePassed(dispatch=name, elapsed_min=elapsed_min, limit_min=limit_min))

    async def elapsed_min(self, track: TrackSupervisor) -> float | None:
        """Return for how long an attempt has been running; None when none is.

        Our own by a clock that jumps of wall time do not touch; others by what STATE.json says when
        they are first seen, and from then on by the same clock.
        """
        state, dispatch = track.track.state, track.track.ledger.dispatch
        if state is None or state.status is not Status.RUNNING:
            return None
        if dispatch is not None:
            start = await to_thread.run_sync(self._start_record, dispatch.id)
            return (self._services.clock.monotonic() - start.monotonic) / 60 if start else 0.0
        if state.dispatched_at is None:
            return None
        return max((self._services.clock.monotonic() - self._begin(track.key, state.dispatched_at)) / 60, 0.0)

    def _begin(self, key: TrackKey, dispatched_at: datetime) -> float:
        """Return the monotonic second at which an attempt of others began."""
        known = self._begun.get(key)
        if known is None or known[0] != dispatched_at:
            age_s = (self._services.clock.now() - dispatched_at).total_seconds()
            known = self._begun[key] = (dispatched_at, self._services.clock.monotonic() - age_s)
        return known[1]

    def _start_record(self, dispatch: str) -> StartRecord | None:
        run = claimed(self._services.run_dir(dispatch))
        return run.start_record() if run is not None else None
