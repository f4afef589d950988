"""What the tests of installations share."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.installing import Home, built_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is published, but for what it depends on."""
    return built_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A new person."""
    folder = tmp_path / "home"
    folder.mkdir()
    return Home(folder=folder)
