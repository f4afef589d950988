"""Where a project's repository is, and what is not finished in it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.support.repositories import divided, git

from handoffd.git.repository import (
    disobeyed,
    obey_again,
    obeyed_in,
    repository_at,
    repository_of,
    unfinished_in,
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two branches, `main` and `other`, with a merge conflict."""
    return divided(tmp_path / "shop")


@pytest.mark.parametrize(
    ("begun", "what", "over"),
    [
        (("merge", "other"), "merge", ("merge", "--abort")),
        (("rebase", "other"), "rebase", ("rebase", "--abort")),
        (("rebase", "--apply", "other"), "rebase", ("rebase", "--abort")),
        (("cherry-pick", "other"), "cherry-pick", ("cherry-pick", "--abort")),
        (("revert", "--no-edit", "HEAD~1"), "revert", ("revert", "--abort")),
        (("bisect", "start", "HEAD", "HEAD~1"), "bisect", ("bisect", "reset")),
    ],
)
def test_an_unfinished_operation_of_git_is_named(
    repository: Path, begun: tuple[str, ...], what: str, over: tuple[str, ...]
) -> None:
    """Until it is aborted; for a folder in the repository as for its root."""
    assert unfinished_in(str(repository)) is None
    below = repository / "part/below"
    below.mkdir(parents=True)

    git(repository, *begun)
    assert [what, what] == [unfinished_in(str(repository)), unfinished_in(str(below))]

    assert 0 == git(repository, *over)
    assert unfinished_in(str(repository)) is None


def test_a_linked_worktree_has_its_own(repository: Path, tmp_path: Path) -> None:
    """Its .git is a file; a merge in one of the two does not concern the other."""
    linked = tmp_path / "linked"
    assert 0 == git(repository, "worktree", "add", "--quiet", "--detach", str(linked), "other")

    git(linked, "merge", "main")

    assert (None, "merge") == (unfinished_in(str(repository)), unfinished_in(str(linked)))
    assert str(linked) == repository_of(str(linked))


def test_a_patch_that_does_not_apply_differs_from_a_rebase(repository: Path) -> None:
    """Both leave a folder of the same name."""
    git(repository, "format-patch", "--quiet", "-1", "other", "-o", "patches")

    git(repository, "am", str(next((repository / "patches").iterdir())))

    assert "patch series (git am)" == unfinished_in(str(repository))


@pytest.mark.parametrize("content", ["", "gitdir:", "gitdir: ../nowhere\n", "no file of git", "gitdir: \0\n"])
def test_an_invalid_git_file_is_ignored(tmp_path: Path, content: str) -> None:
    """An agent may have written it."""
    (tmp_path / ".git").write_text(content)

    assert unfinished_in(str(tmp_path)) is None


def test_a_pipe_or_a_link_instead_of_a_git_file_is_not_read(tmp_path: Path) -> None:
    """A pipe would keep its reader for ever, a link may lead to anything."""
    os.mkfifo(tmp_path / ".git")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/.git").symlink_to("/dev/zero")

    assert unfinished_in(str(tmp_path)) is None
    assert unfinished_in(str(tmp_path / "linked")) is None


def test_a_folder_without_a_repository_has_none(tmp_path: Path) -> None:
    """Git looks above it, too."""
    folder = tmp_path / "alone"
    folder.mkdir()

    assert repository_of(str(folder)) == repository_of(str(tmp_path))
    assert repository_of("/proc") is None


def test_what_git_obeys_is_as_it_was_again(repository: Path, tmp_path: Path) -> None:
    """Also where links lead elsewhere: what is there stays."""
    folder, elsewhere = repository / ".git", tmp_path / "elsewhere"
    (folder / "hooks/pre-push").write_text("exit 0\n")
    (folder / "info").mkdir(exist_ok=True)
    (folder / "info/exclude").write_text("*.log\n")
    elsewhere.mkdir()
    (elsewhere / "exclude").write_text("theirs\n")
    before = obeyed_in(repository_at(str(repository)))
    (folder / "hooks/pre-push").chmod(0o755)
    (folder / "hooks/post-checkout").mkdir()
    (folder / "hooks/post-checkout/inside").write_text("exit 1\n")
    shutil.rmtree(folder / "info")
    (folder / "info").symlink_to(elsewhere)
    (folder / "config").unlink()
    (folder / "config").symlink_to("/dev/null")

    now = obeyed_in(repository_at(str(repository)))
    for path in disobeyed(before, now):
        obey_again(repository_at(str(repository)).folder, path, before.get(path))

    assert before == obeyed_in(repository_at(str(repository)))
    assert "*.log\n" == (folder / "info/exclude").read_text()
    assert "theirs\n" == (elsewhere / "exclude").read_text()


def test_what_git_obeys_in_a_submodule_is_as_it_was_again(repository: Path, tmp_path: Path) -> None:
    """What git itself does is not undone: a submodule or a worktree that comes or goes."""
    inner, gone = repository / ".git/modules/libs/tax", repository / ".git/worktrees/old"
    for folder in (inner, inner / "modules/deep", gone):
        (folder / "hooks").mkdir(parents=True)
        (folder / "HEAD").write_text("ref: refs/heads/main\n")
        (folder / "config").write_text("[core]\n")
    before = obeyed_in(repository_at(str(repository)))
    (inner / "hooks/pre-commit").write_text("exit 1\n")
    (inner / "modules/deep/config").write_text("[core]\n\thooksPath = /tmp\n")
    shutil.rmtree(gone)
    new = repository / ".git/modules/new"
    new.mkdir()
    (new / "HEAD").write_text("ref: refs/heads/main\n")
    (new / "config").write_text("[core]\n")
    (repository / ".git/modules/link").symlink_to(inner)

    changed = disobeyed(before, obeyed_in(repository_at(str(repository))))
    assert ("modules/libs/tax/hooks/pre-commit", "modules/libs/tax/modules/deep/config") == changed
    for path in changed:
        obey_again(repository_at(str(repository)).folder, path, before.get(path))
    assert "[core]\n" == (inner / "modules/deep/config").read_text()
    assert not (inner / "hooks/pre-commit").exists()
