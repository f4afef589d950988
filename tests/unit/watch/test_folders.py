"""What of a project can be watched, read from real folders."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

from handoffd.watch.folders import folder_identity, place_of, signature


def _project(path: Path) -> Path:
    (path / ".ai").mkdir(parents=True)
    return path


def test_the_ai_folder_is_the_place_to_watch(tmp_path: Path) -> None:
    """With an `.ai` folder, that folder is watched, and its identity is known."""
    root = _project(tmp_path / "a")

    place = place_of(str(root))

    assert str(root / ".ai") == place.folder
    assert folder_identity(str(root / ".ai")) == place.ai
    assert place.why_not is None


def test_without_an_ai_folder_the_root_is_watched(tmp_path: Path) -> None:
    """A missing `.ai` is waited for in the root itself."""
    place = place_of(str(tmp_path))

    assert (str(tmp_path), None) == (place.folder, place.ai)


def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    """An `.ai` that leads out of the project is neither watched nor read."""
    elsewhere = _project(tmp_path / "elsewhere")
    (elsewhere / ".ai" / "HANDOFF.md").write_text("not yours", encoding="utf-8")
    root = tmp_path / "root"
    root.mkdir()
    (root / ".ai").symlink_to(elsewhere / ".ai")

    place = place_of(str(root))

    assert (None, ".ai is not a folder") == (place.folder, place.why_not)
    assert (None, ()) == signature(str(root))


def test_a_missing_project_is_named_as_such(tmp_path: Path) -> None:
    """A root that is not there cannot be watched, and the reason says so."""
    assert "the project's folder is missing" == place_of(str(tmp_path / "gone")).why_not


def test_a_name_that_is_no_utf8_is_an_obstacle_only_to_the_wary(tmp_path: Path) -> None:
    """A file that breaks watchers only when touched does not cost an untried project its watch."""
    root = _project(tmp_path / "a")
    Path(os.fsdecode(os.fsencode(root / ".ai") + b"/\xff")).touch()

    assert place_of(str(root)).why_not is None
    assert "not UTF-8" in (place_of(str(root), wary=True).why_not or "")


def test_a_path_that_is_no_utf8_is_an_obstacle(tmp_path: Path) -> None:
    """A project whose own path cannot be given to the watcher is told so."""
    root = _project(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")))

    assert "its path is not UTF-8" == place_of(str(root)).why_not


def test_every_way_of_writing_changes_the_signature(tmp_path: Path) -> None:
    """Appending, replacing, deleting, recreating and setting the clock back are all news."""
    root = _project(tmp_path / "a")
    file = root / ".ai" / "HANDOFF.md"
    seen = [signature(str(root))]

    def look() -> None:
        seen.append(signature(str(root)))

    file.write_text("one", encoding="utf-8")
    look()
    file.write_text("three", encoding="utf-8")
    look()
    other = root / ".ai" / "temp"
    other.write_text("three", encoding="utf-8")
    times = file.stat()
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(file)
    look()
    file.unlink()
    look()
    (root / ".ai").rename(root / "old")
    look()

    assert all(before != after for before, after in pairwise(seen))


def test_files_we_do_not_know_are_not_news(tmp_path: Path) -> None:
    """Whatever else an agent keeps in `.ai` does not change the signature."""
    root = _project(tmp_path / "a")
    before = signature(str(root))
    (root / ".ai" / "notes.txt").write_text("x", encoding="utf-8")

    assert before == signature(str(root))
