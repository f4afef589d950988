"""What a track's turn depends on: stories that are done, hand-offs, a baseline, an executor."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.house import SHORT, House, at, house, make_project, track_of
from tests.unit.track.test_checks import Yard

from handoffd.engine.track import Ledger, TrackKey
from handoffd.project.files import ProjectFiles
from handoffd.protocol.state import Status
from handoffd.settings.model import ProjectSettings, Settings
from handoffd.track.turns import Turns, dispatches, goes_on_by_itself


async def turns(here: House, settings: str | None = None, rules: str | None = SHORT) -> Turns:
    """Return the turns of the main track of a new project in which no story is done."""
    root = make_project(here.base, settings=settings, rules=rules)
    files = ProjectFiles(root, here.journal, here.clock)
    await files.refresh()
    return Turns(TrackKey(root), Yard(files), here.services)


async def test_a_turn_is_decided_by_what_is_there_now(tmp_path: Path) -> None:
    """A new id, the chosen executor, and the hand-off as it lies there: what equals it will be stale."""
    async with house(tmp_path) as here:
        one = await turns(here)
        at(str(tmp_path / "shop"), ".ai/HANDOFF.md").write_text("---\nstatus: pass\n---\n")

        event, decision = await one.next(track_of())

        assert ("agent", False, ()) == (event.executor, event.baseline, event.unmet)
        assert event.mark.handoff is not None
        assert dispatches(decision)
        assert event.dispatch != (await one.next(track_of()))[0].dispatch


async def test_who_is_dispatched_follows_from_the_step_that_the_turn_comes_to(tmp_path: Path) -> None:
    """Not from the one that has passed; and the dispatch knows its account."""
    async with house(tmp_path) as here:
        one = await turns(here, rules="steps: {bdd: {executor: rehearsal, next_on_pass: impl}}\n")

        event, decision = await one.next(track_of(Status.PASS))
        dispatch = decision.track.ledger.dispatch

        assert ("agent", "purse") == (event.executor, event.account)
        assert dispatch is not None
        assert ("impl", "agent", "purse") == (dispatch.step, dispatch.executor, dispatch.account)
        assert "rehearsal" == (await one.next(track_of()))[0].executor


async def test_stories_that_are_not_done_are_named(tmp_path: Path) -> None:
    """Used-up attempts are no story."""
    async with house(tmp_path) as here:
        event, decision = await (await turns(here)).next(
            track_of(blocked_by=("US-000", "max_attempts_exceeded"))
        )

        assert (("US-000",), "blocked", False) == (event.unmet, decision.result.type, dispatches(decision))


@pytest.mark.parametrize(
    ("command", "measured", "red_done", "wanted"),
    [
        (True, False, False, True),
        (False, False, False, False),
        (True, True, False, False),
        (True, False, True, False),
    ],
)
async def test_a_baseline_is_wanted_once_a_story(
    tmp_path: Path, command: bool, measured: bool, red_done: bool, wanted: bool
) -> None:
    """If there are tests to run, before the first red step."""
    async with house(tmp_path) as here:
        one = await turns(here, "test: {command: [make, test]}\n" if command else None)
        if measured:
            await here.journal.save_baseline(TrackKey(str(tmp_path / "shop")), "US-001", b"{}")

        event, _ = await one.next(track_of().with_ledger(red_done=red_done))

        assert wanted is event.baseline


async def test_a_dispatch_is_laid_out_before_it_is_decided(tmp_path: Path) -> None:
    """Its prompt is there when its order is committed."""
    async with house(tmp_path) as here:
        one = await turns(here)
        event, decision = await one.next(track_of())

        await one.stage(event, decision)

        prompt = (here.services.run_dir(event.dispatch) / "prompt.md").read_text()
        assert event.dispatch in prompt


async def test_a_peek_at_level_1_is_what_somebody_would_get(tmp_path: Path) -> None:
    """A prompt where they would take one; nothing, and why, when an attempt of theirs is out of time."""
    async with house(tmp_path) as here:
        one = await turns(here)
        by_hand = track_of().with_ledger(automatic=False)
        late = track_of(Status.RUNNING).with_ledger(automatic=False)
        begun = here.services.clock.now() - timedelta(hours=5)

        taken, _, prompt, _ = await one.peek(by_hand)
        over, *_ = await one.peek(late.with_state(dispatched_at=begun, timeout_min=10))

        assert ("dispatched", True) == (taken.result.type, prompt is not None)
        assert "timeout" == over.result.type


async def test_a_peek_has_a_prompt_only_where_something_would_run(tmp_path: Path) -> None:
    """And leaves nothing behind."""
    async with house(tmp_path) as here:
        one = await turns(here)

        assert None is (await one.peek(track_of(Status.NEEDS_HUMAN)))[2]
        prompt = (await one.peek(track_of()))[2]

        assert prompt is not None
        assert [] == list(here.services.settings.runs_dir.iterdir())


@pytest.mark.parametrize(
    ("chosen", "project", "daemon", "expected"),
    [
        (None, None, False, False),
        (None, None, True, True),
        (None, False, True, False),
        (None, True, False, True),
        (True, False, False, True),
        (False, True, True, False),
    ],
)
def test_a_persons_choice_goes_before_the_projects_settings_and_these_before_the_daemons(
    chosen: bool | None, project: bool | None, daemon: bool, expected: bool
) -> None:
    """Where nobody says anything, it waits."""
    settings = Settings(state_dir=Path("/s"), runtime_dir=Path("/r"), auto_continue=daemon)
    own = ProjectSettings(auto_continue=project)
    assert expected is goes_on_by_itself(Ledger(auto_continue=chosen), own, settings)
