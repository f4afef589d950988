"""What the tests of commands share: a settings file and the current folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def configure(alone: Path) -> Callable[[str], str]:
    """Write the settings file, beside which no daemon runs; its path is returned."""

    def write(text: str) -> str:
        file = alone / "handoffd.yaml"
        file.write_text(text, encoding="utf-8")
        return str(file)

    return write


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
