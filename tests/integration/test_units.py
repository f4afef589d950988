"""The unit files that ship: complete, free of typing errors, and as hardened as promised.

systemd's own programs judge them where they are installed; the rest is read here, so that a
machine without systemd still finds a missing or misspelt key.
"""

from __future__ import annotations

import json
import os
import pwd
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

import handoffd
from handoffd.cli.service import unit_files
from handoffd.cli.service.plan import hardening_lines, without_namespaces
from handoffd.cli.service.unit_files import Installation, UnitFile
from handoffd.settings.model import ExecuteSettings
from handoffd.settings.paths import shared

NAMES = ("handoffd.service", "handoffd-launcher.service", "handoffd@.service", "handoffd-launcher@.service")
DAEMONS = ("handoffd.service", "handoffd@.service")
LAUNCHERS = ("handoffd-launcher.service", "handoffd-launcher@.service")

KNOWN = {
    "Unit": {"Description", "Wants", "After", "StartLimitIntervalSec", "StartLimitBurst"},
    "Install": {"WantedBy"},
    "Service": {
        "Type", "NotifyAccess", "User", "ExecStart", "ExecReload", "Environment", "EnvironmentFile",
        "StateDirectory", "StateDirectoryMode", "RuntimeDirectory", "RuntimeDirectoryMode",
        "RuntimeDirectoryPreserve", "UMask", "Restart", "RestartSec", "RestartPreventExitStatus",
        "WatchdogSec", "TimeoutStartSec", "TimeoutStopSec", "KillMode", "Delegate", "OOMPolicy",
        "ExecStopPost", "TasksMax",
        "AmbientCapabilities", "CapabilityBoundingSet", "KeyringMode", "LockPersonality",
        "NoNewPrivileges", "PrivateDevices", "PrivateMounts", "PrivateUsers", "ProtectClock",
        "ProtectControlGroups", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules",
        "ProtectKernelTunables", "ProtectProc", "ProtectSystem", "RestrictAddressFamilies",
        "RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID", "SystemCallArchitectures",
        "SystemCallErrorNumber", "SystemCallFilter",
    },
}  # fmt: skip

# How the keys begin that forbid something.
HARDENING = (
    "Ambient", "Capability", "Device", "IPAddress", "Inaccessible", "Keyring", "Lock", "NoExec", "NoNew",
    "Private", "ProcSubset", "Protect", "ReadOnly", "RemoveIPC", "Restrict", "SystemCall",
)  # fmt: skip

# A user manager cannot do these, or (ProtectProc) they would hide every process from the daemon.
NOT_FOR_USERS = {"AmbientCapabilities", "ProcSubset", "ProtectProc", "User", "StateDirectory"}

needs_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="systemd-analyze is not installed (Debian: apt install systemd)",
)


def _read(text: str) -> dict[str, dict[str, list[str]]]:
    """Return section -> key -> values in order; fails on a line that is none of these."""
    found: dict[str, dict[str, list[str]]] = {}
    keys: dict[str, list[str]] | None = None
    for line in text.splitlines():
        if not line or line.startswith("#") or line == "@ENVIRONMENT@":
            continue
        if line.startswith("["):
            assert line.endswith("]"), line
            assert line[1:-1] not in found, f"{line} twice"
            keys = found.setdefault(line[1:-1], {})
            continue
        key, equals, value = line.partition("=")
        assert equals, line
        assert keys is not None, line
        keys.setdefault(key, []).append(value)
    return found


def _shipped(name: str) -> dict[str, dict[str, list[str]]]:
    return _read(shared("systemd", name).read_text(encoding="utf-8"))


def _service(name: str) -> dict[str, list[str]]:
    return _shipped(name)["Service"]


# --- read here ------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", NAMES)
def test_every_key_is_a_known_one(name: str) -> None:
    """A misspelt key is ignored by systemd; here it is an error."""
    for section, keys in _shipped(name).items():
        assert set() == keys.keys() - KNOWN[section]


@pytest.mark.parametrize("name", NAMES)
def test_a_key_that_is_not_a_list_is_given_once(name: str) -> None:
    """The second value would silently win."""
    lists = {"Environment", "EnvironmentFile", "SystemCallFilter"}
    doubled = {key for key, values in _service(name).items() if len(values) > 1}

    assert set() == doubled - lists


@pytest.mark.parametrize("name", NAMES)
def test_the_head_says_for_whom_it_is_and_what_surprises(name: str) -> None:
    """The first line that `systemctl cat` shows."""
    head = shared("systemd", name).read_text(encoding="utf-8").partition("[Unit]")[0]

    assert "What may surprise you:" in head
    assert "handoffd service install" in head


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(
            NAMES,
            {"Type": "notify", "NotifyAccess": "main"},
            id="systemd learns that it is ready from the program itself, not from what that started",
        ),
        pytest.param(
            NAMES,
            {"RuntimeDirectoryPreserve": "yes", "RuntimeDirectoryMode": "0700"},
            id="the unit that stops leaves the sockets, which both units have in one folder",
        ),
        pytest.param(
            DAEMONS,
            {
                "WatchdogSec": "60",
                "Restart": "on-failure",
                "RestartPreventExitStatus": "78 243",
                "KillMode": "mixed",
                "ExecReload": "@HANDOFFD@ reload",
                "NoNewPrivileges": "yes",
            },
            id="the daemon is restarted when it hangs or crashes, but not again and again",
        ),
        pytest.param(
            LAUNCHERS,
            {
                "KillMode": "process",
                "Delegate": "memory pids",
                "TasksMax": "infinity",
                "OOMPolicy": "continue",
            },
            id="agents outlive the launcher's unit, and one that runs out of memory",
        ),
        pytest.param(
            LAUNCHERS,
            {"Restart": "always", "RestartSec": "100ms"},
            id="a new launcher is there before a daemon gives up",
        ),
        pytest.param(
            ("handoffd@.service", "handoffd-launcher@.service"),
            {"User": "%i"},
            id="nothing of a system unit runs as root",
        ),
        pytest.param(
            ("handoffd@.service",),
            {"StateDirectory": "handoffd/%i", "StateDirectoryMode": "0700"},
            id="an account's state is closed to others",
        ),
    ],
)
def test_a_promise_of_the_units(names: Sequence[str], expected: dict[str, str]) -> None:
    """Each is kept by these keys, with these values alone."""
    for name in names:
        assert {key: [value] for key, value in expected.items()} == {
            key: _service(name)[key] for key in expected
        }


def test_the_daemon_of_an_account_knows_its_folders() -> None:
    """They are those that its unit makes."""
    folders = "HANDOFFD_STATE_DIR=%S/handoffd/%i HANDOFFD_RUNTIME_DIR=%t/handoffd/%i"
    assert folders in _service("handoffd@.service")["Environment"]


@pytest.mark.parametrize("name", DAEMONS)
def test_the_threads_of_the_daemon_keep_nothing_for_themselves(name: str) -> None:
    """What the unit sets for that is the daemon's, and no agent's."""
    assert "GLIBC_TUNABLES=glibc.malloc.tcache_count=0" in _service(name)["Environment"]
    assert "GLIBC_TUNABLES" not in ExecuteSettings().env_allow


@pytest.mark.parametrize(
    ("name", "launcher"),
    [(DAEMONS[0], "handoffd-launcher.service"), (DAEMONS[1], "handoffd-launcher@%i.service")],
)
def test_the_daemon_wants_its_launcher_first_and_does_not_need_it(name: str, launcher: str) -> None:
    """Wants, not Requires: the launcher's end must not be the daemon's."""
    unit = _shipped(name)["Unit"]

    assert [launcher] == unit["Wants"]
    assert launcher in unit["After"][0].split()


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_unit_that_has_runs_limited_lets_its_next_launcher_in(name: str) -> None:
    """Left-over agents with limits would have each start of the unit fail (219/CGROUP)."""
    service = _service(name)
    (start,), (stopped,) = service["ExecStart"], service["ExecStopPost"]

    assert start.endswith("--delegated --limits")
    program = start.partition("launcher.py")[0]
    assert f"-{program}launcher.py --stopped" == stopped


@pytest.mark.parametrize("name", LAUNCHERS)
def test_the_launcher_forbids_agents_nothing(name: str) -> None:
    """Every restriction of it would be one of every agent."""
    hardening = (*HARDENING, "Memory", "UMask")

    assert [] == [key for key in _service(name) if key.startswith(hardening)]


@pytest.mark.parametrize("name", DAEMONS)
def test_every_line_that_hardens_the_daemon_is_one_that_install_tries(name: str) -> None:
    """One in another place would keep the unit from starting where it is not available."""
    tried = hardening_lines(shared("systemd", name).read_text(encoding="utf-8"))

    lines = [f"{key}={value}" for key, values in _service(name).items() for value in values]
    assert sorted(line for line in lines if line.startswith(HARDENING)) == sorted(tried)


@pytest.mark.parametrize(("daemon", "launcher"), list(zip(DAEMONS, LAUNCHERS, strict=True)))
def test_daemon_and_launcher_meet_at_the_same_socket(daemon: str, launcher: str) -> None:
    """The launcher listens in the folder the daemon looks in."""
    folder = _service(daemon)["RuntimeDirectory"]

    assert folder == _service(launcher)["RuntimeDirectory"]
    assert f" %t/{folder[0]}/launcher.sock --foreground" in _service(launcher)["ExecStart"][0]


@pytest.mark.parametrize("name", ["handoffd.service", "handoffd-launcher.service"])
def test_user_units_ask_for_nothing_a_user_manager_cannot_do(name: str) -> None:
    """Such a unit would fail to start (216/GROUP), or the daemon would see no process."""
    assert set() == _service(name).keys() & NOT_FOR_USERS


def test_without_a_user_namespace_nothing_that_needs_one_is_asked_for(tmp_path: Path) -> None:
    """A manager that may make none would not start the unit; what it can do all the same stays."""
    installation = Installation(program=Path("/a"), python=Path("/b"), package=Path("/c"))
    _, whole = unit_files.user_units(tmp_path, installation, {"PATH": "/usr/bin"})
    plain = without_namespaces(whole.text)
    kept = _read(plain)["Service"].keys()
    left_out = _read(whole.text)["Service"].keys() - kept

    assert {"PrivateUsers", "CapabilityBoundingSet", "ProtectSystem", "PrivateDevices"} < left_out
    assert [] == [key for key in kept if key.startswith(("Private", "Protect"))]
    assert {"NoNewPrivileges", "SystemCallFilter", "ExecStart", "WatchdogSec"} < kept
    assert _read(whole.text)["Install"] == _read(plain)["Install"]


# --- started as the unit says ---------------------------------------------------------------------
def test_the_launcher_answers_ready_to_the_units_command(tmp_path: Path) -> None:
    """The command of the unit, as it is filled in for this installation, starts a launcher."""
    installation = Installation(
        program=Path("/usr/bin/env"), python=Path(sys.executable).resolve(),
        package=Path(handoffd.__file__).resolve().parent,
    )  # fmt: skip
    launcher, _ = unit_files.user_units(tmp_path, installation, {"PATH": "/usr/bin:/bin"})
    (command,) = _read(launcher.text)["Service"]["ExecStart"]
    argv = shlex.split(command.replace("%t", str(tmp_path)))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        process = subprocess.Popen(
            argv, env={"NOTIFY_SOCKET": str(tmp_path / "notify")}, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            said = manager.recv(4096).decode().splitlines()
            assert (tmp_path / "handoffd/launcher.sock").is_socket()
        finally:
            process.kill()
            process.wait(timeout=60)

    assert "READY=1" in said


# --- judged by systemd ----------------------------------------------------------------------------
@pytest.fixture
def filled(tmp_path: Path) -> dict[str, tuple[UnitFile, ...]]:
    """Both forms, filled in with paths that need quoting, and written."""
    home = tmp_path / "hand off 100%"
    launcher = home / "handoffd/execute/runner/launcher.py"
    launcher.parent.mkdir(parents=True)
    for program in (home / "handoffd-program", home / "python3", launcher):
        program.write_text("#!/bin/sh\n", encoding="utf-8")
        program.chmod(0o755)
    installation = Installation(
        program=home / "handoffd-program", python=home / "python3", package=home / "handoffd"
    )
    account = next(entry for entry in pwd.getpwall() if entry.pw_uid != 0)
    plain = tmp_path / "plain"
    plain.mkdir()
    environment = {"PATH": f"/usr/bin:{home}", "XDG_STATE_HOME": "/a b"}
    launcher_unit, daemon_unit = unit_files.user_units(plain, installation, environment)
    forms: dict[str, tuple[UnitFile, ...]] = {
        "user": unit_files.user_units(tmp_path, installation, environment),
        "plain": (launcher_unit, replace(daemon_unit, text=without_namespaces(daemon_unit.text))),
        "system": unit_files.system_units(tmp_path, installation, account, f"{home}:/usr/bin"),
    }
    for file in (file for files in forms.values() for file in files):
        file.path.write_text(file.text, encoding="utf-8")
    return forms


def _analyze(*words: str, runtime: Path) -> subprocess.CompletedProcess[str]:
    own = {"XDG_RUNTIME_DIR": str(runtime), "SYSTEMD_LOG_LEVEL": "notice", "LC_ALL": "C"}
    return subprocess.run(
        ["systemd-analyze", *words],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@needs_analyze
@pytest.mark.parametrize("form", ["user", "plain", "system"])
def test_systemd_has_nothing_to_say_against_them(
    filled: dict[str, tuple[UnitFile, ...]], form: str, tmp_path: Path
) -> None:
    """It exits 0 on unknown keys, too; hence nothing on stderr."""
    paths = [str(file.path) for file in filled[form]]

    manager = "system" if form == "system" else "user"
    done = _analyze(f"--{manager}", "verify", "--man=no", *paths, runtime=tmp_path)

    assert ("", 0) == (done.stderr, done.returncode)


@needs_analyze
@pytest.mark.parametrize("form", ["user", "system"])
def test_a_misspelt_key_is_found(filled: dict[str, tuple[UnitFile, ...]], form: str, tmp_path: Path) -> None:
    """The check above can fail: it is not the tool that is silent."""
    path = filled[form][1].path
    path.write_text(path.read_text(encoding="utf-8").replace("KillMode=", "KilMode="), encoding="utf-8")

    done = _analyze(
        f"--{form}", "verify", "--man=no", *(str(file.path) for file in filled[form]), runtime=tmp_path
    )

    assert "KilMode" in done.stderr


@needs_analyze
@pytest.mark.parametrize("form", ["user", "system"])
def test_the_daemon_is_exposed_to_little(
    filled: dict[str, tuple[UnitFile, ...]], form: str, tmp_path: Path
) -> None:
    """At most 3.0 of 10, by systemd's own measure."""
    ask = (f"--{form}", "security", "--offline=true", "--threshold=30", "--json=short")

    done = _analyze(*ask, str(filled[form][1].path), runtime=tmp_path)

    assert 0 == done.returncode, done.stderr
    assert 50 < len(json.loads(done.stdout))
