"""How many decisions a second become durable, and how many hand-offs with the dispatch after them.

In this process, with the daemon's own parts, for many projects at once. A cycle is everything between two
executors except their start: read the hand-off, decide, commit to the journal, write STATE.json, decide the
dispatch, commit, write STATE.json. A transition is one decision and its commit alone. What an executor
writes is not timed, and no prompt is made: neither is the reference's outside of its library (`cycles.cjs`).

The floor reads and writes as much as a cycle, as durably, and decides nothing: no single process that keeps
the promises on this disk can be faster.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
from anyio import to_thread
from tests.benchmarks.fleet import STORY, table
from tests.benchmarks.measures import summary
from tests.benchmarks.rows import Row, ratio

from handoffd.app.logs import configure_logging
from handoffd.capacity.budgets import Budgets
from handoffd.capacity.slots import Slots
from handoffd.clock import SystemClock
from handoffd.engine.decide import decide
from handoffd.engine.events import Advanced, Event, ExecutorExited, Started
from handoffd.engine.run import Exit
from handoffd.engine.track import Track, TrackKey
from handoffd.execute.process import Launcher
from handoffd.execute.registry import load_book, shipped_layer
from handoffd.files.atomic import replace_text
from handoffd.inspection.own_files import shipped_layers
from handoffd.journal.journal import Journal
from handoffd.journal.records import Record
from handoffd.notify.notifier import Notifier
from handoffd.protocol.rule_merge import Layer
from handoffd.protocol.rulebook import build_rulebook
from handoffd.protocol.rules import RuleBook
from handoffd.protocol.state import State
from handoffd.settings.model import LogSettings, SchedulingSettings, Settings
from handoffd.track.ai_folder import HandoffFiles
from handoffd.track.committed_state import CommittedState
from handoffd.track.reach import follow as follow_threads
from handoffd.track.services import Services

PROBE_S = 0.005
_CLOCK = SystemClock()
_THREADS = 8
_STATE = json.dumps({"key": "value" * 300})
"""As long as a STATE.json, an event and a track are."""
_FRONT = """\
---
story: {story}
step: {step}
attempt: 1
dispatch: {dispatch}
status: pass
reason: null
files_changed:
  - src/app.py
  - tests/test_app.py
tests_pass: 12
tests_fail: 0
tests_skip: 1
---
Done.
"""


class Line:
    """One project on its way through its steps."""

    def __init__(self, root: Path, services: Services, rules: RuleBook) -> None:
        (root / ".ai").mkdir(parents=True)
        self._root = root
        self._rules = rules
        self._journal = services.journal
        self._files = HandoffFiles(str(root))
        key = TrackKey(str(root))
        self._committed = CommittedState(key, Track(state=State(project=root.name)), None, services)
        self._dispatches = 0
        self._told: ExecutorExited | None = None

    async def begin(self) -> None:
        """Start the story, and dispatch its first step."""
        await self._show(Started(story=STORY))
        await self._show(self._turn())

    def hand_over(self) -> None:
        """Write what the executor of the step in hand would."""
        dispatch = self._committed.track.ledger.dispatch
        assert dispatch is not None
        front = _FRONT.format(story=dispatch.story, step=dispatch.step, dispatch=dispatch.id)
        (self._root / ".ai" / "HANDOFF.md").write_text(front)
        self._told = self._exited()

    async def cycle(self) -> None:
        """Take the hand-off, and dispatch the next step."""
        await self._show(await to_thread.run_sync(self._exited))
        await self._show(self._turn())

    async def transitions(self) -> None:
        """Decide and commit both, without a look at any file of the project."""
        assert self._told is not None
        await self._commit(self._told)
        await self._commit(self._turn())

    def _exited(self) -> ExecutorExited:
        dispatch = self._committed.track.ledger.dispatch
        assert dispatch is not None
        reading, mark = self._files.read(dispatch)
        return ExecutorExited(dispatch=dispatch.id, exit=Exit(code=0), reading=reading, mark=mark)

    def _turn(self) -> Advanced:
        self._dispatches += 1
        mark = self._committed.track.ledger.last_mark
        return Advanced(dispatch=f"{self._root.name}-{self._dispatches}", executor="stub", mark=mark)

    async def _show(self, event: Event) -> None:
        await self._committed.commit(event, decide(self._committed.track, event, self._rules, _CLOCK.now()))

    async def _commit(self, event: Event) -> None:
        key, now = self._committed.key, _CLOCK.now()
        decided = decide(self._committed.track, event, self._rules, now)
        await self._journal.commit(
            Record(
                key=key, at=now, event=event, track=decided.track, effects=decided.effects,
                result=decided.result, why=decided.why, state_text=None, rules=self._rules,
                grounds=decided.grounds,
            )
        )  # fmt: skip
        self._committed.track = decided.track


Work = Callable[[Line], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class Found:
    """Rates, each a second, and how late the event loop came to what was due, in seconds."""

    cycles: float
    floor: float
    transitions: float
    lags_s: list[float]


def measure(base: Path, projects: int, rounds: int) -> Found:
    """Return the rates of each round over `projects` projects at once, logging like the daemon."""
    base.mkdir(parents=True, exist_ok=True)
    with (base / "log").open("w") as log:
        configure_logging(LogSettings(), stream=log, environment={})
        return anyio.run(_measured, base, projects, rounds)


def rows(base: Path, projects: int, rounds: int, theirs: float | None) -> list[Row]:
    """Return the rates beside the reference's `theirs`, in cycles a second."""
    found = measure(base, projects, rounds)
    lag = summary(found.lags_s)
    return [
        Row(what="durable transitions a second", value=found.transitions, unit="/s", at_least=1000),
        Row(what="hand-off + dispatch cycles a second", value=found.cycles, unit="/s"),
        Row(what="floor: the same files and rows, nothing decided", value=found.floor, unit="/s"),
        Row(what="the reference's, which syncs nothing", value=theirs, unit="/s"),
        Row(what="cycles / reference", value=ratio(found.cycles, theirs), unit="x", at_least=2),
        Row(what="lag of the event loop under it, p50", value=lag.p50, unit="ms"),
        Row(what="lag of the event loop under it, p99", value=lag.p99, unit="ms", at_most=20),
    ]


async def _measured(base: Path, projects: int, rounds: int) -> Found:
    rules = _rules(steps=2 * rounds + 2)
    lags: list[float] = []
    async with _services(base) as services, anyio.create_task_group() as tasks:
        lines = [Line(base / "lines" / f"line-{number}", services, rules) for number in range(projects)]
        await _all(lines, Line.begin)
        tasks.start_soon(follow_threads, to_thread.current_default_thread_limiter())
        tasks.start_soon(_probe, lags)
        cycles = await _timed(lines, Line.cycle, rounds)
        transitions = await _timed(lines, Line.transitions, rounds)
        tasks.cancel_scope.cancel()
    floor = await to_thread.run_sync(_floor, base / "floor", projects, rounds)
    each = projects * rounds
    return Found(round(each / cycles, 1), round(each / floor, 1), round(2 * each / transitions, 1), lags)


def _floor(base: Path, projects: int, rounds: int) -> float:
    """Return how long the reading and writing of all cycles takes, in seconds."""
    base.mkdir()
    places = [base / f"STATE-{number}.json" for number in range(projects)]
    for place in places:
        place.write_text(_STATE)
    with closing(sqlite3.connect(base / "rows.db")) as db, ThreadPoolExecutor(_THREADS) as threads:
        db.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE rows (event, track)"
        )
        began = time.perf_counter()
        for _ in range(rounds):
            list(threads.map(Path.read_text, places))
            for _ in range(2):  # the verdict, and the dispatch
                with db:
                    db.executemany("INSERT INTO rows VALUES (?, ?)", [(_STATE, _STATE)] * projects)
                list(threads.map(replace_text, places, [_STATE] * projects))
        return time.perf_counter() - began


async def _probe(lags: list[float]) -> None:
    """Note how late a short sleep ends, until cancelled."""
    while True:
        due = time.perf_counter() + PROBE_S
        await anyio.sleep(PROBE_S)
        lags.append(max(0.0, time.perf_counter() - due))


async def _timed(lines: Sequence[Line], work: Work, rounds: int) -> float:
    spent = 0.0
    for _ in range(rounds):
        for line in lines:
            line.hand_over()
            await anyio.lowlevel.checkpoint()  # the executors' writes must not count as lag
        began = time.perf_counter()
        await _all(lines, work)
        spent += time.perf_counter() - began
    return spent


async def _all(lines: Sequence[Line], work: Work) -> None:
    async with anyio.create_task_group() as tasks:
        for line in lines:
            tasks.start_soon(work, line)
            await anyio.lowlevel.checkpoint()  # each is an event of its own, however close they come


def _rules(steps: int) -> RuleBook:
    return build_rulebook([*shipped_layers(None), Layer("table", json.dumps(table(steps)))])


@asynccontextmanager
async def _services(base: Path) -> AsyncIterator[Services]:
    settings = Settings(state_dir=base / "state", runtime_dir=base / "run", executor="command")
    settings.state_dir.mkdir(mode=0o700, parents=True)
    journal = await Journal.open(settings.journal)
    notifier = Notifier(settings.notify, _CLOCK, journal.outbox)
    try:
        yield Services(
            settings=settings,
            journal=journal,
            launcher=Launcher(settings.launcher_socket),
            executors=load_book(shipped_layer()),
            notifier=notifier,
            slots=Slots(settings.execute.slots, SchedulingSettings(min_free_memory_mb=0)),
            budgets=Budgets(settings.caps, _CLOCK, notifier.send, str(settings.state_dir)),
            clock=_CLOCK,
            environment={},
        )
    finally:
        await journal.close()
