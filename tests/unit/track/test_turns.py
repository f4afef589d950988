"""The inputs of a track's turn: finished stories, hand-offs, a baseline, an executor."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.house import SHORT, House, at, make_project, track_of
from tests.unit.track.test_checks import Yard

from handoffd.engine.track import Ledger, TrackKey
from handoffd.project.files import ProjectFiles
from handoffd.protocol.state import Status
from handoffd.settings.model import ProjectSettings, Settings
from handoffd.track.turns import Turns, dispatches, goes_on_by_itself


async def turns(here: House, settings: str | None = None, rules: str | None = SHORT) -> Turns:
    """Return the turns of a new project's main track, without finished stories."""
    root = make_project(here.base, settings=settings, rules=rules)
    files = ProjectFiles(root, here.journal, here.clock)
    await files.refresh()
    return Turns(TrackKey(root), Yard(files), here.services, lambda track: track.works_in(root))


async def test_a_turn_uses_the_current_files(here: House, tmp_path: Path) -> None:
    """A new id, the chosen executor, and the mark of the current hand-off, which will be stale."""
    one = await turns(here)
    at(str(tmp_path / "shop"), ".ai/HANDOFF.md").write_text("---\nstatus: pass\n---\n")

    event, decision = await one.next(track_of())

    assert ("agent", False, ()) == (event.executor, event.baseline, event.unmet)
    assert event.mark.handoff is not None
    assert dispatches(decision)
    assert event.dispatch != (await one.next(track_of()))[0].dispatch


async def test_the_next_step_decides_the_executor(here: House) -> None:
    """Not the passed one; the dispatch has its account."""
    one = await turns(here, rules="steps: {bdd: {executor: rehearsal, next_on_pass: impl}}\n")

    event, decision = await one.next(track_of(Status.PASS))
    dispatch = decision.track.ledger.dispatch

    assert ("agent", "purse") == (event.executor, event.account)
    assert dispatch is not None
    assert ("impl", "agent", "purse") == (dispatch.step, dispatch.executor, dispatch.account)
    assert "rehearsal" == (await one.next(track_of()))[0].executor


async def test_unfinished_blockers_are_listed(here: House) -> None:
    """`max_attempts_exceeded` is not a story."""
    event, decision = await (await turns(here)).next(track_of(blocked_by=("US-000", "max_attempts_exceeded")))

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
async def test_a_baseline_is_measured_once_per_story(
    here: House, tmp_path: Path, command: bool, measured: bool, red_done: bool, wanted: bool
) -> None:
    """If there is a test command, before the first red step."""
    one = await turns(here, "test: {command: [make, test]}\n" if command else None)
    if measured:
        await here.journal.save_baseline(TrackKey(str(tmp_path / "shop")), "US-001", b"{}")

    event, _ = await one.next(track_of().with_ledger(red_done=red_done))

    assert wanted is event.baseline


async def test_a_peek_at_level_1_shows_the_next_hand_out(here: House) -> None:
    """Its prompt; or the timeout of an external attempt."""
    one = await turns(here)
    by_hand = track_of().with_ledger(automatic=False)
    late = track_of(Status.RUNNING).with_ledger(automatic=False)
    begun = here.services.clock.now() - timedelta(hours=5)

    taken, _, prompt, _ = await one.peek(by_hand)
    over, *_ = await one.peek(late.with_state(dispatched_at=begun, timeout_min=10))

    assert ("dispatched", True) == (taken.result.type, prompt is not None)
    assert "timeout" == over.result.type


async def test_a_peek_has_a_prompt_only_for_a_dispatch(here: House) -> None:
    """It leaves nothing behind."""
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
def test_a_persons_choice_wins_over_project_and_daemon_settings(
    chosen: bool | None, project: bool | None, daemon: bool, expected: bool
) -> None:
    """By default the next story waits."""
    settings = Settings(state_dir=Path("/s"), runtime_dir=Path("/r"), auto_continue=daemon)
    own = ProjectSettings(auto_continue=project)
    assert expected is goes_on_by_itself(Ledger(auto_continue=chosen), own, settings)
