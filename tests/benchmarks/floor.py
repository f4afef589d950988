"""The floor: the least that any supervisor must do between a hand-off and the next executor.

    python -I -S floor.py ROUNDS FOLDERS PROGRAM ARGUMENT...

One thread, one inotify instance over the `.ai` folders listed in the file FOLDERS (the first one is
that of the project worked on), and a posix_spawn. It keeps no journal, writes no state, reads no
hand-off and renders no prompt; all it promises is that two executors never run at once. Run as a
program of its own, in an interpreter without site-packages.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from pathlib import Path

_IN_MOVED_TO = 0x80
_HEADER = struct.Struct("iIII")
_HANDOFF = b"HANDOFF.md"


class Inotify:
    """One inotify instance."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._checked(self._libc.inotify_init1(os.O_CLOEXEC))

    def _checked(self, value: int) -> int:
        if value < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return value

    def add(self, folder: str) -> int:
        """Watch `folder` for renames into it; return the number its events carry."""
        return self._checked(self._libc.inotify_add_watch(self._fd, os.fsencode(folder), _IN_MOVED_TO))

    def wait_for(self, watch: int, name: bytes) -> None:
        """Return when something was renamed to `name` in the folder of `watch`."""
        while True:
            data = os.read(self._fd, 64 * 1024)
            offset = 0
            while offset < len(data):
                number, _, _, length = _HEADER.unpack_from(data, offset)
                offset += _HEADER.size + length
                if number == watch and data[offset - length : offset].rstrip(b"\0") == name:
                    return


def _spawn(argv: list[str], number: int) -> int:
    environment = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HANDOFFD_RUN": f"floor-{number}",
        "HANDOFFD_STORY": "US-001",
        "HANDOFFD_STEP": f"step-{number:03}",
        "HANDOFFD_ATTEMPT": "1",
    }
    return os.posix_spawn(argv[0], argv, environment)


def main(rounds: int, folders: list[str], argv: list[str]) -> None:
    """Start the program, and again after each of its hand-offs, `rounds` times."""
    inotify = Inotify()
    worked_on, *_ = [inotify.add(folder) for folder in folders]
    os.chdir(os.path.dirname(folders[0]))
    pid = _spawn(argv, 0)
    for number in range(1, rounds + 1):
        inotify.wait_for(worked_on, _HANDOFF)
        os.waitpid(pid, 0)
        pid = _spawn(argv, number)
    os.waitpid(pid, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]).read_text().splitlines(), sys.argv[3:])
