"""Whether a track still waits for the person who was told of it."""

from __future__ import annotations

from handoffd.engine.track import Track
from handoffd.protocol.rules import DONE
from handoffd.protocol.state import Status


def still_waits(track: Track, story: str | None, step: str) -> bool:
    """Return whether a track still waits where it stood when a person was told that it does.

    It does not once it runs, has gone on to another step or story, or has ended.
    """
    state, ledger = track.state, track.ledger
    if state is None or ledger.closed or state.step == DONE or (state.story, state.step) != (story, step):
        return False
    if ledger.held_edit is not None:
        return True
    if state.status in {Status.NEEDS_HUMAN, Status.TIMEOUT}:
        return True
    paused = ledger.paused_by is not None and ledger.remedy is not None  # by us, for want of something
    return state.status is Status.PENDING and (paused or bool(ledger.capped or ledger.told))
