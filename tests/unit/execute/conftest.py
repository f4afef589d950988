"""What tests of real runs share: a folder whose processes are ended afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.runs import end_processes


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A folder for one test, with no process left in it afterwards."""
    yield tmp_path
    end_processes(tmp_path)
