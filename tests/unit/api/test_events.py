"""Events: as JSON, as a stream, and in words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, cast, get_args

import anyio
import pytest
from msgspec.structs import replace
from tests.support.playbook import DISPATCH, found, green, handoff, red, state_at
from tests.support.recorded import story, write
from tests.unit.journal.making import KEY, NOW, dispatch, record, track

from handoffd.api.answers import HistoryGap
from handoffd.api.events import (
    _FACTS,
    _ORDERS,
    event_answer,
    follow,
    follows,
    gap,
    happened,
    run_answer,
)
from handoffd.engine.decision import Effect, NeedsHuman, Notify, Refusal, RunChecks, Spawn
from handoffd.engine.events import (
    Advanced,
    Approved,
    BaselineMeasured,
    ChecksFinished,
    DeadlinePassed,
    Event,
    ExecutorExited,
    ExecutorStarted,
    HandoffArrived,
    Landed,
    PostChecked,
    Rejected,
    Started,
    StateEdited,
    TestEvidence,
)
from handoffd.engine.run import End, Exit, Footprint, PostCheck, Usage
from handoffd.engine.track import Phase, TrackKey
from handoffd.errors import Problem, StoreError
from handoffd.journal.journal import Journal
from handoffd.journal.records import WHOLE, LeftOut, Part, Record, StoredEvent
from handoffd.protocol.handoff import Absent, HandoffMark, Malformed, Reading, Stale
from handoffd.protocol.state import Reason, Status, plain

OTHER = TrackKey("/srv/api")


async def ran(journal: Journal, exit_: Exit, status: Status = Status.PASS) -> None:
    """Commit the end of the run d1, two seconds after its beginning."""
    ended = ExecutorExited(dispatch="d1", exit=exit_, reading=Absent())
    await journal.commit(record(ended, after=track(status=status), at=NOW + timedelta(seconds=2)))


async def started(journal: Journal) -> None:
    """Commit the start of the run d1."""
    begun = track(status=Status.RUNNING, dispatch=dispatch(phase=Phase.EXECUTING))
    await journal.commit(record(ExecutorStarted(dispatch="d1", pid=7), after=begun))


async def test_an_event_has_a_time_a_place_and_a_reason(journal: Journal) -> None:
    """Readers rely on these keys; advice of the engine gets the path of the project."""
    approve = "handoffd approve {project}"
    waits = NeedsHuman(step="review", message="look", caller_instruction=approve, next_command=approve)
    await journal.commit(record(why="eve wrote it", result=waits))

    told = plain(event_answer((await journal.events())[0]))

    assert ("event", 1, "2026-01-31T22:15:09.123456Z") == (told["type"], told["seq"], told["at"])
    assert ("/srv/shop", "main", "noted", "eve wrote it") == (
        told["project"], told["track"], told["kind"], told["why"],
    )  # fmt: skip
    assert (None, {"step": "bdd", "status": "pending"}) == (told["before"], told["after"])
    result = told["result"]
    assert ["handoffd approve /srv/shop"] * 2 == [result["caller_instruction"], result["next_command"]]


async def test_a_run_has_flat_keys(journal: Journal) -> None:
    """Its step, its duration and its end; null for what has not happened yet."""
    begun = track(status=Status.RUNNING, dispatch=dispatch())
    await journal.commit(record(Advanced(dispatch="d1", executor="claude"), after=begun))

    told = plain(run_answer((await journal.runs())[0]))
    assert ("d1", "/srv/shop", "main", "US-1", "bdd", 1) == tuple(
        told[key] for key in ("run", "project", "track", "story", "step", "attempt")
    )
    assert [None] * 5 == [told[key] for key in ("started_at", "ended_at", "seconds", "exit", "tests")]

    await started(journal)
    assert [None] * 2 == [told[key] for key in ("memory_peak", "tasks_peak")]
    took = Footprint(memory_peak=7, memory_max=9, tasks_peak=2)
    await ran(journal, Exit(code=0, seconds=1.5, footprint=took))

    told = plain(run_answer((await journal.runs())[0]))
    assert (1.5, 0, "pass") == (told["seconds"], told["exit"]["code"], told["result"])
    assert "2026-01-31T22:15:11.123456Z" == told["ended_at"]
    assert (7, 2, 9) == (told["memory_peak"], told["tasks_peak"], told["exit"]["footprint"]["memory_max"])


@pytest.mark.parametrize(
    ("exit_", "told"),
    [
        (Exit(code=1, end=End.REFUSED), "refused"),
        (Exit(code=1, end=End.LOGGED_OUT), "logged_out"),
        (Exit(code=0, end=End.CLEAN), "no_handoff"),
        (Exit(by="lost"), "lost"),
        (Exit(signal=15, by="stop"), "interrupted"),
        (Exit(code=1), "interrupted"),  # of a release without ends
    ],
)
async def test_a_run_without_a_verdict_has_its_end_as_result(
    journal: Journal, exit_: Exit, told: str
) -> None:
    """Only a run that a person or handoffd ended was interrupted."""
    await started(journal)
    await ran(journal, exit_, Status.PENDING)

    (run,) = await journal.runs()
    assert (told, "interrupted") == (run_answer(run).result, run.result)


async def test_a_run_has_its_usage_so_far_and_at_its_end(journal: Journal) -> None:
    """The usage at the end counts more."""
    await started(journal)

    (run,) = await journal.runs()
    assert None is run_answer(run).usage
    assert None is run_answer(run, so_far=Usage()).usage
    early = run_answer(run, so_far=Usage(input_tokens=1, output_tokens=2)).usage
    assert 3 == (early and early.tokens)

    used = Usage(output_tokens=7, cost_usd=0.5, priced="provider")
    await ran(journal, Exit(code=0, usage=used))
    (run,) = await journal.runs()
    told = run_answer(run, so_far=Usage(output_tokens=6)).usage
    assert told is not None
    assert (7, 7, 0, 0.5) == (told.tokens, told.output_tokens, told.input_tokens, told.cost_usd)


async def test_the_latest_are_found_however_rare_a_project_is(journal: Journal) -> None:
    """One project's last events come even when thousands of others' followed."""
    await journal.commit(record(key=OTHER, why="first"))
    await journal.commit(record(key=OTHER, why="second"))
    for _ in range(60):
        await journal.commit(record())

    other = Part(project=OTHER.project)
    assert ["first", "second"] == [event.why for event in await journal.latest(5, other)]
    assert ["second"] == [event.why for event in await journal.latest(1, other)]
    assert [61, 62] == [event.seq for event in await journal.latest(2)]


async def test_following_gives_past_and_new_events(journal: Journal) -> None:
    """A reader that comes back misses nothing, and gets nothing of other projects."""
    closing, seen = anyio.Event(), []
    await journal.commit(record(why="before"))

    async def read() -> None:
        async for line in follow(journal, 0, Part(project=KEY.project), closing):
            seen.append(line.why)
            if len(seen) == 2:
                closing.set()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await journal.commit(record(key=OTHER, why="elsewhere"))
            await journal.commit(record(why="after"))

    assert ["before", "after"] == seen


async def test_a_follower_ends_with_the_server_and_with_the_journal(journal: Journal) -> None:
    """No reader waits on a stream that cannot go on."""
    closing = anyio.Event()

    async def read(until: anyio.Event) -> None:
        assert [] == [line async for line in follow(journal, 0, WHOLE, until)]

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read, closing)
            tasks.start_soon(read, anyio.Event())
            await anyio.wait_all_tasks_blocked()
            closing.set()
            await anyio.wait_all_tasks_blocked()
            await journal.close()


async def test_numbers_from_another_journal_are_answered_with_a_gap(journal: Journal) -> None:
    """A reader whose last number does not exist gets a marker and everything."""
    await journal.commit(record(why="only one"))
    closing, lines = anyio.Event(), []

    with anyio.fail_after(60):
        async for line in follow(journal, 99, WHOLE, closing):
            lines.append(line)
            if len(lines) == 2:
                closing.set()

    gap_, event = lines
    assert isinstance(gap_, HistoryGap)
    assert (99, 1, "only one") == (gap_.after, gap_.next, event.why)
    assert [None, None] == [await gap(journal, after) for after in (0, 1)]


async def test_what_a_restore_left_out_is_a_gap_in_its_place(journal: Journal) -> None:
    """Also for a reader that was there before, and of one project alone."""

    class Restored:
        newest = 9

        async def left_out(self) -> tuple[LeftOut, ...]:
            return (LeftOut(2, 8, "a backup was restored"),)

        async def newer_than(self, seq: int) -> None:
            raise StoreError(f"nothing comes after {seq}")

        async def events(self, after: int, *, limit: int, part: Part = WHOLE) -> Sequence[StoredEvent]:
            assert part.project in {None, KEY.project}
            return [one for one in kept if one.seq > after][:limit]

    await journal.commit(record())
    (first,) = await journal.events()
    kept = [replace(first, seq=seq) for seq in (1, 2, 8, 9)]
    closing = anyio.Event()
    closing.set()

    async def told(after: int) -> list[int]:
        lines = follow(cast("Journal", Restored()), after, Part(project=KEY.project), closing)
        return [-line.next if isinstance(line, HistoryGap) else line.seq async for line in lines]

    with anyio.fail_after(60):
        assert [1, 2, -8, 8, 9] == await told(0)
        assert [-8, 8, 9] == await told(2)
        assert [-8, 8, 9] == await told(5)
        assert [9] == await told(8)


# --- in words ----------------------------------------------------------------------------------------
def stored(path: Path, *records: Record) -> list[StoredEvent]:
    """Return records as the journal returns them."""

    async def commit() -> list[StoredEvent]:
        journal = await Journal.open(path / "journal.db")
        try:
            for one in records:
                await journal.commit(one)
            return list(await journal.events())
        finally:
            await journal.close()

    return anyio.run(commit)


def told(path: Path, event: Event) -> str:
    """Return what happened, in words."""
    return happened(stored(path, record(event))[-1])


def exited(reading: Reading, **how: Any) -> ExecutorExited:
    """Return the end of an executor."""
    return ExecutorExited(dispatch=DISPATCH, exit=Exit(**how), reading=reading)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (
            exited(found(handoff(files_changed=("a", "b"))), code=0, seconds=94.2),
            "exited with code 0 after 94 s; it handed over pass, it says 2 files changed",
        ),
        (exited(Absent(), signal=9), "was killed by signal 9; it left no hand-off"),
        (exited(Stale(why="of attempt 1"), code=3), "code 3; only a stale hand-off is there: of attempt 1"),
        (
            exited(Malformed(problem=Problem(file="HANDOFF.md", message="not closed")), code=0),
            "its hand-off cannot be read: not closed",
        ),
        (
            exited(Absent(), code=0, seconds=94.2, usage=Usage(output_tokens=12_400, cost_usd=0.21)),
            "exited with code 0 after 94 s and 12.4k tokens, $0.21; it left no hand-off",
        ),
        (exited(Absent(), code=0, usage=Usage(output_tokens=1)), "exited with code 0 after 1 token; "),
        (
            exited(Absent(), code=0, seconds=9, footprint=Footprint(memory_peak=812 << 20, tasks_peak=41)),
            "exited with code 0 after 9 s (at most 812 MiB, 41 tasks); it left no hand-off",
        ),
        (exited(Absent(), signal=9, end=End.MEMORY_LIMIT), "killed by signal 9 (memory limit); it left"),
        (exited(Absent(), by="lost"), "vanished, and its exit is unknown"),
        (exited(Absent(), by="outside", code=None, signal=15), "was ended from outside"),
        (exited(Absent(), code=1, end=End.LOGGED_OUT), "exited with code 1 (logged out); it left"),
        (exited(Absent(), code=1, end=End.FAILED), "exited with code 1; it left no hand-off"),
        (exited(Absent(), code=0, stream_error=True), "its stream says that it failed"),
        (ChecksFinished(dispatch="d1", tests=green(3)), "d1 was checked: 3 tests pass and 0 fail"),
        (ChecksFinished(dispatch="d1", tests=red("t")), "1 fails, 1 of the failing is new"),
        (ChecksFinished(dispatch="d1", tests=TestEvidence(fault="no pytest")), "not be run: no pytest"),
        (ChecksFinished(dispatch="d1", tests=TestEvidence(timed_out=True)), "did not end in time"),
        (ChecksFinished(dispatch="d1", tests=TestEvidence(verified=False)), "the test command succeeded"),
        (ChecksFinished(dispatch="d1", post_check=PostCheck(passed=False)), "post_check failed"),
        (
            ChecksFinished(
                dispatch="d1",
                tests=green(3),
                post_checks=(
                    PostCheck(passed=True, name="lint", code=0, line="All checks passed!"),
                    PostCheck(passed=False, name="types", code=1, line="Found 1 error"),
                ),
            ),
            "0 fail, post_check: lint passed, types failed with exit code 1 (Found 1 error)",
        ),
        (
            PostChecked(passed=False, checks=(PostCheck(passed=False, code=1),)),
            "post_check was run and failed",
        ),
        (ChecksFinished(dispatch="d1"), "no check was due"),
        (Approved(note="Mind it.", by="eve"), "approved, with the note 'Mind it.', by eve"),
        (Rejected(reason=Reason.SCOPE_WARNING, by="eve"), "rejected for scope_warning, by eve"),
        (Started(story="US-1", queue=True, by="mei"), "story US-1 was asked for (queue), by mei"),
        (Landed(story="US-1", onto="main", commit="c0" * 20), "US-1 was merged into main at c0c0c0c0c0c0"),
        (Landed(story="US-1", onto="main", commit="c0", up_to="impl"), "merged up to impl into main at c0"),
        (Landed(story="US-1", onto="main", commit="c0", untested=True), "main at c0, untested"),
        (Landed(story="US-1", onto="b", commit="c0", how="branch"), "was left on its branch b, at c0"),
        (
            Landed(story="US-1", onto="main", commit="c0", how="command", told="pull/12"),
            "the project's command took US-1 at c0, for main: pull/12",
        ),
        (Advanced(dispatch="d1", executor="claude", unmet=("US-0",)), "not done yet: US-0"),
        (StateEdited(state=state_at("impl")), "STATE.json was changed from outside, to impl pending"),
        (BaselineMeasured(dispatch="d1", fault="no pytest"), "could not be run: no pytest"),
        (DeadlinePassed(dispatch=None, elapsed_min=5), "an external attempt ran out of time: 5.0 min"),
        (
            HandoffArrived(dispatch="d1", reading=found(handoff()), mark=HandoffMark()),
            "a hand-off came for an external attempt: it handed over pass",
        ),
    ],
)
def test_a_fact_has_words_for_what_decided_it(tmp_path: Path, event: Event, words: str) -> None:
    """Exit code, claim, measurement, reason, and who gave a verb."""
    assert words in told(tmp_path, event)


def test_every_fact_and_every_order_has_its_words() -> None:
    """A new one fails here, instead of reading like a code."""
    assert _FACTS.keys() == {kind.__struct_config__.tag for kind in get_args(Event)}
    assert _ORDERS.keys() == {kind.__struct_config__.tag for kind in get_args(Effect)}


def test_every_event_of_a_story_has_words(tmp_path: Path) -> None:
    """For what happened and for what follows."""
    path = tmp_path / "journal.db"
    write(path, story())

    for event in stored(tmp_path, record()):
        assert happened(event)
        assert follows(event)


def test_an_order_is_what_follows(tmp_path: Path) -> None:
    """An executor with its limit, checks with their expected result."""
    spawn = Spawn(
        dispatch="d1", executor="claude", story="US-1", step="impl", attempt=2, timeout_min=10, session="s1"
    )  # fmt: skip
    checks = RunChecks(
        dispatch="d1", story="US-1", step="impl", attempt=2, tests="green", check_timeout_min=10,
        post_check="make lint", post_check_timeout_s=60,
    )  # fmt: skip

    named = replace(checks, post_check={"lint": "ruff check .", "types": "mypy"})
    orders = (record(effects=(order,)) for order in (spawn, checks, named))

    one, two, three = stored(tmp_path, *orders)

    assert "claude is started for impl attempt 2, in its session s1, for 10 min at most" == follows(one)
    assert "the tests are run (green is expected), post_check is run" == follows(two)
    assert "the tests are run (green is expected), post_check is run (lint, types)" == follows(three)


def test_a_notice_has_the_command_to_type(tmp_path: Path) -> None:
    """With the project in it."""
    tell = Notify(
        notice="needs_human", story="US-1", step="impl", text="no attempt left",
        action="handoffd retry {project}",
    )  # fmt: skip

    (event,) = stored(tmp_path, record(after=track(status=Status.NEEDS_HUMAN), effects=(tell,)))

    assert (
        "handoffd notifies people: no attempt left; it waits for a person: handoffd retry /srv/shop"
        == follows(event)
    )


@pytest.mark.parametrize(
    ("step", "status", "words"),
    [
        ("impl", Status.FAILING, "where a failure of impl leads"),
        ("impl", Status.PASS, "what comes after impl"),
        ("impl", Status.TIMEOUT, "whether impl is tried again"),
        ("impl", Status.RUNNING, "until its executor ends"),
        ("impl", Status.PENDING, "impl is dispatched at its next turn"),
        ("done", Status.PASS, "the story is done"),
    ],
)
def test_without_an_order_the_status_says_what_follows(
    tmp_path: Path, step: str, status: Status, words: str
) -> None:
    """And by which rule that will be decided."""
    assert words in follows(stored(tmp_path, record(after=track(step, status)))[-1])


def test_a_refusal_has_its_reason(tmp_path: Path) -> None:
    """Nothing changed; and an event of an unknown kind, of an older journal for example, has a name."""
    refusal = Refusal(code="STATE_TAMPERED", message="it was restored", caller_instruction="do not")
    event = stored(tmp_path, record())[-1]
    refused = replace(event, before=event.after, result={"type": "error", "message": refusal.message})
    unknown = replace(event, kind="moon_landed", event={}, after=None)

    assert "nothing changed: it was restored" == follows(refused)
    assert ("moon landed", "nothing") == (happened(unknown), follows(unknown))
