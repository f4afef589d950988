"""Removing what is left of runs."""

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
    """And nothing else that lies there."""
    for name in (ID, f"{ID}.tests", OTHER, "notes", f".gone-{ID}", "20260101T000000-0123ABCD"):
        (tmp_path / name).mkdir()

    assert {ID: [tmp_path / ID, tmp_path / f"{ID}.tests"], OTHER: [tmp_path / OTHER]} == run_folders(tmp_path)
    assert {} == run_folders(tmp_path / "missing")


def test_a_run_is_gone_with_its_checks(tmp_path: Path) -> None:
    """A link in it is not followed; one that is gone already is no fault."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "thesis").touch()
    folders = [run_folder(tmp_path / "runs"), run_folder(tmp_path / "runs", f"{ID}.tests")]
    (folders[0] / "link").symlink_to(elsewhere)

    dispose([*folders, tmp_path / "runs/missing"])

    assert [] == list((tmp_path / "runs").iterdir())
    assert (elsewhere / "thesis").exists()


def test_what_a_crash_has_left_goes_the_next_time(tmp_path: Path) -> None:
    """It is no run any more, and stands in nobody's way."""
    half = run_folder(tmp_path, f".gone-{ID}")
    run_folder(tmp_path)
    assert {ID: [tmp_path / ID]} == run_folders(tmp_path)

    dispose([tmp_path / ID])
    run_folder(tmp_path, f".gone-{OTHER}")
    dispose_remainders(tmp_path)

    assert not half.exists()
    assert [] == list(tmp_path.iterdir())


def test_a_folder_is_weighed_with_all_that_is_in_it(tmp_path: Path) -> None:
    """As the disk sees it."""
    folder = run_folder(tmp_path)

    assert bytes_below(folder) >= 6000
    assert 0 == bytes_below(tmp_path / "missing")


def test_copies_are_found_by_name(tmp_path: Path) -> None:
    """With what is in their folder that is not ours."""
    copy(tmp_path)
    (copy(tmp_path, OTHER) / "my notes.txt").touch()
    (tmp_path / RUNS / ".gitignore").write_text("*")
    (tmp_path / RUNS / "20260103T000000-0123abcd").symlink_to(tmp_path)
    (tmp_path / RUNS / "keep").mkdir()

    first, second = copies(tmp_path, RUNS, tmp_path / "runs")

    assert (ID, ()) == (first.id, first.strangers)
    assert (OTHER, ("my notes.txt",)) == (second.id, second.strangers)
    assert first.bytes > 0


def test_a_project_without_copies_has_none(tmp_path: Path) -> None:
    """One that is gone is an error."""
    assert [] == list(copies(tmp_path, RUNS, tmp_path / "runs"))
    with pytest.raises(StoreError):
        list(copies(tmp_path / "gone", RUNS, tmp_path / "runs"))


@pytest.mark.parametrize(
    ("stranger", "kind"),
    [
        ("notes.txt", "file"), ("review.log", "file"), ("output.log.gz", "file"), ("output.log", "folder"),
        ("output.log", "link"), ("output.log", "pipe"),
    ],
)  # fmt: skip
def test_what_is_not_ours_is_neither_removed_nor_hidden(tmp_path: Path, stranger: str, kind: str) -> None:
    """A link called as ours is none of ours, either."""
    folder = copy(tmp_path)
    (folder / stranger).unlink(missing_ok=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("thesis")
    match kind:
        case "folder":
            (folder / stranger).mkdir()
        case "link":
            (folder / stranger).symlink_to(elsewhere)
        case "pipe":
            os.mkfifo(folder / stranger)
        case _:
            (folder / stranger).touch()

    recorded(tmp_path)

    (found,) = copies(tmp_path, RUNS, tmp_path / "runs")
    assert (stranger,) == found.strangers
    assert not dispose_copy(tmp_path, RUNS, ID, tmp_path / "runs")

    assert [stranger] == os.listdir(folder)
    assert "thesis" == elsewhere.read_text()


@pytest.mark.parametrize("name", ["prompt.md", "output.log"])
def test_a_copy_that_somebody_has_written_into_stays(tmp_path: Path, name: str) -> None:
    """Whether it is seen at once, or only when it is about to go."""
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
def test_a_copy_stays_of_which_nobody_can_tell(tmp_path: Path, lost: str) -> None:
    """Its run's records are gone: somebody may have written into it, or not."""
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
    """Twice is no fault; other runs stay."""
    copy(tmp_path)
    copy(tmp_path, OTHER)
    recorded(tmp_path)

    assert dispose_copy(tmp_path, RUNS, ID, tmp_path / "runs")
    assert dispose_copy(tmp_path, RUNS, ID, tmp_path / "runs")

    assert [OTHER] == os.listdir(tmp_path / RUNS)


def test_no_link_on_the_way_is_followed(tmp_path: Path) -> None:
    """An agent may have put one there: what it leads to is not ours to clean."""
    root, outside = tmp_path / "shop", tmp_path / "outside"
    (root / ".ai").mkdir(parents=True)
    copy(outside)
    (root / RUNS).symlink_to(outside / RUNS)

    with pytest.raises(StoreError):
        dispose_copy(root, RUNS, ID, tmp_path / "runs")
    with pytest.raises(StoreError):
        list(copies(root, RUNS, tmp_path / "runs"))

    assert 4 == len(os.listdir(outside / RUNS / ID))
