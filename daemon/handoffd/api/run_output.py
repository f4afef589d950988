"""The output of a run, found by project or by run id, whole or as it grows.

Relies on the run's own specification in the state directory for where its output lies: the
project's folders are the agent's to move.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import to_thread

from handoffd.errors import NotFound, StoreError
from handoffd.execute.base import EXIT, SPEC, RunSpec
from handoffd.execute.output import read_from
from handoffd.execute.process import claimed
from handoffd.execute.runner.ring import left_out_line

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}(\.[a-z]{1,16})?")
LOOK_S = 0.1
"""How often a growing output is looked at: a file that grows tells nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """Where the output of one run is."""

    run: str
    run_dir: Path
    output: str

    def is_over(self) -> bool:
        """Return whether nothing more will be written."""
        if (self.run_dir / EXIT).exists():
            return True
        run = claimed(self.run_dir)
        return run is not None and not run.is_running()


class Tail:
    """Reads an output from its beginning to its present end, and on from there."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._position = 0

    def read(self) -> bytes:
        """Return what comes next, a line in place of what was not kept; nothing at the present end."""
        while True:
            chunk = read_from(self._log.run_dir, self._log.output, self._position)
            moved = chunk.next != self._position
            self._position = chunk.next
            left_out = left_out_line(chunk.left_out) if chunk.left_out else b""
            if left_out or chunk.data or not moved:
                return left_out + chunk.data


def find_log(runs_dir: Path, run: str) -> RunLog:
    """Return the output of a run. Raises NotFound for one that is not there."""
    if not _RUN_ID.fullmatch(run):
        raise NotFound(f"{run[:80]!r} is not the id of a run", hint="handoffd runs")
    run_dir = runs_dir / run
    try:
        spec = RunSpec.from_json((run_dir / SPEC).read_text("utf-8"))
    except FileNotFoundError:
        raise NotFound(f"there are no records of run {run}", hint="handoffd runs") from None
    except (OSError, ValueError) as error:
        raise StoreError(f"{run_dir / SPEC} cannot be read: {error}") from error
    return RunLog(run=run, run_dir=run_dir, output=spec.output)


def has_log(runs_dir: Path, run: str) -> bool:
    """Return whether a run was ever prepared for a start: only then can it have an output."""
    return (runs_dir / run / SPEC).is_file()


async def pieces(log: RunLog, *, follow: bool, closing: anyio.Event) -> AsyncIterator[bytes]:
    """Yield the output from its beginning; with `follow`, on until the run is over or `closing`."""
    tail = Tail(log)
    while not closing.is_set():
        over = not follow or await to_thread.run_sync(log.is_over)  # before reading: nothing comes later
        data = await to_thread.run_sync(tail.read)
        if data:
            yield data
        elif over:
            return
        else:
            with anyio.move_on_after(LOOK_S):
                await closing.wait()
