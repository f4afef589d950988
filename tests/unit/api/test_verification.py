"""Every recorded decision made again: what is clean, and what is found."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.playbook import with_rule
from tests.support.recorded import BLOG, SHOP, spoil, story, write

from handoffd.api.verification import Finding, Report, Verification
from handoffd.journal.replay import Recordings

GOLDEN = Path(__file__).parents[2] / "data/journal"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The journal of two projects, each with its own step table."""
    path = tmp_path / "journal.db"
    write(path, story(SHOP), story(BLOG, with_rule("impl", max_attempts=2)))
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
    """Return the number of a project's first event of a kind."""
    with closing(Recordings(path)) as source:
        return next(entry.seq for entry in source.page(0, source.newest(), None) if entry.kind == kind)


def test_a_journal_as_the_daemon_writes_it_is_clean(path: Path) -> None:
    """Every decision comes out again, under the table of its time."""
    report = verify(path)

    assert (True, 2, report.newest) == (report.clean, 2, report.replayed)
    assert (0, 0) == (report.older, report.unreplayed)


def test_a_changed_event_is_found(path: Path) -> None:
    """The note's text is in the STATE.json of its time, whose digest is kept."""
    seq = seq_of(path, "approved")

    spoil(path, f"UPDATE events SET event = replace(event, 'Mind', 'Skip') WHERE seq = {seq}")

    finding = of(path, "diverged")
    assert (seq, "approved", SHOP.project, "main") == (
        finding.seq, finding.event, finding.project, finding.track,
    )  # fmt: skip
    assert ["STATE.json"] == [difference.what for difference in finding.differences]


@pytest.mark.parametrize(
    ("column", "value", "what"),
    [
        ("status_after", "pass", "status after"),
        ("step_after", "impl", "step after"),
        ("why", "because", "why"),
        ("at", "2026-02-01T00:00:00.000000+00:00", "STATE.json"),
    ],
)
def test_a_changed_column_is_found(path: Path, column: str, value: str, what: str) -> None:
    """Step, status, reason and time are compared."""
    seq = seq_of(path, "advanced")

    spoil(path, f"UPDATE events SET {column} = '{value}' WHERE seq = {seq}")

    finding = of(path, "diverged")
    assert (seq, [what]) == (finding.seq, [difference.what for difference in finding.differences])


def test_a_changed_result_and_a_changed_order_are_found(path: Path) -> None:
    """What was answered and what was ordered belong to the decision."""
    seq = seq_of(path, "advanced")

    spoil(path, f"UPDATE effects SET effect = replace(effect, 'rehearsal', 'claude') WHERE seq = {seq}")
    assert ["effect spawn"] == [one.what for one in of(path, "diverged").differences]

    spoil(path, f"UPDATE events SET result = replace(result, 'bdd', 'impl') WHERE seq = {seq}")
    assert ["result", "effect spawn"] == [one.what for one in of(path, "diverged").differences]


def test_a_missing_event_is_found(path: Path) -> None:
    """By its number, and by what follows from it."""
    seq = seq_of(path, "executor_exited")

    spoil(path, f"DELETE FROM events WHERE seq = {seq}")

    assert ("missing", seq) in found(path)
    assert of(path, "diverged").seq == seq + 1


def test_missing_events_at_the_end_are_found(path: Path) -> None:
    """The track knows of an event that is not there."""
    with closing(Recordings(path)) as source:
        newest = source.newest()

    spoil(path, f"DELETE FROM events WHERE seq = {newest}")

    kinds = dict(found(path))
    assert (newest, newest) == (kinds["missing"], kinds["track"])


def test_a_changed_track_is_found(path: Path) -> None:
    """Field by field; its events are not to blame."""
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


def test_a_changed_run_is_found(path: Path) -> None:
    """What `handoffd runs` shows is what the events say; nothing is decided by it."""
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


def test_a_project_that_is_gone_is_found(path: Path) -> None:
    """Its tracks and events are still there."""
    spoil(path, f"DELETE FROM projects WHERE root = '{BLOG.project}'")

    assert BLOG.project in of(path, "project").message


def test_a_changed_standing_or_digest_of_a_track_is_found(path: Path) -> None:
    """The columns beside the body are what the daemon looks things up by."""
    spoil(path, "UPDATE tracks SET step = 'verify', digest = 'forged'")

    assert {"STATE.json", "standing"} == {
        one.what
        for finding in verify(path).findings
        if finding.kind == "track"
        for one in finding.differences
    }


def test_a_track_that_is_gone_is_found(path: Path) -> None:
    """Its events are still there."""
    spoil(path, f"DELETE FROM tracks WHERE project = '{BLOG.project}'")

    assert BLOG.project == of(path, "track").project


def test_what_is_wrong_with_the_tables_is_found_as_well(path: Path) -> None:
    """No decision shows it: an order of no event, and a text of STATE.json that no event made."""
    spoil(
        path,
        "INSERT INTO effects (seq, project, track, effect) VALUES (9999, '/srv/shop', 'main', '{}')",
        f"INSERT INTO projections VALUES ('{SHOP.project}', 'main', 'forged', 2)",
    )

    assert {"reference", "projection"} <= {kind for kind, _ in found(path)}


def test_swapped_events_are_found(path: Path) -> None:
    """The order is what makes a history."""
    first = seq_of(path, "started")

    spoil(
        path,
        f"UPDATE events SET seq = -1 WHERE seq = {first}",
        f"UPDATE events SET seq = {first} WHERE seq = {first + 1}",
        f"UPDATE events SET seq = {first + 1} WHERE seq = -1",
    )

    assert first == of(path, "diverged").seq


def test_a_changed_step_table_is_found(path: Path) -> None:
    """A decision that cannot be made again with the same table proves nothing."""
    spoil(path, """UPDATE rulebooks SET body = replace(body, '"max_attempts":5', '"max_attempts":50')""")

    assert "step table 1 was changed" in of(path, "unreadable").message


def test_a_finding_ends_the_replay_of_its_track_only(path: Path) -> None:
    """What follows is counted as not replayed; other tracks go on."""
    seq = seq_of(path, "approved")

    spoil(path, f"UPDATE events SET why = 'because' WHERE seq = {seq}")

    report = verify(path)
    assert 1 == len(report.findings)
    assert (report.newest, True) == (report.replayed + report.unreplayed, report.unreplayed > 0)


def test_one_project_can_be_looked_at_alone(path: Path) -> None:
    """The others' findings are not told."""
    spoil(path, f"UPDATE events SET why = 'because' WHERE project = '{BLOG.project}'")

    assert verify(path, SHOP.project).clean
    assert not verify(path, BLOG.project).clean


def test_a_damaged_file_is_described_and_what_can_be_read_is_replayed(path: Path) -> None:
    """An index that does not fit its table."""
    spoil(
        path,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master"
        " WHERE name = 'dispatches_by_seq') WHERE name = 'effects_by_seq'",
    )

    assert "damaged" in dict(found(path))


def test_a_migrated_journal_is_replayed_from_its_migration_on(tmp_path: Path) -> None:
    """Nothing of before is held against it."""
    path = tmp_path / "journal.db"
    shutil.copy(GOLDEN / "schema-1.db", path)
    write(path)

    report = verify(path)

    assert [] == [
        finding
        for finding in report.findings
        if finding.kind in {"diverged", "unreadable", "track", "dispatch"}
    ]
    assert (0, True) == (report.replayed, report.older > 0)


def test_progress_is_told_page_by_page(path: Path) -> None:
    """Up to the highest number there was at the start."""
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
