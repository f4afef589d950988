"""Which handoffd a project belongs to, also while that one rests or does not run at all.

A lock ends with its process, and a project at rest has none. But two daemons that supervise one project in
turn each take the other's STATE.json for an edit from outside, and put their own back. So the folder carries
the name of its owner in an extended attribute: no file, nothing for git, and read in two microseconds.

An agent can write there, too. So nothing is opened because of it, and it opens no gate: a forged name keeps
one folder from its daemon, until a person takes it. Where no attribute can be written, only the locks keep
daemons apart, and `add` asks those that run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from handoffd.engine.commands import command_for
from handoffd.errors import Foreign

log = structlog.get_logger(__name__)

_ATTRIBUTE = "user.handoffd"
_OWNS, _LEFT = b"owns", b"left"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a folder says: the state directory of its owner, or of the one that has removed it.

    `inode` is the folder's that was marked: a copy carries the mark of another one.
    """

    state_dir: str
    inode: int
    left: bool = False

    def to_bytes(self) -> bytes:
        """Return what is written to the folder."""
        return b"\0".join((_LEFT if self.left else _OWNS, b"%d" % self.inode, os.fsencode(self.state_dir)))

    @classmethod
    def from_bytes(cls, value: bytes) -> Mark | None:
        """Return the mark that was written; None for anything else, which an agent may have put there."""
        parts = value.split(b"\0")
        if len(parts) != 3 or parts[0] not in {_OWNS, _LEFT} or not parts[2].startswith(b"/"):
            return None
        if not parts[1].isdigit() or len(parts[1]) > 20:
            return None
        return cls(state_dir=os.fsdecode(parts[2]), inode=int(parts[1]), left=parts[0] == _LEFT)


def owner_of(root: str, state_dir: Path) -> str | None:
    """Return the state directory of another daemon that the project belongs to; None: it is free, or ours.

    It is free when that one has removed it, or is gone with its state directory; and a copy is free.
    """
    mark = _read(root)
    if mark is None or mark.left or _is_same(mark.state_dir, state_dir):
        return None
    try:
        is_marked = os.stat(root).st_ino == mark.inode
        os.stat(mark.state_dir)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return mark.state_dir  # another account's, which lets nobody look
    return mark.state_dir if is_marked else None


def former_owner(root: str, state_dir: Path) -> str | None:
    """Return the state directory of another daemon that has had the project last; None: we had, or nobody."""
    mark = _read(root)
    return None if mark is None or _is_same(mark.state_dir, state_dir) else mark.state_dir


def own(root: str, state_dir: Path) -> None:
    """Write that the project belongs to the daemon of that state directory; its lock is held."""
    _write(root, state_dir, left=False)


def leave(roots: Iterable[str], state_dir: Path) -> None:
    """Write that projects do not belong to the daemon of that state directory any more, where they did."""
    for root in roots:
        mark = _read(root)
        if mark is not None and not mark.left and _is_same(mark.state_dir, state_dir):
            _write(root, state_dir, left=True)


def belongs(root: str, state_dir: str) -> Foreign:
    """Return that the project belongs to the daemon of that state directory, and what a person can do."""
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
        mark = Mark(state_dir=str(state_dir), inode=os.stat(root).st_ino, left=left)
        if mark != _read(root):
            os.setxattr(root, _ATTRIBUTE, mark.to_bytes())
    except OSError as error:  # a file system without such attributes, or a folder of another account
        log.debug("project not marked as ours", project=root, error=error.strerror)


def _is_same(one: str, other: Path) -> bool:
    if one == str(other):
        return True
    with suppress(OSError):
        return os.path.samefile(one, other)
    return False
