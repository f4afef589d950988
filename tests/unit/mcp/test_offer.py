"""What all tools share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from handoffd.mcp.tool import project_of


def test_a_word_is_a_name_wherever_the_server_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of whoever started it means nothing to who asks."""
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path)

    assert "shop" == project_of({"project": "shop"})
    assert "/srv/shop" == project_of({"project": "/srv/./shop/"})
    assert f"{os.path.expanduser('~')}/shop" == project_of({"project": "~/shop"})
    assert project_of({}) is None
