"""Every recorded decision made again: what is clean, and what is found."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.playbook import with_rule
from tests.support.recorded import BLOG, SHOP, RecordedPlay, spoil, story, write

from handoffd.api.verification import Finding, Report, Verification
from handoffd.engine.events import Aborted, Initialised
from handoffd.engine.track import TrackKey
from handoffd.journal.replay import Recordings

GOLDEN = Path(__file__).parents[2] / "data/journal"
WIKI = TrackKey("/srv/wiki")
DOCS = TrackKey("/srv/docs", "US-007")


def flying(key: TrackKey) -> RecordedPlay:
    """Return a story whose second run is in flight."""
    play = RecordedPlay(key)
    play.given(Initialised(project="wiki")).started().step_passes().turn().runs()
    return play


def aborted(key: TrackKey) -> RecordedPlay:
    """Return a story whose second run was lost, and whose third a person ended."""
    play = flying(key)
    play.exits(code=None, by="lost").turn().runs()
    play.given(Aborted(by="eve")).exits()
    return play


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of four projects, one of which has a step table of its own; tests copy it."""
    path = tmp_path_factory.mktemp("written") / "journal.db"
    write(path, flying(WIKI), aborted(DOCS), story(SHOP), story(BLOG, with_rule("impl", max_attempts=2)))
    return path


@pytest.fixture
def path(written: Path, tmp_path: Path) -> Path:
    """A copy of that journal, to tamper with."""
    return Path(shutil.copy(written, tmp_path / "journal.db"))


@pytest.fixture
def migrated(tmp_path: Path) -> Path:
    """An older journal, migrated while a run was in flight."""
    path = tmp_path / "older.db"
    shutil.copy(GOLDEN / "schema-1.db", path)
    write(path)
    return path


def verify(path: Path, project: str | None = None) -> Report:
    """Return what a verification finds."""
    with closing(Recordings(path)) as source:
        return Verification(source, project).run()


def found(path: Path) -> list[tuple[str, int | None]]:
    """Return kinds and numbers of the findings."""
    return [(finding.kind, finding.seq) for finding in verify(path).findings]


def of(path: Path, kind: str) -> Finding:
    """Return the finding of a kind."""
    (finding,) = [finding for finding in verify(path).findings if finding.kind == kind]
    return finding


def seq_of(path: Path, kind: str) -> int:
    """Return the number of the shop's first event of a kind."""
    with closing(Recordings(path)) as source:
        return next(
            entry.seq for entry in source.page(0, source.newest(), SHOP.project) if entry.kind == kind
        )


def whats(finding: Finding) -> list[str]:
    """Return what differs."""
    return [difference.what for difference in finding.differences]


@pytest.mark.parametrize("project", [None, SHOP.project, BLOG.project, WIKI.project, DOCS.project])
def test_a_journal_as_the_daemon_writes_it_is_clean(path: Path, project: str | None) -> None:
    """Every decision and every run comes out again, under the table of its time."""
    report = verify(path, project)

    assert (True, True, 0, 0) == (report.clean, report.dispatches > 0, report.older, report.unreplayed)
    if project is None:
        assert report.newest == report.replayed


@pytest.mark.parametrize(
    ("kind", "change", "what"),
    [
        ("approved", "event = replace(event, 'Mind', 'Skip')", "STATE.json"),
        ("advanced", "status_after = 'pass'", "status after"),
        ("advanced", "step_after = 'impl'", "step after"),
        ("advanced", "why = 'because'", "why"),
        ("advanced", "at = '2026-02-01T00:00:00.000000+00:00'", "STATE.json"),
    ],
)
def test_a_changed_event_is_found(path: Path, kind: str, change: str, what: str) -> None:
    """Step, status, reason and time; the text of a note by the digest of its STATE.json."""
    seq = seq_of(path, kind)

    spoil(path, f"UPDATE events SET {change} WHERE seq = {seq}")

    finding = of(path, "diverged")
    assert (seq, kind, SHOP.project, "main") == (
        finding.seq, finding.event, finding.project, finding.track,
    )  # fmt: skip
    assert [what] == whats(finding)


def test_an_event_that_is_kept_as_another_kind_is_found(path: Path) -> None:
    """The history of a project shows this column; the decision was made by the event's own text."""
    seq = seq_of(path, "approved")

    spoil(path, f"UPDATE events SET kind = 'rejected' WHERE seq = {seq}")

    finding = of(path, "unreadable")
    assert (seq, SHOP.project) == (finding.seq, finding.project)
    assert "it is kept as rejected, and is approved" in finding.message


def test_a_changed_order_and_a_changed_result_are_found(path: Path) -> None:
    """Both belong to the decision."""
    seq = seq_of(path, "advanced")

    spoil(path, f"UPDATE effects SET effect = replace(effect, 'rehearsal', 'claude') WHERE seq = {seq}")

    assert ["effect spawn"] == whats(of(path, "diverged"))

    spoil(path, f"UPDATE events SET result = replace(result, 'bdd', 'impl') WHERE seq = {seq}")
    assert ["result", "effect spawn"] == whats(of(path, "diverged"))


def test_a_missing_event_is_found(path: Path) -> None:
    """By its number, and by what follows from it; at the end by its track, which knows the number."""
    seq = seq_of(path, "executor_exited")

    spoil(path, f"DELETE FROM events WHERE seq = {seq}")

    assert ("missing", seq) in found(path)
    assert of(path, "diverged").seq == seq + 1
    with closing(Recordings(path)) as source:
        newest = source.newest()
    spoil(path, f"DELETE FROM events WHERE seq = {newest}")
    assert {("missing", newest), ("track", newest)} <= set(found(path))


def test_swapped_events_are_found(path: Path) -> None:
    """Their order makes a history."""
    first = seq_of(path, "started")

    spoil(
        path,
        f"UPDATE events SET seq = -1 WHERE seq = {first}",
        f"UPDATE events SET seq = {first} WHERE seq = {first + 1}",
        f"UPDATE events SET seq = {first + 1} WHERE seq = -1",
    )

    assert first == of(path, "diverged").seq


def test_a_changed_track_is_found(path: Path) -> None:
    """Field by field; its events are clean."""
    spoil(
        path,
        f"""UPDATE tracks SET body = replace(body, '"automatic":true', '"automatic":false')
        WHERE project = '{SHOP.project}'""",
    )

    (finding,) = verify(path).findings
    assert ("track", SHOP.project) == (finding.kind, finding.project)
    assert [("ledger.automatic", "False", "True")] == [
        (one.what, one.recorded, one.replayed) for one in finding.differences
    ]


def test_changed_columns_of_a_track_are_found(path: Path) -> None:
    """The daemon looks tracks up by them."""
    spoil(path, "UPDATE tracks SET seq = seq - 1, step = 'verify', digest = 'forged'")

    findings = [finding for finding in verify(path).findings if finding.kind == "track"]
    assert {"seq", "STATE.json", "standing"} == {what for finding in findings for what in whats(finding)}


def test_a_track_that_is_spelt_otherwise_is_found(path: Path) -> None:
    """It says the same, but a daemon leaves it alone, since its last event has not left it so."""
    spoil(path, f"UPDATE tracks SET body = body || ' ' WHERE project = '{SHOP.project}'")

    (finding,) = verify(path).findings
    assert ("track", SHOP.project, ()) == (finding.kind, finding.project, finding.differences)
    assert "the stored track was changed: its body is not the one that event" in finding.message


def test_a_track_and_a_project_that_are_gone_are_found(path: Path) -> None:
    """Their events are still there."""
    spoil(path, f"DELETE FROM tracks WHERE project = '{BLOG.project}'")
    assert BLOG.project == of(path, "track").project

    spoil(path, f"DELETE FROM projects WHERE root = '{WIKI.project}'")
    assert WIKI.project in of(path, "project").message


@pytest.mark.parametrize(
    ("statements", "kinds"),
    [
        (
            [
                "INSERT INTO effects (seq, project, track, effect) VALUES (9999, '/srv/shop', 'main', '{}')",
                f"INSERT INTO projections VALUES ('{SHOP.project}', 'main', 'forged', 2)",
            ],
            {"reference", "projection"},
        ),
        (
            [
                "PRAGMA writable_schema = ON",
                "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master"
                " WHERE name = 'dispatches_by_seq') WHERE name = 'effects_by_seq'",
            ],
            {"damaged"},
        ),
    ],
)
def test_wrong_tables_are_found(path: Path, statements: list[str], kinds: set[str]) -> None:
    """No decision shows a row without an event, or an index that does not fit its table."""
    spoil(path, *statements)

    assert kinds <= {kind for kind, _ in found(path)}


def test_a_changed_step_table_is_found(path: Path) -> None:
    """A decision that cannot be made again with the same table proves nothing."""
    spoil(path, """UPDATE rulebooks SET body = replace(body, '"max_attempts":5', '"max_attempts":50')""")

    (finding,) = verify(path, SHOP.project).findings
    assert "unreadable" == finding.kind
    assert "step table 1 was changed" in finding.message


def test_a_finding_ends_the_replay_of_its_track_only(path: Path) -> None:
    """The rest of the track counts as not replayed; other tracks go on."""
    seq = seq_of(path, "approved")

    spoil(path, f"UPDATE events SET why = 'because' WHERE seq = {seq}")

    report = verify(path)
    assert 1 == len(report.findings)
    assert (report.newest, True) == (report.replayed + report.unreplayed, report.unreplayed > 0)


def test_a_verification_of_one_project_leaves_out_the_others(path: Path) -> None:
    """With their findings."""
    spoil(path, f"UPDATE events SET why = 'because' WHERE project = '{BLOG.project}'")

    assert verify(path, SHOP.project).clean
    assert not verify(path, BLOG.project).clean


def test_a_migrated_journal_is_replayed_from_its_migration_on(migrated: Path) -> None:
    """Older events lead to no finding."""
    report = verify(migrated)

    assert set() == {finding.kind for finding in report.findings} & {
        "diverged", "unreadable", "track", "dispatch",
    }  # fmt: skip
    assert (0, True) == (report.replayed, report.older > 0)


def test_progress_comes_page_by_page(path: Path) -> None:
    """Up to the highest number at the start."""
    told: list[tuple[int, int]] = []
    with closing(Recordings(path)) as source:
        Verification(source).run(lambda done, of: told.append((done, of)))

    assert told[-1][0] == told[-1][1]


def test_the_report_is_json(path: Path) -> None:
    """With the documented keys."""
    spoil(path, "UPDATE events SET why = 'because' WHERE seq = 3")

    told = json.loads(json.dumps(verify(path).as_json()))

    assert ("verified", False, 1) == (told["type"], told["clean"], len(told["findings"]))
    assert {"kind", "message", "seq", "project", "track", "event", "engine", "differences"} == set(
        told["findings"][0]
    )
    assert {"what", "recorded", "replayed"} == set(told["findings"][0]["differences"][0])


def test_many_findings_are_counted(path: Path) -> None:
    """A journal that is damaged throughout does not fill the screen."""
    report = Report(journal=str(path), project=None)

    for number in range(150):
        report.add(Finding(kind="missing", message="gone", seq=number))

    assert (100, 50) == (len(report.findings), report.further_findings)


# --- the table of dispatches, which no decision shows ------------------------------------------------
def messages(path: Path, project: str | None = None) -> list[str]:
    """Return what is found about dispatches."""
    return [one.message for one in verify(path, project).findings if one.kind == "dispatch"]


def test_a_changed_run_is_found(path: Path) -> None:
    """`handoffd runs` shows it, though no decision needs it."""
    spoil(
        path,
        """UPDATE dispatches SET result = 'failing', exit = json_set(exit, '$.code', 9)
        WHERE id = 'shop-1'""",
    )

    (finding,) = verify(path).findings
    assert ("dispatch", seq_of(path, "advanced"), SHOP.project, "main") == (
        finding.kind, finding.seq, finding.project, finding.track,
    )  # fmt: skip
    assert "the dispatch shop-1 is not what its events make: exit, result" == finding.message
    assert ("result", "failing", "pass") in [
        (one.what, one.recorded, one.replayed) for one in finding.differences
    ]


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


def test_a_missing_row_is_found(path: Path) -> None:
    """Its events are still there; a row under another id is missing and made up."""
    spoil(path, "UPDATE dispatches SET id = 'forged' WHERE id = 'shop-2'")
    assert 2 == len(messages(path))
    spoil(path, "UPDATE dispatches SET id = 'shop-2' WHERE id = 'forged'")

    spoil(path, "DELETE FROM dispatches WHERE id = 'blog-2'")

    assert ["the dispatch blog-2 is not there, though its events are"] == messages(path)
    assert [] == messages(path, SHOP.project)


def test_a_row_that_was_made_up_is_found(path: Path) -> None:
    """In an existing track, and in one that never existed."""
    columns = "seq, story, step, attempt, executor, decided_at"
    for number, project in (("forged-1", SHOP.project), ("forged-2", "/srv/none")):
        spoil(
            path,
            f"""INSERT INTO dispatches (id, project, track, {columns})
            SELECT '{number}', '{project}', 'main', {columns} FROM dispatches WHERE id = 'shop-1'""",
        )

    assert [f"the dispatch {one} is there, but no event began it" for one in ("forged-1", "forged-2")] == (
        sorted(messages(path))
    )


def test_after_a_finding_of_the_track_only_what_is_known_is_compared(path: Path) -> None:
    """Later events may have changed the row; earlier ones must agree with it."""
    spoil(path, "UPDATE events SET why = 'because' WHERE project = '/srv/docs' AND kind = 'executor_exited'")
    assert [] == messages(path)

    spoil(path, "UPDATE dispatches SET executor = 'codex' WHERE id = 'docs-1'")
    assert ["the dispatch docs-1 is not what its events make: executor"] == messages(path)


def test_a_run_in_flight_at_a_migration_is_compared_as_far_as_it_is_known(migrated: Path) -> None:
    """Its track tells what it is, and the events how it ended; older runs are not compared at all."""
    spoil(migrated, "UPDATE dispatches SET result = 'pass' WHERE result = 'failing'")
    spoil(migrated, "UPDATE dispatches SET started_at = '2026-02-01' WHERE result IS NULL")
    assert [] == messages(migrated)

    spoil(migrated, "UPDATE dispatches SET executor = 'codex', result = 'pass' WHERE result IS NULL")
    (message,) = messages(migrated)
    assert message.endswith("is not what its events make: executor, result")
