"""What a hook reads on its standard input, and what it replies."""

from __future__ import annotations

import json

import pytest
from tests.support.hooking import event

from handoffd.hooks.event import EVENTS, MAX_BYTES, NotAnEventError, Reply, parse_event


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_of_ours_is_understood(name: str) -> None:
    """With the fields that we use, without the others."""
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
    """In doubt it was sent back: a loop is worse than a missing word."""
    found = parse_event(event("/srv/shop", stop_hook_active=value))

    assert found is not None
    assert continued == found.continued


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"hello", b"[]", b"{}", b'"Stop"', b"\xff\xfe", b"[" * 100_000),
        json.dumps({"hook_event_name": 5, "cwd": "/"}).encode(),
        event("relative"),
        event("/srv\0/shop"),
        event("/srv/\ud800"),
        json.dumps({"hook_event_name": "Stop", "cwd": 7}).encode(),
        event("/srv/shop", last_assistant_message="x" * MAX_BYTES),
    ],
)
def test_anything_else_is_no_event(raw: bytes) -> None:
    """It raises the same exception for all bytes."""
    with pytest.raises(NotAnEventError):
        parse_event(raw)


def test_a_session_is_a_short_text() -> None:
    """It becomes part of a file of ours. A path need not be UTF-8: Python writes its bytes as halves."""
    long, odd = parse_event(event("/", session_id="x" * 9999)), parse_event(event("/", session_id={"a": 1}))
    path = parse_event(event("/srv/\udcff"))

    assert long is not None
    assert odd is not None
    assert path is not None
    assert (200, "", "/srv/\udcff") == (len(long.session), odd.session, path.cwd)


def test_a_reply_is_fit_for_a_terminal_and_an_agent() -> None:
    """Control characters become visible, lines stay lines, and a flood is cut."""
    assert "a?[2Jb\nc" == Reply(2, text="a\x1b[2Jb\nc").text
    assert 8000 == len(Reply(2, text="x" * 100_000).text)
    assert ("", "", 0) == (Reply().text, Reply().note, Reply().code)
