"""Landing under a running project: tested on the merged files, one at a time, recorded once."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.support.eventually import eventually
from tests.support.house import House, at, house
from tests.support.repositories import git
from tests.unit.project.living import living, shown
from tests.unit.track.test_workspace import WORKING, in_git

from handoffd.api.outcomes import landed
from handoffd.engine.events import Aborted, Approved, Initialised, Landed, Paused, Reopened, Skipped, Started
from handoffd.engine.track import Workspace
from handoffd.engine.views import LandedView, LandingRequest
from handoffd.errors import Refused, StoreError
from handoffd.git.branches import StoryBranch
from handoffd.git.clones import Clones, clones_in
from handoffd.git.landing import Landing
from handoffd.git.worktree import LARGEST, Worktree
from handoffd.journal.records import WHOLE
from handoffd.project.project import Project
from handoffd.project.status import view_of
from handoffd.project.trial import finish_landings

TESTED = """\
workspace: clone
test:
  command: [/bin/sh, -c, 'cat work.txt other.txt >> "$HOME/tested" 2>/dev/null; . "$HOME/verdict"']
"""
FINE = "exit 0\n"
RED = "test ! -e work.txt || { echo it does not add up; exit 1; }\n"
"""The files of the story fail, and not the project without them."""


@asynccontextmanager
async def at_review(
    base: Path, settings: str = TESTED, level: str = "auto", verdict: str = FINE, agent: str = WORKING
) -> AsyncIterator[tuple[House, Project]]:
    """Lend a project with a story that waits in a clone for its review; `level` is that of the sandbox."""
    (base / "verdict").write_text(verdict)
    async with (
        house(base, agent, sandbox={"level": level}) as here,
        living(here, in_git(base, settings)) as project,
    ):
        await project.main.give(Initialised(project="shop"))
        await project.main.give(Started(story="US-001"))
        await eventually(lambda: shown(project)["step"] == "review")
        yield here, project


@asynccontextmanager
async def done(
    base: Path, settings: str = TESTED, level: str = "auto", verdict: str = FINE, agent: str = WORKING
) -> AsyncIterator[tuple[House, Project]]:
    """Lend a project with a story that is done in a clone."""
    async with at_review(base, settings, level, verdict, agent) as (here, project):
        await project.main.give(Approved(story="US-001"))
        await eventually(lambda: shown(project)["step"] == "done")
        yield here, project


async def land(here: House, project: Project, **asked: object) -> LandedView:
    """Land a story, by mei."""
    request = LandingRequest(by="mei", **asked)  # type: ignore[arg-type]
    return await project.landings.land(request, 60)


async def refused(here: House, project: Project, **asked: object) -> Refused:
    """Return why a story is not landed."""
    with pytest.raises(Refused) as caught:
        await land(here, project, **asked)
    return caught.value


def said(project: Project, *words: str) -> str:
    """Return what git says of the project's repository."""
    command = ["git", "-C", project.root, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def commit(project: Project, name: str, text: str) -> None:
    """Commit a file of the project's checkout."""
    at(project.root, name).write_text(text)
    git(Path(project.root), "add", name)
    assert 0 == git(Path(project.root), "commit", "--quiet", "-m", name)


async def test_a_story_is_on_main_once_its_tests_have_passed(tmp_path: Path) -> None:
    """With the work of others since; who landed it is in the history, and status leads on."""
    async with done(tmp_path) as (here, project):
        view = (await view_of(project, here.services.slots)).tracks[0]
        assert f"handoffd land {project.root} --story US-001" == view.next_command
        commit(project, "other.txt", "mine\n")
        (tmp_path / "tested").unlink(missing_ok=True)
        told = await land(here, project)

        assert ("US-001", "main", 2, False) == (told.story, told.onto, told.files, told.already)
        assert told.commit == said(project, "rev-parse", "main")
        assert "bdd\nimpl\nmine\n" == (tmp_path / "tested").read_text()
        assert "bdd\nimpl\n" == at(project.root, "work.txt").read_text()
        assert "By: mei" in said(project, "log", "-1", "--format=%B", "main")
        (event,) = [one for one in await here.journal.events(0, None, 100) if one.kind == "landed"]
        assert ("mei", told.commit) == (event.event["by"], event.event["commit"])
        following = (await view_of(project, here.services.slots)).tracks[0].next_command
        assert f"handoffd start {project.root} STORY" == following
        assert ["US-001"] == [one.story for one in clones_in(here.services.settings.state_dir)]


async def test_where_a_finished_story_is_is_known_with_the_command_for_it(tmp_path: Path) -> None:
    """To land it, to merge it by hand, and once it is landed to throw it away."""
    async with done(tmp_path) as (here, project):
        landings, root = project.landings, project.root
        where = await landings.whereabouts("US-001")
        assert where is not None
        assert ("handoffd/US-001", "main", "forward") == (where.branch, where.onto, where.would)
        assert where.commits > 0
        assert where.files > 0
        assert f"handoffd land {root} --story US-001" == where.command

        commit(project, "work.txt", "mine\n")
        where = await landings.whereabouts("US-001")
        assert where is not None
        assert ("conflict", ("work.txt",)) == (where.would, where.conflicts)
        assert f"git -C {root} merge handoffd/US-001" == where.command
        assert where.says.endswith("landing on main would conflict in work.txt")
        assert where == await landings.whereabouts("US-001")
        assert 0 == git(Path(root), "switch", "--quiet", "--create", "feature")
        where = await landings.whereabouts("US-001")
        assert where is not None
        assert f"git -C {root} switch main && git -C {root} merge handoffd/US-001" == where.command
        assert 0 == git(Path(root), "switch", "--quiet", "main")

        assert 0 == git(Path(root), "reset", "--quiet", "--hard", "HEAD~1")
        assert 0 == git(Path(root), "merge", "--quiet", "handoffd/US-001")
        where = await landings.whereabouts("US-001")
        assert where is not None  # merged by hand, as a conflict may need: only `land` can note that
        assert ("landed", f"handoffd land {root} --story US-001") == (where.would, where.command)
        assert (await land(here, project)).already
        where = await landings.whereabouts("US-001")
        assert where is not None
        assert ("landed", f"handoffd discard {root} US-001") == (where.would, where.command)
        assert await landings.whereabouts("US-404") is None


@pytest.mark.parametrize("contested", [False, True])
async def test_the_notice_of_the_end_says_what_landing_would_do(tmp_path: Path, *, contested: bool) -> None:
    """With the command that lands it, or with the conflict and the merge; and how it is thrown away."""
    async with at_review(tmp_path) as (here, project):
        if contested:
            commit(project, "work.txt", "mine\n")
        await project.main.give(Approved(story="US-001"))
        await eventually(lambda: any(one.kind == "done" for one in here.told.notices))

        (notice,) = [one for one in here.told.notices if one.kind == "done"]
        where = await project.landings.whereabouts("US-001")
        assert where is not None
        assert (where.would == "conflict") == contested
        discard = f"To throw it away: handoffd discard {project.root} US-001"
        assert ("Branch: handoffd/US-001", f"Work: {where.says}", discard) == notice.facts
        assert where.command == notice.action


@pytest.mark.parametrize("kind", ["clone", "root"])
async def test_only_a_story_in_a_clone_begins_without_what_a_person_has_not_committed(
    tmp_path: Path, kind: str
) -> None:
    """In the project's folder its agents see all of it."""
    async with at_review(tmp_path, f"workspace: {kind}\n") as (_, project):
        at(project.root, "draft.txt").write_text("a person's")

        without = ("draft.txt",) if kind == "clone" else ()
        assert without == await project.landings.places.uncommitted()


async def test_what_is_there_is_not_tested_again(tmp_path: Path) -> None:
    """Neither a second time nor where a person has merged it."""
    async with done(tmp_path) as (here, project):
        assert 0 == git(Path(project.root), "merge", "--quiet", "handoffd/US-001")
        (tmp_path / "verdict").write_text(RED)
        told = await land(here, project, story="US-001")

        assert (True, None) == (told.already, told.tests)
        assert project.main.track.ledger.landed


async def test_merged_files_that_fail_their_tests_are_not_landed(tmp_path: Path) -> None:
    """The branch stays where it was; `untested` lands all the same."""
    async with done(tmp_path) as (here, project):
        was = said(project, "rev-parse", "main")
        (tmp_path / "verdict").write_text(RED)
        error = await refused(here, project)

        assert "NOT_GREEN" == error.code
        assert "US-001 was not landed: with main, " in error.message
        assert "it does not add up" in error.message
        assert error.hint is not None
        assert error.hint.startswith(f"handoffd reopen {project.root} impl --note 'with main, ")
        assert (was, False) == (said(project, "rev-parse", "main"), project.main.track.ledger.landed)
        assert (await land(here, project, untested=True)).tests is None
        assert was != said(project, "rev-parse", "main")


async def test_a_project_without_tests_lands_without_them(tmp_path: Path) -> None:
    """As its steps have passed without."""
    async with done(tmp_path, "workspace: clone\n") as (here, project):
        assert (await land(here, project)).tests is None


async def test_a_branch_that_moves_while_it_is_tested_is_tested_again(tmp_path: Path) -> None:
    """What lands has that commit, and was tested with it. Here the tests move it: no sandbox allows that."""
    async with done(tmp_path, level="off") as (here, project):
        move = f"git -C {project.root} -c user.name=a -c user.email=a@b commit -q --allow-empty -m moved"
        (tmp_path / "verdict").write_text(f'if mkdir "$HOME/once" 2>/dev/null; then {move}; fi\n')
        (tmp_path / "tested").unlink(missing_ok=True)
        told = await land(here, project)

        assert 2 * "bdd\nimpl\n" == (tmp_path / "tested").read_text()
        assert "moved" in said(project, "log", "--format=%s", told.commit or "").split()


async def test_a_branch_that_moves_again_and_again_is_given_up(tmp_path: Path) -> None:
    """After three times."""
    async with done(tmp_path, level="off") as (here, project):
        move = f"git -C {project.root} -c user.name=a -c user.email=a@b commit -q --allow-empty -m moved"
        (tmp_path / "verdict").write_text(f"{move}\n")
        error = await refused(here, project)

        assert ("BRANCH_MOVED", "main moved 3 times while US-001 was tested") == (error.code, error.message)


async def test_it_lands_where_it_began(tmp_path: Path) -> None:
    """Not where a person happens to be now, unless they ask for that."""
    async with done(tmp_path) as (here, project):
        git(Path(project.root), "switch", "--quiet", "--create", "mine")
        was = said(project, "rev-parse", "mine")
        assert "main" == (await land(here, project)).onto
        assert was == said(project, "rev-parse", "mine")
        assert not at(project.root, "work.txt").exists()
        assert "mine" == (await land(here, project, onto="mine")).onto
        assert at(project.root, "work.txt").exists()


async def test_only_what_is_done_is_landed(tmp_path: Path) -> None:
    """The story in flight is refused; the one that was done before it needs no name."""
    async with done(tmp_path) as (here, project):
        await project.main.give(Started(story="US-002"))
        error = await refused(here, project, story="US-002")
        assert f"handoffd status {project.root}" == error.hint
        assert ("NOT_DONE", f"US-002 is in flight, at {shown(project)['step']}") == (
            error.code,
            error.message,
        )
        assert ("US-001", "main") == ((told := await land(here, project)).story, told.onto)


async def test_who_asks_again_waits_for_the_same_landing(tmp_path: Path) -> None:
    """After its limit a caller hears that it goes on; another landing is refused until then."""
    async with done(tmp_path) as (here, project):
        (tmp_path / "verdict").write_text('until test -e "$HOME/go"; do sleep 0.05; done\n')
        landings, request = project.landings, LandingRequest(by="mei")
        assert (await landings.land(request, 0.1)).going_on
        with pytest.raises(Refused) as caught:
            await landings.land(LandingRequest(by="mei", story="US-009"), 0.1)
        assert "LANDING" == caught.value.code
        (tmp_path / "go").touch()
        with anyio.fail_after(60):
            assert "main" == (await landings.land(request, None)).onto
        assert 1 == len([one for one in await here.journal.events(0, None, 100) if one.kind == "landed"])


async def test_a_landing_that_an_earlier_daemon_has_begun_is_finished(tmp_path: Path) -> None:
    """Before the projects have their loops."""
    async with done(tmp_path) as (here, project):
        state_dir = here.services.settings.state_dir
        landing = Landing(project.root, state_dir, dict(os.environ))
        merge = landing.prepare("US-001", None, b"x\n", here.clock.now())
        note = next(state_dir.glob("snapshots/*/root"))
        for root in state_dir.glob("snapshots/*/root"):
            note = root if root.read_text() == project.root else note
        note.with_name("landing.json").write_text(
            f'{{"ref": "{merge.ref}", "was": "{merge.was}", "commit": "{merge.commit}", "files": 1}}'
        )
        await finish_landings(here.services, limit_s=0)  # the project does not answer
        assert merge.was == said(project, "rev-parse", "main")
        await finish_landings(here.services)

        assert merge.commit == said(project, "rev-parse", "main")
        assert (await land(here, project)).already


async def test_a_story_that_was_landed_begins_anew_at_main(tmp_path: Path) -> None:
    """Its branch goes on from there, and is landed again."""
    async with done(tmp_path) as (here, project):
        await land(here, project)
        await project.main.give(Started(story="US-001", force=True))
        await eventually(lambda: shown(project)["step"] == "review")
        place = project.main.workspace
        assert said(project, "rev-parse", "main") == place.base
        branch = StoryBranch(project.root, place, here.services.settings.state_dir, dict(os.environ))
        assert not branch.is_landed()
        await project.main.give(Approved(story="US-001"))
        await eventually(lambda: shown(project)["step"] == "done")
        assert "main" == (await land(here, project)).onto
        again = ["bdd", "impl"] * 2
        assert again == at(project.root, "work.txt").read_text().split()


async def test_an_outcome_that_was_never_asked_for_keeps_no_other_story(tmp_path: Path) -> None:
    """A caller that did not wait for the end has landed one story, and another is asked for."""
    async with done(tmp_path) as (_, project):
        landings = project.landings
        assert (await landings.land(LandingRequest(story="US-001"), 0)).going_on
        await eventually(lambda: project.main.track.ledger.landed)

        async def is_asked_for_itself() -> bool:  # the first is landed a moment before it is over
            with pytest.raises(Refused) as caught:
                await landings.land(LandingRequest(story="US-002"), 60)
            return caught.value.code == "NOT_DONE"

        told: bool = await eventually(is_asked_for_itself)
        assert told


async def test_of_a_landing_that_was_cut_off_in_its_tests_nothing_stays(tmp_path: Path) -> None:
    """The next daemon removes its clone, and not that of the story."""
    async with done(tmp_path) as (here, project):
        state_dir, environment = here.services.settings.state_dir, here.services.environment
        where = Workspace(folder="", branch="handoffd/@landing/1", base=said(project, "rev-parse", "main"))
        clones = Clones(project.root, state_dir, environment)
        clone = clones.make("@landing-1", (), where, here.clock.now())
        half = Path(clone.workspace.folder).parent.with_name("%40landing-2")
        half.mkdir()
        unknown = state_dir / "workspaces/0123456789abcdef/%40landing-3"
        unknown.mkdir(parents=True)
        left = "refs/handoffd/%40landing-2/base"
        said(project, "update-ref", left, "main")
        await finish_landings(here.services)

        assert (False, False) == (half.exists(), unknown.exists())
        assert ["US-001"] == [one.story for one in clones_in(state_dir)]
        assert "@landing" not in said(project, "for-each-ref").replace("%40", "@")


async def test_a_branch_that_no_landing_moves_is_known_before(tmp_path: Path) -> None:
    """Status and whereabouts offer a landing on another one."""
    settings = f"{TESTED}stories: {{protected: [main]}}\n"
    async with done(tmp_path, settings) as (here, project):
        elsewhere = f"handoffd land {project.root} --story US-001 --onto BRANCH"
        where = await project.landings.whereabouts("US-001")
        assert where is not None
        assert "no landing moves that branch (stories.protected)" in where.says
        view = (await view_of(project, here.services.slots)).tracks[0]
        assert (elsewhere, elsewhere, True) == (where.command, view.next_command, view.to_land)
        assert elsewhere == (await refused(here, project)).hint


@pytest.mark.parametrize(("settings", "asked"), [("workspace: clone\n", {}), (TESTED, {"untested": True})])
async def test_a_landing_without_tests_is_called_that(
    tmp_path: Path, settings: str, asked: dict[str, object]
) -> None:
    """By the answer and in the history, also where the project names no tests."""
    async with done(tmp_path, settings) as (here, project):
        view = await land(here, project, **asked)

        assert landed(view, project.root, None, None).message.endswith("changed; untested")
        (event,) = [one for one in await here.journal.events(0, None, 100) if one.kind == "landed"]
        assert (True, True) == (event.event["untested"], event.why.endswith(", untested"))


# --- only the whole of a story --------------------------------------------------------------------------
async def test_a_story_that_is_not_all_on_its_branch_is_not_landed(tmp_path: Path) -> None:
    """An agent should have committed, and did not: no answer says that the story is on main."""
    async with done(tmp_path, f"{TESTED}commit: agent\n") as (here, project):
        error = await refused(here, project)

        without = f"handoffd land {project.root} --story US-001 --leave-out"
        assert ("BRANCH_BEHIND", without) == (error.code, error.hint)
        folder = project.main.workspace.folder
        do = f"it has changes that are not committed; commit that in {folder}, or land without it"
        assert error.message.endswith(do)
        assert not project.main.track.ledger.landed
        for name in ("work.txt", "PROJECT_MEMORY.md"):
            git(Path(folder), "add", name)
        assert 0 == git(Path(folder), "commit", "--quiet", "-m", "by hand")
        assert () == (await land(here, project)).left
        assert "bdd\nimpl\n" == at(project.root, "work.txt").read_text()


async def test_a_story_is_landed_without_a_file_that_no_commit_takes(tmp_path: Path) -> None:
    """Where a person wants that: the answer names it, and its clone keeps it."""
    large = WORKING.replace("pwd >>", f"test -e film || truncate -s {LARGEST + 1} film; pwd >>")
    async with done(tmp_path, agent=large) as (here, project):
        clone = Path(project.main.workspace.folder)
        prompts = [path.read_text() for path in (tmp_path / "state/runs").glob("*/prompt.md")]
        told = [text for text in prompts if "The last commit of this story is without film" in text]
        assert 2 == len(told), "the first step had no commit before it"

        assert "no commit takes film" in (await refused(here, project)).message
        view = await land(here, project, leave_out=True)
        without = (
            f"it is without what is in {clone}: no commit takes film: too large, or a repository of its own"
        )
        assert ("main", (without,)) == (view.onto, view.left)
        assert without in landed(view, project.root, None, None).message
        assert (True, False) == ((clone / "film").exists(), at(project.root, "film").exists())


async def test_what_an_agent_has_left_on_another_branch_is_kept_beside_the_landing(tmp_path: Path) -> None:
    """Each screen of the story names the ref."""
    async with done(tmp_path) as (here, project):
        clone = Path(project.main.workspace.folder)
        assert 0 == git(clone, "switch", "--quiet", "--create", "elsewhere")
        assert 0 == git(clone, "commit", "--quiet", "--allow-empty", "-m", "another way")
        assert 0 == git(clone, "switch", "--quiet", "-")
        where = await project.landings.whereabouts("US-001")
        assert where is not None
        assert f"handoffd land {project.root} --story US-001" == where.command
        view = await land(here, project)

        ref = said(project, "for-each-ref", "--format=%(refname)", "refs/handoffd/US-001/left-*")
        kept = f"{ref} keeps what its agent left on other branches, or in a stash"
        assert (kept,) == view.left
        assert "another way" == said(project, "log", "-1", "--format=%s", ref)
        where = await project.landings.whereabouts("US-001")
        assert where is not None
        assert f"all of it is on main; {kept}" == where.says


async def test_a_branch_that_is_behind_is_not_landed(tmp_path: Path) -> None:
    """A person has it checked out elsewhere, so that its last steps are in the clone alone."""
    (tmp_path / "verdict").write_text(FINE)
    async with house(tmp_path, WORKING) as here, living(here, in_git(tmp_path, TESTED)) as project:
        await project.main.give(Initialised(project="shop"))
        await project.main.give(Started(story="US-001"))
        await eventually(lambda: shown(project)["step"] == "review")
        assert 0 == git(
            Path(project.root), "worktree", "add", "--quiet", f"{tmp_path}/look", "handoffd/US-001"
        )
        await project.main.give(Approved(story="US-001"))
        await eventually(lambda: shown(project)["step"] == "done")
        with pytest.raises(StoreError) as caught:
            await land(here, project)
        assert "BRANCH_CHECKED_OUT" == caught.value.code
        assert not at(project.root, "work.txt").exists()

        assert 0 == git(Path(project.root), "worktree", "remove", f"{tmp_path}/look")
        assert "main" == (await land(here, project)).onto
        assert "bdd\nimpl\n" == at(project.root, "work.txt").read_text()


async def test_a_story_that_was_set_aside_is_not_landed(tmp_path: Path) -> None:
    """It waits at its review: no person has passed what it has done."""
    async with done(tmp_path) as (here, project):
        await project.main.give(Started(story="US-002"))
        await eventually(lambda: shown(project)["step"] == "review")
        await project.main.give(Started(story="US-003", force=True))
        error = await refused(here, project, story="US-002")

        assert ("NOT_DONE", "US-002 is not done") == (error.code, error.message)


async def test_a_story_that_is_reopened_while_it_is_tested_can_be_landed_again(tmp_path: Path) -> None:
    """What it does from then on is not on main yet."""
    async with done(tmp_path) as (_, project):
        await project.main.give(Reopened(step="impl"))
        await project.main.give(Landed(story="US-001", onto="main", commit="c0" * 20))

        assert not project.main.track.ledger.landed


@pytest.mark.parametrize("versioned", [True, False])
async def test_a_story_without_a_branch_says_that_its_files_are_in_the_folder(
    tmp_path: Path, *, versioned: bool
) -> None:
    """With the command that shows them; `land` has the same words."""
    async with done(tmp_path, "commit: none\n") as (here, project):
        if not versioned:
            shutil.rmtree(at(project.root, ".git"))
        folder = f"the project's folder{'' if versioned else ', which is in no git repository'}"
        says = f"in {folder}, not committed by handoffd; the next story adds to it"
        where = await project.landings.whereabouts("US-001")
        assert where is not None
        assert (None, "folder", says) == (where.branch, where.would, where.says)
        look = f"git -C {project.root} status" if versioned else f"ls -lt {project.root}"
        assert look == where.command
        error = await refused(here, project)
        assert ("NOT_IN_CLONE", f"US-001 has nothing to land: it worked {says}") == (
            error.code,
            error.message,
        )
        assert look == error.hint

        await project.main.give(Started(story="US-002"))
        await eventually(lambda: (shown(project)["story"], shown(project)["step"]) == ("US-002", "review"))
        earlier = await project.landings.whereabouts("US-001")
        assert earlier is not None
        assert f"in {folder}, not committed by handoffd; the next story adds to it" == earlier.says


async def test_a_story_that_is_not_all_on_its_branch_says_so(tmp_path: Path) -> None:
    """What no commit can have, and commits that are in the clone alone, as a person is on the branch."""
    async with done(tmp_path) as (here, project):
        folder = Path(project.main.track.works_in(project.root).folder)
        with (folder / "film").open("wb") as file:
            file.truncate(LARGEST + 1)
        where = await project.landings.whereabouts("US-001")
        assert where is not None
        assert where.says.endswith(
            "; not all of the story: no commit takes film: too large, or a repository of its own; "
            f"commit that yourself or move it away in {folder}, or land without it"
        )
        error = await refused(here, project)
        assert ("BRANCH_BEHIND", where.command) == (error.code, error.hint)

        (folder / "film").unlink()
        said(project, "update-ref", "refs/heads/handoffd/US-001", "handoffd/US-001~1")
        where = await project.landings.whereabouts("US-001")
        assert where is not None
        assert where.says.endswith("; not all of the story: its commits are not in the project's repository")
        assert f"handoffd land {project.root} --story US-001" == where.command
        assert "main" == (await land(here, project)).onto


async def test_an_aborted_story_says_what_there_is_of_it(tmp_path: Path) -> None:
    """With the command that takes it up again; it is not landed."""
    async with at_review(tmp_path) as (here, project):
        await project.main.give(Aborted())
        where = await project.landings.whereabouts("US-001")
        assert where is not None
        assert (True, "handoffd/US-001") == (where.aborted, where.branch)
        commits = said(project, "rev-list", "--count", "main..handoffd/US-001")
        assert where.says.startswith(f"aborted; {commits} commit")
        assert where.says.endswith("that main does not have")
        again = f"handoffd start {project.root} US-001 --go-on"
        assert again == where.command
        error = await refused(here, project, story="US-001")
        assert ("NOT_DONE", "US-001 was aborted", again) == (error.code, error.message, error.hint)
        assert "no story is done: US-001 was aborted, at review" == (await refused(here, project)).message


async def test_an_aborted_story_of_which_nothing_was_accepted_says_that_its_clone_has_work(
    tmp_path: Path,
) -> None:
    """It has no branch yet."""
    agent = 'touch "$HOME/at-$HANDOFFD_STEP"; echo draft > draft.txt; sleep 60'
    async with house(tmp_path, agent) as here, living(here, in_git(tmp_path, TESTED)) as project:
        await project.main.give(Initialised(project="shop"))
        await project.main.give(Started(story="US-001"))
        await eventually((tmp_path / "at-bdd").exists)
        await eventually(lambda: bool([*tmp_path.glob("state/workspaces/*/US-001/*/draft.txt")]))
        await project.main.give(Aborted())
        await eventually(lambda: project.main.track.ledger.dispatch is None)

        where = await project.landings.whereabouts("US-001")
        assert where is not None
        assert ("aborted; its clone has work that is on no branch", True) == (where.says, where.aborted)
        assert f"handoffd start {project.root} US-001 --go-on" == where.command


async def test_in_the_root_there_is_nothing_to_land(tmp_path: Path) -> None:
    """The files are there."""
    async with done(tmp_path, "commit: step\n") as (here, project):
        error = await refused(here, project)

        assert ("NOT_IN_CLONE", f"git -C {project.root} status") == (error.code, error.hint)


# --- throwing a story away ------------------------------------------------------------------------------
# --- up to a step, and branches that nothing lands on -------------------------------------------------
async def test_part_of_a_story_is_landed_up_to_a_step(tmp_path: Path) -> None:
    """The rest stays to be landed, and the story is not over by that."""
    async with done(tmp_path) as (here, project):
        told = await land(here, project, to="impl")

        assert ("US-001", "main", "impl") == (told.story, told.onto, told.to)
        assert "bdd\nimpl\n" == at(project.root, "work.txt").read_text()
        assert "Step: impl" in said(project, "log", "-1", "--format=%B", "main^2")
        assert "Land US-001 up to impl" in said(project, "log", "-1", "--format=%B", "main")
        assert not project.main.track.ledger.landed
        (known,) = await here.journal.past.stories(WHOLE, 10)
        assert known.end is not None
        assert "done" == known.end.kind

        assert (await land(here, project)).to is None
        assert "bdd\nimpl\n" == at(project.root, "work.txt").read_text()
        assert project.main.track.ledger.landed


async def test_part_of_a_story_at_work_is_landed(tmp_path: Path) -> None:
    """It is what was accepted, whatever an agent has written since."""
    async with at_review(tmp_path) as (here, project):
        assert "NOT_DONE" == (await refused(here, project)).code
        told = await land(here, project, to="bdd")

        assert ("US-001", "bdd\n") == (told.story, at(project.root, "work.txt").read_text())
        assert "review" == shown(project)["step"]


@pytest.mark.parametrize("anew", [False, True])
async def test_a_step_that_a_person_went_back_behind_is_not_landed(tmp_path: Path, *, anew: bool) -> None:
    """Neither before a step before it is accepted again, nor then."""
    async with done(tmp_path) as (here, project):
        await project.main.give(Paused())
        await project.main.give(Reopened(step="bdd", note="From the beginning."))
        if anew:
            await project.main.give(Skipped())
        error = await refused(here, project, to="impl")

        gone, back = (
            "US-001 has no commit of impl in a clone",
            "US-001 is at bdd, so impl is not behind it any more",
        )
        assert ("NO_STEP", gone if anew else back) == (error.code, error.message)
        if not anew:
            assert f"handoffd status {project.root}" == error.hint


async def test_a_story_whose_clone_is_gone_lands_where_it_began(tmp_path: Path) -> None:
    """Whatever is checked out by then, and whichever story was started since; also up to a step."""
    async with done(tmp_path) as (here, project):
        assert 0 == git(Path(project.root), "switch", "--quiet", "--create", "experiment")
        for clone in clones_in(here.services.settings.state_dir):
            Clones(project.root, here.services.settings.state_dir, here.services.environment).remove(clone)
        await project.main.give(Started(story="US-002"))
        await eventually(lambda: shown(project)["step"] == "review")
        where = await project.landings.whereabouts("US-001")

        assert where is not None
        assert "main" == where.onto
        base = project.landings.places.base("US-001", "main")
        assert base is not None
        assert 0 == git(Path(project.root), "merge-base", "--is-ancestor", base, "main")
        assert ("main", "impl") == (
            (told := await land(here, project, story="US-001", to="impl")).onto,
            told.to,
        )
        assert "main" == (await land(here, project, story="US-001")).onto
        assert "" == said(project, "log", "main..experiment")


@pytest.mark.parametrize("later", [False, True])
async def test_a_story_whose_pull_request_was_merged_as_one_commit_is_landed(
    tmp_path: Path, *, later: bool
) -> None:
    """For every screen; also when the same lines have changed since."""
    async with done(tmp_path) as (here, project):
        root = Path(project.root)
        assert 0 == git(root, "merge", "--quiet", "--squash", "handoffd/US-001")
        assert 0 == git(root, "commit", "--quiet", "-m", "A story (#7)")
        if later:
            commit(project, "work.txt", "otherwise\n")
        where = await project.landings.whereabouts("US-001")
        assert where is not None
        assert ("landed", f"handoffd land {root} --story US-001") == (where.would, where.command)

        was = said(project, "rev-parse", "main")
        assert (await land(here, project)).already
        assert was == said(project, "rev-parse", "main")
        assert project.main.track.ledger.landed


async def test_a_step_that_was_not_accepted_has_nothing_to_land(tmp_path: Path) -> None:
    """The refusal shows how to look for a commit."""
    async with at_review(tmp_path) as (here, project):
        error = await refused(here, project, to="impl")

        assert ("NO_STEP", "US-001 has no commit of impl in a clone") == (error.code, error.message)
        assert f"git -C {project.root} log handoffd/US-001" == error.hint


@pytest.mark.parametrize(("pattern", "onto"), [("main", None), ("release/*", "release/1.2")])
async def test_nothing_is_landed_on_a_protected_branch(
    tmp_path: Path, pattern: str, onto: str | None
) -> None:
    """Neither what is tested nor what is not; another branch may be named."""
    settings = f"{TESTED}stories: {{protected: ['{pattern}']}}\n"
    async with done(tmp_path, settings) as (here, project):
        for name in ("release/1.2", "next"):
            assert 0 == git(Path(project.root), "branch", name)
        was = said(project, "rev-parse", "main", "release/1.2")
        error = await refused(here, project, onto=onto, untested=True)

        assert "PROTECTED_BRANCH" == error.code
        assert "stories.protected" in error.message
        assert was == said(project, "rev-parse", "main", "release/1.2")
        assert "next" == (await land(here, project, onto="next")).onto


# --- by itself: left on the branch, or given to the project's command ---------------------------------
async def test_a_branch_may_be_all_that_is_wanted(tmp_path: Path) -> None:
    """The story is over then, without a merge and without tests; a person may still land it."""
    async with done(tmp_path, f"{TESTED}stories: {{land: branch}}\n") as (here, project):
        await eventually(lambda: project.main.track.ledger.landed and not project.landings.goes_on)

        (event,) = [one for one in await here.journal.events(0, None, 100) if one.kind == "landed"]
        end = said(project, "rev-parse", "handoffd/US-001")
        assert ("branch", "handoffd/US-001", end) == tuple(
            event.event[key] for key in ("how", "onto", "commit")
        )
        assert not at(project.root, "work.txt").exists()
        assert "main" == (await land(here, project, story="US-001")).onto


def taking(base: Path, script: str = "") -> str:
    """Return the settings of a project whose command notes what it gets, and then runs `script`."""
    command = base / "take"
    command.write_text(
        "#!/bin/sh\n"
        f'echo "$HANDOFFD_STORY $HANDOFFD_BRANCH $HANDOFFD_COMMIT $HANDOFFD_ONTO $PWD" >> {base}/taken\n'
        f"{script}\n"
    )
    command.chmod(0o755)
    return f"{TESTED}stories: {{land: command, land_command: [{command}]}}\n"


async def test_the_projects_command_takes_a_story(tmp_path: Path) -> None:
    """Once the tests have passed on the merged files, which no branch gets; its last line is remembered."""
    settings = taking(tmp_path, 'echo "opened"; echo "https://example.org/pull/12"')
    async with done(tmp_path, settings) as (here, project):
        await eventually(lambda: project.main.track.ledger.landed)

        end = said(project, "rev-parse", "handoffd/US-001")
        assert f"US-001 handoffd/US-001 {end} main {project.root}\n" == (tmp_path / "taken").read_text()
        assert not at(project.root, "work.txt").exists()
        (known,) = await here.journal.past.stories(WHOLE, 10)
        assert known.end is not None
        last = (known.end.how, known.end.onto, known.end.commit, known.end.told)
        assert ("command", "main", end, "https://example.org/pull/12") == last
        await eventually(lambda: not project.landings.goes_on)
        assert "https://example.org/pull/12" == (await land(here, project, story="US-001")).told
        assert 1 == len((tmp_path / "taken").read_text().splitlines())


async def test_a_command_that_fails_waits_for_a_person_who_may_have_it_run_again(tmp_path: Path) -> None:
    """It is not tried again by itself."""
    settings = taking(tmp_path, f"cat {tmp_path}/says; test -e {tmp_path}/fine")
    (tmp_path / "says").write_text("no such remote\n")
    async with done(tmp_path, settings) as (here, project):
        await eventually(lambda: project.main.track.ledger.unlanded and not project.landings.goes_on)
        why = project.main.track.ledger.unlanded
        assert why is not None
        assert why.endswith("take ended with exit code 1: no such remote")
        where = await project.landings.whereabouts("US-001")
        assert where is not None
        assert where.says.endswith(f"; not landed: {why}")
        assert "LAND_COMMAND_FAILED" == (await refused(here, project)).code

        (tmp_path / "fine").touch()
        told = await land(here, project)
        assert ("command", "no such remote") == (told.how, told.told)
        assert 3 == len((tmp_path / "taken").read_text().splitlines())
        assert project.main.track.ledger.landed


async def test_merged_files_that_fail_their_tests_are_not_given_to_the_command(tmp_path: Path) -> None:
    """They go back to an agent, as in any landing by itself."""
    in_landing = (
        'case "$PWD" in *landing*) test ! -e work.txt || { echo "it does not add up"; exit 1; };; esac\n'
    )
    async with done(tmp_path, taking(tmp_path), verdict=in_landing) as (_, project):
        await eventually(lambda: project.main.track.ledger.unlanded)
        assert 2 == project.main.track.ledger.resolves
        assert not (tmp_path / "taken").exists()


async def test_a_command_has_no_parts_of_stories(tmp_path: Path) -> None:
    """There is one pull request of a story."""
    async with done(tmp_path, taking(tmp_path)) as (here, project):
        await eventually(lambda: project.main.track.ledger.landed and not project.landings.goes_on)
        assert "WHOLE_STORIES" == (await refused(here, project, to="impl")).code


async def test_a_discarded_story_has_neither_clone_nor_branch_and_a_ref_keeps_it(tmp_path: Path) -> None:
    """Also what was not committed; the next command is about another story."""
    async with done(tmp_path) as (here, project):
        folder = project.main.workspace.folder
        at(folder, "late.txt").write_text("not committed\n")
        kept = await project.landings.discard("US-001", "mei")

        assert "refs/handoffd/US-001/discarded-20260131T221509Z" == kept
        assert "not committed" == said(project, "show", f"{kept}:late.txt")
        assert ("", False) == (
            said(project, "branch", "--list", "handoffd/*"),
            at(folder, "late.txt").exists(),
        )
        assert "" == said(project, "fsck", "--strict", "--no-dangling")
        view = (await view_of(project, here.services.slots)).tracks[0]
        assert f"handoffd start {project.root} STORY" == view.next_command
        assert (None, None) == (view.workspace, view.branch)
        assert "NO_BRANCH" == (await refused(here, project)).code
        why = await refused(here, project, story="US-001")
        assert f"US-001 was discarded, and {kept} keeps what it did" == why.message
        assert f"git -C {project.root} branch handoffd/US-001 {kept}" == why.hint
        assert 0 == git(Path(project.root), *str(why.hint).split()[3:])
        assert "US-001" == (await land(here, project, story="US-001")).story


async def test_a_branch_without_its_clone_can_be_discarded(tmp_path: Path) -> None:
    """`gc` has removed the clone; a second time there is nothing to discard."""
    async with done(tmp_path) as (_, project):
        end = said(project, "rev-parse", "handoffd/US-001")
        Path(project.main.workspace.folder).parent.rename(tmp_path / "gone")  # its last snapshot may be made
        landings = project.landings
        assert end == said(project, "rev-parse", await landings.discard("US-001", "mei"))
        with pytest.raises(Refused) as caught:
            await landings.discard("US-001", "mei")
        assert "NO_BRANCH" == caught.value.code


async def test_a_story_at_work_is_not_discarded(tmp_path: Path) -> None:
    """It is aborted first; then it can be."""
    async with done(tmp_path) as (here, project):
        await project.main.give(Started(story="US-002"))
        await eventually(lambda: shown(project)["step"] == "review")
        landings = project.landings
        with pytest.raises(Refused) as caught:
            await landings.discard("US-002", "mei")
        assert ("STORY_IN_PROGRESS", f"handoffd abort {project.root} --story US-002") == (
            caught.value.code,
            caught.value.hint,
        )
        await project.main.give(Aborted())
        await landings.discard("US-002", "mei")
        assert "US-002 was discarded" in (await refused(here, project, story="US-002")).message
        assert "handoffd/US-001" == said(project, "branch", "--list", "handoffd/*")


async def test_a_story_that_is_started_while_it_is_discarded_waits_for_a_new_clone(tmp_path: Path) -> None:
    """Its agent would have worked in a folder that goes."""
    async with done(tmp_path) as (here, project), anyio.create_task_group() as tasks:
        folder, state_dir = project.main.workspace.folder, here.services.settings.state_dir
        at(folder, "late.txt").write_text("not committed\n")
        with Worktree(folder, state_dir, dict(os.environ)).locked(5):
            tasks.start_soon(project.landings.discard, "US-001", "mei")
            await anyio.wait_all_tasks_blocked()
            await project.main.give(Started(story="US-001", force=True))
            await eventually(lambda: "is being removed" in str(project.main.shortage))
        await eventually(lambda: shown(project)["step"] == "review")

        assert (True, False) == (at(folder, "work.txt").exists(), at(folder, "late.txt").exists())
        assert "not committed" in said(project, "log", "-p", "--all", "--", "late.txt")


async def test_commits_of_a_person_are_not_discarded(tmp_path: Path) -> None:
    """Neither is a branch that they are on."""
    async with done(tmp_path) as (_, project):
        landings = project.landings
        git(Path(project.root), "switch", "--quiet", "handoffd/US-001")
        commit(project, "mine.txt", "mine\n")
        for code, branch in (("BRANCH_CHECKED_OUT", "main"), ("BRANCH_DIVERGED", "handoffd/US-001")):
            with pytest.raises(StoreError) as caught:
                await landings.discard("US-001", "mei")
            assert code == caught.value.code
            git(Path(project.root), "switch", "--quiet", branch)
        assert "mine" == said(project, "show", "handoffd/US-001:mine.txt")
