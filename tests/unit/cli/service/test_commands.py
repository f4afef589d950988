"""What `handoffd service` shows, and what a purge removes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from handoffd.cli.service import commands
from handoffd.cli.service.commands import installed_text, next_step, status_text, summary
from handoffd.cli.service.plan import activation
from handoffd.cli.service.scope import Machine, Scope
from handoffd.doctor.service import Service
from handoffd.errors import Locked, Refused
from handoffd.files.locks import acquire, daemon_lock_path

SERVICE = Service(unit="handoffd")
ALICE = Scope(account=None, machine=Machine(environment={"HOME": "/home/alice"}))


def _unit(active: str = "inactive", **shown: str) -> dict[str, object]:
    return summary(SERVICE, "x.service", {"LoadState": "loaded", "ActiveState": active, **shown})


def _status(unit: dict[str, object]) -> list[str]:
    return status_text({"units": [unit], "linger": None, "state": "/s", "next": "n"})


# --- what is shown ----------------------------------------------------------------------------------
def test_numbers_systemd_does_not_have_are_left_out() -> None:
    """Neither `[not set]` nor the largest number there is counts as a measurement."""
    unit = _unit(MemoryCurrent="[not set]", TasksCurrent=str(2**64 - 1))

    assert (None, None, None) == (unit["memory_bytes"], unit["tasks"], unit["pid"])


def test_the_next_command_follows_from_the_state() -> None:
    """Install, read the log, start, wait, or ask the daemon itself."""
    failed, active = _unit("failed", ExecMainStatus="1"), _unit("active")

    assert "handoffd service install" == next_step(ALICE, summary(SERVICE, "x", {}))
    log = "journalctl --user -u x -n 30  # then: systemctl --user start x"
    assert log == failed["action"] == next_step(ALICE, failed)
    assert "systemctl --user start handoffd" == next_step(ALICE, _unit())
    for state in ("activating", "deactivating"):
        assert "handoffd service status" == next_step(ALICE, _unit(state))
    assert "handoffd status" == next_step(ALICE, active, active)
    assert log == next_step(ALICE, active, failed)


def test_restarts_of_a_unit_that_was_stopped_do_not_matter() -> None:
    """systemd keeps their number when a person stops it; the next command starts it."""
    unit = _unit(SubState="dead", NRestarts="4", UnitFileState="enabled")

    assert 4 == unit["restarts"]
    assert "x.service: inactive (dead)" in _status(unit)
    assert "systemctl --user start handoffd" == next_step(ALICE, unit)


def test_commands_for_an_account_have_sudo() -> None:
    """In the next command, and in what activates the units."""
    scope = Scope(account="build", machine=Machine(environment={}))

    assert "sudo systemctl start handoffd@build" == next_step(scope, _unit())
    assert "sudo handoffd service install --system --user build" == next_step(
        scope, summary(scope.service, "x", {})
    )
    assert (
        "sudo systemctl daemon-reload && sudo systemctl enable --now handoffd-launcher@build.service"
        " handoffd@build.service"
    ) == activation(scope)


def test_a_unit_that_is_not_enabled_is_marked() -> None:
    """It runs now, and will not after the next boot."""
    unit = _unit("active", SubState="running")

    assert [
        "x.service: active (running), not enabled", "state        /s", "next         n",
    ] == _status(unit)  # fmt: skip


def test_unchanged_files_differ_from_written_ones() -> None:
    """Installing again shows what it left alone."""
    report = {
        "dry_run": False, "state": "/s", "next": "n", "commands": [], "obstacle": None, "cautions": [],
        "left_out": [],
        "files": [{"path": "/a", "changed": True}, {"path": "/b", "changed": False}],
    }  # fmt: skip

    assert ["written      /a", "unchanged    /b"] == installed_text(report)[:2]


def test_why_a_unit_does_not_run_is_below_it() -> None:
    """In words, beside what systemd calls it."""
    ended = {"SubState": "failed", "Result": "exit-code", "ExecMainCode": "1", "ExecMainStatus": "203"}
    unit = _unit("failed", **ended)

    lines = _status(unit)

    assert "    ended: exit-code, exit code 203/EXEC" in lines
    assert any(line.startswith("    why: its program cannot be executed") for line in lines)
    assert "handoffd service install" == unit["action"]


@pytest.mark.parametrize(
    ("active", "sub", "pid", "shown"),
    [
        ("active", "running", "7", True),
        ("deactivating", "stop-sigterm", "7", True),
        ("failed", "failed", "0", False),
        ("inactive", "dead", "0", False),
        ("activating", "auto-restart", "0", False),
    ],
)
def test_a_process_that_is_gone_has_no_status(active: str, sub: str, pid: str, shown: bool) -> None:
    """systemd keeps the text of a unit that failed, was stopped, or waits for its restart."""
    lines = _status(_unit(active, SubState=sub, MainPID=pid, StatusText="Ready to start runs"))

    assert shown == ("    Ready to start runs" in lines)


# --- what a purge removes ---------------------------------------------------------------------------
@pytest.fixture
def scope(tmp_path: Path) -> Scope:
    """A home in which a daemon has run."""
    scope = Scope(account=None, machine=Machine(environment={"HOME": str(tmp_path)}))
    (scope.state / "runs/d1").mkdir(parents=True)
    (scope.state / "hooks").mkdir()
    for name in (
        "journal.db", "journal.db-wal", "journal.db.before-2026", "daemon.lock", "control.token",
        ".control.token.0123456789abcdef.tmp",
    ):  # fmt: skip
        (scope.state / name).touch()
    return scope


def test_state_and_settings_are_removed(scope: Scope) -> None:
    """Completely, but not what a link leads to."""
    (settings,) = scope.settings
    settings.mkdir(parents=True)
    elsewhere = settings.parent / "elsewhere"
    elsewhere.touch()
    (scope.state / "runs/d1/copy").symlink_to(elsewhere)

    found = commands.folders(scope)
    commands.remove(scope, found)

    assert [scope.state, settings] == found
    assert (False, False, True) == (scope.state.exists(), settings.exists(), elsewhere.exists())
    assert [] == commands.folders(scope)


@pytest.mark.parametrize("name", ["notes.txt", ".git", "running", "journal.txt"])
def test_a_folder_with_something_else_in_it_is_left_alone(scope: Scope, name: str) -> None:
    """Its name is wrong, or a person has put something there."""
    (scope.state / name).touch()

    with pytest.raises(Refused, match=re.escape(name)):
        commands.folders(scope)


def test_a_link_is_left_alone(scope: Scope, tmp_path: Path) -> None:
    """A person has to decide about what it leads to."""
    scope.state.rename(tmp_path / "moved")
    scope.state.symlink_to(tmp_path / "moved")

    with pytest.raises(Refused, match="the link"):
        commands.folders(scope)


def test_a_daemon_keeps_its_journal(scope: Scope) -> None:
    """Also one that runs in a terminal, which has no unit to stop."""
    with acquire(daemon_lock_path(scope.state), "the state directory"):
        with pytest.raises(Refused, match="is in use by") as caught, commands.alone(scope):
            pass
        assert "handoffd stop" == caught.value.hint
    with commands.alone(scope), pytest.raises(Locked):
        acquire(daemon_lock_path(scope.state), "the state directory")
    commands.remove(scope, [scope.state])
    with commands.alone(scope):
        assert not scope.state.exists()
