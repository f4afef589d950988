"""Where the program begins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.commands import environment, program
from tests.support.hooking import event, hook


@pytest.mark.parametrize("words", [(), ("--config", "/nowhere/handoffd.yaml")])
def test_a_hook_is_answered_before_anything_is_imported(alone: Path, words: tuple[str, ...]) -> None:
    """Click alone takes as long as all the rest."""
    code = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules)); "
        "from handoffd.cli.start import main; main()"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, *words, "hook"],
        input=event(alone), env=environment(alone), capture_output=True, timeout=60, check=True,
    )  # fmt: skip

    assert b"handoffd.entrance.hook" in said.stdout
    assert b"click" not in said.stdout


def test_everything_else_is_the_command_line(alone: Path) -> None:
    """Also with the name of a settings file before it."""
    assert 0 == program("--version", env=environment(alone)).code
    assert 2 == program("frob", env=environment(alone)).code
    assert "Usage: handoffd hook" in program("hook", "--help", env=environment(alone)).out


def test_settings_by_the_environment_are_heard(alone: Path) -> None:
    """They are looked at only where there is a project."""
    said = hook(event(alone), environment(alone, HANDOFFD_CONFIG="/nowhere/handoffd.yaml"))

    assert (0, "") == (said.code, said.err)
