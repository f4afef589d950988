"""What a story waits for, as a report of its time sums it up."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.support.everything import FINDING, LIMIT
from tests.support.playbook import T0, dispatched, state_at, track_at

from handoffd.engine.routing import awaited
from handoffd.engine.track import EXTERNAL, HeldEdit, Ledger, Phase, Track
from handoffd.protocol.state import Status


def in_phase(phase: Phase, executor: str = "claude") -> Track:
    """Return a track with an attempt in this phase."""
    track = dispatched("impl", phase)
    assert track.ledger.dispatch is not None
    return track.with_ledger(dispatch=replace(track.ledger.dispatch, executor=executor))


AUTO = Ledger(automatic=True)


@pytest.mark.parametrize(
    ("wanted", "track"),
    [
        ("nothing", Track()),
        ("nothing", track_at("bootstrap", story=None)),
        ("nothing", track_at("done", Status.PASS, ledger=AUTO)),
        ("nothing", track_at("impl", Status.NEEDS_HUMAN, ledger=Ledger(closed=True))),
        ("checks", in_phase(Phase.BASELINE)),
        ("agent", in_phase(Phase.STARTING)),
        ("agent", in_phase(Phase.STOPPING)),
        ("checks", in_phase(Phase.CHECKING)),
        ("person", in_phase(Phase.EXECUTING, EXTERNAL)),
        ("checks", in_phase(Phase.CHECKING, EXTERNAL)),
        ("person", track_at("impl", Status.RUNNING, dispatched_at=T0)),
        ("person", track_at("review", Status.NEEDS_HUMAN, ledger=AUTO)),
        ("person", track_at("impl", Status.TIMEOUT, ledger=AUTO)),
        ("person", track_at("impl", ledger=Ledger(automatic=True, paused_by="mei"))),
        ("person", track_at("impl", ledger=Ledger(held_edit=HeldEdit(state=state_at("impl"), why="held")))),
        ("person", track_at("impl", ledger=Ledger())),
        ("slot", track_at("impl", ledger=AUTO)),
        ("slot", track_at("impl", Status.FAILING, ledger=AUTO)),
        ("slot", track_at("impl", Status.PASS, ledger=AUTO)),
        ("limit", track_at("impl", ledger=Ledger(automatic=True, limited=(LIMIT,), told="claude"))),
        ("limit", track_at("impl", ledger=Ledger(automatic=True, capped=FINDING))),
        ("slot", track_at("impl", ledger=Ledger(automatic=True, limited=(LIMIT,)))),
        ("story", track_at("impl", ledger=Ledger(automatic=True, told="blocked by US-1"))),
    ],
)  # fmt: skip
def test_a_story_waits_for_one_thing(wanted: str, track: Track) -> None:
    """An executor that takes over from a limited one needs no limit to end, only a slot."""
    assert wanted == awaited(track)
