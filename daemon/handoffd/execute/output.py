"""Reads a run's output while it runs or afterwards, by position in the whole output.

The file may be a ring that the shim is writing (see `runner.capture`), and it is in the project, where an
agent can replace it. So positions come from the run directory, and the file counts only while its inode is
the one that the shim created.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from msgspec import Struct

from handoffd.execute import base
from handoffd.execute.runner import capture

_PIECE_BYTES = 64 * 1024
_TRIES = 100
REPLACED = b"[handoffd: this file is no longer the one that the run's output was written to]\n"


class Chunk(Struct, frozen=True, kw_only=True):
    """Part of an output. `left_out` bytes before `data` are not kept; the next part begins at `next`."""

    data: bytes
    next: int
    left_out: int = 0


def output_bytes(run_dir: Path) -> int:
    """Return how many bytes the run has written so far; 0 if it was not started."""
    position = _position(run_dir)
    return position.total if position else 0


def heard_ns(run_dir: Path) -> int:
    """Return when the run last printed anything, in nanoseconds since 1970; 0 if it was not started.

    Its shim writes the position file at each output, also if that is not kept.
    """
    try:
        return (run_dir / base.POSITION).stat().st_mtime_ns
    except OSError:
        return 0


def read_from(run_dir: Path, output: Path | str, position: int, limit: int = _PIECE_BYTES) -> Chunk:
    """Return up to `limit` bytes of the whole output, from byte `position` on.

    `data` is empty while there is nothing more: ask again from `next`. Bytes that are no longer kept are
    skipped and counted. Never follows a link, waits, or raises for anything that an agent did to the file:
    a replaced file reads as the line `REPLACED`, at position 0.
    """
    fd = _open(output)
    # The position only after that: the shim records a new file there before it renames the file into place.
    now = _position(run_dir)
    try:
        if now is None:
            return Chunk(data=b"", next=position)
        if fd is None:
            return Chunk(data=b"", next=max(position, now.total), left_out=max(0, now.total - position))
        inode = os.fstat(fd).st_ino
        if inode in (now.ring, now.linear):
            return _Reader(run_dir, fd, inode).read(position, limit)
        return Chunk(data=REPLACED if position < now.total else b"", next=max(position, now.total))
    finally:
        if fd is not None:
            os.close(fd)


def read_output(run_dir: Path, output: Path | str, *, last: int | None = None) -> bytes:
    """Return the kept output, with one line in place of the bytes that are not kept.

    `last`: at most this many bytes, from its end.
    """
    end = output_bytes(run_dir)
    at = 0 if last is None else max(0, end - last)
    parts: list[bytes] = []
    while at < end:
        chunk = read_from(run_dir, output, at, min(_PIECE_BYTES, end - at))
        if chunk.left_out and last is None:
            parts.append(capture.left_out_line(chunk.left_out))
        parts.append(chunk.data)
        if chunk.next == at:
            break
        at = chunk.next
    return b"".join(parts)


_REFUSED = re.compile(rb"(?i)read-only file system|permission denied|operation not permitted|EROFS|EACCES")
_PATH = re.compile(rb"(?<![\w./~-])/[\w.@+~=-]+(?:/[\w.@+~=-]+)*")
_LAST_BYTES = 256 * 1024
_MOST_REFUSED = 10


def refused_paths(run_dir: Path, output: Path | str, inside: str) -> tuple[str, ...]:
    """Return the paths outside of a folder that a run could not write or read, as the end of its output says.

    A program may print anything, and many that meet a hidden path only say that it does not exist.
    """
    found: dict[str, None] = {}
    for line in read_output(run_dir, output, last=_LAST_BYTES).splitlines():
        if _REFUSED.search(line):
            found |= dict.fromkeys(path.decode("ascii", "replace") for path in _PATH.findall(line))
    elsewhere = (path for path in found if not f"{path}/".startswith(f"{inside.rstrip('/')}/"))
    return tuple(elsewhere)[:_MOST_REFUSED]


def _position(run_dir: Path) -> capture.Position | None:
    path = run_dir / base.POSITION
    for _ in range(_TRIES):
        try:
            raw = path.read_bytes()
        except OSError:
            return None
        # A record read in the middle of a write is half old and half new; the next read gets a whole one.
        if position := capture.Position.decode(raw):
            return position
    return None


def _open(output: Path | str) -> int | None:
    try:
        fd = os.open(output, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


class _Reader:
    """Reads from one open output file; the place of a byte depends on the file's layout."""

    def __init__(self, run_dir: Path, fd: int, inode: int) -> None:
        self._run_dir = run_dir
        self._fd = fd
        self._inode = inode

    def read(self, position: int, limit: int) -> Chunk:
        now = _position(self._run_dir)
        if now is None:
            return Chunk(data=b"", next=position)
        start = self._first_kept(now, position)
        data = self._bytes(now, start, min(now.total, start + limit))
        # The writer may have overwritten part of the ring while we read it.
        later = _position(self._run_dir) or now
        trusted = self._first_kept(later, start)
        data = data[trusted - start :]
        return Chunk(data=data, next=trusted + len(data), left_out=trusted - position)

    def _is_linear(self, now: capture.Position) -> bool:
        return self._inode == now.linear

    def _first_kept(self, now: capture.Position, position: int) -> int:
        """Return the first kept position at or after `position`."""
        if position < now.head:
            return position
        margin = 0 if self._is_linear(now) else capture.chunk_bytes(now.tail)
        return max(position, now.head, now.total + margin - now.tail)

    def _bytes(self, now: capture.Position, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        if start < now.head:
            return os.pread(self._fd, min(end, now.head) - start, start)
        if self._is_linear(now) and now.left_out:
            from_end = now.total - start
            return os.pread(self._fd, end - start, max(0, os.fstat(self._fd).st_size - from_end))
        turned = (start - now.head) % now.tail
        first = os.pread(self._fd, min(end - start, now.tail - turned), now.head + turned)
        rest = end - start - (now.tail - turned)
        return first + (os.pread(self._fd, rest, now.head) if rest > 0 else b"")
