"""`handoffd hooks`: ours in Claude Code's settings; and `handoffd mcp`, up to the server itself."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.support.commands import Commands, environment, started
from tests.support.eventually import eventually_sync
from tests.support.hooking import event, standing

from handoffd.cli.hooks import REQUIREMENT, own_command
from handoffd.hooks.claude_settings import is_ours
from handoffd.hooks.event import EVENTS


@pytest.fixture
def root(alone: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, in a folder of which the command runs."""
    project = standing(alone / "my shop")
    (project / "src").mkdir()
    monkeypatch.chdir(project / "src")
    return project


def _settings(root: Path, name: str = "settings.json") -> Path:
    return root / ".claude" / name


def test_hooks_are_installed_and_removed(root: Path, handoffd: Commands) -> None:
    """In the project of the current folder; a second time changes nothing."""
    first, second = handoffd("hooks", "install"), handoffd("hooks", "install")

    assert [0, 0] == [first.code, second.code]
    assert f"hooks are installed: {_settings(root)}" == first.lines[0]
    assert f"hooks are already installed: {_settings(root)}" == second.lines[0]
    assert set(EVENTS) == set(json.loads(_settings(root).read_text(encoding="utf-8"))["hooks"])
    assert f"{_settings(root)}: {', '.join(EVENTS)}" == handoffd("hooks", "status").lines[0]
    assert [f"hooks are removed: {_settings(root)}"] == handoffd("hooks", "uninstall").lines
    assert not _settings(root).exists()
    assert [f"handoffd has no hooks there: {_settings(root)}"] == handoffd("hooks", "uninstall").lines


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (("--user",), ".claude/settings.json"),
        (("--user", "--local"), ".claude/settings.local.json"),
        (("--local",), "my shop/.claude/settings.local.json"),
        (("--project", "../.."), ".claude/settings.json"),
    ],
)
def test_other_places(root: Path, alone: Path, handoffd: Commands, words: tuple[str, ...], file: str) -> None:
    """For every project, for this user alone, or in another project."""
    said = handoffd("hooks", "install", *words, "--event", "Stop", "--event", "SessionEnd", "--json").json

    assert (str(alone / file), True) == (said["file"], said["changed"])
    assert ["Stop", "SessionEnd"] == said["events"]
    files = handoffd("hooks", "status", *words, "--json").json["files"]
    assert [(str(alone / file), ["Stop", "SessionEnd"])] == [(one["file"], one["events"]) for one in files]


def test_the_command_works_from_anywhere(root: Path, handoffd: Commands) -> None:
    """As Claude Code runs it: by a shell, in the project, with a PATH of its own."""
    handoffd("hooks", "install")
    (entry,) = json.loads(_settings(root).read_text(encoding="utf-8"))["hooks"]["Stop"][0]["hooks"]
    argv, env = ["/bin/sh", "-c", entry["command"]], {"PATH": "/usr/bin:/bin"}
    said = subprocess.run(
        argv, input=event("/"), cwd=root, env=env, capture_output=True, timeout=60, check=False
    )

    assert (0, b"", b"") == (said.returncode, said.stdout, said.stderr)


@pytest.mark.parametrize("config", [None, "a b/handoffd.yaml"])
def test_the_command_is_absolute_and_ours(config: str | None) -> None:
    """With the settings file it was installed with."""
    command = own_command(config)
    words = shlex.split(command)

    assert is_ours(command)
    assert words[0].startswith("/")
    assert config is None or Path(config).absolute() == Path(words[-2])
    assert Path(words[0]).parent == Path(sys.executable).parent


def test_outside_a_project_one_must_be_named(here: Path, handoffd: Commands) -> None:
    """Nothing is written in other folders."""
    missing, both = handoffd("hooks", "install"), handoffd("hooks", "install", "--user", "--project", ".")

    assert (4, 2) == (missing.code, both.code)
    assert "next: handoffd hooks install --project PATH" in missing.err
    assert 4 == handoffd("hooks", "install", "--project", "nowhere").code
    assert 0 == handoffd("hooks", "status").code


def test_invalid_settings_are_reported_and_left(root: Path, handoffd: Commands) -> None:
    """With line and column."""
    _settings(root).parent.mkdir()
    _settings(root).write_text('{\n  "a": 1,\n}', encoding="utf-8")
    said = handoffd("hooks", "install")

    assert 1 == said.code
    assert f"{_settings(root)}:3: column 1: this is not JSON" in said.err
    assert '{\n  "a": 1,\n}' == _settings(root).read_text(encoding="utf-8")


# --- mcp --------------------------------------------------------------------------------------------
def test_without_the_extra_the_error_has_the_command_that_installs_it(tmp_path: Path) -> None:
    """For the Python that runs it, in the version that the extra names."""
    code = "import sys; sys.modules['mcp_types'] = None; from handoffd.cli.main import main; main(['mcp'])"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(tmp_path), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert 1 == ended.returncode
    assert "needs the package mcp" in ended.stderr
    assert f"next: {sys.executable} -m pip install '{REQUIREMENT}'" in ended.stderr
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert [REQUIREMENT] == extras["mcp"]
    assert REQUIREMENT in extras["dev"]


def test_on_a_terminal_the_server_explains_itself(tmp_path: Path) -> None:
    """And Ctrl-C ends it at once, although its standard input is still open."""
    ours, theirs = pty.openpty()
    try:
        with started("mcp", env=environment(tmp_path), stdin=theirs) as process:
            assert process.stderr is not None
            said = process.stderr.readline() + process.stderr.readline()
            # Python's own handler is in place until the server begins: either way it ends.
            eventually_sync(lambda: _catches_no_interrupt(process.pid))
            process.send_signal(2)
            assert -2 == process.wait(60)
        assert b"claude mcp add handoffd -- handoffd mcp" in said
    finally:
        os.close(ours)
        os.close(theirs)


def _catches_no_interrupt(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:")).split()[1]
    return not int(caught, 16) & (1 << 1)
