"""The git repository of a project: where it is, and whether a person is in the middle of something.

Read from the files that git keeps, without running git: it costs a few looks at names, and anyone may have
written them. A linked worktree and a submodule have a file `.git` that names the folder
where they keep theirs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress

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
    """Return where git keeps what belongs to a working tree; None when that cannot be told."""
    place = os.path.join(repository, ".git")
    if os.path.isdir(place):
        return place
    with suppress(OSError, ValueError):
        file = os.open(place, _READ)
        try:
            text = os.read(file, _LONGEST) if stat.S_ISREG(os.fstat(file).st_mode) else b""
        finally:
            os.close(file)
        if text.startswith(b"gitdir:") and (named := text.removeprefix(b"gitdir:").strip()):
            return os.path.join(repository, os.fsdecode(named))
    return None
