"""How many decisions a second become durable, and how many hand-offs with the dispatch after them.

In this process, with the daemon's own parts, for many projects at once. A cycle is what lies between two
executors but their start: read the hand-off, decide, commit to the journal, write STATE.json, decide the
dispatch, commit, write STATE.json. A transition is one decision and its commit alone. What an executor
writes is not timed, and no prompt is made: neither is the reference's outside of its library (`cycles.cjs`).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
from anyio import to_thread
from tests.benchmarks.fleet import STORY, table

from handoffd.clock import SystemClock
from handoffd.engine.decide import decide
from handoffd.engine.events import Advanced, Event, ExecutorExited, Exit
from handoffd.engine.requests import Started
from handoffd.engine.track import Track, TrackKey
from handoffd.execute.process import Launcher
from handoffd.execute.registry import load_book, shipped_layer
from handoffd.inspection.table import shipped_layers
from handoffd.notify.fanout import Notifier
from handoffd.protocol.rulebook import Layer, build_rulebook
from handoffd.protocol.rules import RuleBook
from handoffd.protocol.state import State
from handoffd.settings import Settings
from handoffd.store.journal import Journal
from handoffd.store.records import Record
from handoffd.supervise.budgets import Budgets
from handoffd.supervise.handoffs import HandoffFiles
from handoffd.supervise.postbox import Postbox
from handoffd.supervise.services import Services
from handoffd.supervise.slots import Slots
from handoffd.supervise.standing import Standing

Rate = dict[str, float]

_CLOCK = SystemClock()
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
        self._standing = Standing(key, Track(state=State(project=root.name)), None, services)
        self._dispatches = 0

    async def begin(self) -> None:
        """Start the story, and dispatch its first step."""
        await self._show(Started(story=STORY))
        await self._show(self._turn())

    def hand_over(self) -> None:
        """Write what the executor of the step in hand would."""
        dispatch = self._standing.track.ledger.dispatch
        assert dispatch is not None
        front = _FRONT.format(story=dispatch.story, step=dispatch.step, dispatch=dispatch.id)
        (self._root / ".ai" / "HANDOFF.md").write_text(front)

    async def cycle(self) -> None:
        """Take the hand-off, and dispatch the next step."""
        await self._show(await to_thread.run_sync(self._exited))
        await self._show(self._turn())

    async def transitions(self) -> None:
        """Decide and commit both, without a look at any file of the project."""
        await self._commit(await to_thread.run_sync(self._exited))
        await self._commit(self._turn())

    def _exited(self) -> ExecutorExited:
        dispatch = self._standing.track.ledger.dispatch
        assert dispatch is not None
        reading, mark = self._files.read(dispatch)
        return ExecutorExited(dispatch=dispatch.id, exit=Exit(code=0), reading=reading, mark=mark)

    def _turn(self) -> Advanced:
        self._dispatches += 1
        mark = self._standing.track.ledger.last_mark
        return Advanced(dispatch=f"{self._root.name}-{self._dispatches}", executor="stub", mark=mark)

    async def _show(self, event: Event) -> None:
        await self._standing.commit(event, decide(self._standing.track, event, self._rules, _CLOCK.now()))

    async def _commit(self, event: Event) -> None:
        key, now = self._standing.key, _CLOCK.now()
        decided = decide(self._standing.track, event, self._rules, now)
        await self._journal.commit(
            Record(
                key=key, at=now, event=event, track=decided.track, effects=decided.effects,
                result=decided.result, why=decided.why, state_text=None, rules=self._rules,
                grounds=decided.grounds,
            )
        )  # fmt: skip
        self._standing.track = decided.track


def rates(base: Path, projects: int, rounds: int) -> dict[str, Rate]:
    """Return how many cycles and transitions a second there are, by rounds over so many projects."""
    return anyio.run(_rates, base, projects, rounds)


async def _rates(base: Path, projects: int, rounds: int) -> dict[str, Rate]:
    rules = _rules(steps=2 * rounds + 2)
    async with _services(base) as services:
        lines = [Line(base / "lines" / f"line-{number}", services, rules) for number in range(projects)]
        await _all(lines, Line.begin)
        cycles = await _timed(lines, Line.cycle, rounds)
        transitions = await _timed(lines, Line.transitions, rounds)
    each = projects * rounds
    return {"cycles": _rate(each, cycles), "transitions": _rate(2 * each, transitions)}


async def _timed(lines: Sequence[Line], work: Callable[[Line], Awaitable[None]], rounds: int) -> float:
    spent = 0.0
    for _ in range(rounds):
        for line in lines:
            line.hand_over()
        began = time.perf_counter()
        await _all(lines, work)
        spent += time.perf_counter() - began
    return spent


async def _all(lines: Sequence[Line], work: Callable[[Line], Awaitable[None]]) -> None:
    async with anyio.create_task_group() as tasks:
        for line in lines:
            tasks.start_soon(partial(work, line))


def _rate(count: int, seconds: float) -> Rate:
    return {"n": count, "seconds": round(seconds, 3), "per_second": round(count / seconds, 1)}


def _rules(steps: int) -> RuleBook:
    import json

    return build_rulebook([*shipped_layers(None), Layer("table", json.dumps(table(steps)))])


@asynccontextmanager
async def _services(base: Path) -> AsyncIterator[Services]:
    settings = Settings(state_dir=base / "state", runtime_dir=base / "run", executor="command")
    settings.state_dir.mkdir(parents=True)
    journal = await Journal.open(settings.journal)
    notifier = Notifier(settings.notify, _CLOCK, Postbox(journal))
    try:
        yield Services(
            settings=settings,
            journal=journal,
            launcher=Launcher(settings.launcher_socket),
            executors=load_book(shipped_layer()),
            notifier=notifier,
            slots=Slots(settings.execute.slots),
            budgets=Budgets(settings.caps, _CLOCK, notifier.send, str(settings.state_dir)),
            clock=_CLOCK,
            environment={},
        )
    finally:
        await journal.close()
