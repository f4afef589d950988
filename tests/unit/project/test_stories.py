"""Stories side by side under a running project: opened, told apart, landed, closed; also over a crash."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from tests.support.eventually import eventually
from tests.support.house import HAND_OVER, House, at, house, unwritable
from tests.support.repositories import git
from tests.unit.project.living import living
from tests.unit.project.test_landing import commit, said
from tests.unit.track.test_workspace import in_git

from handoffd.cli.status_report import condition_of
from handoffd.cli.stories.backlog import report
from handoffd.engine.decision import Accepted, Refusal, Result
from handoffd.engine.events import (
    Aborted,
    Approved,
    BudgetRaised,
    Initialised,
    LevelChosen,
    Noted,
    Paused,
    Reopened,
    Resumed,
    Retried,
    RolledBack,
    Started,
    StoryClosed,
    StoryOpened,
    TrackClosed,
    Undone,
    Verb,
)
from handoffd.engine.run import Usage
from handoffd.engine.track import Track
from handoffd.engine.verbs import MOST_RESOLVES
from handoffd.engine.views import LandingRequest
from handoffd.errors import HandoffdError, Refused
from handoffd.project.external_changes import AT_ONCE as MOST_EDITS
from handoffd.project.landing import AGAIN_S, MOST_PUT_OFF, MOST_TRIES
from handoffd.project.manual import Manual, may_be_handed_in, may_be_taken
from handoffd.project.project import Project
from handoffd.project.status import backlog_of, peek_of, snapshots_of, story_of, view_of
from handoffd.protocol.state import State, Status, plain
from handoffd.protocol.story_text import story_text

SIDE_BY_SIDE = "workspace: clone\nstories: {parallel: 3}\n"
AT_ONCE = f"""\
echo "$HANDOFFD_STEP" >> "$HANDOFFD_STORY.txt"
touch "$HOME/at-$HANDOFFD_STORY-$HANDOFFD_STEP"
until test -e "$HOME/go"; do sleep 0.02; done
{HAND_OVER}"""
"""Waits for the test before it hands over."""
FREELY = f"""\
echo "$HANDOFFD_STEP" >> "$HANDOFFD_STORY.txt"
{HAND_OVER}"""


@asynccontextmanager
async def beside(
    base: Path, agent: str = FREELY, settings: str = SIDE_BY_SIDE, stories: int = 3
) -> AsyncIterator[tuple[House, Project]]:
    """Lend a project with stories that were started one after the other."""
    async with house(base, agent) as here, living(here, in_git(base, settings)) as project:
        await project.main.give(Initialised(project="shop"))
        for number in range(1, stories + 1):
            assert isinstance(await given(project, Started(story=f"US-{number:03}")), Accepted)
        yield here, project


async def given(project: Project, verb: Verb, story: str | None = None) -> Result:
    """Give a verb as people do, and return the answer."""
    return await project.stories.give(verb, None, story)


def step_of(project: Project, story: str) -> str | None:
    """Return the step that the STATE file of a story's own track says; None without one."""
    file = at(project.root, f".ai/states/{story}.json")
    return str(json.loads(file.read_text())["step"]) if file.exists() else None


def main_state(project: Project) -> State:
    """Return what STATE.json says, of the story that the project's first track works on."""
    state = project.main.track.state
    assert state is not None
    return state


async def two_at_review(project: Project) -> None:
    """Have two stories of a new project come to their reviews."""
    await project.main.give(Initialised(project="shop"))
    for story in ("US-001", "US-002"):
        await given(project, Started(story=story))
    await all_at(project, "review", "US-002")


async def all_at(project: Project, step: str, *stories: str) -> None:
    """Wait until stories with tracks of their own are at a step."""
    await eventually(lambda: [step] * len(stories) == [step_of(project, story) for story in stories])


async def test_stories_are_worked_on_at_once_in_clones_of_their_own(tmp_path: Path) -> None:
    """Each agent finds its story alone; the backlog is empty, and each has a STATE file."""
    async with beside(tmp_path, AT_ONCE) as (_, project):
        at_work = [tmp_path / f"at-US-{number:03}-bdd" for number in (1, 2, 3)]
        await eventually(lambda: all(file.exists() for file in at_work))
        (tmp_path / "go").touch()
        await all_at(project, "review", "US-002", "US-003")
        folders = {name: track.workspace.folder for name, track in project.tracks.items()}
        assert 3 == len({*folders.values()})
        assert at(folders["US-003"], "US-003.txt").exists()
        assert not at(folders["US-003"], "US-002.txt").exists()
        assert () == project.main.track.ledger.backlog
        assert "# US-002" in at(folders["US-002"], ".ai/CHECKLIST.md").read_text()
        assert "# US-001" in at(project.root, ".ai/CHECKLIST.md").read_text()


async def test_an_undo_is_for_the_only_story_with_an_approval(tmp_path: Path) -> None:
    """As long as no attempt of it has begun."""
    async with beside(tmp_path, stories=2) as (_, project):
        await all_at(project, "review", "US-002")
        await eventually(lambda: project.main.track.ledger.gate == "review")
        await given(project, Paused())
        await given(project, Approved(story="US-002", undoable=True))
        assert project.stories.meant(Undone(), None) == "US-002"

        assert isinstance(await given(project, Undone()), Accepted)

        own = project.tracks["US-002"].track
        assert own.state is not None
        assert ("review", "needs_human", None) == (own.state.step, own.state.status, own.ledger.approval)
        assert isinstance(await given(project, Undone()), Refusal)


async def test_a_verb_is_for_the_story_that_is_named_or_the_only_one_it_fits(tmp_path: Path) -> None:
    """Of two gates one must be named; a note is for the story whose track it is."""
    async with beside(tmp_path, stories=2) as (_, project):
        await all_at(project, "review", "US-002")
        await eventually(lambda: project.main.track.ledger.gate == "review")
        with pytest.raises(Refused) as caught:
            await given(project, Approved())
        assert ("AMBIGUOUS", True) == (caught.value.code, "US-001, US-002" in caught.value.message)
        assert f"handoffd status {project.root}  # then again, with --story US-001" == caught.value.hint
        assert isinstance(await given(project, Noted(text="cents"), "US-002"), Accepted)
        own = project.tracks["US-002"].track.state
        assert own is not None
        assert ("cents", None) == (own.human_note, main_state(project).human_note)
        assert isinstance(await given(project, Approved(story="US-002")), Accepted)
        await all_at(project, "done", "US-002")
        assert isinstance(await given(project, Approved()), Accepted)  # one gate is left
        await eventually(lambda: main_state(project).step == "done")


@pytest.mark.parametrize("stories", [1, 2])
async def test_a_verb_for_a_story_that_is_not_in_flight_hits_no_other_one(
    tmp_path: Path, stories: int
) -> None:
    """It may have been landed, or given up, since the command was thought of."""
    async with beside(tmp_path, stories=stories) as (_, project):
        await eventually(lambda: project.main.track.ledger.gate == "review")
        before = project.main.track
        for verb in (Aborted(), RolledBack(step="bdd"), Reopened(step="bdd"), Noted(text="?"), Paused()):
            with pytest.raises(Refused) as caught:
                await given(project, verb, "US-009")
            assert "WRONG_STORY" == caught.value.code
        assert before == project.main.track
        assert isinstance(await given(project, Noted(text="cents"), "US-001"), Accepted)


async def test_status_names_each_story_and_the_command_for_it(tmp_path: Path) -> None:
    """Also where a verb is for the story in flight: then it says which."""
    async with beside(tmp_path, stories=2) as (here, project):
        await all_at(project, "review", "US-002")
        await eventually(lambda: project.main.track.ledger.gate == "review")
        await given(project, Paused(by="mei"), "US-002")
        views = {one.track: one for one in (await view_of(project, here.services.slots)).tracks}
        assert ["main", "US-002"] == list(views)
        assert f"handoffd resume {project.root} --story US-002" == views["US-002"].next_command
        shop = {"condition": "ok", "paused_by": None}
        said = {name: condition_of(shop, plain(one), daemon=True) for name, one in views.items()}
        assert {"main": "needs_human", "US-002": "paused"} == said
        await given(project, LevelChosen(level=1))
        await given(project, Approved(story="US-001"))
        (first, _) = (await view_of(project, here.services.slots)).tracks
        assert f"handoffd dispatch {project.root} --story US-001" == first.next_command
        assert project.main.track.ledger.paused_by is None


async def test_the_backlog_names_every_story_in_flight(tmp_path: Path) -> None:
    """And is empty of them; a story with a track of its own has its place and its text."""
    async with beside(tmp_path, stories=2) as (_, project):
        await all_at(project, "review", "US-002")
        view = backlog_of(project)
        assert ("US-001", ("US-002",), ()) == (view.story, view.beside, view.stories)
        assert "US-001, US-002 are in flight" in report({**plain(view), "name": "shop", "daemon": True})[0]
        assert "in_flight" == story_of(project, "US-002").standing
        assert "US-002" == (await snapshots_of(project, "US-002")).story


async def test_a_start_while_a_story_waits_begins_beside_it_whatever_the_settings_say(tmp_path: Path) -> None:
    """A person wants it now; only `--force` sets the other one aside, and then each screen names that."""
    async with beside(tmp_path, settings=f"{SIDE_BY_SIDE}auto_continue: false\n", stories=1) as (_, project):
        await eventually(lambda: "review" == main_state(project).step)
        told = await given(project, Started(story="US-002"))
        assert "US-002 starts beside US-001" in told.caller_instruction
        await all_at(project, "review", "US-002")
        assert ("US-001", ()) == (main_state(project).story, project.main.track.ledger.parked)

        await given(project, Started(story="US-003", force=True))
        view = backlog_of(project)
        assert ("US-003", ("US-002",), ("US-001",)) == (view.story, view.beside, view.set_aside)
        lines = report({**plain(view), "name": "shop", "daemon": True})
        assert "Set aside: US-001: handoffd start shop US-001 --queue" in lines
        await given(project, Started(story="US-001"))
        assert "Set aside: US-001" in report({**plain(backlog_of(project)), "name": "shop", "daemon": True})


async def test_too_many_stories_that_wait_are_named(tmp_path: Path) -> None:
    """By the status and the backlog: the next one does not start by itself then."""
    settings = "workspace: clone\nstories: {parallel: 3, waiting: 1}\n"
    async with beside(tmp_path, settings=settings, stories=2) as (here, project):
        await eventually(lambda: "review" == main_state(project).step)
        await all_at(project, "review", "US-002")
        await given(project, Started(story="US-003"))

        why = "of US-001, US-002, no more than 1 may wait while another one begins (stories.waiting)"
        view = backlog_of(project)
        assert (["US-003"], why) == ([one.story for one in view.stories], view.next_waits)
        lines = report({**plain(view), "name": "shop", "daemon": True})
        assert f"US-003 does not start now: {why}." in lines
        shop = await view_of(project, here.services.slots)
        assert why == shop.tracks[0].next_waits
        await given(project, Approved(story="US-002"))
        await eventually(lambda: "US-003" in project.tracks)


async def test_a_story_that_is_done_is_not_in_flight(tmp_path: Path) -> None:
    """The backlog names it as one to land."""
    async with beside(tmp_path, stories=2) as (_, project):
        await all_at(project, "review", "US-002")
        await given(project, Approved(story="US-002"))
        await all_at(project, "done", "US-002")

        view = backlog_of(project)
        assert ("US-001", (), ("US-002",)) == (view.story, view.beside, view.to_land)
        lines = report({**plain(view), "name": "shop", "daemon": True})
        assert "Not landed yet: US-002: handoffd land shop --story US-002" in lines
        assert "shop: US-001 is in flight" == lines[0]


async def test_what_people_do_themselves_is_for_one_of_the_stories(tmp_path: Path) -> None:
    """Taken with its prompt, handed in, looked at: the one that is named, or the only one that it fits."""
    async with beside(tmp_path, stories=2) as (here, project):
        await all_at(project, "review", "US-002")
        await eventually(lambda: project.main.track.ledger.gate == "review")
        await given(project, LevelChosen(level=1))
        for story in ("US-001", "US-002"):
            await given(project, Approved(story=story))

        def by_hand(story: str | None, ready: Callable[[Track], bool]) -> Manual:
            return Manual(project, here.services, project.stories.by_hand(story, ready))

        with pytest.raises(Refused, match="US-001, US-002 are in flight") as caught:
            by_hand(None, may_be_taken)
        assert "AMBIGUOUS" == caught.value.code
        with pytest.raises(Refused, match="US-001, US-002 are in flight"):
            await peek_of(project, bootstrapped=True)
        assert "US-002" == (await peek_of(project, "US-002", bootstrapped=True)).track

        manual = by_hand("US-002", may_be_taken)
        result, prompt = await manual.hand_out("mei")
        assert ("dispatched", "US-002") == (result.type, manual.own)
        assert "US-002" in (prompt or "")
        assert by_hand(None, may_be_taken).own is None
        handed_in = by_hand(None, may_be_handed_in)
        early = await handed_in.apply(None)
        assert ("taken", "US-002") == (early.type, handed_in.own)
        assert f"handoffd apply {project.root} --story US-002" == early.next_command
        place = at(project.tracks["US-002"].workspace.folder, ".ai/HANDOFF.md")
        place.write_text("---\nstory: US-002\nstep: impl\nstatus: pass\n---\nDone.\n")
        applied = await handed_in.apply(None)
        assert ("applied", "pass") == (applied.type, applied.state.status)


async def test_a_pause_of_the_project_is_one_of_all_its_stories(tmp_path: Path) -> None:
    """And so is its end; nothing more is begun meanwhile."""
    async with beside(tmp_path, stories=2) as (_, project):
        await all_at(project, "review", "US-002")
        await given(project, Paused(by="mei"))
        assert ["mei", "mei"] == [one.track.ledger.paused_by for one in project.tracks.values()]
        await given(project, Started(story="US-003", queue=True))
        await project.stories.tend()
        assert "US-003" not in project.tracks
        await given(project, Resumed(by="mei"))
        assert [None, None] == [one.track.ledger.paused_by for one in project.tracks.values()][:2]
        await all_at(project, "review", "US-003")


@pytest.mark.parametrize("verb", [Paused(by="mei"), Aborted(by="mei")])
async def test_what_stops_the_first_story_stops_no_other_one(tmp_path: Path, verb: Verb) -> None:
    """Also with one at a time, the next of the backlog begins beside it."""
    settings = "workspace: clone\nauto_continue: true\nstories: {parallel: 1}\n"
    async with beside(tmp_path, AT_ONCE, settings, stories=2) as (_, project):
        await eventually((tmp_path / "at-US-001-bdd").exists)
        assert isinstance(await given(project, verb, "US-001"), Accepted)
        (tmp_path / "go").touch()
        await all_at(project, "review", "US-002")
        assert "US-001" == main_state(project).story
        assert backlog_of(project).paused_by is None


async def test_a_request_that_comes_again_pauses_no_story_that_was_resumed_meanwhile(tmp_path: Path) -> None:
    """But the one to which it had not come, when the first daemon ended in the midst of it."""
    async with house(tmp_path, FREELY) as here:
        root = in_git(tmp_path, SIDE_BY_SIDE)
        async with living(here, root) as project:
            await two_at_review(project)
        offline = Project(root, here.services, await here.journal.tracks([root]))
        cut_off = offline.tracks["US-002"]
        cut_off.close()
        with pytest.raises(HandoffdError):
            await offline.stories.give(Paused(by="mei"), "key", None)
        cut_off.reopen()
        assert "mei" == offline.main.track.ledger.paused_by
        await offline.main.give(Resumed(by="lin"))
        assert isinstance(await offline.stories.give(Paused(by="mei"), "key", None), Accepted)
        assert [None, "mei"] == [one.track.ledger.paused_by for one in offline.tracks.values()]
        await cut_off.give(Resumed(by="lin"))
        assert isinstance(await offline.stories.give(Paused(by="mei"), "key", None), Accepted)
        assert cut_off.track.ledger.paused_by is None
        offline.dismiss()


async def test_a_story_resumed_alone_leaves_the_project_paused(tmp_path: Path) -> None:
    """Its next steps are dispatched; no story of the backlog is."""
    async with beside(tmp_path, stories=1) as (here, project):
        await eventually(lambda: project.main.track.ledger.gate == "review")
        await given(project, Paused(by="mei"))
        await given(project, Started(story="US-002", queue=True))
        await given(project, Resumed(by="lin"), "US-001")
        assert ("mei", f"handoffd resume {project.root}") == (
            backlog_of(project).paused_by, backlog_of(project).next_command,
        )  # fmt: skip
        await given(project, Approved(story="US-001"))
        await eventually(lambda: main_state(project).step == "done")
        await eventually(lambda: calm(project))
        assert ["main"] == list(project.tracks)
        assert (
            "mei" == (await view_of(project, here.services.slots)).paused_by == backlog_of(project).paused_by
        )
        await given(project, Resumed(by="lin"))
        await eventually(lambda: main_state(project).story == "US-002")


async def test_a_landed_story_gives_its_track_back_and_lets_those_who_wait_for_it_begin(
    tmp_path: Path,
) -> None:
    """Its STATE file goes; the backlog's next one, which built on it, has its files."""
    async with beside(tmp_path, stories=2) as (_, project):
        await given(project, Started(story="US-003", blocked_by=("US-002",), queue=True))
        await all_at(project, "review", "US-002")
        await given(project, Approved(story="US-002"))
        await all_at(project, "done", "US-002")
        assert "US-003" not in project.tracks
        request = LandingRequest(story="US-002", by="mei")
        await project.landings.land(request, 60)
        await all_at(project, "review", "US-003")
        await eventually(lambda: "US-002" not in project.tracks and step_of(project, "US-002") is None)
        assert ("US-002",) == project.main.track.ledger.stories_done
        assert at(project.tracks["US-003"].workspace.folder, "US-002.txt").exists()


async def test_a_story_that_is_aborted_makes_room_and_can_be_started_again(tmp_path: Path) -> None:
    """It is not done; its track begins anew."""
    async with beside(tmp_path, AT_ONCE, stories=2) as (_, project):
        await eventually((tmp_path / "at-US-002-bdd").exists)
        await given(project, Aborted(), "US-002")
        await eventually(lambda: "US-002" not in project.tracks)
        assert () == project.main.track.ledger.stories_done
        (tmp_path / "go").touch()
        assert isinstance(await given(project, Started(story="US-002")), Accepted)
        await all_at(project, "review", "US-002")


async def test_only_so_many_are_worked_on_at_once_but_one_that_waits_makes_room(tmp_path: Path) -> None:
    """With one at a time the second begins when the first is at its gate; then that has to wait."""
    settings = "workspace: clone\nauto_continue: true\nstories: {parallel: 1}\n"
    async with beside(tmp_path, AT_ONCE, settings, stories=2) as (here, project):
        await eventually((tmp_path / "at-US-001-bdd").exists)
        assert ["main"] == list(project.tracks)
        (tmp_path / "go").touch()
        await all_at(project, "review", "US-002")
        (tmp_path / "go").unlink()
        await given(project, Approved(story="US-002"))
        await eventually((tmp_path / "at-US-002-impl").exists)
        await given(project, Approved(story="US-001"))
        await eventually(lambda: project.main.shortage is not None)
        (first, _) = (await view_of(project, here.services.slots)).tracks
        assert "US-002 is worked on, and no more at once (stories.parallel)" == first.waits_for
        (tmp_path / "go").touch()
        await eventually(lambda: main_state(project).step == "done")


async def test_a_crash_between_the_backlog_and_the_track_loses_no_story(tmp_path: Path) -> None:
    """The backlog's track has let it go, and its own has not begun: the next daemon begins it."""
    async with house(tmp_path, FREELY) as here:
        root = in_git(tmp_path, SIDE_BY_SIDE)
        async with living(here, root) as project:
            await project.main.give(Initialised(project="shop"))
            await given(project, Started(story="US-001"))
            await eventually(lambda: project.main.track.ledger.gate == "review")
        offline = Project(root, here.services, await here.journal.tracks([root]))
        await offline.main.give(Started(story="US-002", queue=True))
        await offline.main.give(StoryOpened(story="US-002", parallel=3))
        offline.dismiss()
        stored = await here.journal.tracks([root])
        assert ["main"] == [one.key.track for one in stored]
        async with living(here, root, stored) as project:
            await all_at(project, "review", "US-002")
            again = StoryOpened(story="US-002", parallel=3)
            assert isinstance((await project.main.give(again)).result, Refusal)


async def test_a_crash_between_the_ends_of_a_story_leaves_no_track(tmp_path: Path) -> None:
    """Its backlog knows that it is done, and the journal has its track still; an ended one is not loaded."""
    async with house(tmp_path, FREELY) as here:
        root = in_git(tmp_path, SIDE_BY_SIDE)
        async with living(here, root) as project:
            await project.main.give(Initialised(project="shop"))
            await given(project, Started(story="US-001"))
            await given(project, Started(story="US-002"))
            await all_at(project, "review", "US-002")
        offline = Project(root, here.services, await here.journal.tracks([root]))
        await offline.main.give(StoryClosed(story="US-002", done=True))
        offline.dismiss()
        stored = await here.journal.tracks([root])
        assert ["US-002", "main"] == [one.key.track for one in stored]
        async with living(here, root, stored) as project:
            await eventually(lambda: "US-002" not in project.tracks and step_of(project, "US-002") is None)
        assert ["main"] == [one.key.track for one in await here.journal.tracks([root])]


async def test_the_state_file_of_a_storys_own_track_stays_that_storys(tmp_path: Path) -> None:
    """Others may have written one before it begins, may delete it, and may name another story there."""
    async with beside(tmp_path, stories=1) as (_, project):
        await eventually(lambda: project.main.track.ledger.gate == "review")
        file = at(project.root, ".ai/states/US-002.json")
        file.parent.mkdir(exist_ok=True)
        shutil.copy(at(project.root, ".ai/STATE.json"), file)
        await given(project, Started(story="US-002"))
        await eventually(lambda: "US-002" in project.tracks)
        own = project.tracks["US-002"]
        await eventually(lambda: own.track.ledger.gate == "review")
        await all_at(project, "review", "US-002")
        said = json.loads(file.read_text())
        assert "US-002" == said["story"]
        for spoilt in (None, said | {"story": "US-009"}, said | {"story": None}):
            file.unlink() if spoilt is None else file.write_text(json.dumps(spoilt))
            project.touched()
            await eventually(lambda: file.exists() and json.loads(file.read_text()) == said)
        assert own is project.tracks["US-002"]


# --- the STATE.json that several stories share ----------------------------------------------------------
async def one_behind_the_other_at_review(project: Project) -> None:
    """Have the first story wait at its review for longer than the second, and STATE.json show that."""
    await project.main.give(Initialised(project="shop"))
    await given(project, Started(story="US-001"))
    await eventually(lambda: project.main.track.ledger.gate == "review")
    await given(project, Started(story="US-002"))
    await all_at(project, "review", "US-002")
    await eventually(lambda: ("US-001", "review") == (desk(project)["story"], desk(project)["step"]))


def desk(project: Project) -> dict[str, Any]:
    """Return what STATE.json says."""
    found: dict[str, Any] = json.loads(at(project.root, ".ai/STATE.json").read_text())
    return found


async def test_state_json_shows_the_story_that_has_waited_longest(tmp_path: Path) -> None:
    """Each has a file of its own, the first one too while there are several; alone, that is STATE.json."""
    async with house(tmp_path, FREELY) as here, living(here, in_git(tmp_path, SIDE_BY_SIDE)) as project:
        await one_behind_the_other_at_review(project)
        own = at(project.root, ".ai/states/main.json")
        await eventually(lambda: own.exists() and desk(project) == json.loads(own.read_text()))
        await given(project, Approved(story="US-001", by="mei"))
        await eventually(lambda: "US-002" == desk(project)["story"])
        assert desk(project) == json.loads(at(project.root, ".ai/states/US-002.json").read_text())
        assert "US-001" == json.loads(own.read_text())["story"]
        await given(project, Aborted(), "US-002")
        await eventually(lambda: ["main"] == list(project.tracks) and "US-001" == desk(project)["story"])
        await eventually(lambda: [] == [*own.parent.iterdir()])
        assert main_state(project).story == "US-001"


async def test_an_edit_of_state_json_is_for_the_story_that_it_names(tmp_path: Path) -> None:
    """Whichever it shows; what is not about a story of the others is for the first one; nonsense stays."""
    async with house(tmp_path, FREELY) as here, living(here, in_git(tmp_path, SIDE_BY_SIDE)) as project:
        await one_behind_the_other_at_review(project)
        file, said = at(project.root, ".ai/STATE.json"), desk(project)

        def write(text: str) -> None:
            file.write_text(text)
            project.touched()

        held = json.loads(at(project.root, ".ai/states/US-002.json").read_text())
        write(json.dumps(held | {"human_note": "cents, please"}))
        second = project.tracks["US-002"]
        await eventually(lambda: second.track.state and "cents, please" == second.track.state.human_note)
        assert project.main.track.state is not None
        assert project.main.track.state.human_note is None
        await eventually(lambda: said == desk(project))
        assert (
            "cents, please"
            == json.loads(at(project.root, ".ai/states/US-002.json").read_text())["human_note"]
        )

        write(json.dumps(said | {"human_note": "no dialogs"}))
        await eventually(lambda: "no dialogs" == main_state(project).human_note)
        write("{")
        await eventually(lambda: "invalid_state" == project.condition)
        assert "{" == file.read_text()
        file.unlink()
        project.touched()
        await eventually(lambda: "ok" == project.condition and "no dialogs" == desk(project)["human_note"])


async def test_an_edit_in_a_storm_of_edits_is_taken_when_that_is_over(tmp_path: Path) -> None:
    """STATE.json stays as it is until then."""
    async with house(tmp_path, FREELY) as here, living(here, in_git(tmp_path, SIDE_BY_SIDE)) as project:
        await one_behind_the_other_at_review(project)
        file, said = at(project.root, ".ai/STATE.json"), desk(project)
        for number in range(MOST_EDITS + 2):
            file.write_text(json.dumps(said | {"human_note": str(number)}))
            project.touched()
            await eventually(partial(is_noted, project, str(number)))


def is_noted(project: Project, note: str) -> bool:
    """Return whether a note was taken for the first story."""
    return note == main_state(project).human_note


async def test_while_an_agent_works_nonsense_in_state_json_is_undone(tmp_path: Path) -> None:
    """It would stop the stories of a whole night."""
    async with beside(tmp_path, AT_ONCE, stories=2) as (_, project):
        await eventually((tmp_path / "at-US-002-bdd").exists)
        at(project.root, ".ai/STATE.json").write_text("{")
        project.touched()
        await eventually(lambda: "{" != at(project.root, ".ai/STATE.json").read_text())
        assert "ok" == project.condition
        (tmp_path / "go").touch()
        await all_at(project, "review", "US-002")


async def test_what_a_crash_has_left_in_state_json_is_no_edit(tmp_path: Path) -> None:
    """Neither an old text of any story, nor that of one whose track has ended since."""
    async with house(tmp_path, FREELY) as here:
        root = in_git(tmp_path, SIDE_BY_SIDE)
        async with living(here, root) as project:
            await one_behind_the_other_at_review(project)
            second = at(root, ".ai/states/US-002.json").read_text()
        file = at(root, ".ai/STATE.json")
        before = len(await here.journal.events(project=root))
        file.write_text(second)
        async with living(here, root, await here.journal.tracks([root])) as project:
            await eventually(lambda: "US-001" == desk(project)["story"])
            assert before == len(await here.journal.events(project=root))
        offline = Project(root, here.services, await here.journal.tracks([root]))
        await offline.close_track("US-002", TrackClosed(why="?"))
        await offline.main.give(StoryClosed(story="US-002", done=False))
        offline.dismiss()
        file.write_text(second)
        async with living(here, root, await here.journal.tracks([root])) as project:
            await eventually(lambda: "US-001" == desk(project)["story"])
            assert ("US-001", "review") == (main_state(project).story, main_state(project).step)


async def looked(project: Project) -> None:
    """Look until a look has come to its end: a busy disk may cut one off."""
    await project.look()
    with anyio.fail_after(60):
        while "ok" != project.condition:
            await project.look()


async def test_what_state_json_showed_of_several_is_no_edit_of_the_last(
    tmp_path: Path,
) -> None:
    """The other one ends before a look shows what was decided on the first."""
    async with house(tmp_path, FREELY) as here:
        root = in_git(tmp_path, SIDE_BY_SIDE)
        async with living(here, root) as project:
            await one_behind_the_other_at_review(project)
        project = Project(root, here.services, await here.journal.tracks([root]))
        await looked(project)
        await project.main.give(Approved(story="US-001", by="mei"))
        await project.main.give(StoryClosed(story="US-002", done=False))
        await project.close_track("US-002", TrackClosed(why="?"))
        newest, decided = here.journal.newest, main_state(project)

        await looked(project)
        assert (newest, decided) == (here.journal.newest, main_state(project))
        assert decided.status == desk(project)["status"]
        project.dismiss()


async def test_a_file_left_from_earlier_stories_beside_is_no_edit(
    tmp_path: Path,
) -> None:
    """It was written a moment too late, and holds an old text."""
    async with house(tmp_path, FREELY) as here, living(here, in_git(tmp_path, SIDE_BY_SIDE)) as project:
        await one_behind_the_other_at_review(project)
        own = at(project.root, ".ai/states/main.json")
        old = own.read_text()
        await given(project, Aborted(), "US-002")
        await eventually(lambda: ["main"] == list(project.tracks) and not own.exists())
        await given(project, Noted(text="cents, please", by="mei"))
        own.write_text(old)
        await given(project, Started(story="US-003"))
        await all_at(project, "review", "US-003")
        assert ["cents, please"] * 2 == [
            json.loads(own.read_text())["human_note"],
            main_state(project).human_note,
        ]


async def test_a_state_file_of_no_track_goes_with_the_first_look(tmp_path: Path) -> None:
    """What the journal does not know, as after a restore of one of before the track, is kept aside."""
    async with house(tmp_path, FREELY) as here:
        root = in_git(tmp_path, SIDE_BY_SIDE)
        async with living(here, root) as project:
            await two_at_review(project)
        file = at(root, ".ai/states/US-002.json")
        text, unknown = file.read_text(), file.with_name("US-003.json")
        offline = Project(root, here.services, await here.journal.tracks([root]))
        await offline.close_track("US-002", TrackClosed(why="?"))
        await offline.main.give(StoryClosed(story="US-002", done=False))
        offline.dismiss()
        file.write_text(text)
        unknown.write_text(text)
        async with living(here, root, await here.journal.tracks([root])):
            await eventually(lambda: not file.exists() and not unknown.exists())
        assert ["US-003.json.aside"] == [path.name for path in file.parent.iterdir()]
        assert text == unknown.with_name("US-003.json.aside").read_text()


async def test_a_story_beside_others_works_in_a_clone_though_the_settings_want_none_by_now(
    tmp_path: Path,
) -> None:
    """The project's own folder is the first story's: two would change each other's files there."""
    settings = SIDE_BY_SIDE.replace("clone", "{kind: clone, setup: [/bin/false]}")
    async with beside(tmp_path, AT_ONCE, settings, stories=2) as (_, project):

        def waiting() -> list[str]:
            states = [one.track.state for one in project.tracks.values()]
            return [one.story or "" for one in states if one and one.status is Status.NEEDS_HUMAN]

        await eventually(lambda: ["US-001", "US-002"] == waiting())
        at(project.root, ".ai/handoffd.yaml").write_text("workspace: root\nstories: {parallel: 3}\n")
        await project.trust()
        for story in ("US-001", "US-002"):
            await given(project, Retried(), story)
        await eventually(lambda: all((tmp_path / f"at-US-{one}-bdd").exists() for one in ("001", "002")))
        kinds = [one.workspace.kind for one in project.tracks.values()]
        assert ["root", "clone"] == kinds
        (tmp_path / "go").touch()


def calm(project: Project) -> bool:
    """Return whether nothing goes on in a project, and nothing is about to."""
    return not project.activity(0).hinted and all(track.idle for track in project.tracks.values())


async def test_a_story_that_waits_has_nobody_look_over_and_over(tmp_path: Path) -> None:
    """Its turn decides nothing, so that there is nothing to look for."""
    async with house(tmp_path, FREELY) as here, living(here, in_git(tmp_path, SIDE_BY_SIDE)) as project:
        await project.main.give(Initialised(project="shop"))
        await given(project, Started(story="US-001", blocked_by=("US-009",)))
        await eventually(lambda: calm(project), within_s=10)
        assert main_state(project).status is Status.PENDING


async def test_a_budget_of_all_stories_makes_no_room_for_the_next(tmp_path: Path) -> None:
    """Each would wait for it with a notice of its own. Once it is raised they go on."""
    used = Usage(output_tokens=7, cost_usd=5.0, priced="provider")
    async with house(tmp_path, FREELY, caps={"project_usd": 5}) as here:
        root = in_git(tmp_path, SIDE_BY_SIDE.replace("3", "1") + "auto_continue: true\n")
        async with living(here, root) as project:
            await project.main.give(Initialised(project="shop"))
            await given(project, Started(story="US-001"))
            await eventually(lambda: project.main.track.ledger.gate == "review")
        (stored,) = await here.journal.tracks([root])
        stored = replace(stored, track=stored.track.with_ledger(spent=used))
        async with living(here, root, (stored,)) as project:
            for story in ("US-002", "US-003", "US-004"):
                await given(project, Started(story=story))
            await eventually(
                lambda: "US-002" in project.tracks and project.tracks["US-002"].track.ledger.capped
            )
            await eventually(lambda: calm(project))
            assert ["main", "US-002"] == list(project.tracks)
            await given(project, BudgetRaised(scope="project", usd=50))
            await all_at(project, "review", "US-002", "US-003", "US-004")


async def test_what_a_story_has_used_stays_counted_when_its_track_ends(tmp_path: Path) -> None:
    """Once: the budget of the project has it at each moment, and nothing is booked anew."""
    used = Usage(output_tokens=7, cost_usd=0.25, priced="provider")
    async with house(tmp_path, FREELY) as here:
        root = in_git(tmp_path, SIDE_BY_SIDE)
        async with living(here, root) as project:
            await two_at_review(project)
        stored = [
            replace(one, track=one.track.with_ledger(spent=used)) if one.key.track == "US-002" else one
            for one in await here.journal.tracks([root])
        ]
        offline = Project(root, here.services, tuple(stored))
        await offline.main.give(StoryClosed(story="US-002", done=False, spent=used))
        assert (used, Usage()) == (offline.spent, offline.spent_beside(offline.main.key))
        offline.dismiss()
        async with living(here, root, await here.journal.tracks([root])) as project:
            await eventually(lambda: "US-002" not in project.tracks)
            assert used == project.spent
            assert Usage() == here.services.budgets.booked


async def test_an_edit_of_the_step_table_takes_effect_at_each_tracks_own_next_turn(tmp_path: Path) -> None:
    """While the other one's agent is at work: that one is judged by the table it was begun by."""
    async with beside(tmp_path, AT_ONCE, stories=2) as (_, project):
        await eventually((tmp_path / "at-US-001-bdd").exists)
        await eventually((tmp_path / "at-US-002-bdd").exists)
        table = at(project.root, ".ai/step-rules.yaml")
        table.write_text(table.read_text().replace("bdd: {next_on_pass: review", "bdd: {next_on_pass: impl"))
        await project.trust()
        begun = project.main._rules_in_force()
        assert ("review", "impl") == (
            begun.steps["bdd"].next_on_pass, project.files.rules.steps["bdd"].next_on_pass,
        )  # fmt: skip
        (tmp_path / "go").touch()
        await all_at(project, "done", "US-002")


# --- landed by the daemon -----------------------------------------------------------------------------
AUTO = """\
workspace: clone
stories: {parallel: 3, land: auto}
test: {command: [/bin/sh, -c, '. "$HOME/verdict"']}
"""
NO_GATE = """\
steps:
  bdd: {next_on_pass: impl, timeout_min: 1}
  impl: {next_on_pass: done, timeout_min: 1}
"""
RESOLVING = f"""\
prompt="$HOME/prompt-$HANDOFFD_STORY-$HANDOFFD_STEP"
cp "$HOME/state/runs/$HANDOFFD_RUN/prompt.md" "$prompt"
while test -e "$HOME/hold"; do sleep 0.02; done
merge=$(grep -o 'git merge [0-9a-f]*' "$prompt")
if test -n "$merge"; then
  echo "$HANDOFFD_STORY" >> "$HOME/resolved"
  if test -e "$HOME/resolves" && ! $merge -q; then
    sed -i '/^[<=>]/d' contested.txt
    git add -A && git commit -qm "Take in what landed"
  fi
elif test -e "$HOME/contested"; then
  echo "$HANDOFFD_STORY" > contested.txt
fi
echo "$HANDOFFD_STEP" >> "$HANDOFFD_STORY.txt"
{HAND_OVER}"""
"""Writes to the file of its siblings, where the test wants that; merges where its prompt has how."""


@asynccontextmanager
async def landing_itself(base: Path, *stories: str) -> AsyncIterator[tuple[House, Project]]:
    """Lend a project without gates whose stories the daemon lands."""
    (base / "verdict").write_text("exit 0\n")
    root = in_git(base, AUTO)
    at(root, ".ai/step-rules.yaml").write_text(NO_GATE)
    async with house(base, RESOLVING, sandbox={"level": "off"}) as here, living(here, root) as project:
        await project.main.give(Initialised(project="shop"))
        for story in stories:
            await given(project, Started(story=story))
        yield here, project


def on_main(project: Project) -> set[str]:
    """Return the files at the end of `main`."""
    return set(said(project, "ls-tree", "-r", "--name-only", "main").split())


async def test_stories_are_landed_by_the_daemon_where_the_settings_say_so(tmp_path: Path) -> None:
    """One after the other, each tested; their tracks end, and the person's checkout follows."""
    async with landing_itself(tmp_path, "US-001", "US-002", "US-003") as (_, project):
        wanted = {f"US-{number:03}.txt" for number in (1, 2, 3)}
        await eventually(lambda: wanted <= on_main(project))
        await eventually(lambda: ["main"] == list(project.tracks))
        assert all(at(project.root, name).exists() for name in wanted)
        assert "" == said(project, "status", "--porcelain", "--untracked-files=no")
        assert "By: handoffd" in said(project, "log", "--format=%B", "main")


async def test_a_story_that_is_done_is_landed_though_a_person_starts_another_one_at_once(
    tmp_path: Path,
) -> None:
    """In its place, before the daemon has come to it."""
    (tmp_path / "hold").touch()
    async with landing_itself(tmp_path, "US-001") as (_, project):
        await eventually((tmp_path / "prompt-US-001-bdd").exists)
        await given(project, Paused(by="mei"))
        (tmp_path / "hold").unlink()
        await eventually(lambda: main_state(project).status == "pass")
        await given(project, Resumed(by="mei"))
        await eventually(lambda: main_state(project).step == "done")
        await given(project, Started(story="US-002", force=True))
        await eventually(lambda: {"US-001.txt", "US-002.txt"} <= on_main(project))
        assert () == project.main.track.ledger.to_land


async def test_a_story_that_conflicts_goes_back_to_an_agent_who_merges_what_landed(tmp_path: Path) -> None:
    """Its prompt says what to merge, what landed meanwhile and what that was asked to bring; both land."""
    for name in ("contested", "resolves"):
        (tmp_path / name).touch()
    async with landing_itself(tmp_path) as (_, project):
        for name in ("US-001", "US-002"):
            await given(project, Started(story=name, described=story_text(f"Sell {name} in boxes.")))
        await eventually(lambda: {"US-001.txt", "US-002.txt"} <= on_main(project))
        (later,) = (tmp_path / "resolved").read_text().split()
        first = {"US-001": "US-002", "US-002": "US-001"}[later]
        prompt = (tmp_path / f"prompt-{later}-impl").read_text()
        assert f"handoffd/{later} conflicts in contested.txt" in prompt
        assert f"- Land {first}" in prompt or f"- {first}" in prompt
        assert f"{first}, which has landed, was asked to bring this" in prompt
        assert f"Sell {first} in boxes." in prompt
        assert {first, later} <= {*said(project, "show", "main:contested.txt").split()}


async def test_after_two_tries_a_person_has_to_land_a_story(tmp_path: Path) -> None:
    """Who is notified, once: of the conflict, and of the merge, as to land it would fail again."""
    (tmp_path / "contested").touch()
    async with landing_itself(tmp_path, "US-001", "US-002") as (here, project):
        await eventually(lambda: any(one.track.ledger.unlanded for one in project.tracks.values()))
        (left,) = [one.track for one in project.tracks.values() if one.track.ledger.unlanded]
        assert left.state is not None
        assert left.ledger.resolves == MOST_RESOLVES
        assert 2 == len((tmp_path / "resolved").read_text().split())
        story, root = left.state.story, project.root
        await eventually(
            lambda: (
                [f"git -C {root} merge handoffd/{story}"]
                == [one.action for one in here.told.notices if "be landed" in one.text]
            )
        )


async def test_a_person_takes_up_a_story_that_could_not_be_landed_while_others_have_gone_on(
    tmp_path: Path,
) -> None:
    """It has kept its track, also if that was `main`: the next of the backlog got one of its own."""
    (tmp_path / "contested").touch()
    async with landing_itself(tmp_path, "US-001", "US-002") as (_, project):
        await eventually(lambda: any(one.track.ledger.unlanded for one in project.tracks.values()))
        ((name, left),) = [
            (key, one.track.state) for key, one in project.tracks.items() if one.track.ledger.unlanded
        ]
        assert left is not None
        assert left.story is not None
        (tmp_path / "contested").unlink()
        await given(project, Started(story="US-003"))
        await eventually(lambda: "US-003.txt" in on_main(project))
        state = project.tracks[name].track.state
        assert state is not None
        assert left.story == state.story
        (tmp_path / "resolves").touch()
        merge = f"git merge {said(project, 'rev-parse', 'main')}"
        await project.stories.give(Reopened(step="impl", note=merge), None, left.story)
        await eventually(lambda: {"US-001.txt", "US-002.txt"} <= on_main(project))


async def test_tests_that_fail_on_the_merged_files_send_a_story_back_to_an_agent(tmp_path: Path) -> None:
    """The branch stays as a person has left it, who committed meanwhile."""
    (tmp_path / "hold").touch()
    async with landing_itself(tmp_path, "US-001") as (_, project):
        await eventually((tmp_path / "prompt-US-001-bdd").exists)
        (tmp_path / "verdict").write_text(
            "test ! -e other.txt || test ! -e US-001.txt || { echo it does not add up; exit 1; }\n"
        )
        commit(project, "other.txt", "mine\n")
        (tmp_path / "hold").unlink()
        await eventually((tmp_path / "resolved").exists)
        assert "it does not add up" in (tmp_path / "prompt-US-001-impl").read_text()
        assert "US-001.txt" not in on_main(project)


WHEN_LET = """\
case $PWD in *%40landing*)
  echo tested >> "$HOME/tests"
  until test -e "$HOME/let"; do sleep 0.02; done;;
esac
"""
"""A test command that waits for the test where it runs for a landing."""


@asynccontextmanager
async def being_landed(base: Path) -> AsyncIterator[tuple[House, Project]]:
    """Lend a project whose story is just tested, so that the daemon can land it."""
    async with landing_itself(base) as (here, project):
        (base / "verdict").write_text(WHEN_LET)
        await given(project, Started(story="US-001"))
        await eventually((base / "tests").exists)
        yield here, project


async def test_a_story_that_is_paused_while_it_is_tested_lands_when_it_is_resumed(tmp_path: Path) -> None:
    """A person who pauses does not find a commit afterwards, and has nothing to put right."""
    async with being_landed(tmp_path) as (_, project):
        await given(project, Paused(by="mei"))
        (tmp_path / "let").touch()
        await eventually(lambda: not project.landings.goes_on)
        assert "US-001.txt" not in on_main(project)
        assert project.main.track.ledger.unlanded is None
        await given(project, Resumed(by="mei"))
        await eventually(lambda: "US-001.txt" in on_main(project))


async def test_a_story_that_is_reopened_while_it_is_tested_lands_when_it_is_done_again(
    tmp_path: Path,
) -> None:
    """What was tested is not what a person wants on the branch."""
    async with being_landed(tmp_path) as (_, project):
        (tmp_path / "hold").touch()
        assert isinstance(await given(project, Reopened(step="impl", note="cents")), Accepted)
        (tmp_path / "let").touch()
        await eventually(lambda: not project.landings.goes_on)
        assert "US-001.txt" not in on_main(project)
        (tmp_path / "hold").unlink()
        await eventually(lambda: "US-001.txt" in on_main(project))


async def test_a_landing_is_recorded_once_the_journal_can_be_written_again(tmp_path: Path) -> None:
    """The branch has moved by then: the story is neither tested again nor left to a person."""
    async with being_landed(tmp_path) as (here, project):
        with unwritable(here):
            (tmp_path / "let").touch()
            await eventually(lambda: project.main.committed.stuck)
        await eventually(lambda: project.main.track.ledger.landed)
        assert "US-001.txt" in on_main(project)
        assert ["tested"] == (tmp_path / "tests").read_text().split()
        assert project.main.track.ledger.unlanded is None


async def test_a_landing_that_the_moment_is_against_is_tried_again_later(tmp_path: Path) -> None:
    """The branch moves three times while it is tested: no person is asked, and a minute later it lands."""
    (tmp_path / "hold").touch()
    async with landing_itself(tmp_path, "US-001") as (here, project):
        await eventually((tmp_path / "prompt-US-001-bdd").exists)
        (tmp_path / "moving").touch()
        (tmp_path / "verdict").write_text(
            'test -e "$HOME/moving" || exit 0; case $PWD in *landing-2*) echo >> $HOME/moved;\n'
            f"git -c user.name=m -c user.email=m@x -C {project.root} commit -q --allow-empty -m mine;; esac\n"
        )
        (tmp_path / "hold").unlink()
        await eventually(lambda: project.landings.tries_again)
        assert MOST_TRIES == len((tmp_path / "moved").read_text().splitlines())
        assert main_state(project).step == "done"
        assert project.main.track.ledger.unlanded is None
        (tmp_path / "moving").unlink()
        here.clock.ahead_s += AGAIN_S + 1
        await project.poll()
        await eventually(lambda: "US-001.txt" in on_main(project))


async def test_a_landing_that_a_persons_git_keeps_is_tried_again_before_they_are_asked(
    tmp_path: Path,
) -> None:
    """For a limited number of times: a git that was killed has left its lock."""
    (tmp_path / "hold").touch()
    async with landing_itself(tmp_path, "US-001") as (here, project):
        await eventually((tmp_path / "prompt-US-001-bdd").exists)
        lock, tries = at(project.root, ".git/index.lock"), tmp_path / "tries"
        (tmp_path / "verdict").write_text(f"case $PWD in *landing-2*) echo >> {tries}; touch {lock};; esac\n")
        (tmp_path / "hold").unlink()
        for number in range(1, MOST_PUT_OFF + 2):
            await eventually(lambda: tries.exists() and not project.landings.goes_on)
            assert number == len(tries.read_text().splitlines())
            assert (number > MOST_PUT_OFF) is (project.main.track.ledger.unlanded is not None)
            lock.unlink()
            here.clock.ahead_s += AGAIN_S + 1
            await project.poll()
            await eventually(lambda: project.landings.goes_on or project.main.track.ledger.unlanded)
        assert "index.lock" in (project.main.track.ledger.unlanded or "")
        assert "US-001.txt" not in on_main(project)


# --- landed after all ---------------------------------------------------------------------------------
async def later(here: House, project: Project) -> None:
    """Let the time pass after which a landing is tried again, and wait until that is over."""
    await eventually(lambda: not project.landings.goes_on)
    here.clock.ahead_s += AGAIN_S + 1
    await project.poll()
    await eventually(lambda: not project.landings.goes_on)


def refusals(here: House) -> list[str]:
    """Return the notices of landings that a person has to help."""
    return [one.text for one in here.told.notices if "be landed" in one.text]


async def test_a_story_lands_by_itself_when_the_person_has_cleared_the_way(tmp_path: Path) -> None:
    """One notice asks them, whatever else they do in their checkout meanwhile; each screen says why."""
    (tmp_path / "hold").touch()
    async with landing_itself(tmp_path, "US-001") as (here, project):
        await eventually((tmp_path / "prompt-US-001-bdd").exists)
        mine = at(project.root, "US-001.txt")
        mine.write_text("mine\n")
        (tmp_path / "hold").unlink()
        await eventually(lambda: project.main.track.ledger.unlanded)
        where = await project.landings.whereabouts("US-001")
        assert where is not None
        assert "not landed: your checkout of main has US-001.txt, which git does not know" in where.says
        mine.write_text("mine, and more\n")
        await later(here, project)
        assert project.landings.tries_again
        await eventually(lambda: 1 == len(refusals(here)))
        mine.unlink()
        await later(here, project)
        await eventually(lambda: "US-001.txt" in on_main(project))
        await eventually(lambda: not project.landings.tries_again)


async def test_a_branch_that_fails_its_own_tests_is_no_storys_fault(tmp_path: Path) -> None:
    """No agent is paid for it, and no test runs again before it has moved; then the story lands."""
    (tmp_path / "hold").touch()
    async with landing_itself(tmp_path, "US-001") as (here, project):
        await eventually((tmp_path / "prompt-US-001-bdd").exists)
        (tmp_path / "verdict").write_text(
            "echo >> $HOME/tries; test ! -e other.txt || { echo red; exit 1; }\n"
        )
        commit(project, "other.txt", "mine\n")
        (tmp_path / "hold").unlink()
        await eventually(lambda: project.main.track.ledger.unlanded)
        assert "main itself fails its tests" in (project.main.track.ledger.unlanded or "")
        assert 0 == project.main.track.ledger.resolves
        tries = (tmp_path / "tries").read_text()
        await later(here, project)
        assert tries == (tmp_path / "tries").read_text()
        git(Path(project.root), "rm", "-q", "other.txt")
        assert 0 == git(Path(project.root), "commit", "-qm", "green again")
        await later(here, project)
        await eventually(lambda: "US-001.txt" in on_main(project))
        assert 1 == len(refusals(here))


async def test_a_new_daemon_tries_again_and_reports_nothing_twice(tmp_path: Path) -> None:
    """What has failed is known from the journal, and why: in a memory it would be lost."""
    (tmp_path / "verdict").write_text("echo >> $HOME/tries; case $PWD in *landing*) exit 1;; esac\n")
    root = in_git(tmp_path, AUTO)
    at(root, ".ai/step-rules.yaml").write_text(NO_GATE)
    async with house(tmp_path, RESOLVING, sandbox={"level": "off"}) as here:
        async with living(here, root) as project:
            await project.main.give(Initialised(project="shop"))
            await given(project, Started(story="US-001"))
            await eventually(lambda: project.main.track.ledger.unlanded)
            await eventually(lambda: not project.landings.goes_on)
        (tmp_path / "tries").unlink()
        async with living(here, root, await here.journal.tracks((root,))) as project:
            await eventually((tmp_path / "tries").exists)
            await eventually(lambda: not project.landings.goes_on)
            assert 1 == len(
                [one for one in await here.journal.events(0, None, 500) if _is_unlanded(one.event)]
            )
            (tmp_path / "verdict").write_text("exit 0\n")
            commit(project, "other.txt", "mine\n")
            await later(here, project)
            await eventually(lambda: "US-001.txt" in on_main(project))


def _is_unlanded(event: Mapping[str, Any]) -> bool:
    return event["kind"] == "landing_refused" and event["note"] is None


async def test_a_start_while_the_last_story_lands_waits_for_that(tmp_path: Path) -> None:
    """In its track no agent could resolve what conflicts; so the start is kept, and carried out then."""
    (tmp_path / "hold").touch()
    async with landing_itself(tmp_path, "US-001") as (_, project):
        await eventually((tmp_path / "prompt-US-001-bdd").exists)
        (tmp_path / "verdict").write_text(
            'case $PWD in *landing*) touch "$HOME/lands";\n'
            'while ! test -e "$HOME/go"; do sleep 0.02; done;; esac\n'
        )
        (tmp_path / "hold").unlink()
        await eventually((tmp_path / "lands").exists)
        told = await given(project, Started(story="US-002"))
        assert "US-002 starts when US-001 has landed" in told.caller_instruction
        assert "US-001" == main_state(project).story
        (tmp_path / "go").touch()
        await eventually(lambda: {"US-001.txt", "US-002.txt"} <= on_main(project))


# --- the same files -----------------------------------------------------------------------------------
MEANT = f"""\
prompt="$HOME/prompt-$HANDOFFD_STORY-$HANDOFFD_STEP"
cp "$HOME/state/runs/$HANDOFFD_RUN/prompt.md" "$prompt"
if test "$HANDOFFD_STEP" = bdd; then
  mkdir -p docs && echo "Changes ./shared.py" > "docs/$HANDOFFD_STORY.md"
else
  touch "$HOME/at-$HANDOFFD_STORY-$HANDOFFD_STEP"
  until test -e "$HOME/go-$HANDOFFD_STORY"; do sleep 0.02; done
  $(grep -o 'git merge [0-9a-f]*' "$prompt") > "$HOME/merged-$HANDOFFD_STORY" 2>&1
  echo "# $HANDOFFD_STORY" >> shared.py
fi
{HAND_OVER}"""
"""Its paper names a file of the project; its code changes that, when the test lets it."""


@asynccontextmanager
async def of_one_mind(
    base: Path, settings: str = AUTO, stories: tuple[str, ...] = ("US-001", "US-002")
) -> AsyncIterator[tuple[House, Project]]:
    """Lend a project of stories that all mean to change `shared.py`."""
    (base / "verdict").write_text("exit 0\n")
    root = in_git(base, settings)
    at(root, ".ai/step-rules.yaml").write_text(NO_GATE)
    at(root, "shared.py").write_text("# begun\n")
    git(Path(root), "add", "shared.py")
    assert 0 == git(Path(root), "commit", "--quiet", "-m", "shared")
    async with house(base, MEANT, sandbox={"level": "off"}) as here, living(here, root) as project:
        await project.main.give(Initialised(project="shop"))
        for story in stories:
            await given(project, Started(story=story))
        yield here, project


async def test_a_story_waits_before_its_code_for_another_one_that_means_the_same_file(tmp_path: Path) -> None:
    """It goes on when that has landed, and its agent takes it in first; so both land without a conflict."""
    async with of_one_mind(tmp_path) as (here, project):
        (first,) = [path.name[3:9] for path in await eventually(lambda: [*tmp_path.glob("at-*-impl")])]
        (later,) = {"US-001", "US-002"} - {first}

        async def waits() -> bool:
            views = {one.story: one for one in (await view_of(project, here.services.slots)).tracks}
            return views[later].waits_for == f"{first} means shared.py, too (stories.overlap)"

        look: Callable[[], Any] = waits
        await eventually(look)
        (tmp_path / f"go-{first}").touch()
        await eventually((tmp_path / f"at-{later}-impl").exists)
        prompt = (tmp_path / f"prompt-{later}-impl").read_text()
        assert f"{first} has changed files that this story means." in prompt
        (tmp_path / f"go-{later}").touch()
        await eventually(lambda: f"# {later}" in said(project, "show", "main:shared.py"))
        assert {"# US-001", "# US-002"} <= {*said(project, "show", "main:shared.py").splitlines()}


async def test_a_story_that_waits_for_a_landing_names_that(tmp_path: Path) -> None:
    """Once the other one is done: a person lands it, and this one goes on by itself."""
    async with of_one_mind(tmp_path, AUTO.replace("land: auto", "land: ask")) as (here, project):
        (first,) = [path.name[3:9] for path in await eventually(lambda: [*tmp_path.glob("at-*-impl")])]
        (later,) = {"US-001", "US-002"} - {first}
        (tmp_path / f"go-{first}").touch()
        (tmp_path / f"go-{later}").touch()

        async def named() -> bool:
            views = {one.story: one for one in (await view_of(project, here.services.slots)).tracks}
            return views[later].next_command == f"handoffd land {project.root} --story {first}"

        look: Callable[[], Any] = named
        await eventually(look)
        await project.landings.land(LandingRequest(story=first, by="mei"), 60)
        await eventually((tmp_path / f"at-{later}-impl").exists)


async def test_a_story_that_is_done_is_waited_for_when_its_track_works_on_another(tmp_path: Path) -> None:
    """Until it has landed: else the two would conflict."""
    asks = AUTO.replace("land: auto", "land: ask")
    async with of_one_mind(tmp_path, asks, ("US-001",)) as (here, project):
        await eventually((tmp_path / "at-US-001-impl").exists)
        await given(project, Started(story="US-002"))
        await eventually((tmp_path / "prompt-US-002-bdd").exists)
        (tmp_path / "go-US-001").touch()
        await eventually(lambda: main_state(project).step == "done")
        await given(project, Started(story="US-003"))
        await eventually(lambda: main_state(project).story == "US-003")

        async def waits(story: str, command: str) -> bool:
            views = {one.story: one for one in (await view_of(project, here.services.slots)).tracks}
            said = f"{story} means shared.py, too (stories.overlap)"
            return (said, command) == (views["US-002"].waits_for, views["US-002"].next_command)

        for_the_first: Callable[[], Any] = partial(
            waits, "US-001", f"handoffd land {project.root} --story US-001"
        )
        await eventually(for_the_first)
        await project.landings.land(LandingRequest(story="US-001", by="mei"), 60)
        look = f"handoffd log {project.root} --follow --story US-003"
        for_the_next: Callable[[], Any] = partial(waits, "US-003", look)
        await eventually(for_the_next)
        assert not (tmp_path / "at-US-002-impl").exists()


async def test_a_clone_that_is_removed_while_its_agent_works_is_named(tmp_path: Path) -> None:
    """With the command that ends the attempt, whose end would wait for the clone to come back."""
    async with beside(tmp_path, AT_ONCE, stories=1) as (here, project):
        await eventually((tmp_path / "at-US-001-bdd").exists)
        clone = Path(project.main.workspace.folder)
        assert () == (await view_of(project, here.services.slots)).warnings
        shutil.move(clone, tmp_path / "away")

        view = await view_of(project, here.services.slots)
        end = f"handoffd abort {project.root} --story US-001"
        assert (
            f"the clone in which US-001 works is gone: {clone}; to end its attempt: {end}",
        ) == view.warnings
        await given(project, Aborted(), "US-001")
        await eventually(lambda: project.main.track.ledger.dispatch is None)
        assert () == (await view_of(project, here.services.slots)).warnings


async def test_stories_that_mean_the_same_file_go_on_with_a_warning_where_the_settings_want_that(
    tmp_path: Path,
) -> None:
    """Both are at their code at once."""
    async with of_one_mind(tmp_path, AUTO.replace("land: auto", "overlap: warn")) as (here, project):
        await eventually(lambda: 2 == len([*tmp_path.glob("at-*-impl")]))
        warnings = (await view_of(project, here.services.slots)).warnings
        assert [one for one in warnings if "means shared.py, too (stories.overlap)" in one]
