"""How the daemon is run, and which commands follow from it."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from handoffd.doctor.service import (
    Service,
    all_of_machine,
    elsewhere,
    installed,
    of_machine,
    path_in,
    service_of,
    unit_file_of,
    unit_in,
)

OWN = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/handoffd.service"
ACCOUNTS = "0::/system.slice/system-handoffd.slice/handoffd@build.service"


@pytest.mark.parametrize(
    ("cgroup", "service"),
    [
        (OWN, Service(unit="handoffd")),
        (ACCOUNTS, Service(unit="handoffd@build", account="build")),
        (f"12:pids:/x\n{OWN}\n", Service(unit="handoffd")),
        ("0::/user.slice/user-1000.slice/session-2.scope", Service(unit=None)),
        ("0::/system.slice/handoffd-launcher.service", Service(unit=None)),
        ("0::/system.slice/cron.service", Service(unit=None)),
        ("", Service(unit=None)),
    ],
)
def test_the_unit_is_read_from_the_cgroup(cgroup: str, service: Service) -> None:
    """A terminal has none of ours."""
    assert service == unit_in(cgroup)


def test_commands_of_a_terminal() -> None:
    """The program itself."""
    service = Service(unit=None)
    assert ("handoffd run", "handoffd stop && handoffd run") == (service.start, service.restart)
    assert service.restart == service.mend_path
    assert "sudo prlimit --nofile=65536:65536 --pid $$" == service.allow_files(None)
    assert "sudo prlimit --nofile=65536:65536 --pid 12" == service.allow_files(12)


def test_commands_of_a_persons_own_service() -> None:
    """By their own systemd."""
    service = Service(unit="handoffd")
    assert "systemctl --user start handoffd" == service.start
    assert (
        "systemctl --user reload-or-restart handoffd-launcher && systemctl --user restart handoffd"
        == service.restart
    )
    assert 'handoffd service install --path "$PATH"' == service.mend_path
    assert service.allow_files(12).startswith("systemctl --user edit handoffd  # [Service] LimitNOFILE=65536")


def test_commands_of_an_accounts_service() -> None:
    """By the machine's."""
    service = Service(unit="handoffd@build", account="build")
    assert "sudo systemctl start handoffd@build" == service.start
    replaced = "sudo systemctl reload-or-restart handoffd-launcher@build"
    assert f"{replaced} && sudo systemctl restart handoffd@build" == service.restart
    assert 'sudo handoffd service install --system --user build --path "$PATH"' == service.mend_path


def test_the_path_of_a_unit_is_read_as_it_was_written(tmp_path: Path) -> None:
    """With what systemd reads as one character."""
    unit = unit_file_of({"HOME": str(tmp_path)})
    assert path_in(unit) is None
    unit.parent.mkdir(parents=True)

    unit.write_text('[Service]\nEnvironment="HOME=/x"\n', encoding="utf-8")
    assert path_in(unit) is None
    unit.write_text('Environment="PATH=/a b:/c%%d:/e\\"f"\nEnvironment="X=1"\n', encoding="utf-8")
    assert '/a b:/c%d:/e"f' == path_in(unit)


def test_without_a_daemon_the_unit_that_is_installed_counts() -> None:
    """It is what is to be started."""
    there = Service(unit="handoffd")
    assert there == service_of(None, there)
    assert Service(unit=None) == service_of(2**22 + 1, there)  # above every process id
    assert service_of(os.getpid(), there) is not None


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The environment of a person who has installed the service."""
    environ = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": "/run/user/7"}
    unit = unit_file_of(environ)
    unit.parent.mkdir(parents=True)
    unit.write_text('Environment="HANDOFFD_STATE_DIR=/data/state"\n', encoding="utf-8")
    return environ


@pytest.mark.parametrize(
    ("more", "config", "meant"),
    [
        ({}, None, True),
        ({"HANDOFFD_STATE_DIR": "/data/state"}, None, True),
        ({"HANDOFFD_STATE_DIR": "/elsewhere"}, None, False),
        ({"HANDOFFD_RUNTIME_DIR": "/run/user/7/handoffd"}, None, True),
        ({"HANDOFFD_RUNTIME_DIR": "/elsewhere"}, None, False),
        ({"XDG_CONFIG_HOME": "/c"}, "/c/handoffd/handoffd.yaml", True),
        ({}, "/elsewhere.yaml", False),
    ],
)
def test_directories_and_settings_of_another_daemon_are_not_of_the_unit(
    environ: dict[str, str], more: dict[str, str], config: str | None, meant: bool
) -> None:
    """`systemctl` would start one that such a command does not ask."""
    assert Service(unit="handoffd" if meant else None) == installed(environ | more, config)


def test_without_a_unit_file_there_is_no_service(tmp_path: Path) -> None:
    """Whatever the environment says."""
    assert Service(unit=None) == installed({"HOME": str(tmp_path)})


@pytest.mark.parametrize(
    "name", [("HANDOFFD_STATE_DIR", "/var/lib/handoffd/"), ("HANDOFFD_RUNTIME_DIR", "/run/handoffd/")]
)
def test_an_accounts_directories_name_its_unit(tmp_path: Path, name: tuple[str, str]) -> None:
    """If that is installed."""
    environ = {"HOME": str(tmp_path), name[0]: f"{name[1]}build"}
    assert Service(unit=None) == installed(environ, system_units=tmp_path)
    (tmp_path / "handoffd@build.service").touch()
    assert Service(unit="handoffd@build", account="build") == installed(environ, system_units=tmp_path)


def test_the_machines_service_of_the_account_that_asks(tmp_path: Path) -> None:
    """With the way in which the account asks it; directories that are named are another daemon's."""
    account = pwd.getpwuid(os.geteuid()).pw_name
    assert of_machine({}, tmp_path) is None
    (tmp_path / f"handoffd@{account}.service").touch()
    service = of_machine({}, tmp_path)
    assert service is not None
    state = f"HANDOFFD_STATE_DIR=/var/lib/handoffd/{account}"
    assert f"env {state} HANDOFFD_RUNTIME_DIR=/run/handoffd/{account} handoffd stop" == service.ask(
        "handoffd stop"
    )
    assert of_machine({"HANDOFFD_STATE_DIR": "/elsewhere"}, tmp_path) is None


def test_the_machines_service_of_another_account_is_roots_business(tmp_path: Path) -> None:
    """Root has none of its own, and asks as the account, which may have no shell."""
    for name in ("handoffd@.service", "handoffd@zoe.service", "handoffd@build.service"):
        (tmp_path / name).touch()
    service = of_machine({}, tmp_path)

    if os.geteuid() != 0:
        assert service is None
        return
    assert ["build", "zoe"] == [one.account for one in all_of_machine({}, tmp_path)]
    names = [one.name for one in elsewhere({"PATH": "/nowhere"}, tmp_path)]
    assert ["handoffd@build", "handoffd@zoe"] == names, "also where systemd does not answer"
    assert Service(unit="handoffd@build", account="build") == service
    assert service.ask("handoffd status").startswith("sudo -u build env HANDOFFD_STATE_DIR=/var/lib/handoffd")
    assert service.elsewhere.startswith("handoffd@build is the service of build, and keeps")
