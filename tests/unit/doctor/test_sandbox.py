"""That there is no sandbox is said, with what one could be made from."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd.doctor.installation import SandboxFacts, check_sandbox, sandbox_facts


def sysctl(base: Path, **values: str) -> Path:
    """Return a folder of kernel settings; `__` stands for a slash."""
    for name, value in values.items():
        file = base / name.replace("__", "/")
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{value}\n")
    return base


@pytest.mark.parametrize(
    ("values", "namespaces"),
    [
        ({}, False),
        ({"user__max_user_namespaces": "0"}, False),
        ({"user__max_user_namespaces": "words"}, False),
        ({"user__max_user_namespaces": "9000"}, True),
        ({"user__max_user_namespaces": "9000", "kernel__unprivileged_userns_clone": "0"}, False),
        ({"user__max_user_namespaces": "9000", "kernel__unprivileged_userns_clone": "1"}, True),
        ({"user__max_user_namespaces": "9000", "kernel__apparmor_restrict_unprivileged_userns": "1"}, False),
    ],
)
def test_namespaces_are_what_the_settings_of_the_kernel_allow(
    tmp_path: Path, values: dict[str, str], namespaces: bool
) -> None:
    """Each of three settings can forbid them, and most kernels have only the first."""
    assert namespaces == sandbox_facts("/nowhere", sysctl(tmp_path, **values)).namespaces


def test_bubblewrap_is_looked_for_on_the_path(tmp_path: Path) -> None:
    """On the one that is given."""
    program = tmp_path / "bwrap"
    program.touch(mode=0o755)
    assert str(program) == sandbox_facts(str(tmp_path)).bubblewrap
    assert sandbox_facts("/nowhere").bubblewrap is None


def test_landlock_is_asked_of_the_kernel() -> None:
    """Whatever it says, it is a version, or none."""
    assert sandbox_facts("/nowhere").landlock >= 0


def test_no_protection_is_claimed() -> None:
    """What could be used is not used."""
    facts = SandboxFacts(namespaces=True, landlock=4, bubblewrap="/usr/bin/bwrap")
    (offered,) = check_sandbox(facts)
    (nothing,) = check_sandbox(SandboxFacts(namespaces=False, landlock=0, bubblewrap=None))
    there = "user namespaces without privileges, Landlock (version 4), bubblewrap (/usr/bin/bwrap)"
    assert ("sandbox", "ok") == (offered.check, offered.severity)
    assert f"none is used around agents; this machine offers {there}, unused" == offered.what
    assert "none is used around agents; this machine offers nothing for one" == nothing.what
