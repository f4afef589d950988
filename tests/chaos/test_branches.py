"""What git says about a repository: silence about a sound one, and each way to spoil it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from tests.chaos.branches import left_of_clones, look_at
from tests.chaos.clones import DRAFT, FLAVOURS, MINE, Cloned, make_cloned, set_up_at
from tests.support.repositories import git


@pytest.fixture
def project(tmp_path: Path) -> Cloned:
    """A project with a story on a branch of its own, which handoffd has landed."""
    project = make_cloned(tmp_path / "shop", FLAVOURS[0], tmp_path / "checks.log")
    project.next_story(Random(1))
    root, worktree = project.root, tmp_path / "elsewhere"
    assert 0 == git(root, "worktree", "add", "--quiet", "-b", "handoffd/US-001", str(worktree))
    (worktree / "work").mkdir()
    (worktree / "work/US-001.log").write_text("bdd d1\n")
    assert 0 == git(worktree, "add", "work")
    said = "US-001 bdd: done\n\nStory: US-001\nStep: bdd\nRun: d1\n"
    assert 0 == git(worktree, "commit", "--quiet", "-m", said)
    assert 0 == git(root, "worktree", "remove", str(worktree))
    assert 0 == git(root, "read-tree", "-m", "-u", "main", "handoffd/US-001")
    assert 0 == git(root, "update-ref", "-m", "handoffd", "refs/heads/main", "handoffd/US-001")
    return project


def test_a_sound_repository_is_read(tmp_path: Path, project: Cloned) -> None:
    """Its commits with their messages, where main has been moved to, and the logs."""
    found = look_at(project, tmp_path / "state")

    assert ["US-001 bdd: done", "person: script of US-001", "person: begin"] == [
        one.subject for one in found.commits
    ]
    assert {"Story": "US-001", "Step": "bdd", "Run": "d1"} == found.commits[0].said
    assert ([found.commits[0]], True) == ([*found.base], found.each_step)
    assert {"US-001": ["bdd d1"]} == found.logs == found.landed
    assert () == (*found.trouble, *left_of_clones(project, tmp_path / "state"))


def lock(project: Cloned) -> None:
    """Leave a lock of git."""
    (project.root / ".git/index.lock").touch()


def stage(project: Cloned) -> None:
    """Leave the checkout without what is landed."""
    git(project.root, "rm", "--quiet", "work/US-001.log")


def unfinished(project: Cloned) -> None:
    """Leave the note of a landing."""
    note = project.root.parent / "state/snapshots/1/landing.json"
    note.parent.mkdir(parents=True)
    note.touch()


BROKEN: dict[str, Callable[[Cloned], object]] = {
    "a lock is left": lock,
    "a landing is not finished": unfinished,
    "the checkout is not as it should be": stage,
    "a person's draft.txt was changed": lambda project: git(project.root, "checkout", "--", DRAFT),
    "a person's mine.txt was changed": lambda project: (project.root / MINE).write_text("gone\n"),
    "the checkout is on": lambda project: git(project.root, "switch", "--quiet", "-c", "other"),
    "a branch that belongs to no story": lambda project: git(project.root, "branch", "handoffd/@landing/1"),
    "US-001 was set up 2 times": lambda project: set_up_at(project.root).write_text(2 * "/c/US-001/shop\n"),
}


@pytest.mark.parametrize("told", BROKEN)
def test_a_broken_repository_is_complained_of(tmp_path: Path, project: Cloned, told: str) -> None:
    """By the look at it that is for that."""
    BROKEN[told](project)

    assert [one for one in look_at(project, tmp_path / "state").trouble if one.startswith(told)]


def test_what_is_left_of_a_clone_is_told(tmp_path: Path, project: Cloned) -> None:
    """Its folder, and the ref that keeps what it borrows."""
    (tmp_path / "state/workspaces/1/US-001/shop").mkdir(parents=True)
    git(project.root, "update-ref", "refs/handoffd/US-001/base", "main")

    assert 2 == len([*left_of_clones(project, tmp_path / "state")])
