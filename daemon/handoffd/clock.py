"""Time as a parameter.

Wall time is for people and for files other tools read; elapsed time is always measured with
`monotonic`, which jumps of the wall clock do not touch.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What the daemon may ask about time."""

    def now(self) -> datetime:
        """Return the wall time, in UTC."""

    def monotonic(self) -> float:
        """Return seconds since boot; comparable between processes of one boot."""


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        """Return the wall time, in UTC."""
        return datetime.now(UTC)  # noqa: TID251  (this is the one place)

    def monotonic(self) -> float:
        """Return seconds since boot (CLOCK_MONOTONIC; a suspended machine does not count)."""
        return time.monotonic()


def rfc3339(moment: datetime) -> str:
    """Return `moment` as the protocol writes it: `2026-01-31T22:15:09.123Z`."""
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
