"""What of a project can be watched, read from real folders."""

from __future__ import annotations

import os
import resource
from itertools import pairwise
from pathlib import Path

import pytest

from handoffd.watch.folders import NAMES, NOWHERE, folder_identity, identity_in, place_of, signature


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

    assert (str(tmp_path), NOWHERE) == (place.folder, place.ai)


def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    """An `.ai` that leads out of the project is neither watched nor read."""
    elsewhere = _project(tmp_path / "elsewhere")
    (elsewhere / ".ai" / "HANDOFF.md").write_text("not yours", encoding="utf-8")
    root = tmp_path / "root"
    root.mkdir()
    (root / ".ai").symlink_to(elsewhere / ".ai")

    place = place_of(str(root))

    assert (None, ".ai is not a folder") == (place.folder, place.why_not)
    assert signature(str(root)) == NOWHERE


def test_a_missing_project_is_named_as_such(tmp_path: Path) -> None:
    """A root that is not there cannot be watched, and the reason says so."""
    assert "the project's folder is missing" == place_of(str(tmp_path / "gone")).why_not


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


def test_a_signature_tells_the_folder_it_is_of(tmp_path: Path) -> None:
    """Whatever lies in it; and none where there is none."""
    root = _project(tmp_path / "a")
    for name in NAMES:
        (root / ".ai" / name).touch()

    assert folder_identity(str(root / ".ai")) == identity_in(signature(str(root)))
    assert identity_in(signature(str(tmp_path))) == NOWHERE


def test_which_file_it_is_is_part_of_the_signature(tmp_path: Path) -> None:
    """The same file under another name is news."""
    root = _project(tmp_path / "a")
    (root / ".ai" / NAMES[0]).touch()
    first = signature(str(root))
    os.link(root / ".ai" / NAMES[0], root / ".ai" / NAMES[1])
    (root / ".ai" / NAMES[0]).unlink()
    os.link(root / ".ai" / NAMES[1], root / ".ai" / NAMES[2])
    (root / ".ai" / NAMES[1]).unlink()

    assert len(first) == len(signature(str(root)))
    assert first != signature(str(root))


@pytest.mark.parametrize("year_s", [-(2**31), 2**34 - 2**31 - 1])
def test_any_time_that_a_file_system_keeps_is_borne(tmp_path: Path, year_s: int) -> None:
    """Before 1970, and beyond what nanoseconds in a signed number reach."""
    root = _project(tmp_path / "a")
    file = root / ".ai" / "HANDOFF.md"
    file.touch()
    before = signature(str(root))
    os.utime(file, (year_s, year_s))

    assert before != signature(str(root))


def test_without_a_free_descriptor_files_are_seen_all_the_same(tmp_path: Path) -> None:
    """A daemon at its limit does not take its projects for empty."""
    root = _project(tmp_path / "a")
    (root / ".ai" / "HANDOFF.md").write_text("x", encoding="utf-8")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    usual = signature(str(root))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        at_the_limit, missing = signature(str(root)), signature(str(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert (usual, NOWHERE) == (at_the_limit, missing)
