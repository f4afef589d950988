"""Where the repository of a project is, and what is not finished in it, without running git.

Read from the files that git keeps: it costs a few looks at names, and anyone may have written them. A linked
worktree and a submodule have a file `.git` that names the folder where they keep theirs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from shlex import quote

from msgspec import Struct

from handoffd.errors import StoreError

NO_REPOSITORY = "NO_REPOSITORY"

_UNFINISHED: Mapping[str, str] = {
    "rebase-merge": "rebase",
    "rebase-apply/applying": "patch series (git am)",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "sequencer": "cherry-pick or revert",
    "BISECT_LOG": "bisect",
}
"""What is in git's folder while something is not finished. In a rebase there may be the others as well."""

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LONGEST = 4096 + len("gitdir: \n")


class Repository(Struct, frozen=True, kw_only=True):
    """The repository of a project whose git folder is this account's own, and no link."""

    top: str
    """The working tree's top folder: the project's root, or one above it."""
    within: str
    """The project's root from there, with a `/` at its end; empty when they are the same."""
    folder: str
    """Where git keeps HEAD and the index of this working tree."""
    common: str
    """Where it keeps the objects and branches, which linked worktrees share."""

    @property
    def place(self) -> str:
        """What tells this project from others of the repository, as a part of refs; empty: the only one."""
        linked = "" if self.folder == self.common else f"{os.path.basename(self.folder)}/"
        return linked + self.within


def repository_at(root: str) -> Repository:
    """Return the repository of a project. Blocks. Raises StoreError where nothing may be kept in it."""
    top = repository_of(root)
    folder = None if top is None else _folder_of_git(top)
    if top is None or folder is None:
        raise StoreError(
            f"{root} is in no git repository", code=NO_REPOSITORY, hint=f"git -C {quote(root)} init"
        )
    common = os.path.normpath(os.path.join(folder, _line_in(os.path.join(folder, "commondir")) or "."))
    for path in (os.path.join(top, ".git"), common):
        _must_be_ours(path)
    if os.path.lexists(os.path.join(folder, "info/sparse-checkout")):
        raise StoreError(
            f"{top} is a sparse checkout: files are missing there on purpose", code=NO_REPOSITORY
        )
    within = os.path.relpath(os.path.abspath(root), top)
    return Repository(
        top=top, within="" if within == "." else f"{within}/", folder=os.path.normpath(folder), common=common
    )


def _must_be_ours(path: str) -> None:
    """Objects of another account in its folder would keep that account from adding any."""
    try:
        status = os.lstat(path)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}", code=NO_REPOSITORY) from error
    if stat.S_ISLNK(status.st_mode):
        raise StoreError(f"{path} is a link", code=NO_REPOSITORY)
    if status.st_uid != os.geteuid():
        raise StoreError(
            f"{path} belongs to another account", code=NO_REPOSITORY, hint=f"ls -ld {quote(path)}"
        )


def repository_of(root: str) -> str | None:
    """Return the folder, `root` or one above it, that has the `.git` which git would use; or None."""
    folder = os.path.abspath(root)
    while not os.path.lexists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return folder


def unfinished_in(root: str) -> str | None:
    """Return what is not finished in the repository of a project (`merge`, ...); None: nothing. Blocks."""
    folder = repository_of(root)
    git = None if folder is None else _folder_of_git(folder)
    if git is None:
        return None
    return next(
        (what for name, what in _UNFINISHED.items() if os.path.lexists(os.path.join(git, name))), None
    )


def _folder_of_git(repository: str) -> str | None:
    """Return the git directory of a working tree; None when it is unknown."""
    place = os.path.join(repository, ".git")
    if os.path.isdir(place):
        return place
    line = _line_in(place)
    named = line.removeprefix("gitdir:").strip() if line.startswith("gitdir:") else ""
    return os.path.join(repository, named) if named else None


def _line_in(path: str) -> str:
    """Return what a small file of git says; empty when it is none, a link or a pipe."""
    with suppress(OSError, ValueError):
        file = os.open(path, _READ)
        try:
            text = os.read(file, _LONGEST) if stat.S_ISREG(os.fstat(file).st_mode) else b""
        finally:
            os.close(file)
        return os.fsdecode(text.strip())
    return ""
