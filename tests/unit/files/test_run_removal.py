"""Removing the remains of runs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from handoffd.errors import StoreError
from handoffd.files.run_removal import (
    bytes_below,
    copies,
    dispose,
    dispose_copy,
    dispose_remainders,
    run_folders,
)

ID = "20260101T000000-0123abcd"
OTHER = "20260102T000000-0123abcd"
RUNS = ".ai/runs"


def run_folder(runs_dir: Path, name: str = ID) -> Path:
    """Return the records of a run, as a shim leaves them."""
    folder = runs_dir / name
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text("{}" * 3000)
    (folder / "claim").symlink_to("123 456 boot")
    return folder


def copy(root: Path, name: str = ID) -> Path:
    """Return a run's copies in a project."""
    folder = root / RUNS / name
    folder.mkdir(parents=True)
    for file in ("prompt.md", "output.log", ".output.log.4711", f".prompt.md.{0:016x}.tmp"):
        (folder / file).write_text("x")
    return folder


def recorded(base: Path) -> Path:
    """Return the records of the run that `copy` is of, as it ended."""
    folder = run_folder(base / "runs")
    (folder / "prompt.md").write_text("x")
    (folder / "exit.json").touch()
    return folder


def test_runs_are_found_with_their_checks(tmp_path: Path) -> None:
    """And nothing else in that folder."""
    for name in (ID, f"{ID}.tests", OTHER, "notes", f".gone-{ID}", "20260101T000000-0123ABCD"):
        (tmp_path / name).mkdir()

    assert {ID: [tmp_path / ID, tmp_path / f"{ID}.tests"], OTHER: [tmp_path / OTHER]} == run_folders(tmp_path)
    assert {} == run_folders(tmp_path / "missing")


def test_a_run_is_removed_with_its_checks(tmp_path: Path) -> None:
    """A link in it is not followed, a missing folder is not a fault, and a crashed removal is finished."""
    elsewhere, runs = tmp_path / "elsewhere", tmp_path / "runs"
    elsewhere.mkdir()
    (elsewhere / "thesis").touch()
    folders = [run_folder(runs), run_folder(runs, f"{ID}.tests")]
    (folders[0] / "link").symlink_to(elsewhere)
    run_folder(runs, f".gone-{ID}")
    run_folder(runs, f".gone-{OTHER}")

    dispose([*folders, runs / "missing"])
    assert [f".gone-{OTHER}"] == os.listdir(runs)
    dispose_remainders(runs)

    assert [] == os.listdir(runs)
    assert (elsewhere / "thesis").exists()


def test_a_folder_is_weighed_with_all_its_files(tmp_path: Path) -> None:
    """In blocks of the disk."""
    assert bytes_below(run_folder(tmp_path)) >= 6000
    assert 0 == bytes_below(tmp_path / "missing")


def test_copies_are_found_by_name(tmp_path: Path) -> None:
    """With the files in their folder that are not ours; a project without copies has none."""
    assert [] == list(copies(tmp_path, RUNS, tmp_path / "runs"))
    copy(tmp_path)
    (copy(tmp_path, OTHER) / "my notes.txt").touch()
    (tmp_path / RUNS / ".gitignore").write_text("*")
    (tmp_path / RUNS / "20260103T000000-0123abcd").symlink_to(tmp_path)
    (tmp_path / RUNS / "keep").mkdir()

    first, second = copies(tmp_path, RUNS, tmp_path / "runs")

    assert (ID, ()) == (first.id, first.strangers)
    assert (OTHER, ("my notes.txt",)) == (second.id, second.strangers)
    assert first.bytes > 0


@pytest.mark.parametrize(
    ("stranger", "kind"),
    [
        ("notes.txt", "file"), ("review.log", "file"), ("output.log.gz", "file"), ("output.log", "folder"),
        ("output.log", "link"), ("output.log", "pipe"),
    ],
)  # fmt: skip
def test_other_files_are_neither_removed_nor_hidden(tmp_path: Path, stranger: str, kind: str) -> None:
    """Nor is a link, a folder or a pipe with one of our names."""
    folder, elsewhere = copy(tmp_path), tmp_path / "elsewhere"
    recorded(tmp_path)
    elsewhere.write_text("thesis")
    path = folder / stranger
    path.unlink(missing_ok=True)
    makers = {"folder": path.mkdir, "link": lambda: path.symlink_to(elsewhere), "file": path.touch}
    makers.get(kind, lambda: os.mkfifo(path))()

    (found,) = copies(tmp_path, RUNS, tmp_path / "runs")
    assert (stranger,) == found.strangers
    assert not dispose_copy(tmp_path, RUNS, ID, tmp_path / "runs")

    assert [stranger] == os.listdir(folder)
    assert "thesis" == elsewhere.read_text()


@pytest.mark.parametrize("name", ["prompt.md", "output.log"])
def test_a_copy_that_was_written_to_stays(tmp_path: Path, name: str) -> None:
    """Whether the edit is seen before the removal or during it."""
    folder, records = copy(tmp_path), recorded(tmp_path)
    (found,) = copies(tmp_path, RUNS, tmp_path / "runs")
    assert "ours" == found.content

    (folder / name).write_text("y")  # of the same length
    later = (records / "exit.json").stat().st_mtime + 86_400
    os.utime(folder / name, (later, later))

    (found,) = copies(tmp_path, RUNS, tmp_path / "runs")
    assert ("edited", ()) == (found.content, found.strangers)
    assert not dispose_copy(tmp_path, RUNS, ID, tmp_path / "runs")
    assert (4, "y") == (len(os.listdir(folder)), (folder / name).read_text())


@pytest.mark.parametrize("lost", ["all", "prompt.md"])
def test_a_copy_without_records_stays(tmp_path: Path, lost: str) -> None:
    """It may have been written to."""
    folder, records = copy(tmp_path), recorded(tmp_path)
    if lost == "all":
        shutil.rmtree(records)
    else:
        (records / lost).unlink()

    (found,) = copies(tmp_path, RUNS, tmp_path / "runs")

    assert "unverifiable" == found.content
    assert not dispose_copy(tmp_path, RUNS, ID, tmp_path / "runs")
    assert 4 == len(os.listdir(folder))


def test_copies_go_with_their_folder(tmp_path: Path) -> None:
    """Twice does no harm; other runs stay."""
    copy(tmp_path)
    copy(tmp_path, OTHER)
    recorded(tmp_path)

    assert dispose_copy(tmp_path, RUNS, ID, tmp_path / "runs")
    assert dispose_copy(tmp_path, RUNS, ID, tmp_path / "runs")

    assert [OTHER] == os.listdir(tmp_path / RUNS)


def test_no_link_on_the_way_is_followed(tmp_path: Path) -> None:
    """An agent may have put one there; it is an error, as a project that is gone is."""
    root, outside = tmp_path / "shop", tmp_path / "outside"
    (root / ".ai").mkdir(parents=True)
    copy(outside)
    (root / RUNS).symlink_to(outside / RUNS)

    with pytest.raises(StoreError):
        dispose_copy(root, RUNS, ID, tmp_path / "runs")
    for project in (root, tmp_path / "gone"):
        with pytest.raises(StoreError):
            list(copies(project, RUNS, tmp_path / "runs"))

    assert 4 == len(os.listdir(outside / RUNS / ID))
