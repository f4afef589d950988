"""Which project an agent works in, and how that stands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.hooking import standing

from handoffd.hooks.project import MAX_BYTES, find_root, look


def test_the_nearest_project_upwards_is_found(tmp_path: Path) -> None:
    """Also from a folder that is gone by now, and through a link."""
    outer = standing(tmp_path / "outer")
    inner = standing(outer / "packages/inner")
    (inner / "src").mkdir()
    (tmp_path / "link").symlink_to(inner / "src")

    assert str(inner) == find_root(str(inner / "src"), "/home/eve")
    assert str(inner) == find_root(str(inner / "src/gone/deeper"), "/home/eve")
    assert str(inner) == find_root(str(tmp_path / "link"), "/home/eve")
    assert str(outer) == find_root(str(outer / "packages"), "/home/eve")
    assert find_root(str(tmp_path), "/home/eve") is None


def test_the_search_ends_at_home(tmp_path: Path) -> None:
    """What lies above it is somebody else's; a project that is the home itself is found."""
    standing(tmp_path)
    home = tmp_path / "home"
    (home / "code").mkdir(parents=True)

    assert find_root(str(home / "code"), str(home)) is None
    assert str(tmp_path) == find_root(str(tmp_path / "home"), str(tmp_path))


@pytest.mark.skipif(not os.path.ismount("/proc"), reason="needs a second file system")
def test_the_search_ends_at_the_file_system() -> None:
    """A folder on another one is no part of a project here."""
    assert find_root("/proc/self", "/home/eve") is None


def test_how_it_stands_is_read(tmp_path: Path) -> None:
    """With the time of the latest of both files of a hand-off."""
    root = standing(tmp_path)
    nothing = look(str(root))
    (root / ".ai/HANDOFF.md").write_text("x", encoding="utf-8")
    (root / ".ai/executor-result").write_text("x", encoding="utf-8")
    os.utime(root / ".ai/HANDOFF.md", ns=(5, 5))
    os.utime(root / ".ai/executor-result", ns=(7, 7))
    found = look(str(root))

    assert nothing is not None
    assert found is not None
    assert ("running", None) == (nothing.status, nothing.written_ns)
    assert ("bdd", 7) == (found.state["step"], found.written_ns)


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "[" * 100_000, " " * (MAX_BYTES + 1) + "{}"])
def test_a_state_that_cannot_be_read_is_nothing(tmp_path: Path, text: str) -> None:
    """It is for the daemon to complain about it."""
    standing(tmp_path)
    (tmp_path / ".ai/STATE.json").write_text(text, encoding="utf-8")

    assert look(str(tmp_path)) is None


def test_a_status_that_is_no_text_is_empty(tmp_path: Path) -> None:
    """Whatever a stranger wrote there."""
    found = look(str(standing(tmp_path, status=["running"])))

    assert found is not None
    assert "" == found.status


def test_nothing_is_read_through_a_link_or_from_a_pipe(tmp_path: Path) -> None:
    """A pipe would keep the agent waiting for ever."""
    real = standing(tmp_path / "real")
    linked, piped, other = tmp_path / "linked", tmp_path / "piped", tmp_path / "other"
    for root in (linked, piped, other):
        root.mkdir()
    (linked / ".ai").symlink_to(real / ".ai")
    (piped / ".ai").mkdir()
    os.mkfifo(piped / ".ai/STATE.json")
    (other / ".ai").mkdir()
    (other / ".ai/STATE.json").symlink_to(real / ".ai/STATE.json")

    assert [None, None, None] == [look(str(root)) for root in (linked, piped, other)]
    assert [None, None] == [find_root(str(root), "/home/eve") for root in (piped, other)]
