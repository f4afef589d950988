"""Reads, below the socket: status, runs, events, logs, and notices that people have not received."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.notices import NOTICE, MemoryDesk
from tests.support.supervision import MemorySupervision, project_view, track_view
from tests.unit.journal.making import KEY, NOW, dispatch, record, track

from handoffd.api.reads import MOST_WAITING, NoDesk, Reads, notices_json, trials_json
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


def reads(supervision: MemorySupervision, journal: Journal, *, daemon: bool = True) -> Reads:
    """Return what a daemon answers, or a command without one."""
    return Reads(supervision, journal, SystemClock(), RUNS, daemon=daemon)


async def test_status_is_of_all_or_of_one(supervision: MemorySupervision, journal: Journal) -> None:
    """With whether a daemon answers."""
    asked = reads(supervision, journal)

    assert ["/srv/shop", "/srv/empty"] == [one["project"] for one in (await asked.status())["projects"]]
    assert ["/srv/shop"] == [one["project"] for one in (await asked.status("shop"))["projects"]]
    assert (True, False) == (
        (await asked.status())["daemon"],
        (await reads(supervision, journal, daemon=False).status())["daemon"],
    )


async def test_status_has_undelivered_notices(supervision: MemorySupervision, journal: Journal) -> None:
    """And, from a daemon, the time of the next try."""
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


async def test_runs_have_their_usage_so_far(supervision: MemorySupervision, journal: Journal) -> None:
    """From a daemon as of now; without one, the recorded usage, if any."""
    begun = track(status=Status.RUNNING, dispatch=dispatch(phase=Phase.EXECUTING))
    await journal.commit(record(ExecutorStarted(dispatch="d1", pid=7), after=begun))
    supervision.used["d1"] = Usage(output_tokens=7)

    assert [7] == [run["usage"]["tokens"] for run in await reads(supervision, journal).runs()]
    assert [None] == [run["usage"] for run in await reads(supervision, journal, daemon=False).runs()]


async def test_the_status_of_one_project_has_the_footprint_of_its_last_attempt(
    supervision: MemorySupervision, journal: Journal
) -> None:
    """Also while the next one runs; the status of all projects omits it."""
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


async def test_projects_are_listed_in_short(supervision: MemorySupervision, journal: Journal) -> None:
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


async def test_removed_events_are_a_gap_in_their_place(
    supervision: MemorySupervision, journal: Journal
) -> None:
    """For a reader before it or inside it, unless its page ends before."""
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
    """Without either, or in a project without runs, the error has the next command."""
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


# --- notices -----------------------------------------------------------------------------------------
LATELY_S = 3600.0


@pytest.fixture
async def waiting(journal: Journal) -> Journal:
    """A journal with one project, whose track needs a person at bdd."""
    await journal.add_project(KEY.project, "shop", NOW)
    before = track()
    assert before.state is not None
    await journal.commit(replace(record(), track=before.with_state(status=Status.NEEDS_HUMAN)))
    return journal


async def gate(waiting: Journal, name: str = "gate", **changes: object) -> Outgoing:
    """Return a notice about that track's gate."""
    (stored,) = await waiting.tracks()
    state = stored.track.state
    assert state is not None
    notice = replace(NOTICE, id=name, story=state.story, step=state.step)
    plain = Outgoing(
        id=name, key=KEY, at=NOW, body=notice.as_json(), sinks=("web",), effect=None, opens=(KEY, 0.0)
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


async def test_an_open_matter_has_the_time_of_its_next_reminder(waiting: Journal) -> None:
    """With the command to type; without a daemon the time is unknown."""
    await waiting.outbox.keep([await gate(waiting)], 1)
    await waiting.outbox.keep([replace(await gate(waiting, "r"), opens=None, climbed=("gate", 60.0))], 2)
    desk = MemoryDesk(again={"gate": NOW + timedelta(hours=1)})

    found = await notices_json(waiting.outbox, desk, LATELY_S)
    (state,) = [stored.track.state for stored in await waiting.tracks()]
    assert state is not None
    shown = {
        "project": "/srv/shop", "track": "main", "name": "shop", "story": state.story, "kind": "needs_human",
        "text": NOTICE.text, "next": NOTICE.action, "since": "2026-01-31T22:15:09.123Z", "reminded_min": 60.0,
        "again_at": "2026-01-31T23:15:09.123Z",
    }  # fmt: skip
    assert ([shown], 0) == (found["waiting"], found["more_waiting"])
    elsewhere = await notices_json(waiting.outbox, desk, LATELY_S, "/srv/other")
    assert ([], 0) == (elsewhere["waiting"], elsewhere["more_waiting"])
    assert [shown] == (await notices_json(waiting.outbox, desk, LATELY_S, KEY.project))["waiting"]
    offline = await notices_json(waiting.outbox, NoDesk(), LATELY_S)
    assert [{**shown, "again_at": None}] == offline["waiting"]
    assert ["web"] == [one["sink"] for one in offline["sinks"]]


async def test_a_matter_that_is_over_is_not_listed(waiting: Journal) -> None:
    """Although no daemon has run since; neither is one that is damaged or of a removed project."""
    await waiting.outbox.keep([await gate(waiting)], 1)
    await waiting.commit(record())
    assert [] == (await notices_json(waiting.outbox, NoDesk(), LATELY_S))["waiting"]

    await waiting.outbox.keep([await gate(waiting, "odd", body="{")], 1)
    assert [] == (await notices_json(waiting.outbox, NoDesk(), LATELY_S))["waiting"]
    itself = KEY._replace(track="")
    trust = await gate(waiting, "trust", key=itself, opens=(itself, 0.0))
    await waiting.outbox.keep([trust], 1)
    assert 1 == len((await notices_json(waiting.outbox, NoDesk(), LATELY_S))["waiting"])
    await waiting.remove_project(KEY.project, NOW)
    assert [] == (await notices_json(waiting.outbox, NoDesk(), LATELY_S))["waiting"]


async def test_a_notice_that_is_held_back_has_an_end_and_a_reason(waiting: Journal) -> None:
    """With its sink."""
    await waiting.outbox.keep([await gate(waiting, held={"web": "quiet"}, opens=None)], 1)
    desk = MemoryDesk(held={("web", "quiet"): NOW})

    found = await notices_json(waiting.outbox, desk, LATELY_S)
    at = "2026-01-31T22:15:09.123Z"
    held = {"sink": "web", "reason": "quiet", "count": 1, "since": at, "until": at}
    assert ([held], []) == (found["held"], found["sinks"])


async def test_of_many_matters_the_oldest_are_shown(waiting: Journal) -> None:
    """The answer counts the others."""
    many = [
        await gate(waiting, str(number), opens=(KEY._replace(track=str(number)), 0.0))
        for number in range(MOST_WAITING + 3)
    ]
    await waiting.outbox.keep(many, 1)

    assert 3 == (await notices_json(waiting.outbox, NoDesk(), LATELY_S))["more_waiting"]


async def test_a_matter_without_reminders_is_listed_too(waiting: Journal) -> None:
    """JSON has no infinite numbers."""
    trouble = await gate(waiting, opens=(KEY._replace(track="~condition"), math.inf))
    await waiting.outbox.keep([replace(trouble, body=replace(NOTICE, track="").as_json())], 1)

    (shown,) = (await notices_json(waiting.outbox, NoDesk(), LATELY_S))["waiting"]
    assert ("", None, None) == (shown["track"], shown["reminded_min"], shown["again_at"])


def test_a_trial_succeeds_if_every_sink_took_it() -> None:
    """Each sink has its own result."""
    both = trials_json([("a", "ntfy", None, 0.1), ("b", "command", "exit code 1", 0.2)])

    assert (False, [True, False]) == (both["ok"], [one["ok"] for one in both["sinks"]])
    assert trials_json([("a", "ntfy", None, 0.1)])["ok"]
