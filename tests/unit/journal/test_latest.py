"""One question to the journal, asked in a hurry."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.journal.making import KEY, NOW, dispatch, record, track

from handoffd.engine import track as tracks
from handoffd.journal.database import open_database
from handoffd.journal.journal import Journal
from handoffd.journal.latest import EXTERNAL, latest
from handoffd.protocol.state import Status

ROOT = "/srv/shop ?#%41"


def _written(path: Path, status: str | None, executor: str | None, *, last: str | None = None) -> None:
    """Write a journal of one project: its status, the executor of its dispatch, and of the one before."""
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
    """Of the attempt that runs, else of the one before."""
    _written(tmp_path / "journal ?#%.db", status, executor, last=last)
    found = latest(str(tmp_path / "journal ?#%.db"), ROOT)

    assert found is not None
    assert (True, theirs) == (found.known, found.theirs)


async def test_an_open_journal_is_read(journal: Journal, place: Path) -> None:
    """While a daemon writes to it; other projects, and removed ones, are not known."""

    def seen(root: str = KEY.project) -> tuple[bool, bool]:
        found = latest(str(place), root)
        assert found is not None
        return found.known, found.theirs

    await journal.add_project(KEY.project, "shop", NOW)
    await journal.commit(record(after=track(status=Status.RUNNING)))
    assert ((True, True), (False, False)) == (seen(), seen("/srv/other"))
    await journal.commit(record(after=track(status=Status.RUNNING, dispatch=dispatch())))
    assert (True, False) == seen()
    await journal.remove_project(KEY.project, NOW)
    assert (False, False) == seen()


def test_without_a_readable_journal_there_is_no_answer(place: Path) -> None:
    """It is missing, or another file."""
    assert latest(str(place), ROOT) is None
    assert not place.exists()
    place.write_bytes(b"no database" * 100)
    assert latest(str(place), ROOT) is None


def test_it_costs_no_more_than_sqlite() -> None:
    """A hook waits for it: even the engine's word for external attempts is written here again."""
    assert tracks.EXTERNAL == EXTERNAL
    code = "import sys; import handoffd.journal.latest; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert not {"pydantic", "structlog", "dataclasses", "pathlib", "anyio"} & set(done.stdout.split())
