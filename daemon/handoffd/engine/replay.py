"""Making a recorded decision again, and telling where it comes out differently.

`decide` is a function, so a journal can be checked: the same track, event, step table and time must
lead to the same decision. Where they do not, either the record was changed, or the engine was. Only
values are compared here; where they are kept is not this module's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime

from handoffd.engine.decide import decide
from handoffd.engine.decision import Decision, Effect, Ground, Result
from handoffd.engine.events import Event
from handoffd.engine.track import Ledger, Track
from handoffd.protocol.rules import RuleBook
from handoffd.protocol.state import State

Standing = tuple[str, str]
"""A step and a status, as STATE.json writes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A decision as it was recorded: what it was made with, and what came out.

    `before` and `after` are None where the track had no STATE.
    """

    event: Event
    rules: RuleBook
    now: datetime
    before: Standing | None
    after: Standing | None
    result: Result
    effects: tuple[Effect, ...]
    why: str
    grounds: tuple[Ground, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that comes out differently: `step`, `status`, `result`, `effects`, `why`, ..."""

    what: str
    recorded: str
    replayed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a decision is now: the next track, and what differs from the record."""

    track: Track
    differences: tuple[Difference, ...]


def replay(track: Track, recorded: Recorded) -> Replayed:
    """Decide again on a recorded event of `track`. Raises nothing: no decision is a difference, too."""
    try:
        decision = decide(track, recorded.event, recorded.rules, recorded.now)
    except Exception as error:  # a changed record may hold what no event could say
        none = f"no decision: {type(error).__name__}: {error}"
        return Replayed(
            track=track, differences=(Difference(what="decision", recorded="one", replayed=none),)
        )
    return Replayed(track=decision.track, differences=tuple(_differences(track.state, recorded, decision)))


def standing_of(state: State | None) -> Standing | None:
    """Return where a track stands, as it is recorded."""
    return None if state is None else (state.step, state.status.value)


def unlike(recorded: Track, replayed: Track) -> Iterator[Difference]:
    """Yield what differs between a track as it is kept and as its events make it, field by field."""
    found = [
        *(
            difference
            for name in State.model_fields
            for difference in differing(
                f"state.{name}", getattr(recorded.state, name, None), getattr(replayed.state, name, None)
            )
        ),
        *(
            difference
            for field in fields(Ledger)
            for difference in differing(
                f"ledger.{field.name}",
                getattr(recorded.ledger, field.name),
                getattr(replayed.ledger, field.name),
            )
        ),
    ]
    # Foreign keys of STATE.json, or their order: no field of ours.
    yield from found or differing("state", recorded.state, replayed.state)


def differing(what: str, recorded: object, replayed: object) -> Iterator[Difference]:
    """Yield the difference between two values, if there is one."""
    if recorded != replayed:
        yield Difference(what=what, recorded=_shown(recorded), replayed=_shown(replayed))


def _differences(before: State | None, recorded: Recorded, decision: Decision) -> Iterator[Difference]:
    yield from _standings("before", recorded.before, standing_of(before))
    yield from _standings("after", recorded.after, standing_of(decision.track.state))
    yield from differing("result", recorded.result, decision.result)
    yield from _effects(recorded.effects, decision.effects)
    yield from differing("why", recorded.why, decision.why)
    yield from differing("rules", _ruled(recorded.grounds), _ruled(decision.grounds))


def _standings(when: str, recorded: Standing | None, replayed: Standing | None) -> Iterator[Difference]:
    if recorded is None or replayed is None:
        yield from differing(f"standing {when}", recorded, replayed)
        return
    yield from differing(f"step {when}", recorded[0], replayed[0])
    yield from differing(f"status {when}", recorded[1], replayed[1])


def _effects(recorded: tuple[Effect, ...], replayed: tuple[Effect, ...]) -> Iterator[Difference]:
    kinds = [effect.kind for effect in recorded], [effect.kind for effect in replayed]
    if kinds[0] != kinds[1]:
        yield from differing("effects", ", ".join(kinds[0]) or None, ", ".join(kinds[1]) or None)
        return
    for one, other in zip(recorded, replayed, strict=True):
        yield from differing(f"effect {one.kind}", one, other)


def _ruled(grounds: tuple[Ground, ...]) -> str | None:
    return ", ".join(f"{ground.rule} = {ground.value}" for ground in grounds) or None


def _shown(value: object) -> str:
    return "none" if value is None else value if isinstance(value, str) else repr(value)
