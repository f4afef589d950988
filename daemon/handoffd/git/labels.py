"""When the files of a story are kept as they are, under which name, and which of these to go back to.

A snapshot is made of the present before something else can be written over it: before the first attempt of
a story, when an attempt ends, when a person decides a step, and before a person's way back; also before a
later attempt that had to wait, so that what others did meanwhile is not taken for its work. Only a story
that the daemon drives has them. They are named after the step: `impl-2` is how the step was left the second
time, `bdd-0` what was there before the story's first step; the others after their time. A story that is
started again replaces them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from handoffd.engine.decision import Decision, MeasureBaseline, Refusal, Spawn
from handoffd.engine.events import Approved, Event, Rejected, Reopened, Retried, RolledBack, Skipped
from handoffd.engine.run import Moment, Usage
from handoffd.engine.track import EXTERNAL, Ledger, Phase, Track
from handoffd.protocol.state import Status

BEGUN = "begun"
"""The result of a snapshot made before the story's first attempt."""
KEPT = "kept"
"""That of one made of work that was not judged: cut short, or before a person's way back."""
STARTED = "started"
"""That of one made before a later attempt, where time has passed since the last one."""
SKIPPED = "skipped"
"""That of a step that a person has skipped."""
RESTORED = "restored"
"""That of one made when files were brought back."""


class Label(Struct, frozen=True, kw_only=True):
    """What a snapshot is of. `story` is None before a project's first story."""

    story: str | None
    step: str
    result: str
    """The status that the step was left with, `skipped`, `begun`, `started`, `kept` or `restored`."""
    run: str | None = None
    """The id of the attempt that has left it."""
    by: str | None = None
    """The person whose decision it precedes or is about."""
    at: Moment

    @property
    def accepted(self) -> bool:
        """Whether its step is behind the story: passed, also by a person's word, or skipped."""
        return self.numbered and self.result in {str(Status.PASS), SKIPPED}

    @property
    def numbered(self) -> bool:
        """Whether its name counts how often its step was left."""
        return self.result not in {BEGUN, STARTED, KEPT, RESTORED}


class Snapshot(Struct, frozen=True, kw_only=True):
    """The files of a story as a commit that is on no branch."""

    label: Label
    name: str
    ref: str
    """`refs/handoffd/US-007/impl-2`."""
    commit: str | None
    """None: it could not be made."""
    beside: Mapping[str, str] | None = None
    """What the commit is without, and what tells its state from others; None: that is not known."""
    left: str | None = None
    """The tree as the attempt left it, before its checks, which may write files, too; None: not known."""
    files: int | None = None
    """How many files differ from the one before; None: it is the first, or that is not known."""


def name_of(label: Label, life: Sequence[Snapshot]) -> str:
    """Return the name of a snapshot in its story, after the ones of this life of it, by age."""
    if label.result == BEGUN:
        return f"{label.step}-0"
    if label.numbered:
        left = [one for one in life if one.label.numbered and one.label.step == label.step]
        return f"{label.step}-{len(left) + 1}"
    name = f"{label.result}-{label.at:%Y%m%dT%H%M%SZ}"
    taken = sum(one.name == name or one.name.startswith(f"{name}-") for one in life)
    return f"{name}-{taken + 1}" if taken else name


def made_before(label: Label, life: Sequence[Snapshot]) -> Snapshot | None:
    """Return the snapshot that is of the same as a label: one is not made twice, of later files.

    A first attempt that was cut short begins again; one may be judged again after a crash.
    """
    if label.result == BEGUN:
        fresh = life and life[0].label.result == BEGUN and not any(one.label.numbered for one in life)
        return life[0] if fresh else None
    if label.run is None:
        return None
    same = (one for one in life if one.label.run == label.run and one.label.numbered == label.numbered)
    return next((one for one in same if one.commit is not None), None)


# --- when one is made ---------------------------------------------------------------------------------
_DECIDE = (Approved, Rejected, Skipped)
_WAYS_BACK = (Retried, RolledBack, Reopened)


def is_kept(ledger: Ledger) -> bool:
    """Return whether the files of a track are kept; what a task that only reads leaves is not."""
    return ledger.automatic and (ledger.task is None or ledger.task.keeps)


def label_of(before: Track, event: Event, decision: Decision, at: datetime) -> Label | None:
    """Return what to keep the files as before a decision takes effect; None: they need not be kept."""
    state = before.state
    if state is None or isinstance(decision.result, Refusal) or not is_kept(decision.track.ledger):
        return None
    if (ended := _ended(before, decision.track, at)) is not None:
        return ended
    begun = decision.track.state
    if _dispatches(decision) and begun is not None:
        result = BEGUN if is_first(decision.track) else STARTED
        return Label(story=begun.story, step=begun.step, result=result, at=at)
    if isinstance(event, _DECIDE):
        after = decision.track.state
        result = SKIPPED if isinstance(event, Skipped) else str(after.status if after else state.status)
        return Label(story=state.story, step=state.step, result=result, by=event.by, at=at)
    if isinstance(event, _WAYS_BACK) and not (isinstance(event, RolledBack) and event.brought):
        return Label(story=state.story, step=state.step, result=KEPT, by=event.by, at=at)
    return None


def _ended(before: Track, after: Track, at: datetime) -> Label | None:
    """Return what an attempt of ours has left, if that is over; an interruption has no number."""
    dispatch, state = before.ledger.dispatch, after.state
    if dispatch is None or dispatch.executor == EXTERNAL or after.ledger.dispatch is not None:
        return None
    judged = after.ledger.facts.attempts.get(dispatch.step, 0) > before.ledger.facts.attempts.get(
        dispatch.step, 0
    )
    if not judged and dispatch.phase in {Phase.BASELINE, Phase.STARTING}:
        return None  # no executor was there
    result = str(state.status) if judged and state is not None else KEPT
    return Label(story=dispatch.story, step=dispatch.step, result=result, run=dispatch.id, at=at)


def _dispatches(decision: Decision) -> bool:
    return any(isinstance(effect, Spawn | MeasureBaseline) for effect in decision.effects)


def is_first(track: Track) -> bool:
    """Return whether a story has had no attempt before the one that a track begins, or is about to begin."""
    ledger = track.ledger
    return not ledger.facts.attempts and not ledger.free_repeats and ledger.facts.usage == Usage()


# --- which one to go back to --------------------------------------------------------------------------
def of_this_life(snapshots: Sequence[Snapshot]) -> tuple[Snapshot, ...]:
    """Return a story's snapshots, by age, since it was begun last; others are of an earlier start."""
    begun = max((place for place, one in enumerate(snapshots) if one.label.result == BEGUN), default=0)
    return tuple(snapshots[begun:])


def since_step(life: Sequence[Snapshot], step: str, earlier: Collection[str]) -> tuple[Snapshot, ...]:
    """Return the snapshots from the one of the files as they were before a step was done last, by age.

    `earlier` are the steps before it: what was done before one of them was passed again was discarded. Empty
    when the files were not kept, or one since then is missing.
    """
    if not life or life[0].label.result != BEGUN:
        return ()
    firm = [place for place, one in enumerate(life) if _ends_the_past(one, earlier)]
    work = (place for place in range(firm[-1] + 1, len(life)) if _is_work(life[place]))
    first = next(work, None)
    since = tuple(life[first - 1 :]) if first is not None else ()
    complete = since and all(one.commit is not None for one in since)
    return since if complete and any(one.label.step == step for one in since[1:]) else ()


def since_entered(life: Sequence[Snapshot], step: str) -> tuple[Snapshot, ...]:
    """Return the snapshots from the one of the files as they were when a step was entered last, by age.

    Behind it are the attempts of that step which have not passed it, and what was there before a later one.
    Empty when the files were not kept, or one since then is missing.
    """
    first = len(life) - 1
    while first > 0 and _tries(life[first], step):
        first -= 1
    since = tuple(life[max(first, 0) :])
    return since if since and all(one.commit is not None for one in since) else ()


def since_decision(life: Sequence[Snapshot], step: str) -> tuple[Snapshot, ...]:
    """Return the snapshots since a person decided a step last, by age; empty where no person did."""
    decided = [
        place
        for place, one in enumerate(life)
        if one.label.step == step and one.label.numbered and one.label.by is not None
    ]
    return tuple(life[decided[-1] :]) if decided else ()


def _ends_the_past(one: Snapshot, earlier: Collection[str]) -> bool:
    return one.label.result in {BEGUN, RESTORED} or (_is_work(one) and one.label.step in earlier)


def _tries(one: Snapshot, step: str) -> bool:
    """Return whether a snapshot is of a step that was tried and not passed."""
    return one.label.step == step and not one.label.accepted and one.label.result not in {BEGUN, RESTORED}


def _is_work(one: Snapshot) -> bool:
    return one.label.numbered or one.label.run is not None


def expired(
    snapshots: Iterable[Snapshot], now: datetime, days: float, busy: Collection[str | None]
) -> tuple[Snapshot, ...]:
    """Return those older than `days`, but for stories that are `busy`: in flight, or set aside."""
    before = now - timedelta(days=days)
    return tuple(one for one in snapshots if one.label.at < before and one.label.story not in busy)
