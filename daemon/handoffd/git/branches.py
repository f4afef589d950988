"""The branch of a story: what a folder holds, committed there, and brought into the project's repository.

A clone is an agent's to write, with everything that git keeps in it. So its settings are not read, each
object is checked on its way into the project's repository, and what was brought there is never taken back:
the commits of a branch only grow. All calls block: give them to a thread.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from shlex import quote

from handoffd.engine.track import Workspace
from handoffd.engine.wording import first_few
from handoffd.errors import StoreError
from handoffd.failpoints import reached
from handoffd.files.atomic import replace_text
from handoffd.files.rooted import write_project_file
from handoffd.git.command import (
    FAILED,
    Git,
    bring,
    changed_paths,
    follows,
    goes_on,
    holds,
    is_commit,
    is_more_in,
    is_whole,
    meeting,
    merged_tree,
    packed,
    tree_of,
)
from handoffd.git.repository import (
    COMMIT,
    Repository,
    end_of,
    heads_in,
    in_use,
    part_of,
    repository_at,
    said_in,
)
from handoffd.git.worktree import (
    FIRST_LIMIT_S,
    LIMIT_S,
    Worktree,
    can_be_kept,
    disk_faults,
    lend,
    remove_tree,
    status_at,
    unlink_odd,
)

HEADS = "refs/heads/"
DIVERGED = "BRANCH_DIVERGED"
CHECKED_OUT = "BRANCH_CHECKED_OUT"

_HISTORY = ".ai/history.md"
_END = "end"
_TAKING = "taking"
_PACKED = "packed"
"""Says up to which commit there is a pack that no clone is needed for."""
_MEANT = "meant"
"""The index of a commit that has not all of the folder."""
_LOCKS = ("index.lock", "HEAD.lock")
_UNFINISHED = ("MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "AUTO_MERGE", "CHERRY_PICK_HEAD", "REVERT_HEAD")
_UNFINISHED_FOLDERS = ("rebase-merge", "rebase-apply", "sequencer")


def branch_of(repository: Repository, story: str) -> str:
    """Return the branch of a story: `handoffd/US-007`, in a repository of several `handoffd/shop/US-007`."""
    return f"handoffd/{repository.place}{part_of(story)}"


UNPUBLISHED = "its commits are not in the project's repository"
UNCOMMITTED = "it has changes that are not committed"
LEFT = "its agent has left commits on other branches of the clone, or in a stash; landing keeps these by refs"


def refs_of_left(repository: Repository, branch: str) -> list[str]:
    """Return the refs that keep what the agent of a story has left beside its branch."""
    return repository.refs_at(f"refs/{branch}/left-")


class StoryBranch:
    """The branch of one story. `environment` is the daemon's own: where git is.

    `seen` has looked at the folder just now, and no agent has been at work there since: the first commit is
    of what it saw.

    All methods raise StoreError: NO_REPOSITORY, GIT_TOO_SLOW, GIT_FAILED; `publish` also BRANCH_DIVERGED and
    BRANCH_CHECKED_OUT.
    """

    def __init__(
        self,
        root: str,
        workspace: Workspace,
        state_dir: Path,
        environment: Mapping[str, str],
        seen: Worktree | None = None,
    ) -> None:
        assert workspace.branch is not None
        self._root = root
        self._environment = environment
        self._base, self._onto = workspace.base, workspace.onto
        self._clone = workspace.kind == "clone"
        self._branch = workspace.branch
        self._ref = f"{HEADS}{workspace.branch}"
        if seen is None or seen.folder != workspace.folder:  # of a clone that is gone, the project was seen
            seen = Worktree(workspace.folder, state_dir, environment)
        self._worktree, self._seen = seen, seen.seen
        self._lock: int | None = None
        self.lost = ""
        """The last commit of ours, where an agent has taken it out of its clone and no pack has it."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """The paths that the last commit does not have as they are.

        They are too large, git cannot take them, or they are repositories of their own.
        """
        worktree = self._worktree
        return (*worktree.left_out, *worktree.too_large, *worktree.inner)

    @property
    def _left_out_in_words(self) -> str:
        return f"{first_few(self.left_out)}: too large, or a repository of its own"

    @disk_faults()
    def commit(
        self,
        message: bytes,
        author: str | None,
        at: datetime,
        *,
        only_papers: bool = False,
        changed: Collection[bytes] | None = None,
    ) -> str:
        """Have the branch hold what the folder holds now, and return the commit at its end.

        There is no new one where nothing has changed since. `author` is `NAME <ADDRESS>`. `only_papers`:
        raise StoreError where other files differ from the last commit of ours. `changed`: take these paths
        alone, of a folder in which a person has files of their own; None: all.
        """
        with self._opened(self._worktree.limit_s) as (repository, git):
            git.durable = True
            parent = self._parent(repository, git)
            tree = self._with_history(repository, git, self._tree(repository, git, parent))
            if changed is not None and parent is not None:
                tree = self._with_changes(repository, git, parent, tree, changed)
            if only_papers:
                self._must_be_papers(repository, git, tree)
            made = parent
            if made is None or tree != tree_of(git, made):
                parents = () if made is None else (made,)
                made = git.commit(tree, *parents, message=message, at=at, author=author)
            if self._clone:
                self._stand(repository, made)
            else:
                self._may_move(repository)
                if (was := end_of(repository, self._ref)) != made:
                    git.move_ref(self._ref, made, was or "0" * len(made))
            return made

    @disk_faults()
    def accept(self, message: bytes, author: str | None, at: datetime) -> str | None:
        """Have the branch hold what its agent has committed by now; return its end, None where it has none.

        What was accepted before is never lost: where the agent has rewritten it, a merge has both.
        """
        if not self._clone:
            return end_of(repository_at(self._root), self._ref) or None
        with self._opened(self._worktree.limit_s) as (repository, git):
            git.durable = True
            end, head = self._parent(repository, git), repository.head()
            if end is not None and head not in {None, end} and is_whole(git, end, head or ""):
                parents = (end,) if follows(git, head or "", end) else (end, head or "")
                end = git.commit(f"{head}^{{tree}}", *parents, message=message, at=at, author=author)
                self._stand_on(repository, end)
            if end is not None:
                note_end(self._worktree, end)
            return end

    def _tree(self, repository: Repository, git: Git, parent: str | None) -> str:
        """Return the folder's tree; a clone is at the commit before the next one by then."""
        seen, self._seen = self._seen, None
        if self._clone and parent is not None and repository.head() != parent:
            self._stand_on(repository, parent)
            seen = None
        return seen or self._worktree.tree(repository, git)

    def _with_changes(
        self, repository: Repository, git: Git, parent: str, tree: str, changed: Collection[bytes]
    ) -> str:
        """Return the tree of a commit with some of the paths as another tree has them."""
        history = os.fsencode(f"{repository.within}{_HISTORY}")
        told = git.run("diff-tree", "-r", "-z", "--no-renames", parent, tree).split(b"\0")
        entries = [(raw.split(), path) for raw, path in zip(told[::2], told[1::2], strict=False)]
        lines = [
            b"%s %s\t%s\0" % (mode, blob, path)
            for (_, mode, _, blob, _), path in entries
            if path in changed or path == history
        ]
        git.run("read-tree", parent, index=_MEANT)
        git.run("update-index", "-z", "--index-info", given=b"".join(lines), index=_MEANT)
        return git.run("write-tree", index=_MEANT).decode().strip()

    def _must_be_papers(self, repository: Repository, git: Git, tree: str) -> None:
        last = self._accepted or self._base
        told = git.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", last or tree, tree)
        papers = {f"{repository.within}PROJECT_MEMORY.md", f"{repository.within}{_HISTORY}"}
        others = sorted({*filter(None, map(os.fsdecode, told.split(b"\0")))} - papers)
        if others:
            why = f"the step may write {' and '.join(sorted(papers))} only, and not {first_few(others)}"
            raise StoreError(why, code=FAILED, hint=f"git -C {quote(self._worktree.folder)} status")

    @disk_faults()
    def take_in(self, message: bytes, at: datetime) -> str | None:
        """Merge what the story's base branch has got meanwhile into a clone; return the commit.

        None where there is no news, where both conflict, and where not all of the clone is committed: then it
        stays as it is. Files of an agent that are in the way raise StoreError, and stay, too.
        """
        with self._opened(self._worktree.limit_s) as (repository, git):
            git.durable = True
            parent, news = self._parent(repository, git), self._news()
            if parent is None or not news or follows(git, news, parent):
                return None
            self._finish_taking(git, parent)
            tree = self._with_history(repository, git, self._worktree.tree(repository, git))
            if tree != tree_of(git, parent):
                return None
            # News first: lines that each story adds at an end stay in the order in which stories have landed.
            merged, conflicts = merged_tree(git, news, parent)
            if conflicts:
                return None
            made = git.commit(merged, parent, news, message=message, at=at)
            replace_text(self._worktree.shadow / _TAKING, f"{parent} {made}\n")
            reached("before_taking_in")
            git.run("read-tree", "-m", "-u", parent, made)
            reached("after_taking_in")
            self._stand(repository, made)
            (self._worktree.shadow / _TAKING).unlink()
            return made

    @disk_faults()
    def taken_in(self) -> frozenset[bytes]:
        """Return the paths in which an agent has merged what the story's base branch has got meanwhile.

        That is what it was asked for where the story could not be landed. Only since the last commit of ours.
        """
        with self._opened(LIMIT_S) as (repository, git):
            news, ours = self._news(), self._accepted or self._base or ""
            if news == self._base:  # there is none: all that the story does follows that commit
                return frozenset()
            heads = [repository.head() or "", repository.said("MERGE_HEAD")]
            was = meeting(git, ours, news)
            found: set[bytes] = set()
            for now in {meeting(git, head, news) for head in heads} - {was, ""} if was else ():
                told = git.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", was, now)
                found.update(filter(None, told.split(b"\0")))
            return frozenset(found)

    def _news(self) -> str:
        """Return where the branch ends that the story began at, empty where it began at none."""
        return "" if self._onto is None else end_of(repository_at(self._root), f"{HEADS}{self._onto}")

    def _finish_taking(self, git: Git, parent: str) -> None:
        """Have the files as before a merge that a crash has cut off: no agent has been at work since."""
        was, _, made = _line(self._worktree.shadow / _TAKING).partition(" ")
        if was == parent:
            git.run("read-tree", "--reset", "-u", made)
            git.run("read-tree", "-m", "-u", made, parent)

    @disk_faults()
    def unkept(self) -> str | None:
        """Return what of a clone is on no ref of the project's repository, in words; None: nothing."""
        with self._opened(self._worktree.limit_s) as (repository, git):
            head, tree = repository.head(), self._worktree.tree(repository, git)
            tree = self._with_history(repository, git, tree)
            end, ours = end_of(repository_at(self._root), self._ref) or self._base, self._accepted
            own = {head or "", repository.said(self._ref)} - {end}
            is_there = ours in {"", end} or (is_commit(git, ours) and follows(git, ours, end or ours))
            if end is None or not is_there or is_more_in(git, own, end):
                return UNPUBLISHED
            if is_more_in(git, {*heads_in(Path(repository.common))} - {end}, end, *self._left().values()):
                return LEFT
            if tree != tree_of(git, end):
                return UNCOMMITTED
            if self.left_out:
                return f"no commit takes {self._left_out_in_words}"
            return None

    @disk_faults()
    def uncommitted(self) -> tuple[str, ...]:
        """Return the paths in which the folder is not as its agent has committed it last."""
        with self._opened(self._worktree.limit_s) as (repository, git):
            tree = self._with_history(repository, git, self._worktree.tree(repository, git))
            last = repository.head() or self._base
            return tuple(changed_paths(git, last, tree)) if last is not None else ()

    @disk_faults()
    def keep_others(self) -> None:
        """Keep by refs of the project what an agent has left on other branches, or in a stash."""
        with self._opened(self._worktree.limit_s) as (repository, git), self._bringing():
            self._keep_others(repository, git)

    def _keep_others(self, repository: Repository, git: Git, *kept: str) -> None:
        """Keep by refs what the branches of a clone have beside ours, and beside what is `kept` already."""
        end = end_of(repository_at(self._root), self._ref) or self._base
        heads = [one for one in heads_in(Path(repository.common)) if COMMIT.fullmatch(one)]
        for head in sorted(set(heads)) if end else ():
            known = [one for one in (end, *kept, self._base, self._news(), *self._left().values()) if one]
            if is_commit(git, head) and is_more_in(git, {head}, *known):
                self._bring(git, known, head)
                self._into().move_ref(f"refs/{self._branch}/left-{head[:12]}", head, "0" * len(head))

    def _left(self) -> dict[str, str]:
        """Return the refs that keep what its agent has left beside the branch, and where they end."""
        project = repository_at(self._root)
        return {ref: end_of(project, ref) for ref in refs_of_left(project, self._branch)}

    @disk_faults()
    def is_landed(self) -> bool:
        """Return whether the branch that the story began at, or the checkout, has the whole branch."""
        with self._opened(LIMIT_S):
            project, into = repository_at(self._root), self._into()
            end, head = end_of(project, self._ref), project.head()
            onto = end_of(project, f"{HEADS}{self._onto}") if self._onto is not None else ""
            return not end or any(holds(into, one, end) for one in (head, onto) if one)

    @disk_faults()
    def publish(self, *, ours: bool = False) -> str | None:
        """Bring the branch into the project's repository, as far as the clone's commits go; return its end.

        Where it is, already: in a project's own folder there is nothing to bring. Commits that a person has
        added there stay. `ours`: only up to the last commit of ours, as an agent may be at work by now.
        """
        project = repository_at(self._root)
        known = end_of(project, self._ref)
        if not self._clone or (ours and self._accepted in {"", known or self._base}):
            return known or None
        if ours and self._packed(self._accepted) is not None:  # then whatever git does takes no one's time
            return self._brought(project, None, self._accepted)
        with self._opened(FIRST_LIMIT_S) as (repository, git):
            end = self._accepted if ours else self._parent(repository, git)
            return None if end is None else self._brought(project, git, end)

    def _brought(self, project: Repository, git: Git | None, end: str) -> str:
        """Have the project's branch end at a commit. `git` works on the clone; None: there is a pack."""
        with self._bringing():
            known = end_of(project, self._ref)
            if end == known:
                return end
            self._may_move(project)
            self._bring(git, self._behind(known), end)
            into = self._into()
            # By the project's objects: an agent may have made up what the clone's say.
            if not is_commit(into, end) or not follows(into, known or self._base or end, end):
                if known and is_commit(into, end) and follows(into, end, known):
                    return known
                raise self._diverged(project)
            reached("before_publishing")
            into.move_ref(self._ref, end, known or "0" * len(end))
            if git is not None:
                note_end(self._worktree, end)
            if (pack := self._packed(end)) is not None:
                self._drop(f"{pack.stem}.*")
            return end

    @disk_faults()
    def pack(self) -> int:
        """Keep what the project lacks of the branch where no agent writes; return how many bytes it takes.

        The next agent owns the clone, with its objects.
        """
        if not self._clone:
            return 0
        with self._opened(FIRST_LIMIT_S) as (_, git):
            end, known = self._accepted, end_of(repository_at(self._root), self._ref)
            if end in {"", known or self._base}:
                return 0
            pack = self._packed(end) or packed(git, "kept", self._behind(known), (end,))
            replace_text(self._worktree.shadow / _PACKED, f"{end} {pack.name}\n")
            self._drop("kept-*", but=pack.stem)
            return pack.stat().st_size

    def _behind(self, known: str) -> list[str]:
        """Return commits whose objects the project has."""
        return [one for one in (known, self._base, self._news()) if one]

    @disk_faults()
    def discard(self, at: datetime) -> str:
        """Take the branch away from the project; return the ref that keeps what the story has done.

        Raises StoreError, too, where a person has it checked out, or has added commits, and where the folder
        has what no commit can have.
        """
        end = self.commit(b"What was there when it was discarded\n", None, at) if self._clone else ""
        if self._clone and self.left_out:
            hint = f"cd {quote(self._worktree.folder)}  # move it away or remove it, then try again"
            raise StoreError(f"no ref can keep {self._left_out_in_words}", code="BRANCH_BEHIND", hint=hint)
        with self._opened(self._worktree.limit_s) as (repository, git), self._bringing():
            project = repository_at(self._root)
            known = end_of(project, self._ref)
            end = end or known
            if known:
                self._may_move(project)
            if end != known:
                if known and not follows(git, known, end):
                    raise self._diverged(project)
                self._bring(git, self._behind(known), end)
            kept = f"refs/{self._branch}/discarded-{at:%Y%m%dT%H%M%SZ}"
            self._into().move_ref(kept, end, "0" * len(end))
            if self._clone:
                self._keep_others(repository, git, end)
            if known:
                self._into().delete_ref(self._ref, known)
            return kept

    @disk_faults()
    def bring_snapshots(self, commits: Sequence[str]) -> None:
        """Copy commits that were made of a clone's files into the project's objects; no ref moves."""
        with self._opened(self._worktree.limit_s) as (_, git), self._bringing():
            self._bring(git, self._behind(end_of(repository_at(self._root), self._ref)), *commits)

    # --- the clone -------------------------------------------------------------------------------
    @disk_faults()
    def stand_again(self) -> bytes | None:
        """Have a clone's HEAD lead to a commit where it does not; return what it said, None: it does.

        An agent may have written anything into it, and without it no file can be compared or committed.
        """
        self._worktree.repair()
        clone = self._worktree.repository()
        said = said_in(os.path.join(clone.folder, "HEAD"))
        kept, broken = clone.value_of(self._ref), not said or not self._has_head(clone)
        if broken and COMMIT.fullmatch(kept) is not None:
            self._stand_on(clone, kept)  # it may have the agent's own commits
        with self._opened(LIMIT_S) as (repository, git):
            head = repository.head()
            if head is not None and not is_commit(git, head):
                broken = True
                self._stand_on(repository, end_of(repository_at(self._root), self._ref) or self._base or "")
        return said if broken else None

    @contextmanager
    def _opened(self, limit_s: float) -> Iterator[tuple[Repository, Git]]:
        """Lend the folder's repository; a clone's borrows from the project again, and its HEAD is one."""
        if self._clone:
            self._worktree.repair()
            clone, project = self._worktree.repository(), repository_at(self._root)
            lend(project, Path(clone.common))
            if not self._has_head(clone):
                self._stand_on(clone, end_of(project, self._ref) or self._base or "")
        with self._worktree.opened(limit_s) as (repository, git):
            yield repository, git

    def _has_head(self, clone: Repository) -> bool:
        with suppress(StoreError):
            head = clone.head()
            return head is None or self._base is None or len(head) == len(self._base)
        return False

    def _parent(self, repository: Repository, git: Git) -> str | None:
        """Return the commit that the next one follows: the folder's own, where that goes on from the branch.

        An agent may have moved its HEAD anywhere; no commit is lost by that.
        """
        known, head = end_of(repository_at(self._root), self._ref) or self._base, repository.head()
        if not self._clone:
            return known or head
        if ours := self._accepted:
            known = ours if is_commit(git, ours) or self._bring_again(git, ours) else known
        if head is None or head == known or not is_commit(git, head):
            return known
        return head if known is None or goes_on(git, known, head) else known

    def _with_history(self, repository: Repository, git: Git, tree: str) -> str:
        """Return the tree with the project's history, where git keeps that: it is the one paper in `.ai`."""
        path, top = f"{repository.within}{_HISTORY}", os.fsencode(repository.top)
        found = status_at(top, os.fsencode(path))
        if found is None or not stat.S_ISREG(found.st_mode) or not can_be_kept(top, os.fsencode(path), found):
            return tree
        if not git.run("ls-files", "-z", "--", f":(top,literal){path}"):
            return tree
        git.run("update-index", "-z", "--stdin", given=os.fsencode(path) + b"\0")
        return git.run("write-tree").decode().strip()

    def _stand(self, repository: Repository, commit: str) -> None:
        """Have the clone be at a commit whose files it has."""
        note_end(self._worktree, commit)
        self._check_out(repository, commit)
        self._worktree.has_head(commit)

    def _check_out(self, repository: Repository, commit: str) -> None:
        """Have the clone stand on its branch at a commit that holds the files as they are.

        What its agent has left unfinished is over then, a merge as well as a git that was killed with it.
        """
        self._stand_on(repository, commit)
        folder = Path(repository.folder)
        for name in (*_LOCKS, *_UNFINISHED, f"{self._ref}.lock"):
            with suppress(OSError):
                (folder / name).unlink()
        for name in _UNFINISHED_FOLDERS:
            if (folder / name).is_dir():
                remove_tree(folder / name)
        new = folder / "handoffd.index"
        new.unlink(missing_ok=True)
        shutil.copyfile(self._worktree.shadow / "index", new)
        new.replace(folder / "index")

    def _stand_on(self, clone: Repository, commit: str) -> None:
        common = Path(clone.common)
        write_project_file(common, self._ref, f"{commit}\n", durable=True)
        unlink_odd(common / "HEAD")
        write_project_file(common, "HEAD", f"ref: {self._ref}\n", durable=False)

    # --- the project's repository ------------------------------------------------------------------
    def _may_move(self, project: Repository) -> None:
        """Raise StoreError where a person works on the project's branch."""
        if self._ref in in_use(project):
            why = f"{self._branch} is checked out in {project.top}, so it stays as it is there"
            raise StoreError(why, code=CHECKED_OUT, hint=f"git -C {quote(project.top)} switch -")

    def _diverged(self, project: Repository) -> StoreError:
        why = f"{self._branch} in {project.top} has commits that the story's clone has not"
        log = f"git -C {quote(project.top)} log {quote(self._branch)}"
        return StoreError(why, code=DIVERGED, hint=log)

    @contextmanager
    def _bringing(self) -> Iterator[None]:
        """Be the only one that brings commits of this clone into the project; the clone may be in use."""
        with self._worktree.locked(FIRST_LIMIT_S, "bringing") as self._lock:
            yield

    def _into(self) -> Git:
        """Return git on the project's objects alone."""
        project, program = repository_at(self._root), self._worktree.program()
        into = Git(program, project, self._worktree.shadow, self._environment, FIRST_LIMIT_S)
        into.durable, into.lock = True, self._lock
        return into

    def _bring(self, git: Git | None, known: list[str], *ends: str) -> None:
        """Copy the commits up to `ends` into the project's objects, after each object was checked."""
        try:
            bring(git, self._into(), self._packed(*ends), known, ends)
        except StoreError as error:
            why = f"git could not take the commits of {self._branch} into the project: {error.message}"
            unsound = f"git -C {quote(self._worktree.folder)} log {known[0]}.."
            hint = f"df -h {quote(self._root)}" if "No space" in error.message else unsound
            raise StoreError(why, code=error.code, hint=hint) from error

    def _bring_again(self, git: Git, end: str) -> bool:
        """Have the last commit of ours again, which an agent has taken out of its clone, if that can be."""
        if self._packed(end) is None:
            self.lost = end
            return False
        with self._bringing():
            self._bring(git, self._behind(end_of(repository_at(self._root), self._ref)), end)
        return True

    def _packed(self, *ends: str) -> Path | None:
        """Return the pack that is kept of the commits up to these, if it is there."""
        end, _, name = _line(self._worktree.shadow / _PACKED).partition(" ")
        pack = self._worktree.shadow / name
        return pack if name and (end,) == ends and pack.exists() else None

    def _drop(self, pattern: str, but: str = "") -> None:
        for path in self._worktree.shadow.glob(pattern):
            if path.stem != but:
                path.unlink(missing_ok=True)

    @property
    def _accepted(self) -> str:
        """The last commit of a clone that is not its agent's to change; empty where there is none."""
        return _line(self._worktree.shadow / _END)


def note_end(worktree: Worktree, commit: str) -> None:
    """Remember the last commit of a clone where no agent can write: its refs are its agents'."""
    replace_text(worktree.shadow / _END, f"{commit}\n")


def _line(path: Path) -> str:
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""
