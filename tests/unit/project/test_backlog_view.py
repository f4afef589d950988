"""The backlog of a real project: its view, and the order in which it is worked off."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.eventually import eventually
from tests.support.house import NOW, House, at, daemon, house, make_project

from handoffd.engine.events import (
    Aborted,
    AutoContinueChosen,
    BacklogEdited,
    Continued,
    Initialised,
    LevelChosen,
    Started,
)
from handoffd.fleet.roster import Roster

ONE_STEP = "pipelines: {story: {first: bdd}}\nsteps: {bdd: {next_on_pass: done}}\n"
"""A pipeline of one step, so that a story is over at once."""


@asynccontextmanager
async def begun(tmp_path: Path, **files: str | None) -> AsyncIterator[tuple[House, Roster, str]]:
    """Lend a daemon with one initialised project, which has these files."""
    async with house(tmp_path) as here, daemon(here) as roster:
        root = make_project(tmp_path, **files)
        await roster.add(root)
        await roster.give(root, Initialised(project="shop"))
        yield here, roster, root


async def done(here: House) -> tuple[str, ...]:
    """Return the finished stories, in order."""
    [stored] = await here.journal.tracks()
    return stored.track.ledger.stories_done


async def until_done(here: House, roster: Roster, root: str, count: int) -> None:
    """Wait until `count` stories are finished in the journal, and the daemon shows the end of the last."""

    async def enough() -> bool:
        return len(await done(here)) == count and (await roster.view(root)).tracks[0].step == "done"

    waited: bool = await eventually(enough)
    assert waited


async def test_the_backlog_shows_what_each_story_waits_for(tmp_path: Path) -> None:
    """And who queued it, when, and what comes next."""
    async with begun(tmp_path) as (_, roster, root):
        await roster.give(root, Started(story="US-1", automatic=False))
        await roster.give(root, Started(story="US-2", queue=True, blocked_by=("US-1", "US-9"), by="mei"))
        await roster.give(root, Started(story="US-3", queue=True, priority=-1, complexity="S"))

        told = await roster.backlog(root)

        assert ("US-1", False, None, "US-3") == (
            told.story, told.auto_continue, told.chosen, told.next_story,
        )  # fmt: skip
        assert f"handoffd dispatch {root}" == told.next_command
        first, second = told.stories
        assert ("US-2", 1, "mei", NOW, False) == (
            first.story, first.place, first.by, first.at, first.startable,
        )  # fmt: skip
        assert (
            "waits for US-1 (in flight) and US-9 (never started, and not in the backlog)" == first.waits_for
        )
        assert ("US-3", 2, -1, "S", True, None) == (
            second.story, second.place, second.priority, second.complexity, second.startable,
            second.waits_for,
        )  # fmt: skip
        view = await roster.view(root)
        assert ("US-3", False) == (view.tracks[0].next_story, view.auto_continue)

        await roster.give(root, Aborted())
        told = await roster.backlog(root)
        assert (None, f"handoffd continue {root}") == (told.story, told.next_command)


async def test_the_backlog_of_a_project_at_rest_goes_on_as_its_settings_say(tmp_path: Path) -> None:
    """Which it has not read before a person asks."""
    gate = "pipelines: {story: {first: review}}\nsteps: {review: {next_on_pass: done}}\n"
    async with house(tmp_path) as here:
        root = make_project(tmp_path, rules=gate, settings="auto_continue: true\n")
        async with daemon(here) as roster:
            await roster.add(root)
            await roster.give(root, Initialised(project="shop"))
            await roster.give(root, Started(story="US-1", then=("US-2",)))
            await eventually(lambda: "review" == _step(root))
        async with daemon(here, rest_after_s=0.01) as roster:
            await eventually(lambda: roster.resting == 1)
            told = await roster.backlog(root)
            assert (True, "US-2", True) == (told.auto_continue, told.next_story, told.next_by_itself)


def _step(root: str) -> str:
    return str(json.loads(at(root, ".ai/STATE.json").read_text())["step"])


async def test_a_scheduled_story_is_next_where_it_starts_by_itself(tmp_path: Path) -> None:
    """Before a person's stories, which wait for `continue`; at level 1 in the usual order."""
    gate = "pipelines: {story: {first: review}}\nsteps: {review: {next_on_pass: done}}\n"
    async with begun(tmp_path, rules=gate) as (_, roster, root):
        await roster.give(root, Started(story="US-1", then=("US-2",)))
        nightly = Started(story="NIGHT", schedule="nightly", due=NOW, by="schedule nightly", queue=True)
        await roster.give(root, nightly)

        for choice, following in (
            (LevelChosen(level=2), ("NIGHT", True)),
            (LevelChosen(level=1), ("US-2", False)),
        ):
            await roster.give(root, choice)
            told = await roster.backlog(root)
            assert following == (told.next_story, told.next_by_itself)
            [track] = (await roster.view(root)).tracks
            assert following == (track.next_story, track.next_by_itself)


async def test_one_story_follows_another_by_itself(tmp_path: Path) -> None:
    """Also one that waits for another; a story that cannot start stays in the backlog."""
    async with begun(tmp_path, rules=ONE_STEP, settings="auto_continue: true\n") as (here, roster, root):
        await roster.give(root, Started(story="US-0", then=("US-2", "US-3", "US-4"), queue=True))
        await roster.give(root, BacklogEdited(story="US-2", blocked_by=("US-3",)))
        await roster.give(root, BacklogEdited(story="US-4", blocked_by=("US-9",)))

        await until_done(here, roster, root, 3)
        assert ("US-0", "US-3", "US-2") == await done(here)
        assert ["US-4"] == [story.story for story in (await roster.backlog(root)).stories]

        await roster.give(root, BacklogEdited(story="US-4", blocked_by=()))
        await until_done(here, roster, root, 4)


@pytest.mark.parametrize("choice", [None, False])
async def test_without_auto_continue_a_person_starts_the_next_story(
    tmp_path: Path, choice: bool | None
) -> None:
    """Also if a person switched it off in spite of the settings."""
    settings = "auto_continue: true\n" if choice is False else None
    async with begun(tmp_path, rules=ONE_STEP, settings=settings) as (here, roster, root):
        await roster.give(root, AutoContinueChosen(on=choice))
        await roster.give(root, Started(story="US-1", then=("US-2",)))
        await until_done(here, roster, root, 1)
        assert f"handoffd continue {root}" == (await roster.view(root)).tracks[0].next_command
        await roster.poll()
        assert ["US-2"] == [story.story for story in (await roster.backlog(root)).stories]

        await roster.give(root, Continued())
        await until_done(here, roster, root, 2)


async def test_an_untrusted_auto_continue_starts_nothing(tmp_path: Path) -> None:
    """An edit of the project's own file waits for a person's trust."""
    async with begun(tmp_path, rules=ONE_STEP) as (here, roster, root):
        at(root, ".ai/handoffd.yaml").write_text("auto_continue: true\n", encoding="utf-8")
        await roster.give(root, Started(story="US-1", then=("US-2",)))
        await until_done(here, roster, root, 1)
        assert ["US-2"] == [story.story for story in (await roster.backlog(root)).stories]
        assert "auto_continue" in (await roster.view(root)).held

        await roster.trust(root)
        await until_done(here, roster, root, 2)


async def test_a_refused_start_queues_nothing(tmp_path: Path) -> None:
    """Not even its further stories."""
    async with begun(tmp_path) as (_, roster, root):
        answer = await roster.give(root, Started(story="US-1", then=("US-2",), blocked_by=("US-2",)))

        assert "error" == answer.type
        assert () == (await roster.backlog(root)).stories
