"""Why a running executor is ended: its time, its caps, silence, a hand-off that is complete, or our own
stop.

Here the end is only ordered; the attempt is judged when the last process is gone. Silence is measured by
the supervisor: an agent that waits for an answer that never comes would hold its slot until the timeout,
which some steps do not have. So people are told at half of the allowed time, and then it is ended.
"""

from __future__ import annotations

from dataclasses import replace

from handoffd.engine.commands import command
from handoffd.engine.decision import Decision, Ground, Situation, StopTree, ground, row
from handoffd.engine.dispatching import time_limit_min, timed_out
from handoffd.engine.events import (
    CapReached,
    DeadlinePassed,
    ExecutorQuiet,
    ExecutorStalled,
    HandoffSettled,
    Interrupted,
    Silence,
)
from handoffd.engine.limits import cap_ground
from handoffd.engine.track import Phase, StopReason, changed
from handoffd.engine.usage import Finding
from handoffd.engine.wording import accept, notice, refuse, time_in_words, way_on


def stop(
    situation: Situation,
    reason: StopReason,
    why: str,
    *,
    by: str | None = None,
    detail: str | None = None,
    cap: Finding | None = None,
) -> Decision:
    """Order the end of the executor; the attempt is judged, with `detail`, when its last process is gone."""
    dispatch = situation.dispatch
    if dispatch.stop is not None and not (
        reason is StopReason.ABORT and dispatch.stop is not StopReason.ABORT
    ):
        advice = way_on(situation.track, situation.rules)
        return refuse(situation, "STOPPING", f"{dispatch.id} is being stopped already", advice)
    phase = dispatch.phase if dispatch.phase in {Phase.BASELINE, Phase.CHECKING} else Phase.STOPPING
    stopping = changed(
        dispatch, phase=phase, stop=reason, stopped_by=by, stop_detail=detail, cap=cap or dispatch.cap
    )
    track = situation.track.with_ledger(dispatch=stopping)
    return accept(track, f"stopping {dispatch.executor}: {why}").also(
        StopTree(dispatch=dispatch.id, why=reason)
    )


def deadline_passed(situation: Situation, event: DeadlinePassed) -> Decision:
    """End an attempt that has had its time. One that is not ours has no processes to end."""
    if event.dispatch is None:
        return timed_out(
            situation, event.elapsed_min, "no hand-off came in time", short=event.limit_min is not None
        )
    if situation.dispatch.phase not in {Phase.STARTING, Phase.EXECUTING}:
        return refuse(situation, "STALE_FACT", "the executor has ended")
    told = f"{event.elapsed_min:.0f} min" if event.limit_min is None else time_in_words(event.elapsed_min)
    over = f"its time was over after {told}"
    decision = stop(situation, StopReason.TIMEOUT, over)
    limit_min = time_limit_min(situation.track)
    return decision.because(row(situation.state.step, "timeout_min", f"{limit_min:g}"))


def cap_reached(situation: Situation, event: CapReached) -> Decision:
    """End an attempt for which, or for something it is a part of, no more may be spent."""
    if situation.dispatch.phase not in {Phase.STARTING, Phase.EXECUTING}:
        return refuse(situation, "STALE_FACT", "the executor has ended, or is being ended")
    decision = stop(situation, StopReason.CAP, event.finding.text, cap=event.finding)
    return decision.because(cap_ground(event.finding))


def handoff_settled(situation: Situation, event: HandoffSettled) -> Decision:
    """End an executor that has handed over and does nothing more."""
    if situation.dispatch.phase is not Phase.EXECUTING:
        return refuse(situation, "STALE_FACT", "the executor has ended")
    still = f"its hand-off is there and it was still for {event.quiet_s:g} s"
    decision = stop(situation, StopReason.SETTLED, still)
    return decision.because(ground("settings.execute.handoff_grace_s", f"{event.quiet_s:g}"))


def interrupted(situation: Situation, event: Interrupted) -> Decision:
    """End an executor for our own reasons; its attempt will be repeated."""
    if situation.ledger.dispatch is None or situation.dispatch.phase not in {Phase.STARTING, Phase.EXECUTING}:
        return refuse(situation, "NOTHING_RUNS", "no executor of ours runs")
    return stop(situation, StopReason.SHUTDOWN, "the daemon stops its executors", by=event.by)


def executor_quiet(situation: Situation, event: ExecutorQuiet) -> Decision:
    """Tell people, while there still is time to look at it."""
    if situation.dispatch.phase is not Phase.EXECUTING:
        return refuse(situation, "STALE_FACT", "the executor has ended")
    silence, step = event.silence, situation.state.step
    told = f"{step}: {situation.dispatch.executor} shows no sign of life for {silence.quiet_min:.1f} min"
    why = f"{silence.signs}; it is ended after {silence.limit_min:g} min of that"
    look = command("log")
    telling = notice(situation.track, "warning", told, why=why, action=look)
    decision = accept(situation.track, told, why=why, do="see what it printed last").also(telling)
    return replace(decision, result=replace(decision.result, next_command=look)).because(_allowed(silence))


def executor_stalled(situation: Situation, event: ExecutorStalled) -> Decision:
    """End it; the attempt is judged when its last process is gone."""
    if situation.dispatch.phase is not Phase.EXECUTING:
        return refuse(situation, "STALE_FACT", "the executor has ended")
    silence = event.silence
    detail = f"it stood still for {silence.quiet_min:.1f} min: {silence.signs}"
    return stop(situation, StopReason.STALL, detail, detail=detail).because(_allowed(silence))


def _allowed(silence: Silence) -> Ground:
    return ground("settings.execute.stall_min", f"{silence.limit_min:g}")
