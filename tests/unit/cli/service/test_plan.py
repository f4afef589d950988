"""What an installation and its end consist of, before anything is done."""

from __future__ import annotations

import pwd
from pathlib import Path

import pytest

from handoffd.cli.service import plan
from handoffd.cli.service.scope import Machine, Scope
from handoffd.cli.service.unit_files import Installation
from handoffd.errors import Refused

SHARED = Installation(program=Path("/usr/bin/env"), python=Path("/bin/sh"), package=Path("/usr/share"))


def _scope(root: Path, installation: Installation = SHARED, *, account: bool = False) -> Scope:
    person = next(entry.pw_name for entry in pwd.getpwall() if entry.pw_uid != 0)
    machine = Machine(
        environment={"HOME": str(root), "PATH": "/usr/bin"},
        systemd=root / "no systemd",
        system_units=root / "units",
        kernel=root / "kernel",
        installation=installation,
    )
    return Scope(account=person if account else None, machine=machine)


@pytest.mark.parametrize("account", [False, True])
def test_an_installation_is_two_units_and_what_starts_them(tmp_path: Path, account: bool) -> None:
    """Nothing is written by planning it."""
    scope = _scope(tmp_path, account=account)

    todo = plan.installing(scope, path=None, plain=(), encrypted=(), start=True)

    assert list(scope.names) == [file.name for file in todo.changed]
    assert ["daemon-reload", "try-restart", "enable"] == [
        next(word for word in argv[1:] if word != "--user") for argv in todo.commands
    ]
    assert not scope.folder.exists()


def test_files_only(tmp_path: Path) -> None:
    """For an image: no command, and the one that starts them later."""
    scope = _scope(tmp_path)

    assert () == plan.installing(scope, path=None, plain=(), encrypted=(), start=False).commands
    assert plan.activation(scope).endswith("enable --now handoffd-launcher.service handoffd.service")


def test_a_program_in_a_cache_is_no_service(tmp_path: Path) -> None:
    """It would be gone tomorrow."""
    swept = Installation(program=tmp_path / ".cache/x/bin/handoffd", python=Path("/bin/sh"), package=tmp_path)

    with pytest.raises(Refused, match="cache"):
        plan.installing(_scope(tmp_path, swept), path=None, plain=(), encrypted=(), start=True)


def test_the_end_is_what_the_beginning_was(tmp_path: Path) -> None:
    """All files that were written, and without a systemd no command."""
    secret = tmp_path / "secret"
    secret.touch()
    scope = _scope(tmp_path)
    todo = plan.installing(scope, path=None, plain=[f"a={secret}"], encrypted=(), start=False)
    plan.write(scope, todo.changed)

    end = plan.uninstalling(scope)

    assert {file.path for file, _ in todo.files} == set(end.removed)
    assert ((), (), (), (), None) == (end.before, end.after, end.last, end.kept, end.unanswered)
