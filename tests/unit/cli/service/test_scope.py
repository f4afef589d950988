"""What differs between a person's service and an account's."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from handoffd.cli.service.scope import Machine, Scope, lingers


def _scope(**environment: str) -> Scope:
    return Scope(account=None, machine=Machine(environment={"HOME": "/home/alice", **environment}))


@pytest.mark.parametrize(
    ("environment", "state"),
    [
        ({}, "/home/alice/.local/state/handoffd"),
        ({"XDG_STATE_HOME": "/data"}, "/data/handoffd"),
        ({"XDG_STATE_HOME": "/data", "HANDOFFD_STATE_DIR": "/srv/h"}, "/srv/h"),
    ],
)
def test_state_is_where_the_daemon_keeps_it(environment: dict[str, str], state: str) -> None:
    """The same rule as the daemon's, so that people find the right folder."""
    assert Path(state) == _scope(**environment).state


def test_state_and_sockets_follow_the_settings(tmp_path: Path) -> None:
    """A purge removes what is there; the launcher's unit does not follow other sockets, so they are stray."""
    file = tmp_path / ".config/handoffd/handoffd.yaml"
    file.parent.mkdir(parents=True)
    environment = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": "/run/user/7"}
    scope = Scope(account=None, machine=Machine(environment=environment))
    ours = tmp_path / ".local/state/handoffd"

    for settings, state, stray in (
        (None, ours, None),
        ("state_dir: [\n", ours, None),
        (f"state_dir: {tmp_path}/elsewhere\n", tmp_path / "elsewhere", None),
        ("runtime_dir: /run/user/7/handoffd\n", ours, None),
        ("runtime_dir: /tmp/h\n", ours, Path("/tmp/h")),
    ):
        if settings is not None:
            file.write_text(settings)
        assert (state, stray) == (scope.state, scope.stray_sockets), settings


def test_a_persons_service_needs_no_options() -> None:
    """Names, folder and commands belong to the person's own systemd."""
    scope = _scope()

    assert ("handoffd-launcher.service", "handoffd.service") == scope.names
    assert Path("/home/alice/.config/systemd/user") == scope.folder
    assert "handoffd service status" == scope.command("status")
    assert ("systemctl", "--user", "stop", "x") == scope.systemctl.argv("stop", "x")
    assert "handoffd status" == scope.as_account("handoffd status")
    assert Path("/home/alice/.config/handoffd") == scope.settings[0]
    assert Path("/run/user/7/handoffd") == _scope(XDG_RUNTIME_DIR="/run/user/7").runtime
    assert "journalctl --user -u handoffd -n 30" == scope.service.log


def test_an_account_is_named_everywhere() -> None:
    """Its units are instances, under the machine's systemd."""
    name = next(entry.pw_name for entry in pwd.getpwall() if entry.pw_uid != os.getuid())
    scope = Scope(account=name, machine=Machine(environment={}))

    assert (f"handoffd-launcher@{name}.service", f"handoffd@{name}.service") == scope.names
    assert Path("/etc/systemd/system") == scope.folder
    assert Path("/var/lib/handoffd", name) == scope.state
    assert f"handoffd service status --system --user {name}" == scope.command("status")
    assert ("systemctl", "stop", "x") == scope.systemctl.argv("stop", "x")
    assert Path(f"/etc/handoffd/{name}.env") == scope.settings[0]
    places = f"HANDOFFD_STATE_DIR=/var/lib/handoffd/{name} HANDOFFD_RUNTIME_DIR=/run/handoffd/{name}"
    assert f"sudo -u {name} env {places} handoffd status" == scope.as_account("handoffd status")


def test_lingering_is_unknown_without_loginctl() -> None:
    """Not the same as no."""
    assert lingers(_scope(PATH="/nowhere")) is None
