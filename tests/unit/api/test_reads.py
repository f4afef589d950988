"""What can be asked, below the socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.notices import MemoryDesk
from tests.support.supervision import MemorySupervision, project_view, track_view
from tests.unit.journal.making import KEY, NOW, dispatch, opened, record, track

from handoffd.api.reads import Reads
from handoffd.clock import SystemClock
from handoffd.engine.events import Advanced, ExecutorExited, ExecutorStarted
from handoffd.engine.run import Exit, Footprint, Usage
from handoffd.engine.track import Phase, TrackKey
from handoffd.errors import Json, NotFound, Refused
from handoffd.journal.journal import Journal
from handoffd.journal.records import Outgoing
from handoffd.protocol.handoff import Absent
from handoffd.protocol.state import Status

RUNS = Path("/nowhere/runs")


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    """An empty journal."""
    async with opened(tmp_path / "journal.db") as lent:
        yield lent


def reads(supervision: MemorySupervision, journal: Journal, *, daemon: bool = True) -> Reads:
    """Return what a daemon answers, or a command without one."""
    return Reads(supervision, journal, SystemClock(), RUNS, daemon=daemon)


async def test_status_is_of_all_or_of_one(supervision: MemorySupervision, journal: Journal) -> None:
    """And says whether a daemon answers."""
    asked = reads(supervision, journal)

    assert ["/srv/shop", "/srv/empty"] == [one["project"] for one in (await asked.status())["projects"]]
    assert ["/srv/shop"] == [one["project"] for one in (await asked.status("shop"))["projects"]]
    assert (True, False) == (
        (await asked.status())["daemon"],
        (await reads(supervision, journal, daemon=False).status())["daemon"],
    )


async def test_status_tells_what_people_have_not_been_told(
    supervision: MemorySupervision, journal: Journal
) -> None:
    """And, from a daemon, when it is tried again."""
    told = Outgoing(id="a", key=TrackKey("/srv/shop"), at=NOW, body="{}", sinks=("web",), effect=None)
    asked = Reads(supervision, journal, SystemClock(), RUNS, daemon=True, desk=MemoryDesk({"web": 4.25}))
    assert [] == (await asked.status())["notices"]

    await journal.outbox.keep([told], 1)
    (waiting,) = await journal.outbox.waiting("web", 0, 1)
    await journal.outbox.failed(waiting.number, "no route", 2)

    untold = {
        "sink": "web", "undelivered": 1, "oldest": "2026-01-31T22:15:09.123Z", "failed_tries": 1,
        "last_error": "no route", "next_try_s": 4.2, "given_up": 0,
    }  # fmt: skip
    assert [untold] == (await asked.status())["notices"]
    offline = await reads(supervision, journal, daemon=False).status("shop")
    assert [{**untold, "next_try_s": None}] == offline["notices"]


async def test_without_a_daemon_a_dead_process_is_not_shown_as_running(journal: Journal) -> None:
    """The records say running; the process id is there only if a process is."""
    running = track_view(status="running", dispatch="20260131T221509-00000000", pid=1)
    supervision = MemorySupervision(project_view("/srv/shop", running))

    told = await reads(supervision, journal, daemon=False).status()

    assert told["projects"][0]["tracks"][0]["pid"] is None


async def test_runs_tell_what_they_have_used_so_far(supervision: MemorySupervision, journal: Journal) -> None:
    """From a daemon as of now; without one, what was noted of them, which may be nothing."""
    begun = track(status=Status.RUNNING, dispatch=dispatch(phase=Phase.EXECUTING))
    await journal.commit(record(ExecutorStarted(dispatch="d1", pid=7), after=begun))
    supervision.used["d1"] = Usage(output_tokens=7)

    assert [7] == [run["usage"]["tokens"] for run in await reads(supervision, journal).runs()]
    assert [None] == [run["usage"] for run in await reads(supervision, journal, daemon=False).runs()]


async def test_the_status_of_one_tells_what_its_last_attempt_took(
    supervision: MemorySupervision, journal: Journal
) -> None:
    """Also while the next one runs; of all projects, nobody looks for that."""
    asked = reads(supervision, journal)
    assert [None] == [one["tracks"][0]["footprint"] for one in (await asked.status("shop"))["projects"]]
    begun = track(status=Status.RUNNING, dispatch=dispatch(phase=Phase.EXECUTING))
    await journal.commit(record(Advanced(dispatch="d1", executor="claude"), after=begun))
    took = Footprint(memory_peak=7, memory_max=9, tasks_peak=2)
    ended = ExecutorExited(dispatch="d1", exit=Exit(code=0, seconds=1.5, footprint=took), reading=Absent())
    await journal.commit(record(ended, after=track(status=Status.PASS)))
    begun = track(status=Status.RUNNING, dispatch=dispatch("d2"))
    await journal.commit(record(Advanced(dispatch="d2", executor="claude"), after=begun))

    (run, last) = await asked.runs("shop")
    (told,) = (await asked.status("shop"))["projects"]
    assert [None] == [run["exit"]]
    assert (7, 9, 2) == tuple(
        told["tracks"][0]["footprint"][key] for key in ("memory_peak", "memory_max", "tasks_peak")
    )
    assert last["exit"]["footprint"] == told["tracks"][0]["footprint"]
    assert told["tracks"] == (await asked.project("shop"))["tracks"]
    assert [None] == [one["footprint"] for one in (await asked.status())["projects"][0]["tracks"]]


async def test_projects_are_told_in_short(supervision: MemorySupervision, journal: Journal) -> None:
    """One with a story, one without a STATE."""
    told = await reads(supervision, journal).projects()

    assert [("shop", "review", "needs_human"), ("empty", None, None)] == [
        (one["name"], one["step"], one["status"]) for one in told["projects"]
    ]


async def test_events_are_the_last_ones_or_those_after_a_number(
    supervision: MemorySupervision, journal: Journal
) -> None:
    """Both orders are oldest first."""
    for why in ("one", "two", "three"):
        await journal.commit(record(why=why))
    asked = reads(supervision, journal)

    assert ["two", "three"] == [event["why"] for event in await asked.events(None, "shop", 2)]
    assert ["one", "two"] == [event["why"] for event in await asked.events(0, None, 2)]
    assert [] == await asked.events(0, "empty", 10)


async def test_what_was_cleaned_up_is_a_gap_where_it_would_be_told(
    supervision: MemorySupervision, journal: Journal
) -> None:
    """For who has seen all before it, and who has seen half; not for who does not get there."""
    for why in ("one", "two", "three", "four"):
        await journal.commit(record(why=why))
    await journal.pruning.cover(KEY, 3, track())
    await journal.pruning.drop(KEY, 3, NOW)
    asked = reads(supervision, journal)
    whole = {"type": "gap", "after": 0, "next": 3, "why": "older events are not kept"}

    async def told(after: int | None, limit: int) -> tuple[list[str], list[Json]]:
        found = await asked.history(after, None, limit)
        return [event["why"] for event in found["events"]], found["gaps"]

    assert (["three", "four"], [whole]) == await told(None, 50) == await told(0, 50)
    assert (["three"], [whole]) == await told(0, 1)
    assert (["three", "four"], [whole | {"after": 1}]) == await told(1, 50)
    assert (["four"], []) == await told(None, 1)
    assert (["three", "four"], []) == await told(2, 50)
    assert (["four"], []) == await told(3, 50)
    assert ([], []) == await told(None, 0) == await told(0, 0)


async def test_a_log_is_asked_for_by_project_or_run(supervision: MemorySupervision, journal: Journal) -> None:
    """Neither, or a project in which nothing ran, is answered with what to do."""
    asked = reads(supervision, journal)
    begun = track(status=Status.RUNNING, dispatch=dispatch())
    await journal.commit(
        record(Advanced(dispatch="d1", executor="claude"), after=begun, key=TrackKey("/srv/shop"))
    )

    with pytest.raises(Refused):
        await asked.log_of(None, None)
    with pytest.raises(NotFound) as caught:
        await asked.log_of("shop", None)

    assert "no executor has run in /srv/shop yet" == caught.value.message
    await journal.commit(
        record(ExecutorStarted(dispatch="d1", pid=7), after=begun, key=TrackKey("/srv/shop"))
    )
    with pytest.raises(NotFound, match="no longer kept"):
        await asked.log_of("shop", None)
