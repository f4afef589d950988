"""The consumer of a track: it decides, commits, writes and carries out, in this order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from tests.support.eventually import eventually
from tests.support.house import (
    AT_ITS_LIMIT,
    HAND_OVER,
    LIMIT_S,
    House,
    at,
    bid,
    house,
    make_project,
    unwritable,
)
from tests.unit.project import living

from handoffd.engine.decision import Accepted, Refusal
from handoffd.engine.events import Aborted, Approved, Initialised, Noted, Paused, Resumed, Started
from handoffd.errors import Refused, StoreError
from handoffd.project.project import Project
from handoffd.protocol.state import Status
from handoffd.settings.model import LimitSettings
from handoffd.track.track import TrackSupervisor

A_LITTLE_S = 300.0
"""More than the rounding of times in agents' messages."""


@asynccontextmanager
async def track_in(
    here: House, *, loop: bool = True, settings: str | None = None
) -> AsyncIterator[TrackSupervisor]:
    """Lend the main track of a new, initialised project; with `loop` False without its consumer."""
    root = make_project(here.base, settings=settings)
    project = Project(root, here.services, ())
    await project.files.refresh()
    await project.look()
    async with anyio.create_task_group() as tasks:
        if loop:
            tasks.start_soon(project.main.run, ())
            await anyio.wait_all_tasks_blocked()
        await project.main.give(Initialised(project="shop"))
        yield project.main
        tasks.cancel_scope.cancel()
    project.dismiss()


def shown(here: House) -> dict[str, object]:
    """Return the content of STATE.json."""
    return living.shown(str(here.base / "shop"))


async def test_a_verb_is_answered_after_its_commit(here: House) -> None:
    """By then the journal and STATE.json have it; a refused one leaves no trace."""
    async with track_in(here) as track:
        before = (here.journal.newest, shown(here))
        assert isinstance((await track.give(Approved())).result, Refusal)
        assert before == (here.journal.newest, shown(here))

        assert isinstance((await track.give(Noted(text="Mind the rounding."))).result, Accepted)
        assert "Mind the rounding." == shown(here)["human_note"]
        assert "noted" == (await here.journal.events())[-1].kind


async def test_a_granted_slot_is_not_lost_to_a_verb(tmp_path: Path) -> None:
    """Even if both come at the same moment."""
    async with house(tmp_path, "sleep 600", slots=1) as here, track_in(here) as track:
        slots, other, woken = here.services.slots, bid("/srv/other"), list[str]()
        slots.occupy(other)
        await track.give(Started(story="US-001"))
        slots.ask(bid("/srv/next"), lambda: woken.append("next"))

        track.post(Noted(text="Mind the rounding."))
        slots.release(other.key)

        await eventually(lambda: shown(here)["status"] == "running")
        assert [] == woken
        await track.give(Aborted())
        await eventually(lambda: not track.attempts.live)


async def test_an_attempt_at_a_limit_waits_without_a_slot(tmp_path: Path) -> None:
    """It is tried again after the limit and not before, however often it is reminded."""
    async with house(tmp_path, AT_ITS_LIMIT) as here, track_in(here) as track:
        await track.give(Started(story="US-001"))
        await eventually(lambda: track.limited)

        assert "purse's usage limit, until" in (track.limited or "")
        assert ("pending", 1, 0) == (
            shown(here)["status"],
            shown(here)["attempt"],
            here.services.slots.in_use,
        )
        at(str(here.base), "paid").touch()
        track.remind()
        here.services.accounts.look(here.clock.now())
        await anyio.wait_all_tasks_blocked()
        assert track.track.ledger.dispatch is None

        here.clock.ahead_s += LIMIT_S + A_LITTLE_S
        here.services.accounts.look(here.clock.now())
        await eventually(lambda: shown(here)["step"] == "review")
        assert ((), ()) == (track.track.ledger.limited, here.services.accounts.views(here.clock.now()))


async def test_a_paused_track_leaves_the_queue_of_its_account(tmp_path: Path) -> None:
    """Otherwise it would be woken instead of one that can go on."""
    async with house(tmp_path, AT_ITS_LIMIT) as here, track_in(here) as track:
        await track.give(Started(story="US-001"))
        await eventually(lambda: track.limited)

        await track.give(Paused())
        await eventually(lambda: not here.services.accounts.waits(track.key))


async def test_without_waiting_a_limit_is_a_failure(tmp_path: Path) -> None:
    """`limits.wait: false`."""
    async with house(tmp_path, AT_ITS_LIMIT) as here:
        impatient = here.services.settings.model_copy(update={"limits": LimitSettings(wait=False)})
        services = replace(here.services, settings=impatient)
        async with track_in(replace(here, services=services)) as track:
            await track.give(Started(story="US-001"))
            await eventually(lambda: shown(here)["status"] == "needs_human")
            assert () == track.track.ledger.limited


async def test_an_unknown_executor_pauses_the_project(here: House) -> None:
    """It costs no attempt and holds no slot; `last_error` has the reason."""
    async with track_in(here, settings="executor: cluade\n") as track:
        await track.give(Started(story="US-001"))

        await eventually(lambda: track.track.ledger.paused_by == "handoffd: cluade is not to be found")
        await eventually(lambda: shown(here)["last_error"] is not None)
        assert "no executor 'cluade'" in str(shown(here)["last_error"])
        assert 1 == shown(here)["attempt"]
        await eventually(lambda: here.services.slots.in_use == 0)


async def test_a_broken_template_asks_a_person_and_starts_nothing(here: House) -> None:
    """The project's own templates are for a person to repair."""
    async with track_in(here) as track:
        own = at(track.key.project, ".ai/prompts/en/prompt.j2")
        own.parent.mkdir(parents=True)
        own.write_text("{% broken")
        await track.give(Started(story="US-001"))

        await eventually(lambda: shown(here)["status"] == "needs_human")
        assert 1 == shown(here)["attempt"]
        await eventually(lambda: here.services.slots.in_use == 0)


async def test_an_abort_ends_the_executor_and_closes_the_track(tmp_path: Path) -> None:
    """The track stays running until its last process has ended."""
    own_pids = {"level": "off"}  # in a sandbox a process has another number for itself
    agent = "echo $$ > new; mv new pid; sleep 600"
    async with house(tmp_path, agent, sandbox=own_pids) as here, track_in(here) as track:
        await track.give(Started(story="US-001"))
        file = at(track.key.project, "pid")
        await eventually(file.exists)
        await eventually(lambda: track.pid() == int(file.read_text()))  # the agent's own, not its shim's

        await track.give(Aborted(by="me"))

        await eventually(lambda: shown(here)["status"] == "needs_human")
        assert ("aborted by me", 0, None) == (shown(here)["last_error"], track.attempts.count, track.pid())


async def test_an_unwritable_state_file_stops_dispatches(here: House) -> None:
    """The journal has the decision, and the track goes on once the file is written."""
    async with track_in(here) as track:
        state = at(track.key.project, ".ai/STATE.json")
        state.unlink()
        state.mkdir()

        await track.give(Started(story="US-001"))

        assert track.committed.error is not None
        assert Status.PENDING is track.track.state.status  # type: ignore[union-attr]
        state.rmdir()
        await track.committed.project()
        track.wake()
        await eventually(lambda: shown(here)["step"] == "review")


async def test_a_verb_fails_at_once_when_the_journal_cannot_be_written(here: House) -> None:
    """It changes nothing, neither in memory nor on the disk."""
    async with track_in(here) as track:
        before = shown(here)

        with unwritable(here), pytest.raises(StoreError):
            await track.give(Noted(text="lost"))

        assert before == shown(here)
        assert None is track.track.state.human_note  # type: ignore[union-attr]


async def test_simultaneous_verbs_without_a_loop_take_turns(here: House) -> None:
    """No note is lost."""
    async with track_in(here, loop=False) as track:
        async with anyio.create_task_group() as tasks:
            for text in "abc":
                tasks.start_soon(track.give, Noted(text=text))

        assert "a\n\nb\n\nc" == shown(here)["human_note"]


async def test_a_failed_turn_holds_no_slot_and_is_repeated(here: House) -> None:
    """The verb before it succeeded, and its caller gets no error."""
    async with track_in(here) as track:
        await track.give(Started(story="US-001", automatic=False))
        with unwritable(here, "effects"):
            decision = await track.give(Resumed())

            assert ("accepted", 0) == (decision.result.type, here.services.slots.in_use)
        track.remind()

        await eventually(lambda: shown(here)["step"] == "review")


async def test_a_fact_waits_for_an_unwritable_journal(tmp_path: Path) -> None:
    """Meanwhile verbs are refused, and the status has the reason."""
    waiting = "until test -e go; do sleep 0.05; done"
    async with house(tmp_path, f"{waiting}\n{HAND_OVER}") as here, track_in(here) as track:
        track.retry_s = 0.05
        await track.give(Started(story="US-001"))
        await eventually(lambda: track.pid() is not None)
        with unwritable(here):
            at(track.key.project, "go").touch()
            await eventually(lambda: track.committed.trouble)
            with pytest.raises(StoreError), anyio.fail_after(60):
                await track.give(Noted(text="lost"))

        await eventually(lambda: shown(here)["step"] == "review")
        assert ["pass"] == [run.result for run in await here.journal.runs()]
        assert None is track.committed.trouble


async def test_half_a_character_from_an_agent_does_not_stop_its_track(tmp_path: Path) -> None:
    """The journal could never store it."""
    half = HAND_OVER.replace("status: pass", 'status: failing\\nfailing_tests: ["\\\\uD800"]')
    async with house(tmp_path, half) as here, track_in(here) as track:
        await track.give(Started(story="US-001"))

        await eventually(lambda: shown(here)["attempt"] != 1)


async def test_an_ended_track_refuses_verbs(here: House) -> None:
    """And ignores facts."""
    async with track_in(here) as track:
        pass
    with pytest.raises(Refused), anyio.fail_after(60):
        await track.give(Noted(text="Still there?"))
    track.post(Noted(text="Too late."))
    track.wake()


async def test_a_track_is_idle_while_it_waits_for_facts_only(tmp_path: Path) -> None:
    """Not with a fact in its inbox, not during lasting work, and not without a loop."""
    async with house(tmp_path, agent="sleep 600") as here, track_in(here) as track:
        await eventually(lambda: track.idle)
        track.wake()
        assert not track.idle
        await eventually(lambda: track.idle)

        held = anyio.Event()

        async def hold() -> None:
            await held.wait()

        track.begin("hold", hold)
        assert not track.idle
        held.set()
        await eventually(lambda: track.idle)
    assert not track.idle
