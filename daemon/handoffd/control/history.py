"""What has happened, as the API tells it: events and runs as plain JSON, and events as they come.

Numbers (`seq`) rise and are never used again, so a reader that was away asks on from the last one
it saw. Where that cannot be honoured, a line of type `gap` says so instead of silence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from pathlib import PurePath
from typing import Any, Final

import anyio
from pydantic import TypeAdapter

from handoffd.clock import rfc3339
from handoffd.control.telling import follows, happened
from handoffd.engine.commands import addressed as for_project
from handoffd.engine.events import Exit
from handoffd.engine.measurements import TestEvidence
from handoffd.engine.usage import Usage
from handoffd.errors import StoreError
from handoffd.store.journal import Journal
from handoffd.store.records import Backlog, Standing, StoredEvent, StoredRun

Json = dict[str, Any]

Names = Mapping[str, str]
"""What projects are called in commands, by root."""
NOBODY: Final[Names] = {}

MOST_EVENTS = 1000
BATCH: Final = 100
"""Events that are held for one follower: many of them follow, and some read slowly."""
_EXIT: Final = TypeAdapter(Exit)
_TESTS: Final = TypeAdapter(TestEvidence)


def event_json(event: StoredEvent, names: Names = NOBODY) -> Json:
    """Return one event: when, what, why, and where the track stood before and after."""
    return {
        "type": "event",
        "seq": event.seq,
        "at": rfc3339(event.at),
        "project": event.key.project,
        "name": named(event.key.project, names),
        "track": event.key.track,
        "kind": event.kind,
        "what": happened(event),
        "rules": [{"rule": ground.rule, "value": ground.value} for ground in event.grounds],
        "why": event.why,
        "next": follows(event),
        "before": _standing(event.before),
        "after": _standing(event.after),
        "event": event.event,
        "result": addressed(event.result, event.key.project),
        "orders": list(event.orders),
    }


def addressed(result: Json, root: str) -> Json:
    """Return a result of the engine with its project's root in it: the engine knows no paths."""
    told = {name: result.get(name) for name in ("caller_instruction", "message", "next_command")}
    return {**result, **{name: for_project(text, root) for name, text in told.items() if text is not None}}


def named(root: str, names: Names) -> str:
    """Return what a project is called; one that nobody supervises any more, by its folder."""
    return names.get(root) or PurePath(root).name


def run_json(run: StoredRun, names: Names = NOBODY, so_far: Usage | None = None) -> Json:
    """Return one dispatch, from the decision to the verdict. What has not happened yet is None.

    `so_far` is what a run that is not over has used.
    """
    used = run.exit.usage if run.exit is not None else so_far
    took = None if run.exit is None else run.exit.footprint
    return {
        "run": run.id,
        "project": run.key.project,
        "name": named(run.key.project, names),
        "track": run.key.track,
        "story": run.story,
        "step": run.step,
        "attempt": run.attempt,
        "executor": run.executor,
        "decided_at": rfc3339(run.decided_at),
        "started_at": _time(run.started_at),
        "ended_at": _time(run.ended_at),
        "seconds": None if run.exit is None else round(run.exit.seconds, 3),
        "exit": None if run.exit is None else _EXIT.dump_python(run.exit, mode="json"),
        "usage": None if used is None or used == Usage() else usage_json(used),
        "model": None if run.exit is None else run.exit.model,
        "memory_peak": None if took is None else took.memory_peak,
        "tasks_peak": None if took is None else took.tasks_peak,
        "tests": None if run.tests is None else _tests_json(run.tests),
        "result": run.outcome,
        "why": run.why,
    }


def usage_json(usage: Usage) -> Json:
    """Return a usage: its four counts, all together, the cost or None, and who reckoned that."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "tokens": usage.tokens,
        "cost_usd": None if usage.cost_usd is None else round(usage.cost_usd, 6),
        "priced": usage.priced,
    }


def backlog_json(backlog: Backlog, next_try_s: float | None) -> Json:
    """Return what one sink has not taken. `next_try_s`: seconds until it is tried again, if it rests."""
    return {
        "sink": backlog.sink,
        "undelivered": backlog.undelivered,
        "oldest": _time(backlog.oldest),
        "failed_tries": backlog.tries,
        "last_error": backlog.last_error,
        "next_try_s": None if next_try_s is None else round(next_try_s, 1),
        "given_up": backlog.given_up,
    }


def _tests_json(tests: TestEvidence) -> Json:
    """Return what a test run proved, its three numbers first."""
    dumped: Json = _TESTS.dump_python(tests, mode="json", by_alias=True)
    return {**dumped.pop("counts"), **dumped}


def _time(at: datetime | None) -> str | None:
    return None if at is None else rfc3339(at)


async def latest(journal: Journal, project: str | None, count: int) -> list[StoredEvent]:
    """Return the last `count` events, oldest first; of one root or of all."""
    width = count if project is None else 4 * count
    while True:
        after = max(0, journal.newest - width)
        found = await journal.events(after, project, max(width, count))
        if len(found) >= count or after == 0:
            return list(found[-count:])
        width *= 4


async def gap(journal: Journal, after: int) -> Json | None:
    """Return the marker for events above `after` that are not to be had; None when all are."""
    if after > journal.newest:
        # Numbers only rise: the reader's come from a journal that is not this one.
        return {"type": "gap", "after": after, "next": 1, "why": "the journal is another one, or older"}
    first = await journal.events(after, None, 1)
    if first and first[0].seq > after + 1:
        return {"type": "gap", "after": after, "next": first[0].seq, "why": "older events are not kept"}
    return None


async def follow(
    journal: Journal,
    after: int,
    project: str | None,
    closing: anyio.Event,
    names: Callable[[], Names] = lambda: NOBODY,
) -> AsyncIterator[Json]:
    """Yield events above `after` as they are committed, gaps marked, until `closing` or the journal's end."""
    missing = await gap(journal, after)
    if missing is not None:
        yield missing
        after = missing["next"] - 1
    left_out = deque(one for one in await journal.left_out() if one.after >= after)
    while True:
        newest = journal.newest  # before asking: what is committed meanwhile is asked for next time
        batch = await journal.events(after, project, BATCH)
        called = names()
        for event in batch:
            while left_out and left_out[0].next <= event.seq:
                yield {"type": "gap", **left_out.popleft()._asdict()}
            yield event_json(event, called)
        full = len(batch) == BATCH
        after = batch[-1].seq if full else max(newest, batch[-1].seq if batch else 0)
        if not full and not await _newer(journal, after, closing):
            return


async def _newer(journal: Journal, seq: int, closing: anyio.Event) -> bool:
    """Return True once there is an event above `seq`, False when there will be none."""
    grown = False
    async with anyio.create_task_group() as tasks:

        async def leave() -> None:
            await closing.wait()
            tasks.cancel_scope.cancel()

        tasks.start_soon(leave)
        try:
            await journal.newer_than(seq)
            grown = True
        except StoreError:
            grown = False  # the journal was closed
        tasks.cancel_scope.cancel()
    return grown and not closing.is_set()


def _standing(standing: Standing | None) -> Json | None:
    return None if standing is None else {"step": standing[0], "status": standing[1]}
