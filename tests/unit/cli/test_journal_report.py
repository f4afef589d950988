"""What `handoffd journal` says to people."""

from __future__ import annotations

from handoffd.api.verification import Finding, Report
from handoffd.cli.journal import backed_up, restored, verified
from handoffd.engine.decide import Difference
from handoffd.fleet.journal_restore import Omitted, Restoration
from handoffd.journal.backup import Copy


def test_a_verification_ends_with_what_it_comes_to() -> None:
    """How much was replayed, what was not, and the verdict."""
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
    """What comes from a project cannot drive the terminal, and is cut."""
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


def test_restores_are_told_of() -> None:
    """Numbers that are left out are not missing."""
    report = Report(journal="/s/journal.db", project=None)
    report.restores = ({"at": "2026-02-01T07:30:00+00:00", "after": 5, "next": 9},)

    assert "from a backup that ended at event 5; numbers go on at 9." in verified(report)[0]


def test_a_backup_says_how_to_put_it_back() -> None:
    """The command, whole."""
    lines = backed_up(Copy(file="/b/monday.db", size=3 * 1024 * 1024, schema=2, newest=5))

    assert "/b/monday.db: 3.0 MiB, up to event 5, checked." == lines[0]
    assert "handoffd stop && handoffd journal restore /b/monday.db" in lines[1]


def test_a_restore_says_what_became_of_runs_and_projects() -> None:
    """Many projects do not fill the screen."""
    many = tuple(f"/srv/p{number}" for number in range(25))
    done = Restoration(
        file="/b/monday.db", journal="/s/journal.db", newest=5, replaced="/s/journal.db.before-1",
        paused=many, kept=("d1",), overtaken=("d2",), ended=("d3",),
    )  # fmt: skip

    said = "\n".join(restored(done))

    for part in ("before-1", "adopted: d1", "overtaken since: d2", "ended: d3", "25 projects", "and 5 more"):
        assert part in said


def test_a_restore_names_what_it_left_out() -> None:
    """With the reason, and what may bring it back."""
    left_out = Omitted(project="/srv/shop", track="main", why="its body is another one")
    done = Restoration(
        file="/b/monday.db", journal="/s/journal.db", newest=5, replaced=None,
        paused=(), kept=(), overtaken=(), ended=(), left_out=(left_out,),
    )  # fmt: skip

    said = restored(done)

    assert said[1].startswith("/srv/shop (main) is left out: its record in the backup was changed")
    assert "handoffd journal repair" in said[-1]


def test_a_restore_that_concerns_nobody_says_so() -> None:
    """There is nothing to look at."""
    done = Restoration(
        file="/b/monday.db", journal="/s/journal.db", newest=0, replaced=None,
        paused=(), kept=(), overtaken=(), ended=(),
    )  # fmt: skip

    assert ["No project needs you: handoffd run"] == restored(done)[1:]
