"""Whether the daemon's unit may ask for a user namespace."""

from __future__ import annotations

import pwd
from pathlib import Path

import pytest

from handoffd.cli.hardening import kernel_obstacle, obstacle
from handoffd.cli.service_scope import Machine, Scope


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("kernel/unprivileged_userns_clone", "0\n", "kernel.unprivileged_userns_clone=0"),
        ("kernel/unprivileged_userns_clone", "1\n", None),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "kernel.apparmor_restrict_unprivileged_userns=1",
        ),
        ("kernel/apparmor_restrict_unprivileged_userns", "0", None),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces=0"),
        ("user/max_user_namespaces", "96365", None),
        ("user/max_user_namespaces", "\xff", None),
    ],
)
def test_a_kernel_that_forbids_them_says_so(tmp_path: Path, name: str, value: str, why: str | None) -> None:
    """In the words of sysctl, so that it can be looked up."""
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_bytes(value.encode("latin-1"))

    assert why == kernel_obstacle(tmp_path)


def _machine(root: Path, code: int | None) -> Machine:
    """Return a machine whose systemd-run ends with `code`; None: no systemd runs."""
    (root / "bin").mkdir()
    if code is not None:
        (root / "systemd").mkdir()
        (root / "bin/systemd-run").write_text(f"#!/bin/sh\nexit {code}\n", encoding="utf-8")
        (root / "bin/systemd-run").chmod(0o755)
    environment = {"PATH": str(root / "bin"), "XDG_RUNTIME_DIR": str(root)}
    return Machine(environment=environment, systemd=root / "systemd", kernel=root / "kernel")


@pytest.mark.parametrize(
    ("code", "refused"), [(0, False), (1, False), (217, True), (218, True), (None, False)]
)
def test_the_manager_is_asked_by_a_unit_that_does_nothing(
    tmp_path: Path, code: int | None, refused: bool
) -> None:
    """Only what systemd itself could not do is an obstacle; a manager that is not there is none."""
    assert refused == (obstacle(Scope(account=None, machine=_machine(tmp_path, code))) is not None)


def test_the_machines_own_systemd_needs_none(tmp_path: Path) -> None:
    """Nobody is asked."""
    assert obstacle(Scope(account=pwd.getpwuid(0), machine=_machine(tmp_path, 217))) is None
