"""What was changed in the table of dispatches, which no decision shows."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.recorded import BLOG, SHOP, RecordedPlay, spoil, story, write

from handoffd.api.verification import Report, Verification
from handoffd.engine.events import Aborted, Initialised
from handoffd.engine.track import TrackKey
from handoffd.journal.replay import Recordings

WIKI = TrackKey("/srv/wiki")
DOCS = TrackKey("/srv/docs", "US-007")
GOLDEN = Path(__file__).parents[2] / "data/journal"


def flying(key: TrackKey) -> RecordedPlay:
    """Return a story whose second run is in flight."""
    play = RecordedPlay(key)
    play.given(Initialised(project="wiki")).started().step_passes().turn().runs()
    return play


def aborted(key: TrackKey) -> RecordedPlay:
    """Return a story whose second run was lost, and whose third was ended by a person."""
    play = flying(key)
    play.exits(code=None, by="lost").turn().runs()
    play.given(Aborted(by="eve")).exits()
    return play


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The journal of several stories."""
    path = tmp_path / "journal.db"
    write(path, story(SHOP), story(BLOG), flying(WIKI), aborted(DOCS))
    return path


def verify(path: Path, project: str | None = None) -> Report:
    """Return what a verification finds."""
    with closing(Recordings(path)) as source:
        return Verification(source, project).run()


def messages(path: Path, project: str | None = None) -> list[str]:
    """Return what is found of dispatches."""
    return [one.message for one in verify(path, project).findings if one.kind == "dispatch"]


@pytest.mark.parametrize("project", [None, SHOP.project, BLOG.project, WIKI.project, DOCS.project])
def test_the_runs_of_whole_stories_are_as_recorded(path: Path, project: str | None) -> None:
    """Of all projects and of each."""
    report = verify(path, project)

    assert (True, True) == (report.clean, report.dispatches > 0)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("seq", "seq + 1"),
        ("project", "'/srv/blog'"),
        ("track", "'US-9'"),
        ("story", "'US-9'"),
        ("step", "'impl'"),
        ("attempt", "7"),
        ("executor", "'claude'"),
        ("decided_at", "'2026-02-01T00:00:00.000000+00:00'"),
        ("started_at", "'2026-02-01T00:00:00.000000+00:00'"),
        ("ended_at", "NULL"),
        ("exit", "json_set(exit, '$.code', 9)"),
        ("exit", "'{'"),
        ("tests", """'{"collected":4}'"""),
        ("result", "'interrupted'"),
        ("why", "'because'"),
    ],
)
def test_every_column_is_compared(path: Path, column: str, value: str) -> None:
    """With the event that began the run."""
    spoil(path, f"UPDATE dispatches SET {column} = {value} WHERE id = 'shop-1'")

    assert [f"the dispatch shop-1 is not what its events make: {column}"] == messages(path)


def test_a_row_that_is_gone_is_found(path: Path) -> None:
    """Its events are still there."""
    spoil(path, "DELETE FROM dispatches WHERE id = 'blog-2'")

    assert ["the dispatch blog-2 is not there, though its events are"] == messages(path)
    assert [] == messages(path, SHOP.project)


def test_a_row_that_was_made_up_is_found(path: Path) -> None:
    """Of a track there is, and of one there never was."""
    columns = "seq, story, step, attempt, executor, decided_at"
    for number, project in (("forged-1", SHOP.project), ("forged-2", "/srv/nobody")):
        spoil(
            path,
            f"""INSERT INTO dispatches (id, project, track, {columns})
            SELECT '{number}', '{project}', 'main', {columns} FROM dispatches WHERE id = 'shop-1'""",
        )

    assert [f"the dispatch {one} is there, but no event began it" for one in ("forged-1", "forged-2")] == (
        sorted(messages(path))
    )


def test_a_row_under_another_id_is_gone_and_made_up(path: Path) -> None:
    """The id is how a run is found."""
    spoil(path, "UPDATE dispatches SET id = 'forged' WHERE id = 'shop-2'")

    assert 2 == len(messages(path))


def test_after_a_finding_of_the_track_only_what_is_known_is_compared(path: Path) -> None:
    """What later events have added is not held against a row; what earlier ones said is."""
    spoil(path, "UPDATE events SET why = 'because' WHERE project = '/srv/docs' AND kind = 'executor_exited'")
    assert [] == messages(path)

    spoil(path, "UPDATE dispatches SET executor = 'codex' WHERE id = 'docs-1'")
    assert ["the dispatch docs-1 is not what its events make: executor"] == messages(path)


def migrated(tmp_path: Path) -> Path:
    """Return an older journal, migrated while a run was in flight."""
    path = tmp_path / "older.db"
    shutil.copy(GOLDEN / "schema-1.db", path)
    write(path)
    return path


def test_runs_from_before_a_migration_are_not_held_against_a_journal(tmp_path: Path) -> None:
    """Nobody knows what they should say."""
    path = migrated(tmp_path)
    spoil(path, "UPDATE dispatches SET result = 'pass' WHERE result = 'failing'")

    assert [] == messages(path)


def test_what_was_in_flight_at_a_migration_is_compared_as_far_as_it_is_known(tmp_path: Path) -> None:
    """Its track says what it is, and the events say how it ended; not when it began."""
    path = migrated(tmp_path)
    spoil(path, "UPDATE dispatches SET started_at = '2026-02-01' WHERE result IS NULL")
    assert [] == messages(path)

    spoil(path, "UPDATE dispatches SET executor = 'codex', result = 'pass' WHERE result IS NULL")
    (message,) = messages(path)
    assert message.endswith("is not what its events make: executor, result")
