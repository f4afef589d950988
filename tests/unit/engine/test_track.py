"""A track as a value: copies, never changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.playbook import dispatched, track_at

from handoffd.engine.track import Ledger, Track, TrackKey
from handoffd.protocol.state import Status


def test_a_track_is_copied_with_changes() -> None:
    """The old one stays as it was."""
    track = track_at("bdd")
    changed = track.with_state(status=Status.PASS).with_ledger(paused_by="mei")
    assert changed.state is not None
    assert (Status.PASS, "mei") == (changed.state.status, changed.ledger.paused_by)
    assert track_at("bdd") == track


def test_only_fields_of_state_can_be_changed() -> None:
    """A misspelt field would otherwise end up in STATE.json."""
    with pytest.raises(AssertionError, match="no such field"):
        track_at("bdd").with_state(atempt=2)


def test_a_ledger_is_copied_as_replace_does() -> None:
    """It has the changes and nothing else, the ledger stays as it was, and no misspelt field gets in."""
    ledger = Ledger(automatic=True, visits={"impl": 2})

    copy = ledger.with_(paused_by="me", visits={})

    assert replace(ledger, paused_by="me", visits={}) == copy
    assert Ledger(automatic=True, visits={"impl": 2}) == ledger == ledger.with_()
    assert not hasattr(ledger, "__post_init__")  # it would be left out
    with pytest.raises(AssertionError, match="no such field"):
        ledger.with_(paused="me")


def test_a_note_goes_below_the_earlier_one() -> None:
    """And an empty one goes nowhere."""
    track = track_at("bdd").with_note("One.").with_note(None).with_note("").with_note("Two.")
    assert track.state is not None
    assert "One.\n\nTwo." == track.state.human_note


def test_the_end_of_a_dispatch_frees_the_note_that_waited_for_it() -> None:
    """It is for the next prompt from now on, and nothing runs."""
    track = dispatched("bdd", human_note="One.").with_ledger(next_note="Two.").without_dispatch()
    assert track.state is not None
    assert "One.\n\nTwo." == track.state.human_note
    assert (None, None) == (track.ledger.next_note, track.ledger.dispatch)


def test_a_project_has_one_track_by_default() -> None:
    """Keys are plain pairs: they sort, and go into a database as they are."""
    assert ("/srv/shop", "main") == TrackKey("/srv/shop")
    assert Track().state is None
