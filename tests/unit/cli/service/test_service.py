"""`handoffd service`, run against a systemctl and a loginctl that write down what they were asked."""

from __future__ import annotations

import json
import os
import pwd
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner, Result
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
    """A machine in a folder: fake tools on PATH, a home, and the answers the tools shall give."""

    def __init__(self, root: Path) -> None:
        self.tools, self.home, self.answers = root / "tools", root / "home", root / "answers"
        for folder in (self.tools, self.home, self.answers, root / "systemd", root / "units"):
            folder.mkdir()
        for name in ("systemctl", "loginctl", "systemd-run"):
            (self.tools / name).write_text(_FAKE, encoding="utf-8")
            (self.tools / name).chmod(0o755)
        (self.answers / "show").write_text("Id=none.service\n", encoding="utf-8")
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

    def run(self, *words: str, machine: Machine | None = None) -> Result:
        """Run the group as `handoffd service` does."""
        return CliRunner().invoke(service, list(words), obj=machine or self.machine)

    def report(self, *words: str, machine: Machine | None = None) -> dict[str, Any]:
        """Return what a verb that must succeed says with --json."""
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
        """Return the commands run since the last question, but for trials and what only looks."""
        lines = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return [line for line in lines if not line.startswith("systemd-run") and " show " not in line]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A machine with a systemd."""
    return Bench(tmp_path)


@pytest.fixture
def account() -> str:
    """An account that is not root's."""
    return next(entry.pw_name for entry in pwd.getpwall() if entry.pw_uid != 0)


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def _person() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


# --- install --------------------------------------------------------------------------------------
def test_install_writes_enables_and_lingers(bench: Bench) -> None:
    """The whole of it: two files, taken up by systemd, running without a login."""
    report = bench.report("install")

    assert ["handoffd-launcher.service", "handoffd.service"] == _files(bench.user_units)
    assert [
        "systemctl --user daemon-reload",
        "systemctl --user try-restart handoffd-launcher.service handoffd.service",
        "systemctl --user enable --now handoffd-launcher.service handoffd.service",
        f"loginctl show-user {_person()} --property=Linger --value",
        f"loginctl enable-linger {_person()}",
    ] == bench.asked()
    assert report["linger"]["enabled"] is True
    assert "handoffd service status" == report["next"]
    assert str(bench.home / ".local/state/handoffd") == report["state"]


def test_the_files_are_filled_in_and_marked(bench: Bench) -> None:
    """No placeholder is left; paths, PATH and the mark are there; others may read it."""
    bench.run("install", "--no-start")
    daemon = (bench.user_units / "handoffd.service").read_text(encoding="utf-8")
    launcher = (bench.user_units / "handoffd-launcher.service").read_text(encoding="utf-8")

    assert daemon.startswith(unit_files.MARK + "\n")
    assert "\nExecStart=/usr/bin/env run\n" in daemon
    assert f'\nEnvironment="PATH={bench.tools}:/usr/bin:/bin"\n' in daemon
    assert "\nExecStart=/bin/sh -I -S -E -X utf8 /usr/share/execute/runner/launcher.py %t/" in launcher
    assert 0o644 == (bench.user_units / "handoffd.service").stat().st_mode & 0o777


def test_installing_twice_restarts_nothing(bench: Bench) -> None:
    """The second time every file is as it should be, and agents and daemon are left in peace."""
    bench.run("install")
    bench.asked()

    report = bench.report("install")

    assert [False, False] == [file["changed"] for file in report["files"]]
    assert [
        "systemctl --user daemon-reload",
        "systemctl --user enable --now handoffd-launcher.service handoffd.service",
    ] == [line for line in bench.asked() if line.startswith("systemctl")]


def test_only_a_unit_that_changed_is_restarted(bench: Bench) -> None:
    """A new place of the program concerns the daemon, and not the launcher."""
    bench.run("install")
    bench.asked()
    assert bench.machine.installation is not None
    moved = replace(bench.machine.installation, program=Path("/usr/bin/printf"))

    bench.run("install", machine=replace(bench.machine, installation=moved))

    assert "systemctl --user try-restart handoffd.service" in bench.asked()


def test_a_file_of_somebody_else_is_left_alone(bench: Bench) -> None:
    """A hand-written unit in our place is refused, and neither file is written."""
    bench.user_units.mkdir(parents=True)
    (bench.user_units / "handoffd.service").write_text("[Service]\n", encoding="utf-8")

    error = bench.error("install")

    assert isinstance(error, Refused)
    assert "[Service]\n" == (bench.user_units / "handoffd.service").read_text(encoding="utf-8")
    assert ["handoffd.service"] == _files(bench.user_units)
    assert [] == bench.asked()


def test_a_link_in_our_place_is_not_followed(bench: Bench, tmp_path: Path) -> None:
    """A link is somebody's decision, even one to a file that carries our mark."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(unit_files.MARK + "\n", encoding="utf-8")
    bench.user_units.mkdir(parents=True)
    (bench.user_units / "handoffd.service").symlink_to(elsewhere)

    assert isinstance(bench.error("install"), Refused)
    bench.run("uninstall")

    assert unit_files.MARK + "\n" == elsewhere.read_text(encoding="utf-8")
    assert (bench.user_units / "handoffd.service").is_symlink()


def test_a_masked_unit_stays_masked(bench: Bench) -> None:
    """`systemctl --user mask` is a link to /dev/null."""
    bench.user_units.mkdir(parents=True)
    (bench.user_units / "handoffd.service").symlink_to("/dev/null")

    assert isinstance(bench.error("install"), Refused)
    assert ["handoffd.service"] == _files(bench.user_units)


def test_a_dry_run_tells_everything_and_does_nothing(bench: Bench) -> None:
    """Files with their text and every command, also where no systemd runs."""
    bench.machine.systemd.rmdir()

    report = bench.report("install", "--dry-run")

    assert [True, True] == [file["changed"] for file in report["files"]]
    assert "ExecStart=/usr/bin/env run" in report["files"][1]["text"]
    assert ["systemctl", "--user", "daemon-reload"] == report["commands"][0]
    assert ["loginctl", "enable-linger", _person()] == report["linger"]["command"]
    assert ([], []) == (_files(bench.user_units), bench.asked())


def test_a_dry_run_tells_people_the_same(bench: Bench) -> None:
    """The text names the files, the commands and where state will be."""
    output = bench.run("install", "--dry-run").output

    assert f"would write  {bench.user_units / 'handoffd.service'}" in output
    assert "would run    systemctl --user daemon-reload" in output
    assert f"would run    loginctl enable-linger {_person()}" in output


def test_without_systemd_install_is_refused(bench: Bench) -> None:
    """A container is told what to do instead."""
    bench.machine.systemd.rmdir()

    error = bench.error("install")

    assert "no systemd runs here" in error.message
    assert error.hint is not None
    assert "handoffd run" in error.hint
    assert [] == _files(bench.user_units)


def test_no_start_writes_the_files_only(bench: Bench) -> None:
    """An image is built without a systemd that runs; the next command says how to go on."""
    bench.machine.systemd.rmdir()

    report = bench.report("install", "--no-start")

    assert ["handoffd-launcher.service", "handoffd.service"] == _files(bench.user_units)
    assert [] == bench.asked()
    assert report["next"].startswith("systemctl --user daemon-reload && systemctl --user enable --now ")


def test_lingering_that_is_not_allowed_is_said(bench: Bench) -> None:
    """The service is installed; the person learns what they do not get, and what to type."""
    (bench.answers / "fail").write_text("enable-linger\nCould not enable linger: Access denied\n", "utf-8")

    result = bench.run("install")

    assert 0 == result.exit_code
    assert "lingering    no: Could not enable linger: Access denied" in result.output
    assert f"sudo loginctl enable-linger {_person()}" in result.output


def test_lingering_that_is_on_is_not_asked_for(bench: Bench) -> None:
    """Where an administrator has allowed it, no permission is needed."""
    (bench.answers / "linger").write_text("yes\n", encoding="utf-8")

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
    (bench.answers / "fail").write_text(f"enable --now\n{complaint}\n", encoding="utf-8")

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


def test_a_daemon_that_does_not_start_is_told_as_by_status(bench: Bench) -> None:
    """What was written, then why it does not start, and the next command."""
    secret = bench.answers / "secret"
    secret.touch(0o600)
    bench.report("install", "--no-start", "--credential", f"key={secret}")
    secret.unlink()
    failed = _FAILED.format(status=243, unit=bench.user_units / "handoffd.service")
    (bench.answers / "show").write_text(failed, encoding="utf-8")
    (bench.answers / "fail").write_text("enable --now\nJob for handoffd.service failed.\n", encoding="utf-8")

    result = bench.run("install")
    told = bench.run("status", "--json")

    error = result.exception
    assert isinstance(error, Refused)
    status = json.loads(told.stdout)
    assert f"handoffd failed: {status['units'][0]['why']}" == error.message.splitlines()[-1]
    assert f"the credential key is missing: there is no {secret}" in error.message
    assert status["next"] == error.hint
    assert [
        f"unchanged    {bench.user_units / 'handoffd-launcher.service'}",
        f"unchanged    {bench.user_units / 'handoffd.service'}",
        f"unchanged    {bench.user_units / 'handoffd.service.d/credentials.conf'}",
        "ran          systemctl --user daemon-reload",
        f"caution      the credential key: there is no file {secret}, and without it the daemon cannot start",
        f"state        {bench.home / '.local/state/handoffd'}",
    ] == result.output.splitlines()


def test_programs_are_told_what_was_written_with_the_failure(bench: Bench) -> None:
    """As details of the error: there is one answer."""
    (bench.answers / "show").write_text(_FAILED.format(status=78, unit="/x"), encoding="utf-8")
    (bench.answers / "fail").write_text("enable --now\nJob for handoffd.service failed.\n", encoding="utf-8")

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
    """A shell without a session is told how to get one first; an image has its files all the same."""
    (bench.answers / "show").unlink()

    error = bench.error("install")

    assert "systemd does not answer: Failed to connect to bus" in error.message
    assert "XDG_RUNTIME_DIR" in (error.hint or "")
    assert ([], []) == (_files(bench.user_units), bench.asked())
    bench.report("install", "--no-start")
    assert 2 == len(_files(bench.user_units))


@pytest.mark.parametrize("words", [(), ("--no-start",), ("--dry-run",)])
def test_root_has_no_service_of_its_own(bench: Bench, words: tuple[str, ...]) -> None:
    """Agents would run as root. The account that has one is named, if there is one."""
    root = replace(bench.machine, root=True)

    error = bench.error("install", *words, machine=root)

    assert "agents would run as root" in error.message
    assert "sudo handoffd service install --system --user ACCOUNT" == error.hint
    assert ([], []) == (_files(bench.user_units), bench.asked())
    name = pwd.getpwuid(os.geteuid()).pw_name
    (bench.machine.system_units / f"handoffd@{name}.service").touch()
    assert (bench.error("install", machine=root).hint or "").endswith(f" --system --user {name}")


def test_without_user_namespaces_the_unit_does_without(bench: Bench) -> None:
    """It would not start; what it has to do without is said."""
    (bench.answers / "trial").write_text("PrivateUsers=yes", encoding="utf-8")

    result = bench.run("install")

    text = (bench.user_units / "handoffd.service").read_text(encoding="utf-8")
    assert (
        "hardening    without a user namespace: your systemd could not make one (exit status 226/NAMESPACE)"
        in result.output
    )
    assert "\nPrivateUsers=" not in text
    assert "\nNoNewPrivileges=yes\n" in text


def test_a_line_that_systemd_cannot_do_is_left_out_and_told(bench: Bench, account: str) -> None:
    """As in a container; in both forms, and the same at every install."""
    (bench.answers / "trial").write_text("ProtectKernelLogs=yes", encoding="utf-8")
    told = (
        "hardening    without ProtectKernelLogs=yes, systemd cannot do it here (226/NAMESPACE: this machine "
        "cannot shut it off from the rest of the system as its unit asks)"
    )

    assert told in bench.run("install").output
    assert told in bench.run("install", "--system", "--user", account).output

    for unit in (bench.user_units / "handoffd.service", *bench.machine.system_units.glob("handoffd@*")):
        text = unit.read_text(encoding="utf-8")
        assert "\nProtectKernelLogs=" not in text
        assert "\nProtectKernelModules=yes\n" in text
    report = bench.report("install")
    assert [{"line": "ProtectKernelLogs=yes", "exit_code": 226}] == report["left_out"]
    assert [False, False] == [file["changed"] for file in report["files"]]


def test_secrets_are_handed_over_by_systemd(bench: Bench) -> None:
    """A drop-in says where they are; installing again keeps it."""
    secret = bench.answers / "hook url 100%"
    secret.write_text("https://example.org/KEY", encoding="utf-8")
    secret.chmod(0o600)
    bench.run("install")
    bench.asked()

    report = bench.report("install", "--credential", f"webhook={secret}")
    asked = bench.asked()
    bench.run("install")

    drop_in = bench.user_units / "handoffd.service.d/credentials.conf"
    text = drop_in.read_text(encoding="utf-8")
    assert f"{unit_files.MARK}\n[Service]\nLoadCredential=webhook:{bench.answers}/hook url 100%%\n" == text
    assert "systemctl --user try-restart handoffd.service" in asked
    assert not [line for line in bench.asked() if "try-restart" in line]
    assert "KEY" not in json.dumps(report)
    assert [] == report["cautions"]


def test_a_secret_that_others_can_read_is_said(bench: Bench) -> None:
    """With what to type."""
    secret = bench.answers / "secret"
    secret.write_text("x", encoding="utf-8")
    secret.chmod(0o644)

    assert f"chmod 600 {secret}" in bench.run("install", "--credential", f"webhook={secret}").output


# --- system form ----------------------------------------------------------------------------------
def test_the_system_form_is_of_one_account(bench: Bench, account: str) -> None:
    """Instances are written out, taken up by the machine's systemd, and nobody lingers."""
    report = bench.report("install", "--system", "--user", account)
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


def test_path_can_be_given(bench: Bench, account: str) -> None:
    """For agents that live where nobody would look."""
    bench.run("install", "--no-start", "--system", "--user", account, "--path", "/opt/node 22/bin:/usr/bin:x")

    text = (bench.machine.system_units / f"handoffd@{account}.service").read_text(encoding="utf-8")
    assert '\nEnvironment="PATH=/opt/node 22/bin:/usr/bin"\n' in text


def test_a_path_is_kept_until_another_is_given(bench: Bench, account: str) -> None:
    """Agents are found by it: installing again, as after an upgrade, does not take it away."""
    scope = ("--system", "--user", account)
    unit = bench.machine.system_units / f"handoffd@{account}.service"
    bench.report("install", *scope, "--path", '/opt/node "22%/bin:/usr/bin')
    first = unit.read_text(encoding="utf-8")

    report = bench.report("install", *scope)

    assert first == unit.read_text(encoding="utf-8")
    home = pwd.getpwnam(account).pw_dir.rstrip("/")
    (caution,) = report["cautions"]
    told = (
        'PATH stays /opt/node "22%/bin:/usr/bin; to change it: sudo handoffd service install --system --user'
    )
    assert caution.startswith(f"{told} {account} --path {home}/.local/bin:/usr/local/sbin:")
    assert [] == bench.report("install", *scope, "--path", caution.partition("--path ")[2])["cautions"]
    assert [] == bench.report("install", *scope)["cautions"]


def test_a_persons_path_is_kept_from_another_shell(bench: Bench, tmp_path: Path) -> None:
    """But for the virtual environment of a program that has moved into one."""
    unit = bench.user_units / "handoffd.service"
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").touch()
    bench.report("install", "--path", f"/opt/node/bin:{venv}/bin:/usr/bin")
    assert bench.machine.installation is not None
    moved = replace(
        bench.machine, installation=replace(bench.machine.installation, program=venv / "bin/handoffd")
    )

    report = bench.report("install", machine=moved)

    assert path_in(unit) == "/opt/node/bin:/usr/bin"
    assert [
        'PATH stays /opt/node/bin:/usr/bin; to change it: handoffd service install --path "$PATH"'
    ] == report["cautions"][-1:]  # the other is about its place


def test_an_installation_the_account_cannot_run_is_refused(
    bench: Bench, account: str, tmp_path: Path
) -> None:
    """Told before systemd fails with a riddle (203/EXEC)."""
    program = tmp_path / "private" / "handoffd"
    program.parent.mkdir(mode=0o700)
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    assert bench.machine.installation is not None
    private = replace(bench.machine.installation, program=program)

    error = bench.error(
        "install", "--system", "--user", account, machine=replace(bench.machine, installation=private)
    )

    assert f"a daemon of {account} cannot be run from {program}" in error.message
    assert [] == _files(bench.machine.system_units)


@pytest.mark.parametrize(
    ("name", "family"), [("root", Refused), ("nobody-of-that-name", NotFound), ("../../etc/x", Refused)]
)
def test_accounts_that_will_not_do(bench: Bench, name: str, family: type[HandoffdError]) -> None:
    """Root's, none, and a path are told apart, before anything is written."""
    assert isinstance(bench.error("install", "--system", "--user", name), family)
    assert ([], []) == (_files(bench.machine.system_units), bench.asked())


@pytest.mark.parametrize("words", [("--system",), ("--user", "daemon")])
@pytest.mark.parametrize("verb", ["install", "uninstall", "status"])
def test_system_and_user_belong_together(bench: Bench, verb: str, words: tuple[str, ...]) -> None:
    """One without the other is wrong usage: exit code 2."""
    assert 2 == bench.run(verb, *words).exit_code


def test_units_of_an_account_that_is_gone_can_be_looked_at_and_removed(bench: Bench, account: str) -> None:
    """systemd tries them again and again (217); install is for accounts that are there."""
    bench.report("install", "--no-start", "--system", "--user", account)
    for path in bench.machine.system_units.iterdir():
        path.rename(path.with_name(path.name.replace(account, "long-gone")))
    bench.asked()
    (bench.answers / "show").write_text(
        "Id=handoffd@long-gone.service\nLoadState=loaded\nActiveState=failed\nExecMainStatus=217\n",
        encoding="utf-8",
    )

    assert (
        "why: the account long-gone does not exist"
        in bench.run("status", "--system", "--user", "long-gone").output
    )
    assert (
        "there is no account long-gone" in bench.error("install", "--system", "--user", "long-gone").message
    )
    assert 2 == len(bench.report("uninstall", "--system", "--user", "long-gone")["removed"])
    assert [] == _files(bench.machine.system_units)
    state = bench.machine.system_state / "long-gone"
    state.mkdir(parents=True)
    purge = ("uninstall", "--system", "--user", "long-gone", "--purge")
    assert [str(state)] == bench.report(*purge)["purged"]
    assert ["nothing to remove", f"state        {state} (not there)"] == bench.run(*purge).output.splitlines()
    assert "there is no account long-gone" in bench.error("status", "--system", "--user", "long-gone").message


# --- without rights -------------------------------------------------------------------------------
@contextmanager
def _ordinary() -> Iterator[None]:
    """Be an account from which something can be kept, for a while."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(was)


@pytest.fixture
def public() -> Iterator[Bench]:
    """A machine in which every account can look around, with a service whose secret and state are closed."""
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
    """Where `sudo` was forgotten, the whole command is told again with it: also for a secret of before."""
    given = f"key={public.answers / 'closed/secret'}"
    scope = ("--system", "--user", account)
    public.report("install", *scope, "--no-start", "--credential", given)
    (public.answers / "closed").chmod(0o000)

    with _ordinary():
        again = public.error("install", *scope)
        first = public.error("install", *scope, "--credential", given)
        own = public.error("install", "--credential", given)

    assert f"{public.answers / 'closed/secret'} is closed to this account" == again.message == first.message
    assert f"sudo handoffd service install --system --user {account}" == again.hint
    assert f"{again.hint} --credential {given}" == first.hint
    assert f"ls -ld {public.answers / 'closed/secret'}" == own.hint


def test_state_that_is_closed_names_root(public: Bench, account: str) -> None:
    """It is looked at before a purge, and nothing is done."""
    scope = ("--system", "--user", account)
    public.report("install", *scope, "--no-start")
    (public.machine.system_state / account).mkdir(parents=True)
    (public.machine.system_state / account).chmod(0o000)

    with _ordinary():
        error = public.error("uninstall", *scope, "--purge")
    (public.machine.system_state / account).chmod(0o700)

    assert f"{public.machine.system_state / account} is closed to this account" == error.message
    assert f"sudo handoffd service uninstall --system --user {account} --purge" == error.hint
    assert 2 == len(_files(public.machine.system_units))


def test_what_systemd_denies_is_asked_for_with_all_the_rest(bench: Bench, account: str) -> None:
    """Its own command by itself would leave the files."""
    bench.report("install", "--system", "--user", account)
    (bench.answers / "fail").write_text("disable\nFailed to disable unit: Access denied\n", encoding="utf-8")

    error = bench.error("uninstall", "--system", "--user", account)

    assert "Access denied" in error.message
    assert f"sudo handoffd service uninstall --system --user {account}" == error.hint


# --- uninstall ------------------------------------------------------------------------------------
def test_uninstall_removes_what_install_wrote_and_no_state(bench: Bench) -> None:
    """The daemon is stopped before the launcher; state and other units stay."""
    bench.run("install")
    bench.asked()
    other = bench.user_units / "other.service"
    other.write_text("[Service]\n", encoding="utf-8")
    state = bench.home / ".local/state/handoffd/journal.db"
    state.parent.mkdir(parents=True)
    state.write_text("kept", encoding="utf-8")

    result = bench.run("uninstall")

    assert ["other.service"] == _files(bench.user_units)
    assert [
        "systemctl --user disable --now handoffd.service",
        "systemctl --user disable --now handoffd-launcher.service",
        "systemctl --user daemon-reload",
        "systemctl --user reset-failed handoffd.service handoffd-launcher.service",
        f"loginctl show-user {_person()} --property=Linger --value",
    ] == bench.asked()
    assert "kept" == state.read_text(encoding="utf-8")
    assert f"{state.parent} (untouched)" in result.output


def test_uninstall_keeps_a_file_without_our_mark(bench: Bench) -> None:
    """What handoffd did not write is neither stopped nor removed."""
    bench.run("install")
    bench.asked()
    (bench.user_units / "handoffd.service").write_text("[Service]\n", encoding="utf-8")

    report = bench.report("uninstall")

    assert [str(bench.user_units / "handoffd-launcher.service")] == report["removed"]
    assert [str(bench.user_units / "handoffd.service")] == report["kept"]
    assert "systemctl --user disable --now handoffd.service" not in bench.asked()


def test_uninstall_names_the_drop_ins_that_stay(bench: Bench) -> None:
    """A person's own, of either unit; the one with the credentials goes."""
    secret = bench.answers / "secret"
    secret.write_text("x", encoding="utf-8")
    bench.run("install", "--credential", f"webhook={secret}")
    own = [bench.user_units / f"{unit}.service.d/override.conf" for unit in ("handoffd", "handoffd-launcher")]
    for path in own:
        path.parent.mkdir(exist_ok=True)
        path.write_text("[Service]\nNice=5\n", encoding="utf-8")

    report = bench.report("uninstall")

    assert [str(path) for path in own] == report["kept"]
    assert ["override.conf"] == _files(own[0].parent)


def test_uninstall_does_not_mind_that_nothing_had_failed(bench: Bench) -> None:
    """systemd has an error for that; the units are gone all the same."""
    bench.run("install")
    failure = "reset-failed\nFailed to reset failed state of unit handoffd.service: not loaded.\n"
    (bench.answers / "fail").write_text(failure, encoding="utf-8")

    assert 0 == bench.run("uninstall").exit_code
    assert [] == _files(bench.user_units)


def test_uninstall_twice_is_no_error(bench: Bench) -> None:
    """There is nothing to remove, and that is said."""
    result = bench.run("uninstall")

    assert 0 == result.exit_code
    assert "nothing to remove" in result.output
    assert "(untouched)" not in result.output
    assert "/state/handoffd (not there)" in result.output
    assert [] == bench.asked()


def test_a_second_purge_speaks_of_nothing_that_is_gone(bench: Bench) -> None:
    """The first one has taken it away; what is left by a plain uninstall is all that it removes."""
    bench.run("install")
    bench.run("uninstall")
    state = Path(bench.report("uninstall")["state"])
    state.mkdir(parents=True)

    first, second = (bench.run("uninstall", "--purge").output for _ in range(2))

    assert (f"removed      {state}" in first, "nothing to remove" in first) == (True, False)
    assert ["nothing to remove", f"state        {state} (not there)"] == second.splitlines()


def test_uninstall_that_cannot_stop_the_daemon_removes_nothing(bench: Bench) -> None:
    """A daemon that runs without its unit file would be worse."""
    bench.run("install")
    (bench.answers / "fail").write_text("disable\nFailed to connect to bus\n", encoding="utf-8")

    bench.error("uninstall")

    assert ["handoffd-launcher.service", "handoffd.service"] == _files(bench.user_units)


@pytest.mark.parametrize("root", [False, True])
def test_uninstall_without_a_manager_removes_the_files(bench: Bench, root: bool) -> None:
    """Also root's, which an older version wrote, and the links by which it would be started."""
    bench.run("install")
    wants = bench.user_units / "default.target.wants"
    wants.mkdir()
    for name in ("handoffd-launcher.service", "handoffd.service"):
        (wants / name).symlink_to(bench.user_units / name)
    (wants / "other.service").symlink_to("/dev/null")
    bench.asked()
    (bench.answers / "show").unlink()
    machine = replace(bench.machine, root=root)

    planned = bench.report("uninstall", "--dry-run", machine=machine)
    done = bench.report("uninstall", machine=machine)

    assert planned["removed"] == done["removed"]
    assert (["default.target.wants"], ["other.service"]) == (_files(bench.user_units), _files(wants))
    assert ([], []) == (done["commands"], bench.asked())
    assert "systemd does not answer: Failed to connect to bus" in done["unanswered"]


@pytest.mark.parametrize("running", ["daemon", "launcher"])
def test_uninstall_keeps_the_files_of_what_runs(bench: Bench, running: str) -> None:
    """A manager that cannot be asked, as in a shell of `su`, may still have it."""
    bench.run("install")
    (bench.answers / "show").unlink()
    state = bench.home / ".local/state/handoffd"
    (bench.machine.system_units.parent / "handoffd").mkdir()
    with ExitStack() as stack:
        if running == "daemon":
            state.mkdir(parents=True)
            stack.enter_context(acquire(daemon_lock_path(state), "the state"))
        else:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            listener.bind(str(bench.machine.system_units.parent / "handoffd/launcher.sock"))
            listener.listen()
        error = bench.error("uninstall")

    assert ("in use by" if running == "daemon" else "systemd does not answer") in error.message
    assert ["handoffd-launcher.service", "handoffd.service"] == _files(bench.user_units)


def test_uninstall_dry_run_does_nothing(bench: Bench) -> None:
    """It names the files and the commands."""
    bench.run("install")
    bench.asked()

    report = bench.report("uninstall", "--dry-run")

    assert [["systemctl", "--user", "disable", "--now", "handoffd.service"]] == report["commands"][:1]
    assert 2 == len(report["removed"])
    assert 2 == len(_files(bench.user_units))
    assert [] == bench.asked()


def test_uninstall_leaves_the_home_as_it_was(bench: Bench) -> None:
    """Files, drop-ins, and the folders that were made for them."""
    secret = bench.answers / "secret"
    secret.write_text("x", encoding="utf-8")
    before = sorted(bench.home.rglob("*"))

    bench.run("install", "--credential", f"webhook={secret}")
    assert before != sorted(bench.home.rglob("*"))
    bench.run("uninstall")

    assert before == sorted(bench.home.rglob("*"))


def test_purge_takes_state_and_settings_along(bench: Bench) -> None:
    """Said in full by a dry run; projects are no concern of it."""
    bench.run("install")
    state, settings = bench.home / ".local/state/handoffd", bench.home / ".config/handoffd"
    for folder in (state / "runs", settings):
        folder.mkdir(parents=True)
    (state / "journal.db").touch()
    (settings / "environment").touch()

    planned = bench.report("uninstall", "--purge", "--dry-run")["purged"]
    assert (state / "journal.db").exists()
    done = bench.run("uninstall", "--purge").output

    assert [str(state), str(settings)] == planned
    assert [path in done for path in planned] == [True, True]
    assert "agents " not in done  # it has looked that none runs
    assert not state.exists()
    assert not settings.exists()


def test_a_purge_that_is_refused_does_nothing(bench: Bench) -> None:
    """The service goes on: half of it gone would be worse."""
    bench.run("install")
    bench.asked()
    state = bench.home / ".local/state/handoffd"
    state.mkdir(parents=True)
    (state / "thesis.tex").touch()

    error = bench.error("uninstall", "--purge")

    assert "thesis.tex" in error.message
    assert ["handoffd-launcher.service", "handoffd.service"] == _files(bench.user_units)
    assert ([], True) == (bench.asked(), (state / "thesis.tex").exists())


async def test_a_purge_looks_again_when_the_daemon_has_stopped(bench: Bench, tmp_path: Path) -> None:
    """It may have started an executor until then, whose journal and records must not go."""
    bench.run("install")
    runs = bench.home / ".local/state/handoffd/runs"
    runs.mkdir(parents=True)
    try:
        launcher = Launcher(tmp_path / "launcher.sock")
        run = await launcher.start(tmp_path / "d1", run_spec(tmp_path, "d1", "sleep", "600"))
        (bench.answers / "meanwhile").write_text(f"ln -sfn {tmp_path}/d1 {runs}/d1")

        error = bench.error("uninstall", "--purge")
        kept = (runs.is_dir(), _files(bench.user_units))
        run.stop()
        with anyio.fail_after(60):
            await run.wait()
    finally:
        end_processes(tmp_path)

    assert "the executor of d1 is running" == error.message
    assert error.hint is not None
    assert error.hint.startswith("systemctl --user start ")
    assert error.hint.endswith(" && handoffd stop --executors")
    assert (True, ["handoffd-launcher.service", "handoffd.service"]) == kept
    assert [str(runs.parent)] == bench.report("uninstall", "--purge")["purged"]


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
    text = _SHOW.format(active="active", sub="running", pid=42, result="success", code=0)
    (bench.answers / "show").write_text(text, encoding="utf-8")
    (bench.answers / "linger").write_text("no\n", encoding="utf-8")

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
    text = _SHOW.format(active="failed", sub="failed", pid=0, result="exit-code", code=78)
    (bench.answers / "show").write_text(text, encoding="utf-8")

    result = bench.run("status")

    assert 3 == result.exit_code
    assert "    ended: exit-code, exit code 78" in result.output
    assert "journalctl --user -u handoffd -n 30" in result.output


def test_status_of_what_is_not_installed(bench: Bench) -> None:
    """systemd answers for units it has never seen; the next command installs them."""
    (bench.answers / "show").write_text("Id=handoffd.service\nLoadState=not-found\n", encoding="utf-8")

    result = bench.run("status", "--json")

    assert 3 == result.exit_code
    report = json.loads(result.stdout)
    assert [False, False] == [unit["installed"] for unit in report["units"]]
    assert "handoffd service install" == report["next"]


def test_status_of_ones_own_where_the_machine_has_one(bench: Bench) -> None:
    """It is that of an account, which has to be named."""
    (bench.machine.system_units / f"handoffd@{pwd.getpwuid(os.geteuid()).pw_name}.service").touch()
    error = bench.error("status")
    assert "you have no service of your own; handoffd@" in error.message
    assert (error.hint or "").startswith("sudo handoffd service status --system --user ")

    bench.report("install", "--no-start")
    (bench.answers / "show").unlink()
    assert "Failed to connect to bus" in bench.error("status").message  # one's own is asked


def test_status_where_systemd_does_not_answer(bench: Bench) -> None:
    """A shell without a session is told how to get one."""
    (bench.answers / "show").unlink()
    error = bench.error("status")

    assert "Failed to connect to bus" in error.message
    assert "XDG_RUNTIME_DIR" in (error.hint or "")
