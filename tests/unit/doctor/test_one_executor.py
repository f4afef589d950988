"""What keeps one executor from working."""

from __future__ import annotations

from typing import Any

import pytest

from handoffd.doctor.executors import check_executor
from handoffd.doctor.finding import Finding
from handoffd.execute.executor import Executor, Login
from handoffd.execute.registry import Installation

TOOL = Executor(
    name="mine",
    argv=("tool",),
    version=("tool", "--version"),
    install="npm install -g tool",
    login=Login(env=("KEY",), files=("~/.tool/auth",), command="tool login"),
)


def found(executor: Executor = TOOL, **changes: Any) -> tuple[Finding, ...]:
    """Return what is found about an executor with which all is well but for the changes."""
    values = {"program": "tool", "path": "/usr/bin", "found": "/usr/bin/tool", "version": "1.2"}
    return check_executor(executor, Installation(**{**values, **changes}))


def test_all_is_well() -> None:
    """With the program's path and version."""
    assert (Finding(check="mine", severity="ok", what="/usr/bin/tool 1.2"),) == found(logged_in=True)
    assert "/usr/bin/tool" == found(version=None)[0].what


@pytest.mark.parametrize(
    ("changes", "severity", "what", "action"),
    [
        ({"found": None, "version": None}, "fault", "tool is not found", "npm install -g tool"),
        ({"version_error": "exit code 1"}, "fault", "`tool --version` fails", "npm install -g tool"),
        ({"logged_in": False}, "warning", "no login was found", "tool login"),
        ({"unwritable": ("~/.tool",)}, "fault", "~/.tool cannot be written", "ls -ld ~/.tool"),
        ({"unwritable": ("$T/x",)}, "fault", "$T/x cannot be written", 'ls -ld "$T/x"'),
        ({"unwritable": ("~/.tool.json*",)}, "fault", "~/.tool.json* cannot be written", "ls -ld ~"),
        (
            {"unwritable": ("${T:-~/x}/y*",)},
            "fault",
            "${T:-~/x}/y* cannot be written",
            'ls -ld "${T:-$HOME/x}"',
        ),
        ({"empty": ("KEY",)}, "warning", "KEY is set, but empty", "unset KEY"),
    ],
)
def test_each_finding_has_its_remedy(changes: dict[str, Any], severity: str, what: str, action: str) -> None:
    """What, and the next command to type."""
    (one,) = found(**changes)

    assert ("mine", severity, what, action) == (one.check, one.severity, one.what, one.action)
    assert one.why


def test_without_a_word_on_how_to_install_it_one_looks_oneself() -> None:
    """And without one on how to log in."""
    bare = TOOL.model_copy(update={"install": None, "login": Login(env=("KEY",))})

    assert "command -v tool" == found(bare, found=None)[0].action
    assert "tool --version" == found(bare, version_error="x")[0].action
    assert "tool --help" == found(bare, logged_in=False)[0].action


def test_everything_is_told_at_once() -> None:
    """But of a program that is not there, nothing else matters."""
    wrong: dict[str, Any] = {
        "version_error": "x",
        "logged_in": False,
        "unwritable": ("~/a",),
        "empty": ("KEY",),
    }

    assert 4 == len(found(**wrong))
    assert 1 == len(found(found=None, **wrong))
