"""Writes the golden journal of a schema: `python -m tests.data.journal.make …/schema-N.db`.

Run it once, from the top of the repository, when a schema is released. Files of released schemas
are never written again: they stand for the journals that people have.
"""

from __future__ import annotations

import re
import sqlite3
import sys
from datetime import UTC, datetime
from pathlib import Path

import anyio
from msgspec.structs import replace
from tests.unit.journal.flowing import played

from handoffd.engine.decision import Accepted, Effect, Notify, StopTree, WriteChecklist
from handoffd.engine.events import Advanced, Event, ExecutorExited, ExecutorStarted, Initialised, Started
from handoffd.engine.notice import Notice, Opening, Parcel
from handoffd.engine.run import Exit, Usage
from handoffd.engine.track import Dispatch, Facts, Ledger, Parked, Phase, StopReason, Track, TrackKey
from handoffd.journal.journal import Journal
from handoffd.journal.records import Fire, Newcomer, Record
from handoffd.journal.schema import STEPS, migrate
from handoffd.protocol.handoff import FileMark, Found, Handoff, HandoffMark
from handoffd.protocol.state import Reason, State, Status, TestCounts

SHOP = TrackKey("/srv/shop")
BLOG = TrackKey("/srv/blog", "US-007")
RULES = ".ai/step-rules.yaml"
FIRST, SECOND = "20260131T220000-000001", "20260131T221509-4f9a1c"


def _at(minute: int) -> datetime:
    return datetime(2026, 1, 31, 22, minute, tzinfo=UTC)


def _state(**changes: object) -> State:
    document = {"x-team": {"$owner": "金"}, "project": "shop", "story": "US-005", "step": "impl", **changes}
    state = State.model_validate(document)
    state._layout = tuple(document)
    return state


def _dispatch(number: str, attempt: int, phase: Phase, minute: int) -> Dispatch:
    return Dispatch(
        id=number, story="US-005", step="impl", attempt=attempt, executor="claude",
        decided_at=_at(minute), phase=phase,
    )  # fmt: skip


def _record(minute: int, event: Event, track: Track, *effects: Effect, key: TrackKey = SHOP) -> Record:
    state = track.state
    assert state is not None
    return Record(
        key=key, at=_at(minute), event=event, track=track, effects=effects,
        result=Accepted(step=state.step, status=state.status, message="taken", caller_instruction="wait"),
        why=f"{event.kind} was taken", state_text="the text of STATE.json\n" if key == SHOP else None,
    )  # fmt: skip


def _records(version: int) -> tuple[Record, ...]:
    mark = HandoffMark(handoff=FileMark(digest="ab" * 32, inode=7, mtime_ns=1_769_897_709_123_456_789))
    waiting = State(project="shop", story="US-004")
    parked = Parked(state=waiting, ledger=Ledger(visits={"bdd": 2}), give_back=True)
    ledger = Ledger(automatic=True, parked=(parked,), last_mark=mark, facts=Facts(files=("shop/cart.py",)))
    running = _state(status="running", dispatched_at="2026-01-31T22:00:00.123456Z")
    failing = _state(status="failing", reason="scope_warning")
    first = Track(state=running, ledger=replace(ledger, dispatch=_dispatch(FIRST, 1, Phase.STARTING, 0)))
    second = Track(state=running, ledger=replace(ledger, dispatch=_dispatch(SECOND, 2, Phase.EXECUTING, 15)))
    blog = Track(state=State(project="blog", story="US-007"))
    return (
        _record(0, Started(story="US-005"), first, WriteChecklist(story="US-005", task_type="story")),
        _record(1, Initialised(project="blog"), blog, key=BLOG),
        _record(10, _exited(mark, USAGE if version >= 4 else None), Track(state=failing, ledger=ledger)),
        _record(
            15, Advanced(dispatch=SECOND, executor="claude"), second, StopTree(dispatch=FIRST, why=TIMEOUT)
        ),
        _record(16, ExecutorStarted(dispatch=SECOND, pid=4242), second, NOTICE),
    )


TIMEOUT = StopReason.TIMEOUT
NOTICE = Notify(notice="warning", story="US-005", step="impl", text="attempt 1 failed")


USAGE = Usage(
    input_tokens=900, output_tokens=100, cache_read_tokens=9000, cache_write_tokens=500, cost_usd=0.25,
    priced="provider",
)  # fmt: skip


def _exited(mark: HandoffMark, usage: Usage | None) -> ExecutorExited:
    claim = Handoff(status=Status.FAILING, reason=Reason.SCOPE_WARNING, tests=TestCounts(passed=3, failed=1))
    reading = Found(handoff=claim, source="front-matter")
    exit_ = Exit(code=3, tail="擷取失敗\n", usage=usage, model="claude-sonnet-4-5" if usage else None)
    return ExecutorExited(dispatch=FIRST, exit=exit_, mark=mark, reading=reading)


def _opened(path: Path, version: int) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA foreign_keys = ON")
    migrate(connection, str(path), STEPS[:version])
    return connection


def _notice(name: str, key: TrackKey, minute: int) -> Notice:
    return Notice(
        id=name, at=_at(minute), project=key.project, name="shop", story="US-005", step="review",
        kind="needs_human", text="US-005 waits for a review", track=key.track,
    )  # fmt: skip


async def _notices(journal: Journal) -> None:
    """One delivered to both, one that only the command has taken, one given up by the webhook."""
    keys = {"delivered": SHOP, "waiting": SHOP, "given-up": TrackKey("/srv/blog", "")}
    await journal.outbox.open(["command", "webhook"])
    await journal.outbox.keep(
        [Parcel(notice=_notice(name, key, 17), sinks=("command", "webhook")) for name, key in keys.items()],
        100.5,
    )
    for waiting in await journal.outbox.waiting("command", 0, 10):
        await journal.outbox.delivered(waiting.number, 101)
    delivered, waits, lost = await journal.outbox.waiting("webhook", 0, 10)
    await journal.outbox.delivered(delivered.number, 102)
    await journal.outbox.failed(waits.number, "https://example.org answered 503", 103)
    await journal.outbox.give_up(lost.number, "https://example.org answered 422", 104)


async def _held(journal: Journal) -> None:
    """A gate that waits, told of to the command, held back from the webhook, and reminded of once."""
    gate = Parcel(
        notice=_notice("held", SHOP, 18), sinks=("command", "webhook"), held={"webhook": "quiet"},
        opens=Opening(lane=SHOP),
    )  # fmt: skip
    reminder = Parcel(notice=_notice("reminder", SHOP, 19), sinks=(), climbed=("held", 60.0))
    await journal.outbox.keep([gate, reminder], 105)


async def _make(path: Path, version: int) -> None:
    journal = Journal(path, _opened(path, version), 0)
    try:
        records = _records(version)
        if version >= 5:
            await journal.requests.claim("key-1", "fingerprint", _at(0))
            await journal.requests.claim("key-2", "fingerprint", _at(0))
            await journal.requests.answer("key-2", 200, '{"type": "reloaded"}')
            records = (replace(records[0], request="key-1"), *records[1:])
        if version >= 7:
            await journal.arm([(*SHOP[:1], name, "0 22 * * * UTC") for name in ("nightly", "look")], _at(0))
            asked = Started(story="US-005", schedule="nightly", due=_at(0))
            records = (replace(records[0], event=asked), *records[1:])
        for record in records:
            await journal.commit(record)
        if version >= 7:
            await journal.settle(
                Fire(
                    project=SHOP.project, schedule="look", due=_at(0), at=_at(1), outcome="skipped",
                    why="US-005 is in flight at impl",
                )
            )  # fmt: skip
        for one in (await journal.pending_effects())[:2]:
            await journal.effect_done(one.key.project, one.id)
        await journal.add_project("/srv/shop", "shop", _at(0))
        await journal.add_project("/srv/blog", "blog", _at(0))
        await journal.remove_project("/srv/blog", _at(20))
        if version >= 6:
            found = [Newcomer(root=f"/srv/work/{name}", name=name, brought_by="/srv/work") for name in "ab"]
            await journal.add_projects(found, _at(1), untrusted=(RULES,))
            await journal.let_go(["/srv/work/b"], _at(2))
        await journal.save_baseline(SHOP, "US-005", b"baseline")
        await journal.trust("/srv/shop", RULES, "steps: {}\n", _at(0))
        if version >= 3:
            await _notices(journal)
        if version >= 8:
            await _held(journal)
        if version >= 11:
            await journal.lives.begin(_at(0))
            await journal.lives.end(_at(30))
            await journal.lives.begin(_at(45))
        if version >= 12:
            await _flows(journal)
    finally:
        await journal.close()


async def _flows(journal: Journal) -> None:
    """One that has ended, and one that a task of its has sent back and that goes on."""
    for record in (*played(30, name="random-0030").records, *played(11, name="random-0011").records[:20]):
        await journal.commit_flow(record)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    assert not target.exists(), f"{target} is there already, and stays as it is"
    named = re.fullmatch(r"schema-(\d+)\.db", target.name)
    assert named, "the name says which schema: schema-N.db"
    anyio.run(_make, target, int(named[1]))
