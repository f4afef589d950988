"""The daemon, as it answers and as its socket lies there."""

from __future__ import annotations

import os
import pwd
import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.controlled import controlled
from tests.support.supervision import MemorySupervision, project_view, track_view

import handoffd
from handoffd.doctor.finding import Finding
from handoffd.doctor.service import Service, Unit
from handoffd.doctor.supervision import Asked, DaemonFacts, Entry, ask_daemon, check_daemon, socket_entries
from handoffd.errors import HandoffdError, NoAnswer, NoDaemon, Refused

LIMIT_S = 60.0


def facts(asked: Asked, **changes: Any) -> DaemonFacts:
    """Return facts about a daemon that is run in a terminal, with `changes`."""
    values: dict[str, Any] = {"socket": "/run/c.sock", "own_version": "1.0", "service": Service(unit=None)}
    return DaemonFacts(asked=asked, **values | changes)


def well(**changes: Any) -> DaemonFacts:
    """Return facts about a daemon that answers, with `changes`."""
    return facts(Asked(version="1.0", pid=12, status={}), **changes)


def test_one_that_answers() -> None:
    """Of our version."""
    (found,) = check_daemon(well())
    assert ("ok", "runs (process 12, version 1.0)") == (found.severity, found.what)


def test_one_of_another_version() -> None:
    """It works, and was not started again."""
    (found,) = check_daemon(well(own_version="2.0"))
    assert ("warning", "handoffd stop && handoffd run") == (found.severity, found.action)
    assert "the daemon is of version 1.0, this program of 2.0" == found.what


def test_none_is_a_warning_with_the_command_that_starts_one() -> None:
    """As it is started here."""
    nobody = Asked(error=NoDaemon("no daemon answers"))
    (found,) = check_daemon(facts(nobody))
    assert ("warning", "no daemon runs", "handoffd run") == (found.severity, found.what, found.action)
    (unit,) = check_daemon(facts(nobody, service=Service(unit="handoffd")))
    assert "systemctl --user start handoffd" == unit.action


def test_none_because_its_service_failed() -> None:
    """Then a start is not the next thing to do, and it is a fault: nobody tries again."""
    service = Service(unit="handoffd")
    shown = {"ActiveState": "failed", "Result": "exit-code", "ExecMainStatus": "226", "NRestarts": "9"}
    unit = Unit(name="handoffd", service=service, shown=shown)
    (found,) = check_daemon(facts(Asked(error=NoDaemon("none")), service=service, unit=unit))
    what = "no daemon runs: handoffd failed after 9 restarts, and systemd has given up"
    assert ("fault", what) == (found.severity, found.what)
    assert "handoffd service install" == found.action


ACCOUNT = pwd.getpwuid(os.geteuid()).pw_name


def elsewhere(*states: str, account: str = ACCOUNT) -> tuple[Finding, ...]:
    """Return what is found where none runs, and the machine has services in these states."""
    service = Service(unit=f"handoffd@{account}", account=account)
    failed = {"LoadState": "loaded", "Result": "start-limit-hit", "NRestarts": "0"}
    others = tuple(
        Unit(name=f"handoffd@{account}", service=service, shown={**failed, "ActiveState": state})
        for state in states
    )
    return check_daemon(facts(Asked(error=NoDaemon("none")), others=others))


def test_none_where_the_account_has_a_service_of_the_machine() -> None:
    """A second daemon would be the wrong thing to start; one that runs is asked, and so is an unknown one."""
    service = Service(unit=f"handoffd@{ACCOUNT}", account=ACCOUNT)
    for state in ("active", ""):
        (found,) = elsewhere(state)
        assert ("warning", "no daemon runs here") == (found.severity, found.what)
        assert (service.elsewhere, service.ask("handoffd doctor")) == (found.why, found.action)


def test_none_where_the_services_of_the_machine_do_not_run_either() -> None:
    """Each is told, with what starts it: there is no daemon to ask."""
    failed, stopped, starts = elsewhere("failed", "inactive", "activating")

    unit = f"handoffd@{ACCOUNT}"
    assert ("fault", f"no daemon runs: {unit} failed") == (failed.severity, failed.what)
    assert f"sudo systemctl reset-failed {unit} && sudo systemctl start {unit}" == failed.action
    assert (f"{unit} was stopped", f"sudo systemctl start {unit}") == (stopped.why, stopped.action)
    assert "the daemon is being started" == starts.what


def test_none_where_the_account_of_the_service_is_gone() -> None:
    """It cannot be asked as that account, also while its daemon still runs."""
    for state in ("inactive", "active"):
        (found,) = elsewhere(state, account="no-such-account")
        assert ("fault", "the account no-such-account does not exist") == (found.severity, found.why)
        assert (found.action or "").startswith("getent passwd no-such-account  # then: ")


def test_a_shell_without_a_session_finds_no_socket() -> None:
    """It is after `su` that this happens."""
    service = Service(unit="handoffd")
    unit = Unit(name="handoffd", service=service, shown={"ActiveState": "active"})
    asked = Asked(error=NoDaemon("none"))
    (found,) = check_daemon(
        facts(asked, service=service, unit=unit, holder=77, socket="/home/a/run/control.sock")
    )
    assert "export XDG_RUNTIME_DIR=/run/user/$(id -u)" == found.action
    (inside,) = check_daemon(facts(asked, service=service, unit=unit, holder=77))
    assert (inside.action or "").startswith("ps -fp 77")


@pytest.mark.parametrize("service", [Service(unit="handoffd"), Service(unit="handoffd@a", account="a")])
def test_a_daemon_of_a_unit_whose_socket_was_removed(service: Service) -> None:
    """It listens at none until it is started again; what else has the lock is looked into."""
    unit = Unit(name=service.unit or "", service=service, shown={"ActiveState": "active", "MainPID": "77"})
    asked, place = Asked(error=NoDaemon("none")), {"service": service, "unit": unit}

    (found,) = check_daemon(facts(asked, holder=77, **place))
    assert ("fault", "the daemon (process 77) cannot be asked") == (found.severity, found.what)
    assert f"{service.unit} runs, and nothing answers at /run/c.sock, as after that was removed" == found.why
    assert service.restart == found.action
    (another,) = check_daemon(facts(asked, holder=78, **place))
    assert (another.action or "").startswith("ps -fp 78")


def test_one_that_is_just_being_started() -> None:
    """There is nothing to type but the question, once more."""
    service = Service(unit="handoffd")
    unit = Unit(name="handoffd", service=service, shown={"ActiveState": "activating", "NRestarts": "0"})
    (found,) = check_daemon(facts(Asked(error=NoDaemon("none")), service=service, unit=unit))
    assert ("the daemon is being started", "handoffd status") == (found.what, found.action)


def test_none_that_answers_while_its_lock_is_held() -> None:
    """Commands are refused then, so it is a fault."""
    (found,) = check_daemon(facts(Asked(error=NoDaemon("no daemon answers")), holder=77))
    assert ("fault", "process 77 holds the state directory, and cannot be asked") == (
        found.severity,
        found.what,
    )
    assert (found.action or "").startswith("ps -fp 77")


def test_one_that_hangs() -> None:
    """It is ended the hard way: executors go on, and nothing is lost."""
    late = Asked(pid=12, error=HandoffdError("the daemon does not answer", code="NO_ANSWER"))
    (found,) = check_daemon(facts(late))
    assert ("fault", "the daemon (process 12) does not answer") == (found.severity, found.what)
    assert "kill -9 12 && handoffd run" == found.action
    (unit,) = check_daemon(facts(late, service=Service(unit="handoffd")))
    assert Service(unit="handoffd").restart == unit.action


def test_one_that_was_stopped() -> None:
    """It is told to go on; where its socket does not say which process it is, the lock does."""
    stopped = NoAnswer("it is stopped (SIGSTOP)", hint="kill -CONT 12")
    (found,) = check_daemon(facts(Asked(pid=12, error=stopped)))
    assert "kill -CONT 12" == found.action
    (crowded,) = check_daemon(facts(Asked(error=NoAnswer("no room", hint="handoffd doctor")), holder=77))
    assert ("the daemon (process 77) does not answer", "kill -9 77 && handoffd run") == (
        crowded.what, crowded.action,
    )  # fmt: skip


def test_one_that_is_not_for_us() -> None:
    """With what the client advises."""
    (found,) = check_daemon(
        facts(Asked(error=Refused("it belongs to another account", hint="sudo -u x handoffd status")))
    )
    assert ("fault", "it belongs to another account") == (found.severity, found.why)
    assert "sudo -u x handoffd status" == found.action


def test_a_socket_that_others_can_reach() -> None:
    """Nobody else is answered, but nobody else has any business there."""
    open_to_all = (
        Entry(path="/run", mode=0o755, owned=True),
        Entry(path="/run/c.sock", mode=0o666, owned=True),
    )
    _, folder, place = check_daemon(well(entries=open_to_all))
    assert ("warning", "chmod 700 /run") == (folder.severity, folder.action)
    assert ("warning", "chmod 600 /run/c.sock") == (place.severity, place.action)
    closed = (Entry(path="/run", mode=0o700, owned=True), Entry(path="/run/c.sock", mode=0o600, owned=True))
    assert ["ok"] == [found.severity for found in check_daemon(well(entries=closed))]


def test_a_socket_of_somebody_else() -> None:
    """Its owner can answer in the daemon's stead."""
    _, found = check_daemon(well(entries=(Entry(path="/run/c.sock", mode=0o600, owned=False),)))
    assert ("fault", "ls -ld /run/c.sock") == (found.severity, found.action)


def test_a_path_that_no_socket_can_have() -> None:
    """In bytes, not in characters."""
    assert ["ok"] == [found.severity for found in check_daemon(well(socket="/" + 89 * "a"))]
    _, found = check_daemon(well(socket="/" + 45 * "ä"))
    assert ("fault", "export HANDOFFD_RUNTIME_DIR=/run/user/$(id -u)/handoffd") == (
        found.severity,
        found.action,
    )


def test_what_a_daemon_says() -> None:
    """Process, version and projects; its socket and folder are its own."""
    with controlled(MemorySupervision(project_view("/srv/shop", track_view()))) as lent:
        asked = ask_daemon(lent.socket, LIMIT_S)
        found = socket_entries(lent.socket)

    assert (handoffd.__version__, os.getpid(), None) == (asked.version, asked.pid, asked.error)
    assert asked.status is not None
    assert ["/srv/shop"] == [one["project"] for one in asked.status["projects"]]
    assert [(0o700, True), (0o600, True)] == [(one.mode, one.owned) for one in found]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="handoffd-") as name:
        yield Path(name)


def test_nobody_says_nothing(folder: Path) -> None:
    """And nothing lies there."""
    assert isinstance(ask_daemon(folder / "none/c.sock", LIMIT_S).error, NoDaemon)
    assert () == socket_entries(folder / "none/c.sock")


def test_somebody_who_never_answers(folder: Path) -> None:
    """Is known by process all the same."""
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind(str(folder / "c.sock"))
        listening.listen()
        asked = ask_daemon(folder / "c.sock", 0.1)

    assert os.getpid() == asked.pid
    assert asked.error is not None
    assert "NO_ANSWER" == asked.error.code
