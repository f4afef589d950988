"""The way of a story's branch into the branch that people work on.

What will be there is made first, as a commit that no branch has, so that it can be tested. Then the branch is
moved, if it still is where it was; a checkout of it follows, and only where no change of a person's
is in the way. A note beside our index says what goes on, so that a landing is finished that was cut off. All
calls block: give them to a thread.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from handoffd.engine.views import Would
from handoffd.engine.wording import conflicts_in_words, counted, first_few
from handoffd.errors import Refused, StoreError
from handoffd.failpoints import reached
from handoffd.files.atomic import replace_text
from handoffd.git.branches import HEADS, branch_of, end_of, in_conflict_by_hand, merged_tree
from handoffd.git.clones import APART
from handoffd.git.command import FAILED, Git, left_in
from handoffd.git.repository import Repository, unfinished_in
from handoffd.git.worktree import Worktree, disk_faults, is_linked

LIMIT_S = 60.0
CONFLICT = "CONFLICT"
IN_THE_WAY = "CHECKOUT_IN_THE_WAY"
BUSY = "CHECKOUT_BUSY"
MOVED = "BRANCH_MOVED"

FOR_LANDING = f"{APART}landing-"
"""How the name begins of a clone in which merged files are tested."""

_NOTE = "landing.json"
_INDEX_LOCK, _INDEX_COPY = "index.lock", "handoffd.index"
_GONE, _FILES = "000000", {"100644", "100755"}
"""A git that moves a branch is done long before."""
_MOST_NAMED = 10
_PAPERS = (".md", ".txt", ".feature", ".yaml", ".yml", ".json", ".lock")
_MOST_PAPERS, _MOST_READ = 50, 256 * 1024
_PATH = re.compile(r"[\w./-]*\w\.\w+")


class Merge(Struct, frozen=True, kw_only=True):
    """What a landing makes of a branch. `commit` is `was` where all of the story is there already."""

    ref: str
    """The branch: `refs/heads/main`."""
    was: str
    commit: str
    files: int
    """How many files it changes."""
    branch: str = ""
    """The story's own."""
    end: str = ""
    """What of it is landed: the commit at its end, or at the end of a step."""

    @property
    def onto(self) -> str:
        """The name of the branch."""
        return self.ref.removeprefix(HEADS)


class Outlook(Struct, frozen=True, kw_only=True):
    """What a landing would do with a story's branch as it is now."""

    branch: str
    onto: str | None
    """The branch that it would land on; None: there is none."""
    commits: int
    """How many commits that has not."""
    would: Would
    files: int = 0
    """How many files would change there."""
    conflicts: tuple[str, ...] = ()
    by_hand: str | None = None
    """The command with which a person merges what conflicts, by what is checked out now."""
    unkept: str | None = None
    """What of the story's clone is not on its branch, in words; None: nothing, or it has none."""
    place: str | None = None
    """The folder of that clone, if a person has to look there."""
    tips: tuple[str, str] = ("", "")
    """Where the story's branch and the other one ended: the same two are not merged on trial again."""

    def in_words(self, *, aborted: bool) -> str:
        """Return what a landing would do, or what there is of an aborted story: the same on every screen."""
        commits, files, onto = counted(self.commits, "commit"), counted(self.files, "file"), self.onto
        if aborted and self.would != "landed":
            return "aborted" if onto is None else f"aborted; {commits} that {onto} does not have"
        if self.unkept is not None:
            return f"{commits}; not all of the story: {self.unkept}"
        match self.would:
            case "landed":
                return f"all of it is on {onto}"
            case "forward":
                return f"{commits}; landing brings {files} to {onto}"
            case "merge":
                return f"{commits}; landing merges {files} into {onto}, which has moved on"
            case "conflict":
                where = conflicts_in_words(self.conflicts)
                return f"{commits}; landing on {onto} would conflict in {where}"
        return "what is checked out is not a branch to land on"


class News(Struct, frozen=True, kw_only=True):
    """What a branch has that a story's own has not."""

    onto: str
    commit: str
    """Where it ends."""
    subjects: tuple[str, ...]
    """The first lines of the latest of its commits, the newest first."""

    @property
    def to_take_in(self) -> str:
        """What an agent has to do so that its story goes with them."""
        listed = "".join(f"\n- {subject}" for subject in self.subjects)
        return (
            f"{self.onto} has moved on since this story began:{listed}\n"
            f"Run `git merge {self.commit}` in your branch, keep what both bring, and have all tests pass."
        )


_MERGE = msgspec.json.Decoder(Merge)


class Landing:
    """Landings of one project. `environment` is the daemon's own: where git is.

    All methods raise StoreError: NO_REPOSITORY, GIT_TOO_SLOW, GIT_FAILED.
    """

    def __init__(self, root: str, state_dir: Path, environment: Mapping[str, str]) -> None:
        self._root = root
        self._worktree = Worktree(root, state_dir, environment)

    @disk_faults()
    def prepare(
        self,
        story: str,
        onto: str | None,
        message: bytes,
        at: datetime,
        *,
        up_to: str | None = None,
        moves: bool = True,
    ) -> Merge:
        """Make the commit that `onto` (None: the branch that is checked out) will end at.

        `up_to` is a commit of the story's branch, in place of its end. `moves`: the branch will be moved, so
        that a checkout of it must not be in the way.

        Raises Refused: NO_BRANCH, CONFLICT, CHECKOUT_IN_THE_WAY, CHECKOUT_BUSY.
        """
        with self._worktree.opened(LIMIT_S) as (repository, git):
            self._finish_first(repository, git)
            ref = f"{HEADS}{onto}" if onto is not None else repository.branch_at(repository.folder)
            branch = branch_of(repository, story)
            end, was = end_of(repository, f"{HEADS}{branch}"), end_of(repository, ref or "")
            if not end:
                raise Refused(
                    f"{story} has no branch here: {branch}", code="NO_BRANCH", hint=_branches(repository)
                )
            if ref is None or not was or ref == f"{HEADS}{branch}":
                why = f"{onto or 'what is checked out'} is not a branch to land on"
                look = f"git -C {quote(repository.top)} branch --list"
                raise Refused(why, code="NO_BRANCH", hint=f"{look}  # then again, with --onto BRANCH")
            if up_to is not None and not git.is_so("merge-base", "--is-ancestor", up_to, end):
                why = f"{up_to[:12]} is not on {branch}"
                raise Refused(why, code="NO_BRANCH", hint=_branches(repository))
            end = up_to or end
            with self._advising(repository, git, ref, branch):
                commit = self._merged(git, was, end, branch, message, at)
            files = _differing(git, was, commit)
            merge = Merge(ref=ref, was=was, commit=commit, files=files, branch=branch, end=end)
            if moves and self._follows(repository, merge):
                self._may_follow(repository, git, merge)
            return merge

    @disk_faults()
    def foreseen(self, story: str, onto: str | None, known: Outlook | None = None) -> Outlook | None:
        """Return what a landing would do; None where the story has no branch. Changes nothing.

        `known`: what was found before, which holds while neither branch has moved.
        """
        if known is not None and known == self._still(story, onto, known):
            return known
        with self._worktree.opened(LIMIT_S) as (repository, git), TemporaryDirectory() as git.scratch:
            ref = f"{HEADS}{onto}" if onto is not None else repository.branch_at(repository.folder)
            branch = branch_of(repository, story)
            end, was = end_of(repository, f"{HEADS}{branch}"), end_of(repository, ref or "")
            if not end:
                return None
            if ref is None or not was or ref == f"{HEADS}{branch}":
                return Outlook(branch=branch, onto=None, commits=0, would="unknown")
            commits = int(git.run("rev-list", "--count", end, f"^{was}"))
            found = Outlook(
                branch=branch, onto=ref.removeprefix(HEADS), commits=commits, would="landed", tips=(end, was)
            )
            if not commits:
                return found
            if git.is_so("merge-base", "--is-ancestor", was, end):
                return replace(found, would="forward", files=_differing(git, was, end))
            tree, conflicts = merged_tree(git, self._worktree, was, end)
            if conflicts:
                found = replace(found, would="conflict", by_hand=self._merging(repository, branch, ref))
                return replace(found, conflicts=self._in_conflict(git, was, end, conflicts))
            return replace(found, would="merge", files=_differing(git, was, tree))

    def _still(self, story: str, onto: str | None, known: Outlook) -> Outlook:
        """Return what is known, with the branches as they are now; reads refs alone."""
        repository = self._worktree.repository()
        ref = f"{HEADS}{onto}" if onto is not None else repository.branch_at(repository.folder) or ""
        branch = branch_of(repository, story)
        tips = end_of(repository, f"{HEADS}{branch}"), end_of(repository, ref)
        by_hand = self._merging(repository, branch, ref) if known.would == "conflict" else None
        return replace(known, branch=branch, onto=ref.removeprefix(HEADS), tips=tips, by_hand=by_hand)

    @disk_faults()
    def tips(self, story: str, onto: str | None) -> tuple[str, str]:
        """Return where the story's branch and `onto` (None: what is checked out) end; reads refs alone."""
        repository = self._worktree.repository()
        ref = f"{HEADS}{onto}" if onto is not None else repository.branch_at(repository.folder) or ""
        return end_of(repository, f"{HEADS}{branch_of(repository, story)}"), end_of(repository, ref)

    @disk_faults()
    def news(self, story: str, onto: str | None) -> News:
        """Return what `onto` (None: the branch that is checked out) has that the story's branch has not."""
        with self._worktree.opened(LIMIT_S) as (repository, git):
            ref = f"{HEADS}{onto}" if onto is not None else repository.branch_at(repository.folder)
            commit = end_of(repository, ref or "")
            if ref is None or not commit:
                raise StoreError(f"{onto or 'what is checked out'} is not a branch", code="NO_BRANCH")
            own = end_of(repository, f"{HEADS}{branch_of(repository, story)}")
            words = ("log", "--first-parent", "--format=%s", f"--max-count={_MOST_NAMED}", commit, f"^{own}")
            told = git.run(*words).decode(errors="replace")
            return News(onto=ref.removeprefix(HEADS), commit=commit, subjects=tuple(told.splitlines()))

    @disk_faults()
    def code_of(self, story: str, base: str, onto: str | None) -> frozenset[str]:
        """Return the files that a story has changed since `base`, and those there that its papers name.

        What it has taken in of the branch `onto` since is not its own. Papers themselves are left out: each
        story adds to the same ones.
        """
        with self._worktree.opened(LIMIT_S) as (repository, git):
            end = end_of(repository, f"{HEADS}{branch_of(repository, story)}")
            if not end:
                return frozenset()
            if onto is not None and (news := end_of(repository, f"{HEADS}{onto}")):
                base = git.run("merge-base", end, news, fine=(0, 1)).decode().strip() or base
            changed = _paths(git.run("diff-tree", "-r", "-z", "--name-only", base, end))
            there = _paths(git.run("ls-tree", "-r", "-z", "--name-only", base))
            papers = sorted(path for path in changed if path.endswith(_PAPERS))[:_MOST_PAPERS]
            named: set[str] = set()
            for path in papers:
                text = git.run("cat-file", "blob", f"{end}:{path}", fine=(0, 128))[:_MOST_READ]
                named |= there & {
                    word.removeprefix("./") for word in _PATH.findall(text.decode(errors="replace"))
                }
            return frozenset(path for path in changed | named if not path.endswith(_PAPERS))

    def _in_conflict(self, git: Git, was: str, end: str, paths: list[str]) -> tuple[str, ...]:
        """Return the paths of a conflict, and behind them the paths in which only a merge by hand does."""
        return tuple(dict.fromkeys((*paths, *in_conflict_by_hand(git, self._worktree, was, end))))

    def _merged(self, git: Git, was: str, end: str, branch: str, message: bytes, at: datetime) -> str:
        if git.is_so("merge-base", "--is-ancestor", end, was):
            return was
        # One commit goes there as it is. Of several, some add tests that fail at first: who looks for
        # a fault with `git bisect --first-parent` must not meet these.
        if git.run("rev-list", "--parents", end, f"^{was}").split() == [end.encode(), was.encode()]:
            return end
        tree, paths = merged_tree(git, self._worktree, was, end)
        if paths:
            why = f"{branch} conflicts in {conflicts_in_words(self._in_conflict(git, was, end, paths))}"
            raise Refused(why, code=CONFLICT)
        made = git.run("commit-tree", tree, "-p", was, "-p", end, given=message, at=at)
        return made.decode().strip()

    def _merging(self, repository: Repository, branch: str, ref: str) -> str:
        """Return the command: git merges into what is checked out."""
        top = repository.checkout_of(ref)
        there = quote(self._root if top in {None, repository.top} else str(top))
        switch = f"git -C {there} switch {quote(ref.removeprefix(HEADS))} && " if top is None else ""
        return f"{switch}git -C {there} merge {quote(branch)}"

    @contextmanager
    def _advising(self, repository: Repository, git: Git, ref: str, branch: str) -> Iterator[None]:
        """Have a conflict say how a person merges by hand, and what keeps the checkout from switching."""
        try:
            yield
        except Refused as refused:
            refused.hint = self._merging(repository, branch, ref)
            if repository.checkout_of(ref) is None and self._is_changed(repository, git):
                refused.message += "; your checkout has changes: commit or stash them before you switch"
            raise

    def _is_changed(self, repository: Repository, git: Git) -> bool:
        """Return whether files that git knows are not as they were committed."""
        index, head = self._index_copied(repository, self._worktree.shadow / "theirs"), repository.head()
        git.run("update-index", "--refresh", index=index, fine=(0, 1))
        return head is not None and git.run("diff-index", "--name-only", head, index=index) != b""

    @disk_faults()
    def land(self, merge: Merge) -> None:
        """Move the branch, and the checkout of it.

        Raises Refused: MOVED, CHECKOUT_IN_THE_WAY, CHECKOUT_BUSY.
        """
        with self._worktree.opened(LIMIT_S) as (repository, git):
            note = self._worktree.shadow / _NOTE
            follows = self._follows(repository, merge)
            if end_of(repository, merge.ref) != merge.was:
                raise Refused(f"{merge.onto} was moved meanwhile", code=MOVED)
            if follows:
                self._may_follow(repository, git, merge)
                replace_text(note, msgspec.json.encode(merge))
                self._take_along(repository, git, merge)
            try:
                with _moving():
                    git.move_ref(merge.ref, merge.commit, merge.was)
            except StoreError as error:
                if follows:
                    self._follow(repository, git, merge.commit, merge.was)
                    note.unlink()
                why = f"{merge.onto} was moved meanwhile: {error.message}"
                raise Refused(why, code=MOVED) from error
            note.unlink(missing_ok=True)

    @disk_faults()
    def finish(self) -> Merge | None:
        """Finish a landing that was cut off; return it, if there was one."""
        if not (self._worktree.shadow / _NOTE).exists():
            return None
        with self._worktree.opened(LIMIT_S) as (repository, git):
            return self._finish(repository, git)

    def _finish(self, repository: Repository, git: Git) -> Merge | None:
        note = self._worktree.shadow / _NOTE
        try:
            merge = _MERGE.decode(note.read_bytes())
        except (OSError, msgspec.DecodeError):
            return None
        self._let_go(repository, git, merge)
        at = end_of(repository, merge.ref)
        if self._follows(repository, merge) and at == merge.was:
            with _moving():
                self._follow(repository, git, merge.was, merge.commit, cut_off=True)
            with _moving():
                git.move_ref(merge.ref, merge.commit, merge.was)
            at = merge.commit
        elif self._follows(repository, merge) and self._is_ahead(repository, git, merge, at):
            self._follow(repository, git, merge.commit, merge.was)
        note.unlink()
        return merge if at == merge.commit else None

    def _finish_first(self, repository: Repository, git: Git) -> None:
        try:
            self._finish(repository, git)
        except StoreError as error:
            why = f"a landing that was cut off waits for your checkout: {error}"
            raise _busy(repository, error) or _in_the_way(repository, why) from error

    # --- the checkout ----------------------------------------------------------------------------
    def _follows(self, repository: Repository, merge: Merge) -> bool:
        """Return whether the branch is what the project has checked out."""
        return merge.commit != merge.was and repository.branch_at(repository.folder) == merge.ref

    def _may_follow(self, repository: Repository, git: Git, merge: Merge) -> None:
        if (what := unfinished_in(self._root)) is not None:
            why = f"your checkout of {merge.onto} is in the middle of a {what}"
            raise _in_the_way(repository, why, "status")
        try:
            self._try(repository, git, merge)
        except StoreError as error:
            if (busy := _busy(repository, error)) is not None:
                raise busy from error
            paths = _changed_in(repository, git, merge)
            why = f"changes of {first_few(paths)} in your checkout of {merge.onto} are in the way: {error}"
            stash = " ".join(map(quote, paths[:_MOST_NAMED]))
            raise _in_the_way(repository, why, f"stash push --include-untracked -- {stash}") from error

    def _take_along(self, repository: Repository, git: Git, merge: Merge) -> None:
        try:
            with _moving():
                self._follow(repository, git, merge.was, merge.commit)
        except StoreError as error:
            if (busy := _busy(repository, error)) is None:  # the next landing, or the next daemon, goes on
                raise
            (self._worktree.shadow / _NOTE).unlink()
            raise busy from error

    def _is_ahead(self, repository: Repository, git: Git, merge: Merge, at: str) -> bool:
        """Return whether the checkout has followed a branch that a person has moved elsewhere since.

        A person who has committed all that was there has committed the story, too.
        """
        index = os.path.join(repository.folder, "index")
        listed = ("-z", "--name-only")
        ours = {*git.run("diff-tree", "-r", *listed, merge.was, merge.commit).split(b"\0")} - {b""}
        unlike = {*git.run("diff-index", "--cached", *listed, merge.commit, index=index).split(b"\0")}
        missing = {*git.run("diff-tree", "-r", *listed, at, merge.commit).split(b"\0")}
        return not ours & unlike and bool(ours & missing)

    def _try(self, repository: Repository, git: Git, merge: Merge) -> None:
        """Raise StoreError where the checkout cannot follow. Changes nothing of it."""
        lock = Path(repository.folder, _INDEX_LOCK)
        if os.path.lexists(lock):
            raise StoreError(f"{lock} is there", code=FAILED)
        index = self._index_copied(repository, self._worktree.shadow / "theirs")
        git.run("update-index", "--refresh", index=index, fine=(0, 1))
        git.run("read-tree", "--dry-run", "-m", "-u", merge.was, merge.commit, index=index)

    def _follow(
        self, repository: Repository, git: Git, was: str, commit: str, *, cut_off: bool = False
    ) -> None:
        """Have the checkout go from one commit to another; `cut_off`: part of that may be done."""
        with self._held(repository) as index:
            git.run("update-index", "--refresh", index=index, fine=(0, 1))
            if cut_off:
                self._take_up(repository, git, was, commit, index)
            git.run("read-tree", "-m", "-u", was, commit, index=index)

    @contextmanager
    def _held(self, repository: Repository) -> Iterator[str]:
        """Lend a copy of the checkout's index, which takes its place in the end.

        Meanwhile the index is locked as git does it, but with a link that names us: a file that a killed git
        has left could be a person's.
        """
        folder, lock = Path(repository.folder), Path(repository.folder, _INDEX_LOCK)
        try:
            lock.symlink_to(self._worktree.shadow / "lock")
        except OSError as error:
            raise StoreError(f"{lock}: {error.strerror}", code=FAILED) from error
        copy = folder / _INDEX_COPY
        try:
            yield self._index_copied(repository, copy)
            copy.replace(folder / "index")
        finally:
            copy.unlink(missing_ok=True)
            lock.unlink(missing_ok=True)

    def _index_copied(self, repository: Repository, copy: Path) -> str:
        """Return the path of a copy of the index, as old as that: git reads files again that are as young."""
        for left in (copy, Path(f"{copy}.lock")):
            left.unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            shutil.copy2(Path(repository.folder, "index"), copy)
        return str(copy)

    def _let_go(self, repository: Repository, git: Git, merge: Merge) -> None:
        """Remove the locks in a repository which a daemon and its git have left that were killed together."""
        lock = Path(repository.folder, _INDEX_LOCK)
        if lock.is_symlink() and lock.readlink() == self._worktree.shadow / "lock":
            lock.unlink()
        git.let_go(merge.ref, merge.commit)
        if left_in(head := Path(repository.folder, "HEAD.lock")) in {"", merge.commit}:
            head.unlink(missing_ok=True)

    def _take_up(self, repository: Repository, git: Git, was: str, commit: str, index: str) -> None:
        """Note in the index which files of a commit are there already, and remove those half written."""
        listed = git.run("diff-tree", "-r", "-z", was, commit).decode(errors="surrogateescape").split("\0")
        changes = ((*change.split(), path) for change, path in zip(listed[::2], listed[1::2], strict=False))
        meant = {path: (mode, blob) for _, mode, _, blob, _, path in changes if mode != _GONE}
        trial = self._index_copied(repository, self._worktree.shadow / "theirs")
        _enter(git, meant, trial)
        told = git.run("diff-files", "-z", "--name-only", index=trial)
        unlike = {os.fsdecode(path) for path in told.split(b"\0")}
        _enter(git, {path: entry for path, entry in meant.items() if path not in unlike}, index)
        for path in unlike & meant.keys():
            mode, blob = meant[path]
            file = Path(repository.top, path)
            if mode in _FILES and _is_half_of(file, repository.top, git.run("cat-file", "blob", blob)):
                file.unlink()


def _enter(git: Git, entries: Mapping[str, tuple[str, str]], index: str) -> None:
    """Write modes and blobs of files into an index, and look at the files."""
    lines = "".join(f"{mode} {blob}\t{path}\0" for path, (mode, blob) in entries.items())
    git.run("update-index", "-z", "--index-info", given=os.fsencode(lines), index=index)
    git.run("update-index", "--refresh", index=index, fine=(0, 1))


def _is_half_of(file: Path, top: str, content: bytes) -> bool:
    """Return whether a file holds the beginning of a content, and no more."""
    if is_linked(str(file.parent), top) or not file.is_file() or file.is_symlink():
        return False
    return file.stat().st_size < len(content) and content.startswith(file.read_bytes())


def _differing(git: Git, one: str, other: str) -> int:
    """Return in how many files two trees differ."""
    return git.run("diff-tree", "-r", "-z", "--name-only", one, other).count(b"\0")


@contextmanager
def _moving() -> Iterator[None]:
    """Move the checkout or the branch: a crash may come before, between and after the two."""
    reached("before_landing")
    yield
    reached("after_landing")


def lacking(root: str, story: str, state_dir: Path, environment: Mapping[str, str]) -> str | None:
    """Return the branch that a project has checked out, if it is without a story's; None: it has all of that.

    A detached HEAD is `HEAD`. Blocks. Raises StoreError.
    """
    with Worktree(root, state_dir, environment).opened(LIMIT_S) as (repository, git):
        end, head = end_of(repository, f"{HEADS}{branch_of(repository, story)}"), repository.head()
        if not end or (head is not None and git.is_so("merge-base", "--is-ancestor", end, head)):
            return None
        return (repository.branch_at(repository.folder) or "HEAD").removeprefix(HEADS)


def cut_off(state_dir: Path) -> tuple[str, ...]:
    """Return the projects in which a landing was cut off. Blocks."""
    notes = (state_dir / "snapshots").glob(f"*/{_NOTE}")
    return tuple(os.fsdecode((note.parent / "root").read_bytes()) for note in notes)


def _paths(listed: bytes) -> set[str]:
    return {os.fsdecode(path) for path in listed.split(b"\0") if path}


def _in_the_way(repository: Repository, why: str, look: str = "status --short") -> Refused:
    return Refused(why, code=IN_THE_WAY, hint=f"git -C {quote(repository.top)} {look}")


def _busy(repository: Repository, error: StoreError) -> Refused | None:
    """Return the refusal while another git works in the checkout; None where an error is another one."""
    if "index.lock" not in error.message:
        return None
    hint = f"git -C {quote(repository.top)} status --short"
    return Refused(f"another git works in your checkout: {error}", code=BUSY, hint=hint)


def _changed_in(repository: Repository, git: Git, merge: Merge) -> list[str]:
    """Return the files of a merge that a person has changed, or has made beside git."""
    index = os.path.join(repository.folder, "index")
    theirs = git.run("ls-files", "-z", "--modified", "--deleted", "--others", "--deduplicate", index=index)
    theirs += git.run("diff-index", "-z", "--cached", "--name-only", merge.was, index=index)
    ours = {*git.run("diff-tree", "-r", "-z", "--name-only", merge.was, merge.commit).split(b"\0")}
    return sorted({os.fsdecode(path) for path in theirs.split(b"\0") if path and path in ours})


def _branches(repository: Repository) -> str:
    return f"git -C {quote(repository.top)} branch --list 'handoffd/*'"
