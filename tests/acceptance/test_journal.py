"""The journal of a real daemon: replayed while it grows, backed up, put back under a story that went on."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.support.agents import GATED, HELD, held_starts, release
from tests.support.commands import Said, assert_replayed, typed
from tests.support.daemon import Daemon, Json, running, sample
from tests.support.eventually import eventually_sync


def journal(daemon: Daemon, *words: str) -> Said:
    """Return what `handoffd journal` says about this daemon's journal."""
    return typed(daemon, "journal", *words, "--json")


def executing(daemon: Daemon, project: Path, step: str) -> Json:
    """Return the track once an executor of `step` is known to run, and has written that down."""
    track = daemon.wait_for(project, lambda t: (t["step"], t["phase"]) == (step, "executing"))
    eventually_sync(lambda: track["dispatch"] in held_starts(project))
    return track


def forget_the_start(backup: Path) -> None:
    """Make a backup what it would have been a moment earlier: ordered, and not yet done."""
    with closing(sqlite3.connect(backup)) as db:
        changed = db.execute(
            "UPDATE effects SET outcome = NULL WHERE json_extract(effect, '$.kind') = 'spawn'"
        )
        assert 1 == changed.rowcount
        db.commit()


def test_a_journal_is_replayed_beside_the_daemon_that_writes_it(tmp_path: Path) -> None:
    """Failures, a crash of the daemon, a gate, notes and a changed step table: all decided again the same."""
    script = {"bdd": ["crash", "fail", "slow:1"], "impl": ["lie", "pass"]}
    project = sample(tmp_path, script=script)
    with running(tmp_path) as daemon:
        daemon.verb("start", project, story="US-001")
        daemon.wait_for(project, lambda t: (t["step"], t["attempt"]) != ("bdd", 1) and t["dispatch"])
        assert_replayed(daemon)
        daemon.kill()
        daemon.start()
        daemon.wait_at(project, "review", "needs_human")
        (project / ".ai/step-rules.yaml").write_text("steps: {impl: {max_attempts: 7}}\n")
        daemon.verb("trust", project)
        daemon.verb("note", project, text="金額以分計")
        daemon.verb("approve", project, note="Mind the rounding.")
        daemon.wait_at(project, "done", "pass")

        assert_replayed(daemon)
        with closing(sqlite3.connect(daemon.state_dir / "journal.db")) as db:
            assert 2 == db.execute("SELECT count(*) FROM rulebooks").fetchone()[0]


def test_an_older_journal_put_back_starts_nothing_twice(tmp_path: Path) -> None:
    """The story has gone on and its next executor runs: it is ended, and a person says how it goes on."""
    project = sample(tmp_path, executor="held")
    backup = str(tmp_path / "backup.db")
    with running(tmp_path, HELD) as daemon:
        daemon.verb("start", project, story="US-001")
        first = executing(daemon, project, "bdd")
        assert 0 == journal(daemon, "backup", backup).code
        release(project, "bdd")
        later = executing(daemon, project, "sdd-delta")

        assert "LOCKED" == journal(daemon, "restore", backup).json["code"]
        daemon.kill()
        assert "EXECUTORS_RUN" == journal(daemon, "restore", backup).json["code"]
        restored = journal(daemon, "restore", backup, "--end-executors").json
        assert ([first["dispatch"]], [later["dispatch"]]) == (restored["overtaken"], restored["ended"])

        daemon.start()
        # STATE.json is newer than the journal: the story is where the file says, and waits for a person.
        daemon.wait_at(project, "sdd-delta", "running")
        assert [first["dispatch"], later["dispatch"]] == held_starts(project)
        assert_replayed(daemon)

        release(project, "sdd-delta", "contract")
        daemon.verb("resume", project)
        daemon.verb("abort", project)
        daemon.verb("rollback", project, step="bdd")
        daemon.wait_at(project, "review", "needs_human")
        assert len(set(held_starts(project))) == len(held_starts(project))
        assert_replayed(daemon)


def test_an_executor_that_a_restore_finds_at_work_is_adopted(tmp_path: Path) -> None:
    """The backup was taken between the decision and its start; nothing has come of it since."""
    project = sample(tmp_path, executor="held")
    backup = tmp_path / "backup.db"
    with running(tmp_path, HELD) as daemon:
        daemon.verb("start", project, story="US-001")
        flying = executing(daemon, project, "bdd")
        assert 0 == journal(daemon, "backup", str(backup)).code
        forget_the_start(backup)
        daemon.kill()

        assert [flying["dispatch"]] == journal(daemon, "restore", str(backup)).json["kept"]

        daemon.start()
        adopted = daemon.wait_for(project, lambda t: t["pid"] is not None)
        assert (flying["dispatch"], flying["pid"]) == (adopted["dispatch"], adopted["pid"])
        release(project, "bdd")
        daemon.wait_at(project, "bdd", "pass")
        assert [flying["dispatch"]] == held_starts(project)
        assert_replayed(daemon)


def gone(folder: Path) -> bool:
    """Remove a folder, and return whether it is."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def test_an_order_to_start_whose_records_are_lost_is_not_obeyed(tmp_path: Path) -> None:
    """Restored where nothing is known of the run (another machine), the attempt gets a new id."""
    project = sample(tmp_path, executor="held")
    backup = tmp_path / "backup.db"
    with running(tmp_path, HELD) as daemon:
        daemon.verb("start", project, story="US-001")
        flying = executing(daemon, project, "bdd")
        assert 0 == journal(daemon, "backup", str(backup)).code
        forget_the_start(backup)
        daemon.stop(executors=True)
        eventually_sync(lambda: not daemon.processes())
        eventually_sync(lambda: gone(daemon.state_dir))  # the last process may write there as it ends
        daemon.state_dir.mkdir(mode=0o700)

        restored = journal(daemon, "restore", str(backup)).json
        assert ([flying["dispatch"]], None) == (restored["overtaken"], restored["replaced"])

        assert 0 == typed(daemon, "trust", "--daemon", "--yes").code
        daemon.start()
        daemon.wait_saying(project, "journal restore")
        assert [flying["dispatch"]] == held_starts(project)
        release(project, "bdd", "sdd-delta", "contract")
        daemon.verb("resume", project)
        daemon.wait_at(project, "review", "needs_human")
        assert len(set(held_starts(project))) == len(held_starts(project)) == 4
        assert_replayed(daemon)


def test_an_order_that_cannot_be_read_sets_aside_its_project_alone(tmp_path: Path) -> None:
    """The daemon starts, tells a person, and the other project goes on."""
    project, other = (sample(tmp_path / name, rules=GATED) for name in ("one", "other"))
    with running(tmp_path) as daemon:
        for one in (project, other):
            daemon.to_review(one)
        daemon.kill()
        with closing(sqlite3.connect(daemon.state_dir / "journal.db")) as db:
            db.execute(
                """UPDATE effects SET effect = '{', outcome = NULL WHERE id =
                (SELECT max(id) FROM effects WHERE project = ?)""",
                (str(project),),
            )
            db.commit()
        daemon.start()

        view = daemon.view(project)

        assert "invalid_journal" == view["condition"]
        assert "cannot be read" in view["detail"]
        assert "UNSOUND_JOURNAL" == daemon.verb("approve", project)["code"]
        eventually_sync(
            lambda: any("changed outside handoffd" in one["text"] for one in daemon.told(project))
        )
        daemon.verb("approve", other)
        daemon.wait_for(other, lambda track: track["step"] == "done")


def test_a_track_that_was_edited_in_the_journal_passes_no_gate(tmp_path: Path) -> None:
    """After a restart the project waits and status gives the reason; repaired, it is at its gate again."""
    project = sample(tmp_path, rules=GATED)
    with running(tmp_path) as daemon:
        daemon.to_review(project)
        ran = len(daemon.runs(project))
        daemon.kill()
        with closing(sqlite3.connect(daemon.state_dir / "journal.db")) as db:
            body = (
                """replace(replace(body, '"step":"review"', '"step":"scaffold"'), 'needs_human', 'pending')"""
            )
            db.execute(f"UPDATE tracks SET body = {body}, step = 'scaffold', status = 'pending'")
            db.commit()
        daemon.start()

        view = daemon.view(project)
        refused = daemon.verb("approve", project)

        assert ("invalid_journal", "UNSOUND_JOURNAL") == (view["condition"], refused["code"])
        assert "was changed outside handoffd: its body is not the one" in view["detail"]
        assert ("review", "needs_human") == (view["tracks"][0]["step"], view["tracks"][0]["status"])
        eventually_sync(
            lambda: any("changed outside handoffd" in one["text"] for one in daemon.told(project))
        )
        assert (1, ran) == (journal(daemon, "verify").code, len(daemon.runs(project)))
        daemon.terminate()
        assert 0 == journal(daemon, "repair").code
        daemon.start()
        daemon.wait_at(project, "review", "needs_human")
        daemon.verb("approve", project)
        daemon.wait_for(project, lambda track: track["step"] == "done")
