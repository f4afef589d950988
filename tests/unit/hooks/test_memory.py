"""What became of a hand-off that nobody waited for."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from handoffd.hooks.project import Standing
from handoffd.hooks.tally import remember, remembered, tally_path

STATE: dict[str, object] = {"status": "running", "dispatched_at": "2026-01-01T10:00:00Z", "step": "bdd"}


def test_it_is_known_for_that_very_handoff(tmp_path: Path) -> None:
    """Of another one, another attempt or another status nothing is."""
    standing = Standing(str(tmp_path), STATE, 5)
    assert remembered(str(tmp_path), standing) is None
    remember(str(tmp_path), standing, {"type": "stale"})

    assert {"type": "stale"} == remembered(str(tmp_path), standing)
    assert remembered(str(tmp_path), Standing(str(tmp_path), STATE, 6)) is None
    for other in ({"status": "failing"}, {"dispatched_at": "2026-01-01T11:00:00Z"}, {"step": "impl"}):
        assert remembered(str(tmp_path), Standing(str(tmp_path), {**STATE, **other}, 5)) is None


def test_it_is_for_nobody_else_to_read(tmp_path: Path) -> None:
    """It may quote what a project's tools printed."""
    remember(str(tmp_path), Standing(str(tmp_path), STATE, 5), {})
    (file,) = tmp_path.iterdir()

    assert 0o600 == stat.S_IMODE(file.stat().st_mode)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"of": []}', "[" * 50_000])
def test_a_torn_file_is_nothing(tmp_path: Path, text: str) -> None:
    """Then it is tried once more."""
    Path(tally_path(str(tmp_path), str(tmp_path), "last")).write_text(text, encoding="utf-8")

    assert remembered(str(tmp_path), Standing(str(tmp_path), STATE, 5)) is None
