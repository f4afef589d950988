"""The values and lines `handoffd service` shows."""

from __future__ import annotations

from handoffd.cli.service.commands import installed_text, next_step, status_text, summary
from handoffd.cli.service.plan import activation
from handoffd.cli.service.scope import Machine, Scope
from handoffd.doctor.service import Service

_SERVICE = Service(unit="handoffd")
_SCOPE = Scope(account=None, machine=Machine(environment={"HOME": "/home/alice"}))


def test_numbers_systemd_does_not_have_are_left_out() -> None:
    """Neither `[not set]` nor the largest number there is turns up as a measurement."""
    unit = summary(
        _SERVICE,
        "x.service",
        {"LoadState": "loaded", "MemoryCurrent": "[not set]", "TasksCurrent": str(2**64 - 1)},
    )

    assert (None, None, None) == (unit["memory_bytes"], unit["tasks"], unit["pid"])


def test_the_next_command_follows_from_the_state() -> None:
    """Install, look at the log, start, or ask the daemon itself."""
    base = {"LoadState": "loaded", "ActiveState": "inactive"}

    assert "handoffd service install" == next_step(_SCOPE, summary(_SERVICE, "x", {}))
    failed = summary(_SERVICE, "x", {**base, "ActiveState": "failed", "ExecMainStatus": "1"})
    assert "journalctl --user -u x -n 30  # then: systemctl --user start x" == next_step(_SCOPE, failed)
    assert "systemctl --user start handoffd" == next_step(_SCOPE, summary(_SERVICE, "x", base))
    for state in ("activating", "deactivating"):
        changing = summary(_SERVICE, "x", {**base, "ActiveState": state})
        assert "handoffd service status" == next_step(_SCOPE, changing)
    active = summary(_SERVICE, "x", {**base, "ActiveState": "active"})
    assert "handoffd status" == next_step(_SCOPE, active, active)
    assert failed["action"] == next_step(_SCOPE, active, failed)


def test_what_was_stopped_is_started_whatever_happened_before() -> None:
    """systemd keeps the number of restarts of a unit that a person has stopped."""
    shown = {"LoadState": "loaded", "ActiveState": "inactive", "SubState": "dead", "NRestarts": "4"}
    unit = summary(_SERVICE, "handoffd.service", {**shown, "UnitFileState": "enabled"})

    assert 4 == unit["restarts"]
    assert "handoffd.service: inactive (dead)" in status_text(
        {"units": [unit], "linger": None, "state": "/s", "next": "n"}
    )
    assert "systemctl --user start handoffd" == next_step(_SCOPE, unit)


def test_what_is_for_root_has_sudo() -> None:
    """Wherever a person is told to type it."""
    scope = Scope(account="build", machine=Machine(environment={}))
    stopped = summary(scope.service, "x", {"LoadState": "loaded", "ActiveState": "inactive"})

    assert "sudo systemctl start handoffd@build" == next_step(scope, stopped)
    assert "sudo handoffd service install --system --user build" == next_step(
        scope, summary(scope.service, "x", {})
    )
    assert (
        "sudo systemctl daemon-reload && sudo systemctl enable --now handoffd-launcher@build.service"
        " handoffd@build.service"
    ) == activation(scope)


def test_a_unit_that_is_not_enabled_says_so() -> None:
    """It runs now, and will not after the next boot."""
    unit = summary(
        _SERVICE, "x.service", {"LoadState": "loaded", "ActiveState": "active", "SubState": "running"}
    )

    lines = status_text({"units": [unit], "linger": None, "state": "/s", "next": "n"})

    assert ["x.service: active (running), not enabled", "state        /s", "next         n"] == lines


def test_unchanged_files_are_told_from_written_ones() -> None:
    """Installing again shows what it left alone."""
    report = {
        "dry_run": False, "state": "/s", "next": "n", "commands": [], "obstacle": None, "cautions": [],
        "left_out": [],
        "files": [{"path": "/a", "changed": True}, {"path": "/b", "changed": False}],
    }  # fmt: skip

    assert ["written      /a", "unchanged    /b"] == installed_text(report)[:2]


def test_why_a_unit_does_not_run_is_told_below_it() -> None:
    """In words, beside what systemd calls it."""
    shown = {"LoadState": "loaded", "ActiveState": "failed", "SubState": "failed", "Result": "exit-code"}
    unit = summary(_SERVICE, "handoffd.service", {**shown, "ExecMainCode": "1", "ExecMainStatus": "203"})

    lines = status_text({"units": [unit], "linger": None, "state": "/s", "next": "n"})

    assert "    ended: exit-code, exit code 203/EXEC" in lines
    assert any(line.startswith("    why: its program cannot be executed") for line in lines)
    assert "handoffd service install" == unit["action"]


def test_what_a_process_said_is_not_told_when_it_is_gone() -> None:
    """systemd keeps the text of a unit that failed, was stopped, or waits to be started again."""
    said = {"LoadState": "loaded", "StatusText": "Ready to start runs"}

    def told(**shown: str) -> list[str]:
        unit = summary(_SERVICE, "handoffd-launcher.service", {**said, **shown})
        return status_text({"units": [unit], "linger": None, "state": "/s", "next": "n"})

    text = "    Ready to start runs"
    assert text in told(ActiveState="active", SubState="running", MainPID="7")
    assert text in told(ActiveState="deactivating", SubState="stop-sigterm", MainPID="7")
    assert text not in told(ActiveState="failed", SubState="failed", MainPID="0")
    assert text not in told(ActiveState="inactive", SubState="dead", MainPID="0")
    assert text not in told(ActiveState="activating", SubState="auto-restart", MainPID="0")
