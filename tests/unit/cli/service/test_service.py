"""`handoffd service`, run against a systemctl and a loginctl that log how they are called."""

from __future__ import annotations

import json
import os
import pwd
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace
from tests.support.runs import end_processes, run_spec

from handoffd.cli.service import unit_files
from handoffd.cli.service.commands import service
from handoffd.cli.service.scope import Machine
from handoffd.doctor.service import path_in
from handoffd.errors import HandoffdError, NotFound, Refused
from handoffd.execute.process import Launcher
from handoffd.files.locks import acquire, daemon_lock_path

_FAKE = """#!/bin/sh
echo "$(basename "$0") $*" >> "$LOGGED"
case "$(basename "$0") $*" in
    "loginctl show-user"*) cat "$ANSWERS/linger" 2>/dev/null || exit 1 ;;
    *" show "*)
        cat "$ANSWERS/show" 2>/dev/null && exit
        echo "Failed to connect to bus: No medium found" >&2
        exit 1 ;;
esac
if [ -f "$ANSWERS/meanwhile" ]; then sh "$ANSWERS/meanwhile"; fi
if [ -f "$ANSWERS/trial" ] && echo "$*" | grep -q -F -f "$ANSWERS/trial"; then exit 226; fi
if [ -f "$ANSWERS/fail" ] && echo "$*" | grep -q -e "$(head -n 1 "$ANSWERS/fail")"; then
    tail -n +2 "$ANSWERS/fail" >&2
    exit 1
fi
exit 0
"""


class Bench:
    """A machine in a folder: fake tools on PATH, a home, and the answers that the tools give."""

    def __init__(self, root: Path) -> None:
        self.tools, self.home, self.answers = root / "tools", root / "home", root / "answers"
        for folder in (self.tools, self.home, self.answers, root / "systemd", root / "units"):
            folder.mkdir()
        for name in ("systemctl", "loginctl", "systemd-run"):
            (self.tools / name).write_text(_FAKE, encoding="utf-8")
            (self.tools / name).chmod(0o755)
        self.answer("show", "Id=none.service\n")
        self.log = root / "log"
        self.machine = Machine(
            environment={
                "PATH": f"{self.tools}:/usr/bin:/bin", "HOME": str(self.home), "LOGGED": str(self.log),
                "ANSWERS": str(self.answers), "XDG_RUNTIME_DIR": str(root),
            },
            systemd=root / "systemd", system_units=root / "units", system_state=root / "state",
            kernel=root / "kernel", system_settings=root / "settings",
            system_runtime=root / "run", root=False,
            installation=unit_files.Installation(
                program=Path("/usr/bin/env"), python=Path("/bin/sh"), package=Path("/usr/share")
            ),
        )  # fmt: skip
        self.user_units = self.home / ".config/systemd/user"
        self.unit = self.user_units / "handoffd.service"
        self.state = self.home / ".local/state/handoffd"

    def answer(self, name: str, text: str) -> None:
        """Set what the tools answer, or where they fail."""
        (self.answers / name).write_text(text, encoding="utf-8")

    def secret(self, name: str = "secret", mode: int = 0o600) -> Path:
        """Return a file for a credential."""
        path = self.answers / name
        path.write_text("KEY", encoding="utf-8")
        path.chmod(mode)
        return path

    def with_program(self, program: Path) -> Machine:
        """Return the same machine with handoffd installed elsewhere."""
        assert self.machine.installation is not None
        return replace(self.machine, installation=replace(self.machine.installation, program=program))

    def run(self, *words: str, machine: Machine | None = None) -> Result:
        """Run the group as `handoffd service` does."""
        return CliRunner().invoke(service, list(words), obj=machine or self.machine)

    def report(self, *words: str, machine: Machine | None = None) -> dict[str, Any]:
        """Return what a verb prints with --json; it must succeed."""
        result = self.run(*words, "--json", machine=machine)
        assert 0 == result.exit_code, (result.output, result.exception)
        report: dict[str, Any] = json.loads(result.stdout)
        return report

    def error(self, *words: str, machine: Machine | None = None) -> HandoffdError:
        """Return the error that a verb must raise for `main` to show."""
        result = self.run(*words, machine=machine)
        assert isinstance(result.exception, HandoffdError), (result.output, result.exception)
        return result.exception

    def asked(self) -> list[str]:
        """Return the commands run since the last call, without trials and queries."""
        lines = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return [line for line in lines if not line.startswith("systemd-run") and " show " not in line]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A machine with a systemd."""
    return Bench(tmp_path)


@pytest.fixture
def installed(bench: Bench) -> Bench:
    """The same with a service; what its installation ran is forgotten."""
    bench.report("install")
    bench.asked()
    return bench


@pytest.fixture
def account() -> str:
    """An account that is not root's."""
    return next(entry.pw_name for entry in pwd.getpwall() if entry.pw_uid != 0)


PAIR = ["handoffd-launcher.service", "handoffd.service"]
SYSTEM = ("--system", "--user")


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def _person() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


# --- install --------------------------------------------------------------------------------------
def test_install_writes_enables_and_lingers(bench: Bench) -> None:
    """Two files are written, systemd starts them, and they run without a login."""
    report = bench.report("install")

    assert PAIR == _files(bench.user_units)
    assert [
        "systemctl --user daemon-reload",
        "systemctl --user try-restart handoffd-launcher.service handoffd.service",
        "systemctl --user enable --now handoffd-launcher.service handoffd.service",
        f"loginctl show-user {_person()} --property=Linger --value",
        f"loginctl enable-linger {_person()}",
    ] == bench.asked()
    assert report["linger"]["enabled"] is True
    assert ("handoffd service status", str(bench.state)) == (report["next"], report["state"])


def test_the_files_are_filled_in_and_marked(bench: Bench) -> None:
    """No placeholder is left; paths, PATH and the mark are there; others may read it."""
    bench.run("install", "--no-start")
    daemon = bench.unit.read_text(encoding="utf-8")
    launcher = (bench.user_units / "handoffd-launcher.service").read_text(encoding="utf-8")

    assert daemon.startswith(unit_files.MARK + "\n")
    assert "\nExecStart=/usr/bin/env run\n" in daemon
    assert f'\nEnvironment="PATH={bench.tools}:/usr/bin:/bin"\n' in daemon
    assert "\nExecStart=/bin/sh -I -S -E -X utf8 /usr/share/execute/runner/launcher.py %t/" in launcher
    assert 0o644 == bench.unit.stat().st_mode & 0o777


def test_installing_twice_restarts_nothing(installed: Bench) -> None:
    """The second time every file is as it should be, and the daemon and agents continue."""
    report = installed.report("install")

    assert [False, False] == [file["changed"] for file in report["files"]]
    assert [
        "systemctl --user daemon-reload",
        "systemctl --user enable --now handoffd-launcher.service handoffd.service",
    ] == [line for line in installed.asked() if line.startswith("systemctl")]


def test_only_a_unit_that_changed_is_restarted(installed: Bench) -> None:
    """A new path of the program restarts the daemon, not the launcher."""
    installed.run("install", machine=installed.with_program(Path("/usr/bin/printf")))

    assert "systemctl --user try-restart handoffd.service" in installed.asked()


@pytest.mark.parametrize("target", [None, "marked", "/dev/null"], ids=["hand-written", "link", "masked"])
def test_a_unit_that_is_not_ours_is_left_alone(bench: Bench, target: str | None) -> None:
    """Install writes neither file. A link is the user's decision, even to a file with our mark."""
    bench.user_units.mkdir(parents=True)
    bench.answer("marked", unit_files.MARK + "\n")
    if target is None:
        bench.unit.write_text("[Service]\n", encoding="utf-8")
    else:
        bench.unit.symlink_to(bench.answers / target)
    before = bench.unit.is_symlink(), bench.unit.read_text(encoding="utf-8")

    error = bench.error("install")
    asked = bench.asked()
    bench.run("uninstall")

    assert isinstance(error, Refused)
    assert str(error.hint).startswith(f"mv {bench.unit} ")
    assert [] == asked
    assert ["handoffd.service"] == _files(bench.user_units)
    assert before == (bench.unit.is_symlink(), bench.unit.read_text(encoding="utf-8"))


def test_a_dry_run_shows_everything_and_does_nothing(bench: Bench) -> None:
    """Files with their text and every command, also where no systemd runs."""
    bench.machine.systemd.rmdir()

    report = bench.report("install", "--dry-run")
    output = bench.run("install", "--dry-run").output

    assert [True, True] == [file["changed"] for file in report["files"]]
    assert "ExecStart=/usr/bin/env run" in report["files"][1]["text"]
    assert ["systemctl", "--user", "daemon-reload"] == report["commands"][0]
    assert ["loginctl", "enable-linger", _person()] == report["linger"]["command"]
    assert f"would write  {bench.unit}" in output
    assert "would run    systemctl --user daemon-reload" in output
    assert f"would run    loginctl enable-linger {_person()}" in output
    assert ([], []) == (_files(bench.user_units), bench.asked())


def test_without_systemd_install_is_refused_unless_it_starts_nothing(bench: Bench) -> None:
    """In a container the daemon runs by hand; an image is built without a systemd that runs."""
    bench.machine.systemd.rmdir()

    error = bench.error("install")
    refused = _files(bench.user_units)
    report = bench.report("install", "--no-start")

    assert "no systemd runs here" in error.message
    assert "handoffd run" in (error.hint or "")
    assert ([], PAIR) == (refused, _files(bench.user_units))
    assert [] == bench.asked()
    assert report["next"].startswith("systemctl --user daemon-reload && systemctl --user enable --now ")


def test_lingering_that_is_not_allowed_is_reported(bench: Bench) -> None:
    """The service is installed; the message says what is missing, and what to type."""
    bench.answer("fail", "enable-linger\nCould not enable linger: Access denied\n")

    result = bench.run("install")

    assert 0 == result.exit_code
    assert "lingering    no: Could not enable linger: Access denied" in result.output
    assert f"sudo loginctl enable-linger {_person()}" in result.output


def test_lingering_that_is_on_is_not_asked_for(bench: Bench) -> None:
    """Where an administrator has allowed it, no permission is needed."""
    bench.answer("linger", "yes\n")

    report = bench.report("install")

    assert report["linger"]["enabled"] is True
    assert not [line for line in bench.asked() if "enable-linger" in line]


@pytest.mark.parametrize(
    ("complaint", "hint"),
    [
        ("Job for handoffd.service failed.", "journalctl --user -u handoffd -n 30"),
        ("Failed to connect to bus: No medium found", "XDG_RUNTIME_DIR=/run/user/"),
    ],
)
def test_a_failure_of_systemd_is_shown_with_what_to_do(bench: Bench, complaint: str, hint: str) -> None:
    """The command that failed, what it said, and where to look."""
    bench.answer("fail", f"enable --now\n{complaint}\n")

    error = bench.error("install")

    assert "enable --now" in error.message
    assert complaint in error.message
    assert hint in (error.hint or "")


_FAILED = """Id=handoffd.service
LoadState=loaded
ActiveState=failed
Result=exit-code
ExecMainCode=1
ExecMainStatus={status}
FragmentPath={unit}
DropInPaths={unit}.d/credentials.conf
"""


def test_a_daemon_that_does_not_start_is_explained_as_by_status(bench: Bench) -> None:
    """What was written, then why it does not start, and the next command."""
    secret = bench.secret()
    bench.report("install", "--no-start", "--credential", f"key={secret}")
    secret.unlink()
    bench.answer("show", _FAILED.format(status=243, unit=bench.unit))
    bench.answer("fail", "enable --now\nJob for handoffd.service failed.\n")

    result = bench.run("install")
    status = json.loads(bench.run("status", "--json").stdout)

    error = result.exception
    assert isinstance(error, Refused)
    assert f"handoffd failed: {status['units'][0]['why']}" == error.message.splitlines()[-1]
    assert f"the credential key is missing: there is no {secret}" in error.message
    assert status["next"] == error.hint
    assert [
        f"unchanged    {bench.user_units / 'handoffd-launcher.service'}",
        f"unchanged    {bench.unit}",
        f"unchanged    {bench.user_units / 'handoffd.service.d/credentials.conf'}",
        "ran          systemctl --user daemon-reload",
        f"caution      the credential key: there is no file {secret}, and without it the daemon cannot start",
        f"state        {bench.state}",
    ] == result.output.splitlines()


def test_json_has_what_was_written_in_the_details_of_the_error(bench: Bench) -> None:
    """A program gets one answer, also from an installation that fails."""
    bench.answer("show", _FAILED.format(status=78, unit="/x"))
    bench.answer("fail", "enable --now\nJob for handoffd.service failed.\n")

    result = bench.run("install", "--json")

    error = result.exception
    assert isinstance(error, Refused)
    assert "its settings cannot be used" in error.message
    assert "" == result.output
    assert [True, True] == [file["changed"] for file in error.details["files"]]  # type: ignore[attr-defined]


def test_a_missing_systemctl_is_a_failure_like_any_other(bench: Bench) -> None:
    """No traceback where the program is not there."""
    (bench.tools / "systemctl").unlink()
    environment = {**bench.machine.environment, "PATH": str(bench.tools)}

    error = bench.error("install", machine=replace(bench.machine, environment=environment))

    assert "systemctl: not found" in error.message


def test_nothing_is_written_for_a_manager_that_does_not_answer(bench: Bench) -> None:
    """The hint for a shell without a session says how to get one; an image has its files all the same."""
    (bench.answers / "show").unlink()

    for verb in ("install", "status"):
        error = bench.error(verb)
        assert "Failed to connect to bus" in error.message
        assert "XDG_RUNTIME_DIR" in (error.hint or "")

    assert ([], []) == (_files(bench.user_units), bench.asked())
    bench.report("install", "--no-start")
    assert PAIR == _files(bench.user_units)


@pytest.mark.parametrize("words", [(), ("--no-start",), ("--dry-run",)])
def test_root_has_no_service_of_its_own(bench: Bench, words: tuple[str, ...]) -> None:
    """Agents would run as root. The hint names the account that has a service, if there is one."""
    root = replace(bench.machine, root=True)

    error = bench.error("install", *words, machine=root)

    assert "agents would run as root" in error.message
    assert "sudo handoffd service install --system --user ACCOUNT" == error.hint
    assert ([], []) == (_files(bench.user_units), bench.asked())
    (bench.machine.system_units / f"handoffd@{_person()}.service").touch()
    assert (bench.error("install", machine=root).hint or "").endswith(f" --system --user {_person()}")


def test_without_user_namespaces_the_unit_does_without(bench: Bench) -> None:
    """With them it would not start; the report says what is left out."""
    bench.answer("trial", "PrivateUsers=yes")

    result = bench.run("install")

    text = bench.unit.read_text(encoding="utf-8")
    assert (
        "hardening    without a user namespace: your systemd could not make one (exit status 226/NAMESPACE)"
        in result.output
    )
    assert "\nPrivateUsers=" not in text
    assert "\nNoNewPrivileges=yes\n" in text


def test_a_line_that_systemd_cannot_do_is_left_out_and_reported(bench: Bench, account: str) -> None:
    """As in a container; in both forms, and the same at every install."""
    bench.answer("trial", "ProtectKernelLogs=yes")
    line = (
        "hardening    without ProtectKernelLogs=yes, systemd cannot do it here (226/NAMESPACE: this machine "
        "cannot shut it off from the rest of the system as its unit asks)"
    )

    assert line in bench.run("install").output
    assert line in bench.run("install", *SYSTEM, account).output

    for unit in (bench.unit, *bench.machine.system_units.glob("handoffd@*")):
        text = unit.read_text(encoding="utf-8")
        assert "\nProtectKernelLogs=" not in text
        assert "\nProtectKernelModules=yes\n" in text
    report = bench.report("install")
    assert [{"line": "ProtectKernelLogs=yes", "exit_code": 226}] == report["left_out"]
    assert [False, False] == [file["changed"] for file in report["files"]]


def test_secrets_are_handed_over_by_systemd(installed: Bench) -> None:
    """A drop-in says where they are; installing again keeps it."""
    secret = installed.secret("hook url 100%")

    report = installed.report("install", "--credential", f"webhook={secret}")
    asked = installed.asked()
    installed.run("install")

    text = (installed.user_units / "handoffd.service.d/credentials.conf").read_text(encoding="utf-8")
    path = f"{installed.answers}/hook url 100%%"
    assert f"{unit_files.MARK}\n[Service]\nLoadCredential=webhook:{path}\n" == text
    assert "systemctl --user try-restart handoffd.service" in asked
    assert not [line for line in installed.asked() if "try-restart" in line]
    assert "KEY" not in json.dumps(report)
    assert [] == report["cautions"]


def test_a_secret_that_others_can_read_is_reported(bench: Bench) -> None:
    """The caution has the command that closes it."""
    secret = bench.secret(mode=0o644)

    assert f"chmod 600 {secret}" in bench.run("install", "--credential", f"webhook={secret}").output


# --- system form ----------------------------------------------------------------------------------
def test_the_system_form_is_of_one_account(bench: Bench, account: str) -> None:
    """Instances are written, the machine's systemd starts them, and the account does not linger."""
    report = bench.report("install", *SYSTEM, account)
    names = [f"handoffd-launcher@{account}.service", f"handoffd@{account}.service"]

    assert names == _files(bench.machine.system_units)
    assert [
        "systemctl daemon-reload",
        f"systemctl try-restart {' '.join(names)}",
        f"systemctl enable --now {' '.join(names)}",
    ] == bench.asked()
    assert "linger" not in report
    assert str(bench.machine.system_state / account) == report["state"]
    home = pwd.getpwnam(account).pw_dir.rstrip("/")
    text = (bench.machine.system_units / names[1]).read_text(encoding="utf-8")
    assert f'Environment="PATH={home}/.local/bin:/usr/local/sbin:' in text


def test_a_path_is_kept_until_another_is_given(bench: Bench, account: str) -> None:
    """Agents are found by it, also in unusual places; an upgrade installs again and keeps it."""
    scope = (*SYSTEM, account)
    unit = bench.machine.system_units / f"handoffd@{account}.service"
    bench.report("install", *scope, "--path", '/opt/node "22%/bin:/usr/bin:not-absolute')
    first = unit.read_text(encoding="utf-8")

    report = bench.report("install", *scope)

    assert '/opt/node "22%/bin:/usr/bin' == path_in(unit)
    assert first == unit.read_text(encoding="utf-8")
    home = pwd.getpwnam(account).pw_dir.rstrip("/")
    (caution,) = report["cautions"]
    said = (
        'PATH stays /opt/node "22%/bin:/usr/bin; to change it: sudo handoffd service install --system --user'
    )
    assert caution.startswith(f"{said} {account} --path {home}/.local/bin:/usr/local/sbin:")
    assert [] == bench.report("install", *scope, "--path", caution.partition("--path ")[2])["cautions"]
    assert [] == bench.report("install", *scope)["cautions"]


def test_a_persons_path_is_kept_from_another_shell(bench: Bench, tmp_path: Path) -> None:
    """Only the virtual environment that the program has moved into is left out."""
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").touch()
    bench.report("install", "--path", f"/opt/node/bin:{venv}/bin:/usr/bin")

    report = bench.report("install", machine=bench.with_program(venv / "bin/handoffd"))

    assert "/opt/node/bin:/usr/bin" == path_in(bench.unit)
    assert [
        'PATH stays /opt/node/bin:/usr/bin; to change it: handoffd service install --path "$PATH"'
    ] == report["cautions"][-1:]  # the other is about its place


def test_an_installation_the_account_cannot_run_is_refused(
    bench: Bench, account: str, tmp_path: Path
) -> None:
    """Before systemd fails with a riddle (203/EXEC)."""
    program = tmp_path / "private" / "handoffd"
    program.parent.mkdir(mode=0o700)
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)

    error = bench.error("install", *SYSTEM, account, machine=bench.with_program(program))

    assert f"a daemon of {account} cannot be run from {program}" in error.message
    assert [] == _files(bench.machine.system_units)


@pytest.mark.parametrize(
    ("name", "family"), [("root", Refused), ("no-account-of-that-name", NotFound), ("../../etc/x", Refused)]
)
def test_accounts_that_will_not_do(bench: Bench, name: str, family: type[HandoffdError]) -> None:
    """Root's, an unknown one and a path are refused before anything is written."""
    assert isinstance(bench.error("install", *SYSTEM, name), family)
    assert ([], []) == (_files(bench.machine.system_units), bench.asked())


@pytest.mark.parametrize("words", [("--system",), ("--user", "daemon")])
@pytest.mark.parametrize("verb", ["install", "uninstall", "status"])
def test_system_and_user_belong_together(bench: Bench, verb: str, words: tuple[str, ...]) -> None:
    """One without the other is wrong usage: exit code 2."""
    assert 2 == bench.run(verb, *words).exit_code


def test_units_of_an_account_that_is_gone_can_be_shown_and_removed(bench: Bench, account: str) -> None:
    """systemd tries them again and again (217); install needs an account that exists."""
    gone = (*SYSTEM, "long-gone")
    bench.report("install", "--no-start", *SYSTEM, account)
    for path in bench.machine.system_units.iterdir():
        path.rename(path.with_name(path.name.replace(account, "long-gone")))
    bench.answer(
        "show", "Id=handoffd@long-gone.service\nLoadState=loaded\nActiveState=failed\nExecMainStatus=217\n"
    )

    assert "why: the account long-gone does not exist" in bench.run("status", *gone).output
    assert "there is no account long-gone" in bench.error("install", *gone).message
    assert 2 == len(bench.report("uninstall", *gone)["removed"])
    assert [] == _files(bench.machine.system_units)
    state = bench.machine.system_state / "long-gone"
    state.mkdir(parents=True)
    assert [str(state)] == bench.report("uninstall", *gone, "--purge")["purged"]
    again = bench.run("uninstall", *gone, "--purge").output.splitlines()
    assert ["nothing to remove", f"state        {state} (not there)"] == again
    assert "there is no account long-gone" in bench.error("status", *gone).message


# --- without rights -------------------------------------------------------------------------------
@contextmanager
def _ordinary() -> Iterator[None]:
    """Be an account without rights for a while."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(was)


@pytest.fixture
def public() -> Iterator[Bench]:
    """A machine that every account can read, but for a secret and the state of a service."""
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name))
        (bench.answers / "closed").mkdir()
        (bench.answers / "closed/secret").touch(0o600)
        for path in (Path(name), *Path(name).rglob("*")):
            path.chmod(0o755 if path.is_dir() or path.parent == bench.tools else 0o644)
        bench.log.touch()
        bench.log.chmod(0o666)
        yield bench
        for closed in (bench.answers / "closed", bench.machine.system_state):
            if closed.exists():
                closed.chmod(0o700)


def test_a_secret_that_is_closed_names_root(public: Bench, account: str) -> None:
    """Where `sudo` was forgotten, the hint is the whole command with it, with secrets of before too."""
    secret = public.answers / "closed/secret"
    given = f"key={secret}"
    scope = (*SYSTEM, account)
    public.report("install", *scope, "--no-start", "--credential", given)
    secret.parent.chmod(0o000)

    with _ordinary():
        again = public.error("install", *scope)
        first = public.error("install", *scope, "--credential", given)
        own = public.error("install", "--credential", given)

    assert f"{secret} is closed to this account" == again.message == first.message
    assert f"sudo handoffd service install --system --user {account}" == again.hint
    assert f"{again.hint} --credential {given}" == first.hint
    assert f"ls -ld {secret}" == own.hint


def test_state_that_is_closed_names_root(public: Bench, account: str) -> None:
    """A purge checks it first, and does nothing."""
    scope = (*SYSTEM, account)
    public.report("install", *scope, "--no-start")
    state = public.machine.system_state / account
    state.mkdir(parents=True)
    state.chmod(0o000)

    with _ordinary():
        error = public.error("uninstall", *scope, "--purge")
    state.chmod(0o700)

    assert f"{state} is closed to this account" == error.message
    assert f"sudo handoffd service uninstall --system --user {account} --purge" == error.hint
    assert 2 == len(_files(public.machine.system_units))


def test_what_systemd_denies_needs_the_whole_command_as_root(bench: Bench, account: str) -> None:
    """systemd's own command by itself would leave the files."""
    bench.report("install", *SYSTEM, account)
    bench.answer("fail", "disable\nFailed to disable unit: Access denied\n")

    error = bench.error("uninstall", *SYSTEM, account)

    assert "Access denied" in error.message
    assert f"sudo handoffd service uninstall --system --user {account}" == error.hint


# --- uninstall ------------------------------------------------------------------------------------
def test_uninstall_removes_what_install_wrote_and_no_state(installed: Bench) -> None:
    """The daemon is stopped before the launcher; state and other units stay."""
    (installed.user_units / "other.service").write_text("[Service]\n", encoding="utf-8")
    installed.state.mkdir(parents=True)
    (installed.state / "journal.db").touch()

    result = installed.run("uninstall")

    assert ["other.service"] == _files(installed.user_units)
    assert [
        "systemctl --user disable --now handoffd.service",
        "systemctl --user disable --now handoffd-launcher.service",
        "systemctl --user daemon-reload",
        "systemctl --user reset-failed handoffd.service handoffd-launcher.service",
        f"loginctl show-user {_person()} --property=Linger --value",
    ] == installed.asked()
    assert ["journal.db"] == _files(installed.state)
    assert f"{installed.state} (untouched)" in result.output


def test_uninstall_keeps_a_file_without_our_mark(installed: Bench) -> None:
    """What handoffd did not write is neither stopped nor removed."""
    installed.unit.write_text("[Service]\n", encoding="utf-8")

    report = installed.report("uninstall")

    assert [str(installed.user_units / "handoffd-launcher.service")] == report["removed"]
    assert [str(installed.unit)] == report["kept"]
    assert "systemctl --user disable --now handoffd.service" not in installed.asked()


def test_uninstall_names_the_drop_ins_that_stay(bench: Bench) -> None:
    """A person's own, of either unit; the one with the credentials is removed."""
    bench.run("install", "--credential", f"webhook={bench.secret()}")
    own = [bench.user_units / f"{unit}.service.d/override.conf" for unit in ("handoffd", "handoffd-launcher")]
    for path in own:
        path.parent.mkdir(exist_ok=True)
        path.write_text("[Service]\nNice=5\n", encoding="utf-8")

    report = bench.report("uninstall")

    assert [str(path) for path in own] == report["kept"]
    assert ["override.conf"] == _files(own[0].parent)


def test_uninstall_does_not_mind_that_nothing_had_failed(installed: Bench) -> None:
    """systemd has an error for that; the units are removed all the same."""
    installed.answer(
        "fail", "reset-failed\nFailed to reset failed state of unit handoffd.service: not loaded.\n"
    )

    assert 0 == installed.run("uninstall").exit_code
    assert [] == _files(installed.user_units)


def test_uninstall_twice_is_not_an_error(bench: Bench) -> None:
    """It reports that there is nothing to remove."""
    result = bench.run("uninstall")

    assert 0 == result.exit_code
    assert ["nothing to remove", f"state        {bench.state} (not there)"] == result.output.splitlines()
    assert [] == bench.asked()


def test_a_second_purge_mentions_nothing_that_is_gone(installed: Bench) -> None:
    """After a plain uninstall, a purge removes the state that was left; then there is nothing."""
    installed.run("uninstall")
    installed.state.mkdir(parents=True)

    first, second = (installed.run("uninstall", "--purge").output for _ in range(2))

    assert (f"removed      {installed.state}" in first, "nothing to remove" in first) == (True, False)
    assert ["nothing to remove", f"state        {installed.state} (not there)"] == second.splitlines()


def test_uninstall_that_cannot_stop_the_daemon_removes_nothing(installed: Bench) -> None:
    """A daemon that runs without its unit file would be worse."""
    installed.answer("fail", "disable\nFailed to connect to bus\n")

    installed.error("uninstall")

    assert PAIR == _files(installed.user_units)


@pytest.mark.parametrize("root", [False, True])
def test_uninstall_without_a_manager_removes_the_files(installed: Bench, root: bool) -> None:
    """Also root's, which an older version wrote, and the links that would start them."""
    wants = installed.user_units / "default.target.wants"
    wants.mkdir()
    for name in PAIR:
        (wants / name).symlink_to(installed.user_units / name)
    (wants / "other.service").symlink_to("/dev/null")
    (installed.answers / "show").unlink()
    machine = replace(installed.machine, root=root)

    planned = installed.report("uninstall", "--dry-run", machine=machine)
    done = installed.report("uninstall", machine=machine)

    assert planned["removed"] == done["removed"]
    assert (["default.target.wants"], ["other.service"]) == (_files(installed.user_units), _files(wants))
    assert ([], []) == (done["commands"], installed.asked())
    assert "systemd does not answer: Failed to connect to bus" in done["unanswered"]


@pytest.mark.parametrize(
    ("running", "message"), [("daemon", "in use by"), ("launcher", "systemd does not answer")]
)
def test_uninstall_keeps_the_files_of_what_runs(installed: Bench, running: str, message: str) -> None:
    """A manager that cannot be asked, as in a shell of `su`, may still have it."""
    (installed.answers / "show").unlink()
    runtime = installed.machine.system_units.parent / "handoffd"
    runtime.mkdir()
    with ExitStack() as stack:
        if running == "daemon":
            installed.state.mkdir(parents=True)
            stack.enter_context(acquire(daemon_lock_path(installed.state), "the state"))
        else:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            listener.bind(str(runtime / "launcher.sock"))
            listener.listen()
        error = installed.error("uninstall")

    assert message in error.message
    assert PAIR == _files(installed.user_units)


def test_uninstall_dry_run_does_nothing(installed: Bench) -> None:
    """It names the files and the commands."""
    report = installed.report("uninstall", "--dry-run")

    assert [["systemctl", "--user", "disable", "--now", "handoffd.service"]] == report["commands"][:1]
    assert 2 == len(report["removed"])
    assert (PAIR, []) == (_files(installed.user_units), installed.asked())


def test_uninstall_leaves_the_home_as_it_was(bench: Bench) -> None:
    """Without files, drop-ins, and the folders that were made for them."""
    before = sorted(bench.home.rglob("*"))

    bench.run("install", "--credential", f"webhook={bench.secret()}")
    assert before != sorted(bench.home.rglob("*"))
    bench.run("uninstall")

    assert before == sorted(bench.home.rglob("*"))


def test_purge_takes_state_and_settings_along(installed: Bench) -> None:
    """A dry run lists them; projects are not affected."""
    settings = installed.home / ".config/handoffd"
    for folder in (installed.state / "runs", settings):
        folder.mkdir(parents=True)
    (installed.state / "journal.db").touch()
    (settings / "environment").touch()

    planned = installed.report("uninstall", "--purge", "--dry-run")["purged"]
    assert (installed.state / "journal.db").exists()
    done = installed.run("uninstall", "--purge").output

    assert [str(installed.state), str(settings)] == planned
    assert [path in done for path in planned] == [True, True]
    assert "agents " not in done  # it has checked that none runs
    assert (False, False) == (installed.state.exists(), settings.exists())


def test_a_purge_that_is_refused_does_nothing(installed: Bench) -> None:
    """The service continues: a purge of half of it would be worse."""
    installed.state.mkdir(parents=True)
    (installed.state / "thesis.tex").touch()

    error = installed.error("uninstall", "--purge")

    assert "thesis.tex" in error.message
    assert (PAIR, ["thesis.tex"]) == (_files(installed.user_units), _files(installed.state))
    assert [] == installed.asked()


async def test_a_purge_checks_again_when_the_daemon_has_stopped(installed: Bench, tmp_path: Path) -> None:
    """Until then it may have started an executor, whose journal and records must stay."""
    runs = installed.state / "runs"
    runs.mkdir(parents=True)
    try:
        launcher = Launcher(tmp_path / "launcher.sock")
        run = await launcher.start(tmp_path / "d1", run_spec(tmp_path, "d1", "sleep", "600"))
        installed.answer("meanwhile", f"ln -sfn {tmp_path}/d1 {runs}/d1")

        error = installed.error("uninstall", "--purge")
        again = installed.error("uninstall", "--purge")
        kept = (runs.is_dir(), _files(installed.user_units))
        run.stop()
        with anyio.fail_after(60):
            await run.wait()
    finally:
        end_processes(tmp_path)

    assert "the executor of d1 is running" == error.message == again.message
    assert "handoffd stop --executors" == again.hint
    assert error.hint is not None
    assert error.hint.startswith("systemctl --user start ")
    assert error.hint.endswith(" && handoffd stop --executors")
    assert (True, PAIR) == kept
    assert [str(installed.state)] == installed.report("uninstall", "--purge")["purged"]


# --- status ---------------------------------------------------------------------------------------
_SHOW = """Id=handoffd-launcher.service
LoadState=loaded
ActiveState=active
SubState=running
UnitFileState=enabled
MainPID=41
NRestarts=0
Result=success
TasksCurrent=18446744073709551615

Id=handoffd.service
LoadState=loaded
ActiveState={active}
SubState={sub}
UnitFileState=enabled
MainPID={pid}
StatusText=3 projects, 1 agent runs
NRestarts=2
Result={result}
ExecMainStatus={code}
"""


def test_status_of_a_daemon_that_runs(bench: Bench) -> None:
    """Both units, the daemon's own words, and exit code 0."""
    bench.answer("show", _SHOW.format(active="active", sub="running", pid=42, result="success", code=0))
    bench.answer("linger", "no\n")

    report = bench.report("status")
    lines = bench.run("status").output

    daemon, launcher = report["units"]
    assert ("handoffd.service", "active", 42, 2) == (
        daemon["name"], daemon["active"], daemon["pid"], daemon["restarts"],
    )  # fmt: skip
    assert ("handoffd-launcher.service", None) == (launcher["name"], launcher["tasks"])
    assert report["linger"] is False
    assert "handoffd status" == report["next"]
    assert "handoffd.service: active (running), pid 42, restarted 2 times" in lines
    assert "    3 projects, 1 agent runs" in lines
    assert "lingering is off" in lines


def test_status_of_a_daemon_that_failed(bench: Bench) -> None:
    """Exit code 3, how it ended, and the command that shows its log."""
    bench.answer("show", _SHOW.format(active="failed", sub="failed", pid=0, result="exit-code", code=78))

    result = bench.run("status")

    assert 3 == result.exit_code
    assert "    ended: exit-code, exit code 78" in result.output
    assert "journalctl --user -u handoffd -n 30" in result.output


def test_status_of_what_is_not_installed(bench: Bench) -> None:
    """systemd answers for units that it has never seen; the next command installs them."""
    bench.answer("show", "Id=handoffd.service\nLoadState=not-found\n")

    result = bench.run("status", "--json")

    assert 3 == result.exit_code
    report = json.loads(result.stdout)
    assert [False, False] == [unit["installed"] for unit in report["units"]]
    assert "handoffd service install" == report["next"]


def test_status_without_a_service_of_ones_own_names_the_accounts(bench: Bench) -> None:
    """The machine's service is that of an account, which `status` needs; one's own is asked first."""
    (bench.machine.system_units / f"handoffd@{_person()}.service").touch()
    error = bench.error("status")
    assert "you have no service of your own; handoffd@" in error.message
    assert (error.hint or "").startswith("sudo handoffd service status --system --user ")

    bench.report("install", "--no-start")
    (bench.answers / "show").unlink()
    assert "Failed to connect to bus" in bench.error("status").message
