"""Work in a thread that may take only so much of a processor.

A limit on a wall clock says more about the machine than about the work: while many agents compile at
once, what takes a millisecond may take seconds. So what the thread itself has used is looked at. The
wall clock stands behind that, for work that waits instead of calculating.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import anyio
from anyio import to_thread

_T = TypeVar("_T")

LOOK_S = 0.05


async def within_cpu(work: Callable[[Meter], _T], wall_s: float) -> _T:
    """Return what `work` returns, called in a thread, or raise what it raises.

    It is handed a meter, and may take as much of the processor as it likes until it sets a limit there.
    Raises TimeoutError when it has used that up, which it says, or without a word after `wall_s` seconds.
    The thread is left to itself then: nobody can end one from outside.
    """
    meter = Meter()
    values: list[_T] = []
    failures: list[Exception] = []
    with anyio.fail_after(wall_s):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(meter.watch, tasks.cancel_scope)
            try:
                values.append(await to_thread.run_sync(work, meter, abandon_on_cancel=True))
            except Exception as error:  # raised below, where no group is wrapped around it
                failures.append(error)
            tasks.cancel_scope.cancel()
    if failures:
        raise failures[0]
    if not values:
        raise TimeoutError(f"more than {meter.limit_s:g} s of processor time")
    return values[0]


class Meter:
    """The processor time of one call, read from another thread."""

    def __init__(self) -> None:
        self._clock: int | None = None
        self._began = 0.0
        self.limit_s = 0.0

    def limit(self, cpu_s: float) -> None:
        """Allow the calling thread `cpu_s` seconds of a processor from now on."""
        self.limit_s = cpu_s
        self._began = time.thread_time()  # the thread comes from a pool and has worked before
        self._clock = time.pthread_getcpuclockid(threading.get_ident())

    async def watch(self, scope: anyio.CancelScope) -> None:
        """Cancel `scope` when the thread has used up what it may."""
        # A thread that calculates tells nobody how long it has, so it is looked at.
        while self._clock is None or time.clock_gettime(self._clock) - self._began < self.limit_s:  # noqa: ASYNC110
            await anyio.sleep(LOOK_S)
        scope.cancel()
