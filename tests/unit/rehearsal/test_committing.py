"""One commit, of the story's files alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.support.rehearsal import Rehearsal

from handoffd.rehearsal import sample


@pytest.fixture
def repository(tmp_path: Path) -> Rehearsal:
    """The sample under git, in an account that has told git nothing about itself."""
    (tmp_path / "home").mkdir()
    root = sample.create(tmp_path / "shop")
    return Rehearsal(root, {"HOME": str(tmp_path / "home"), "GIT_CONFIG_NOSYSTEM": "1"})


def git(rehearsal: Rehearsal, *arguments: str) -> str:
    """Return what git says."""
    ended = subprocess.run(
        ["git", *arguments],
        cwd=rehearsal.root,
        env={**os.environ},
        capture_output=True,
        text=True,
        check=True,
    )
    return ended.stdout.rstrip()


def test_the_commit_has_the_storys_files_and_no_others(repository: Rehearsal) -> None:
    """Conventional, naming the story; a person's work, staged or not, and the memory stay out of it."""
    repository.passes("bdd", "scaffold", "impl")
    (repository.root / "README.md").write_text("half a sentence\n")
    (repository.root / "draft.txt").write_text("mine\n")
    git(repository, "add", "draft.txt")
    (repository.root / "PROJECT_MEMORY.md").write_text("mine, too\n")

    repository.passes("commit")

    assert repository.handoff()["commit_hash"] == git(repository, "rev-parse", "HEAD")
    assert "feat: discount codes (US-001)" == git(repository, "log", "-1", "--format=%s")
    files = ["docs/bdd/US-001.md", "shop/pricing.py", "shop/receipt.py", "tests/test_discounts.py"]
    assert files == git(repository, "show", "--format=", "--name-only").splitlines()
    rest = [" M PROJECT_MEMORY.md", " M README.md", "A  draft.txt"]
    assert rest == git(repository, "status", "--porcelain").splitlines()


def test_a_repeated_commit_names_the_first(repository: Rehearsal) -> None:
    """A session that died between the commit and the hand-off does not commit twice."""
    repository.passes("bdd", "commit")
    first = repository.handoff()["commit_hash"]

    repository.passes("commit")

    assert first == repository.handoff()["commit_hash"]
    assert "2" == git(repository, "rev-list", "--count", "HEAD")


def test_without_a_repository_it_says_so(shop: Rehearsal) -> None:
    """There is no commit, and no hash is invented, also inside somebody else's repository."""
    git(Rehearsal(shop.root.parent), "init", "--quiet")

    shop.passes("bdd", "commit")

    assert "commit_hash" not in shop.handoff()
    assert "not a git repository" in shop.handoff()["summary"]
    assert "" == git(Rehearsal(shop.root.parent), "diff", "--cached", "--name-only")


def test_a_story_without_files_commits_nothing(repository: Rehearsal) -> None:
    """What a person has staged is not taken for the story's."""
    for name in ("docs/sdd.md", "docs/api/openapi.yaml"):
        (repository.root / name).unlink()
    (repository.root / "draft.txt").write_text("mine\n")
    git(repository, "add", "draft.txt")

    ended = repository.run("commit", story="US-003")

    assert (0, "pass") == (ended.returncode, repository.handoff()["status"])
    assert "commit_hash" not in repository.handoff()
    assert "1" == git(repository, "rev-list", "--count", "HEAD")


def test_a_refused_commit_fails_the_step(repository: Rehearsal) -> None:
    """The project's own hook is obeyed, and its word handed over."""
    hook = repository.root / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\necho not on a Friday\nexit 1\n")
    hook.chmod(0o755)
    repository.passes("bdd")

    repository.run("commit")

    assert ("failing", "git would not commit: not on a Friday") == (
        repository.handoff()["status"],
        repository.handoff()["summary"],
    )
