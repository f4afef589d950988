"""Looks that may never end."""

from __future__ import annotations

import threading

import pytest

from handoffd.doctor.finding import answers


def test_what_ends_in_time_is_returned() -> None:
    """Each under its name."""
    assert {"a": 1, "b": 2} == answers({"a": lambda: 1, "b": lambda: 2}, 60)
    assert {} == answers({}, 60)


def test_what_is_silent_is_left_out_and_left_behind() -> None:
    """The others' answers are there; the end of the program does not wait for its thread."""
    ever = threading.Event()
    try:
        assert {"b": True} == answers({"a": ever.wait, "b": lambda: True}, 0.5)
        assert all(thread.daemon for thread in threading.enumerate() if thread.name == "look")
    finally:
        ever.set()


def test_what_fails_raises() -> None:
    """As if it had been called here."""

    def fail() -> int:
        raise LookupError("nothing")

    with pytest.raises(LookupError, match="nothing"):
        answers({"a": lambda: 1, "b": fail}, 60)
