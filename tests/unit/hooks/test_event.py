"""What is made of a hook's standard input."""

from __future__ import annotations

import json

import pytest
from tests.support.hooking import event

from handoffd.hooks.event import EVENTS, MAX_BYTES, NotAnEventError, parse_event


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_of_ours_is_understood(name: str) -> None:
    """With the fields that count; the others are left out."""
    found = parse_event(event("/srv/shop", name, team_name="shop", reason="other"))

    assert found is not None
    assert (name, "/srv/shop", False) == (found.name, found.cwd, found.continued)
    assert "00893aaf-19fa-41d2-8238-13269b9b3ca0" == found.session


@pytest.mark.parametrize("name", ["PreToolUse", "Notification", "stop", "Whatever"])
def test_every_other_event_is_none(name: str) -> None:
    """Also one that does not exist yet."""
    assert parse_event(event("/srv/shop", name)) is None


@pytest.mark.parametrize(("value", "continued"), [(True, True), (False, False), ("yes", True), (None, True)])
def test_an_agent_that_was_sent_back_is_known(value: object, continued: bool) -> None:
    """When in doubt it was: a loop is worse than a word unsaid."""
    found = parse_event(event("/srv/shop", stop_hook_active=value))

    assert found is not None
    assert continued == found.continued


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"hello",
        b"[]",
        b"{}",
        b'"Stop"',
        b"\xff\xfe",
        b"[" * 100_000,
        json.dumps({"hook_event_name": 5, "cwd": "/"}).encode(),
        event("relative"),
        event("/srv\0/shop"),
        event("/srv/\ud800"),
        json.dumps({"hook_event_name": "Stop", "cwd": 7}).encode(),
        event("/srv/shop", last_assistant_message="x" * MAX_BYTES),
    ],
)
def test_what_is_no_event_is_said(raw: bytes) -> None:
    """Whatever the bytes are, that is one exception."""
    with pytest.raises(NotAnEventError):
        parse_event(raw)


def test_a_path_that_is_no_utf_8_is_a_path() -> None:
    """Python writes its bytes as halves of characters; any other half is none."""
    found = parse_event(event("/srv/\udcff"))

    assert found is not None
    assert "/srv/\udcff" == found.cwd


def test_a_session_is_a_short_text() -> None:
    """It becomes part of a file of ours."""
    long, odd = parse_event(event("/", session_id="x" * 9999)), parse_event(event("/", session_id={"a": 1}))

    assert long is not None
    assert odd is not None
    assert (200, "") == (len(long.session), odd.session)
