"""The executors in use, and what keeps one of them from working."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.children import ending
from tests.support.eventually import eventually_sync

from handoffd.doctor.executors import (
    Chosen,
    check_executor,
    check_executors,
    choices_of,
    environment_of,
    look_for,
    silent_executor,
    users_of,
)
from handoffd.doctor.finding import Finding
from handoffd.doctor.service import Service
from handoffd.execute.executor import Executor, Login
from handoffd.execute.registry import ExecutorBook, Installation, Layer, load_book, shipped_layer

# --- in use -----------------------------------------------------------------------------------------
TERMINAL = Service(unit=None)


@pytest.fixture(scope="module")
def book() -> ExecutorBook:
    """The shipped executors, with one whose program only tests have."""
    mine = {"mine": {"extends": "command", "argv": ["mytool", "--quiet"]}}
    return load_book(shipped_layer(), Layer(file="test", definitions=mine))


def missing(**changes: object) -> Chosen:
    """Return an executor whose program is not there."""
    values = {"name": "mine", "program": "mytool", "path": "/usr/bin"} | changes
    return Chosen(**values)  # type: ignore[arg-type]


def test_projects_by_the_executor_they_use() -> None:
    """The default one counts without any; an older daemon does not send it."""
    projects: list[dict[str, object]] = [
        {"project": "/a", "executor": None},
        {"project": "/b", "executor": "codex"},
        {"project": "/c"},
    ]
    assert {"claude": ["/a", "/c"], "codex": ["/b"]} == users_of("claude", projects)
    assert {"claude": []} == users_of("claude", [])


def test_a_program_is_looked_up_as_the_daemon_would(book: ExecutorBook, tmp_path: Path) -> None:
    """On its PATH, which may differ from this terminal's, and only if agents get it."""
    tool = tmp_path / "mytool"
    tool.touch(mode=0o755)
    here, there = {"PATH": str(tmp_path)}, {"PATH": "/nowhere"}

    found = look_for("mine", ["/a"], book, ("PATH",), (here, there))
    lost = look_for("mine", ["/a"], book, ("PATH",), (there, here))
    held_back = look_for("mine", ["/a"], book, (), (here, here))

    assert (str(tool), None, "mytool") == (found.found, found.here, found.program)
    assert (None, str(tool), "/nowhere") == (lost.found, lost.here, lost.path)
    assert "/usr/local/bin:/usr/bin:/bin" == held_back.path


def test_our_own_interpreter_is_always_found(book: ExecutorBook) -> None:
    """The rehearsal needs no PATH."""
    found = look_for("rehearsal", [], book, ("PATH",), ({"PATH": "/nowhere"}, {}))
    assert sys.executable == found.found


def test_an_executor_that_does_not_exist(book: ExecutorBook) -> None:
    """The finding lists those that do."""
    found = look_for("cladue", ["/a"], book, ("PATH",), ({}, {}))
    assert "allowed: aider, claude, " in (found.unknown or "")
    (fault,) = check_executors([found], TERMINAL)
    assert ("fault", "there is no executor cladue, which /a uses") == (fault.severity, fault.what)
    assert "handoffd config show" == fault.action


def test_the_version_or_the_problem_of_an_executor_is_reported(tmp_path: Path) -> None:
    """The problem has its name."""
    tool = tmp_path / "mytool"
    tool.write_text("#!/bin/sh\necho mytool 1.2\n")
    tool.chmod(0o755)
    definition = {"extends": "command", "argv": ["mytool"], "env": ["MY_KEY"], "version": ["mytool", "-V"]}
    mine = {"mine": {**definition, "login": {"env": ["MY_KEY"], "command": "mytool login"}}}
    book = load_book(shipped_layer(), Layer(file="test", definitions=mine))
    here = {"PATH": str(tmp_path)}

    (fine,) = check_executors(
        [look_for("mine", ["/a"], book, ("PATH",), ({**here, "MY_KEY": "k"}, here))], TERMINAL
    )
    (amiss,) = check_executors([look_for("mine", ["/a"], book, ("PATH",), (here, here))], TERMINAL)

    assert ("ok", f"mine ({tool} mytool 1.2)") == (fine.severity, fine.what)
    assert ("warning", "mine: no login was found") == (amiss.severity, amiss.what)
    assert ("executors", "mytool login") == (amiss.check, amiss.action)


def test_an_executor_that_does_not_answer_is_reported() -> None:
    """With the command that waits for it longer."""
    found = silent_executor("my tool")
    assert ("warning", "handoffd executors check 'my tool'") == (found.severity, found.action)
    assert () == check_executors([], TERMINAL)


def test_all_programs_are_found() -> None:
    """In one line, with their places."""
    (found,) = check_executors([missing(found="/bin/mytool"), missing(name="b", found="/bin/b")], TERMINAL)
    assert ("ok", "mine (/bin/mytool), b (/bin/b)") == (found.severity, found.what)


def test_a_program_that_is_missing() -> None:
    """With the PATH that was searched."""
    (found,) = check_executors([missing(projects=["/a", "/b"])], TERMINAL)
    what = "mytool, the program of the executor mine, which 2 projects use, is not found"
    assert ("fault", what) == (found.severity, found.what)
    assert "no folder of the PATH that executors get has it: /usr/bin" == found.why
    assert (found.action or "").startswith("command -v mytool || ")


def test_a_known_program_gets_the_command_that_installs_it(book: ExecutorBook) -> None:
    """As the executor's definition has it."""
    lost = look_for("claude", ["/a"], book, ("PATH",), ({"PATH": "/nowhere"}, {"PATH": "/nowhere"}))
    (found,) = check_executors([lost], TERMINAL)
    assert "npm install -g @anthropic-ai/claude-code" == found.action


def test_choices_come_from_projects_and_the_default() -> None:
    """Each as a whole, the best first."""
    projects: list[dict[str, object]] = [{"project": "/a"}, {"project": "/b", "executor": "codex, gemini"}]
    assert {("claude", "aider"), ("codex", "gemini")} == choices_of(("claude", "aider"), projects)


def test_a_missing_one_of_several_is_a_warning_while_another_is_found() -> None:
    """The daemon skips it; but not as the only choice of a project, or with an unknown name."""
    mine, other = missing(projects=["/a"]), missing(name="b", projects=["/a"], found="/bin/b")
    stranger = missing(projects=["/a"], unknown="there is none")
    both, alone = ("mine", "b"), ("mine",)

    def severities(*chosen: Chosen, choices: list[tuple[str, ...]]) -> list[str]:
        return [found.severity for found in check_executors(chosen, TERMINAL, choices)]

    assert ["warning"] == severities(mine, other, choices=[both])
    assert ["fault"] == severities(mine, other, choices=[both, alone])
    assert ["fault"] == severities(stranger, other, choices=[both])
    assert ["fault", "fault"] == severities(mine, missing(name="b", projects=["/a"]), choices=[both])


@pytest.mark.parametrize(
    ("service", "action"),
    [(TERMINAL, "handoffd stop && handoffd run"), (Service(unit="handoffd"), "handoffd service install")],
)
def test_a_program_that_only_this_terminal_has(service: Service, action: str) -> None:
    """The daemon gets this terminal's PATH."""
    (found,) = check_executors([missing(here="/opt/mytool")], service)
    assert "it is /opt/mytool in this terminal; the daemon gives executors the PATH /usr/bin" == found.why
    assert (found.action or "").startswith(action)


def test_an_executor_without_projects_is_a_warning() -> None:
    """As long as others are used; without any project it is what the first one will use."""
    used = missing(name="b", projects=["/a"], found="/bin/b")
    assert ["warning"] == [found.severity for found in check_executors([missing(), used], TERMINAL)]
    assert ["fault"] == [found.severity for found in check_executors([missing()], TERMINAL)]


def test_the_environment_of_a_process() -> None:
    """Of the daemon that runs, else our own."""
    assert os.environ is environment_of(None)
    assert os.environ is environment_of(2**22 + 1)
    environment = {"PATH": "/usr/bin:/bin", "WORD": "a=b"}
    with ending(subprocess.Popen(["sleep", "600"], env=environment)) as process:
        try:
            eventually_sync(lambda: environment_of(process.pid) == environment)
        finally:
            process.kill()


# --- one of them ------------------------------------------------------------------------------------
TOOL = Executor(
    name="mine",
    argv=("tool",),
    version=("tool", "--version"),
    install="npm install -g tool",
    login=Login(env=("KEY",), files=("~/.tool/auth",), command="tool login"),
)


def findings(executor: Executor = TOOL, **changes: Any) -> tuple[Finding, ...]:
    """Return what is found about an executor with which all is well but for the changes."""
    values = {"program": "tool", "path": "/usr/bin", "found": "/usr/bin/tool", "version": "1.2"}
    return check_executor(executor, Installation(**{**values, **changes}))


def test_one_that_works() -> None:
    """With the program's path and version."""
    assert (Finding(check="mine", severity="ok", what="/usr/bin/tool 1.2"),) == findings(logged_in=True)
    assert "/usr/bin/tool" == findings(version=None)[0].what


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
    (one,) = findings(**changes)

    assert ("mine", severity, what, action) == (one.check, one.severity, one.what, one.action)
    assert one.why


def test_without_a_known_remedy_the_command_shows_more() -> None:
    """For a missing program, a failing version, and no login."""
    bare = TOOL.model_copy(update={"install": None, "login": Login(env=("KEY",))})

    assert "command -v tool" == findings(bare, found=None)[0].action
    assert "tool --version" == findings(bare, version_error="x")[0].action
    assert "tool --help" == findings(bare, logged_in=False)[0].action


def test_all_problems_are_reported_at_once() -> None:
    """But without the program nothing else matters."""
    wrong: dict[str, Any] = {
        "version_error": "x",
        "logged_in": False,
        "unwritable": ("~/a",),
        "empty": ("KEY",),
    }

    assert 4 == len(findings(**wrong))
    assert 1 == len(findings(found=None, **wrong))
