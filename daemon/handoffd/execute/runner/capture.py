"""Captures a run's output: from the pipe to which the program writes, into a bounded file.

The pipe exists before the run, because the launcher prepares a shim in advance. Other processes that hold the
write end may continue after the program's end; the caller decides how long to wait for them.

Of a long output the beginning and the end are kept, and the middle is counted. The file holds `head` bytes,
then a ring of `tail` bytes. A position file in the run directory records how far the writer is, so that other
processes can read at the same time. At the end of a run whose ring has wrapped, a linear copy, with one line
in place of the middle, is renamed over the file. Readers distinguish the two layouts by inode: the position
file has both before the rename. A full disk loses output, never the run: lost bytes are counted as written.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from typing import NamedTuple

from handoffd.execute import base
from handoffd.execute.runner import spawn

_READ_BYTES = 64 * 1024
_PIPE_BYTES = 1024 * 1024
_LAST_READ_BYTES = 4 * _PIPE_BYTES
_F_SETPIPE_SZ = 1031
_POSITION_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class Capture:
    """The output of one run."""

    def __init__(self) -> None:
        self.pipe, self.write_end = os.pipe()
        os.set_blocking(self.pipe, False)
        _enlarge(self.pipe)
        self._buffer = memoryview(bytearray(_READ_BYTES))
        # Until there is a file, output is counted and its end remembered.
        self._ring = Ring(None, -1, 0, 1, base.TAIL_BYTES)
        self._sieve = Sieve(())

    def open(self, run_dir: str, spec: base.RunSpec) -> None:
        """Create the output file and its position file; a failure is recorded and loses output only."""
        fault, output, position = None, None, -1
        try:
            position = os.open(os.path.join(run_dir, base.POSITION), _POSITION_FLAGS, 0o600)
            output = open_output(spec.output, spec.home)
        except (OSError, ValueError) as error:
            fault = spawn.explain(f"output {spec.output!r}", error)
        self._ring = Ring(output, position, spec.head_bytes, spec.tail_bytes, base.TAIL_BYTES)
        self._ring.error = fault or self._ring.error
        self._sieve = Sieve(tuple(beginning.encode() for beginning in spec.partial))

    def close_write_end(self) -> None:
        """Close our write end, so that the pipe ends when the last process of the run closes its own."""
        os.close(self.write_end)
        self.write_end = -1

    @property
    def is_over(self) -> bool:
        """Whether the last writer has closed the pipe and all of it has been read."""
        return self.pipe < 0

    def read(self) -> int:
        """Move one piece from the pipe to the ring; return the number of bytes, 0 if there were none."""
        try:
            count = os.readv(self.pipe, [self._buffer])
        except BlockingIOError:
            return 0
        if count == 0:
            os.close(self.pipe)
            self.pipe = -1
        if not self._sieve.beginnings:
            self._ring.write(self._buffer[:count])
        elif kept := self._sieve.sift(bytes(self._buffer[:count])):
            self._ring.write(memoryview(kept))
        elif count:
            self._ring.heard()
        return count

    def finish(self) -> None:
        """Read what is in the pipe now, and close: a process outside the tree may hold the pipe open."""
        taken = 0
        while not self.is_over and taken < _LAST_READ_BYTES:
            count = self.read()
            if count == 0:
                break
            taken += count
        self._ring.write(memoryview(self._sieve.rest()))
        self._ring.close()

    @property
    def total(self) -> int:
        """How many bytes were written, without the lines that the sieve took out."""
        return self._ring.total

    @property
    def error(self) -> str | None:
        """Why output is missing from its file; None if none is."""
        return self._ring.error

    @property
    def tail(self) -> str:
        """The end of the output as text; a partial character at its start is dropped."""
        end = self._ring.end
        for start in range(min(4, len(end))):
            if end[start] & 0xC0 != 0x80:
                return end[start:].decode("utf-8", "replace")
        return end.decode("utf-8", "replace")


class Sieve:
    """Removes the lines with given beginnings from an output. Buffers at most one beginning.

    Agents that report their answers word by word print thousands of such lines: nothing else would be left in
    a bounded output.
    """

    def __init__(self, beginnings: tuple[bytes, ...]) -> None:
        self.beginnings = beginnings
        self._held = b""
        self._is_partial: bool | None = None
        """Whether the current line is removed; None while its beginning does not decide that yet."""

    def sift(self, data: bytes) -> bytes:
        """Return the part of the next `data` that is kept."""
        *ended, rest = data.split(b"\n")
        kept = [self._take(line + b"\n", ended=True) for line in ended]
        return b"".join([*kept, self._take(rest, ended=False)])

    def rest(self) -> bytes:
        """Return the buffered beginning of a last line without a line break."""
        held, self._held = self._held, b""
        return held

    def _take(self, part: bytes, *, ended: bool) -> bytes:
        if self._is_partial is None:
            part, self._held = self._held + part, b""
            self._is_partial = part.startswith(self.beginnings)
            if not (ended or self._is_partial) and any(one.startswith(part) for one in self.beginnings):
                self._held, self._is_partial = part, None
                return b""
        kept = b"" if self._is_partial else part
        if ended:
            self._is_partial = None
        return kept


def _enlarge(pipe: int) -> None:
    """Enlarge the pipe's buffer, so that a program with much output seldom waits for us."""
    try:
        fcntl.fcntl(pipe, _F_SETPIPE_SZ, _PIPE_BYTES)
    except OSError:
        return  # the account has used up its pipe memory; the default size works, too


# --- the file: a beginning, and a ring ----------------------------------------------------------------
_FLAGS = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CHUNK_BYTES = 64 * 1024
_FIELD = b"%020d"
_FIELDS = 6
_RECORD_BYTES = _FIELDS * 21


def chunk_bytes(tail: int) -> int:
    """Return the size of the largest write; a reader must not trust that much of the ring's oldest part."""
    return max(1, min(_CHUNK_BYTES, tail // 8))


class Position(NamedTuple):
    """How far the writer is: `total` bytes were produced; `ring` and `linear` are inodes.

    The file with inode `linear` (0: there is none) has the linear layout.
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
        """Return the record; the total is its first and last field, so that a torn read is noticed."""
        return b" ".join(_FIELD % number for number in (*self, self.total)) + b"\n"

    @staticmethod
    def decode(raw: bytes) -> Position | None:
        """Return the position in `raw`, or None if it is torn or not a record."""
        try:
            *numbers, last = map(int, raw.split())
            position = Position(*numbers)
        except (TypeError, ValueError):
            return None
        return position if len(raw) == _RECORD_BYTES and position.total == last else None


def left_out_line(count: int) -> bytes:
    """Return the line that replaces the `count` bytes of the middle that are not kept."""
    return b"\n[handoffd: %d bytes left out here]\n" % count


class Output(NamedTuple):
    """The open output file and its folder: a rename uses the folder, even if its path has changed."""

    fd: int
    folder: int
    name: str


def _open_folder(path: str, trusted: str) -> int:
    """Return a descriptor of the folder `path`, created if missing, without following links.

    Only the path of `trusted` itself may contain links; a `path` outside it may contain none.
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
    """Create a new file at `path` and return it; an existing one is unlinked, never opened.

    Raises OSError if a folder on the way is a link or not a folder.
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
    """Writes one run's output; `close` closes the descriptors that it was given.

    With `output` None it counts everything and remembers only the end.
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
        """Write the next bytes of output; never raises for a file that cannot be written."""
        for start in range(0, len(data), self._chunk):
            self._write_chunk(data[start : start + self._chunk])

    def heard(self) -> None:
        """Record that output arrived that is not kept: readers see the time of the position file."""
        self._note_position()

    def close(self) -> None:
        """Replace a wrapped ring by a linear file; after a failure the ring stays, still readable."""
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
        """Do `action`; record the first failure, and continue."""
        try:
            action()
        except OSError as error:
            self.error = self.error or f"{error.strerror}: output is incomplete"
