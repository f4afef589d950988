"""What makes work go on: starts and `continue`, at both levels."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.supervision import MemorySupervision, project_view, track_view
from tests.unit.journal.making import opened

from handoffd.api.chat import Progress
from handoffd.api.service import Caller, Service
from handoffd.clock import SystemClock
from handoffd.engine.decision import AlreadyRunning, Dispatched, Finished, Refusal
from handoffd.engine.events import Continued, Initialised, PromptTaken, Resumed, Started
from handoffd.journal.journal import Journal

EVE = Caller(pid=4711, by="eve")


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    """An empty journal."""
    async with opened(tmp_path / "journal.db") as lent:
        yield lent


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A project's folder."""
    return str(tmp_path)


def progress(supervision: MemorySupervision, journal: Journal) -> Progress:
    """Return what goes on for eve."""
    service = Service(
        supervision,
        journal,
        SystemClock(),
        runs_dir=Path(os.devnull),
        stop=lambda _: None,
        inside=lambda _: False,
    )
    return Progress(service, EVE)


def at(root: str, level: Any, **track: Any) -> MemorySupervision:
    """Return a project at a level."""
    return MemorySupervision(project_view(root, track_view(**track), level=level))


async def test_at_level_2_a_start_is_all(journal: Journal, root: str) -> None:
    """The daemon dispatches by itself."""
    supervision = at(root, 2)

    action, _ = await progress(supervision, journal).start(root, "start", {"story": "US-2"})

    [(_, verb)] = supervision.given
    assert ("started", True) == (action, isinstance(verb, Started) and verb.automatic)


@pytest.mark.parametrize("known", [True, False])
async def test_below_it_the_prompt_is_taken(journal: Journal, root: str, known: bool) -> None:
    """And the level stays; also of a folder that nobody supervised."""
    supervision = at(root, 1) if known else MemorySupervision()

    action, result = await progress(supervision, journal).start(root, "custom", {"text": "fix it"})

    verbs = [verb for _, verb in supervision.given if not isinstance(verb, Initialised)]
    assert [Started, PromptTaken] == [type(verb) for verb in verbs]
    assert isinstance(verbs[0], Started)
    assert not verbs[0].automatic
    assert ("dispatched", "# Do bdd") == (action, result["prompt"])
    assert {"step", "attempt", "next_step", "fw_lv", "caller_instruction"} <= result.keys()


@pytest.mark.parametrize(
    ("code", "tries"), [("ALREADY_RUNNING", [False]), ("STORY_IN_PROGRESS", [False, True])]
)
async def test_what_cannot_be_started_is_not_dispatched(
    journal: Journal, root: str, code: str, tries: list[bool]
) -> None:
    """It waits in line where something else is in flight; else the refusal is the answer."""
    supervision = at(root, 1)
    supervision.answer = Refusal(code=code, message="no", caller_instruction="no")

    action, result = await progress(supervision, journal).start(root, "start", {"story": "US-2"})

    assert ("error", code) == (action, result["code"])
    assert tries == [verb.queue for _, verb in supervision.given if isinstance(verb, Started)]


async def test_continue_at_level_1_hears_the_hand_off_and_takes_the_next_step(
    journal: Journal, root: str
) -> None:
    """In one go; what was heard is told beside it."""
    supervision = at(root, 1, status="running")
    supervision.applied = replace(supervision.applied, type="applied", message="it passed")

    action, result = await progress(supervision, journal).go_on(root)

    assert ("dispatched", "it passed") == (action, result["applied"]["message"])


async def test_a_hand_off_that_cannot_be_read_is_not_passed_over(journal: Journal, root: str) -> None:
    """Nothing is dispatched behind it."""
    supervision = at(root, 1, status="running")
    supervision.applied = replace(supervision.applied, type="error", message="line 3", code="INVALID_FILE")

    assert "error" == (await progress(supervision, journal).go_on(root))[0]
    assert [] == supervision.given


@pytest.mark.parametrize(
    ("paused", "coming", "action"),
    [
        (
            "eve",
            AlreadyRunning(step="bdd", elapsed_min=1, last_error=None, caller_instruction="wait"),
            "resumed",
        ),
        (
            None,
            AlreadyRunning(step="bdd", elapsed_min=1, last_error=None, caller_instruction="wait"),
            "already_running",
        ),
        (
            None,
            Dispatched(
                project="shop", story="US-1", step="bdd", attempt=1, dispatch="d", caller_instruction="x"
            ),
            "resumed",
        ),
        (None, Finished(story="US-1", summary="done", caller_instruction="x"), "done"),
    ],
)
async def test_continue_at_level_2(
    journal: Journal, root: str, paused: str | None, coming: Any, action: str
) -> None:
    """It lifts a pause; of what goes on by itself, or waits for a person, it tells."""
    supervision = MemorySupervision(project_view(root, track_view(), paused_by=paused))
    supervision.answer = coming

    found, _ = await progress(supervision, journal).go_on(root)

    assert action == found
    assert (action == "resumed") == ((root, Resumed(by="eve")) in supervision.given)


async def test_continue_after_a_story_starts_the_next_of_the_backlog(journal: Journal, root: str) -> None:
    """Which waits for just that."""
    supervision = MemorySupervision(
        project_view(root, track_view(step="done", status="pass", backlog=("US-2",), next_story="US-2"))
    )

    assert "resumed" == (await progress(supervision, journal).go_on(root))[0]
    assert [(root, Continued(by="eve"))] == supervision.given


async def test_continue_at_level_1_starts_it_and_takes_its_prompt(journal: Journal, root: str) -> None:
    """The project's level stays."""
    supervision = at(root, 1, step="done", status="pass", backlog=("US-2",), next_story="US-2")
    taken = Dispatched(
        project="shop", story="US-2", step="bdd", attempt=1, dispatch="d", caller_instruction="x"
    )
    supervision.handed_out = [
        Finished(story="US-1", summary="x", caller_instruction="x", next_story="US-2"),
        taken,
    ]

    action, result = await progress(supervision, journal).go_on(root)

    assert ("dispatched", "US-2") == (action, result["story"])
    assert [Continued, PromptTaken] == [type(verb) for _, verb in supervision.given][-2:]
