"""Processes that write to a journal and its projections until they are killed.

Run as `python victim.py STATE_DIR ROOT`; each line on stdin starts one. It is forked from here,
where everything is imported already, so that a kill costs milliseconds. A writer says on stdout
`C <track> <seq>` after each commit and `W <track> <seq>` after each projection; `pid <n>` and
`gone` frame its life.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
from tests.unit.journal.making import record

from handoffd.engine.decision import WriteChecklist
from handoffd.engine.events import Noted
from handoffd.engine.track import TrackKey
from handoffd.files.state_file import write_state
from handoffd.journal.journal import Journal

TRACKS = ("main", "US-1", "US-2")


def text_of(track: str, turn: int) -> str:
    """Return a projection whose every part tells which it is."""
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
        await journal.effect_done(committed.effects[0].id)


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


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
