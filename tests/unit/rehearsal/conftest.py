"""Projects to rehearse on."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.rehearsal import Rehearsal

from handoffd.rehearsal import sample


@pytest.fixture(autouse=True)
def _plain_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the projects' pytest without our plugins, which takes several times as long."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.fixture
def shop(tmp_path: Path) -> Rehearsal:
    """A fresh copy of the sample project, not under git."""
    return Rehearsal(sample.create(tmp_path / "shop", git=False))


@pytest.fixture
def foreign(tmp_path: Path) -> Rehearsal:
    """A project in an unsupported language, with documents and code of its own."""
    root = tmp_path / "foreign"
    for name, text in {
        "Gemfile": "source 'https://rubygems.org'\n",
        "main.rb": "puts 1\n",
        "docs/sdd.md": "# Design\n\nBy hand.\n",
        "docs/api/openapi.yaml": "openapi: 3.1.0\npaths: {}\n",
        "PROJECT_MEMORY.md": "# Memory\n\n## NOW\n- US-009 Sort the list\n\n## DONE\n- US-0099 Another\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return Rehearsal(root)
