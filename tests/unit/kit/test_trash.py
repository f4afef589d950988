"""`trash` and `restore`: nothing is deleted, overwritten, or reached through a link."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kit.boards import answer, given

from handoffd.errors import InvalidFile, NotFound, Refused
from handoffd.kit.given import Done
from handoffd.kit.trash import restore, trash

BATCH = ".ai/trash/clean-7k2q"


def _entry(number: int, target: str, risk: str = "low", kind: str = "path") -> dict[str, Any]:
    return {
        "id": f"E{number}",
        "kind": kind,
        "target": target,
        "category": "debug",
        "risk": risk,
        "reason": "old",
    }


def _manifest(root: Path, *entries: dict[str, Any]) -> None:
    (root / "manifest.json").write_text(json.dumps({"entries": list(entries)}))


def _trash(root: Path, choice: str = "chosen", text: str = "") -> Done:
    answers = answer(choice, text)
    return trash(given(root, words={"manifest": "manifest.json"}, answers=answers, flow="clean-7k2q"))


def _restore(root: Path, ids: str | None = None, batch: str = "clean-7k2q") -> Done:
    return restore(given(root, words={"batch": batch, "id": ids}))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a project with a log, a folder and a source."""
    (tmp_path / "logs" / "old").mkdir(parents=True)
    for name in ("logs/a.log", "logs/old/b.log", "main.py"):
        (tmp_path / name).write_text(name)
    return tmp_path


def test_what_was_chosen_is_moved_and_can_be_put_back(root: Path) -> None:
    """Files and folders; nothing else is touched."""
    _manifest(root, _entry(1, "logs/a.log"), _entry(2, "logs/old"), _entry(3, "main.py"))

    done = _trash(root, text="E1, E2")

    assert ("pass", {"moved": 2, "left": 0}) == (done.outcome, done.fields)
    assert not (root / "logs/a.log").exists()
    assert not (root / "logs/old").exists()
    assert (root / "main.py").exists()
    assert "logs/old/b.log" == (root / BATCH / "files/logs/old/b.log").read_text()

    back = _restore(root)
    assert ("pass", {"restored": 2, "left": 0}) == (back.outcome, back.fields)
    assert "logs/a.log" == (root / "logs/a.log").read_text()
    assert (root / "logs/old/b.log").exists()


def test_low_risk_takes_the_entries_of_low_risk_alone(root: Path) -> None:
    """A branch has no file to move."""
    _manifest(root, _entry(1, "logs/a.log"), _entry(2, "logs/old", "medium"), _entry(3, "x", kind="branch"))

    assert {"moved": 1, "left": 0} == _trash(root, "low_risk").fields
    assert (root / "logs/old").exists()


def test_nothing_goes_that_nobody_chose(root: Path) -> None:
    """Without an answer, and with an id that the manifest does not have."""
    _manifest(root, _entry(1, "logs/a.log"))

    with pytest.raises(Refused, match="no person chose"):
        _trash(root, "none_of_it")
    with pytest.raises(InvalidFile, match=r"there is no entry 'E9' \(allowed: E1\)"):
        _trash(root, text="E9")
    assert (root / "logs/a.log").exists()


def test_branches_and_notes_are_left_to_the_person(root: Path) -> None:
    """With the command to type; the outcome says that not all is done."""
    _manifest(root, _entry(1, "old-work", kind="branch"), _entry(2, "main.py:3", kind="note"))

    done = _trash(root, text="E1 E2")

    assert "partial" == done.outcome
    assert "git branch -d old-work" in done.summary
    assert (root / "main.py").exists()


@pytest.mark.parametrize(
    "target", [".git/config", ".ai/STATE.json", ".AI/x", "../other", "/etc/hosts", "a/../../b"]
)
def test_what_is_not_the_projects_to_lose_is_refused(root: Path, target: str) -> None:
    """Before anything is moved."""
    _manifest(root, _entry(1, "logs/a.log"), _entry(2, target))

    with pytest.raises(InvalidFile, match=r"entries\[1\]\.target"):
        _trash(root, text="E1")
    assert (root / "logs/a.log").exists()


def test_nothing_is_moved_out_of_a_folder_that_is_a_link(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The link itself may go, not what it leads to."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "file").write_text("kept")
    (root / "link").symlink_to(elsewhere)
    _manifest(root, _entry(1, "link/file"), _entry(2, "link"))

    assert ("partial", {"moved": 0, "left": 1}) == (
        _trash(root, text="E1").outcome,
        _trash(root, text="E1").fields,
    )
    assert {"moved": 1, "left": 0} == _trash(root, text="E2").fields
    assert "kept" == (elsewhere / "file").read_text()
    assert not (root / "link").is_symlink()


def test_a_second_run_finds_that_all_is_done(root: Path) -> None:
    """As after a crash behind the last move."""
    _manifest(root, _entry(1, "logs/a.log"))
    _trash(root, text="E1")

    assert ("pass", {"moved": 0, "left": 0}) == (
        _trash(root, text="E1").outcome,
        _trash(root, text="E1").fields,
    )
    assert {"restored": 1, "left": 0} == _restore(root).fields


def test_a_manifest_that_was_written_before_a_crash_restores_what_was_moved(root: Path) -> None:
    """An entry that never left its place is none to restore."""
    _manifest(root, _entry(1, "logs/a.log"), _entry(2, "main.py"))
    _trash(root, text="E1 E2")
    (root / BATCH / "files/main.py").rename(root / "main.py")

    assert {"restored": 1, "left": 0} == _restore(root).fields


def test_what_is_in_the_way_stays(root: Path) -> None:
    """Something new at the old place is not overwritten, and the old one stays in the trash."""
    _manifest(root, _entry(1, "logs/a.log"))
    _trash(root, text="E1")
    (root / "logs/a.log").write_text("new")

    done = _restore(root)

    assert ("partial", "new") == (done.outcome, (root / "logs/a.log").read_text())
    assert (root / BATCH / "files/logs/a.log").exists()


def test_one_entry_is_put_back_by_its_id(root: Path) -> None:
    """The others stay in the trash."""
    _manifest(root, _entry(1, "logs/a.log"), _entry(2, "main.py"))
    _trash(root, text="E1 E2")

    assert {"restored": 1, "left": 0} == _restore(root, "E2").fields
    assert not (root / "logs/a.log").exists()


def test_a_batch_that_is_not_there_is_not_found(root: Path) -> None:
    """And a name that is none is refused."""
    with pytest.raises(NotFound, match=r"there is no \.ai/trash/other"):
        _restore(root, batch="other")
    with pytest.raises(Refused, match="cannot name a batch"):
        _restore(root, batch="../..")
