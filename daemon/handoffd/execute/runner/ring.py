"""Bounded output: the beginning and the end are kept, the middle of a flood is counted.

The file holds `head` bytes, then a ring of `tail` bytes that is written round and round. Beside it,
in the run directory, a position file says how far the writing is, so that others can read along.
When the run is over and the ring has been round, a linear copy with one line in place of the middle
takes the file's name. A reader tells the two layouts apart by inode: both are in the position file
before the name changes hands. A full disk costs output, never the run: what could not be written
is counted as if it had been.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

_FLAGS = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CHUNK_BYTES = 64 * 1024
_FIELD = b"%020d"
_FIELDS = 6
_RECORD_BYTES = _FIELDS * 21


def chunk_bytes(tail: int) -> int:
    """Return the most that is written at once: what a reader must fear for behind the ring's hand."""
    return max(1, min(_CHUNK_BYTES, tail // 8))


class Position(NamedTuple):
    """How far the writing is: `total` bytes were produced; `ring` and `linear` are inodes.

    The file with inode `linear` (0: there is none) holds no ring any more.
    """

    total: int
    head: int
    tail: int
    ring: int
    linear: int

    @property
    def left_out(self) -> int:
        """How many bytes of the middle are not kept."""
        return max(0, self.total - self.head - self.tail)

    def encode(self) -> bytes:
        """Return the record; the total stands first and last, so a torn reading shows."""
        return b" ".join(_FIELD % number for number in (*self, self.total)) + b"\n"

    @staticmethod
    def decode(raw: bytes) -> Position | None:
        """Return the position in `raw`, or None when it is torn or no record."""
        try:
            *numbers, last = map(int, raw.split())
            position = Position(*numbers)
        except (TypeError, ValueError):
            return None
        return position if len(raw) == _RECORD_BYTES and position.total == last else None


def left_out_line(count: int) -> bytes:
    """Return what stands for the `count` bytes of the middle that are not kept."""
    return b"\n[handoffd: %d bytes left out here]\n" % count


class Output(NamedTuple):
    """The output file, open, and its folder: later renames happen there whatever the path says."""

    fd: int
    folder: int
    name: str


def _open_folder(path: str, trusted: str) -> int:
    """Return a descriptor of the folder `path`, created where missing, no link followed.

    `trusted` may itself be reached through links; if `path` is not below it, nothing may.
    """
    base = trusted.rstrip("/") + "/"
    if not f"{path}/".startswith(base):
        base = "/"
    folder = os.open(base, _FOLDER)
    for part in filter(None, path[len(base) :].split("/")):
        parent = folder
        try:
            folder = _open_part(part, parent)
        finally:
            os.close(parent)
    return folder


def _open_part(name: str, parent: int) -> int:
    flags = _FOLDER | os.O_NOFOLLOW
    try:
        return os.open(name, flags, dir_fd=parent)
    except FileNotFoundError:
        os.mkdir(name, 0o755, dir_fd=parent)
        return os.open(name, flags, dir_fd=parent)


def open_output(path: str, trusted: str) -> Output:
    """Create the file `path` afresh and return it; whatever had the name is unlinked, not opened.

    Raises OSError when a folder on the way is a link or no folder.
    """
    folder, name = os.path.split(os.path.normpath(path))
    opened = _open_folder(folder, os.path.normpath(trusted))
    try:
        return Output(_open_new(name, opened), opened, name)
    except OSError:
        os.close(opened)
        raise


def _open_new(name: str, folder: int) -> int:
    try:
        return os.open(name, _FLAGS, 0o600, dir_fd=folder)
    except FileExistsError:
        os.unlink(name, dir_fd=folder)
        return os.open(name, _FLAGS, 0o600, dir_fd=folder)


class Ring:
    """Writes one run's output, and closes what it was given in the end.

    `output` None: everything is counted and only the end remembered.
    """

    def __init__(self, output: Output | None, position_fd: int, head: int, tail: int, remember: int) -> None:
        self._output = output
        self._position_fd = position_fd
        self._head = head
        self._tail = tail
        self._remember = remember
        self._inode = os.fstat(output.fd).st_ino if output else 0
        self._linear = 0
        self._chunk = chunk_bytes(tail)
        self.total = 0
        self.end = b""
        self.error: str | None = None
        self._note_position()

    def write(self, data: memoryview) -> None:
        """Take `data` as the next bytes of output; never raises for a file that cannot be written."""
        for start in range(0, len(data), self._chunk):
            self._write_chunk(data[start : start + self._chunk])

    def heard(self) -> None:
        """Take note that something came which is not kept: others see when the position was noted last."""
        self._note_position()

    def close(self) -> None:
        """Put the file in reading order under its name; a failure leaves the ring, still readable."""
        output, self._output = self._output, None
        if output is not None:
            self._attempt(lambda: self._linearise(output))
            os.close(output.fd)
            os.close(output.folder)
        if self._position_fd >= 0:
            os.close(self._position_fd)
            self._position_fd = -1

    def _write_chunk(self, data: memoryview) -> None:
        self.end = (self.end + bytes(data[-self._remember :]))[-self._remember :]
        output = self._output
        if output is not None:
            self._attempt(lambda: self._place(output.fd, data))
        self.total += len(data)
        self._note_position()

    def _place(self, fd: int, data: memoryview) -> None:
        at = self.total
        while data:
            if at < self._head:
                room, offset = self._head - at, at
            else:
                turned = (at - self._head) % self._tail
                room, offset = self._tail - turned, self._head + turned
            written = os.pwrite(fd, data[:room], offset)
            data = data[written:]
            at += written

    def _linearise(self, output: Output) -> None:
        left_out = self._position().left_out
        if not left_out:
            self._linear = self._inode
            self._note_position()
            return
        turn = self._head + (self.total - self._head) % self._tail
        parts = (
            os.pread(output.fd, self._head, 0),
            left_out_line(left_out),
            os.pread(output.fd, self._head + self._tail - turn, turn),
            os.pread(output.fd, turn - self._head, self._head),
        )
        self._replace(output, b"".join(parts))

    def _replace(self, output: Output, content: bytes) -> None:
        beside = f".{output.name}.{os.getpid()}"
        fd = os.open(beside, _FLAGS, 0o600, dir_fd=output.folder)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(fd, view) :]
            self._linear = os.fstat(fd).st_ino
            self._note_position()
            os.rename(beside, output.name, src_dir_fd=output.folder, dst_dir_fd=output.folder)
        except OSError:
            self._linear = 0
            self._note_position()
            os.unlink(beside, dir_fd=output.folder)
            raise
        finally:
            os.close(fd)

    def _position(self) -> Position:
        return Position(self.total, self._head, self._tail, self._inode, self._linear)

    def _note_position(self) -> None:
        if self._position_fd >= 0:
            self._attempt(lambda: os.pwrite(self._position_fd, self._position().encode(), 0))

    def _attempt(self, action: Callable[[], object]) -> None:
        """Do `action`; note why it failed, the first time, and go on."""
        try:
            action()
        except OSError as error:
            self.error = self.error or f"{error.strerror}: output is incomplete"
