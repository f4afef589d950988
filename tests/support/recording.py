"""A terminal of 80 columns on which commands are typed into a shell, and the screen of each of them."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.children import ending

from handoffd.cli.wording import unstyled

WIDTH, HEIGHT = 80, 40
LIMIT_S = 100.0
_MOST = 65536
_OVER = "\x1e"
"""Printed after each command, with its exit code; no program prints it by itself."""
_MOVES = re.compile(r"\x1b\[[0-9;?]*[A-LN-Za-ln-z]")
"""Control sequences other than colours (`m`)."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A command, the lines that it printed, with colours, and its exit code."""

    command: str
    lines: tuple[str, ...]
    code: int

    @property
    def text(self) -> list[str]:
        """Its lines without colours, and without empty ones."""
        return [unstyled(line) for line in self.lines if line]


def recorded(
    commands: Sequence[str], *, env: Mapping[str, str], folder: Path, keys: Mapping[str, str]
) -> list[Shown]:
    """Type commands one after the other, up to the first that fails; return what each showed.

    Of `keys`, each is hit when its text has appeared. Raises TimeoutError after `LIMIT_S` without output.
    """
    after = f"code=$?; printf '{_OVER}%s{_OVER}' $code; [ $code = 0 ] || exit"
    text = "".join(f"{command}\n{after}\n" for command in commands)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    try:
        with ending(
            subprocess.Popen(
                ["bash", "-uc", text], env=dict(env), cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs
            )
        ):
            os.close(theirs)
            printed = _read_all(ours, keys)
    finally:
        os.close(ours)
    parts = printed.split(_OVER)
    return [
        Shown(command, _lines(parts[2 * number]), int(parts[2 * number + 1]))
        for number, command in enumerate(commands)
        if 2 * number + 1 < len(parts)
    ]


def _read_all(terminal: int, keys: Mapping[str, str]) -> str:
    printed, seen = b"", 0
    while True:
        if not select.select([terminal], [], [], LIMIT_S)[0]:
            raise TimeoutError(printed.decode("utf-8", "replace"))
        try:
            data = os.read(terminal, _MOST)
        except OSError:  # the shell has ended, which closes the terminal
            data = b""
        if not data:
            return printed.decode("utf-8", "replace").replace("\r\n", "\n")
        printed += data
        for text, key in keys.items():
            if text.encode() in printed[seen:]:
                seen = len(printed)
                os.write(terminal, key.encode())


def _lines(printed: str) -> tuple[str, ...]:
    """Return what is left on the terminal: a line that was written over is its last state."""
    lines = (_MOVES.sub("", line).rstrip("\r").rpartition("\r")[2].rstrip() for line in printed.split("\n"))
    return tuple(lines)
