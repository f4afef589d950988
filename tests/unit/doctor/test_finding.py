"""Findings, and looks that may never end."""

from __future__ import annotations

import threading

import pytest

from handoffd.doctor.finding import answers, as_json, fault, fine, is_sound, warning


# --- findings ---------------------------------------------------------------------------------------
def test_only_a_fault_is_unsound() -> None:
    """Warnings are allowed."""
    assert is_sound([])
    assert is_sound([fine("a", "x"), warning("a", "x", None, None)])
    assert not is_sound([fine("a", "x"), fault("a", "x", None, None)])


def test_json_has_every_key_always() -> None:
    """Also those that have no value."""
    good, bad = fine("watches", "enough"), fault("state", "full", "no room", "df -h")

    assert {
        "findings": [
            {"check": "watches", "severity": "ok", "what": "enough", "why": None, "action": None},
            {"check": "state", "severity": "fault", "what": "full", "why": "no room", "action": "df -h"},
        ],
        "ok": False,
    } == as_json([good, bad])


# --- looks ------------------------------------------------------------------------------------------
def test_looks_that_end_in_time_are_returned() -> None:
    """Each under its name."""
    assert {"a": 1, "b": 2} == answers({"a": lambda: 1, "b": lambda: 2}, 60)
    assert {} == answers({}, 60)


def test_a_look_that_does_not_end_is_left_out() -> None:
    """The others' answers are returned; the end of the program does not wait for its thread."""
    ever = threading.Event()
    try:
        assert {"b": True} == answers({"a": ever.wait, "b": lambda: True}, 0.5)
        assert all(thread.daemon for thread in threading.enumerate() if thread.name == "look")
    finally:
        ever.set()


def test_a_look_that_fails_raises() -> None:
    """As if it had been called here."""

    def fail() -> int:
        raise LookupError("nothing")

    with pytest.raises(LookupError, match="nothing"):
        answers({"a": lambda: 1, "b": fail}, 60)
