"""Overdue attempts and idle executors of one project, found by the poller.

This reads the daemon's own records only, never the project's folder: a hanging folder must not hold up the
deadlines of other projects. Each finding becomes a fact for its track; `engine/ends.py` decides what follows.
"""

from __future__ import annotations

from datetime import datetime

from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from handoffd.engine.ends import time_limit_min
from handoffd.engine.events import DeadlinePassed, ExecutorQuiet, ExecutorStalled
from handoffd.engine.run import Silence
from handoffd.engine.track import Dispatch, Phase, TrackKey
from handoffd.execute.base import StartRecord, Vitals
from handoffd.execute.executor import Idle
from handoffd.execute.run import Run, claimed
from handoffd.protocol.state import Status
from handoffd.track.attempts import content_bytes, is_at_rest
from handoffd.track.services import Services
from handoffd.track.track import TrackSupervisor


class Deadlines:
    """Measures how long the attempts of one project have been running."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._begun: dict[TrackKey, tuple[datetime, float]] = {}
        """For attempts of others: what STATE.json says, and the monotonic second that was at first sight."""

    async def check(self, track: TrackSupervisor, *, external: bool = True) -> None:
        """Report to a track that its time is over, and end what does not end by itself.

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


# --- executors that stand still -----------------------------------------------------------------------
LONGEST_GAP = 2.0
"""How many intervals of the poller two looks count for, at most."""


class Watch(Struct, frozen=True, kw_only=True):
    """What is known of one run: how it was at its last sign of life, and for how long that has been so."""

    dispatch: str
    since: Vitals
    looked_at: float
    quiet_s: float = 0.0
    warned: bool = False

    def after(self, vitals: Vitals, now: float, longest_s: float, idle: Idle) -> Watch:
        """Return the watch after one more look, at second `now`; a gap counts for `longest_s` at most."""
        quiet_s = self.quiet_s + min(max(now - self.looked_at, 0.0), longest_s)
        if is_at_rest(self.since, vitals, quiet_s, idle):
            return replace(self, looked_at=now, quiet_s=quiet_s)
        return replace(self, since=vitals, looked_at=now, quiet_s=0.0)

    def silence(self, vitals: Vitals, limit_min: float, idle: Idle) -> Silence:
        """Return the measurements since the last sign of life, for notices."""
        return Silence(
            quiet_min=self.quiet_s / 60,
            limit_min=limit_min,
            output_bytes=vitals.output_bytes,
            cpu_s=abs(vitals.cpu_s - self.since.cpu_s),
            written_bytes=abs(vitals.written_bytes - self.since.written_bytes),
            received_bytes=content_bytes(self.since, vitals, idle),
        )


class Stalls:
    """Watches the executors of one project's tracks."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._watches: dict[TrackKey, Watch] = {}

    async def check(self, track: TrackSupervisor, stall_min: float | None) -> None:
        """Look at a track's executor: warn at half of `stall_min` (None: the daemon's), end it after all."""
        limit_min = self._services.settings.execute.stall_min if stall_min is None else stall_min
        dispatch = track.track.ledger.dispatch
        run = _executing(track, dispatch)
        if dispatch is None or run is None or not limit_min:
            self._watches.pop(track.key, None)
            return
        vitals = await to_thread.run_sync(run.vitals, self._services.launcher.witness)
        idle = self._services.executors.idle(dispatch.executor)
        watch = self._watches[track.key] = self._look(track.key, dispatch.id, vitals, idle)
        if watch.quiet_s >= limit_min * 60:
            silence = watch.silence(vitals, limit_min, idle)
            track.post(ExecutorStalled(dispatch=dispatch.id, silence=silence))
        elif watch.quiet_s >= limit_min * 30 and not watch.warned:
            self._watches[track.key] = replace(watch, warned=True)
            silence = watch.silence(vitals, limit_min, idle)
            track.post(ExecutorQuiet(dispatch=dispatch.id, silence=silence))

    def _look(self, key: TrackKey, dispatch: str, vitals: Vitals, idle: Idle) -> Watch:
        now, known = self._services.clock.monotonic(), self._watches.get(key)
        if known is None or known.dispatch != dispatch:
            return Watch(dispatch=dispatch, since=vitals, looked_at=now)
        return known.after(vitals, now, LONGEST_GAP * self._services.settings.schedule.poll_s, idle)


def _executing(track: TrackSupervisor, dispatch: Dispatch | None) -> Run | None:
    """Return the run of a dispatch whose executor is at work; None of one that is begun, ended or checked."""
    if dispatch is None or dispatch.phase is not Phase.EXECUTING:
        return None
    return track.attempts.live.get(dispatch.id)
