"""What is found wrong with a journal without deciding anything."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.recorded import SHOP, spoil, story, write

from handoffd.journal.database import Fault, gaps, integrity, projections, projects, references, restores

Question = Callable[[sqlite3.Connection], Iterable[Fault]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The journal of one story."""
    path = tmp_path / "journal.db"
    write(path, story())
    return path


def ask(path: Path, question: Question) -> list[tuple[str, int | None]]:
    """Return kinds and numbers of what is found."""
    with closing(sqlite3.connect(path)) as db:
        return [(fault.kind, fault.seq) for fault in question(db)]


def newest(path: Path) -> int:
    """Return the highest number."""
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("SELECT max(seq) FROM events").fetchone()[0])


@pytest.mark.parametrize("question", [integrity, references, gaps, projections, projects])
def test_a_sound_journal_has_no_fault(path: Path, question: Question) -> None:
    """As the daemon leaves it."""
    assert [] == ask(path, question)


def test_missing_events_are_found_wherever_they_are_missing(path: Path) -> None:
    """At the beginning, in the middle, several in a row, and at the end."""
    last = newest(path)

    spoil(path, f"DELETE FROM events WHERE seq IN (1, 5, 6, {last})")

    assert [("missing", 1), ("missing", 5), ("missing", last)] == ask(path, gaps)
    with closing(sqlite3.connect(path)) as db:
        assert "events 5 to 6 are missing" in [fault.message for fault in gaps(db)]


def test_what_a_restore_left_out_is_not_missing(path: Path) -> None:
    """Numbers go on above those of the journal that was replaced."""
    last = newest(path)
    note = json.dumps([{"at": "2026-01-31T22:15:09+00:00", "after": last, "next": last + 10}])

    spoil(path, f"UPDATE sqlite_sequence SET seq = {last + 9} WHERE name = 'events'")
    assert [("missing", last + 1)] == ask(path, gaps)

    spoil(path, "INSERT INTO meta VALUES ('restored', :note)", values={"note": note})
    assert [] == ask(path, gaps)
    with closing(sqlite3.connect(path)) as db:
        assert [last] == [one["after"] for one in restores(db)]


def test_rows_that_belong_to_nothing_are_found(path: Path) -> None:
    """Effects, tracks and dispatches of an event that is gone."""
    spoil(path, "DELETE FROM events WHERE seq = 3")

    assert {"reference"} == {kind for kind, _ in ask(path, references)}


def test_texts_of_state_that_no_event_made_are_found(path: Path) -> None:
    """With them somebody could pass an edit off as ours."""
    spoil(path, f"INSERT INTO projections VALUES ('{SHOP.project}', 'main', 'forged', 2)")
    assert [("projection", 2)] == ask(path, projections)

    spoil(path, "DELETE FROM projections")
    assert [("projection", None)] == ask(path, projections)


def test_projects_that_are_not_in_the_list_are_found(path: Path) -> None:
    """By a track, an event or a dispatch of theirs; one that was removed is in the list."""
    spoil(path, "UPDATE projects SET removed_at = '2026-02-01'")
    assert [] == ask(path, projects)

    spoil(path, "UPDATE dispatches SET project = '/srv/forged' WHERE seq = (SELECT max(seq) FROM dispatches)")
    with closing(sqlite3.connect(path)) as db:
        assert ["/srv/forged has a history, but is not in the list of projects"] == [
            fault.message for fault in projects(db)
        ]

    spoil(path, "DELETE FROM projects", "DELETE FROM tracks")
    assert [("project", None)] * 2 == ask(path, projects)


def test_a_damaged_file_is_described(path: Path) -> None:
    """In SQLite's words, without a traceback."""
    content = bytearray(path.read_bytes())
    content[4096:8192] = b"\xff" * 4096
    path.write_bytes(content)

    assert {"damaged"} == {kind for kind, _ in ask(path, integrity)}
