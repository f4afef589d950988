"""Which handoffd a project belongs to, also while that one rests or does not run at all.

A lock ends with its process, and a project at rest has none. But two daemons that supervise one project in
turn each take the other's STATE.json for an edit from outside, and put their own back. So the folder carries
the name of its owner in an extended attribute: no file, nothing for git, and read in two microseconds. The
name counts while the owner's journal lists the project, at this very folder. A copy of the folder carries it
as well, and is free.

Where a file system has no such attributes, only the locks keep daemons apart.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from handoffd.engine.commands import command_for
from handoffd.errors import Locked
from handoffd.store.database import open_reader
from handoffd.store.holders import DAEMON_LOCK, holder_of

_ATTRIBUTE = "user.handoffd"
_JOURNAL = "journal.db"
_MOST_STEPS = 100_000
"""Of SQLite's machine; one row by its key takes twenty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A daemon by its state directory, and the root by which it knows the project."""

    state_dir: str
    root: str

    def to_bytes(self) -> bytes:
        """Return what is written to the folder: both paths, with a zero byte between them."""
        return os.fsencode(self.state_dir) + b"\0" + os.fsencode(self.root)

    @classmethod
    def from_bytes(cls, value: bytes) -> Owner | None:
        """Return the owner that was written; None for anything else, which an agent may have put there."""
        parts = value.split(b"\0")
        if len(parts) != 2 or not all(part.startswith(b"/") for part in parts):
            return None
        return cls(state_dir=os.fsdecode(parts[0]), root=os.fsdecode(parts[1]))


def own(root: str, state_dir: Path, *, take: bool = False) -> None:
    """Have the project belong to the daemon of that state directory; its lock is held. Blocks on the disk.

    Raises Locked while it belongs to another one, unless a person says to `take` it from there.
    """
    mine, written = Owner(state_dir=str(state_dir), root=root), _read(root)
    if written == mine:
        return
    if written is not None and not take and _holds(written, mine):
        raise _belongs(written, root)
    with suppress(OSError):  # a read-only disk, or one without such attributes
        os.setxattr(root, _ATTRIBUTE, mine.to_bytes())


def _read(root: str) -> Owner | None:
    try:
        return Owner.from_bytes(os.getxattr(root, _ATTRIBUTE))
    except OSError:
        return None


def _holds(owner: Owner, mine: Owner) -> bool:
    """Return whether the project of `mine` still is what another daemon supervises."""
    try:
        if _is_same(owner.state_dir, mine.state_dir) or not _is_same(owner.root, mine.root):
            return False
        return _lists(Path(owner.state_dir, _JOURNAL), owner.root)
    except (FileNotFoundError, NotADirectoryError):
        return False  # that daemon was uninstalled
    except OSError:
        return True  # another account's, which lets nobody look


def _is_same(one: str, other: str) -> bool:
    with suppress(FileNotFoundError, NotADirectoryError):
        return os.path.samefile(one, other)
    return False


def _lists(journal: Path, root: str) -> bool:
    """Return whether a journal has the project among those that are supervised. Raises OSError.

    It may be anything that an agent has made.
    """
    if not stat.S_ISREG(os.stat(journal).st_mode):  # a pipe would be waited for
        return False
    try:
        with closing(open_reader(journal)) as db:
            db.set_progress_handler(lambda: True, _MOST_STEPS)
            asked = "SELECT 1 FROM projects WHERE root = ? AND removed_at IS NULL"
            return db.execute(asked, [root]).fetchone() is not None
    except sqlite3.Error:
        return True


def _belongs(owner: Owner, root: str) -> Locked:
    state_dir = "".join(sign if sign.isprintable() else "?" for sign in owner.state_dir)
    holder = holder_of(Path(owner.state_dir, DAEMON_LOCK))
    running = f"{holder}" if holder is not None else "it does not run"
    message = f"the project {root} belongs to the handoffd whose state directory is {state_dir} ({running})"
    take = command_for(root, "add", "--take")
    error = Locked(
        message, hint=f"{take}  # supervises it here from now on; or remove it there (handoffd remove)"
    )
    error.details = {"state_dir": state_dir}
    return error
