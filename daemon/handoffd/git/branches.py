"""The branch of a story: what a folder holds, committed there, and brought into the project's repository.

A clone is an agent's to write, with everything that git keeps in it. So its settings are not read, each
object is checked on its way into the project's repository, and what was brought there is never taken back:
the commits of a branch only grow. All calls block: give them to a thread.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from shlex import quote

from handoffd.engine.track import Workspace
from handoffd.errors import StoreError
from handoffd.files.rooted import write_project_file
from handoffd.git.command import Git
from handoffd.git.repository import Repository, as_part, repository_at
from handoffd.git.worktree import LIMIT_S, Worktree, disk_faults

HEADS = "refs/heads/"
DIVERGED = "BRANCH_DIVERGED"
CHECKED_OUT = "BRANCH_CHECKED_OUT"

_HISTORY = ".ai/history.md"
_FEW_OBJECTS = 100
"""As many objects are kept one by one, as git does when it fetches; more stay together in a pack."""


def branch_of(repository: Repository, story: str) -> str:
    """Return the branch of a story: `handoffd/US-007`, in a repository of several `handoffd/shop/US-007`."""
    return f"handoffd/{repository.place}{as_part(story)}"


class StoryBranch:
    """The branch of one story. `environment` is the daemon's own: where git is.

    All methods raise StoreError: NO_REPOSITORY, GIT_TOO_SLOW, GIT_FAILED; `publish` also BRANCH_DIVERGED and
    BRANCH_CHECKED_OUT.
    """

    def __init__(
        self, root: str, workspace: Workspace, state_dir: Path, environment: Mapping[str, str]
    ) -> None:
        assert workspace.branch is not None
        self._root = root
        self._environment = environment
        self._base = workspace.base
        self._clone = workspace.kind == "clone"
        self._branch = workspace.branch
        self._ref = f"{HEADS}{workspace.branch}"
        self._worktree = Worktree(workspace.folder, state_dir, environment)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The paths that the last commit does not have as they are: too large, or git cannot take them."""
        return (*self._worktree.left_out, *self._worktree.too_large)

    @disk_faults()
    def commit(self, message: bytes, author: str | None, at: datetime) -> str:
        """Have the branch hold what the folder holds now, and return the commit at its end.

        There is no new one where nothing has changed since. `author` is `NAME <ADDRESS>`.
        """
        with self._worktree.opened(self._worktree.limit_s) as (repository, git):
            git.durable = True
            tree = self._with_history(repository, git, self._worktree.tree(repository, git))
            parent = self._parent(repository, git)
            known = parent and git.run("rev-parse", "--verify", f"{parent}^{{tree}}").decode().strip()
            if parent is not None and tree == known:
                made = parent
            else:
                parents = () if parent is None else ("-p", parent)
                told = git.run("commit-tree", tree, *parents, given=message, at=at, author=author)
                made = told.decode().strip()
            if self._clone:
                self._check_out(repository, made)
            else:
                self._may_move(repository, "", made, git)
                self._move(repository, made)
            return made

    @disk_faults()
    def unkept(self) -> str | None:
        """Return what of a clone is on no ref of the project's repository, in words; None: nothing."""
        with self._worktree.opened(self._worktree.limit_s) as (repository, git):
            tree, head = self._worktree.tree(repository, git), repository.head()
            end = repository_at(self._root).value_of(self._ref) or self._base
            if end is None or (head is not None and head != end and not _follows(git, head, end)):
                return "its commits are not in the project's repository"
            if git.run("rev-parse", "--verify", f"{end}^{{tree}}").decode().strip() != tree or self.left_out:
                return "it has changes that are not committed"
            return None

    def is_landed(self) -> bool:
        """Return whether what the project's checkout stands on has the whole branch."""
        with self._worktree.opened(LIMIT_S) as (_, git):
            project = repository_at(self._root)
            end, head = project.value_of(self._ref), project.head()
            return not end or (head is not None and _follows(git, end, head))

    @disk_faults()
    def publish(self) -> str | None:
        """Bring the branch into the project's repository, as far as the clone's commits go; return its end.

        Where it is, already: in a project's own folder there is nothing to bring.
        """
        if not self._clone:
            return repository_at(self._root).value_of(self._ref) or None
        with self._worktree.opened(LIMIT_S) as (repository, git):
            end, project = self._parent(repository, git), repository_at(self._root)
            known = project.value_of(self._ref)
            if end is None or end == known:
                return end
            self._may_move(project, known, end, git)
            self._bring(git, project, end, [one for one in (known, self._base) if one])
            self._move(project, end)
            return end

    # --- commits ---------------------------------------------------------------------------------
    def _parent(self, repository: Repository, git: Git) -> str | None:
        """Return the commit that the next one follows: the folder's own, where that goes on from the branch.

        An agent may have moved its HEAD anywhere, and nobody loses a commit by that.
        """
        known = repository_at(self._root).value_of(self._ref) or self._base
        if not self._clone:
            return known or repository.head()
        with suppress(StoreError):  # a HEAD that leads nowhere
            head = repository.head()
            if head is not None and (known is None or head == known or _follows(git, known, head)):
                return head
        return known

    def _with_history(self, repository: Repository, git: Git, tree: str) -> str:
        """Return the tree with the project's history, where git keeps that: it is the one paper in `.ai`."""
        path = f"{repository.within}{_HISTORY}"
        place = os.path.join(repository.top, path)
        if not git.run("ls-files", "-z", "--", f":(top,literal){path}") or not os.path.isfile(place):
            return tree
        git.run("update-index", "-z", "--stdin", given=os.fsencode(path) + b"\0")
        return git.run("write-tree").decode().strip()

    def _check_out(self, repository: Repository, commit: str) -> None:
        """Have the clone stand on its branch at a commit that holds the files as they are."""
        common = Path(repository.common)
        write_project_file(common, self._ref, f"{commit}\n", durable=True)
        write_project_file(common, "HEAD", f"ref: {self._ref}\n", durable=False)
        index = Path(repository.folder, "index")
        index.with_name("index.lock").unlink(missing_ok=True)  # of a git that was killed with its agent
        new = index.with_name("handoffd.index")
        new.unlink(missing_ok=True)
        shutil.copyfile(self._worktree.shadow / "index", new)
        new.replace(index)

    # --- the project's repository ------------------------------------------------------------------
    def _may_move(self, project: Repository, known: str, end: str, git: Git) -> None:
        """Raise StoreError where the project's branch is somebody's: at work on it, or ahead of us."""
        if self._ref in _checked_out(project):
            why = f"{self._branch} is checked out in {project.top}, so it stays as it is there"
            raise StoreError(why, code=CHECKED_OUT, hint=f"git -C {quote(project.top)} switch -")
        if known and not _follows(git, known, end):
            why = f"{self._branch} in {project.top} has commits that the story's clone has not"
            log = f"git -C {quote(project.top)} log {quote(self._branch)}"
            raise StoreError(why, code=DIVERGED, hint=log)

    def _bring(self, git: Git, project: Repository, end: str, known: list[str]) -> None:
        """Copy the commits up to `end` into the project's objects; each object is checked there."""
        shadow = self._worktree.shadow
        for path in shadow.glob("brought-*"):
            path.unlink()
        wanted = "".join(f"{one}\n" for one in (end, *(f"^{one}" for one in known)))
        told = git.run("pack-objects", "--revs", "-q", str(shadow / "brought"), given=wanted.encode())
        pack = shadow / f"brought-{told.decode().strip()}.pack"
        into = Git(self._worktree.program(), project, shadow, self._environment, LIMIT_S)
        into.durable = True
        few = int.from_bytes(pack.read_bytes()[8:12], "big") < _FEW_OBJECTS
        words = ("unpack-objects", "-q", "--strict") if few else ("index-pack", "--stdin", "--strict")
        into.run(*words, given=pack)
        for path in shadow.glob("brought-*"):
            path.unlink()

    def _move(self, repository: Repository, commit: str) -> None:
        """Have the project's branch end at a commit."""
        if repository.value_of(self._ref) != commit:
            write_project_file(Path(repository.common), self._ref, f"{commit}\n", durable=True)


def _follows(git: Git, earlier: str, later: str) -> bool:
    """Return whether a commit has an earlier one among its ancestors; both must be there."""
    return git.is_so("merge-base", "--is-ancestor", earlier, later)


def _checked_out(repository: Repository) -> set[str]:
    """Return the branches that the project's working trees stand on."""
    folders = [repository.common, *glob.glob(f"{glob.escape(repository.common)}/worktrees/*")]
    return {ref for folder in folders if (ref := repository.branch_at(folder)) is not None}
