"""One question to the journal, asked in a hurry."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.unit.journal.making import dispatch, record, track

from handoffd.engine import track as tracks
from handoffd.journal.database import open_database
from handoffd.journal.journal import Journal
from handoffd.journal.latest import EXTERNAL, latest
from handoffd.protocol.state import Status

ROOT = "/srv/shop ?#%41"
T0 = datetime(2026, 1, 2, tzinfo=UTC)


def _written(path: Path, status: str | None, executor: str | None, *, last: str | None = None) -> None:
    """Write a journal whose project stands like that: who has its dispatch, and who had the one before."""
    with closing(open_database(path)) as db:
        body = '{"ledger": {"dispatch": null}}'
        if executor is not None:
            body = f'{{"ledger": {{"dispatch": {{"executor": "{executor}"}}}}}}'
        event = (
            "INSERT INTO events (at, project, track, kind, event, result, why) VALUES ('','','','','','','')"
        )
        seq = db.execute(event).lastrowid
        db.execute("INSERT INTO projects (root, name, added_at) VALUES (?, 'shop', '')", (ROOT,))
        db.execute("INSERT INTO tracks VALUES (?, 'main', ?, ?, NULL, 'bdd', ?)", (ROOT, seq, body, status))
        if last is not None:
            db.execute(
                "INSERT INTO dispatches (id, seq, project, track, step, attempt, executor, decided_at)"
                " VALUES ('d', ?, ?, 'main', 'bdd', 1, ?, '')",
                (seq, ROOT, last),
            )


@pytest.mark.parametrize(
    ("status", "executor", "last", "theirs"),
    [
        ("running", None, None, True),
        ("running", EXTERNAL, None, True),
        ("running", "claude", None, False),
        ("failing", None, EXTERNAL, True),
        ("failing", None, "claude", False),
        ("pending", None, None, False),
    ],
)
def test_whose_attempt_it_is(
    tmp_path: Path, status: str, executor: str | None, last: str | None, theirs: bool
) -> None:
    """That which runs, else the one before."""
    _written(tmp_path / "journal ?#%.db", status, executor, last=last)
    found = latest(str(tmp_path / "journal ?#%.db"), ROOT)

    assert found is not None
    assert (True, theirs) == (found.known, found.theirs)


async def test_what_the_journal_itself_writes_is_read(tmp_path: Path) -> None:
    """While it is open for writing; another project is not known."""
    path = tmp_path / "journal.db"
    journal = await Journal.open(path)
    try:
        await journal.add_project("/srv/shop", "shop", T0)
        await journal.commit(record(after=track(status=Status.RUNNING)))
        before, unknown = latest(str(path), "/srv/shop"), latest(str(path), "/srv/other")
        await journal.commit(record(after=track(status=Status.RUNNING, dispatch=dispatch())))
        after = latest(str(path), "/srv/shop")
        await journal.remove_project("/srv/shop", T0)
        removed = latest(str(path), "/srv/shop")
    finally:
        await journal.close()

    assert before is not None
    assert after is not None
    assert unknown is not None
    assert removed is not None
    assert (True, True, True, False) == (before.known, before.theirs, after.known, after.theirs)
    assert (False, False) == (unknown.known, removed.known)


def test_a_journal_that_does_not_tell_is_none(tmp_path: Path) -> None:
    """There is none, it is no journal, or of another time."""
    path = tmp_path / "journal.db"
    assert latest(str(path), ROOT) is None
    assert not path.exists()
    path.write_bytes(b"no database" * 100)
    assert latest(str(path), ROOT) is None


def test_it_is_the_engines_word_for_others() -> None:
    """Importing it from there would take longer than all the rest."""
    assert tracks.EXTERNAL == EXTERNAL


def test_it_costs_no_more_than_sqlite() -> None:
    """A hook waits for it."""
    code = "import sys; import handoffd.journal.latest; print(*sys.modules)"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert not {"pydantic", "structlog", "dataclasses", "pathlib", "anyio"} & set(said.stdout.split())
