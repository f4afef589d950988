"""The values and lines `handoffd service` shows."""

from __future__ import annotations

from handoffd.cli.service_report import installed_text, next_step, status_text, summary
from handoffd.cli.service_scope import Machine, Scope

_SCOPE = Scope(account=None, machine=Machine(environment={"HOME": "/home/alice"}))


def test_numbers_systemd_does_not_have_are_left_out() -> None:
    """Neither `[not set]` nor the largest number there is turns up as a measurement."""
    unit = summary(
        "x.service", {"LoadState": "loaded", "MemoryCurrent": "[not set]", "TasksCurrent": str(2**64 - 1)}
    )

    assert (None, None, None) == (unit["memory_bytes"], unit["tasks"], unit["pid"])


def test_the_next_command_follows_from_the_state() -> None:
    """Install, look at the log, start, or ask the daemon itself."""
    base = {"LoadState": "loaded", "ActiveState": "inactive"}

    assert "handoffd service install" == next_step(_SCOPE, summary("x", {}))
    assert _SCOPE.journal == next_step(_SCOPE, summary("x", {**base, "ActiveState": "failed"}))
    assert _SCOPE.journal == next_step(_SCOPE, summary("x", {**base, "NRestarts": "4"}))
    assert "systemctl --user start handoffd.service" == next_step(_SCOPE, summary("x", base))
    assert "handoffd status" == next_step(_SCOPE, summary("x", {**base, "ActiveState": "active"}))


def test_a_unit_that_is_not_enabled_says_so() -> None:
    """It runs now, and will not after the next boot."""
    unit = summary("x.service", {"LoadState": "loaded", "ActiveState": "active", "SubState": "running"})

    lines = status_text({"units": [unit], "linger": None, "state": "/s", "next": "n"})

    assert ["x.service: active (running), not enabled", "state        /s", "next         n"] == lines


def test_unchanged_files_are_told_from_written_ones() -> None:
    """Installing again shows what it left alone."""
    report = {
        "dry_run": False, "state": "/s", "next": "n", "commands": [], "obstacle": None, "cautions": [],
        "files": [{"path": "/a", "changed": True}, {"path": "/b", "changed": False}],
    }  # fmt: skip

    assert ["written      /a", "unchanged    /b"] == installed_text(report)[:2]
