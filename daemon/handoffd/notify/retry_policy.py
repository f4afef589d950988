"""Which notice goes to a sink next, and when: functions of the queue and of the sink's results.

These functions read no clock, draw no random number and send nothing. `now_s` is seconds of a monotonic clock
within one life of the daemon; in a new life everything is due. `notifier.py` chooses the sinks of a notice
and holds notices back; `sink_workers.py` sends and gives up.

Two things can be wrong, and they need different pauses. A *sink* that does not work rests, longer
after each failure in a row, and is then tried with one notice. A *notice* that a working sink does
not take has pauses of its own, so that it costs the others nothing. Which of the two it was is known
when the sink takes something else.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from handoffd.engine.notice import Waiting

ORDERED_TRIES = 5
"""After this many tries later notices of the same track may overtake one."""


class Queue(Struct, frozen=True, kw_only=True):
    """The notices queued for one sink, oldest first, and the sink's results in this life."""

    waiting: tuple[Waiting, ...] = ()
    failures: int = 0
    """Failures since it last worked, whatever was sent."""
    rest_until_s: float = 0.0


class Pauses(Struct, frozen=True, kw_only=True):
    """How long a pause is: twice as long after each failure, from `first_s` to `longest_s`."""

    first_s: float
    longest_s: float

    def after(self, failures: int, jitter: float) -> float:
        """Return the pause in seconds after `failures` failures; `jitter` (0 to 1) cuts up to a quarter."""
        assert failures >= 1
        full = self.first_s * 2.0 ** min(failures - 1, 60)
        return min(full, self.longest_s) * (1 - jitter / 4)


class Send(Struct, frozen=True):
    """Send the notice with this number now."""

    number: int


class Wait(Struct, frozen=True):
    """Nothing is due before `until_s`; None: nothing waits."""

    until_s: float | None


def next_step(queue: Queue, now_s: float) -> Send | Wait:
    """Return what to do now. While the sink works, the oldest goes first; else the least tried one."""
    if not queue.waiting:
        return Wait(None)
    if now_s < queue.rest_until_s:
        return Wait(queue.rest_until_s)
    free = tuple(_free(queue.waiting))
    due = [one for one in free if one.due_s <= now_s]
    if not due:
        return Wait(min(one.due_s for one in free))
    if queue.failures:  # one that cannot be digested must not be the only one that is tried
        return Send(min(due, key=lambda one: (one.tries, one.number)).number)
    return Send(due[0].number)


def _free(waiting: tuple[Waiting, ...]) -> Iterator[Waiting]:
    """Yield the notices that need not wait for an earlier one of their track."""
    held: set[tuple[str, str]] = set()
    for one in waiting:
        if one.lane not in held:
            yield one
        if one.tries < ORDERED_TRIES:
            held.add(one.lane)


def taken(queue: Queue, number: int, now_s: float, pauses: Pauses, jitter: float) -> Queue:
    """Return the queue after the sink took a notice: it works, so what failed before is doubted."""
    rest = tuple(
        _doubted(one, now_s, pauses, jitter) if one.failed else one
        for one in queue.waiting
        if one.number != number
    )
    return Queue(waiting=rest)


def _doubted(one: Waiting, now_s: float, pauses: Pauses, jitter: float) -> Waiting:
    # The first time it was probably the sink: no pause.
    due_s = now_s + pauses.after(one.doubts, jitter) if one.doubts else now_s
    return replace(one, failed=False, doubts=one.doubts + 1, due_s=due_s)


def not_taken(queue: Queue, number: int, now_s: float, pauses: Pauses, jitter: float) -> Queue:
    """Return the queue after a try failed: the sink rests, and the notice is remembered as a suspect."""
    failures = queue.failures + 1
    waiting = tuple(
        _suspected(one, now_s, pauses, jitter) if one.number == number else one for one in queue.waiting
    )
    return Queue(waiting=waiting, failures=failures, rest_until_s=now_s + pauses.after(failures, jitter))


def _suspected(one: Waiting, now_s: float, pauses: Pauses, jitter: float) -> Waiting:
    due_s = now_s + pauses.after(one.doubts, jitter) if one.doubts else one.due_s
    return replace(one, tries=one.tries + 1, failed=True, due_s=due_s)


def without(queue: Queue, numbers: frozenset[int]) -> Queue:
    """Return the queue without the notices that are over."""
    return replace(queue, waiting=tuple(one for one in queue.waiting if one.number not in numbers))


def joined(queue: Queue, more: tuple[Waiting, ...]) -> Queue:
    """Return the queue with later notices at its end."""
    assert all(a.number < b.number for a, b in pairwise((*queue.waiting[-1:], *more)))
    return replace(queue, waiting=(*queue.waiting, *more))
