"""Whether a track still waits for the person who was told of it."""

from __future__ import annotations

from handoffd.engine.track import Track
from handoffd.protocol.rules import DONE, RuleBook
from handoffd.protocol.state import Status


def at_gate(track: Track, rules: RuleBook) -> bool:
    """Return whether a track is at a human step, or at one that was so when a person was asked there."""
    state = track.state
    rule = rules.steps.get(state.step) if state is not None else None
    return state is not None and rule is not None and (rule.requires_human or track.ledger.gate == state.step)


def still_waits(track: Track, story: str | None, step: str) -> bool:
    """Return whether a track still waits where it stood when a person was told that it does.

    It does not once it runs, has gone on to another step or story, or has ended. A trial whether the reason
    of our own pause is over is no news yet.
    """
    state, ledger = track.state, track.ledger
    if state is None or ledger.closed or state.step == DONE or (state.story, state.step) != (story, step):
        return False
    if ledger.held_edit is not None:
        return True
    if state.status in {Status.NEEDS_HUMAN, Status.TIMEOUT}:
        return True
    if state.status is Status.RUNNING:
        return ledger.remedy is not None and any(fault.trying for fault in ledger.faults)
    paused = ledger.remedy is not None  # by us, for want of something, or that is just being tried again
    return state.status is Status.PENDING and (paused or bool(ledger.capped or ledger.told))
