"""When the files of a story are kept as they are, under which name, and which of these to go back to.

A snapshot is made of the present before something else can be written over it: before the first attempt of
a story, when an attempt ends, when a person decides a step, and before a person's way back. Only a story that
the daemon drives has them. They are named after the step: `impl-2` is what its second judged attempt has
left, `bdd-0` what was there before the story's first step; the others after their time. A story that is
started again replaces them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from handoffd.engine.decision import Decision, MeasureBaseline, Refusal, Spawn
from handoffd.engine.events import Approved, Event, Rejected, Reopened, Retried, RolledBack, Skipped
from handoffd.engine.run import Moment, Usage
from handoffd.engine.track import EXTERNAL, Phase, Track

BEGUN = "begun"
"""The result of a snapshot made before the story's first attempt."""
KEPT = "kept"
"""That of one made of work that was not judged: cut short, or before a person's way back."""
RESTORED = "restored"
"""That of one made when files were brought back."""


class Label(Struct, frozen=True, kw_only=True):
    """What a snapshot is of. `story` is None before a project's first story."""

    story: str | None
    step: str
    result: str
    """The status that the step was left with, `begun`, `kept` or `restored`."""
    number: int = 0
    """Which judged attempt of the step has left it; 0: none yet."""
    run: str | None = None
    """The id of the attempt that has left it."""
    by: str | None = None
    """The person whose decision it precedes or is about."""
    at: Moment
    order: int = 0
    """A later one has a higher number, also after the clock was set back."""

    @property
    def name(self) -> str:
        """Its name in its story: `impl-2`, `kept-20260102T030405Z`."""
        if self.result in {KEPT, RESTORED}:
            return f"{self.result}-{self.at:%Y%m%dT%H%M%SZ}"
        return f"{self.step}-{self.number}"


class Snapshot(Struct, frozen=True, kw_only=True):
    """The files of a story as a commit that is on no branch."""

    label: Label
    ref: str
    """`refs/handoffd/US-007/impl-2`."""
    commit: str
    files: int | None = None
    """How many files differ from the one before; None: it is the first, or that was not asked for."""

    @property
    def name(self) -> str:
        """Its name in its story."""
        return self.ref.rpartition("/")[2]


# --- when one is made ---------------------------------------------------------------------------------
_DECIDE = (Approved, Rejected, Skipped)
_WAYS_BACK = (Retried, RolledBack, Reopened)


def label_of(before: Track, event: Event, decision: Decision, at: datetime) -> Label | None:
    """Return what to keep the files as before a decision takes effect; None: they need not be kept."""
    state = before.state
    if state is None or isinstance(decision.result, Refusal) or not decision.track.ledger.automatic:
        return None
    if (ended := _ended(before, decision.track, at)) is not None:
        return ended
    if _begins(decision):
        begun = decision.track.state
        return None if begun is None else Label(story=begun.story, step=begun.step, result=BEGUN, at=at)
    if isinstance(event, _DECIDE):
        after = decision.track.state
        result = "skipped" if isinstance(event, Skipped) else str(after.status if after else state.status)
        return Label(
            story=state.story, step=state.step, number=state.attempt, result=result, by=event.by, at=at
        )
    if isinstance(event, _WAYS_BACK) and not (isinstance(event, RolledBack) and event.brought):
        return Label(story=state.story, step=state.step, result=KEPT, by=event.by, at=at)
    return None


def _ended(before: Track, after: Track, at: datetime) -> Label | None:
    """Return what an attempt of ours has left, if that is over; an interruption has no number."""
    dispatch, state = before.ledger.dispatch, after.state
    if dispatch is None or dispatch.executor == EXTERNAL or after.ledger.dispatch is not None:
        return None
    number = after.ledger.facts.attempts.get(dispatch.step, 0)
    judged = number > before.ledger.facts.attempts.get(dispatch.step, 0)
    if not judged and dispatch.phase in {Phase.BASELINE, Phase.STARTING}:
        return None  # no executor was there
    result = str(state.status) if judged and state is not None else KEPT
    return Label(
        story=dispatch.story, step=dispatch.step, number=number, result=result, run=dispatch.id, at=at
    )


def _begins(decision: Decision) -> bool:
    """Return whether a decision begins the first attempt of a story, on which no work was done before."""
    ledger = decision.track.ledger
    if not any(isinstance(effect, Spawn | MeasureBaseline) for effect in decision.effects):
        return False
    return not ledger.facts.attempts and not ledger.free_repeats and ledger.facts.usage == Usage()


# --- which one to go back to --------------------------------------------------------------------------
def of_this_life(snapshots: Iterable[Snapshot]) -> tuple[Snapshot, ...]:
    """Return a story's snapshots since it was begun last, by age; the others are of an earlier start."""
    aged = sorted(snapshots, key=lambda one: one.label.order)
    begun = max((place for place, one in enumerate(aged) if one.label.result == BEGUN), default=0)
    return tuple(aged[begun:])


def before_step(snapshots: Sequence[Snapshot], step: str) -> Snapshot | None:
    """Return the files as they were before a step's first attempt; None when that was not kept.

    `snapshots` are of one life of a story, by age.
    """
    earlier: Snapshot | None = None
    for one in snapshots:
        if one.label.step == step and one.label.result not in {BEGUN, KEPT, RESTORED}:
            return earlier
        if one.label.result != KEPT:
            earlier = one
    return None


def left_last(snapshots: Sequence[Snapshot]) -> Snapshot | None:
    """Return the latest one that a person has not edited: what an attempt or we have left; None: nothing."""
    ours = [one for one in snapshots if one.label.result != KEPT or one.label.run is not None]
    return ours[-1] if ours else None


def expired(
    snapshots: Iterable[Snapshot], now: datetime, days: float, busy: Collection[str | None]
) -> tuple[Snapshot, ...]:
    """Return those older than `days`, but for stories that are `busy`: in flight, or set aside."""
    before = now - timedelta(days=days)
    return tuple(one for one in snapshots if one.label.at < before and one.label.story not in busy)
