"""The way of a story's branch into the branch that people work on.

What will be there is made first, as a commit that no branch has, so that it can be tested. Then the branch is
moved, if it still is where it was; a checkout of it follows, and only where no change of a person's
is in the way. A note beside our index says what goes on, so that a landing is finished that was cut off. All
calls block: give them to a thread.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from handoffd.engine.views import Would
from handoffd.engine.wording import conflicts_in_words, counted
from handoffd.errors import Refused, StoreError
from handoffd.failpoints import reached
from handoffd.files.atomic import replace_text
from handoffd.git.branches import HEADS, branch_of
from handoffd.git.checkout import BUSY, IN_THE_WAY, Checkout
from handoffd.git.clones import APART
from handoffd.git.command import (
    Git,
    changed_paths,
    holds,
    in_conflict_by_hand,
    is_commit,
    merged_tree,
    tree_of,
)
from handoffd.git.repository import Repository, end_of
from handoffd.git.worktree import Worktree, disk_faults

LIMIT_S = 60.0
CONFLICT = "CONFLICT"
MOVED = "BRANCH_MOVED"

FOR_LANDING = f"{APART}landing-"
"""How the name begins of a clone in which merged files are tested."""

_NOTE = "landing.json"
_ALONE = b"\nThe branch was rewritten since the story began: this is what the story has changed, alone.\n"
_MOST_NAMED = 10
_PAPERS = (".md", ".txt", ".feature", ".yaml", ".yml", ".json", ".lock")
_MOST_PAPERS, _MOST_READ = 50, 256 * 1024
_PATH = re.compile(r"(?<![\w./-])[\w./-]*\w\.\w+")
"""The look-behind keeps a long word from costing its square."""


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
    alone: bool = False
    """Whether only the story's own changes land: the branch was rewritten since it began."""
    unkept: str | None = None
    """What of the story's clone is not on its branch, in words; None: nothing, or it has none."""
    place: str | None = None
    """The folder of that clone, if a person has to look there."""
    tips: tuple[str, str] = ("", "")
    """Where the story's branch and the other one ended: the same two are not merged on trial again."""

    def in_words(self, *, aborted: bool) -> str:
        """Return what a landing would do, or what there is of an aborted story: the same on every screen."""
        commits, files, onto = counted(self.commits, "commit"), counted(self.files, "file"), self.onto
        if aborted and self.unkept is not None and not self.commits:
            return "aborted; its clone has work that is on no branch"
        if aborted and self.would != "landed":
            return "aborted" if onto is None else f"aborted; {commits} that {onto} does not have"
        if self.unkept is not None:
            return f"{commits}; not all of the story: {self.unkept}"
        match self.would:
            case "landed":
                return f"all of it is on {onto}"
            case "forward":
                return f"{commits}; landing brings {files} to {onto}"
            case "merge" if self.alone:
                return f"{commits}; landing brings {files} in one commit: {onto} was rewritten since it began"
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
    stories: tuple[str, ...] = ()
    """The stories that these have landed, by their trailers."""

    @property
    def to_take_in(self) -> str:
        """What an agent has to do so that its story goes with them."""
        if not self.subjects:
            return (
                f"Your branch has all of {self.onto}, up to {self.commit[:12]}: have all tests pass with it."
            )
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
        self._state_dir, self._environment = state_dir, environment
        self._worktree = Worktree(root, state_dir, environment)

    @disk_faults()
    def prepare(
        self,
        story: str,
        onto: str | None,
        message: bytes,
        at: datetime,
        *,
        base: str | None = None,
        up_to: str | None = None,
        moves: bool = True,
    ) -> Merge:
        """Make the commit that `onto` (None: the branch that is checked out) will end at.

        `base` is the commit that the story began at: where `onto` is without it by now, a person has
        rewritten that, and only what the story has changed since lands. `up_to` is a commit of the story's
        branch, in place of its end. `moves`: the branch will be moved, so that a checkout of it must not be
        in the way.

        Raises Refused: NO_BRANCH, CONFLICT, CHECKOUT_IN_THE_WAY, CHECKOUT_BUSY.
        """
        self._finish_first()
        with self._worktree.opened(LIMIT_S) as (repository, git):
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
                commit = self._merged(git, was, end, branch, message, at, base)
            files = len(changed_paths(git, was, commit))
            merge = Merge(ref=ref, was=was, commit=commit, files=files, branch=branch, end=end)
        if moves:
            with self._standing(merge) as (repository, _, checkout):
                _must_not_be_rebased(repository, merge)
                if checkout is not None:
                    checkout.may_follow(merge.was, merge.commit)
        return merge

    @disk_faults()
    def foreseen(
        self, story: str, onto: str | None, known: Outlook | None = None, base: str | None = None
    ) -> Outlook | None:
        """Return what a landing would do; None where the story has no branch. Changes nothing.

        `known`: what was found before, which holds while neither branch has moved. `base` as of `prepare`.
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
            commits = int(git.run("rev-list", "--count", end, f"^{was}", *([f"^{base}"] if base else [])))
            found = Outlook(
                branch=branch, onto=ref.removeprefix(HEADS), commits=commits, would="landed", tips=(end, was)
            )
            if not commits:
                return found
            alone = _is_rewritten(git, was, base)
            if not alone and git.is_so("merge-base", "--is-ancestor", was, end):
                return replace(found, would="forward", files=len(changed_paths(git, was, end)))
            if not alone and holds(git, was, end):
                return found
            one, other = _alone(git, was, end, base) if alone and base else (was, end)
            tree, conflicts = merged_tree(git, one, other)
            if conflicts:
                found = replace(found, would="conflict", by_hand=self._merging(repository, branch, ref))
                return replace(found, conflicts=_in_conflict(git, one, other, conflicts))
            if tree == tree_of(git, was):
                return found
            return replace(found, would="merge", files=len(changed_paths(git, was, tree)), alone=alone)

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
            shown = "--format=%s%x00%(trailers:key=Story,valueonly,separator=%x20)"
            words = ("log", "--first-parent", shown, f"--max-count={_MOST_NAMED}", commit, f"^{own}")
            told = git.run(*words).decode(errors="replace").splitlines()
            subjects, stories = (
                [line.split("\0")[0] for line in told],
                [line.split("\0")[-1] for line in told],
            )
            return News(
                onto=ref.removeprefix(HEADS), commit=commit, subjects=tuple(subjects),
                stories=tuple(dict.fromkeys(name for names in stories for name in names.split())),
            )  # fmt: skip

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
            changed = set(changed_paths(git, base, end))
            there = _paths(git.run("ls-tree", "-r", "-z", "--name-only", base))
            papers = sorted(path for path in changed if path.endswith(_PAPERS))[:_MOST_PAPERS]
            named: set[str] = set()
            for path in papers:
                text = git.run("cat-file", "blob", f"{end}:{path}", fine=(0, 128))[:_MOST_READ]
                named |= there & paths_in(text)
            return frozenset(path for path in changed | named if not path.endswith(_PAPERS))

    def _merged(
        self, git: Git, was: str, end: str, branch: str, message: bytes, at: datetime, base: str | None
    ) -> str:
        if git.is_so("merge-base", "--is-ancestor", end, was):
            return was
        if base is not None and _is_rewritten(git, was, base):
            tree = _must_fit(git, branch, *_alone(git, was, end, base, at))
            if tree == tree_of(git, was):
                return was
            return git.commit(tree, was, message=message + _ALONE, at=at)
        # One commit goes there as it is. Of several, some add tests that fail at first: who looks for
        # a fault with `git bisect --first-parent` must not meet these.
        if git.run("rev-list", "--parents", end, f"^{was}").split() == [end.encode(), was.encode()]:
            return end
        if holds(git, was, end):
            return was
        return git.commit(_must_fit(git, branch, was, end), was, end, message=message, at=at)

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
            here = Checkout(repository, git, self._worktree.shadow, ref)
            if repository.checkout_of(ref) is None and here.is_changed():
                refused.message += "; your checkout has changes: commit or stash them before you switch"
            raise

    @disk_faults()
    def uncommitted(self) -> tuple[str, ...]:
        """Return the project's files that are not as they were committed, and the new ones."""
        with self._worktree.opened(LIMIT_S) as (repository, git):
            here = Checkout(repository, git, self._worktree.shadow, HEADS)
            is_ours = self._worktree.ours(repository)
            return tuple(path for path in here.uncommitted() if is_ours(os.fsencode(path)))

    @disk_faults()
    def land(self, merge: Merge) -> None:
        """Move the branch, and the checkout of it.

        Raises Refused: MOVED, CHECKOUT_IN_THE_WAY, CHECKOUT_BUSY.
        """
        with self._standing(merge) as (repository, git, checkout):
            note = self._worktree.shadow / _NOTE
            if end_of(repository, merge.ref) != merge.was:
                raise Refused(f"{merge.onto} was moved meanwhile", code=MOVED)
            _must_not_be_rebased(repository, merge)
            if checkout is not None:
                checkout.may_follow(merge.was, merge.commit)
                replace_text(note, msgspec.json.encode(merge))
                self._take_along(checkout, merge)
            try:
                with _moving():
                    git.move_ref(merge.ref, merge.commit, merge.was)
            except StoreError as error:
                if checkout is not None:
                    checkout.follow(merge.commit, merge.was)
                    note.unlink()
                why = f"{merge.onto} was moved meanwhile: {error.message}"
                raise Refused(why, code=MOVED) from error
            note.unlink(missing_ok=True)

    def _take_along(self, checkout: Checkout, merge: Merge) -> None:
        try:
            with _moving():
                checkout.follow(merge.was, merge.commit)
        except StoreError as error:
            if (busy := checkout.busy(error)) is None:  # the next landing, or the next daemon, goes on
                raise
            (self._worktree.shadow / _NOTE).unlink()
            raise busy from error

    @disk_faults()
    def finish(self) -> Merge | None:
        """Finish a landing that was cut off; return it, if there was one."""
        return self._finish()

    def _finish(self) -> Merge | None:
        note = self._worktree.shadow / _NOTE
        try:
            merge = _MERGE.decode(note.read_bytes())
        except (OSError, msgspec.DecodeError):
            return None
        with self._standing(merge) as (repository, git, checkout):
            git.let_go(merge.ref, merge.commit)
            if checkout is not None:
                checkout.let_go(merge.commit)
            at = end_of(repository, merge.ref)
            if checkout is not None and at == merge.was:
                with _moving():
                    checkout.follow(merge.was, merge.commit, cut_off=True)
                with _moving():
                    git.move_ref(merge.ref, merge.commit, merge.was)
                at = merge.commit
            elif checkout is not None and checkout.is_ahead(merge.was, merge.commit, at):
                checkout.follow(merge.commit, merge.was)
            note.unlink()
            return merge if at == merge.commit else None

    def _finish_first(self) -> None:
        try:
            self._finish()
        except StoreError as error:
            why = f"a landing that was cut off waits for your checkout: {error}"
            hint = f"git -C {quote(self._root)} status --short"
            busy = "index.lock" in error.message
            raise Refused(why, code=BUSY if busy else IN_THE_WAY, hint=hint) from error

    @contextmanager
    def _standing(self, merge: Merge) -> Iterator[tuple[Repository, Git, Checkout | None]]:
        """Lend the project's repository, and the working tree that is on the branch, if one is.

        That is the project's own, or another one of the same repository.
        """
        with self._worktree.opened(LIMIT_S) as (repository, git), ExitStack() as others:
            checkout, ref = None, merge.ref
            top = repository.checkout_of(ref) if merge.commit != merge.was else None
            if top == repository.top:
                checkout = Checkout(repository, git, self._worktree.shadow, ref)
            elif top is not None:
                other = Worktree(top, self._state_dir, self._environment)
                there, its = others.enter_context(other.opened(LIMIT_S))
                checkout = Checkout(there, its, other.shadow, ref)
            yield repository, git, checkout


def _is_rewritten(git: Git, was: str, base: str | None) -> bool:
    """Return whether a person has taken the commit that a story began at out of a branch."""
    return base is not None and not git.is_so("merge-base", "--is-ancestor", base, was)


def _alone(git: Git, was: str, end: str, base: str, at: datetime | None = None) -> tuple[str, str]:
    """Return two commits to merge in place of two ends, which have met in `base` and nowhere since."""

    def made(commit: str, *parents: str) -> str:
        return git.commit(f"{commit}^{{tree}}", *parents, message=b"", at=at)

    met = made(base)
    return made(was, met), made(end, met)


def _must_fit(git: Git, branch: str, one: str, other: str) -> str:
    """Return the tree of a merge. Raises Refused (CONFLICT)."""
    tree, paths = merged_tree(git, one, other)
    if paths:
        why = f"{branch} conflicts in {conflicts_in_words(_in_conflict(git, one, other, paths))}"
        raise Refused(why, code=CONFLICT)
    return tree


def _in_conflict(git: Git, one: str, other: str, paths: list[str]) -> tuple[str, ...]:
    """Return the paths of a conflict, and behind them the paths in which only a merge by hand does."""
    return tuple(dict.fromkeys((*paths, *in_conflict_by_hand(git, one, other))))


def _must_not_be_rebased(repository: Repository, merge: Merge) -> None:
    """Raise Refused where a rebase is not over that a person would end, or abort, by moving the branch."""
    if (top := repository.rebase_of(merge.ref)) is not None:
        why, hint = f"{merge.onto} is being rebased in {top}", f"git -C {quote(top)} status"
        raise Refused(why, code=IN_THE_WAY, hint=hint)


@contextmanager
def _moving() -> Iterator[None]:
    """Move the checkout or the branch: a crash may come before, between and after the two."""
    reached("before_landing")
    yield
    reached("after_landing")


class Lacking(Struct, frozen=True, kw_only=True):
    """That what a project has checked out is without a story."""

    checked_out: str
    """The branch; `HEAD` where it is none."""
    lost: str | None = None
    """How the story, or its branch, was lost, in words; None: that is there."""
    back: str | None = None
    """The command that has a lost one back."""


def lacking(
    root: str, story: str, state_dir: Path, environment: Mapping[str, str], known: str | None = None
) -> Lacking | None:
    """Return that what a project has checked out is without a story; None: it has all of it.

    `known` is where the story's branch ended, as far as that was remembered: a person may have deleted it.
    Without either, the story has never had a branch. Blocks. Raises StoreError.
    """
    worktree = Worktree(root, state_dir, environment)
    with worktree.opened(LIMIT_S) as (repository, git), TemporaryDirectory() as git.scratch:
        branch, head = branch_of(repository, story), repository.head()
        kept = repository.refs_at(f"refs/{branch}/discarded-")[-1:]
        end = end_of(repository, f"{HEADS}{branch}")
        lost = None if end else "was discarded" if kept else "has lost its branch"
        end = end or (end_of(repository, kept[0]) if kept else known or "")
        readable = bool(end) and is_commit(git, end)
        if not end or (readable and head is not None and holds(git, head, end)):
            return None
        again = f"git -C {quote(repository.top)} branch {quote(branch)} {quote((kept or [end])[0])}"
        name = (repository.branch_at(repository.folder) or "HEAD").removeprefix(HEADS)
        return Lacking(checked_out=name, lost=lost, back=again if readable and lost else None)


def cut_off(state_dir: Path) -> tuple[str, ...]:
    """Return the projects in which a landing was cut off. Blocks."""
    notes = (state_dir / "snapshots").glob(f"*/{_NOTE}")
    return tuple(os.fsdecode((note.parent / "root").read_bytes()) for note in notes)


def paths_in(text: bytes) -> set[str]:
    """Return the words of a text that may be paths of files."""
    return {word.removeprefix("./") for word in _PATH.findall(text.decode(errors="replace"))}


def _paths(listed: bytes) -> set[str]:
    return {os.fsdecode(path) for path in listed.split(b"\0") if path}


def _branches(repository: Repository) -> str:
    return f"git -C {quote(repository.top)} branch --list 'handoffd/*'"
