"""A daemon whose event loop is watched from inside: `python -m tests.benchmarks.observed OUT CONFIG`.

It is `handoffd run` and one task more, which looks every few milliseconds how late it is woken. On
SIGUSR1 it polls and sweeps once, by hand, and writes to the file OUT what was seen since the last time.
On SIGUSR2 it stops looking, so that it costs nothing, until the next SIGUSR1.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from msgspec.structs import replace

from handoffd.app import daemon, wiring
from handoffd.cli.daemon import _reap_without_threads
from handoffd.clock import SystemClock
from handoffd.metrics.counters import Counted
from handoffd.settings.loading import load
from handoffd.settings.model import Settings

TICK_S = 0.005


class Observed(daemon.Daemon):
    """The daemon, watched."""

    out: Path
    opened: set[str]
    """The absolute paths that were opened since the last report."""

    async def run(self) -> int:
        """Run until asked to stop; return the exit code."""
        self._lags: list[float] = []
        self._ticking = anyio.Event()
        self._ticking.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._tick)
            tasks.start_soon(self._report)
            code = await super().run()
            tasks.cancel_scope.cancel()
        return code

    async def _tick(self) -> None:
        while True:
            await self._ticking.wait()
            due = time.monotonic() + TICK_S
            await anyio.sleep(TICK_S)
            self._lags.append(time.monotonic() - due)

    async def _report(self) -> None:
        with anyio.open_signal_receiver(signal.SIGUSR1, signal.SIGUSR2) as asked:
            async for number in asked:
                if number == signal.SIGUSR2:
                    self._ticking = anyio.Event()
                    continue
                self._ticking.set()
                lags, self._lags, opened = self._lags, [], {*self.opened}
                found = {
                    "lags_ms": [round(lag * 1000, 2) for lag in lags],
                    "opened": sorted(opened),
                    "poll": await self._timed(self._roster.poll),
                    "sweep": await self._timed(self._watcher.sweep_now),
                    "awake": len(self._roster._register.awake),
                }
                new = self.out.with_suffix(".new")
                new.write_text(json.dumps(found))
                os.replace(new, self.out)
                self.opened.clear()

    async def _timed(self, work: Callable[[], Awaitable[None]]) -> dict[str, float]:
        """Return the processor time of the loop's thread, and for how long no other task had a turn."""
        self._lags, begun, began = [], time.thread_time(), time.monotonic()
        await work()
        used, took = time.thread_time() - begun, time.monotonic() - began
        return {
            "loop_ms": round(used * 1000, 2),
            "took_ms": round(took * 1000, 2),
            "longest_ms": round(max(self._lags, default=0.0) * 1000, 2),
        }


async def _serve(settings: Settings) -> int:
    daemon._allow_files()
    counted = Counted(SystemClock())
    async with wiring.parts(settings) as services:
        return await Observed(settings, replace(services, recorder=counted), counted).run()


def _note_opened(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str | Path) and str(arguments[0]).startswith("/"):
        Observed.opened.add(str(arguments[0]))


def main(words: list[str]) -> Any:
    """Be the daemon."""
    out, config = words
    Observed.out, Observed.opened = Path(out), set()
    sys.addaudithook(_note_opened)
    gc.disable()
    _reap_without_threads()
    return anyio.run(_serve, load({"config": config}, dict(os.environ)).settings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
