"""Which handoffd a project belongs to, also while the daemon rests or does not run at all.

A lock ends with its process, and a project at rest has none. But two daemons that supervise one project in
turn each take the other's STATE.json for an edit from outside, and put their own back. So the folder carries
the name of its owner in an extended attribute: no file, nothing for git, and read in two microseconds.

An agent can write there, too. So nothing is opened because of it, and it opens no gate: a forged name keeps
one folder from its daemon, until a person takes it. Where no attribute can be written, only the locks keep
daemons apart, and `add` asks the daemons that run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import structlog
from msgspec import Struct

from handoffd.engine.wording import command_for
from handoffd.errors import Foreign

log = structlog.get_logger(__name__)

_ATTRIBUTE = "user.handoffd"
_OWNS, _LEFT = b"owns", b"left"
_FORM = re.compile(rb"(owns|left)\0([0-9]{1,20})\0([0-9]{1,20})\0(/[^\0]*)", re.DOTALL)


class Mark(Struct, frozen=True, kw_only=True):
    """A folder's mark: the state directory of its owner, or of the last owner, which has removed it.

    `inode` is that of the marked folder: a copy carries the mark of its original. `state_inode` is that of
    the state directory, which may be moved, too.
    """

    state_dir: str
    state_inode: int
    inode: int
    left: bool = False

    def to_bytes(self) -> bytes:
        """Return what is written to the folder."""
        numbers = b"%d\0%d" % (self.inode, self.state_inode)
        return b"\0".join((_LEFT if self.left else _OWNS, numbers, os.fsencode(self.state_dir)))

    @classmethod
    def from_bytes(cls, value: bytes) -> Mark | None:
        """Return the mark that was written; None for anything else, which an agent may have put there."""
        match = _FORM.fullmatch(value)
        if match is None:
            return None
        said, inode, state_inode, state_dir = match.groups()
        return cls(
            state_dir=os.fsdecode(state_dir),
            state_inode=int(state_inode),
            inode=int(inode),
            left=said == _LEFT,
        )


def owner_of(root: str, state_dir: Path) -> str | None:
    """Return the state directory of another daemon that the project belongs to; None: it is free, or ours.

    It is free when that daemon has removed it, or its state directory is gone; and a copy is free.
    """
    mark = _read(root)
    if mark is None or mark.left or _is_ours(mark, state_dir):
        return None
    try:
        is_marked = os.stat(root).st_ino == mark.inode
        os.stat(mark.state_dir)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return mark.state_dir  # another account's, which this one may not look into
    return mark.state_dir if is_marked else None


def former_owner(root: str, state_dir: Path) -> str | None:
    """Return the state directory of the last owner if that is another daemon; None: this one, or none."""
    mark = _read(root)
    return None if mark is None or _is_ours(mark, state_dir) else mark.state_dir


def own(root: str, state_dir: Path) -> None:
    """Mark the project as the daemon's with that state directory. The caller holds its lock."""
    _write(root, state_dir, left=False)


def leave(roots: Iterable[str], state_dir: Path) -> None:
    """Mark those projects as left that belonged to the daemon with that state directory."""
    for root in roots:
        mark = _read(root)
        if mark is not None and not mark.left and _is_ours(mark, state_dir):
            _write(root, state_dir, left=True)


def belongs(root: str, state_dir: str) -> Foreign:
    """Return the error for a project of the daemon with that state directory, with a person's choices."""
    shown = "".join(sign if sign.isprintable() else "?" for sign in state_dir)
    message = f"the project {root} belongs to the handoffd whose state directory is {shown}"
    take = f"{command_for(root, 'add', '--take')}  # has it here; or say there: {command_for(root, 'remove')}"
    error = Foreign(message, hint=take)
    error.details = {"state_dir": shown}
    return error


def _read(root: str) -> Mark | None:
    try:
        return Mark.from_bytes(os.getxattr(root, _ATTRIBUTE))
    except OSError:
        return None


def _write(root: str, state_dir: Path, *, left: bool) -> None:
    try:
        inode, state_inode = os.stat(root).st_ino, os.stat(state_dir).st_ino
        mark = Mark(state_dir=str(state_dir), state_inode=state_inode, inode=inode, left=left)
        if mark != _read(root):
            os.setxattr(root, _ATTRIBUTE, mark.to_bytes())
    except OSError as error:  # a file system without extended attributes, or a folder of another account
        log.debug("project not marked as ours", project=root, error=error.strerror)


def _is_ours(mark: Mark, state_dir: Path) -> bool:
    """Return whether the mark names that state directory, by whatever path it is reached now."""
    if mark.state_dir == str(state_dir):
        return True
    try:
        return os.path.samefile(mark.state_dir, state_dir)
    except FileNotFoundError:  # ours was moved here, or another one was uninstalled
        with suppress(OSError):
            return os.stat(state_dir).st_ino == mark.state_inode
    except OSError:
        return False
    return False
