"""Whether the daemon gets on: what must not stand still, and since when it has.

That the event loop turns is not enough. The journal's writer may hang in a disk that never answers, and the
poll, which keeps the deadlines, may wait for something that never comes. Whoever has work and makes no
progress for long is stuck; then the service manager is told nothing more, and starts the daemon anew. That
costs no executor anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from handoffd.clock import Clock, SystemClock

POLL = "the poll"
WRITER = "the writer of the journal"

WRITER_LIMIT_S = 120.0
"""A disk that answers no write for so long will not."""

POLL_LIMIT_S = 180.0
"""At least so long, and several intervals of it: one project may take the poll its time."""

_POLL_INTERVALS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """What must get on. `since`: its latest progress, monotonic seconds; None: it has nothing to do."""

    name: str
    since: float | None
    limit_s: float


def stuck(beats: Iterable[Beat], now: float) -> str | None:
    """Return what has made no progress for longer than it may, in words; None when all is well."""
    late = [
        f"{beat.name} has made no progress for {now - beat.since:.0f} s"
        for beat in beats
        if beat.since is not None and now - beat.since > beat.limit_s
    ]
    return "; ".join(late) or None


def beats_of(heard: Heartbeats, writer_since: float | None, poll_s: float) -> tuple[Beat, ...]:
    """Return what must get on in a daemon that polls every `poll_s` seconds."""
    return (
        Beat(name=WRITER, since=writer_since, limit_s=WRITER_LIMIT_S),
        Beat(name=POLL, since=heard.since(POLL), limit_s=max(POLL_LIMIT_S, _POLL_INTERVALS * poll_s)),
    )


class Heartbeats:
    """When each was heard of last. One that was never heard of is not waited for."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._heard: dict[str, float] = {}

    def beat(self, name: str) -> None:
        """Note progress."""
        self._heard[name] = self._clock.monotonic()

    def since(self, name: str) -> float | None:
        """Return when it was heard of last, in monotonic seconds."""
        return self._heard.get(name)
