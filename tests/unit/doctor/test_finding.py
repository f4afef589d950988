"""Findings, for people and programs."""

from __future__ import annotations

from handoffd.doctor.finding import as_json, fault, fine, is_sound, warning


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
