"""`handoffd hook`, found by the whole command line."""

from __future__ import annotations

from pathlib import Path

from tests.support.commands import Commands


def test_the_help_says_what_its_exit_codes_mean(alone: Path, handoffd: Commands) -> None:
    """2 is no wrong usage here."""
    said = handoffd("hook", "--help")

    assert 0 == said.code
    assert "Exit codes: 0 the agent may stop, 2 it must go on" in " ".join(said.out.split())
