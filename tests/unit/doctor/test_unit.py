"""How the units of the service are, and what is said about that."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd.doctor.service import Service, Unit, ends_at_logout, refusal, status_name, units_of

OWN, ACCOUNTS = Service(unit="handoffd"), Service(unit="handoffd@build", account="build")
FAILED = {"LoadState": "loaded", "ActiveState": "failed", "Result": "exit-code", "ExecMainCode": "1"}


def unit(service: Service = OWN, /, **shown: str) -> Unit:
    """Return the daemon's unit, failed, with `shown` instead."""
    return Unit(name=service.unit or "", service=service, shown={**FAILED, **shown})


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
    """What is to be mended comes before the start."""
    trouble = unit(ExecMainStatus=status).trouble

    assert trouble is not None
    assert "handoffd failed" == trouble.what
    assert trouble.why.startswith(why)
    assert trouble.action.startswith(action)
    starts = action == "handoffd service install"
    assert starts or trouble.action.endswith("  # then: systemctl --user start handoffd")


def test_an_account_that_is_gone_is_named() -> None:
    """Its unit is the machine's, and so are the commands."""
    trouble = unit(ACCOUNTS, ExecMainStatus="217").trouble

    assert trouble is not None
    assert "the account build does not exist (exit status 217/USER)" == trouble.why
    assert "getent passwd build  # then: sudo systemctl start handoffd@build" == trouble.action


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        ({"Result": "oom-kill"}, "the kernel ended it for want of memory"),
        ({"Result": "watchdog", "ExecMainStatus": "6"}, "it hung, and systemd ended it"),
        ({"Result": "signal", "ExecMainCode": "2", "ExecMainStatus": "9"}, "the signal SIGKILL ended it"),
        ({"Result": "signal", "ExecMainCode": "2", "ExecMainStatus": "99"}, "the signal 99 ended it"),
    ],
)
def test_what_ended_it_otherwise_is_explained(shown: dict[str, str], why: str) -> None:
    """By what systemd calls its result."""
    trouble = unit(**shown).trouble

    assert trouble is not None
    assert why == trouble.why


def test_one_that_is_started_again_and_again_is_in_trouble() -> None:
    """Also at the moment of a start, when how it ended last is forgotten."""
    looping = unit(ActiveState="activating", SubState="start", Result="success", NRestarts="4")

    assert not looping.starts
    assert looping.trouble is not None
    assert "systemd starts handoffd again and again, 4 restarts so far" == looping.trouble.what


def test_the_first_failure_is_told_before_the_first_restart() -> None:
    """systemd counts a restart when it makes it."""
    waits = unit(ActiveState="activating", SubState="auto-restart", ExecMainStatus="203", NRestarts="0")

    assert not waits.starts
    assert waits.trouble is not None
    assert "handoffd failed, and systemd will start it again" == waits.trouble.what
    assert "handoffd service install" == waits.trouble.action


def test_a_start_after_many_failures_needs_them_forgotten() -> None:
    """systemd refuses it for minutes otherwise."""
    trouble = unit(ExecMainStatus="1", NRestarts="9").trouble

    assert trouble is not None
    assert "handoffd failed after 9 restarts, and systemd has given up" == trouble.what
    forgotten = "systemctl --user reset-failed handoffd && systemctl --user start handoffd"
    assert trouble.action.endswith(f"  # then: {forgotten}")


@pytest.mark.parametrize("service", [OWN, ACCOUNTS])
@pytest.mark.parametrize("launcher", [False, True])
def test_a_start_that_was_refused_needs_the_earlier_ones_forgotten(service: Service, launcher: bool) -> None:
    """A person restarted it many times: systemd has counted the starts, and no restart of its own."""
    name = service.launcher if launcher else service.unit or ""
    shown = {**FAILED, "Result": "start-limit-hit", "NRestarts": "0"}
    trouble = Unit(name=name, service=service, shown=shown).trouble

    assert trouble is not None
    assert "it was started too often in a short time" == trouble.why
    systemctl = service.systemctl
    assert f"{systemctl} reset-failed {name} && {systemctl} start {name}" == trouble.action


def test_a_missing_credential_is_named_with_its_file(tmp_path: Path) -> None:
    """Where the unit's files say that it is; the one that is there is not blamed."""
    here, gone = tmp_path / "here 100%", tmp_path / "gone"
    here.touch()
    drop_in = tmp_path / "credentials.conf"
    lines = f"LoadCredential=mine:{str(here).replace('%', '%%')}\nLoadCredentialEncrypted=other:{gone}\n"
    drop_in.write_text(f"[Service]\n{lines}", encoding="utf-8")

    trouble = unit(ExecMainStatus="243", DropInPaths=f"/nowhere.conf {drop_in}").trouble

    assert trouble is not None
    missing = f"the credential other is missing: there is no {gone}"
    assert f"{missing} (exit status 243/CREDENTIALS)" == trouble.why
    assert trouble.action.startswith(f"ls -l '{here}' {gone}  # then: ")


def test_a_credential_that_cannot_be_looked_for_is_not_called_missing(tmp_path: Path) -> None:
    """An account does not see into the folder of its secrets; a name that is too long is refused to all."""
    drop_in = tmp_path / "credentials.conf"
    drop_in.write_text(f"[Service]\nLoadCredential=mine:/{'x' * 300}\n", encoding="utf-8")

    trouble = unit(ACCOUNTS, ExecMainStatus="243", DropInPaths=str(drop_in)).trouble

    assert trouble is not None
    assert "systemd cannot read a credential (exit status 243/CREDENTIALS)" == trouble.why
    assert trouble.action.startswith("sudo ls -l /xxx")


@pytest.mark.parametrize(
    ("how", "action"),
    [
        ("masked", "systemctl --user unmask handoffd"),
        ("bad-setting", "handoffd service install"),
        ("not-found", "handoffd service install"),
    ],
)
def test_a_file_that_systemd_does_not_take_is_told(how: str, action: str) -> None:
    """It never came to a start; what `service install` has written it writes anew."""
    ours = "/u/handoffd.service.d/credentials.conf"
    trouble = unit(LoadState=how, ActiveState="inactive", DropInPaths=ours).trouble

    assert trouble is not None
    assert ("handoffd cannot be started", action) == (trouble.what, trouble.action)


@pytest.mark.parametrize(
    ("service", "look", "edit"),
    [
        (OWN, "systemd-analyze --user verify handoffd.service", "systemctl --user edit handoffd"),
        (ACCOUNTS, "systemd-analyze verify handoffd@build.service", "sudo systemctl edit handoffd@build"),
    ],
)
def test_a_drop_in_of_a_person_that_systemd_does_not_take_is_named(
    service: Service, look: str, edit: str
) -> None:
    """`service install` leaves it alone, and would mend nothing; a daemon that runs has the change ahead."""
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
    """systemd reads it anew only when it is told to."""
    path = "/u/handoffd.service.d/memory.conf"
    told = unit(LoadState="bad-setting", ActiveState="inactive", DropInPaths=path).trouble
    accounts = unit(ACCOUNTS, LoadState="bad-setting", ActiveState="inactive", DropInPaths=path).trouble

    assert told is not None
    assert accounts is not None
    reload = "systemctl --user daemon-reload && systemctl --user start handoffd"
    assert told.action.endswith(f"  # then: ${{EDITOR:-vi}} {path} && {reload}")
    assert f"  # then: sudoedit {path} && sudo systemctl daemon-reload" in accounts.action


@pytest.mark.parametrize("state", ["active", "reloading", "inactive", "deactivating"])
def test_one_that_runs_or_was_stopped_is_in_no_trouble(state: str) -> None:
    """A person may have stopped it."""
    assert unit(ActiveState=state, Result="success").trouble is None


def test_both_units_are_asked_for_at_once(tmp_path: Path) -> None:
    """Of the manager that runs them, once; one that does not answer is no answer."""
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
def test_units_that_end_at_a_logout_are_those_of_a_person_who_does_not_linger(
    tmp_path: Path, answer: str, ends: bool
) -> None:
    """One who is not logged in cannot be asked for; an account's are the machine's."""
    tool = tmp_path / "loginctl"
    tool.write_text(f"#!/bin/sh\n{answer}\n", encoding="utf-8")
    tool.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}

    assert ends is ends_at_logout(OWN, environ)
    assert not ends_at_logout(ACCOUNTS, environ)
    assert not ends_at_logout(Service(unit=None), environ)


def test_a_status_of_systemds_is_told_with_its_name() -> None:
    """As its own log has it; others have none."""
    assert ("226/NAMESPACE", "78", "255") == tuple(map(status_name, (226, 78, 255)))
    assert refusal(226).startswith("226/NAMESPACE: this machine cannot shut it off")
    assert "exit status 255" == refusal(255)
