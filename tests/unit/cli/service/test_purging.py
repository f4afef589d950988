"""Taking away what the daemon has kept."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest
from tests.support.runs import end_processes, run_spec

from handoffd.cli.service import commands
from handoffd.cli.service.scope import Machine, Scope
from handoffd.errors import Locked, Refused
from handoffd.execute.process import Launcher
from handoffd.files.locks import acquire, daemon_lock_path


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


def test_state_and_settings_go(scope: Scope) -> None:
    """All of it, and what a link leads to stays."""
    (settings,) = scope.settings
    settings.mkdir(parents=True)
    elsewhere = settings.parent / "elsewhere"
    elsewhere.touch()
    (scope.state / "runs/d1/copy").symlink_to(elsewhere)

    found = commands.folders(scope)
    commands.remove(scope, found)

    assert [scope.state, settings] == found
    assert (False, False, True) == (scope.state.exists(), settings.exists(), elsewhere.exists())


def test_what_is_not_there_is_not_missed(tmp_path: Path) -> None:
    """Nothing was kept."""
    assert [] == commands.folders(Scope(account=None, machine=Machine(environment={"HOME": str(tmp_path)})))


@pytest.mark.parametrize("name", ["notes.txt", ".git", "running", "journal.txt"])
def test_a_folder_with_something_else_in_it_is_left_alone(scope: Scope, name: str) -> None:
    """It was named wrongly, or somebody has put something there."""
    (scope.state / name).touch()

    with pytest.raises(Refused, match=re.escape(name)):
        commands.folders(scope)


def test_a_daemon_keeps_its_journal(scope: Scope) -> None:
    """Also one that runs in a terminal, which no unit is asked to stop."""
    with acquire(daemon_lock_path(scope.state), "the state directory"):
        with pytest.raises(Refused, match="is in use by") as caught, commands.alone(scope):
            pass
        assert "handoffd stop" == caught.value.hint
    with commands.alone(scope), pytest.raises(Locked):
        acquire(daemon_lock_path(scope.state), "the state directory")
    commands.remove(scope, [scope.state])
    with commands.alone(scope):
        assert not scope.state.exists()


def test_a_link_is_left_alone(scope: Scope, tmp_path: Path) -> None:
    """Where it leads is for a person to say."""
    scope.state.rename(tmp_path / "moved")
    scope.state.symlink_to(tmp_path / "moved")

    with pytest.raises(Refused, match="the link"):
        commands.folders(scope)


async def test_it_is_refused_while_an_executor_runs(scope: Scope, tmp_path: Path) -> None:
    """Its work could not be judged any more."""
    try:
        run_dir = scope.state / "runs/d1"
        launcher = Launcher(tmp_path / "run/launcher.sock")
        run = await launcher.start(run_dir, run_spec(tmp_path, "d1", "sleep", "600"))
        with pytest.raises(Refused) as caught:
            commands.require_idle(scope)
        run.stop()
        with anyio.fail_after(60):
            await run.wait()
    finally:
        end_processes(tmp_path)

    assert "handoffd stop --executors" == caught.value.hint
    commands.require_idle(scope)
