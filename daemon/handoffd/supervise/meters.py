"""Reading along what all running executors print: one task, one visit to a thread for all of them.

Whoever shows a run (`status`), limits it (budgets) or judges its end asks here. Nothing happens while nothing
runs. What is known of a run is bounded, however much it prints.
"""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import structlog
from anyio import to_thread

from handoffd.clock import Clock, SystemClock
from handoffd.engine.usage import Usage
from handoffd.execute.meter import Live, Meter, Source
from handoffd.execute.stream.reading import Seen
from handoffd.settings.model import ExecuteSettings

log = structlog.get_logger(__name__)

NOTE_S = 5.0
"""How often what was read is written down: of a long output, a killed daemon loses no more than that."""

PATIENCE_S = 10.0
"""How long a look at all runs may take. Those that hang on their disks are passed over from then on."""


class Meters:
    """The runs whose output is read along, by dispatch."""

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
        """Read a run no longer."""
        self._meters.pop(dispatch, None)

    async def run(self) -> None:
        """Read along until cancelled, and write down in the end how far that was."""
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
            except Exception:  # what one agent prints is not to blind us to the others
                log.exception("output not understood, not read any further", dispatch=dispatch)
                self.forget(dispatch)
