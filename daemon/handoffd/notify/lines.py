"""The lines that deliver, one for each sink, as the settings have them now.

A sink that the settings leave as it was goes on undisturbed when they change. One that is changed has a new
line, which finds in the box what waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import anyio
import anyio.abc

from handoffd.clock import Clock
from handoffd.notify.box import Box
from handoffd.notify.line import GivenUp, Line, Terms
from handoffd.notify.sink import Sink
from handoffd.notify.unkept import Unkept
from handoffd.settings_notify import SinkSettings


@dataclass(slots=True, kw_only=True)
class _Way:
    settings: SinkSettings
    line: Line
    unkept: Unkept
    before: Line | None = None
    """The line that the sink had by its last settings, if that may still be sending."""
    begun: bool = False


class Lines:
    """The lines by the names of their sinks. They deliver while `run` runs, and once the box is `opened`."""

    def __init__(self, box: Box, clock: Clock, lived_s: Callable[[], float]) -> None:
        self._box = box
        self._clock = clock
        self._lived_s = lived_s
        self._ways: dict[str, _Way] = {}
        self._finishing = False
        self._changed = anyio.Event()
        self.opened = anyio.Event()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sinks there are."""
        return tuple(self._ways)

    @property
    def sinks(self) -> Mapping[str, SinkSettings]:
        """Their settings."""
        return {name: way.settings for name, way in self._ways.items()}

    def __iter__(self) -> Iterator[Line]:
        return iter([way.line for way in self._ways.values()])

    def configure(
        self, wanted: Mapping[str, SinkSettings], made: Callable[[str, SinkSettings], Sink], terms: Terms
    ) -> None:
        """Have these sinks from now on, in this order; `made` returns one that is new or changed."""
        before, self._ways = self._ways, {}
        for name, settings in wanted.items():
            way = before.pop(name, None)
            if way is None or way.settings != settings:
                sink = made(name, settings)
                line = Line(sink, self._box, self._clock, terms, self._lived_s)
                if way is None:
                    way = _Way(settings=settings, line=line, unkept=Unkept(sink, terms))
                else:
                    way.unkept.go_by(sink)
                    way = _Way(settings=settings, line=line, unkept=way.unkept, before=_finished(way))
            way.line.terms = way.unkept.terms = terms
            self._ways[name] = way
        for way in before.values():
            _finished(way)
            way.unkept.finish()
        self._changed.set()

    def hint(self, name: str | None = None) -> None:
        """Tell the line of a sink, or all, that the box may hold more."""
        for way in [way for other, way in self._ways.items() if name in {None, other}]:
            way.line.hint()

    async def finish(self) -> None:
        """Begin nothing more, and return when what was being sent is over: as long as sinks may take.

        What is configured from then on is not begun either.
        """
        self._finishing = True
        ways = tuple(self._ways.values())
        lines = [_finished(way) for way in ways]
        for way in ways:
            way.unkept.finish()
        ends = [line.ended for line in lines if line is not None]
        for ended in ends + [way.unkept.ended for way in ways if way.unkept.begun]:
            await ended.wait()

    def unkept(self, name: str) -> Unkept | None:
        """Return what tells a sink of that which cannot be recorded."""
        way = self._ways.get(name)
        return None if way is None else way.unkept

    async def run(self, given_up: Callable[[GivenUp], None]) -> None:
        """Deliver until cancelled; `given_up` hears of what will not be delivered."""
        try:
            await self._run(given_up)
        finally:
            self.opened = anyio.Event()
            for way in self._ways.values():
                way.begun = way.unkept.begun = False

    async def _run(self, given_up: Callable[[GivenUp], None]) -> None:
        async with anyio.create_task_group() as group:
            while True:
                self._changed = anyio.Event()
                for name, way in self._ways.items() if not self._finishing else ():
                    if not way.begun:
                        way.begun = True
                        group.start_soon(self._follow, way, given_up, name=f"notify by {name}")
                    if not way.unkept.begun:
                        way.unkept.begun = True
                        group.start_soon(way.unkept.run, name=f"notify by {name} from memory")
                await self._changed.wait()  # without a limit: settings may never change

    async def _follow(self, way: _Way, given_up: Callable[[GivenUp], None]) -> None:
        await _first(self.opened, way.line.finishing)
        if way.before is not None:  # what that has in hand, this one would find in the box as well
            await way.before.ended.wait()
        await way.line.run(given_up)


def _finished(way: _Way) -> Line | None:
    """Tell the line of a way to finish; return the one that may still be sending, if there is one."""
    way.line.finish()
    return way.line if way.begun else way.before


async def _first(*events: anyio.Event) -> None:
    """Return when one of these is set."""

    async def watch(event: anyio.Event) -> None:
        await event.wait()
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for event in events:
            group.start_soon(watch, event)
