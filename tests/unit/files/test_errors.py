from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

import pytest

from handoffd.files.errors import damaged, storage_error, unsafe_file


def test_an_error_names_activity_path_and_cause() -> None:
    """A person sees what failed, where, and why."""
    error = storage_error(
        "record an event", Path("/state/journal.db"), OSError(errno.EIO, "Input/output error")
    )

    assert "cannot record an event: /state/journal.db: Input/output error" == error.message
    assert "STORE_ERROR" == error.code


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_has_a_code_and_a_remedy(number: int) -> None:
    """Out of space and out of quota are one thing to a person."""
    error = storage_error("write", "/state/journal.db", OSError(number, "full"))

    assert ("DISK_FULL", "df -h /state") == (error.code, error.hint)


def test_a_foreign_file_is_recognised_by_sqlites_code(tmp_path: Path) -> None:
    """What is not a database is not a journal."""
    path = tmp_path / "journal.db"
    path.write_bytes(b"not a database at all" * 100)
    connection = sqlite3.connect(path)
    with pytest.raises(sqlite3.DatabaseError) as caught:
        connection.execute("SELECT * FROM sqlite_master")
    connection.close()

    error = storage_error("open the journal", path, caught.value)

    assert "NOT_A_JOURNAL" == error.code
    assert "SQLITE_NOTADB" in error.message
    assert "mv " in (error.hint or "")


def test_an_unsafe_file_is_refused_with_the_reason() -> None:
    """Refusals share one code: callers treat them as an edit from outside."""
    error = unsafe_file("/p/.ai/STATE.json", "it is a symbolic link")

    assert ("UNSAFE_FILE", "refusing /p/.ai/STATE.json: it is a symbolic link") == (error.code, error.message)


def test_damage_is_reported_with_the_finding() -> None:
    """In SQLite's own words."""
    error = damaged("/state/journal.db", "row 3 missing from index")

    assert "CORRUPT_JOURNAL" == error.code
    assert "row 3 missing from index" in error.message
