"""What is to be done about a schedule at a moment: start, give up what was missed, or wait.

A function of times alone. What has been dealt with up to when is kept by whoever asks, durably, so that
a restart neither repeats nor forgets; a clock that is set back repeats nothing either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

ON_TIME: Final = timedelta(seconds=90)
"""So late a start is still on time: a daemon was restarted, a loop was slow, a machine dozed."""

Latest = Callable[[datetime, datetime], datetime | None]
"""Returns the last time something was due after the first moment, up to the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """How late something may be started. `jitter` was put on top of when it was due."""

    catch_up: bool
    at_most: timedelta
    jitter: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Something is to be started because it was due at `at`. `late`: it is made up for."""

    at: datetime
    late: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """Something was due at `at`, and now it is too late."""

    at: datetime


def due(latest: Latest, handled: datetime, now: datetime, lateness: Lateness) -> Due | Missed | None:
    """Return what is to be done `now`; None: nothing is due.

    Everything up to `handled` has been dealt with. Of several times that were missed only the last
    counts: whoever wants a nightly review wants one, not seven.
    """
    at = latest(handled, now - lateness.jitter)
    if at is None:
        return None
    age = now - at - lateness.jitter
    if age <= ON_TIME:
        return Due(at=at, late=False)
    if lateness.catch_up and age <= lateness.at_most:
        return Due(at=at, late=True)
    return Missed(at=at)


def jitter(key: str, most_s: float) -> timedelta:
    """Return how much later than the rest `key` is started: the same always, up to `most_s` seconds."""
    digest = hashlib.sha256(key.encode("utf-8", "replace")).digest()
    return timedelta(seconds=round(most_s * int.from_bytes(digest[:6]) / 2**48, 3))
