"""What is said where no daemon answers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from handoffd.doctor.service import unit_file_of
from handoffd.entrance.place import Place
from handoffd.entrance.requests import absences, closing, either, explained
from handoffd.errors import InvalidFile, NoDaemon
from handoffd.files.locks import acquire, daemon_lock_path


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """The place of a person whose service is installed; its systemctl prints the file `answer`."""
    environ = {"HOME": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    unit_file_of(environ).parent.mkdir(parents=True)
    unit_file_of(environ).touch()
    (tmp_path / "systemctl").write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n", encoding="utf-8")
    (tmp_path / "systemctl").chmod(0o755)
    return Place(config=None, environ=environ)


def answers(place: Place, **shown: str) -> None:
    """Have systemctl say this about the daemon's unit."""
    lines = {"Id": "handoffd.service", "LoadState": "loaded", **shown}
    text = "".join(f"{name}={value}\n" for name, value in lines.items())
    Path(place.environ["HOME"], "answer").write_text(text, encoding="utf-8")


def test_without_a_service_the_program_is_started(tmp_path: Path) -> None:
    """In the terminal."""
    nowhere = Place(config=None, environ={"HOME": str(tmp_path)})
    assert "No daemon runs: `handoffd run` goes on from here." == closing(nowhere)


def test_a_service_that_was_stopped_is_started(place: Place) -> None:
    """And no second daemon beside it."""
    answers(place, ActiveState="inactive")
    assert "No daemon runs: `systemctl --user start handoffd` goes on from here." == closing(place)


def test_a_manager_that_does_not_answer_is_no_reason_for_another_daemon(place: Place) -> None:
    """The service is installed all the same."""
    assert "systemctl --user start handoffd" == absences(place)[0].action


def test_a_service_that_failed_says_why(place: Place) -> None:
    """With what helps, on a line of its own."""
    answers(place, ActiveState="failed", Result="exit-code", ExecMainStatus="203")
    first, second = closing(place).split("\n")
    assert first.startswith("No daemon runs: handoffd failed: its program cannot be executed")
    assert "  next: handoffd service install" == second


def test_settings_that_a_service_failed_for_are_told_with_its_start(place: Place) -> None:
    """Whatever was asked; of a service that runs with earlier ones nothing is said."""
    settings = Path(place.environ["HOME"], ".config/handoffd/handoffd.yaml")
    settings.parent.mkdir()
    settings.write_text("nonsense: 1\n", encoding="utf-8")

    def asked() -> InvalidFile:
        with pytest.raises(InvalidFile) as told:
            either(
                place,
                lambda client: client.get("/v1/status"),
                lambda: {"journal": str(place.settings().journal)},
            )
        return told.value

    answers(place, ActiveState="failed", Result="exit-code", ExecMainCode="1", ExecMainStatus="78")
    failed = asked()
    answers(place, ActiveState="active")
    unaffected = asked()

    assert "handoffd failed because of its settings" in failed.message
    assert (failed.hint or "").endswith("# then: systemctl --user start handoffd")
    assert "handoffd failed" not in unaffected.message


def test_a_service_that_is_being_started_is_waited_for(place: Place) -> None:
    """The same question, a moment later, is all there is to type."""
    answers(place, ActiveState="activating", NRestarts="0")
    waiting = "The daemon is not ready yet: handoffd is being started.\n  next: handoffd status"
    assert waiting == closing(place)


def test_a_service_that_runs_and_is_silent_is_looked_into(place: Place) -> None:
    """It is not said that none runs."""
    answers(place, ActiveState="active")
    within = Place(config=place.config, environ={**place.environ, "XDG_RUNTIME_DIR": "/run/user/7"})
    assert "The daemon does not answer here: handoffd runs.\n  next: handoffd doctor" == closing(within)


def test_a_service_whose_socket_was_removed_is_started_again(place: Place) -> None:
    """Its main process has the state directory, so it is not just another daemon that is meant."""
    answers(place, ActiveState="active", MainPID=str(os.getpid()))
    within = Place(config=place.config, environ={**place.environ, "XDG_RUNTIME_DIR": "/run/user/7"})
    with acquire(daemon_lock_path(within.settings().state_dir), "the state directory"):
        silent, restart = closing(within).splitlines()

    socket = "/run/user/7/handoffd/control.sock"
    assert silent.endswith(f"handoffd runs, and nothing answers at {socket}, as after that was removed.")
    launcher = "systemctl --user reload-or-restart handoffd-launcher"
    assert f"  next: {launcher} && systemctl --user restart handoffd" == restart


def test_a_shell_without_a_session_is_led_to_the_socket(place: Place) -> None:
    """After `su` or `sudo -u` it is looked for elsewhere."""
    answers(place, ActiveState="active")
    assert "export XDG_RUNTIME_DIR=/run/user/$(id -u)" == absences(place)[0].action


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is told of the services of other accounts")
def test_root_is_told_of_each_service_of_the_machine(place: Place, tmp_path: Path) -> None:
    """What systemd knows of it; only one that runs is asked, as its account."""
    unit_file_of(place.environ).unlink()
    units = {"failed": "nobody", "active": "root"}
    for account in units.values():
        (tmp_path / f"handoffd@{account}.service").touch()
    answer = "".join(
        f"Id=handoffd@{account}.service\nLoadState=loaded\nActiveState={state}\nResult=start-limit-hit\n\n"
        for state, account in units.items()
    )
    (tmp_path / "answer").write_text(answer, encoding="utf-8")

    failed, start, runs, ask = closing(place, tmp_path).splitlines()
    assert failed.startswith("No daemon runs: handoffd@nobody failed: it was started too often")
    unit = "handoffd@nobody"
    assert f"  next: sudo systemctl reset-failed {unit} && sudo systemctl start {unit}" == start
    assert runs.startswith("The daemon does not answer here: handoffd@root is the service of root")
    assert ask.endswith(" handoffd status")


def test_an_error_gets_the_reason_and_the_command(place: Place) -> None:
    """Its code stays."""
    answers(place, ActiveState="failed", Result="exit-code", ExecMainStatus="78")
    error = explained(NoDaemon("no daemon answers at /x", hint="handoffd run"), place)
    assert error.message.startswith("no daemon answers at /x: handoffd failed: its settings cannot be used")
    assert (error.hint or "").endswith("  # then: systemctl --user start handoffd")
    assert "NO_DAEMON" == error.code
