"""What has happened, as JSON and as a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import anyio
import pytest
from tests.unit.journal.making import KEY, NOW, dispatch, opened, record, track

from handoffd.api.events import event_json, follow, gap, latest, run_json
from handoffd.engine.decision import NeedsHuman
from handoffd.engine.events import Advanced, ExecutorExited, ExecutorStarted
from handoffd.engine.run import End, Exit, Footprint, Usage
from handoffd.engine.track import Phase, TrackKey
from handoffd.errors import StoreError
from handoffd.journal.journal import Journal
from handoffd.journal.records import LeftOut, StoredEvent
from handoffd.protocol.handoff import Absent
from handoffd.protocol.state import Status

OTHER = TrackKey("/srv/api")


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    """An empty journal."""
    async with opened(tmp_path / "journal.db") as lent:
        yield lent


async def test_an_event_tells_when_where_what_and_why(journal: Journal) -> None:
    """The keys that readers rely on."""
    await journal.commit(record(why="somebody said so"))

    told = event_json((await journal.events())[0])

    assert ("event", 1, "2026-01-31T22:15:09.123Z") == (told["type"], told["seq"], told["at"])
    assert ("/srv/shop", "main", "noted", "somebody said so") == (
        told["project"], told["track"], told["kind"], told["why"],
    )  # fmt: skip
    assert (None, {"step": "bdd", "status": "pending"}) == (told["before"], told["after"])


async def test_the_engines_advice_names_the_project(journal: Journal) -> None:
    """What to type next is complete, although the engine knows no paths."""
    approve = "handoffd approve {project}"
    waits = NeedsHuman(step="review", message="look", caller_instruction=approve, next_command=approve)
    await journal.commit(record(result=waits))

    told = event_json((await journal.events())[0])["result"]
    assert ["handoffd approve /srv/shop"] * 2 == [told["caller_instruction"], told["next_command"]]


async def test_a_run_tells_how_it_went(journal: Journal) -> None:
    """Flat keys: what ran, for how long, with what end; what has not happened is null."""
    begun = track(status=Status.RUNNING, dispatch=dispatch())
    await journal.commit(record(Advanced(dispatch="d1", executor="claude"), after=begun))

    told = run_json((await journal.runs())[0])
    assert ("d1", "/srv/shop", "main", "US-1", "bdd", 1) == tuple(
        told[key] for key in ("run", "project", "track", "story", "step", "attempt")
    )
    assert [None] * 5 == [told[key] for key in ("started_at", "ended_at", "seconds", "exit", "tests")]

    executing = track(status=Status.RUNNING, dispatch=dispatch(phase=Phase.EXECUTING))
    await journal.commit(record(ExecutorStarted(dispatch="d1", pid=7), after=executing))
    assert [None] * 2 == [told[key] for key in ("memory_peak", "tasks_peak")]
    took = Footprint(memory_peak=7, memory_max=9, tasks_peak=2)
    ended = ExecutorExited(dispatch="d1", exit=Exit(code=0, seconds=1.5, footprint=took), reading=Absent())
    await journal.commit(record(ended, after=track(status=Status.PASS), at=NOW + timedelta(seconds=2)))

    told = run_json((await journal.runs())[0])
    assert (1.5, 0, "pass") == (told["seconds"], told["exit"]["code"], told["result"])
    assert "2026-01-31T22:15:11.123Z" == told["ended_at"]
    assert (7, 2, 9) == (told["memory_peak"], told["tasks_peak"], told["exit"]["footprint"]["memory_max"])


@pytest.mark.parametrize(
    ("exit_", "told"),
    [
        (Exit(code=1, end=End.REFUSED), "refused"),
        (Exit(code=1, end=End.LOGGED_OUT), "logged_out"),
        (Exit(code=0, end=End.CLEAN), "no_handoff"),
        (Exit(by="lost"), "lost"),
        (Exit(signal=15, by="stop"), "interrupted"),
        (Exit(code=1), "interrupted"),  # of a release that did not tell ends apart
    ],
)
async def test_a_run_that_was_not_judged_tells_how_it_ended(journal: Journal, exit_: Exit, told: str) -> None:
    """Only what a person or handoffd ended was interrupted."""
    begun = track(status=Status.RUNNING, dispatch=dispatch(phase=Phase.EXECUTING))
    await journal.commit(record(ExecutorStarted(dispatch="d1", pid=7), after=begun))
    ended = ExecutorExited(dispatch="d1", exit=exit_, reading=Absent())
    await journal.commit(record(ended, after=track(status=Status.PENDING)))

    (run,) = await journal.runs()
    assert (told, "interrupted") == (run_json(run)["result"], run.result)


async def test_a_run_tells_what_it_used_while_it_goes_on_and_when_it_is_over(journal: Journal) -> None:
    """What is known of the end goes before what was known on the way."""
    begun = track(status=Status.RUNNING, dispatch=dispatch(phase=Phase.EXECUTING))
    await journal.commit(record(ExecutorStarted(dispatch="d1", pid=7), after=begun))

    (run,) = await journal.runs()
    assert None is run_json(run)["usage"]
    assert None is run_json(run, so_far=Usage())["usage"]
    assert 3 == run_json(run, so_far=Usage(input_tokens=1, output_tokens=2))["usage"]["tokens"]

    used = Usage(output_tokens=7, cost_usd=0.5, priced="provider")
    ended = ExecutorExited(dispatch="d1", exit=Exit(code=0, usage=used), reading=Absent())
    await journal.commit(record(ended, after=track(status=Status.PASS)))
    (run,) = await journal.runs()
    told = run_json(run, so_far=Usage(output_tokens=6))["usage"]
    assert (7, 7, 0, 0.5) == tuple(
        told[key] for key in ("tokens", "output_tokens", "input_tokens", "cost_usd")
    )


async def test_the_latest_are_found_however_rare_a_project_is(journal: Journal) -> None:
    """One project's last events come even when thousands of others' followed."""
    await journal.commit(record(key=OTHER, why="first"))
    await journal.commit(record(key=OTHER, why="second"))
    for _ in range(60):
        await journal.commit(record())

    assert ["first", "second"] == [event.why for event in await latest(journal, OTHER.project, 5)]
    assert ["second"] == [event.why for event in await latest(journal, OTHER.project, 1)]
    assert [61, 62] == [event.seq for event in await latest(journal, None, 2)]


async def test_following_gives_what_was_and_what_comes(journal: Journal) -> None:
    """A reader that comes back misses nothing, and nothing of other projects is in its way."""
    closing, seen = anyio.Event(), []
    await journal.commit(record(why="before"))

    async def read() -> None:
        async for line in follow(journal, 0, KEY.project, closing):
            seen.append(line["why"])
            if len(seen) == 2:
                closing.set()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await journal.commit(record(key=OTHER, why="elsewhere"))
            await journal.commit(record(why="after"))

    assert ["before", "after"] == seen


async def test_a_follower_ends_with_the_server_and_with_the_journal(journal: Journal) -> None:
    """Nobody hangs on a stream that cannot go on."""
    closing = anyio.Event()

    async def read(until: anyio.Event) -> None:
        assert [] == [line async for line in follow(journal, 0, None, until)]

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read, closing)
            tasks.start_soon(read, anyio.Event())
            await anyio.wait_all_tasks_blocked()
            closing.set()
            await anyio.wait_all_tasks_blocked()
            await journal.close()


async def test_numbers_from_another_journal_are_answered_with_a_gap(journal: Journal) -> None:
    """A reader whose last number does not exist is told, and gets everything."""
    await journal.commit(record(why="only one"))
    closing, lines = anyio.Event(), []

    with anyio.fail_after(60):
        async for line in follow(journal, 99, None, closing):
            lines.append(line)
            if len(lines) == 2:
                closing.set()

    assert {"type": "gap", "after": 99, "next": 1} == {
        key: lines[0][key] for key in ("type", "after", "next")
    }
    assert "only one" == lines[1]["why"]


async def test_what_a_restore_left_out_is_a_gap_in_its_place(journal: Journal) -> None:
    """Also for a reader that was there before, and of one project alone."""

    class Restored:
        newest = 9

        async def left_out(self) -> tuple[LeftOut, ...]:
            return (LeftOut(2, 8, "a backup was restored"),)

        async def newer_than(self, seq: int) -> None:
            raise StoreError(f"nothing comes after {seq}")

        async def events(self, after: int, project: str | None, limit: int) -> Sequence[StoredEvent]:
            kept = [one for one in stored if one.seq > after]
            return kept[:limit]

    await journal.commit(record())
    (first,) = await journal.events()
    stored = [replace(first, seq=seq) for seq in (1, 2, 8, 9)]
    closing = anyio.Event()
    closing.set()

    async def told(after: int) -> list[int]:
        lines = follow(cast("Journal", Restored()), after, KEY.project, closing)
        return [line["seq"] if line["type"] == "event" else -line["next"] async for line in lines]

    with anyio.fail_after(60):
        assert [1, 2, -8, 8, 9] == await told(0)
        assert [-8, 8, 9] == await told(2)
        assert [-8, 8, 9] == await told(5)
        assert [9] == await told(8)


async def test_where_nothing_is_missing_there_is_no_gap(journal: Journal) -> None:
    """Numbers that are kept, and the last one, are no reason for a marker."""
    await journal.commit(record())
    await journal.commit(record())

    assert [None, None, None] == [await gap(journal, after) for after in (0, 1, 2)]
