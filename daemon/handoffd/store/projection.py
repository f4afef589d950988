"""A project's `.ai` files: STATE.json, our projection, and the texts others write beside it.

STATE.json is a copy of what the journal holds, for people and tools; losing it loses nothing. It
is replaced whole and read with suspicion, like everything below a project's root (`rooted.py`).
All functions block on the disk for a moment; call them in a worker thread where that matters.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from handoffd.errors import InvalidFile, Problem, StoreError
from handoffd.protocol.handoff import FileMark
from handoffd.store.atomic import replace_at
from handoffd.store.digest import digest_of
from handoffd.store.faults import storage_error, unsafe_file
from handoffd.store.rooted import open_file, open_parent

MAIN = "main"
"""The track every project has."""
LARGEST_STATE = 1024 * 1024
"""Bytes; a STATE.json beyond this is not ours."""

_SMALLEST_PIECE = 4096
_LARGEST_PIECE = 1 << 20

_TRACK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A STATE.json as it was found; `digest` is that of its bytes."""

    text: str
    digest: str
    mtime_ns: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSeen:
    """A file of a project as it was found.

    `inode` and `mtime_ns` were taken before reading: when somebody wrote meanwhile, the file will
    be seen to differ from this mark, and is looked at again.
    """

    content: bytes
    inode: int
    mtime_ns: int

    def mark(self) -> FileMark:
        """Return the identity by which a rewritten file is told from this one."""
        return FileMark(digest=digest_of(self.content), inode=self.inode, mtime_ns=self.mtime_ns)


def state_name(track: str) -> str:
    """Return where a track's STATE file is below the root: `.ai/STATE.json`, or `.ai/states/<track>.json`.

    Raises StoreError for a name that is none of a track.
    """
    if track == MAIN:
        return ".ai/STATE.json"
    if not _TRACK_NAME.fullmatch(track) or ".." in track:
        raise unsafe_file(f".ai/states/{track}.json", "a track's name is letters, digits and ._- only")
    return f".ai/states/{track}.json"


def read_state(root: Path, track: str = MAIN) -> Seen | None:
    """Return a track's STATE file as it is on the disk; None when there is none.

    Raises InvalidFile when it is not UTF-8, StoreError when it is no plain file of at most 1 MiB
    (UNSAFE_FILE), when the root is gone (PROJECT_GONE), or when the disk fails.
    """
    name = state_name(track)
    seen = read_project_file(root, name, LARGEST_STATE)
    if seen is None:
        return None
    try:
        text = seen.content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = seen.content.count(b"\n", 0, error.start) + 1
        problem = Problem(file=str(root / name), line=line, message=f"not UTF-8 at byte {error.start}")
        raise InvalidFile((problem,)) from error
    return Seen(text=text, digest=digest_of(seen.content), mtime_ns=seen.mtime_ns)


def write_state(root: Path, track: str, text: str, over: Collection[str] | None = None) -> str | None:
    """Replace a track's STATE file by `text`, creating `.ai` when missing, and return the digest.

    With `over`, a file with none of these digests is left as it is, and None is returned: it was written
    since it was last looked at. What is written survives a power cut. Raises StoreError like `read_state`;
    the old file then stays.
    """
    name = state_name(track)
    known = None if over is None else partial(_is_one_of, root, name, over)
    return digest_of(text) if _replace(root, name, text, known=known) else None


def _is_one_of(root: Path, relative: str, digests: Collection[str]) -> bool:
    """Return whether the file at `relative` has one of these digests, or is missing."""
    try:
        seen = read_project_file(root, relative, LARGEST_STATE)
    except StoreError:
        return False  # whatever that is, it is not what was looked at
    return seen is None or digest_of(seen.content) in digests


def read_project_file(root: Path, relative: str, cap: int) -> FileSeen | None:
    """Return the file at `relative` below the root; None when it is missing.

    Raises StoreError: UNSAFE_FILE when a symlink is on the way, when it is no regular file, when it
    has more than `cap` bytes or lies outside the root; PROJECT_GONE when the root is missing.
    """
    with open_file(root, relative) as handle:
        if handle is None:
            return None
        try:
            status = os.fstat(handle)
            content = _read_at_most(handle, cap + 1, status.st_size)
        except OSError as error:
            raise storage_error("read", root / relative, error) from error
    if len(content) > cap:
        raise unsafe_file(root / relative, f"it is larger than {cap:,} bytes")
    return FileSeen(content=content, inode=status.st_ino, mtime_ns=status.st_mtime_ns)


def write_project_file(root: Path, relative: str, content: str | bytes, *, durable: bool = True) -> None:
    """Replace the file at `relative` below the root whole, creating its folders when missing.

    Raises StoreError like `read_project_file`; the old file then stays.
    """
    _replace(root, relative, content, durable=durable)


def _replace(
    root: Path,
    relative: str,
    content: str | bytes,
    *,
    durable: bool = True,
    known: Callable[[], bool] | None = None,
) -> bool:
    with open_parent(root, relative, create=True) as folder:
        if folder is None:  # removed at this very moment
            raise storage_error("write", root / relative, FileNotFoundError(2, "its folder was removed"))
        return replace_at(folder, root / relative, content, durable=durable, known=known)


def append_project_file(root: Path, relative: str, text: str) -> None:
    """Append `text` to the file at `relative` below the root, creating it when missing.

    For logs that others append to as well. Raises StoreError like `read_project_file`.
    """
    with open_file(root, relative, append=True) as handle:
        if handle is None:
            raise storage_error("write", root / relative, FileNotFoundError(2, "its folder was removed"))
        try:
            rest = memoryview(text.encode("utf-8"))
            while rest:
                rest = rest[os.write(handle, rest) :]
            os.fsync(handle)
        except OSError as error:
            raise storage_error("write", root / relative, error) from error


def _read_at_most(handle: int, limit: int, size: int) -> bytes:
    """Return at most `limit` bytes of a file that is said to have `size` of them.

    A piece is no larger than the file needs: of a large one that holds little, most goes back to the heap as
    a gap behind what is kept, and thousands of small files are read here all day.
    """
    chunks, missing, piece = [], limit, max(_SMALLEST_PIECE, min(size + 1, _LARGEST_PIECE))
    while missing and (chunk := os.read(handle, min(missing, piece))):
        chunks.append(chunk)
        missing -= len(chunk)
    return b"".join(chunks)
