"""How the daemon is run, and which commands follow from it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from handoffd.doctor.service import Service, path_in, service_of, unit_file_of, unit_in

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
    assert "systemctl --user restart handoffd-launcher handoffd" == service.restart
    assert 'handoffd service install --path "$PATH"' == service.mend_path
    assert service.allow_files(12).startswith("systemctl --user edit handoffd  # [Service] LimitNOFILE=65536")


def test_commands_of_an_accounts_service() -> None:
    """By the machine's."""
    service = Service(unit="handoffd@build", account="build")
    assert "sudo systemctl start handoffd@build" == service.start
    assert "sudo systemctl restart handoffd-launcher@build handoffd@build" == service.restart
    assert 'sudo handoffd service install --system --user build --path "$PATH"' == service.mend_path


def test_the_path_of_a_unit_is_read_as_it_was_written(tmp_path: Path) -> None:
    """With what systemd reads as one character."""
    unit = unit_file_of({"XDG_CONFIG_HOME": str(tmp_path)})
    assert path_in(unit) is None
    unit.parent.mkdir(parents=True)

    unit.write_text('[Service]\nEnvironment="HOME=/x"\n', encoding="utf-8")
    assert path_in(unit) is None
    unit.write_text('Environment="PATH=/a b:/c%%d:/e\\"f"\nEnvironment="X=1"\n', encoding="utf-8")
    assert '/a b:/c%d:/e"f' == path_in(unit)


def test_without_a_daemon_the_unit_file_tells(tmp_path: Path) -> None:
    """Installed is what is to be started."""
    file = tmp_path / "handoffd.service"
    assert Service(unit=None) == service_of(None, file)
    file.touch()
    assert Service(unit="handoffd") == service_of(None, file)
    assert Service(unit=None) == service_of(2**22 + 1, file)  # above every process id
    assert service_of(os.getpid(), file) is not None
