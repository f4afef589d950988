"""Killing writers (`victim.py`) at random moments, and what must hold afterwards."""

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

from tests.support.children import ending
from tests.unit.journal.victim import text_of

from handoffd.files.atomic import digest_of
from handoffd.files.state_file import read_state
from handoffd.journal import queries

TOP = Path(__file__).parents[3]

Acknowledged = dict[str, dict[str, int]]


@contextmanager
def nursery(state_dir: Path, root: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield the process that starts writers."""
    paths = os.pathsep.join(map(str, (TOP / "daemon", TOP, os.environ.get("PYTHONPATH", ""))))
    command = [sys.executable, "-m", "tests.unit.journal.victim", str(state_dir), str(root)]
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
        event = queries.events(db, stored.seq - 1, None, 1)[0]
        assert (newest[stored.key.track], event.key) == (stored.seq, stored.key)
        assert digest_of(text_of(stored.key.track, int(event.event["text"]))) == stored.digest
        seen = read_state(root, stored.key.track)
        if seen is not None:
            (projected,) = db.execute(
                "SELECT seq FROM projections WHERE digest = ?", (seen.digest,)
            ).fetchone()
            assert said["W"].get(stored.key.track, 0) <= projected <= stored.seq
