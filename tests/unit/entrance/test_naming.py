"""What a project is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd.entrance.naming import called


@pytest.mark.parametrize("word", ["shop", "shop-2"])
def test_a_word_that_is_no_path_is_a_name(word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon knows the projects by their names, too."""
    monkeypatch.chdir(tmp_path)

    assert word == called(word)


def test_a_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a folder here, the folder itself, and one at home."""
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    assert str(tmp_path / "shop") == called("shop") == called("./shop") == called("~/shop")
    assert str(tmp_path) == called(".")
