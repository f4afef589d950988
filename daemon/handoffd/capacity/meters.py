"""What work takes: the tokens of every executor that runs, and the processor time of one call.

What running executors print is read along by one task, with one visit to a thread for all of them. To show
a run (`status`), to limit it (budgets) or to judge its end, ask here. Nothing happens while nothing runs.
What is known of a run is bounded, however much it prints.

Work of our own in a thread is limited by the processor time that the thread itself has used. A limit on a
wall clock says more about the machine than about the work: while many agents compile at once, what takes a
millisecond may take seconds. The wall clock is a second limit, for work that waits instead of calculating.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import anyio
import structlog
from anyio import to_thread

from handoffd.clock import Clock, SystemClock
from handoffd.engine.run import Usage
from handoffd.execute.meter import Live, Meter, Source
from handoffd.execute.stream.reader import Seen
from handoffd.settings.model import ExecuteSettings

log = structlog.get_logger(__name__)

NOTE_S = 5.0
"""How often usage is saved: a killed daemon loses no more than this of a long output."""

PATIENCE_S = 10.0
"""How long a look at all runs may take. Runs that hang on their disks are skipped from then on."""


class Meters:
    """The runs whose output is read while they run, by dispatch."""

    def __init__(self, every_s: float = 1.0, clock: Clock | None = None) -> None:
        self._every_s = every_s
        self._clock = clock or SystemClock()
        self._meters: dict[str, Meter] = {}
        self._begun = anyio.Event()
        self._noted_at = self._clock.monotonic()

    def configure(self, settings: ExecuteSettings) -> None:
        """Read as often as the settings say from now on."""
        self._every_s = settings.meter_s

    def begin(self, dispatch: str, source: Source) -> None:
        """Read a run's output from now on, if that is not done already."""
        if dispatch not in self._meters:
            self._meters[dispatch] = Meter(source)
        self._begun.set()

    def live(self, dispatch: str) -> Live | None:
        """Return what is known of a run; None of one that is not read along."""
        meter = self._meters.get(dispatch)
        return meter.live if meter is not None else None

    def usage(self) -> Mapping[str, Usage]:
        """Return what each run has used so far."""
        return {dispatch: meter.live.seen.usage for dispatch, meter in tuple(self._meters.items())}

    def finish(self, dispatch: str, source: Source) -> Seen:
        """Return what the output of a run that is over has told; blocks, and forgets the run."""
        meter = self._meters.pop(dispatch, None) or Meter(source)
        try:
            seen = meter.finish()
        except Exception:  # its end must be judged all the same, and would not be understood next time either
            log.exception("output not understood", dispatch=dispatch)
            return Seen()
        if seen.malformed or seen.left_out:
            log.info(
                "output not read whole", dispatch=dispatch,
                lines=seen.lines, malformed=seen.malformed, left_out=seen.left_out,
            )  # fmt: skip
        return seen

    def forget(self, dispatch: str) -> None:
        """Stop reading a run."""
        self._meters.pop(dispatch, None)

    async def run(self) -> None:
        """Read until cancelled; save the position at the end."""
        try:
            while True:
                await self._begun.wait()  # no limit: nothing runs
                await self.look()
                if not self._meters:
                    self._begun = anyio.Event()
                await anyio.sleep(self._every_s)
        finally:
            with anyio.CancelScope(shield=True):
                await self._visit(note=True)

    async def look(self) -> None:
        """Read what every run has printed since the last look."""
        now = self._clock.monotonic()
        note = now - self._noted_at >= NOTE_S
        if note:
            self._noted_at = now
        await self._visit(note=note)

    async def _visit(self, *, note: bool) -> None:
        with anyio.move_on_after(PATIENCE_S) as scope:
            await to_thread.run_sync(self._look_at_all, note, abandon_on_cancel=True)
        if scope.cancelled_caught:
            log.warning("the output of a run cannot be read", runs=len(self._meters), after_s=PATIENCE_S)

    def _look_at_all(self, note: bool) -> None:
        for dispatch, meter in tuple(self._meters.items()):
            try:
                meter.look()
                if note:
                    meter.note()
            except Exception:  # the output of one agent must not hide the others
                log.exception("output not understood, not read any further", dispatch=dispatch)
                self.forget(dispatch)


# --- processor time ----------------------------------------------------------------------------------
_T = TypeVar("_T")

_CPU_LOOK_S = 0.05


async def within_cpu(work: Callable[[CpuClock], _T], wall_s: float) -> _T:
    """Return what `work` returns, called in a thread, or raise what it raises.

    It is handed a meter, and may take as much of the processor as it likes until it sets a limit there.
    Raises TimeoutError when it has used that up, which it says, or without a word after `wall_s` seconds.
    The thread then goes on alone: a thread cannot be ended from outside.
    """
    meter = CpuClock()
    with anyio.move_on_after(wall_s) as scope, meter.watched(scope.cancel):
        return await to_thread.run_sync(work, meter, abandon_on_cancel=True)
    if anyio.current_time() >= scope.deadline:
        raise TimeoutError
    raise TimeoutError(f"more than {meter.limit_s:g} s of processor time")


class CpuClock:
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

    @contextmanager
    def watched(self, used_up: Callable[[], None]) -> Iterator[None]:
        """Call `used_up` on the event loop when the thread has used up what it may, until the body ends."""
        loop = asyncio.get_running_loop()

        # A thread that calculates reports nothing, so its clock is polled. By a timer, not by a task: nearly
        # all work is over before the first look, and an executor waits for it.
        def look() -> None:
            if self._clock is not None and time.clock_gettime(self._clock) - self._began >= self.limit_s:
                used_up()
            else:
                timers[0] = loop.call_later(_CPU_LOOK_S, look)

        timers = [loop.call_later(_CPU_LOOK_S, look)]
        try:
            yield
        finally:
            timers[0].cancel()
