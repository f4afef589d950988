"""A story played through the real engine and recorded as the daemon records it; and how to spoil it.

What the tests of the journal's replay look at: nothing in it is made up.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
from tests.support.playbook import Playbook

from handoffd.engine.events import Approved, Event, Initialised, Noted
from handoffd.engine.track import Track, TrackKey
from handoffd.journal.journal import Journal
from handoffd.journal.records import Record
from handoffd.protocol.rules import RuleBook
from handoffd.protocol.state import Reason, render_state

SHOP = TrackKey("/srv/shop")
BLOG = TrackKey("/srv/blog")


class RecordedPlay(Playbook):
    """A playbook that keeps every decision as the record the daemon would commit."""

    def __init__(self, key: TrackKey = SHOP, rules: RuleBook | None = None) -> None:
        super().__init__(Track(), rules)
        self.key = key
        self.records: list[Record] = []

    def turn(self, **fields: Any) -> RecordedPlay:
        """Take a turn with an id that no other project has."""
        number = f"{self.key.project.rsplit('/', 1)[-1]}-{self._numbers + 1}"
        super().turn(**{"dispatch": number, **fields})
        return self

    def given(self, event: Event, *, after_min: float = 0) -> RecordedPlay:
        """Decide, and record what was decided unless it changes nothing."""
        before = self.track
        super().given(event, after_min=after_min)
        decision, state = self.decision, self.track.state
        if decision.track != before or decision.effects or decision.memorable:
            assert decision.basis is not None
            self.records.append(
                Record(
                    key=self.key, at=decision.basis.now, event=event, track=decision.track,
                    effects=decision.effects, result=decision.result, why=decision.why,
                    state_text=None if state is None else render_state(state),
                    rules=decision.basis.rules, grounds=decision.grounds,
                )
            )  # fmt: skip
        return self


def story(key: TrackKey = SHOP, rules: RuleBook | None = None) -> RecordedPlay:
    """Return a story with a failure, a gate and a note, up to its impl."""
    play = RecordedPlay(key, rules)
    play.given(Initialised(project=key.project.rsplit("/", 1)[-1])).started()
    play.step_passes().step_fails().step_passes().step_passes(files_changed=("docs/api/openapi.yaml",))
    play.turn().given(Approved(note="Mind the rounding.", by="eve"), after_min=30)
    play.step_passes().step_fails(Reason.NEEDS_CLARIFICATION).turn()
    play.given(Noted(text="See the log.", by="eve"))
    return play


def write(path: Path, *plays: RecordedPlay) -> None:
    """Commit what was played, one play after the other, each in a project that was added."""

    async def commit() -> None:
        journal = await Journal.open(path)
        try:
            for play in plays:
                root = play.key.project
                await journal.add_project(root, root.rsplit("/", 1)[-1], play.records[0].at)
                for record in play.records:
                    await journal.commit(record)
        finally:
            await journal.close()

    anyio.run(commit)


def spoil(path: Path, *statements: str, values: dict[str, Any] | None = None) -> None:
    """Tamper with a journal: without its protecting triggers, with unchecked references."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TRIGGER IF EXISTS events_stay")
        db.execute("DROP TRIGGER IF EXISTS events_remain")
        for statement in statements:
            db.execute(statement, values or {})
        db.commit()
