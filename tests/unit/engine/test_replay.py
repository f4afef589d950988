"""A recorded decision made again."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace
from tests.support.playbook import T0, Playbook, state_at, track_at, with_rule

from handoffd.engine.decide import Recorded, replay, standing_of, unlike
from handoffd.engine.decision import Ground, Spawn
from handoffd.engine.events import Advanced, Approved, Noted
from handoffd.engine.track import Track
from handoffd.protocol.state import State, Status

TURN = Advanced(dispatch="d1", executor="rehearsal")


def recorded(before: Track, play: Playbook, event: Advanced | Noted | Approved = TURN) -> Recorded:
    """Return the last decision of `play` as it would be recorded."""
    decision = play.decision
    return Recorded(
        event=event, rules=play.rules, now=play.now, before=standing_of(before.state),
        after=standing_of(decision.track.state), result=decision.result, effects=decision.effects,
        why=decision.why, grounds=decision.grounds,
    )  # fmt: skip


def dispatch_of_bdd() -> tuple[Track, Playbook, Recorded]:
    """Return a track, the turn it took, and its record."""
    before = track_at("bdd")
    play = Playbook(before).given(TURN)
    return before, play, recorded(before, play)


def what(track: Track, record: Recorded) -> list[str]:
    """Return what comes out differently."""
    return [difference.what for difference in replay(track, record).differences]


def test_the_same_decision_comes_out_with_the_next_track() -> None:
    """Same input, same output: nothing differs."""
    before, play, record = dispatch_of_bdd()

    again = replay(before, record)

    assert (play.track, ()) == (again.track, again.differences)


def test_every_part_of_a_decision_is_compared() -> None:
    """Each difference is named, with both values."""
    before, _, record = dispatch_of_bdd()

    assert ["status after"] == what(before, replace(record, after=("bdd", "pass")))
    assert ["step before"] == what(before, replace(record, before=("contract", "pending")))
    assert ["effects"] == what(before, replace(record, effects=()))
    assert ["why"] == what(before, replace(record, why="because"))
    assert ["rules"] == what(before, replace(record, grounds=(Ground(rule="max_visits", value="7"),)))
    (difference,) = replay(before, replace(record, after=("bdd", "pass"))).differences
    assert ("pass", "running") == (difference.recorded, difference.replayed)


def test_the_orders_are_compared_one_by_one() -> None:
    """A changed order is not taken for a missing one."""
    before, _, record = dispatch_of_bdd()
    (spawn,) = record.effects
    assert isinstance(spawn, Spawn)

    changed = replace(record, effects=(replace(spawn, executor="claude"),))

    assert ["effect spawn"] == what(before, changed)


def test_rules_and_time_belong_to_the_decision() -> None:
    """With another table or at another time it is another decision."""
    before, _, record = dispatch_of_bdd()

    assert ["effect spawn"] == what(track_at("bdd", timeout_min=9), record)
    assert "after" in " ".join(what(before, replace(record, rules=with_rule("bdd", requires_human=True))))
    later = replay(before, replace(record, now=T0 + timedelta(hours=1)))
    assert later.track != Playbook(before).given(TURN).track


def test_another_track_before_is_a_difference() -> None:
    """An event that is missing shows in the next one."""
    _, _, record = dispatch_of_bdd()

    assert "step before" in what(track_at("contract"), record)
    assert "standing before" in what(Track(), record)


def test_an_event_that_no_decision_fits_is_a_difference() -> None:
    """A changed record must not end the replay."""
    nonsense = Track(state=state_at("bdd", Status.RUNNING))
    record = replace(dispatch_of_bdd()[2], event=Noted(text=5))  # type: ignore[arg-type]

    assert ["decision"] == what(nonsense.with_ledger(next_note="first"), record)


def test_tracks_are_compared_field_by_field() -> None:
    """A person sees which of them is not what the events make."""
    one = track_at("impl", attempt=2)
    other = track_at("impl", attempt=3).with_ledger(visits={"impl": 4})

    found = [(one.what, one.recorded, one.replayed) for one in unlike(one, other)]
    assert [("state.attempt", "2", "3"), ("ledger.visits", "{}", "{'impl': 4}")] == found
    assert [] == list(unlike(one, one))


def test_foreign_keys_of_the_state_count_as_well() -> None:
    """They survive every decision, so they are compared."""
    plain = {"project": "shop", "story": "US-1"}
    one = Track(state=State.model_validate(plain))
    other = Track(state=State.model_validate({**plain, "x-team": "blue"}))

    assert ["state"] == [difference.what for difference in unlike(one, other)]
