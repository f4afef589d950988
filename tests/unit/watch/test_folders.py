"""Where a project is watched, and its signature, read from real folders."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from handoffd.watch.folders import NAMES, NOWHERE, differ, folder_identity, identity_in, place_of, signature


def _project(path: Path) -> Path:
    (path / ".ai").mkdir(parents=True)
    return path


def test_the_ai_folder_is_watched_or_else_the_root(tmp_path: Path) -> None:
    """With the folder's identity, if it exists; a project that is missing cannot be watched."""
    root = _project(tmp_path / "a")

    with_folder, without, missing = map(place_of, (str(root), str(tmp_path), str(tmp_path / "gone")))

    assert (str(root / ".ai"), None) == (with_folder.folder, with_folder.why_not)
    assert folder_identity(str(root / ".ai")) == with_folder.ai
    assert (str(tmp_path), NOWHERE) == (without.folder, without.ai)
    assert "the project's folder is missing" == missing.why_not


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

    assert all(differ(before, after) for before, after in pairwise(seen))


def test_a_signature_holds_the_folder_and_the_known_files(tmp_path: Path) -> None:
    """An agent's other files in `.ai` do not change it; without a folder it has none."""
    root = _project(tmp_path / "a")
    for name in NAMES:
        (root / ".ai" / name).touch()
    before = signature(str(root))
    (root / ".ai" / "notes.txt").write_text("x", encoding="utf-8")

    assert not differ(before, signature(str(root)))
    assert folder_identity(str(root / ".ai")) == identity_in(before)
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
    assert differ(first, signature(str(root)))


@pytest.mark.parametrize("year_s", [-(2**31), 2**34 - 2**31 - 1])
def test_any_time_of_a_file_system_is_accepted(tmp_path: Path, year_s: int) -> None:
    """Before 1970, and beyond what nanoseconds in a signed number reach."""
    root = _project(tmp_path / "a")
    file = root / ".ai" / "HANDOFF.md"
    file.touch()
    before = signature(str(root))
    os.utime(file, (year_s, year_s))

    assert differ(before, signature(str(root)))


LATER_NS = 2**62
"""Long after any folder was changed."""


def test_missing_names_are_looked_for_when_the_folder_has_changed(tmp_path: Path) -> None:
    """As it does when a name comes, goes or is replaced; a write to a file that stays is seen as well."""
    root = _project(tmp_path / "a")
    ai = root / ".ai"
    before = signature(str(root), now_ns=LATER_NS)
    changes: list[Callable[[], object]] = [
        lambda: (ai / "HANDOFF.md").write_text("x", encoding="utf-8"),
        lambda: (ai / "HANDOFF.md").write_text("xy", encoding="utf-8"),
        lambda: os.link(ai / "HANDOFF.md", ai / "STATE.json"),
        (ai / "HANDOFF.md").unlink,
        lambda: os.rename(ai / "STATE.json", ai / "step-rules.yaml"),
    ]
    for change in changes:
        change()
        now = signature(str(root), before, now_ns=LATER_NS)
        assert signature(str(root), now_ns=LATER_NS) == now
        assert differ(before, now)
        before = now


def test_a_folder_that_was_changed_just_now_is_not_relied_upon(tmp_path: Path) -> None:
    """It may change again within one step of its clock."""
    root = _project(tmp_path / "a")
    changed_ns = (root / ".ai").stat().st_ctime_ns

    recent = signature(str(root), now_ns=changed_ns + 1_000_000_000)
    long_ago = signature(str(root), now_ns=changed_ns + 3_000_000_000)

    assert recent != long_ago
    assert not differ(recent, long_ago)
    # As if the clock had stopped: the name is new and the folder unchanged.
    (root / ".ai" / "HANDOFF.md").touch()
    assert differ(recent, signature(str(root), recent, now_ns=LATER_NS))


def test_an_unchanged_folder_is_not_searched(tmp_path: Path) -> None:
    """Only the files that were in it are read."""
    root = _project(tmp_path / "a")
    (root / ".ai" / "HANDOFF.md").touch()
    complete = signature(str(root), now_ns=LATER_NS)
    nothing_known = complete[:-33]

    assert nothing_known == signature(str(root), nothing_known, now_ns=LATER_NS)
    assert complete == signature(str(root), complete, now_ns=LATER_NS)
