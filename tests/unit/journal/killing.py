"""Writers that are killed at random moments, and what must hold afterwards.

Run as `python -m tests.unit.journal.killing STATE_DIR ROOT`, each line on stdin starts a writer. It is forked
from here, where everything is imported already, so that a kill costs milliseconds. A writer prints
`C <track> <seq>` after each commit and `W <track> <seq>` after each projection; `pid <n>` and `gone` frame
its life.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
from tests.support.children import ending
from tests.unit.journal.making import record

from handoffd.engine.decision import WriteChecklist
from handoffd.engine.events import Noted
from handoffd.engine.track import TrackKey
from handoffd.files.atomic import digest_of
from handoffd.files.state_file import read_state, write_state
from handoffd.journal import queries
from handoffd.journal.journal import Journal

TOP = Path(__file__).parents[3]
Acknowledged = dict[str, dict[str, int]]
TRACKS = ("main", "US-1", "US-2")


def text_of(track: str, turn: int) -> str:
    """Return a projection that names its turn in every part."""
    return f"{track} {turn}\n" * (50 + turn % 200)


def _say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def _write(journal: Journal, root: Path, track: str) -> None:
    turn = journal.newest * 10
    while True:
        turn += 1
        text = text_of(track, turn)
        effects = (WriteChecklist(story="US-1", task_type="story"),)
        event = Noted(text=f"{turn}")
        committed = await journal.commit(
            record(event, key=TrackKey(str(root), track), effects=effects, text=text)
        )
        _say("C", track, committed.seq)
        write_state(root, track, text)
        _say("W", track, committed.seq)
        await journal.effect_done(committed.effects[0].key.project, committed.effects[0].id)


async def _live(state_dir: Path, root: Path) -> None:
    journal = await Journal.open(state_dir / "journal.db")
    async with anyio.create_task_group() as group:
        for track in TRACKS:
            group.start_soon(_write, journal, root, track)


def main(state_dir: Path, root: Path) -> None:
    """Start a writer for every line on stdin, one after the other."""
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            anyio.run(_live, state_dir, root)
        _say("pid", child)
        os.waitpid(child, 0)
        _say("gone")


@contextmanager
def nursery(state_dir: Path, root: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield the process that starts writers."""
    paths = os.pathsep.join(map(str, (TOP / "daemon", TOP, os.environ.get("PYTHONPATH", ""))))
    command = [sys.executable, "-m", "tests.unit.journal.killing", str(state_dir), str(root)]
    with ending(subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        env={**os.environ, "PYTHONPATH": paths},
    )) as process:  # fmt: skip
        yield process
        assert process.stdin
        process.stdin.close()


def live_and_die(process: subprocess.Popen[str], chance: random.Random) -> Acknowledged:
    """Start a writer, kill it at some moment, and return the last number of each kind it reported."""
    assert process.stdin
    assert process.stdout
    process.stdin.write("another\n")
    said: Acknowledged = {"C": {}, "W": {}}
    pid, left = 0, chance.randrange(1, 40)
    for line in process.stdout:
        kind, *words = line.split()
        if kind == "gone":
            break
        if kind == "pid":
            pid = int(words[0])
        elif kind in said:
            said[kind][words[0]] = int(words[1])
            left -= 1
        if left == 0 and pid:
            time.sleep(chance.random() * 0.003)  # so that it dies anywhere, not just after a report
            os.kill(pid, signal.SIGKILL)
    return said


def check(db: sqlite3.Connection, root: Path, said: Acknowledged) -> None:
    """Assert that all that was acknowledged is there, and that projections are whole and known."""
    assert [("ok",)] == db.execute("PRAGMA integrity_check").fetchall()
    assert [] == db.execute("PRAGMA foreign_key_check").fetchall()
    newest = dict(db.execute("SELECT track, max(seq) FROM events GROUP BY track"))
    for track, seq in said["C"].items():
        assert seq <= newest[track], "an acknowledged commit was lost"
    for stored in queries.tracks(db):
        event = queries.events(db, stored.seq - 1, 1)[0]
        assert (newest[stored.key.track], event.key) == (stored.seq, stored.key)
        assert digest_of(text_of(stored.key.track, int(event.event["text"]))) == stored.digest
        seen = read_state(root, stored.key.track)
        if seen is not None:
            (projected,) = db.execute(
                "SELECT seq FROM projections WHERE digest = ?", (seen.digest,)
            ).fetchone()
            assert said["W"].get(stored.key.track, 0) <= projected <= stored.seq


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
