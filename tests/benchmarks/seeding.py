"""A journal that knows many projects, made at once: adding them one by one takes longer than measuring."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import anyio

from handoffd.engine.decision import Accepted
from handoffd.engine.events import Noted
from handoffd.engine.track import Ledger, Track, TrackKey
from handoffd.inspection.own_files import read_texts
from handoffd.journal.journal import Journal
from handoffd.journal.records import Record
from handoffd.protocol.state import parse_state

_AT_ONCE = 200
_NOW = datetime(2026, 1, 31, 22, 15, 9, tzinfo=UTC)


def seed(journal: Path, roots: Sequence[Path]) -> None:
    """Record these existing projects in the journal at `journal`, at Level 2."""
    journal.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    anyio.run(_seed, journal, roots)


async def _seed(path: Path, roots: Sequence[Path]) -> None:
    journal = await Journal.open(path)
    for begin in range(0, len(roots), _AT_ONCE):
        async with anyio.create_task_group() as tasks:
            for root in roots[begin : begin + _AT_ONCE]:
                tasks.start_soon(_enter, journal, root)
    await journal.close()


async def _enter(journal: Journal, root: Path) -> None:
    text = (root / ".ai/STATE.json").read_text()
    state = parse_state(text).state
    done = (state.story,) if state.story is not None else ()
    track = Track(state=state, ledger=Ledger(automatic=True, stories_done=done))
    result = Accepted(step=state.step, status=state.status.value, message="taken", caller_instruction="go on")
    await journal.add_project(str(root), root.name, _NOW)
    for name, own in read_texts(root).items():
        await journal.trust(str(root), name, own or "", _NOW)
    await journal.commit(
        Record(
            key=TrackKey(str(root)),
            at=_NOW,
            event=Noted(text="seeded"),
            track=track,
            effects=(),
            result=result,
            why="the benchmark begins here",
            state_text=text,
        )
    )
