"""`handoffd journal` and `handoffd gc`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import Commands
from tests.support.recorded import BLOG, spoil, story, write

from handoffd.api.verification import Finding, Report
from handoffd.cli.journal import backed_up, report, restored, verified
from handoffd.cli.wording import size_of
from handoffd.engine.decide import Difference
from handoffd.files.locks import acquire, daemon_lock_path
from handoffd.fleet.journal_restore import Omitted, Restoration
from handoffd.journal.backup import Copy


@pytest.fixture
def journal(alone: Path) -> Path:
    """The journal of two projects, where commands look for it."""
    path = alone / "state/journal.db"
    write(path, story(), story(BLOG))
    return path


def test_a_sound_journal_is_verified(journal: Path, handoffd: Commands) -> None:
    """In one line, with exit code 0."""
    said = handoffd("journal", "verify")

    assert (0, 1) == (said.code, len(said.lines))
    assert "52 decisions of 2 tracks replayed; all as recorded." in said.out


def test_a_divergence_is_reported_with_both_values(journal: Path, handoffd: Commands) -> None:
    """Number, event, project; exit code 1; the same as JSON."""
    spoil(journal, "UPDATE events SET why = 'because' WHERE seq = 3")

    said = handoffd("journal", "verify")
    as_json = handoffd("journal", "verify", "--json")

    assert 1 == said.code == as_json.code
    assert "diverged: event 3, advanced, /srv/shop, main: it is decided otherwise now: why" == said.lines[0]
    assert "        recorded  because" in said.lines
    assert (False, [3]) == (as_json.json["clean"], [one["seq"] for one in as_json.json["findings"]])


def test_a_track_that_was_changed_by_hand_is_rebuilt_from_its_events(
    journal: Path, handoffd: Commands
) -> None:
    """`verify` has the command; after it everything is as recorded."""
    spoil(journal, "UPDATE tracks SET body = '{}' WHERE project = '/srv/shop'")

    found = handoffd("journal", "verify")
    repaired = handoffd("journal", "repair", "/srv/shop")

    assert "  next: handoffd stop && handoffd journal repair /srv/shop" == found.lines[-1]
    assert (0, "  next: handoffd run") == (repaired.code, repaired.lines[-1])
    assert repaired.lines[0].startswith("/srv/shop (main) was rebuilt: its body is not the one that event ")
    assert 0 == handoffd("journal", "verify").code
    assert "Every track agrees with its last event.\n" == handoffd("journal", "repair").out


def test_a_restore_leaves_out_a_track_that_was_changed_by_hand(journal: Path, handoffd: Commands) -> None:
    """A decision on it would hide the change. Rebuilt from its events, it is paused like the others."""
    spoil(journal, "UPDATE tracks SET body = '{}' WHERE project = '/srv/shop'")
    file = str(journal.parent / "copy.db")

    said = handoffd("journal", "backup", file)
    restored = handoffd("journal", "restore", file, "--json")

    assert (0, "  next: handoffd stop && handoffd journal repair   (then back up again)") == (
        said.code, said.lines[-1]
    )  # fmt: skip
    assert (1, "restored") == (restored.code, restored.json["type"])
    (left_out,) = restored.json["left_out"]
    assert ("/srv/shop", "main") == (left_out["project"], left_out["track"])
    assert left_out["why"].startswith("its body is not the one that event ")
    assert "/srv/shop" not in restored.json["paused"]
    assert "/srv/blog" in restored.json["paused"]

    repaired = handoffd("journal", "repair", "--json")
    assert (0, ["/srv/shop"]) == (repaired.code, repaired.json["paused"])
    assert [] == handoffd("journal", "backup", file, "--force", "--json").json["unsound"]


def test_an_order_that_cannot_be_read_is_named_and_not_rebuilt(journal: Path, handoffd: Commands) -> None:
    """No event repeats it, so that takes a backup; a backup of this journal names the project."""
    last = "SELECT max(id) FROM effects WHERE project = '/srv/shop'"
    spoil(journal, f"UPDATE effects SET effect = '{{', outcome = NULL WHERE id = ({last})")

    verified, repaired = handoffd("journal", "verify"), handoffd("journal", "repair")
    saved = handoffd("journal", "backup", str(journal.parent / "copy.db"), "--json")

    assert "handoffd journal restore FILE" in verified.lines[-1]
    assert (1, True) == (repaired.code, "cannot be read" in repaired.lines[0])
    assert "handoffd journal restore FILE" in repaired.lines[-1]
    assert ["/srv/shop"] == saved.json["unsound"]


def test_nothing_is_rebuilt_while_events_are_missing(journal: Path, handoffd: Commands) -> None:
    """From fewer of them, a track would be in an old state."""
    spoil(
        journal,
        "DELETE FROM events WHERE seq = (SELECT seq FROM tracks WHERE project = '/srv/shop')",
        "DELETE FROM tracks WHERE project = '/srv/shop'",
    )

    said = handoffd("journal", "repair", "shop", "--json")

    assert (1, [], ["/srv/shop"]) == (
        said.code, said.json["made"], [one["project"] for one in said.json["left"]]
    )  # fmt: skip


def test_a_track_whose_events_were_changed_is_not_rebuilt(journal: Path, handoffd: Commands) -> None:
    """They lead to another state."""
    spoil(journal, "UPDATE events SET why = 'because' WHERE seq = 3")
    spoil(journal, "UPDATE tracks SET body = '{}' WHERE project = '/srv/shop'")

    said = handoffd("journal", "repair", "--json")

    assert (1, []) == (said.code, said.json["made"])
    assert ["/srv/shop"] == [one["project"] for one in said.json["left"]]


def test_nothing_is_repaired_beside_a_daemon(journal: Path, handoffd: Commands) -> None:
    """It would continue with the tracks in its memory."""
    with acquire(daemon_lock_path(journal.parent), "it"):
        said = handoffd("journal", "repair")

    assert (1, True) == (said.code, "handoffd stop" in said.err)


@pytest.mark.parametrize("words", [("blog",), ("--project", "blog"), ("-p", "/srv/blog/docs")])
def test_one_project_is_verified_however_it_is_named(
    journal: Path, handoffd: Commands, words: tuple[str, ...]
) -> None:
    """By name, by path, by a path inside it; as an argument or an option."""
    spoil(journal, "UPDATE events SET why = 'because' WHERE seq = 3")

    said = handoffd("journal", "verify", *words, "--json")

    assert (0, "/srv/blog", 26) == (said.code, said.json["project"], said.json["replayed"])
    assert 4 == handoffd("journal", "verify", "unknown").code


def test_without_a_journal_there_is_nothing_to_verify(alone: Path, handoffd: Commands) -> None:
    """And it makes none."""
    assert (1, False) == (handoffd("journal", "verify").code, (alone / "state").exists())


def test_a_backup_is_made_and_restored(journal: Path, alone: Path, handoffd: Commands) -> None:
    """A round trip; the daemon's own log stays out of the answer."""
    file = alone / "monday.db"

    made = handoffd("journal", "backup", str(file))
    again = handoffd("journal", "backup", str(file), "--json")
    forced = handoffd("journal", "backup", str(file), "--force", "--json")
    put_back = handoffd("journal", "restore", str(file), "--json")

    assert (0, 1, 0, 0) == (made.code, again.code, forced.code, put_back.code)
    assert "up to event 52, checked." in made.out
    assert "EXISTS" == again.json["code"]
    assert ("backed_up", str(file), 52) == (forced.json["type"], forced.json["file"], forced.json["newest"])
    assert ("restored", 52, "") == (put_back.json["type"], put_back.json["newest"], put_back.err)
    assert ["/srv/blog", "/srv/shop"] == put_back.json["paused"]
    assert 0 == handoffd("journal", "verify").code


def test_a_restore_names_the_paused_projects(journal: Path, alone: Path, handoffd: Commands) -> None:
    """And the command that resumes them."""
    handoffd("journal", "backup", str(alone / "monday.db"))

    said = handoffd("journal", "restore", str(alone / "monday.db"))

    assert "2 projects are paused" in said.out
    assert "handoffd resume PROJECT" in said.out
    assert "    /srv/shop" in said.lines


# --- what the commands print ------------------------------------------------------------------------
def test_a_verification_ends_with_its_verdict() -> None:
    """After how much was replayed, and what was not."""
    report = Report(journal="/s/journal.db", project=None, tracks=2, replayed=40, older=5)
    assert [
        "/s/journal.db: 40 decisions of 2 tracks replayed, 5 are too old to be replayed; all as recorded."
    ] == verified(report)

    report.unreplayed = 3
    report.add(Finding(kind="missing", message="event 7 is missing", seq=7))
    lines = verified(report)
    assert "missing: event 7: event 7 is missing" == lines[0]
    assert lines[1].endswith("3 after a finding not replayed; 1 problem.")
    assert lines[2].startswith("  next: handoffd stop && handoffd journal restore FILE")


def test_a_finding_shows_both_values_and_who_decided() -> None:
    """Text from a project cannot drive the terminal, and is cut."""
    difference = Difference(what="why", recorded="\x1b[2J", replayed="x" * 1000)
    report = Report(journal="/s/journal.db", project="/srv/shop")
    report.add(
        Finding(
            kind="diverged", message="decided otherwise", seq=3, project="/srv/shop", track="main",
            event="advanced", engine="0.1.0", differences=(difference,),
        )
    )  # fmt: skip
    report.further_findings = 2

    lines = verified(report)

    assert "        recorded  \\x1b[2J" in lines
    assert max(map(len, lines)) < 400
    assert "    decided by handoffd 0.1.0" in lines
    assert "and 2 more." in lines
    assert "  next: handoffd events /srv/shop --after 0 --limit 5" == lines[-1]
    assert any("3 problem" in line for line in lines)


def test_a_verification_mentions_restores() -> None:
    """Numbers that are left out are not missing."""
    report = Report(journal="/s/journal.db", project=None)
    report.restores = ({"at": "2026-02-01T07:30:00+00:00", "after": 5, "next": 9},)

    assert "from a backup that ended at event 5; numbers go on at 9." in verified(report)[0]


def test_a_backup_has_the_command_that_restores_it() -> None:
    """With its path."""
    lines = backed_up(Copy(file="/b/monday.db", size=3 * 1024 * 1024, schema=2, newest=5))

    assert "/b/monday.db: 3.0 MiB, up to event 5, checked." == lines[0]
    assert "handoffd stop && handoffd journal restore /b/monday.db" in lines[1]


def restoration(**more: Any) -> Restoration:
    """Return a restore that changed nothing else, with `more`."""
    values = {"newest": 5, "replaced": None, "paused": (), "kept": (), "overtaken": (), "ended": ()}
    return Restoration(file="/b/monday.db", journal="/s/journal.db", **values | more)


def test_a_restore_lists_runs_and_projects() -> None:
    """Many projects do not fill the screen."""
    said = "\n".join(
        restored(
            restoration(
                replaced="/s/journal.db.before-1", paused=tuple(f"/srv/p{number}" for number in range(25)),
                kept=("d1",), overtaken=("d2",), ended=("d3",),
            )
        )
    )  # fmt: skip

    for part in ("before-1", "adopted: d1", "overtaken since: d2", "ended: d3", "25 projects", "and 5 more"):
        assert part in said


def test_a_restore_names_what_it_left_out() -> None:
    """With the reason, and the command that may repair it."""
    left_out = Omitted(project="/srv/shop", track="main", why="its body is another one")

    said = restored(restoration(left_out=(left_out,)))

    assert said[1].startswith("/srv/shop (main) is left out: its record in the backup was changed")
    assert "handoffd journal repair" in said[-1]
    assert ["No project needs you: handoffd run"] == restored(restoration())[1:]


# --- gc ---------------------------------------------------------------------------------------------
def collected(**more: Any) -> dict[str, Any]:
    """Return an answer of the API with `more`."""
    doomed = [
        {"kind": "run", "what": f"/state/runs/r{number}", "project": "/srv/shop", "bytes": 1024, "why": "old"}
        for number in range(25)
    ]
    sizes = [
        {"kind": "run", "project": "/srv/shop", "count": 25, "bytes": 25600},
        {"kind": "journal", "project": None, "count": 1, "bytes": 4096},
    ]
    return {"dry_run": False, "doomed": doomed, "sizes": sizes, "kept": {"young": 3, "running": 1}, **more}


def test_gc_lists_what_was_removed_and_what_stays() -> None:
    """By kind, with the reasons for what stays."""
    lines = report(collected())

    assert ["WHAT", "PROJECT", "COUNT", "SIZE"] == lines[0].split()
    assert "records of runs  /srv/shop  25     25 KiB" == lines[1]
    assert "removed: 25 × records of runs, 25 KiB" in lines
    assert "runs kept: 1 running, 3 young" == lines[-1]


def test_gc_says_why_each_clone_stays() -> None:
    """A line for each, the largest first."""
    kept = [
        {"story": "US-001", "project": "/srv/shop", "bytes": 1024, "kept": "its story runs impl"},
        {"story": "US-002", "project": "/srv/blog", "bytes": 2048, "kept": "it has changes"},
    ]
    assert [
        "clone kept: US-002 of /srv/blog, 2.0 KiB: it has changes",
        "clone kept: US-001 of /srv/shop, 1.0 KiB: its story runs impl",
    ] == report(collected(clones=kept))[-2:]
    assert "… and 4 more (handoffd workspaces)" == report(collected(clones=kept * 12))[-1]


def test_a_dry_run_names_the_first_ones() -> None:
    """Each with its reason; the rest is counted."""
    lines = report(collected(dry_run=True))

    assert "would go: 25 × records of runs, 25 KiB" in lines
    assert "    /state/runs/r19: old" in lines
    assert "    … and 5 more (--json)" in lines
    assert "    /state/runs/r20: old" not in lines


def test_gc_reports_that_there_was_nothing_to_remove() -> None:
    """Instead of silence."""
    assert "removed: nothing" in report(collected(doomed=[], sizes=[], kept={}))


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (15 * 1024, "15 KiB"), (3 * 2**30, "3.0 GiB")],
)  # fmt: skip
def test_bytes_are_in_units_of_1024(count: int, text: str) -> None:
    """With few digits."""
    assert text == size_of(count)


def test_gc_works_without_a_daemon(alone: Path, handoffd: Commands) -> None:
    """Where nothing was ever kept, nothing is removed."""
    said = handoffd("gc", "--dry-run", "--json")

    assert (0, "") == (said.code, said.err)
    assert (True, [], 0) == (said.json["dry_run"], said.json["doomed"], said.json["freed_bytes"])
    assert "removed: nothing" in handoffd("gc").out
