"""Executors that stand still: noticed at the poller's beat, told as facts to their tracks.

What is remembered between two looks lies in memory only. A daemon that is started anew knows nothing of an
earlier silence and waits for the whole of it again: late is harmless, an agent ended for no reason is not.
For the same reason no two looks count for more than they should lie apart: while the machine slept, or this
process was stopped, nobody could have shown anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anyio import to_thread

from handoffd.engine.events import ExecutorQuiet, ExecutorStalled, Silence
from handoffd.engine.track import Dispatch, Phase, TrackKey
from handoffd.execute.base import Vitals
from handoffd.execute.executor import Idle
from handoffd.execute.process import Run
from handoffd.track.attempts import content_bytes, is_at_rest
from handoffd.track.services import Services
from handoffd.track.track import TrackSupervisor

LONGEST_GAP = 2.0
"""How many intervals of the poller two looks count for, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
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
        """Return what people are told of the time since the last sign of life."""
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
