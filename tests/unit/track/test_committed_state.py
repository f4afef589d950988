"""The state of a track: in the journal, in memory, in STATE.json; in this order, or not at all."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing

import anyio
import anyio.abc
import anyio.lowlevel
import pytest
from msgspec.structs import replace
from tests.support.eventually import eventually
from tests.support.house import House, at, dispatch_of, make_project, slow_disk, track_of, unwritable
from tests.support.playbook import shipped_rules

from handoffd.engine.decide import decide
from handoffd.engine.decision import Accepted, Decision, Notify
from handoffd.engine.events import Noted, Paused
from handoffd.engine.track import Track, TrackKey
from handoffd.errors import StoreError
from handoffd.files.atomic import digest_of
from handoffd.journal.replay import Recordings
from handoffd.track.committed_state import CommittedState
from handoffd.track.inbox import FINISH_LIMIT_S

EVENT = Noted(text="Mind the rounding.")
TELL = Notify(notice="done", story="US-001", step="done", text="done")


def decision(track: Track, *effects: Notify) -> Decision:
    """Return a decision that leads to `track`."""
    result = Accepted(step="bdd", status="pending", message="taken", caller_instruction="go on")
    return Decision(track=track, result=result, why="a test decides", effects=effects)


def state_of(here: House, finish_limit_s: float = FINISH_LIMIT_S) -> CommittedState:
    """Return the state of a new project's main track."""
    key = TrackKey(make_project(here.base))
    return CommittedState(key, Track(), None, here.services, finish_limit_s)


def shown(one: CommittedState) -> str:
    """Return the note in STATE.json."""
    return str(json.loads(at(one.key.project, ".ai/STATE.json").read_text())["human_note"])


async def test_a_decision_is_recorded_and_written_and_returns_its_orders(here: House) -> None:
    """The journal has the digest of the file."""
    one = state_of(here)

    orders = await one.commit(EVENT, decision(track_of(human_note="first"), TELL))

    assert [TELL] == [order.effect for order in orders]
    assert ("first", track_of(human_note="first")) == (shown(one), one.track)
    (stored,) = await here.journal.tracks()
    assert (one.digest, one.track) == (stored.digest, stored.track)


async def test_a_decision_that_changes_nothing_is_not_recorded(here: House) -> None:
    """A hint every second would fill the journal; a memorable one is for the history."""
    one = state_of(here)
    await one.commit(EVENT, decision(track_of()))
    before = here.journal.newest

    assert () == await one.commit(EVENT, decision(track_of()))
    assert before == here.journal.newest
    await one.commit(EVENT, replace(decision(track_of()), memorable=True))
    assert before + 1 == here.journal.newest


async def test_an_unwritable_journal_changes_nothing(here: House) -> None:
    """Neither in memory nor on the disk."""
    one = state_of(here)
    await one.commit(EVENT, decision(track_of(human_note="first")))

    with unwritable(here), pytest.raises(StoreError):
        await one.commit(EVENT, decision(track_of(human_note="second")))

    assert ("first", track_of(human_note="first")) == (shown(one), one.track)


async def test_an_unwritable_file_is_written_later(here: House) -> None:
    """The decision counts at once."""
    one = state_of(here)
    state = at(one.key.project, ".ai/STATE.json")
    state.mkdir()

    await one.commit(EVENT, decision(track_of(human_note="first")))
    assert (True, 1) == (bool(one.error), here.journal.newest)

    state.rmdir()
    await one.project()
    assert ("first", None) == (shown(one), one.error)


async def test_after_a_restart_waiting_counts_from_the_last_decision(here: House) -> None:
    """Until the next decision; a clock that was set back counts as no time."""
    found = state_of(here)
    assert 0 == found.waited_s()
    found.inherited_at = here.clock.now()
    here.clock.ahead_s = 90
    assert 90 == found.waited_s()
    here.clock.jumped_s = -3600
    assert 0 == found.waited_s()
    await found.commit(EVENT, decision(track_of()))
    assert 0 == found.waited_s()


async def test_an_unchanged_file_is_not_written(here: House) -> None:
    """Only the ledger changed, and no watcher should wake."""
    one = state_of(here)
    await one.commit(EVENT, decision(track_of()))
    before = at(one.key.project, ".ai/STATE.json").stat().st_ino

    await one.commit(EVENT, decision(track_of().with_ledger(next_note="later")))

    assert before == at(one.key.project, ".ai/STATE.json").stat().st_ino


async def test_a_decision_is_recorded_with_its_time_and_rules(here: House) -> None:
    """However late it is committed: a replay needs them."""
    one, decided_at = state_of(here), here.clock.now()
    made = decide(track_of(), Paused(by="eve"), shipped_rules(), decided_at)
    one.track = track_of()
    here.clock.ahead_s = 60

    await one.commit(Paused(by="eve"), made)

    (event,) = await here.journal.events()
    assert (decided_at, made.grounds) == (event.at, event.grounds)
    with closing(Recordings(here.services.settings.journal)) as source:
        (entry,) = source.page(0, 1, None)
    assert entry.recorded is not None
    assert (decided_at, shipped_rules()) == (entry.recorded.now, entry.recorded.rules)


@pytest.mark.parametrize("new", [False, True], ids=["an edit", "a new file"])
async def test_an_unread_edit_is_not_overwritten(here: House, new: bool) -> None:
    """A person saved it just before a decision was written; after it was read, it may go."""
    one = state_of(here)
    if new:
        one.saw(None)
    else:
        await one.commit(EVENT, decision(track_of(human_note="first")))
    file = at(one.key.project, ".ai/STATE.json")
    file.write_text('{"human_note": "mine"}')

    await one.commit(EVENT, decision(track_of(human_note="second")))
    assert ("mine", True, False) == (shown(one), one.left_alone, one.shown)

    one.saw(digest_of(file.read_bytes()))
    await one.project()
    assert ("second", False, True) == (shown(one), one.left_alone, one.shown)


async def test_an_edit_by_a_running_executor_is_overwritten(here: House) -> None:
    """Until its end is recorded, an edit is the agent's and not a person's."""
    one = state_of(here)
    await one.commit(EVENT, decision(track_of(dispatch=dispatch_of(), human_note="first")))
    at(one.key.project, ".ai/STATE.json").write_text('{"human_note": "the agent\'s"}')

    await one.commit(EVENT, decision(track_of(human_note="second")))

    assert ("second", True) == (shown(one), one.shown)


async def test_simultaneous_writers_keep_the_file_up_to_date(here: House) -> None:
    """A look that undoes an edit, and the consumer: the end of one write is not the end of the other."""
    one = state_of(here)
    await one.commit(EVENT, decision(track_of(human_note="0")))
    file, looks = at(one.key.project, ".ai/STATE.json"), 0

    async def undo() -> None:
        while True:
            await one.project()
            for _ in range(20):  # otherwise the file would never be up to date
                await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(undo)
        for number in range(1, 21):
            tasks.start_soon(one.commit, EVENT, decision(track_of(human_note=str(number))))
            before = one.track
            while one.track is before or one.behind:
                await anyio.lowlevel.checkpoint()
                if not one.behind:
                    looks += 1
                    assert digest_of(file.read_bytes()) == one.digest
        tasks.cancel_scope.cancel()
    assert looks


# --- the end of its track ------------------------------------------------------------------------------
@asynccontextmanager
async def ending(
    here: House, one: CommittedState, committed: list[object]
) -> AsyncIterator[tuple[anyio.abc.TaskGroup, Callable[[], None]]]:
    """Lend the tasks of a track that commits, and what lets the journal's disk answer."""

    async def commit() -> None:
        committed.append(await one.commit(EVENT, decision(track_of(human_note="last"), TELL)))

    with slow_disk() as let_go:
        async with anyio.create_task_group() as tasks:
            await tasks.start(one.finish)
            tasks.start_soon(commit)
            await eventually(lambda: here.journal.waiting_since is not None)
            yield tasks, let_go


async def test_a_commit_ends_before_its_track_does(here: House) -> None:
    """Its orders are returned, though nothing else of the track goes on."""
    one, committed = state_of(here), list[object]()

    async with ending(here, one, committed) as (tasks, let_go):
        tasks.cancel_scope.cancel()
        let_go()

    assert ("last", 1, 1) == (shown(one), here.journal.newest, len(committed))


async def test_a_disk_that_hangs_does_not_hold_up_the_end_of_a_track(here: House) -> None:
    """The commit is cut short, and so is the task that asked for it."""
    one, committed = state_of(here, finish_limit_s=0.01), list[object]()

    async with ending(here, one, committed) as (tasks, _):
        tasks.cancel_scope.cancel()

    assert ([], None) == (committed, one.track.state)
    assert not at(one.key.project, ".ai/STATE.json").exists()


async def test_a_track_that_has_ended_commits_nothing(here: House) -> None:
    """Its task was cancelled between two commits."""
    one = state_of(here)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await one.commit(EVENT, decision(track_of()))

    assert (True, 0) == (scope.cancelled_caught, here.journal.newest)
