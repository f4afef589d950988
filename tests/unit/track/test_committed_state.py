"""How a track stands: committed, in memory, in STATE.json; in this order, or not at all."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from tests.support.house import House, at, dispatch_of, house, make_project, track_of
from tests.support.playbook import shipped_rules

from handoffd.engine.decide import decide
from handoffd.engine.decision import Accepted, Decision, Notify
from handoffd.engine.events import Noted, Paused
from handoffd.engine.track import Track, TrackKey
from handoffd.errors import StoreError
from handoffd.files.atomic import digest_of
from handoffd.journal.replay import Recordings
from handoffd.track.committed_state import CommittedState

EVENT = Noted(text="Mind the rounding.")
TELL = Notify(notice="done", story="US-001", step="done", text="done")


def decision(track: Track, *effects: Notify) -> Decision:
    """Return a decision that leads to `track`."""
    result = Accepted(step="bdd", status="pending", message="taken", caller_instruction="go on")
    return Decision(track=track, result=result, why="a test says so", effects=effects)


def state_of(here: House) -> CommittedState:
    """Return how the main track of a new project stands: not yet at all."""
    return CommittedState(TrackKey(make_project(here.base)), Track(), None, here.services)


def shown(one: CommittedState) -> str:
    """Return the note in STATE.json."""
    return str(json.loads(at(one.key.project, ".ai/STATE.json").read_text())["human_note"])


async def test_a_decision_is_recorded_shown_and_its_orders_are_returned(tmp_path: Path) -> None:
    """The digest of the file is the journal's."""
    async with house(tmp_path) as here:
        one = state_of(here)

        orders = await one.commit(EVENT, decision(track_of(human_note="first"), TELL))

        assert [TELL] == [order.effect for order in orders]
        assert ("first", track_of(human_note="first")) == (shown(one), one.track)
        (stored,) = await here.journal.tracks()
        assert (one.digest, one.track) == (stored.digest, stored.track)


async def test_a_decision_that_is_memorable_is_recorded_although_nothing_follows(tmp_path: Path) -> None:
    """The history tells of it."""
    async with house(tmp_path) as here:
        one = state_of(here)
        await one.commit(EVENT, decision(track_of()))
        before = here.journal.newest

        await one.commit(EVENT, replace(decision(track_of()), memorable=True))

        assert before + 1 == here.journal.newest


async def test_a_decision_that_changes_nothing_is_not_recorded(tmp_path: Path) -> None:
    """A hint a second would fill the journal."""
    async with house(tmp_path) as here:
        one = state_of(here)
        await one.commit(EVENT, decision(track_of()))
        before = here.journal.newest

        assert () == await one.commit(EVENT, decision(track_of()))
        assert before == here.journal.newest


async def test_nothing_changes_when_the_journal_cannot_take_it(tmp_path: Path) -> None:
    """Neither in memory nor on the disk."""
    async with house(tmp_path) as here:
        one = state_of(here)
        await one.commit(EVENT, decision(track_of(human_note="first")))
        with sqlite3.connect(here.services.settings.journal, timeout=60) as saboteur:
            saboteur.execute(
                "CREATE TRIGGER full BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'full'); END"
            )
        saboteur.close()

        with pytest.raises(StoreError):
            await one.commit(EVENT, decision(track_of(human_note="second")))

        assert ("first", track_of(human_note="first")) == (shown(one), one.track)


async def test_a_file_that_cannot_be_written_is_remembered_until_it_can(tmp_path: Path) -> None:
    """The decision stands all the same."""
    async with house(tmp_path) as here:
        one = state_of(here)
        state = at(one.key.project, ".ai/STATE.json")
        state.mkdir()

        await one.commit(EVENT, decision(track_of(human_note="first")))
        assert (True, 1) == (bool(one.error), here.journal.newest)

        state.rmdir()
        await one.project()
        assert ("first", None) == (shown(one), one.error)


async def test_after_a_restart_it_has_waited_since_the_last_decision(tmp_path: Path) -> None:
    """As long as nothing was decided here; a clock that was put back has it wait for no time."""
    async with house(tmp_path) as here:
        found = state_of(here)
        assert 0 == found.waited_s()
        found.inherited_at = here.clock.now()
        here.clock.ahead_s = 90
        assert 90 == found.waited_s()
        here.clock.jumped_s = -3600
        assert 0 == found.waited_s()
        await found.commit(EVENT, decision(track_of()))
        assert 0 == found.waited_s()


async def test_a_file_that_says_it_already_is_left_alone(tmp_path: Path) -> None:
    """What changed is only in the ledger; nobody's watcher is woken for nothing."""
    async with house(tmp_path) as here:
        one = state_of(here)
        await one.commit(EVENT, decision(track_of()))
        before = at(one.key.project, ".ai/STATE.json").stat().st_ino

        await one.commit(EVENT, decision(track_of().with_ledger(next_note="later")))

        assert before == at(one.key.project, ".ai/STATE.json").stat().st_ino


async def test_a_decision_is_recorded_with_the_time_and_the_rules_it_was_made_with(tmp_path: Path) -> None:
    """However late it is committed: else it could not be made again."""
    async with house(tmp_path) as here:
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


async def test_a_text_that_was_not_looked_at_is_not_written_over(tmp_path: Path) -> None:
    """A person saved it a moment before a decision was shown; once it was looked at, it may go."""
    async with house(tmp_path) as here:
        one = state_of(here)
        await one.commit(EVENT, decision(track_of(human_note="first")))
        file = at(one.key.project, ".ai/STATE.json")
        file.write_text('{"human_note": "mine"}')

        await one.commit(EVENT, decision(track_of(human_note="second")))
        assert ("mine", True, False) == (shown(one), one.left_alone, one.shown)

        one.saw(digest_of(file.read_bytes()))
        await one.project()
        assert ("second", False, True) == (shown(one), one.left_alone, one.shown)


async def test_what_is_written_while_an_executor_runs_is_written_over(tmp_path: Path) -> None:
    """Up to the decision that records its end: what an agent wrote at last is no person's edit."""
    async with house(tmp_path) as here:
        one = state_of(here)
        await one.commit(EVENT, decision(track_of(dispatch=dispatch_of(), human_note="first")))
        at(one.key.project, ".ai/STATE.json").write_text('{"human_note": "the agent\'s"}')

        await one.commit(EVENT, decision(track_of(human_note="second")))

        assert ("second", True) == (shown(one), one.shown)


async def test_a_state_file_that_appears_meanwhile_is_not_written_over(tmp_path: Path) -> None:
    """There was none when it was looked at."""
    async with house(tmp_path) as here:
        one = state_of(here)
        one.saw(None)
        at(one.key.project, ".ai/STATE.json").write_text('{"human_note": "mine"}')

        await one.commit(EVENT, decision(track_of(human_note="first")))

        assert ("mine", True) == (shown(one), one.left_alone)


async def test_what_is_not_behind_is_shown_whoever_writes_beside_whom(tmp_path: Path) -> None:
    """A look that undoes an edit, and the consumer: the end of one's writing is not that of the other's."""
    async with house(tmp_path) as here:
        one = state_of(here)
        await one.commit(EVENT, decision(track_of(human_note="0")))
        file, looks = at(one.key.project, ".ai/STATE.json"), 0

        async def undo() -> None:
            while True:
                await one.project()
                for _ in range(20):  # else it is behind for ever
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
