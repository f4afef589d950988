"""A person's checkout, which follows the branch that it is on when a story lands there.

It follows only where nothing of theirs is in the way: no change, no file that git does not know, an ignored
one included, and no unfinished merge or rebase. Their index is locked as git does it and replaced as a whole;
what a crash cuts off is finished at the next look.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote

from handoffd.engine.wording import first_few
from handoffd.errors import Refused, StoreError
from handoffd.git.branches import HEADS
from handoffd.git.command import FAILED, Git, left_in
from handoffd.git.repository import Repository, unfinished_in
from handoffd.git.worktree import ignoring, in_place_of, is_linked

IN_THE_WAY = "CHECKOUT_IN_THE_WAY"
BUSY = "CHECKOUT_BUSY"

_INDEX_LOCK, _INDEX_COPY, _THEIRS = "index.lock", "handoffd.index", "theirs"
_SHARED_INDEX = "sharedindex.*"
_GONE, _FILES = "000000", {"100644", "100755"}
_MOST_NAMED = 10


class Checkout:
    """A working tree that is on a branch; `shadow` is our folder beside its repository."""

    def __init__(self, repository: Repository, git: Git, shadow: Path, ref: str) -> None:
        self._repository = repository
        self._git = git
        self._shadow = shadow
        self._name = f"your checkout of {ref.removeprefix(HEADS)}"

    # --- whether it may follow -------------------------------------------------------------------
    def may_follow(self, was: str, commit: str) -> None:
        """Raise Refused (CHECKOUT_IN_THE_WAY, CHECKOUT_BUSY) where something of a person's is in the way."""
        if (what := unfinished_in(self._repository.top)) is not None:
            raise self.in_the_way(f"{self._name} is in the middle of a {what}", "status")
        try:
            self._try(was, commit)
        except StoreError as error:
            if (busy := self.busy(error)) is not None:
                raise busy from error
            self._must_have_no_other_file(was, commit)
            raise self._obstructed(was, commit, error) from error
        self._must_have_no_other_file(was, commit)

    def _must_have_no_other_file(self, was: str, commit: str) -> None:
        if paths := self._unknown(was, commit):
            why = f"{self._name} has {first_few(paths)}, which git does not know and the story brings"
            raise self.in_the_way(why, f"stash push --all -- {_named(paths)}")

    def _obstructed(self, was: str, commit: str, error: StoreError) -> Refused:
        paths = self._changed(was, commit)
        what = f"changes of {first_few(paths)} in {self._name} are in the way"
        if paths:
            return self.in_the_way(f"{what}: {error}", f"stash push -- {_named(paths)}")
        # A person has git not look at some files: this list marks them.
        return self.in_the_way(f"{self._name} cannot follow: {error}", "ls-files -v")

    def in_the_way(self, why: str, look: str = "status --short") -> Refused:
        """Return the refusal of a landing; `look` are the words for git that a person types."""
        return Refused(why, code=IN_THE_WAY, hint=f"git -C {quote(self._repository.top)} {look}")

    def busy(self, error: StoreError) -> Refused | None:
        """Return the refusal while another git works in the checkout; None where an error is another one."""
        if _INDEX_LOCK not in error.message:
            return None
        hint = f"git -C {quote(self._repository.top)} status --short"
        return Refused(f"another git works in your checkout: {error}", code=BUSY, hint=hint)

    def is_changed(self) -> bool:
        """Return whether files that git knows are not as they were committed."""
        return bool(self.uncommitted(new=False))

    def uncommitted(self, *, new: bool = True) -> list[str]:
        """Return the files that are not as they were committed; `new`: also the ones it does not know."""
        git, index, head = self._git, self._index_copied(self._shadow / _THEIRS), self._repository.head()
        if head is None:
            return []
        git.run("update-index", "-q", "--refresh", index=index, fine=(0, 1))
        told = git.run("diff-index", "-z", "--name-only", head, index=index)
        told += (
            git.run("ls-files", "-z", *ignoring(self._repository), "--others", index=index) if new else b""
        )
        return sorted({os.fsdecode(path) for path in told.split(b"\0") if path and not path.endswith(b"/")})

    def is_ahead(self, was: str, commit: str, at: str) -> bool:
        """Return whether it has followed a branch that a person has moved elsewhere since, to `at`.

        A person who has committed all that was there has committed the story, too.
        """
        index, listed = self._index_copied(self._shadow / _THEIRS), ("-z", "--name-only")
        ours = {*self._git.run("diff-tree", "-r", *listed, was, commit).split(b"\0")} - {b""}
        unlike = {*self._git.run("diff-index", "--cached", *listed, commit, index=index).split(b"\0")}
        missing = {*self._git.run("diff-tree", "-r", *listed, at, commit).split(b"\0")}
        return not ours & unlike and bool(ours & missing)

    def _try(self, was: str, commit: str) -> None:
        """Raise StoreError where git could not have the files follow. Changes nothing of them."""
        lock = Path(self._repository.folder, _INDEX_LOCK)
        if os.path.lexists(lock):
            raise StoreError(f"{lock} is there", code=FAILED)
        index = self._index_copied(self._shadow / _THEIRS)
        self._git.run("update-index", "--refresh", index=index, fine=(0, 1))
        self._git.run("read-tree", "--dry-run", "-m", "-u", was, commit, index=index)

    def _changed(self, was: str, commit: str) -> list[str]:
        """Return the files to land that a person has changed."""
        git, index = self._git, self._index_copied(self._shadow / _THEIRS)
        theirs = git.run("ls-files", "-z", "--modified", "--deleted", "--deduplicate", index=index)
        theirs += git.run("diff-index", "-z", "--cached", "--name-only", was, index=index)
        ours = {*git.run("diff-tree", "-r", "-z", "--name-only", was, commit).split(b"\0")}
        return sorted({os.fsdecode(path) for path in theirs.split(b"\0") if path and path in ours})

    def _unknown(self, was: str, commit: str) -> list[str]:
        """Return the files in place of new ones that no commit has: git would write over ignored ones."""
        told = self._git.run("diff-tree", "-r", "-z", was, commit).split(b"\0")
        changes = [(line.split(), path) for line, path in zip(told[::2], told[1::2], strict=False)]
        known = {path for (before, *_), path in changes if before != b":" + _GONE.encode()}
        new = (path for (before, after, *_), path in changes if _GONE.encode() in before)
        top = os.fsencode(self._repository.top)
        found = {one for path in new for one in in_place_of(top, path)} - known
        return sorted(map(os.fsdecode, found))

    # --- to follow -------------------------------------------------------------------------------
    def follow(self, was: str, commit: str, *, cut_off: bool = False) -> None:
        """Go from one commit to another; `cut_off`: part of that may be done. Raises StoreError."""
        with self._held() as index:
            self._git.run("update-index", "--refresh", index=index, fine=(0, 1))
            if cut_off:
                self._take_up(was, commit, index)
            self._git.run("read-tree", "-m", "-u", was, commit, index=index)

    def let_go(self, commit: str) -> None:
        """Remove the locks which a daemon and its git have left that were killed together."""
        lock = Path(self._repository.folder, _INDEX_LOCK)
        if lock.is_symlink() and lock.readlink() == self._shadow / "lock":
            lock.unlink()
        if left_in(head := Path(self._repository.folder, "HEAD.lock")) in {"", commit}:
            head.unlink(missing_ok=True)

    @contextmanager
    def _held(self) -> Iterator[str]:
        """Lend a copy of the index, which takes its place in the end.

        Meanwhile the index is locked as git does it, but with a link that names us: a file that a killed git
        has left could be a person's.
        """
        folder, lock = Path(self._repository.folder), Path(self._repository.folder, _INDEX_LOCK)
        try:
            lock.symlink_to(self._shadow / "lock")
        except OSError as error:
            raise StoreError(f"{lock}: {error.strerror}", code=FAILED) from error
        copy = folder / _INDEX_COPY
        try:
            yield self._index_copied(copy)
            copy.replace(folder / "index")
        finally:
            copy.unlink(missing_ok=True)
            lock.unlink(missing_ok=True)

    def _index_copied(self, copy: Path) -> str:
        """Return the path of a copy of the index, as old as that: git reads files again that are as young.

        A split one is written whole: what it is based on is beside it, and our git looks beside its own.
        """
        folder = Path(self._repository.folder)
        for left in (copy, Path(f"{copy}.lock"), *self._shadow.glob(_SHARED_INDEX)):
            left.unlink(missing_ok=True)
        for base in folder.glob(_SHARED_INDEX):
            shutil.copy2(base, self._shadow / base.name)
        with suppress(FileNotFoundError):
            shutil.copy2(folder / "index", copy)
        return str(copy)

    def _take_up(self, was: str, commit: str, index: str) -> None:
        """Note in the index which files of a commit are there already, and remove those half written."""
        git, top = self._git, self._repository.top
        listed = git.run("diff-tree", "-r", "-z", was, commit).decode(errors="surrogateescape").split("\0")
        changes = ((*change.split(), path) for change, path in zip(listed[::2], listed[1::2], strict=False))
        meant = {path: (mode, blob) for _, mode, _, blob, _, path in changes if mode != _GONE}
        trial = self._index_copied(self._shadow / _THEIRS)
        _enter(git, meant, trial)
        told = git.run("diff-files", "-z", "--name-only", index=trial)
        unlike = {os.fsdecode(path) for path in told.split(b"\0")}
        _enter(git, {path: entry for path, entry in meant.items() if path not in unlike}, index)
        for path in unlike & meant.keys():
            mode, blob = meant[path]
            file = Path(top, path)
            if mode in _FILES and _is_half_of(file, top, git.run("cat-file", "blob", blob)):
                file.unlink()


def _named(paths: list[str]) -> str:
    return " ".join(map(quote, paths[:_MOST_NAMED]))


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
