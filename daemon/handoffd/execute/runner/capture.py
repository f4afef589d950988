"""A run's output on its way: the pipe the program writes to, and the ring it goes into.

The pipe is there before the run is, because a shim is made ready ahead of it. Whoever holds the
writing end may go on writing after the program's end; how long that is waited for is not decided
here.
"""

from __future__ import annotations

import fcntl
import os

from handoffd.execute import base
from handoffd.execute.runner import ring, spawn

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
        self._ring = ring.Ring(None, -1, 0, 1, base.TAIL_BYTES)
        self._sieve = Sieve(())

    def open(self, run_dir: str, spec: base.RunSpec) -> None:
        """Make the output file and its position file; what fails is noted and costs output only."""
        fault, output, position = None, None, -1
        try:
            position = os.open(os.path.join(run_dir, base.POSITION), _POSITION_FLAGS, 0o600)
            output = ring.open_output(spec.output, spec.cwd)
        except (OSError, ValueError) as error:
            fault = spawn.explain(f"output {spec.output!r}", error)
        self._ring = ring.Ring(output, position, spec.head_bytes, spec.tail_bytes, base.TAIL_BYTES)
        self._ring.error = fault or self._ring.error
        self._sieve = Sieve(tuple(beginning.encode() for beginning in spec.partial))

    def close_write_end(self) -> None:
        """Leave the writing to the program; from then on the pipe ends with the last writer."""
        os.close(self.write_end)
        self.write_end = -1

    @property
    def is_over(self) -> bool:
        """Whether nobody can write any more and all has been read."""
        return self.pipe < 0

    def read(self) -> int:
        """Move one piece from the pipe to the ring; the number of bytes, 0 when there was none."""
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
        """Take what is in the pipe, but not more (a process outside the tree may hold it, too); close."""
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
        """How many bytes have been written, without what is not kept by intention."""
        return self._ring.total

    @property
    def error(self) -> str | None:
        """Why output is missing from its file, if any is."""
        return self._ring.error

    @property
    def tail(self) -> str:
        """The end of the output as text; a character cut in two at its start is dropped."""
        end = self._ring.end
        for start in range(min(4, len(end))):
            if end[start] & 0xC0 != 0x80:
                return end[start:].decode("utf-8", "replace")
        return end.decode("utf-8", "replace")


class Sieve:
    """Takes out of an output the lines that begin in one of some ways. Holds no more than a beginning.

    Agents that report their answers word by word print so many lines of that kind that nothing else would be
    left in a bounded output.
    """

    def __init__(self, beginnings: tuple[bytes, ...]) -> None:
        self.beginnings = beginnings
        self._held = b""
        self._is_partial: bool | None = None
        """Of the line that has begun; None while its beginning may be either."""

    def sift(self, data: bytes) -> bytes:
        """Return what of the next `data` is to be kept."""
        *ended, rest = data.split(b"\n")
        kept = [self._take(line + b"\n", ended=True) for line in ended]
        return b"".join([*kept, self._take(rest, ended=False)])

    def rest(self) -> bytes:
        """Return what is held of a line that has no more to come."""
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
    """Give a talkative program room, so that it is not slowed down by us."""
    try:
        fcntl.fcntl(pipe, _F_SETPIPE_SZ, _PIPE_BYTES)
    except OSError:
        return  # the account has used up its allowance of pipe memory; it works as it is
