"""What holds agents on this machine, by trial, and what to do where nothing can."""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests.support.sandboxes import require_namespaces

from handoffd.doctor.machine import SandboxFacts, check_sandbox, sandbox_facts
from handoffd.execute.sandbox.kernel import Found, explain, look, profile_command, remedy
from handoffd.settings.model import SandboxSettings

NO = 1  # EPERM


def found(**more: Any) -> Found:
    """Return a machine that forbids nothing."""
    values = {"apparmor": None, "clone": None, "most": 9000, "landlock": 7, "root": False}
    return Found(program="/usr/bin/python3", **values | more)


def settings(level: str = "auto", network: str = "on") -> SandboxSettings:
    """Return the settings of a sandbox."""
    return SandboxSettings.model_validate({"level": level, "network": network})


@pytest.mark.parametrize("level", ["auto", "namespaces", "landlock"])
def test_the_sandbox_is_tried(level: str) -> None:
    """What holds it is what was made."""
    require_namespaces()

    facts = sandbox_facts(settings(level))

    expected = {"auto": {"strict", "namespaces"}, "namespaces": {"namespaces"}, "landlock": {"landlock"}}
    assert (None, True) == (facts.why, facts.holds in expected[level])
    assert (os.geteuid() == 0) == facts.is_root


def test_a_sandbox_that_holds_is_fine_and_says_what_holds() -> None:
    """With the network, which is the only way out."""
    (strict,) = check_sandbox(SandboxFacts(settings=settings(), holds="strict"))
    (root,) = check_sandbox(SandboxFacts(settings=settings(network="none"), holds="namespaces", is_root=True))

    assert ("sandbox", "ok") == (strict.check, strict.severity)
    assert "agents are held to their project by namespaces and Landlock (strict); network: on" == strict.what
    assert root.what.startswith(
        "agents of root, which see folders of programs only, are held to their project"
    )
    assert root.what.endswith("need version 6 of it; network: none")


def test_off_and_landlock_alone_are_warnings() -> None:
    """A person has asked for that, and may have forgotten it."""
    (off,) = check_sandbox(sandbox_facts(settings("off")))
    (alone,) = check_sandbox(SandboxFacts(settings=settings("landlock"), holds="landlock"))

    assert ("warning", "there is no sandbox around agents") == (off.severity, off.what)
    assert ("warning", "agents are held by Landlock alone") == (alone.severity, alone.what)


def test_a_machine_that_forbids_it_is_a_fault_with_the_command() -> None:
    """Nothing starts there: the daemon does not fall back to less by itself."""
    error = OSError(NO, "Operation not permitted", "new namespaces")
    why = explain(error, found(apparmor=1))

    (fault,) = check_sandbox(SandboxFacts(settings=settings(), why=why))

    assert ("fault", "no agent can be started in its sandbox") == (fault.severity, fault.what)
    assert fault.why is not None
    assert fault.why.startswith(
        "EPERM: no sandbox: new namespaces: Operation not permitted; AppArmor lets only"
    )
    assert profile_command("/usr/bin/python3") == fault.action


@pytest.mark.parametrize(
    ("number", "machine", "why", "command"),
    [
        (NO, {"most": 0}, "user.max_user_namespaces is 0", "sudo sysctl -w user.max_user_namespaces=10000"),
        (NO, {"clone": 0}, "kernel.unprivileged_userns_clone is 0", "sudo sysctl -w kernel.unprivileged"),
        (NO, {"apparmor": 1}, "AppArmor", "printf 'abi <abi/4.0>"),
        (13, {"apparmor": 1}, "AppArmor", "| sudo tee /etc/apparmor.d/handoffd && sudo apparmor_parser -r"),
        (NO, {}, "a container", "sandbox: {level: landlock}"),
        (NO, {"root": True, "most": 0}, "a container", "sandbox: {level: landlock}"),
        (38, {}, "older than 5.12", "sandbox: {level: landlock}"),
        (2, {}, "", "handoffd doctor"),
    ],
)
def test_each_obstacle_has_its_command(number: int, machine: dict[str, Any], why: str, command: str) -> None:
    """Nothing is suggested that would not help."""
    reason, next_command = remedy(number, found(**machine))

    assert why in reason
    assert command in next_command


def test_this_machine_is_seen_without_trying_anything() -> None:
    """Settings of the kernel that are missing forbid nothing."""
    seen = look("/no/such/folder/")

    assert (None, None, None) == (seen.apparmor, seen.clone, seen.most)
    assert os.path.isabs(seen.program)
