"""Settings, notifications, and the account."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.children import ending

from handoffd.doctor.finding import Finding
from handoffd.doctor.installation import (
    AccountFacts,
    SinkFacts,
    account_facts,
    check_account,
    check_notices,
    check_settings,
    open_to_others,
    silent_sink,
    sink_facts,
    too_open,
)
from handoffd.doctor.service import Service
from handoffd.errors import InvalidFile, Problem
from handoffd.settings.notify import NotifySettings


# --- settings ---------------------------------------------------------------------------------------
def test_settings_that_can_be_used() -> None:
    """A file, or none."""
    assert ["/etc/h.yaml can be used"] == [found.what for found in check_settings(Path("/etc/h.yaml"), [])]
    (found,) = check_settings(None, [])
    assert ("ok", "there is no settings file; the defaults hold") == (found.severity, found.what)


def test_every_problem_is_a_fault() -> None:
    """With its place, and what opens the file."""
    problems = (
        Problem(file="/h.yaml", line=2, key="log.level", message="must be loud", allowed=("a", "b")),
        Problem(file="/h.yaml", message="cannot be read"),
    )
    found = check_settings(
        Path("/h.yaml"), [InvalidFile(problems, hint="vi /h.yaml"), InvalidFile(problems[:1])]
    )

    assert {"fault"} == {one.severity for one in found}
    loud = "/h.yaml:2: log.level: must be loud (allowed: a, b)"
    assert [loud, "/h.yaml: cannot be read", loud] == [one.what for one in found]
    assert ["vi /h.yaml", "vi /h.yaml", None] == [one.action for one in found]


def test_files_with_secrets_that_others_can_read_are_a_warning() -> None:
    """With the command that closes them."""
    (found,) = check_settings(Path("/etc/h.yaml"), [], open_files=["/etc/key"])

    assert ("warning", "chmod 600 /etc/key") == (found.severity, found.action)


def test_warnings_of_the_daemon_are_shown() -> None:
    """Without the problem of the file, which is a finding already."""
    problem = Problem(file="/h.yaml", line=2, key="log.level", message="must be loud")
    warnings = (f"the settings cannot be used: {problem}", "projects: /x is not a folder")

    found = check_settings(Path("/h.yaml"), [InvalidFile((problem,))], warnings)

    assert [("fault", str(problem)), ("warning", warnings[1])] == [(one.severity, one.what) for one in found]
    assert "handoffd reload" == found[1].action


# --- files with secrets -----------------------------------------------------------------------------
@pytest.mark.parametrize(("mode", "found"), [(0o600, False), (0o640, True), (0o604, True), (0o622, False)])
def test_files_that_others_may_read_are_found(tmp_path: Path, mode: int, found: bool) -> None:
    """A missing file is closed."""
    file = tmp_path / "a key"
    file.write_text("x")
    file.chmod(mode)

    assert ((str(file),) if found else ()) == open_to_others([file, tmp_path / "missing"])


def test_the_command_that_closes_a_file_can_be_typed() -> None:
    """Whatever the name of the file."""
    finding = too_open("settings", "/etc/a key")

    assert ("/etc/a key is open to others", "chmod 600 '/etc/a key'") == (finding.what, finding.action)


# --- notifications ----------------------------------------------------------------------------------
def found(environ: dict[str, str] | None = None, **values: Any) -> list[tuple[str, str, str | None]]:
    """Return severity, what and why of what is found about settings."""
    settings = NotifySettings.model_validate(values)
    given = dict(os.environ) if environ is None else environ
    facts = tuple(sink_facts(name, sink, given) for name, sink in settings.named().items())
    return [(one.severity, one.what, one.why) for one in check_notices(settings, facts)]


def test_the_program_of_a_sink_must_exist() -> None:
    """On the PATH that the daemon gives it."""
    assert [
        ("ok", "notifications go to command (nothing was sent; to test: handoffd notify test)", None)
    ] == found(command=["sh"])
    assert [("fault", "the sink command cannot deliver", "sh is not found")] == found(
        {"PATH": "/none"}, command=["sh"]
    )


@pytest.mark.slow
def test_a_file_with_addresses_must_be_readable_and_ours_alone(tmp_path: Path) -> None:
    """It is named."""
    config = tmp_path / "apprise.conf"
    apprise = {"config_file": str(config)}
    assert [("fault", "the sink apprise cannot deliver", f"{config} cannot be read")] == found(
        apprise=apprise
    )
    config.write_text("json://127.0.0.1:9/\n")
    config.chmod(0o644)
    why = "it holds a secret, and other accounts may read it"
    assert [("warning", f"{config} is open to others", why)] == found(apprise=apprise)
    config.chmod(0o600)
    assert ["ok"] == [severity for severity, _, _ in found(apprise=apprise)]


@pytest.mark.slow
def test_apprise_must_know_its_addresses() -> None:
    """By their numbers: they are secrets. Nothing is sent."""
    assert ["ok"] == [severity for severity, _, _ in found(apprise={"urls": ["json://127.0.0.1:9/"]})]
    why = "address 2: apprise does not know such an address"
    wrong = {"urls": ["json://127.0.0.1:9/", "nosuch://key"]}
    assert [("fault", "the sink x cannot deliver", why)] == found(sinks={"x": {"apprise": wrong}})


def test_settings_without_notifications_are_a_warning() -> None:
    """A sink that does not answer is a fault."""

    def summary(findings: tuple[Finding, ...]) -> list[tuple[str, str]]:
        return [(one.severity, one.what) for one in findings]

    nothing = ("warning", "no notices are sent")
    assert [nothing] == summary(check_notices(NotifySettings(), ()))
    assert [nothing] == summary(check_notices(NotifySettings(events=()), (SinkFacts(name="x"),)))
    assert ["fault"] == [one.severity for one in check_notices(NotifySettings(), (silent_sink("x"),))]


# --- the account ------------------------------------------------------------------------------------
def test_the_account_is_the_daemons() -> None:
    """Without a daemon, or after its end, it is the account of this process."""
    mine = pwd.getpwuid(os.geteuid()).pw_name
    expected = AccountFacts(name=mine, is_root=os.geteuid() == 0, own=False)
    with ending(subprocess.Popen(["sleep", "600"])) as process:
        try:
            assert expected == account_facts(process.pid, Service(unit="handoffd"))
        finally:
            process.kill()
    assert expected == account_facts(None, Service(unit=None)) == account_facts(2**22 + 1, Service(unit=None))
    assert account_facts(None, Service(unit="handoffd", account="agents")).own


def test_agents_as_root_are_a_warning() -> None:
    """They could do everything."""
    (found,) = check_account(AccountFacts(name="root", is_root=True, own=False))
    assert ("warning", "agents work as root") == (found.severity, found.what)
    assert "sudo handoffd service install --system --user ACCOUNT" == found.action


def test_the_rights_of_agents_are_reported() -> None:
    """That is not a problem."""
    (person,) = check_account(AccountFacts(name="ann", is_root=False, own=False))
    (own,) = check_account(AccountFacts(name="agents", is_root=False, own=True))
    assert ("ok", "ok") == (person.severity, own.severity)
    assert "agents work as ann, as far as the sandbox lets them" == person.what
    assert "agents work as agents, an account of their own" == own.what
