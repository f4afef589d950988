"""The files of a story under a running project: kept before the next agent begins, and brought back."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.eventually import eventually
from tests.support.house import HAND_OVER, House, at, house, make_project
from tests.support.repositories import git
from tests.unit.project.living import living, shown

from handoffd.engine.events import Approved, Initialised, Paused, Resumed, Retried, RolledBack, Started
from handoffd.errors import Refused, StoreError
from handoffd.project.project import Project
from handoffd.project.status import snapshots_of, view_of

RULES = """\
steps:
  bdd: {next_on_pass: review, timeout_min: 1}
  review: {next_on_pass: impl}
  impl: {next_on_pass: update-memory, timeout_min: 1, max_attempts: 1}
"""
WORKING = f"""\
echo "$HANDOFFD_STEP" >> work.txt
git for-each-ref --format='%(refname:lstrip=2)' refs/handoffd >> "$HOME/seen-$HANDOFFD_STEP"
{HAND_OVER}"""
FAILING_IMPL = f"""\
echo "$HANDOFFD_STEP" >> work.txt
if test "$HANDOFFD_STEP" = impl; then
  printf -- '---\\nstep: impl\\nstatus: failing\\nreason: test_timeout\\n---\\n' > .ai/HANDOFF.md; exit
fi
{HAND_OVER}"""


def in_git(base: Path, settings: str | None = None) -> str:
    """Return the root of a project in a repository with one commit."""
    root = make_project(base, rules=RULES, settings=settings)
    at(root, "kept.txt").write_text("kept\n")
    git(Path(root), "init", "--quiet", "--initial-branch", "main")
    git(Path(root), "add", "kept.txt")
    assert 0 == git(Path(root), "commit", "--quiet", "-m", "first")
    return root


@asynccontextmanager
async def at_review(base: Path, agent: str = WORKING, **settings: str) -> AsyncIterator[Project]:
    """Lend a project in a repository whose story waits at its review."""
    async with house(base, agent) as here, living(here, in_git(base, **settings)) as project:
        await project.main.give(Initialised(project="shop"))
        await project.main.give(Started(story="US-001"))
        await eventually(lambda: shown(project)["step"] == "review")
        yield project


def said(project: Project, *words: str) -> str:
    """Return what git prints."""
    command = ["git", "-C", project.root, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


async def kept(project: Project) -> list[tuple[str, int | None]]:
    """Return the names of the snapshots, with how many files differ from the one before."""
    return [(one.name, one.files) for one in (await snapshots_of(project, None)).snapshots]


async def test_each_step_is_kept_before_the_next_one_begins(tmp_path: Path) -> None:
    """What was there before the story; what each agent has left; what a person has decided on."""
    async with at_review(tmp_path) as project:
        assert [("bdd-0", None), ("bdd-1", 1)] == await kept(project)
        at(project.root, "fixed.txt").write_text("by a person\n")
        await project.main.give(Approved(by="mei"))
        await eventually(lambda: shown(project)["step"] == "done")

        assert [
            ("bdd-0", None), ("bdd-1", 1), ("review-1", 1), ("impl-1", 1), ("update-memory-1", 1),
        ] == await kept(project)  # fmt: skip
        assert ["US-001/bdd-0"] == (tmp_path / "seen-bdd").read_text().split()
        assert "US-001/review-1" in (tmp_path / "seen-impl").read_text().split()
        assert project.main.snapshots.trouble is None


async def test_a_rollback_with_files_brings_them_back(tmp_path: Path) -> None:
    """The step is done again on the files as they were before it; the answer says what was done."""
    async with at_review(tmp_path, FAILING_IMPL) as project:
        await project.main.give(Approved(by="mei"))
        await eventually(lambda: shown(project)["step"] == "impl" and shown(project)["status"] != "running")
        await project.main.give(Paused(by="mei"))
        at(project.root, "mine.txt").write_text("mine\n")
        assert "bdd\nimpl\n" == at(project.root, "work.txt").read_text()

        decision = await project.main.give(RolledBack(step="bdd", files=True, by="mei"))

        kept_as = next(name for name, _ in await kept(project) if name.startswith("kept-"))
        assert (
            "rolled back to bdd by mei; 1 file brought back as in refs/handoffd/US-001/bdd-0, "
            f"kept as they were in refs/handoffd/US-001/{kept_as}"
        ) == decision.why
        assert not at(project.root, "work.txt").exists()
        assert "mine\n" == at(project.root, "mine.txt").read_text()
        assert "bdd\nimpl\n" == said(project, "show", f"refs/handoffd/US-001/{kept_as}:work.txt")


async def test_a_rollback_that_would_lose_an_edit_changes_nothing(tmp_path: Path) -> None:
    """Neither files nor story."""
    async with at_review(tmp_path) as project:
        at(project.root, "work.txt").write_text("mine\n")
        before = project.main.track

        with pytest.raises(Refused, match=r"not only attempts have changed work\.txt"):
            await project.main.give(RolledBack(step="bdd", files=True))

        assert before == project.main.track
        assert "mine\n" == at(project.root, "work.txt").read_text()


async def test_a_rollback_that_is_refused_touches_no_file(tmp_path: Path) -> None:
    """Its step is not an earlier one."""
    async with at_review(tmp_path) as project:
        decision = await project.main.give(RolledBack(step="impl", files=True))

        assert "error" == decision.result.type
        assert "bdd\n" == at(project.root, "work.txt").read_text()
        assert ["bdd-0", "bdd-1"] == [name for name, _ in await kept(project)]


async def test_a_retry_keeps_the_present_first(tmp_path: Path) -> None:
    """The next attempt may write over it."""
    async with at_review(tmp_path) as project:
        await project.main.give(Paused(by="mei"))
        at(project.root, "mine.txt").write_text("mine\n")

        await project.main.give(Retried(by="mei"))

        ((name, files),) = [one for one in await kept(project) if one[0].startswith("kept-")]
        assert (1, True) == (files, name.startswith("kept-2026"))


async def test_without_a_repository_or_when_switched_off_there_are_none(tmp_path: Path) -> None:
    """That counts as no trouble; only a person who asks for them learns the reason."""
    (tmp_path / "off").mkdir()
    async with at_review(tmp_path / "off", settings="snapshots: false\n") as project:
        assert [] == await kept(project)
        with pytest.raises(Refused, match="the files from before bdd were not kept") as caught:
            await project.main.give(RolledBack(step="bdd", files=True))
        assert "NO_SNAPSHOT" == caught.value.code


async def test_a_folder_that_is_in_no_repository_is_no_trouble(here: House, root: str) -> None:
    """The story goes on without."""
    async with living(here, root) as project:
        await project.main.give(Initialised(project="shop"))
        await project.main.give(Started(story="US-001"))
        await eventually(lambda: shown(project)["step"] == "review")

        assert project.main.snapshots.trouble is None
        with pytest.raises(StoreError, match="is in no git repository"):
            await kept(project)


async def test_a_snapshot_that_fails_holds_nothing_up_and_is_shown(tmp_path: Path) -> None:
    """Until the next one succeeds."""
    async with house(tmp_path, WORKING) as here, living(here, in_git(tmp_path)) as project:
        at(project.root, ".git/objects").rename(tmp_path / "objects")
        at(project.root, ".git/objects").touch()  # so that git is found, and fails
        await project.main.give(Initialised(project="shop"))
        await project.main.give(Started(story="US-001"))
        await eventually(lambda: shown(project)["step"] == "review")

        (warning,) = (await view_of(project, here.services.slots)).warnings
        assert warning.startswith("the files that bdd left were not kept: git ")

        os.unlink(at(project.root, ".git/objects"))
        (tmp_path / "objects").rename(at(project.root, ".git/objects"))
        await project.main.give(Approved())
        assert () == (await view_of(project, here.services.slots)).warnings


async def test_a_way_back_does_not_pass_over_steps_without_a_snapshot(tmp_path: Path) -> None:
    """They were switched off meanwhile; what the step before has done would be taken away, too."""
    async with at_review(tmp_path, FAILING_IMPL) as project:
        at(project.root, ".ai/handoffd.yaml").write_text("snapshots: false\n")
        await project.trust()
        await project.look()
        await project.main.give(Approved(by="mei"))
        await eventually(lambda: shown(project)["step"] == "impl" and shown(project)["status"] != "running")

        assert ["bdd-0", "bdd-1", "review-1", "impl-1"] == [name for name, _ in await kept(project)]
        with pytest.raises(Refused, match="from before review were not kept, or not all since then"):
            await project.main.give(RolledBack(step="review", files=True))


async def test_what_an_attempt_finds_after_a_wait_is_kept_as_well(tmp_path: Path) -> None:
    """So that what others did meanwhile is not taken for its work, and stays after a way back."""
    async with house(tmp_path, WORKING) as here, living(here, in_git(tmp_path)) as project:
        await project.main.give(Initialised(project="shop"))
        await project.main.give(Started(story="US-001"))
        await eventually(lambda: shown(project)["step"] == "review")
        await project.main.give(Paused(by="mei"))
        await project.main.give(Approved(by="mei"))
        at(project.root, "pulled.txt").write_text("by others\n")
        here.clock.ahead_s += 60
        await project.main.give(Resumed(by="mei"))
        await eventually(lambda: shown(project)["step"] == "done")

        names = [name for name, _ in await kept(project)]
        assert names[:3] == ["bdd-0", "bdd-1", "review-1"]
        assert names[3].startswith("started-")
        assert names[4:] == ["impl-1", "update-memory-1"]
        await project.main.give(RolledBack(step="impl", files=True, by="mei"))
        assert "by others\n" == at(project.root, "pulled.txt").read_text()
