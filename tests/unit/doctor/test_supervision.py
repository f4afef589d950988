"""The daemon as it answers, its units, runs and limits."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.cgroups import delegated
from tests.support.controlled import controlled
from tests.support.namespaces import reading_boot_id
from tests.support.runs import PYTHON, end_processes, run_spec
from tests.support.supervision import MemorySupervision, project_view, track_view

import handoffd
from handoffd.doctor import supervision
from handoffd.doctor.finding import Finding
from handoffd.doctor.service import Service, Unit, membership
from handoffd.doctor.supervision import (
    Asked,
    DaemonFacts,
    Entry,
    LimitFacts,
    PlaceFacts,
    RunPlace,
    SupervisionFacts,
    ask_daemon,
    boots,
    check_daemon,
    check_limits,
    check_runs,
    check_supervision,
    limit_facts,
    run_places,
    socket_entries,
    supervision_facts,
)
from handoffd.errors import HandoffdError, NoAnswer, NoDaemon, Refused
from handoffd.execute.process import Launcher
from handoffd.execute.runner import cgroup, launcher, proc
from handoffd.execute.witness import Witness
from handoffd.settings.model import ExecuteSettings

# --- the daemon -------------------------------------------------------------------------------------
LIMIT_S = 60.0
TERMINAL, PERSON = Service(unit=None), Service(unit="handoffd")
MACHINE = Service(unit="handoffd@bo", account="bo")
NONE_ANSWERS = Asked(error=NoDaemon("none"))
HANGS = Asked(pid=12, error=HandoffdError("the daemon does not answer", code="NO_ANSWER"))
ANSWERS = Asked(version="1.0", pid=12, status={})


def daemon(asked: Asked = NONE_ANSWERS, service: Service = TERMINAL, **changes: Any) -> DaemonFacts:
    """Return facts about a daemon, with `changes`."""
    values: dict[str, Any] = {"socket": "/run/c.sock", "own_version": "1.0", **changes}
    return DaemonFacts(asked=asked, service=service, **values)


def of_unit(
    service: Service = PERSON, /, holder: int | None = None, socket: str = "/run/c.sock", **shown: str
) -> DaemonFacts:
    """Return facts about a daemon that does not answer, and whose unit systemd shows so."""
    unit = Unit(name=service.unit or "", service=service, shown=shown)
    return daemon(service=service, unit=unit, holder=holder, socket=socket)


HELD = "process 77 holds the state directory, and cannot be asked"
LOOKED_INTO = "ps -fp 77; tr '\\0' '\\n' </proc/77/environ | grep DIR"
SILENT = "the daemon (process 12) does not answer"
STOPPED = Asked(pid=12, error=NoAnswer("it is stopped (SIGSTOP)", hint="kill -CONT 12"))
CROWDED = Asked(error=NoAnswer("no room", hint="handoffd doctor"))
FORBIDDEN = Asked(error=Refused("another account's", hint="sudo -u x handoffd status"))
GIVEN_UP = of_unit(ActiveState="failed", Result="exit-code", ExecMainStatus="226", NRestarts="9")


@pytest.mark.parametrize(
    ("facts", "severity", "what", "action"),
    [
        (daemon(ANSWERS), "ok", "runs (process 12, version 1.0)", None),
        (
            daemon(ANSWERS, own_version="2.0"),
            "warning",
            "the daemon is of version 1.0, this program of 2.0",
            "handoffd stop && handoffd run",
        ),
        (daemon(), "warning", "no daemon runs", "handoffd run"),
        (daemon(service=PERSON), "warning", "no daemon runs", "systemctl --user start handoffd"),
        (
            GIVEN_UP,
            "fault",
            "no daemon runs: handoffd failed after 9 restarts, and systemd has given up",
            "handoffd service install",
        ),
        (
            of_unit(ActiveState="activating", NRestarts="0"),
            "warning",
            "the daemon is being started",
            "handoffd status",
        ),
        # A shell without a session, as after `su`, does not find the socket.
        (
            of_unit(ActiveState="active", holder=77, socket="/home/a/run/control.sock"),
            "fault",
            HELD,
            "export XDG_RUNTIME_DIR=/run/user/$(id -u)",
        ),
        (of_unit(ActiveState="active", holder=77), "fault", HELD, LOOKED_INTO),
        (daemon(holder=77), "fault", HELD, LOOKED_INTO),
        (daemon(HANGS), "fault", SILENT, "kill -9 12 && handoffd run"),
        (daemon(HANGS, PERSON), "fault", SILENT, PERSON.restart),
        (daemon(STOPPED), "fault", SILENT, "kill -CONT 12"),
        # A socket without room does not name its process, but the lock does.
        (daemon(CROWDED, holder=77), "fault", SILENT.replace("12", "77"), "kill -9 77 && handoffd run"),
        (daemon(FORBIDDEN), "fault", "the daemon cannot be reached", "sudo -u x handoffd status"),
    ],
)
def test_how_the_daemon_is(facts: DaemonFacts, severity: str, what: str, action: str | None) -> None:
    """With the command that helps, for the way in which the daemon is run."""
    (found,) = check_daemon(facts)

    assert (severity, what, action) == (found.severity, found.what, found.action)


@pytest.mark.parametrize("service", [PERSON, MACHINE])
def test_a_unit_whose_socket_was_removed_is_restarted(service: Service) -> None:
    """It does not listen before that; another process that has the lock is examined."""
    (found,) = check_daemon(of_unit(service, ActiveState="active", MainPID="77", holder=77))
    assert ("fault", "the daemon (process 77) cannot be asked") == (found.severity, found.what)
    assert f"{service.unit} runs, and nothing answers at /run/c.sock, as after that was removed" == found.why
    assert service.restart == found.action
    (another,) = check_daemon(of_unit(service, ActiveState="active", MainPID="77", holder=78))
    assert (another.action or "").startswith("ps -fp 78")


ACCOUNT = pwd.getpwuid(os.geteuid()).pw_name


def elsewhere(*states: str, account: str = ACCOUNT) -> tuple[Finding, ...]:
    """Return what is found where none runs, and the machine has services in these states."""
    service = Service(unit=f"handoffd@{account}", account=account)
    failed = {"LoadState": "loaded", "Result": "start-limit-hit", "NRestarts": "0"}
    others = tuple(
        Unit(name=f"handoffd@{account}", service=service, shown={**failed, "ActiveState": state})
        for state in states
    )
    return check_daemon(daemon(others=others))


def test_where_the_account_has_a_service_of_the_machine_that_one_is_asked() -> None:
    """Not a second daemon started; also where its state is unknown."""
    service = Service(unit=f"handoffd@{ACCOUNT}", account=ACCOUNT)
    for state in ("active", ""):
        (found,) = elsewhere(state)
        assert ("warning", "no daemon runs here") == (found.severity, found.what)
        assert (service.elsewhere, service.ask("handoffd doctor")) == (found.why, found.action)


def test_services_of_the_machine_that_do_not_run_are_named() -> None:
    """Each with the command that starts it: there is no daemon to ask."""
    failed, stopped, starts = elsewhere("failed", "inactive", "activating")

    unit = f"handoffd@{ACCOUNT}"
    assert ("fault", f"no daemon runs: {unit} failed") == (failed.severity, failed.what)
    assert f"sudo systemctl reset-failed {unit} && sudo systemctl start {unit}" == failed.action
    assert (f"{unit} was stopped", f"sudo systemctl start {unit}") == (stopped.why, stopped.action)
    assert "the daemon is being started" == starts.what


@pytest.mark.parametrize("state", ["inactive", "active"])
def test_a_service_whose_account_is_gone_is_a_fault(state: str) -> None:
    """It cannot be asked as that account, also while its daemon still runs."""
    (found,) = elsewhere(state, account="no-such-account")
    assert ("fault", "the account no-such-account does not exist") == (found.severity, found.why)
    assert (found.action or "").startswith("getent passwd no-such-account  # then: ")


@pytest.mark.parametrize(
    ("mode", "socket_mode", "owned", "problems"),
    [
        (0o700, 0o600, True, []),
        (0o755, 0o666, True, [("warning", "chmod 700 /run"), ("warning", "chmod 600 /run/c.sock")]),
        (0o700, 0o600, False, [("fault", "ls -ld /run/c.sock")]),
    ],
)
def test_a_socket_is_the_daemons_alone(
    mode: int, socket_mode: int, owned: bool, problems: list[tuple[str, str]]
) -> None:
    """The daemon refuses other accounts; an owner of the socket could answer in its place."""
    entries = (
        Entry(path="/run", mode=mode, owned=True),
        Entry(path="/run/c.sock", mode=socket_mode, owned=owned),
    )
    _, *found = check_daemon(daemon(ANSWERS, entries=entries))
    assert problems == [(one.severity, one.action) for one in found]


def test_the_path_of_a_socket_may_be_too_long() -> None:
    """In bytes, not in characters."""
    assert ["ok"] == [found.severity for found in check_daemon(daemon(ANSWERS, socket="/" + 89 * "a"))]
    _, found = check_daemon(daemon(ANSWERS, socket="/" + 45 * "ä"))
    action = "export HANDOFFD_RUNTIME_DIR=/run/user/$(id -u)/handoffd"
    assert ("fault", action) == (found.severity, found.action)


def test_a_daemon_answers_with_its_process_version_and_projects() -> None:
    """Its socket and folder are its own."""
    with controlled(MemorySupervision(project_view("/srv/shop", track_view()))) as lent:
        asked = ask_daemon(lent.socket, LIMIT_S)
        found = socket_entries(lent.socket)

    assert (handoffd.__version__, os.getpid(), None) == (asked.version, asked.pid, asked.error)
    assert asked.status is not None
    assert ["/srv/shop"] == [one["project"] for one in asked.status["projects"]]
    assert [(0o700, True), (0o600, True)] == [(one.mode, one.owned) for one in found]


def test_without_a_daemon_there_is_no_socket(tmp_path: Path) -> None:
    """Nor an answer."""
    assert isinstance(ask_daemon(tmp_path / "none/c.sock", LIMIT_S).error, NoDaemon)
    assert () == socket_entries(tmp_path / "none/c.sock")


def test_a_daemon_that_never_answers_is_known_by_its_process() -> None:
    """The kernel names it."""
    # Not pytest's folder: the path of a socket has room for about a hundred bytes.
    with (
        tempfile.TemporaryDirectory(prefix="handoffd-") as name,
        closing(socket.socket(socket.AF_UNIX)) as listening,
    ):
        listening.bind(f"{name}/c.sock")
        listening.listen()
        asked = ask_daemon(Path(name, "c.sock"), 0.1)

    assert os.getpid() == asked.pid
    assert asked.error is not None
    assert "NO_ANSWER" == asked.error.code


# --- units ------------------------------------------------------------------------------------------
WELL = {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled"}


def units_with(
    daemon: dict[str, str], launcher: dict[str, str], service: Service = PERSON
) -> SupervisionFacts:
    """Return facts about a daemon that runs, where both units are installed."""
    units = (
        Unit(name="handoffd", service=PERSON, shown=daemon),
        Unit(name="handoffd-launcher", service=PERSON, shown=launcher),
    )
    return SupervisionFacts(
        systemd=True, unified=True, runs=True, service=service, installed=PERSON, units=units
    )


@pytest.mark.parametrize(
    ("facts", "severity", "what", "action"),
    [
        ((False, True, True, TERMINAL), "ok", "no systemd: nothing restarts the daemon", None),
        (
            (True, True, True, TERMINAL),
            "warning",
            "the daemon does not run as a systemd unit",
            "handoffd service install",
        ),
        ((True, True, False, TERMINAL), "ok", "systemd; runs are kept together by descent", None),
        ((True, False, True, PERSON), "warning", "control groups are of version 1", "cat /proc/cmdline"),
        (
            (True, True, True, PERSON),
            "ok",
            "systemd; each run of the launcher's unit has a control group of its own",
            None,
        ),
    ],
)
def test_what_the_machine_offers_is_reported_with_the_way_to_it(
    facts: tuple[bool, bool, bool, Service], severity: str, what: str, action: str | None
) -> None:
    """Not what the machine does not have."""
    systemd, unified, runs, service = facts
    (found,) = check_supervision(
        SupervisionFacts(systemd=systemd, unified=unified, runs=runs, service=service, installed=TERMINAL)
    )
    assert severity == found.severity
    assert found.what.startswith(what)
    assert action is None if found.action is None else found.action.startswith(action or "-")


def test_two_ids_of_one_boot_are_named(tmp_path: Path) -> None:
    """In a container a unit may read the machine's; runs continue all the same, so it is not a fault."""
    (tmp_path / "boot_id").write_text("b2\n", encoding="ascii")
    socket = tmp_path / "run/launcher.sock"
    program = (PYTHON, "-I", "-S", "-E", launcher.__file__, str(socket))
    subprocess.run([*reading_boot_id(tmp_path / "boot_id"), *program], check=True, timeout=60)
    try:
        (found,) = boots(os.getpid(), Witness(socket))
    finally:
        end_processes(tmp_path)

    assert "ok" == found.severity
    assert f"the machine ({proc.boot_id()}), the launcher another (b2)" in found.what
    assert () == boots(os.getpid(), Witness(socket))


def test_facts_are_of_this_machine() -> None:
    """It has a systemd where that says it."""
    facts = supervision_facts(None, TERMINAL, TERMINAL, None, fleeting=False)
    assert os.path.isdir("/run/systemd/system") is facts.systemd
    assert not facts.runs


def test_a_daemon_in_a_terminal_makes_way_for_the_service_that_is_there() -> None:
    """Installing it again would not help."""
    (found,) = check_supervision(units_with(WELL, WELL, service=TERMINAL))
    assert "handoffd stop && systemctl --user start handoffd" == found.action


CHANGED = {"LoadState": "bad-setting", "DropInPaths": "/u/handoffd.service.d/override.conf"}
FAILED = {"ActiveState": "failed", "Result": "exit-code", "ExecMainStatus": "203"}
AGAIN = "cannot be started again"


@pytest.mark.parametrize(
    ("daemon", "launcher", "what", "action"),
    [
        (
            {},
            {"ActiveState": "inactive"},
            "handoffd-launcher does not run",
            "systemctl --user start handoffd-",
        ),
        ({}, FAILED, "handoffd-launcher failed", "handoffd service install"),
        (CHANGED, {}, f"handoffd runs, and {AGAIN}", "systemd-analyze --user verify handoffd.service"),
        ({}, CHANGED, f"handoffd-launcher runs, and {AGAIN}", "systemd-analyze --user verify handoffd-"),
        ({"UnitFileState": "disabled"}, {}, "not enabled: handoffd", "systemctl --user enable handoffd"),
    ],
)
def test_a_unit_with_a_problem_is_a_warning(
    daemon: dict[str, str], launcher: dict[str, str], what: str, action: str
) -> None:
    """Also one of the launcher, with which the daemon still works, and one that a reboot will show."""
    (found,) = check_supervision(units_with({**WELL, **daemon}, {**WELL, **launcher}))

    assert ("warning", what) == (found.severity, found.what)
    assert (found.action or "").startswith(action)
    # Without a launcher, agents end with the daemon; one that runs has them as before.
    assert ("end with it" in (found.why or "")) == ("ActiveState" in launcher)
    assert ("none comes after it" in (found.why or "")) == (daemon == CHANGED)


def test_sound_units_are_not_mentioned() -> None:
    """Only their control groups; a daemon that does not run is another check's finding."""
    for state in ("active", "inactive"):
        found = check_supervision(units_with({**WELL, "ActiveState": state}, WELL))
        assert ["ok"] == [one.severity for one in found]


def test_a_logout_that_would_end_agents_is_reported_before() -> None:
    """The units are sound until then."""
    (found,) = check_supervision(replace(units_with(WELL, WELL), fleeting=True))
    assert ("warning", "lingering is off", "loginctl enable-linger") == (
        found.severity, found.what, found.action,
    )  # fmt: skip


# --- where runs are ---------------------------------------------------------------------------------
APPS = "0::/user.slice/user-1000.slice/user@1000.service/app.slice"
INSIDE, BESIDE = f"{APPS}/handoffd.service\n", f"{APPS}/handoffd-launcher.service/handoffd-run-7-99\n"
FRONT = f"{APPS}/handoffd-launcher.service/handoffd-launcher\n"
STARTED = {"LoadState": "loaded", "ActiveState": "active"}
RUNS = (
    RunPlace(run="d1", project="/srv/shop", cgroup=INSIDE),
    RunPlace(run="d2", project="/srv/blog", cgroup=BESIDE),
    RunPlace(run="d3.tests", project=None, cgroup=INSIDE),
)


def placed(*runs: RunPlace, launcher: str | None = FRONT, **shown: str) -> PlaceFacts:
    """Return facts about these runs of a person's service; `shown`: how the launcher's unit is."""
    unit = Unit(name="handoffd-launcher", service=PERSON, shown=shown or STARTED)
    names = {"/srv/shop": "shop"}
    return PlaceFacts(service=PERSON, runs=runs, launcher=launcher, unit=unit, names=names)


def test_runs_that_end_with_the_daemons_unit_are_named() -> None:
    """With their projects; the launcher's unit is sound, so a person only has to wait."""
    (found,) = check_runs(placed(*RUNS))

    assert ("supervision", "warning") == (found.check, found.severity)
    assert "2 runs are in the daemon's own unit: d1 of shop, d3.tests" == found.what
    assert "they end when handoffd is stopped or restarted" in (found.why or "")
    assert "handoffd doctor  # and restart handoffd only when they have ended" == found.action


@pytest.mark.parametrize(
    ("launcher", "shown", "action"),
    [
        (INSIDE, {"ActiveState": "inactive"}, "systemctl --user start handoffd-launcher"),
        (None, {"ActiveState": "inactive"}, "systemctl --user start handoffd-launcher"),
        (INSIDE, {"ActiveState": "active"}, "systemctl --user reload handoffd-launcher"),
        (
            INSIDE,
            {"ActiveState": "failed", "Result": "exit-code", "ExecMainCode": "1", "ExecMainStatus": "203"},
            "handoffd service install",
        ),
    ],
)
def test_the_launchers_unit_comes_first(launcher: str | None, shown: dict[str, str], action: str) -> None:
    """Otherwise the next runs would be in the same unit."""
    (found,) = check_runs(placed(RUNS[0], launcher=launcher, **shown))

    assert "1 run is in the daemon's own unit: d1 of shop" == found.what
    assert f"{action}  # and restart handoffd only when it has ended" == found.action


def test_a_launcher_inside_the_daemons_unit_is_reported() -> None:
    """The next run would end with the daemon's unit."""
    (found,) = check_runs(placed(launcher=INSIDE))
    assert "agents are started in the daemon's own unit" == found.what
    assert "systemctl --user reload handoffd-launcher" == found.action
    assert () == check_runs(placed(launcher=INSIDE, ActiveState="inactive")), (
        "a finding about the unit tells it"
    )


def test_runs_outside_the_daemons_unit_are_not_mentioned() -> None:
    """As most are; and a daemon in a terminal has no unit that could end them."""
    assert () == check_runs(placed(RUNS[1]))
    assert () == check_runs(placed(launcher=None))
    assert () == check_runs(replace(placed(*RUNS), service=Service(unit=None)))
    assert () == check_runs(replace(placed(*RUNS), service=MACHINE)), "it is another daemon's unit"


def test_of_many_runs_five_are_named() -> None:
    """The others are counted."""
    many = (RunPlace(run=f"d{number}", project="/srv/shop", cgroup=INSIDE) for number in range(8))
    (found,) = check_runs(placed(*many))
    assert found.what.startswith("8 runs are in the daemon's own unit: d0 of shop, ")
    assert found.what.endswith("d4 of shop, 3 more")


@pytest.fixture
def launching(tmp_path: Path) -> Iterator[Path]:
    """Where a launcher listens whose control group is named as the daemon's unit."""
    with delegated() as place:
        unit, path = place / "handoffd.service", tmp_path / "run/launcher.sock"
        unit.mkdir()
        within = ("sh", "-c", 'echo 0 > "$0/cgroup.procs" && exec "$@"', str(unit))
        command = [*within, PYTHON, "-I", "-S", "-E", launcher.__file__, str(path)]
        subprocess.run(command, check=True, timeout=60)
        yield path
        end_processes(tmp_path)


async def test_a_run_is_in_the_group_of_its_launcher(launching: Path, tmp_path: Path) -> None:
    """Here the daemon's unit; a run that has ended is in none."""
    run = await Launcher(launching).start(tmp_path / "runs/d1", run_spec(tmp_path, "d1", "sleep", "1000"))
    over = await Launcher(launching).start(tmp_path / "runs/d0", run_spec(tmp_path, "d0", "true"))
    await over.wait()

    pid = Witness(launching).listener()
    assert pid is not None
    seen = PlaceFacts(service=PERSON, runs=run_places(tmp_path / "runs"), launcher=membership(pid))
    assert [("d1", str(tmp_path))] == [(one.run, one.project) for one in seen.inside]
    assert not seen.kept
    assert PERSON.runs(pid)
    assert not MACHINE.runs(pid)

    limited = ExecuteSettings.model_validate({"memory_max": "4G"})
    assert not supervision.limit_facts(limited, pid, PERSON).launcher, "its place is the problem"
    run.stop()
    await run.wait()
    assert () == run_places(tmp_path / "runs")


# --- limits of runs ---------------------------------------------------------------------------------
BOTH = ("memory_max", "tasks_max")
ALL, NONE = frozenset({"cpu", "memory", "pids"}), frozenset[str]()


@pytest.mark.parametrize(
    ("limits", "service", "offered", "on", "what", "action"),
    [
        (BOTH, TERMINAL, NONE, NONE, "execute.memory_max and execute.tasks_max", "handoffd service install"),
        (("tasks_max",), PERSON, NONE, NONE, "execute.tasks_max", "cat /proc/cgroups"),
        (BOTH, PERSON, ALL, {"pids"}, "execute.memory_max", "handoffd service install"),
        (("memory_max",), MACHINE, ALL, NONE, "execute.memory_max", "sudo handoffd service install --system"),
    ],
)
def test_a_limit_that_cannot_be_enforced_is_reported(
    limits: tuple[str, ...], service: Service, offered: frozenset[str], on: frozenset[str], what: str,
    action: str,
) -> None:  # fmt: skip
    """With the reason, and the command that repairs it or shows what is missing."""
    facts = LimitFacts(limits=limits, launcher=True, service=service, offered=offered, on=frozenset(on))

    (found,) = check_limits(facts)
    assert ("warning", f"{what} cannot be enforced: agents run without") == (found.severity, found.what)
    assert (found.action or "").startswith(action)
    assert found.why
    assert () == check_limits(replace(facts, launcher=False)), "a missing launcher is another check's finding"


def test_limits_that_hold_are_fine() -> None:
    """A limit that is not set is not checked."""
    facts = LimitFacts(limits=BOTH, launcher=True, service=PERSON, offered=ALL, on=ALL)
    assert ["ok"] == [one.severity for one in check_limits(facts)]
    assert () == check_limits(replace(facts, limits=(), on=NONE))


def test_the_controllers_of_a_launcher_are_read() -> None:
    """From the group in which the kernel has the process, if there is one."""
    settings = ExecuteSettings.model_validate({"memory_max": "4G"})
    facts = limit_facts(settings, None, TERMINAL)
    assert (("memory_max",), False, NONE) == (facts.limits, facts.launcher, facts.on)

    facts = limit_facts(settings, os.getpid(), TERMINAL)
    ours = cgroup.of(os.getpid())
    there = Path(ours or "/nowhere", "cgroup.controllers")
    expected = there.read_text().split() if there.exists() else ()
    assert (True, frozenset(expected)) == (facts.launcher, facts.offered)
