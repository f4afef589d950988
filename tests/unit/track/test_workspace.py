"""A story with a place of its own: a clone that is made, set up, committed, and made anew."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from tests.support.eventually import eventually
from tests.support.house import HAND_OVER, NOW, House, at, house, make_project, track_of
from tests.support.repositories import git
from tests.unit.project.living import living, shown

from handoffd.engine.events import (
    Aborted,
    Approved,
    Initialised,
    Rejected,
    Reopened,
    Retried,
    RolledBack,
    Started,
)
from handoffd.engine.run import Usage
from handoffd.engine.track import Facts, Ledger, Track, Workspace
from handoffd.engine.views import LandingRequest
from handoffd.failpoints import Point, arm
from handoffd.git.branches import note_end
from handoffd.git.clones import Clones, clones_in
from handoffd.git.labels import Label
from handoffd.git.worktree import Worktree
from handoffd.project.project import Project
from handoffd.project.rest import stays_up
from handoffd.project.status import view_of
from handoffd.protocol.rules import Rule
from handoffd.protocol.state import Reason, Status, TestCounts
from handoffd.settings.model import ProjectSettings, RetentionSettings
from handoffd.track.services import GIB
from handoffd.track.workspace import message_of, takes_a_place

RULES = """\
steps:
  bdd: {next_on_pass: review, timeout_min: 1}
  review: {next_on_pass: impl}
  impl: {next_on_pass: update-memory, timeout_min: 1, max_attempts: 1}
"""
PAPERS = """\
steps:
  bdd: {next_on_pass: sdd-delta, timeout_min: 1}
  sdd-delta: {next_on_pass: contract, timeout_min: 1}
  contract: {next_on_pass: done, timeout_min: 1}
"""
CLONE = "workspace: clone\n"
WORKING = f"""\
case $HANDOFFD_STEP in update-memory) paper=PROJECT_MEMORY.md;; *) paper=work.txt;; esac
echo "$HANDOFFD_STEP" >> $paper
pwd >> "$HOME/worked-in"
{HAND_OVER}"""


def set_up_by(script: str) -> str:
    """Return settings of a clone that a shell script makes ready."""
    return f"workspace: {{kind: clone, setup: {json.dumps(['/bin/sh', '-c', script])}}}\n"


def in_git(base: Path, settings: str | None = CLONE) -> str:
    """Return the root of a project in a repository with one commit."""
    root = make_project(base, rules=RULES, settings=settings)
    at(root, "kept.txt").write_text("kept\n")
    git(Path(root), "init", "--quiet", "--initial-branch", "main")
    git(Path(root), "add", "kept.txt", "PROJECT_CONTEXT.md")
    assert 0 == git(Path(root), "commit", "--quiet", "-m", "first")
    return root


@asynccontextmanager
async def begun(
    base: Path, agent: str = WORKING, settings: str = CLONE
) -> AsyncIterator[tuple[House, Project]]:
    """Lend a project in a repository with a story that was started."""
    async with house(base, agent) as here, living(here, in_git(base, settings)) as project:
        await project.main.give(Initialised(project="shop"))
        await project.main.give(Started(story="US-001"))
        yield here, project


@asynccontextmanager
async def at_review(base: Path, agent: str = WORKING, settings: str = CLONE) -> AsyncIterator[Project]:
    """Lend a project whose story waits at its review."""
    async with begun(base, agent, settings) as (_, project):
        await eventually(lambda: shown(project)["step"] == "review")
        yield project


def said(project: Project, *words: str) -> str:
    """Return what git says of the project's repository."""
    command = ["git", "-C", project.root, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def subjects(project: Project, branch: str = "main..handoffd/US-001") -> list[str]:
    """Return the first lines of a branch's commits, the oldest first."""
    return said(project, "log", "--reverse", "--format=%s", branch).splitlines()


async def finished(project: Project) -> None:
    """Approve the review, and wait for the end of the story."""
    await project.main.give(Approved(story="US-001"))
    await eventually(lambda: shown(project)["step"] == "done")


def clone_of(project: Project) -> Path:
    """Return where the story works."""
    return Path(project.main.workspace.folder)


# --- a clone ------------------------------------------------------------------------------------------
async def test_a_story_works_in_a_clone_and_leaves_the_root_alone(tmp_path: Path) -> None:
    """Each step that has passed is a commit on its branch, in the project's repository."""
    async with at_review(tmp_path) as project:
        await finished(project)

        assert ["US-001 bdd: pass", "US-001 impl: pass", "US-001 update-memory: pass"] == subjects(project)
        assert {str(clone_of(project))} == {*(tmp_path / "worked-in").read_text().split()}
        assert "clone" == project.main.workspace.kind
        assert not at(project.root, "work.txt").exists()
        assert "?? .ai/" == said(project, "status", "--porcelain").strip()
        assert "bdd\nimpl\n" == said(project, "show", "handoffd/US-001:work.txt")


async def test_a_commit_says_what_it_is_of(tmp_path: Path) -> None:
    """The run is the one of the journal."""
    async with begun(tmp_path, settings=f"{CLONE}commit_author: Mei <mei@example.org>\n") as (here, project):
        await eventually(lambda: shown(project)["step"] == "review")
        (run,) = await here.journal.runs()
        told = said(project, "log", "-1", "--format=%an <%ae> %cn%n%B", "handoffd/US-001").splitlines()

    assert ["Mei <mei@example.org> handoffd", "US-001 bdd: pass", ""] == told[:3]
    assert ["Story: US-001", "Step: bdd", f"Run: {run.id}"] == told[3:6]


async def test_the_last_papers_are_written_beside_the_stories_that_landed_meanwhile(tmp_path: Path) -> None:
    """A step that may write nothing else has the files of both; a step with code has the story's own."""
    async with at_review(tmp_path, f"ls > $HOME/seen-$HANDOFFD_STEP\n{WORKING}") as project:
        landed(project, "other.txt")
        await finished(project)

        assert [
            "US-001 bdd: pass",
            "US-001 impl: pass",
            "US-001: take in main",
            "US-001 update-memory: pass",
        ] == subjects(project)
        assert ["impl"] == [
            one for one in ("impl", "update-memory") if "other.txt" not in seen(tmp_path, one)
        ]
        assert "bdd\nimpl\n" == said(project, "show", "handoffd/US-001:work.txt")
        assert "Story: US-001" in said(project, "log", "-1", "--format=%B", "handoffd/US-001^")


async def test_papers_are_written_all_the_same_where_the_story_conflicts(tmp_path: Path) -> None:
    """The landing finds the conflict."""
    async with at_review(tmp_path, f"ls > $HOME/seen-$HANDOFFD_STEP\n{WORKING}") as project:
        landed(project, "work.txt")
        await finished(project)

        assert ["US-001 bdd: pass", "US-001 impl: pass", "US-001 update-memory: pass"] == subjects(project)


def landed(project: Project, name: str) -> None:
    """Commit a file where the story began."""
    at(project.root, name).write_text("landed\n")
    git(Path(project.root), "add", name)
    assert 0 == git(Path(project.root), "commit", "--quiet", "-m", "landed")


def worked_in(base: Path) -> list[str]:
    """Return where agents have been at work, each time."""
    place = base / "worked-in"
    return place.read_text().split() if place.exists() else []


def seen(base: Path, step: str) -> list[str]:
    """Return the files that the agent of a step has found."""
    return (base / f"seen-{step}").read_text().split()


async def test_commits_of_an_agent_stay(tmp_path: Path) -> None:
    """`commit: agent`: they are all there is; what was not committed stays in the clone."""
    agent = f"""\
echo "$HANDOFFD_STEP" >> work.txt
git add work.txt; git -c user.name=a -c user.email=a@b commit -qm "mine at $HANDOFFD_STEP"
echo more > more.txt
{HAND_OVER}"""
    async with at_review(tmp_path, agent, f"{CLONE}commit: agent\n") as project:
        await finished(project)

        assert [f"mine at {step}" for step in ("bdd", "impl", "update-memory")] == subjects(project)
        assert (clone_of(project) / "more.txt").exists()


async def test_a_story_can_be_one_commit(tmp_path: Path) -> None:
    """`commit: story`: when its last step has passed."""
    async with at_review(tmp_path, settings=f"{CLONE}commit: story\n") as project:
        assert "" == said(project, "branch", "--list", "handoffd/*")
        await finished(project)

        assert ["US-001 update-memory: pass"] == subjects(project)


async def test_what_failed_is_not_committed(tmp_path: Path) -> None:
    """Until it has passed: then the commit has all of it."""
    agent = f"""\
test "$HANDOFFD_STEP" = update-memory || echo "$HANDOFFD_STEP" >> work.txt
if test "$HANDOFFD_STEP" = impl && ! test -e "$HOME/tried"; then touch "$HOME/tried"; exit 1; fi
{HAND_OVER}"""
    async with at_review(tmp_path, agent) as project:
        await project.main.give(Approved(story="US-001"))
        await eventually(lambda: shown(project)["status"] == "needs_human")
        assert ["US-001 bdd: pass"] == subjects(project)
        await project.main.give(Retried())
        await eventually(lambda: shown(project)["step"] == "done")

        assert "bdd\nimpl\nimpl\n" == said(project, "show", "handoffd/US-001:work.txt")


async def test_a_skipped_step_and_a_persons_word_are_behind_the_story(tmp_path: Path) -> None:
    """What a person did in the clone at the gate is in the commit of the gate."""
    async with at_review(tmp_path) as project:
        (clone_of(project) / "reviewed.txt").write_text("mine\n")
        await project.main.give(Approved(story="US-001", by="mei"))
        await eventually(lambda: shown(project)["step"] == "done")

        assert "US-001 review: pass" in subjects(project)
        assert "By: mei" in said(project, "log", "--format=%B", "handoffd/US-001")


async def test_the_files_of_a_clone_are_brought_back(tmp_path: Path) -> None:
    """Going back leaves the commits: the branch that people have seen only grows."""
    async with at_review(tmp_path) as project:
        await finished(project)
        (clone_of(project) / "work.txt").read_text()
        at(project.root, "work.txt").write_text("mine\n")
        await project.main.give(RolledBack(step="bdd", files=True))
        await eventually(lambda: shown(project)["step"] == "review")

        assert "bdd\n" == (clone_of(project) / "work.txt").read_text()
        assert "mine\n" == at(project.root, "work.txt").read_text()
        assert 4 == len(subjects(project))
        assert "bdd\n" == said(project, "show", "handoffd/US-001:work.txt")


async def test_a_rejected_review_goes_on_in_the_clone(tmp_path: Path) -> None:
    """And nothing of it is committed twice."""
    async with at_review(tmp_path) as project:
        await project.main.give(Rejected(reason=Reason.NEEDS_CLARIFICATION, story="US-001"))
        await eventually(lambda: "bdd\nbdd\n" == (clone_of(project) / "work.txt").read_text())
        await eventually(lambda: shown(project)["step"] == "review")

        assert ["US-001 bdd: pass"] * 2 == subjects(project)


# --- making one, and making it again --------------------------------------------------------------------
async def test_a_clone_that_is_gone_is_made_anew(tmp_path: Path) -> None:
    """From the branch, where the story began."""
    async with at_review(tmp_path) as project:
        base = project.main.workspace.base
        shutil.rmtree(clone_of(project))
        await finished(project)

        assert base == project.main.workspace.base == said(project, "rev-parse", "main").strip()
        assert "bdd\nimpl\n" == said(project, "show", "handoffd/US-001:work.txt")


async def test_the_next_story_has_a_clone_of_its_own(tmp_path: Path) -> None:
    """From what is checked out then; the first story's stays until it may go."""
    async with at_review(tmp_path) as project:
        await finished(project)
        first = clone_of(project)
        assert 0 == git(Path(project.root), "merge", "--quiet", "handoffd/US-001")
        await project.main.give(Started(story="US-002"))
        await eventually(lambda: shown(project)["step"] == "review")

        assert first != clone_of(project)
        assert first.exists()
        assert ["US-002 bdd: pass"] == subjects(project, "main..handoffd/US-002")


async def test_a_set_up_runs_once_in_each_clone(tmp_path: Path) -> None:
    """Before the first agent, with the story's folder as its own."""
    setup = set_up_by('pwd >> "$HOME/set-up"; echo x > ready.txt')
    agent = f'cat ready.txt >> "$HOME/seen"\n{WORKING}'
    async with at_review(tmp_path, agent, setup) as project:
        await finished(project)

        assert [str(clone_of(project))] == (tmp_path / "set-up").read_text().split()
        assert ["x"] * 3 == (tmp_path / "seen").read_text().split()


async def test_a_clone_that_an_earlier_daemon_has_set_up_is_ready(tmp_path: Path) -> None:
    """That one ended before the first agent began; making it ready may have taken half an hour."""
    root = in_git(tmp_path, set_up_by('touch "$HOME/again"'))
    async with house(tmp_path, WORKING) as here:
        clones = Clones(root, here.services.settings.state_dir, here.services.environment)
        clone = clones.note(replace(clones.make("US-001", (), None, NOW), ready=True))
        async with living(here, root) as project:
            await project.main.give(Initialised(project="shop"))
            await project.main.give(Started(story="US-001"))
            await eventually(lambda: shown(project)["step"] == "review")

            assert (clone.workspace, False) == (project.main.workspace, (tmp_path / "again").exists())


async def test_a_turn_that_has_not_seen_the_clone_is_taken_again(tmp_path: Path) -> None:
    """It began before the clone was ready, and its attempt would work in the project's folder."""
    agent = f'until test -e "$HOME/go"; do sleep 0.05; done\n{WORKING}'
    async with begun(tmp_path, agent) as (_, project):
        await eventually(lambda: project.main.workspace.kind == "clone")
        unaware = track_of()

        assert takes_a_place(unaware, project.files.settings)
        assert await project.main.place.shortage(unaware) is not None
        (tmp_path / "go").touch()


async def test_a_set_up_that_fails_needs_a_person_and_is_tried_again(tmp_path: Path) -> None:
    """No attempt is used up; what it printed last is the reason."""
    setup = set_up_by('test -e "$HOME/there" || { echo no packages; exit 3; }')
    async with begun(tmp_path, settings=setup) as (here, project):
        await eventually(lambda: shown(project)["status"] == "needs_human")
        error = str(shown(project)["last_error"])
        assert "ended with exit code 3: no packages; next: less " in error
        assert () == await here.journal.runs()

        (tmp_path / "there").touch()
        await project.main.give(Retried())
        await eventually(lambda: shown(project)["step"] == "review")


async def test_a_clone_has_the_links_it_is_given(tmp_path: Path) -> None:
    """What is not in git comes from the project's folder, and is not committed."""
    settings = "workspace: {kind: clone, link: [.env]}\n"
    agent = f'cat .env >> "$HOME/seen"\n{WORKING}'
    async with house(tmp_path, agent) as here:
        root = in_git(tmp_path, settings)
        at(root, ".env").write_text("secret\n")
        async with living(here, root) as project:
            await project.main.give(Initialised(project="shop"))
            await project.main.give(Started(story="US-001"))
            await eventually(lambda: shown(project)["step"] == "review")

            assert "secret\n" == (tmp_path / "seen").read_text()
            assert ".env" not in said(project, "ls-tree", "-r", "--name-only", "handoffd/US-001").split()


@pytest.mark.parametrize("broken", ["no repository", "no commit", "no link"])
async def test_what_cannot_be_cloned_needs_a_person(tmp_path: Path, broken: str) -> None:
    """With the reason, and the next command."""
    settings = CLONE if broken != "no link" else "workspace: {kind: clone, link: [.venv]}\n"
    async with house(tmp_path, WORKING) as here:
        root = in_git(tmp_path, settings)
        if broken != "no link":
            shutil.rmtree(at(root, ".git"))
        if broken == "no commit":
            git(Path(root), "init", "--quiet")
        async with living(here, root) as project:
            await project.main.give(Initialised(project="shop"))
            await project.main.give(Started(story="US-001"))
            await eventually(lambda: shown(project)["status"] == "needs_human")

    expected = {
        "no repository": "is in no git repository; next: git -C ",
        "no commit": "has no commit to begin at; next: git -C ",
        "no link": "workspace.link: .venv is not in ",
    }
    assert expected[broken] in str(shown(root)["last_error"])


async def test_a_story_waits_for_one_that_is_not_merged(tmp_path: Path) -> None:
    """Its clone would be without what it builds on; when that is merged it goes on by itself."""
    async with at_review(tmp_path) as project:
        await finished(project)
        await project.main.give(Started(story="US-002", blocked_by=("US-001",)))
        await eventually(lambda: project.main.shortage is not None)
        shortage = project.main.shortage
        assert shortage is not None
        assert "US-001 is done, but main, which is checked out, is without it" == shortage.why
        assert f"handoffd land {project.root} --story US-001 --onto main" == shortage.action

        assert 0 == git(Path(project.root), "merge", "--quiet", "handoffd/US-001")
        project.main.remind()
        await eventually(lambda: shown(project)["step"] == "review")


@pytest.mark.parametrize("how", ["discarded", "deleted"])
async def test_a_story_does_not_begin_without_one_that_was_thrown_away(tmp_path: Path, how: str) -> None:
    """It names the commands that have that back, or do without it."""
    async with at_review(tmp_path) as project:
        await finished(project)
        root = Path(project.root)
        if how == "discarded":
            kept = await project.landings.discard("US-001", "mei")
        else:
            kept = said(project, "rev-parse", "handoffd/US-001").strip()
            assert 0 == git(root, "branch", "--quiet", "-D", "handoffd/US-001")
        await project.main.give(Started(story="US-002", blocked_by=("US-001",)))
        await eventually(lambda: project.main.shortage is not None)
        shortage = project.main.shortage
        assert shortage is not None
        became = "was discarded" if how == "discarded" else "has lost its branch"
        assert shortage.why == (
            f"US-001, which it builds on, {became}, and main, which is checked out, lacks it; to do "
            f"without it: handoffd abort {root} --story US-002 && handoffd start {root} US-002"
        )
        back = f"git -C {root} branch handoffd/US-001 {kept}"
        assert f"{back} && handoffd land {root} --story US-001 --onto main" == shortage.action

        assert 0 == git(root, *back.split()[3:])
        assert 0 == git(root, "merge", "--quiet", "handoffd/US-001")
        project.main.remind()
        await eventually(lambda: shown(project)["step"] == "review")


@pytest.mark.parametrize("how", ["squash", "rebase", "discarded"])
async def test_a_story_begins_when_the_other_is_there_under_any_name(tmp_path: Path, how: str) -> None:
    """A pull request may have been merged as one commit, or rebased, and the story be thrown away then."""
    async with at_review(tmp_path) as project:
        await finished(project)
        root = Path(project.root)
        at(project.root, "other.txt").write_text("mine\n")
        assert 0 == git(root, "add", "other.txt")
        assert 0 == git(root, "commit", "--quiet", "-m", "mine")
        if how == "rebase":
            assert 0 == git(root, "cherry-pick", "main..handoffd/US-001")
        else:
            assert 0 == git(root, "merge", "--quiet", "--squash", "handoffd/US-001")
            assert 0 == git(root, "commit", "--quiet", "-m", "A story (#7)")
        if how == "discarded":
            await project.landings.discard("US-001", "mei")
        await project.main.give(Started(story="US-002", blocked_by=("US-001",)))
        await eventually(lambda: shown(project)["step"] == "review")
        assert "bdd\nimpl\nbdd\n" == said(project, "show", "handoffd/US-002:work.txt")


async def test_a_story_waits_while_clones_take_more_than_they_may(tmp_path: Path) -> None:
    """It goes on by itself when there is room, in the clone that it gets then; one that it has it keeps."""
    async with house(tmp_path, WORKING) as here:
        (here.services.settings.state_dir / "workspaces").mkdir()
        limit(here, 1)
        async with living(here, in_git(tmp_path, CLONE)) as project:
            await project.main.give(Initialised(project="shop"))
            await project.main.give(Started(story="US-001"))
            await eventually(lambda: project.main.shortage is not None)
            shortage = project.main.shortage
            assert shortage is not None
            assert "handoffd workspaces" == shortage.action
            assert shortage.why.startswith(
                "room for its clone: clones take 0.0 GiB, and retention.workspaces_gb"
            )
            assert "(handoffd land, handoffd discard)" in shortage.why
            assert () == clones_in(here.services.settings.state_dir)
            assert here.services.clone_space.wanted

            limit(here, None)
            project.main.remind()
            await eventually(lambda: shown(project)["step"] == "review")
            limit(here, 1)
            await finished(project)


def limit(here: House, most: int | None) -> None:
    """Have all clones take that many bytes at most."""
    retention = RetentionSettings(workspaces_gb=most and most / GIB)
    here.services.settings = here.services.settings.model_copy(update={"retention": retention})


async def test_no_clone_is_made_whose_tests_would_run_the_projects_code(tmp_path: Path) -> None:
    """An editable installation in what it shares: the story waits for a person, and no agent begins."""
    async with house(tmp_path, WORKING) as here:
        root = in_git(tmp_path, "workspace: {kind: clone, link: [.venv]}\n")
        packages = at(root, ".venv/lib/python3.11/site-packages")
        packages.mkdir(parents=True)
        (packages / "__editable__.shop.pth").write_text(f"{root}/src\n")
        async with living(here, root) as project:
            await project.main.give(Initialised(project="shop"))
            await project.main.give(Started(story="US-001"))
            await eventually(lambda: shown(project)["status"] == "needs_human")
            assert () == await here.journal.runs()

    assert "__editable__.shop.pth leads there" in str(shown(root)["last_error"])


async def test_the_set_up_of_one_story_is_not_the_next_ones(tmp_path: Path) -> None:
    """Its story was aborted: it is ended, and what it came to is of no interest."""
    setup = set_up_by('test -e "$HOME/there" || { touch "$HOME/began"; sleep 600; }')
    async with begun(tmp_path, settings=setup) as (_, project):
        await eventually(at(str(tmp_path), "began").exists)
        await project.main.give(Aborted())
        at(str(tmp_path), "there").touch()
        await project.main.give(Started(story="US-002", force=True))
        project.main.wake()
        await eventually(lambda: shown(project)["step"] == "review")

        assert ("US-002", None) == (shown(project)["story"], shown(project)["last_error"])


# --- papers, and people ---------------------------------------------------------------------------------
async def test_the_history_of_a_project_has_what_agents_wrote_in_a_clone(tmp_path: Path) -> None:
    """Each entry once; the checklist is the one that they ticked."""
    agent = f"""\
echo "### $HANDOFFD_STEP" >> .ai/history.md
sed -i 's/\\[ \\]/[x]/' .ai/CHECKLIST.md
{WORKING}"""
    async with house(tmp_path, agent) as here:
        root = in_git(tmp_path)
        at(root, ".ai/history.md").write_text("### before\n")
        async with living(here, root) as project:
            await project.main.give(Initialised(project="shop"))
            await project.main.give(Started(story="US-001"))
            await eventually(lambda: shown(project)["step"] == "review")
            await finished(project)

    assert "### before\n### bdd\n### impl\n### update-memory\n" == at(root, ".ai/history.md").read_text()
    assert "- [x]" in at(root, ".ai/CHECKLIST.md").read_text()


@pytest.mark.parametrize("commits", ["step", "agent"])
async def test_a_branch_that_a_person_is_on_is_brought_up_to_date_later(tmp_path: Path, commits: str) -> None:
    """Its files would be others than it says; `status` warns meanwhile. `land --to` knows the step."""
    agent = f"""\
{WORKING}
git add -A && git -c user.name=a -c user.email=a@b commit -qm "$HANDOFFD_STEP"
"""
    settings = f"{CLONE}commit: {commits}\n"
    async with at_review(tmp_path, agent, settings) as project:
        assert 0 == git(Path(project.root), "switch", "--quiet", "handoffd/US-001")
        await finished(project)
        for _ in range(2):
            await project.main.place.keep_again(project.main.track)
            (warning,) = (await view_of(project, project.main._services.slots)).warnings
            assert "handoffd/US-001 is checked out in" in warning
            assert ["bdd"] == subjects(project)
        assert stays_up(project.activity(0)) is not None

        assert 0 == git(Path(project.root), "switch", "--quiet", "main")
        await project.main.place.keep_again(project.main.track)
        assert "update-memory" == subjects(project)[-1]
        assert () == (await view_of(project, project.main._services.slots)).warnings
        assert not project.main.place.owes
        trail = Clones(project.root, tmp_path / "state", {}).trail("US-001")
        assert trail is not None
        assert ["bdd", "review", "impl", "update-memory"] == [*dict(trail.steps)]


async def test_only_what_was_accepted_is_brought_of_what_an_agent_has_committed(tmp_path: Path) -> None:
    """Not what it has begun when a daemon dies; what it rewrites afterwards is accepted with its step."""
    agent = f"""\
{WORKING.replace(HAND_OVER, "")}
git add -A && git -c user.name=a -c user.email=a@b commit -qm "$HANDOFFD_STEP, first try"
if test "$HANDOFFD_STEP" = impl; then
  touch "$HOME/tried"
  until test -e "$HOME/go"; do sleep 0.02; done
  echo better > better.txt
  git add -A && git -c user.name=a -c user.email=a@b commit -q --amend -m "impl, amended"
fi
{HAND_OVER}"""
    root = in_git(tmp_path, f"{CLONE}commit: agent\n")
    async with house(tmp_path, agent) as here:
        async with living(here, root) as project:
            await project.main.give(Initialised(project="shop"))
            await project.main.give(Started(story="US-001"))
            await eventually(lambda: shown(project)["step"] == "review")
            await project.main.give(Approved(story="US-001"))
            await eventually((tmp_path / "tried").exists)
        async with living(here, root, await here.journal.tracks()) as project:
            await project.main.place.keep_again(project.main.track)
            assert ["bdd, first try"] == subjects(project)
            (tmp_path / "go").touch()
            await eventually(lambda: shown(project)["step"] == "done")

            assert {"bdd, first try", "impl, amended"} <= {*subjects(project)}
            assert "impl, first try" not in subjects(project)
            assert "better\n" == said(project, "show", "handoffd/US-001:better.txt")
            told = await project.landings.land(LandingRequest(story="US-001", by="mei"), 60)
            assert "main" == told.onto


async def test_a_last_commit_that_could_not_be_made_is_made_by_the_next_daemon(tmp_path: Path) -> None:
    """It knows by the trail that the last step of a finished story is in no commit."""
    root = in_git(tmp_path)
    async with house(tmp_path, WORKING) as here:
        async with living(here, root) as project:
            await project.main.give(Initialised(project="shop"))
            await project.main.give(Started(story="US-001"))
            await eventually(lambda: shown(project)["step"] == "review")
            await finished(project)
            clone = Clones(root, tmp_path / "state", {})
            trail = clone.trail("US-001")
            assert trail is not None
            folder, before = clone_of(project), dict(trail.steps)["impl"]
            said(project, "update-ref", "refs/heads/handoffd/US-001", before)
            clone._remember(replace(trail, steps=trail.steps[:-1]))
            note_end(Worktree(str(folder), tmp_path / "state", {}), before)
            assert 0 == git(folder, "reset", "--quiet", "--soft", before)
        async with living(here, root, await here.journal.tracks()) as project:
            await project.poll()
            assert "US-001 update-memory: what could not be committed when it ended" == subjects(project)[-1]
            assert project.main.place.trouble is None
            await project.poll()
            assert 3 == len(subjects(project))


async def test_the_next_agent_works_while_the_branch_is_brought_into_the_project(tmp_path: Path) -> None:
    """That takes longer than all else that git does for a step; nothing in its clone is needed for it."""
    may_move = threading.Event()

    def hold(point: Point, _: str) -> None:
        if point == "before_publishing":
            may_move.wait(60)

    root = in_git(tmp_path)
    at(root, ".ai/step-rules.yaml").write_text(PAPERS)
    agent = f'test "$HANDOFFD_STEP" = bdd || rm -rf .git/objects\n{WORKING}'
    arm(hold)
    try:
        async with house(tmp_path, agent) as here, living(here, root) as project:
            await project.main.give(Initialised(project="shop"))
            await project.main.give(Started(story="US-001"))
            await eventually(lambda: len(worked_in(tmp_path)) == 2)
            assert "" == said(project, "branch", "--list", "handoffd/*")
            may_move.set()
            await eventually(lambda: shown(project)["step"] == "done")
            assert [f"US-001 {step}: pass" for step in ("bdd", "sdd-delta", "contract")] == subjects(project)
    finally:
        may_move.set()
        arm(None)


async def test_what_a_daemon_that_died_has_committed_is_brought_into_the_project(tmp_path: Path) -> None:
    """The next one looks once, and not behind the end of a story: a person may have removed its branch."""
    root, branch = in_git(tmp_path), "refs/heads/handoffd/US-001"
    async with house(tmp_path, WORKING) as here:
        async with living(here, root) as project:
            await project.main.give(Initialised(project="shop"))
            await project.main.give(Started(story="US-001"))
            await eventually(lambda: shown(project)["step"] == "review")
        assert 0 == git(Path(root), "update-ref", branch, "main")
        assert 0 == git(Path(root), "switch", "--quiet", "handoffd/US-001")
        async with living(here, root, await here.journal.tracks()) as project:
            await project.poll()
            assert [] == subjects(project)
            assert 0 == git(Path(root), "switch", "--quiet", "main")

            with anyio.fail_after(120):  # a git that was too slow is asked again after a minute
                while subjects(project) != ["US-001 bdd: pass"]:
                    await project.poll()
                    await anyio.sleep(
                        0.05
                    )  # a look may have nothing to wait for, and its work would never end
            await finished(project)
        assert 0 == git(Path(root), "update-ref", "-d", branch)
        async with living(here, root, await here.journal.tracks()) as project:
            await project.poll()
            assert "" == said(project, "branch", "--list", "handoffd/*")


async def test_a_clone_that_is_no_repository_any_more_becomes_one_again(tmp_path: Path) -> None:
    """What its agent has done is committed, and the story goes on."""
    agent = f"""\
if test "$HANDOFFD_STEP" = impl; then rm -rf .git; fi
{WORKING}"""
    async with at_review(tmp_path, agent) as project:
        await finished(project)
        view = await view_of(project, project.main._services.slots)
        assert not [warning for warning in view.warnings if "behind" in warning]
        assert ["US-001 bdd: pass", "US-001 impl: pass", "US-001 update-memory: pass"] == subjects(project)


async def test_in_the_root_commits_are_on_a_branch_of_their_own(tmp_path: Path) -> None:
    """`commit: step` without a clone: no index, HEAD or branch of a person moves."""
    async with at_review(tmp_path, settings="commit: step\n") as project:
        await finished(project)

        assert ["US-001 bdd: pass", "US-001 impl: pass", "US-001 update-memory: pass"] == subjects(project)
        assert "main" == said(project, "branch", "--show-current").strip()
        assert {"?? .ai/", "?? PROJECT_MEMORY.md", "?? work.txt"} == {
            *said(project, "status", "--porcelain").splitlines()
        }


@pytest.mark.parametrize("commits", ["step", "story"])
async def test_in_the_root_a_commit_has_what_agents_have_changed(tmp_path: Path, commits: str) -> None:
    """And not what a person has there that no commit has: a draft, a key, half of a change."""
    root = in_git(tmp_path, f"commit: {commits}\n")
    at(root, "tracked.txt").write_text("one\n")
    git(Path(root), "add", "tracked.txt")
    assert 0 == git(Path(root), "commit", "--quiet", "-m", "tracked")
    mine = {"draft.md": "half done\n", ".env": "KEY=1\n", "tracked.txt": "two\n"}
    for name, text in mine.items():
        at(root, name).write_text(text)
    async with house(tmp_path, WORKING) as here, living(here, root) as project:
        await project.main.give(Initialised(project="shop"))
        await project.main.give(Started(story="US-001"))
        await eventually(lambda: shown(project)["step"] == "review")
        at(root, "mine-too.md").write_text("at the review\n")
        await project.main.give(Approved(story="US-001"))
        await finished(project)

        files = set(said(project, "ls-tree", "-r", "--name-only", "handoffd/US-001").split())
        assert {"work.txt", "tracked.txt"} <= files
        assert not files & {"draft.md", ".env"}
        assert "one" == said(project, "show", "handoffd/US-001:tracked.txt").strip()
        assert mine == {name: at(root, name).read_text() for name in mine}


async def test_in_the_root_the_next_commit_has_what_could_not_be_committed(tmp_path: Path) -> None:
    """`status` warns until then."""
    agent = f'echo new > "$HANDOFFD_STEP.txt"\n{WORKING}'
    async with at_review(tmp_path, agent, "commit: step\n") as project:
        look = ("worktree", "add", "--quiet", str(tmp_path / "look"), "handoffd/US-001")
        assert 0 == git(Path(project.root), *look)
        await project.main.give(Approved(story="US-001"))
        await eventually(lambda: project.main.place.owes)
        await project.poll()
        assert project.main.place.owes
        assert "handoffd/US-001 is checked out in" in (project.main.place.trouble or "")
        assert 0 == git(Path(project.root), "worktree", "remove", str(tmp_path / "look"))
        await eventually(lambda: shown(project)["step"] == "done")
        await project.poll()

        files = said(project, "ls-tree", "-r", "--name-only", "handoffd/US-001").split()
        assert {"bdd.txt", "impl.txt"} <= {*files}
        assert not project.main.place.owes


async def test_in_the_root_nothing_is_committed_whose_step_is_not_known(tmp_path: Path) -> None:
    """Without a snapshot of its beginning, a person's files could be taken for the step's."""
    waits = f"""\
if test "$HANDOFFD_STEP" = impl; then touch "$HOME/at-impl"; until test -e "$HOME/go"; do sleep 0.02; done; fi
{WORKING}"""
    root = in_git(tmp_path, "commit: step\n")
    at(root, "secret.env").write_text("a person's")
    async with house(tmp_path, waits) as here, living(here, root) as project:
        await project.main.give(Initialised(project="shop"))
        await project.main.give(Started(story="US-001"))
        await eventually(lambda: shown(project)["step"] == "review")
        await project.main.give(Approved(story="US-001"))
        await eventually((tmp_path / "at-impl").exists)
        (made,) = (tmp_path / "state/snapshots").glob("*/made.json")
        made.write_bytes(b"[]")
        said_then: list[str | None] = []

        def look(point: Point, _: str) -> None:
            if point == "after_branch":
                said_then.append(project.main.place.trouble)

        arm(look)
        (tmp_path / "go").touch()
        await eventually(lambda: shown(project)["step"] == "done")
        arm(None)

        assert "secret.env" not in said(project, "ls-tree", "-r", "--name-only", "handoffd/US-001").split()
        look_at = f"to look: git -C {project.root} status"
        assert f"impl is not committed: which files it changed is not known; {look_at}" == said_then[0]


async def test_in_the_root_what_one_story_could_not_commit_is_not_the_next_ones(tmp_path: Path) -> None:
    """No story's diff holds another's file."""
    waits = f"""\
test "$HANDOFFD_STEP" = update-memory && sleep 60
echo "$HANDOFFD_STORY" > "$HANDOFFD_STORY-$HANDOFFD_STEP.txt"
{WORKING}"""
    async with at_review(tmp_path, waits, "commit: step\n") as project:
        look = ("worktree", "add", "--quiet", str(tmp_path / "look"), "handoffd/US-001")
        assert 0 == git(Path(project.root), *look)
        await project.main.give(Approved(story="US-001"))
        await eventually(lambda: project.main.place.owes and shown(project)["step"] == "update-memory")
        await eventually(lambda: shown(project)["status"] == "running")
        await project.main.give(Aborted())
        await eventually(lambda: project.main.track.ledger.dispatch is None)
        await project.main.give(Started(story="US-002"))
        await eventually(lambda: (shown(project)["story"], shown(project)["step"]) == ("US-002", "review"))

        files = said(project, "ls-tree", "-r", "--name-only", "handoffd/US-002").split()
        assert "US-002-bdd.txt" in files
        assert "US-001-impl.txt" not in files


async def test_without_either_nothing_is_committed(tmp_path: Path) -> None:
    """As in every release before."""
    async with at_review(tmp_path, settings="snapshots: true\n") as project:
        await finished(project)

        assert "" == said(project, "branch", "--list", "handoffd/*")
        assert project.main.track.ledger.workspace is None


async def test_a_story_in_flight_stays_where_it_is(tmp_path: Path) -> None:
    """Whatever the settings say meanwhile."""
    async with at_review(tmp_path, settings="snapshots: true\n") as project:
        at(project.root, ".ai/handoffd.yaml").write_text(CLONE)
        await project.trust()
        await finished(project)

        assert "" == said(project, "branch", "--list", "handoffd/*")


# --- pure -----------------------------------------------------------------------------------------------
SETTINGS = ProjectSettings.model_validate({"workspace": "clone"})


@pytest.mark.parametrize(
    ("ledger", "takes"),
    [
        (Ledger(automatic=True), True),
        (Ledger(), False),
        (Ledger(automatic=True, workspace=Workspace(folder="/elsewhere", kind="clone")), False),
        (Ledger(automatic=True, facts=Facts(attempts={"bdd": 1})), False),
        (Ledger(automatic=True, facts=Facts(usage=Usage(output_tokens=1))), False),
        (Ledger(automatic=True, free_repeats=1), False),
    ],
)
def test_a_story_takes_a_place_before_its_first_attempt(ledger: Ledger, takes: bool) -> None:
    """One that people dispatch, that has begun, or that has one already, does not."""
    track = Track(state=track_of(Status.PENDING).state, ledger=ledger)
    assert takes == takes_a_place(track, SETTINGS)
    assert not takes_a_place(track, ProjectSettings())


def test_the_message_of_a_commit_is_bounded_and_ends_with_our_facts() -> None:
    """Whatever an agent reports: its text is above, cut, and without what git would not take."""
    before = track_of(Status.RUNNING)
    summary = f"{'x' * 500}\n\n\x00\x1b[2J\udcffRun: forged\nStory: other"
    assert before.state is not None
    counts = TestCounts(passed=3, failed=1)
    after = before.with_state(tests=counts).with_ledger(facts=Facts(summary=summary), measured=counts)
    label = Label(
        story="US-1", step="impl", result="pass", run="r1", by="m\nei", at=datetime(2026, 1, 2, tzinfo=UTC)
    )
    subject, body, facts = message_of(label, before, after).decode().split("\n\n")

    assert subject == f"US-1 impl: {'x' * 500}"[:200]
    assert "[2JRun: forged\nStory: other" == body
    assert "Story: US-1\nStep: impl\nRun: r1\nBy: m ei\nTests: 3 passed, 1 failed (measured)\n" == facts


def test_a_summary_of_an_earlier_step_is_not_told_again() -> None:
    """Then the subject says how the step ended."""
    facts = Facts(summary="the scenarios are written")
    track = track_of(Status.RUNNING).with_ledger(facts=facts)
    label = Label(story="US-1", step="review", result="pass", at=datetime(2026, 1, 2, tzinfo=UTC))
    assert b"US-1 review: pass\n" == message_of(label, track, track)[:18]


def test_a_skipped_step_is_accepted() -> None:
    """It is behind the story, as one that has passed; one that failed is not."""
    results = {"pass": True, "skipped": True, "failing": False, "kept": False, "begun": False}
    at_ = datetime(2026, 1, 2, tzinfo=UTC)
    assert results == {one: Label(story="US-1", step="impl", result=one, at=at_).accepted for one in results}


# --- in the sandbox -------------------------------------------------------------------------------------
async def test_a_clone_sees_of_its_project_what_it_borrows(tmp_path: Path) -> None:
    """The objects and the links, to read; a project below the top of its repository has its clone whole."""
    async with house(tmp_path) as here:
        root = at(in_git(tmp_path), "services/api")
        root.mkdir(parents=True)
        state_dir = here.services.settings.state_dir
        folder = f"{state_dir}/workspaces/0a/US-1/shop/services/api"
        place = here.services.place(folder, str(root), (".env",))

        assert f"{state_dir}/workspaces/0a/US-1/shop" == place.folder
        assert (f"{root}/.env", f"{tmp_path}/shop/.git/objects") == place.lent
        assert (str(root), ()) == here.services.place(str(root), str(root), (".env",))[1:]


async def test_a_reopening_is_written_where_the_history_is(tmp_path: Path) -> None:
    """In the clone: in a project whose git keeps the history, the checkout would be in its own way.

    It is committed there: else git would not let the agent merge a commit that changes the history as well.
    """
    agent = f'[ ! -e "$HOME/news" ] || git merge "$(cat "$HOME/news")" >> "$HOME/merged" 2>&1\n{WORKING}'
    async with house(tmp_path, agent) as here:
        root = in_git(tmp_path)
        at(root, ".ai/history.md").write_text("### before\n")
        git(Path(root), "add", "--force", ".ai/history.md")
        assert 0 == git(Path(root), "commit", "--quiet", "-m", "history")
        async with living(here, root) as project:
            await project.main.give(Initialised(project="shop"))
            await project.main.give(Started(story="US-001"))
            await eventually(lambda: shown(project)["step"] == "review")
            await finished(project)
            at(root, ".ai/history.md").write_text("### meanwhile\n### before\n")
            assert 0 == git(Path(root), "commit", "--quiet", "-m", "meanwhile", "--", ".ai/history.md")
            (tmp_path / "news").write_text(said(project, "rev-parse", "main"))
            await project.main.give(Reopened(step="impl"))
            await eventually(lambda: shown(project)["step"] == "done")

            assert "### meanwhile\n### before\n" == at(root, ".ai/history.md").read_text()
            assert "### Reopen" in said(project, "show", "handoffd/US-001:.ai/history.md")
            assert "Auto-merging .ai/history.md" in (tmp_path / "merged").read_text()
            assert "US-001 reopened" in subjects(project)


@pytest.mark.parametrize(
    ("writes", "papers"),
    [
        ((".ai/history.md", "PROJECT_MEMORY.md"), True),
        (("PROJECT_MEMORY.md",), True),
        (("PROJECT_MEMORY.md", "docs/**"), False),
        (("**",), False),
        ((), False),
    ],
)
def test_a_step_that_writes_only_papers_is_known_by_its_rule(writes: tuple[str, ...], papers: bool) -> None:
    """Whatever it is called."""
    rule = Rule(next_on_pass="done", on_fail={"default": "impl"}, claude_writes=writes)
    assert papers == rule.only_papers
