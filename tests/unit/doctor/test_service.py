"""The service: its units, commands, and systemctl."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from handoffd.doctor.service import (
    Commands,
    Completed,
    Service,
    Systemctl,
    Trouble,
    Unit,
    all_of_machine,
    elsewhere,
    ends_at_logout,
    installed,
    of_machine,
    path_in,
    refusal,
    service_of,
    status_name,
    unit_file_of,
    unit_in,
    units_of,
)
from handoffd.errors import Refused

# --- how the daemon is run --------------------------------------------------------------------------
OWN_GROUP = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/handoffd.service"
ACCOUNTS_GROUP = "0::/system.slice/system-handoffd.slice/handoffd@build.service"


@pytest.mark.parametrize(
    ("cgroup", "service"),
    [
        (OWN_GROUP, Service(unit="handoffd")),
        (ACCOUNTS_GROUP, Service(unit="handoffd@build", account="build")),
        (f"12:pids:/x\n{OWN_GROUP}\n", Service(unit="handoffd")),
        ("0::/user.slice/user-1000.slice/session-2.scope", Service(unit=None)),
        ("0::/system.slice/handoffd-launcher.service", Service(unit=None)),
        ("0::/system.slice/cron.service", Service(unit=None)),
        ("", Service(unit=None)),
    ],
)
def test_the_unit_is_read_from_the_control_group(cgroup: str, service: Service) -> None:
    """A terminal has no unit of ours."""
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
    """With systemd's escapes."""
    unit = unit_file_of({"HOME": str(tmp_path)})
    assert path_in(unit) is None
    unit.parent.mkdir(parents=True)

    unit.write_text('[Service]\nEnvironment="HOME=/x"\n', encoding="utf-8")
    assert path_in(unit) is None
    unit.write_text('Environment="PATH=/a b:/c%%d:/e\\"f"\nEnvironment="X=1"\n', encoding="utf-8")
    assert '/a b:/c%d:/e"f' == path_in(unit)


def test_without_a_daemon_the_installed_unit_counts() -> None:
    """It is the next to be started."""
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
def test_directories_and_settings_of_another_daemon_do_not_mean_the_unit(
    environ: dict[str, str], more: dict[str, str], config: str | None, meant: bool
) -> None:
    """`systemctl` would start a daemon that such a command does not reach."""
    assert Service(unit="handoffd" if meant else None) == installed(environ | more, config)


def test_without_a_unit_file_there_is_no_service(tmp_path: Path) -> None:
    """Whatever the environment has."""
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


def test_the_machines_service_of_this_account(tmp_path: Path) -> None:
    """With the command for the account; other directories mean another daemon."""
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


def test_the_machines_service_of_another_account_is_for_root(tmp_path: Path) -> None:
    """Root has no service of its own, and runs commands as the account, which may have no shell."""
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


# --- its units --------------------------------------------------------------------------------------
OWN, ACCOUNTS = Service(unit="handoffd"), Service(unit="handoffd@build", account="build")
FAILED = {"LoadState": "loaded", "ActiveState": "failed", "Result": "exit-code", "ExecMainCode": "1"}


def unit(service: Service = OWN, /, **shown: str) -> Unit:
    """Return the daemon's unit, failed, with `shown` instead."""
    return Unit(name=service.unit or "", service=service, shown={**FAILED, **shown})


def trouble(service: Service = OWN, /, **shown: str) -> Trouble:
    """Return the trouble of such a unit."""
    found = unit(service, **shown).trouble
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("status", "why", "action"),
    [
        ("203", "its program cannot be executed: it was moved or removed", "handoffd service install"),
        ("226", "this machine cannot shut it off", "handoffd service install"),
        (
            "243",
            "systemd cannot read a credential (exit status 243/CREDENTIALS)",
            "journalctl --user -u handoffd",
        ),
        ("78", "its settings cannot be used", "journalctl --user -u handoffd"),
        ("233", "the folder for its sockets cannot be made", "journalctl --user -u handoffd"),
        ("1", "it ended with exit status 1; the log says why", "journalctl --user -u handoffd"),
        ("", "the log says why", "journalctl --user -u handoffd"),
    ],
)
def test_an_exit_status_is_explained_with_the_next_command(status: str, why: str, action: str) -> None:
    """The repair comes before the start."""
    found = trouble(ExecMainStatus=status)

    assert "handoffd failed" == found.what
    assert found.why.startswith(why)
    assert found.action.startswith(action)
    starts = action == "handoffd service install"
    assert starts or found.action.endswith("  # then: systemctl --user start handoffd")


def test_an_account_that_is_gone_is_named() -> None:
    """Its unit is the machine's, and so are the commands."""
    found = trouble(ACCOUNTS, ExecMainStatus="217")

    assert "the account build does not exist (exit status 217/USER)" == found.why
    assert "getent passwd build  # then: sudo systemctl start handoffd@build" == found.action


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        ({"Result": "oom-kill"}, "the kernel ended it for want of memory"),
        ({"Result": "watchdog", "ExecMainStatus": "6"}, "it hung, and systemd ended it"),
        ({"Result": "signal", "ExecMainCode": "2", "ExecMainStatus": "9"}, "the signal SIGKILL ended it"),
        ({"Result": "signal", "ExecMainCode": "2", "ExecMainStatus": "99"}, "the signal 99 ended it"),
    ],
)
def test_another_end_is_explained(shown: dict[str, str], why: str) -> None:
    """By systemd's name for it."""
    found = trouble(**shown)

    assert why == found.why


def test_a_unit_that_is_started_again_and_again_is_in_trouble() -> None:
    """Also during a start, when systemd has forgotten how it ended."""
    looping = unit(ActiveState="activating", SubState="start", Result="success", NRestarts="4")

    assert not looping.starts
    assert looping.trouble is not None
    assert "systemd starts handoffd again and again, 4 restarts so far" == looping.trouble.what


def test_the_first_failure_is_reported_before_the_first_restart() -> None:
    """systemd counts a restart when it makes it."""
    waits = unit(ActiveState="activating", SubState="auto-restart", ExecMainStatus="203", NRestarts="0")

    assert not waits.starts
    assert waits.trouble is not None
    assert "handoffd failed, and systemd will start it again" == waits.trouble.what
    assert "handoffd service install" == waits.trouble.action


def test_a_start_after_many_failures_needs_a_reset() -> None:
    """systemd refuses it for minutes otherwise."""
    found = trouble(ExecMainStatus="1", NRestarts="9")

    assert "handoffd failed after 9 restarts, and systemd has given up" == found.what
    forgotten = "systemctl --user reset-failed handoffd && systemctl --user start handoffd"
    assert found.action.endswith(f"  # then: {forgotten}")


@pytest.mark.parametrize("service", [OWN, ACCOUNTS])
@pytest.mark.parametrize("launcher", [False, True])
def test_a_start_that_was_refused_needs_a_reset(service: Service, launcher: bool) -> None:
    """A person restarted it many times: systemd counts those too, but not as its restarts."""
    name = service.launcher if launcher else service.unit or ""
    shown = {**FAILED, "Result": "start-limit-hit", "NRestarts": "0"}
    trouble = Unit(name=name, service=service, shown=shown).trouble

    assert trouble is not None
    assert "it was started too often in a short time" == trouble.why
    systemctl = service.systemctl
    assert f"{systemctl} reset-failed {name} && {systemctl} start {name}" == trouble.action


def test_a_missing_credential_is_named_with_its_file(tmp_path: Path) -> None:
    """From the unit's files; the one that exists is not blamed."""
    here, gone = tmp_path / "here 100%", tmp_path / "gone"
    here.touch()
    drop_in = tmp_path / "credentials.conf"
    lines = f"LoadCredential=mine:{str(here).replace('%', '%%')}\nLoadCredentialEncrypted=other:{gone}\n"
    drop_in.write_text(f"[Service]\n{lines}", encoding="utf-8")

    found = trouble(ExecMainStatus="243", DropInPaths=f"/nowhere.conf {drop_in}")

    missing = f"the credential other is missing: there is no {gone}"
    assert f"{missing} (exit status 243/CREDENTIALS)" == found.why
    assert found.action.startswith(f"ls -l '{here}' {gone}  # then: ")


def test_a_credential_that_cannot_be_seen_is_not_called_missing(tmp_path: Path) -> None:
    """An account cannot list the folder of its secrets; here the name is too long for anyone."""
    drop_in = tmp_path / "credentials.conf"
    drop_in.write_text(f"[Service]\nLoadCredential=mine:/{'x' * 300}\n", encoding="utf-8")

    found = trouble(ACCOUNTS, ExecMainStatus="243", DropInPaths=str(drop_in))

    assert "systemd cannot read a credential (exit status 243/CREDENTIALS)" == found.why
    assert found.action.startswith("sudo ls -l /xxx")


@pytest.mark.parametrize(
    ("how", "action"),
    [
        ("masked", "systemctl --user unmask handoffd"),
        ("bad-setting", "handoffd service install"),
        ("not-found", "handoffd service install"),
    ],
)
def test_a_file_that_systemd_does_not_accept_is_reported(how: str, action: str) -> None:
    """The unit never started; `service install` writes its own files again."""
    ours = "/u/handoffd.service.d/credentials.conf"
    found = trouble(LoadState=how, ActiveState="inactive", DropInPaths=ours)

    assert ("handoffd cannot be started", action) == (found.what, found.action)


@pytest.mark.parametrize(
    ("service", "look", "edit"),
    [
        (OWN, "systemd-analyze --user verify handoffd.service", "systemctl --user edit handoffd"),
        (ACCOUNTS, "systemd-analyze verify handoffd@build.service", "sudo systemctl edit handoffd@build"),
    ],
)
def test_a_drop_in_of_a_person_that_systemd_does_not_accept_is_named(
    service: Service, look: str, edit: str
) -> None:
    """`service install` leaves it alone, so it would not help; a running daemon meets it later."""
    paths = ("/u/handoffd.service.d/credentials.conf", "/u/handoffd.service.d/override.conf")
    shown = {"LoadState": "bad-setting", "DropInPaths": " ".join(paths)}
    ended = unit(service, ActiveState="inactive", **shown).trouble
    runs = unit(service, ActiveState="active", **shown).trouble

    assert ended is not None
    assert runs is not None
    name, systemctl = service.unit, service.systemctl
    assert f"systemd cannot use its files (bad-setting), and handoffd did not write {paths[1]}" == ended.why
    assert (f"{name} cannot be started", f"{name} runs, and cannot be started again") == (
        ended.what, runs.what,
    )  # fmt: skip
    assert f"{look}  # then: {edit} && {systemctl} start {name}" == ended.action
    assert f"{look}  # then: {edit} && {systemctl} restart {name}" == runs.action


def test_a_drop_in_that_systemctl_edit_does_not_open_is_opened_by_its_path() -> None:
    """systemd reads it again only after daemon-reload."""
    path = "/u/handoffd.service.d/memory.conf"
    told = unit(LoadState="bad-setting", ActiveState="inactive", DropInPaths=path).trouble
    accounts = unit(ACCOUNTS, LoadState="bad-setting", ActiveState="inactive", DropInPaths=path).trouble

    assert told is not None
    assert accounts is not None
    reload = "systemctl --user daemon-reload && systemctl --user start handoffd"
    assert told.action.endswith(f"  # then: ${{EDITOR:-vi}} {path} && {reload}")
    assert f"  # then: sudoedit {path} && sudo systemctl daemon-reload" in accounts.action


@pytest.mark.parametrize("state", ["active", "reloading", "inactive", "deactivating"])
def test_a_unit_that_runs_or_was_stopped_is_not_in_trouble(state: str) -> None:
    """A person may have stopped it."""
    assert unit(ActiveState=state, Result="success").trouble is None


def test_both_units_come_from_one_call(tmp_path: Path) -> None:
    """Of the manager that runs them; None if it does not answer."""
    asked = tmp_path / "asked"
    tool = tmp_path / "systemctl"
    answer = "Id=handoffd.service\nActiveState=failed\n\nId=handoffd-launcher.service\nActiveState=active\n"
    tool.write_text(f'#!/bin/sh\necho "$*" > {asked}\nprintf "{answer}"\n', encoding="utf-8")
    tool.chmod(0o755)

    units = units_of(OWN, {"PATH": f"{tmp_path}:/usr/bin:/bin"})

    assert units is not None
    assert [False, True] == [one.runs for one in units]
    words = asked.read_text(encoding="utf-8").split()
    assert ("--user", ["handoffd.service", "handoffd-launcher.service"]) == (words[0], words[-2:])
    assert units_of(OWN, {"PATH": "/nowhere"}) is None
    assert units_of(Service(unit=None), {"PATH": f"{tmp_path}:/usr/bin:/bin"}) is None


@pytest.mark.parametrize(("answer", "ends"), [("echo no", True), ("echo yes", False), ("exit 1", False)])
def test_a_persons_units_end_at_a_logout_without_lingering(tmp_path: Path, answer: str, ends: bool) -> None:
    """loginctl knows only people who are logged in; an account's units are the machine's."""
    tool = tmp_path / "loginctl"
    tool.write_text(f"#!/bin/sh\n{answer}\n", encoding="utf-8")
    tool.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}

    assert ends is ends_at_logout(OWN, environ)
    assert not ends_at_logout(ACCOUNTS, environ)
    assert not ends_at_logout(Service(unit=None), environ)


def test_an_exit_status_of_systemd_has_its_name() -> None:
    """As in its own log; others have none."""
    assert ("226/NAMESPACE", "78", "255") == tuple(map(status_name, (226, 78, 255)))
    assert refusal(226).startswith("226/NAMESPACE: this machine cannot shut it off")
    assert "exit status 255" == refusal(255)


# --- systemctl --------------------------------------------------------------------------------------
def test_a_program_runs_with_the_environment_it_is_given() -> None:
    """Nothing of this process's own environment gets in."""
    done = Commands({"PATH": "/usr/bin:/bin", "COLOUR": "blue"}).run(("env",))

    assert 0 == done.code
    assert ["COLOUR=blue", "PATH=/usr/bin:/bin"] == sorted(done.output.split())


def test_a_failure_is_reported_in_the_programs_last_words() -> None:
    """The last line of stderr, else of stdout, else the exit code."""
    commands = Commands({"PATH": "/usr/bin:/bin"})

    assert "denied" == commands.run(("sh", "-c", "echo first >&2; echo denied >&2; exit 3")).why
    assert "out" == commands.run(("sh", "-c", "echo out; exit 3")).why
    assert "exit code 3" == commands.run(("sh", "-c", "exit 3")).why


def test_a_missing_program_is_a_failure_not_an_exception() -> None:
    """Exit code 127, as from a shell."""
    assert (127, "systemctl: not found") == (
        (done := Commands({"PATH": "/nowhere"}).run(("systemctl",))).code, done.why,
    )  # fmt: skip


def test_a_manager_that_does_not_answer_is_an_error() -> None:
    """`show` always prints something."""
    with pytest.raises(Refused, match="systemd does not answer"):
        Systemctl(Commands({"PATH": "/nowhere"}), user=True).show(("handoffd.service",))


@pytest.mark.parametrize(
    ("complaint", "hint"),
    [
        ("Failed to connect to bus: No medium found", "XDG_RUNTIME_DIR"),
        ("Failed to enable unit: Access denied", "sudo systemctl start x"),
        ("Interactive authentication required.", "sudo systemctl start x"),
        ("Unit not found", None),
    ],
)
def test_an_error_gets_the_hint_that_fits(complaint: str, hint: str | None) -> None:
    """A shell without a session, a lack of rights, and everything else."""
    failed = Completed(argv=("systemctl", "start", "x"), code=1, error=complaint)
    found = Systemctl(Commands({}), user=False).hint(failed)

    assert (found is None) if hint is None else (found is not None and hint in found)


def test_ones_own_manager_gets_no_sudo() -> None:
    """Root's would be another one."""
    failed = Completed(argv=("systemctl", "--user", "start", "x"), code=1, error="Access denied")

    assert Systemctl(Commands({}), user=True).hint(failed) is None
