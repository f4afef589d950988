"""How an executor is found on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.layout import undeclared

from handoffd.execute.executor import Executor
from handoffd.execute.registry import (
    Installation,
    find_program,
    found_at,
    is_own,
    load_book,
    look,
    program_of,
    shipped_layer,
)


def tool(folder: Path, text: str = "echo 'tool 1.2'") -> dict[str, str]:
    """Make a program, and return an environment in which it is found."""
    program = folder / "tool"
    program.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(folder)}


def executor(**given: Any) -> Executor:
    """Return an executor that starts the program."""
    return Executor.model_validate({"name": "x", "argv": ["tool"], "version": ["tool", "--version"], **given})


def test_a_program_is_found_with_its_version(tmp_path: Path) -> None:
    """On the PATH that it would get."""
    environment = tool(tmp_path, 'echo WARNING >&2; echo; echo "tool 1.2 $1"; echo more')

    assert Installation(
        program="tool",
        path=environment["PATH"],
        found=str(tmp_path / "tool"),
        version="tool 1.2 --version",
    ) == look(executor(), environment)


def test_a_missing_program_is_not_asked(tmp_path: Path) -> None:
    """Its login is checked all the same."""
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    found = look(executor(login={"env": ["KEY"]}), environment)

    assert (None, None, None, False) == (found.found, found.version, found.version_error, found.logged_in)
    assert None is find_program(executor(), environment)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("echo 'bad \x1b[1mflag' >&2; exit 2", "exit code 2: bad \N{REPLACEMENT CHARACTER}[1mflag"),
        ("exit 3", "exit code 3"),
        ("exit 0", "it printed nothing"),
    ],
)
def test_why_there_is_no_version(tmp_path: Path, text: str, error: str) -> None:
    """In the program's own words, made harmless."""
    found = look(executor(), tool(tmp_path, text))

    assert (None, error) == (found.version, found.version_error)
    assert None is look(executor(version=None), tool(tmp_path, text)).version_error


def test_a_program_whose_interpreter_is_missing_has_no_version(tmp_path: Path) -> None:
    """The error is the kernel's."""
    environment = tool(tmp_path)
    (tmp_path / "tool").write_text("#!/nowhere/sh\n", encoding="utf-8")

    assert "No such file" in (look(executor(), environment).version_error or "")


def test_an_account_is_logged_in_by_a_variable_or_a_file(tmp_path: Path) -> None:
    """An empty variable does not count; without a description it is not known."""
    environment = tool(tmp_path)
    login = {"env": ["KEY"], "files": ["${TOOL_HOME:-~/.tool}/auth.json"]}
    asked = executor(login=login)

    assert None is look(executor(), environment).logged_in
    assert False is look(asked, {**environment, "KEY": ""}).logged_in
    assert True is look(asked, {**environment, "KEY": "secret"}).logged_in
    (tmp_path / ".tool").mkdir()
    (tmp_path / ".tool/auth.json").touch()
    assert True is look(asked, environment).logged_in
    assert False is look(asked, {**environment, "TOOL_HOME": "/nowhere"}).logged_in


def test_folders_must_be_writable_or_can_be_made(tmp_path: Path) -> None:
    """Not where a file is in the way. Of files that are replaced (`*`), their folder counts."""
    environment = tool(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / ".tool.json").touch()
    good = ["~/new/deep", "~", "~/.tool.json*", "~/new/deep*"]
    bad = ["~/file", "~/file/inside", "relative", "~/file/inside*"]

    assert tuple(bad) == look(executor(writes=[*good, *bad]), environment).unwritable


CLAUDE_OWN = (".claude/projects", ".claude.json", ".claude.json.lock", ".claude.json.tmp.4711.0a1b2c3d")


@pytest.mark.parametrize(
    ("name", "moved", "written"),
    [
        ("claude", {}, CLAUDE_OWN),
        ("claude", {"CLAUDE_CONFIG_DIR": "/moved"}, ("/moved/projects", "/moved/.claude.json.lock")),
        ("codex", {}, (".codex/state_5.sqlite", ".codex/sessions/2026", ".codex/tmp/arg0-linux")),
        ("codex", {"CODEX_HOME": "/moved"}, ("/moved/state_5.sqlite",)),
        ("gemini", {}, (".gemini/projects.json", ".gemini/tmp/project")),
        ("opencode", {}, (".local/share/opencode/log", ".local/state/opencode/locks", ".cache/opencode/bin")),
        ("opencode", {"XDG_STATE_HOME": "/moved"}, ("/moved/opencode/locks", ".config/opencode/.gitignore")),
    ],
)
def test_the_paths_each_cli_writes_outside_the_project_are_declared(
    name: str, moved: dict[str, str], written: tuple[str, ...]
) -> None:
    """As seen on the CLIs themselves; `tests/real` checks it again."""
    shipped = load_book(shipped_layer()).get(name)
    paths = [path if path.startswith("/") else f"/home/me/{path}" for path in written]

    assert () == undeclared(shipped, {"HOME": "/home/me", **moved}, paths)


def test_a_login_in_the_home_folder_counts(tmp_path: Path) -> None:
    """claude keeps it there unless a person moves its folder."""
    claude = load_book(shipped_layer()).get("claude").model_copy(update={"version": None})
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/.credentials.json").touch()
    (tmp_path / ".claude.json").touch()

    assert look(claude, tool(tmp_path)).logged_in
    assert not look(claude, {**tool(tmp_path), "CLAUDE_CONFIG_DIR": str(tmp_path / "new")}).logged_in


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_folder_that_is_closed_cannot_be_written(tmp_path: Path) -> None:
    """And no folder can be made in it."""
    environment = tool(tmp_path)
    (tmp_path / "closed").mkdir(mode=0o500)

    assert ("~/closed/x",) == look(executor(writes=["~/closed/x"]), environment).unwritable


def test_empty_variables_are_reported(tmp_path: Path) -> None:
    """Unset ones are not."""
    environment = {**tool(tmp_path), "KEY": "", "URL": "x"}

    assert ("KEY",) == look(executor(env=["KEY", "URL", "OTHER"]), environment).empty


def test_a_program_is_searched_on_the_executors_path(tmp_path: Path) -> None:
    """Not on the caller's."""
    tool(tmp_path)

    assert str(tmp_path / "tool") == found_at(executor(), {"PATH": str(tmp_path)}, ("PATH",))
    assert found_at(executor(), {"PATH": "/nowhere"}, ("PATH",)) is None
    assert found_at(executor(), {"PATH": str(tmp_path)}, ()) is None


def test_handoffds_own_programs_are_always_installed_and_not_agents() -> None:
    """The rehearsal is run by the interpreter that runs the daemon."""
    own = Executor(name="rehearsal", argv=("{python}", "-m", "handoffd.rehearsal"))

    assert is_own(own)
    assert sys.executable == found_at(own, {}, ()) == program_of(own)
    assert not is_own(Executor(name="a", argv=("python3",)))
    assert not is_own(Executor(name="pattern"))
