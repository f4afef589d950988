"""The floor as an engine: `inside/spawn_loop.py`, in this interpreter, with no server and no memory."""

from __future__ import annotations

import contextlib
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.peers.engine import Engine, Running, Scripted, Work, script_of


class Floor(Engine):
    """A loop around posix_spawn."""

    name = "floor"

    def install(self) -> str:
        """Return the version of this interpreter."""
        return f"posix_spawn loop, Python {platform.python_version()}"

    @contextlib.contextmanager
    def opened(self, work: Work) -> Iterator[Running]:
        """Lend a loop that has not begun."""
        argv = script_of(Path(sys.executable), "spawn_loop", work, {})
        with contextlib.closing(Scripted(argv, work.folder, [])) as running:
            yield running
