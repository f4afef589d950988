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


async def within_cpu(work: Callable[[], _T], cpu_s: float, wall_s: float) -> _T:
    """Return what `work` returns, called in a thread, or raise what it raises.

    Raises TimeoutError when it has used `cpu_s` seconds of processor time, or after `wall_s` seconds.
    The thread is left to itself then: nobody can end one from outside.
    """
    meter = _Meter()
    values: list[_T] = []
    failures: list[Exception] = []
    with anyio.fail_after(wall_s):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(meter.watch, cpu_s, tasks.cancel_scope)
            try:
                values.append(await to_thread.run_sync(meter.run, work, abandon_on_cancel=True))
            except Exception as error:  # raised below, where no group is wrapped around it
                failures.append(error)
            tasks.cancel_scope.cancel()
    if failures:
        raise failures[0]
    if not values:
        raise TimeoutError(f"more than {cpu_s:g} s of processor time")
    return values[0]


class _Meter:
    """The processor time of one call, read from another thread."""

    def __init__(self) -> None:
        self._clock: int | None = None
        self._began = 0.0

    def run(self, work: Callable[[], _T]) -> _T:
        """Call `work`, metered."""
        self._began = time.thread_time()  # the thread comes from a pool and has worked before
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        return work()

    async def watch(self, cpu_s: float, scope: anyio.CancelScope) -> None:
        """Cancel `scope` when the call has used `cpu_s` seconds."""
        # A thread that calculates tells nobody how long it has, so it is looked at.
        while self._clock is None or time.clock_gettime(self._clock) - self._began < cpu_s:  # noqa: ASYNC110
            await anyio.sleep(LOOK_S)
        scope.cancel()
