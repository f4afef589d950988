"""The backlog of a real project, as it is told and as it is worked off."""

from __future__ import annotations

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


async def begun(roster: Roster, root: str) -> None:
    """Supervise and initialise a project."""
    await roster.add(root)
    await roster.give(root, Initialised(project="shop"))


async def done(here: House) -> tuple[str, ...]:
    """Return the stories that are done, in the order in which they were."""
    [stored] = await here.journal.tracks()
    return stored.track.ledger.stories_done


async def until_done(here: House, count: int) -> None:
    """Wait until so many stories are done."""

    async def enough() -> bool:
        return len(await done(here)) == count

    waited: bool = await eventually(enough)
    assert waited


async def test_a_backlog_is_told_with_what_keeps_each_story(tmp_path: Path) -> None:
    """Who asked for it and when, what it waits for, and what comes next."""
    async with house(tmp_path) as here, daemon(here) as roster:
        root = make_project(tmp_path)
        await begun(roster, root)
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


async def test_what_a_schedule_queued_is_told_as_next_where_it_starts_by_itself(tmp_path: Path) -> None:
    """Before what a person queued, which waits for a `continue`; at level 1, after it like any other."""
    gate = "pipelines: {story: {first: review}}\nsteps: {review: {next_on_pass: done}}\n"
    async with house(tmp_path) as here, daemon(here) as roster:
        root = make_project(tmp_path, rules=gate)
        await begun(roster, root)
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
    """Those that wait for another after it; what nobody can start stays, and is named."""
    async with house(tmp_path) as here, daemon(here) as roster:
        root = make_project(tmp_path, rules=ONE_STEP, settings="auto_continue: true\n")
        await begun(roster, root)
        await roster.give(root, Started(story="US-0", then=("US-2", "US-3", "US-4"), queue=True))
        await roster.give(root, BacklogEdited(story="US-2", blocked_by=("US-3",)))
        await roster.give(root, BacklogEdited(story="US-4", blocked_by=("US-9",)))

        await until_done(here, 3)
        assert ("US-0", "US-3", "US-2") == await done(here)
        assert ["US-4"] == [story.story for story in (await roster.backlog(root)).stories]

        await roster.give(root, BacklogEdited(story="US-4", blocked_by=()))
        await until_done(here, 4)


@pytest.mark.parametrize("choice", [None, False])
async def test_without_that_a_person_has_the_next_story_start(tmp_path: Path, choice: bool | None) -> None:
    """Also where the settings say otherwise and a person chose so."""
    settings = "auto_continue: true\n" if choice is False else None
    async with house(tmp_path) as here, daemon(here) as roster:
        root = make_project(tmp_path, rules=ONE_STEP, settings=settings)
        await begun(roster, root)
        await roster.give(root, AutoContinueChosen(on=choice))
        await roster.give(root, Started(story="US-1", then=("US-2",)))
        await until_done(here, 1)
        assert f"handoffd continue {root}" == (await roster.view(root)).tracks[0].next_command
        await roster.poll()
        assert ["US-2"] == [story.story for story in (await roster.backlog(root)).stories]

        await roster.give(root, Continued())
        await until_done(here, 2)


async def test_the_settings_of_an_agent_start_nothing(tmp_path: Path) -> None:
    """An edit of the project's own file waits for a person's trust."""
    async with house(tmp_path) as here, daemon(here) as roster:
        root = make_project(tmp_path, rules=ONE_STEP)
        await begun(roster, root)
        at(root, ".ai/handoffd.yaml").write_text("auto_continue: true\n", encoding="utf-8")
        await roster.give(root, Started(story="US-1", then=("US-2",)))
        await until_done(here, 1)
        assert ["US-2"] == [story.story for story in (await roster.backlog(root)).stories]
        assert any("auto_continue waits for" in warning for warning in (await roster.view(root)).warnings)

        await roster.trust(root)
        await until_done(here, 2)


async def test_a_start_that_is_taken_is_taken_whole(tmp_path: Path) -> None:
    """Whoever is refused has nothing in the backlog."""
    async with house(tmp_path) as here, daemon(here) as roster:
        root = make_project(tmp_path)
        await begun(roster, root)
        answer = await roster.give(root, Started(story="US-1", then=("US-2",), blocked_by=("US-2",)))

        assert "error" == answer.type
        assert () == (await roster.backlog(root)).stories
