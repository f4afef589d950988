"""`handoffd hooks`: ours in Claude Code's settings."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.commands import Commands
from tests.support.hooking import event, standing

from handoffd.cli.hooks import own_command
from handoffd.hooks.claude_settings import is_ours
from handoffd.hooks.event import EVENTS


@pytest.fixture
def root(alone: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, and we are in a folder of it."""
    project = standing(alone / "my shop")
    (project / "src").mkdir()
    monkeypatch.chdir(project / "src")
    return project


def _settings(root: Path, name: str = "settings.json") -> Path:
    return root / ".claude" / name


def test_there_and_back(root: Path, handoffd: Commands) -> None:
    """In the project we are in; said once each, and harmless when repeated."""
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
def test_elsewhere(root: Path, alone: Path, handoffd: Commands, words: tuple[str, ...], file: str) -> None:
    """For every project, for nobody else, or in another one."""
    said = handoffd("hooks", "install", *words, "--event", "Stop", "--event", "SessionEnd", "--json").json

    assert (str(alone / file), True) == (said["file"], said["changed"])
    assert ["Stop", "SessionEnd"] == said["events"]
    told = handoffd("hooks", "status", *words, "--json").json["files"]
    assert [(str(alone / file), ["Stop", "SessionEnd"])] == [(one["file"], one["events"]) for one in told]


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


def test_outside_of_a_project_one_is_to_be_named(
    alone: Path, handoffd: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written just anywhere."""
    monkeypatch.chdir(alone)
    missing, both = handoffd("hooks", "install"), handoffd("hooks", "install", "--user", "--project", ".")

    assert (4, 2) == (missing.code, both.code)
    assert "next: handoffd hooks install --project PATH" in missing.err
    assert 4 == handoffd("hooks", "install", "--project", "nowhere").code
    assert 0 == handoffd("hooks", "status").code


def test_invalid_settings_are_said_and_left(root: Path, handoffd: Commands) -> None:
    """With line and column."""
    _settings(root).parent.mkdir()
    _settings(root).write_text('{\n  "a": 1,\n}', encoding="utf-8")
    said = handoffd("hooks", "install")

    assert 1 == said.code
    assert f"{_settings(root)}:3: column 1: this is not JSON" in said.err
    assert '{\n  "a": 1,\n}' == _settings(root).read_text(encoding="utf-8")
