"""Waiting for a condition instead of for a time.

A test that sleeps is slow when it passes and wrong when the machine is busy. These look again and
again, at growing intervals, and fail with the condition's last value when the limit has passed.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar, cast

import anyio

Value = TypeVar("Value")

_FIRST_S = 0.002
_LONGEST_S = 0.2
_OF_THE_WAIT = 0.05
"""A pause is a twentieth of the wait so far: asking a daemon takes processor time from what it works on."""


async def eventually(condition: Callable[[], Value | Awaitable[Value]], within_s: float = 60) -> Value:
    """Return the first true value of `condition`, which may be a coroutine function.

    Raises AssertionError when there is none within `within_s` seconds.
    """
    for pause_s in _pauses(within_s):
        value = condition()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return cast("Value", value)
        if pause_s is None:
            raise AssertionError(f"not true within {within_s} s; last value: {value!r}")
        await anyio.sleep(pause_s)
    raise AssertionError("unreachable")


def eventually_sync(condition: Callable[[], Value], within_s: float = 60) -> Value:
    """Return the first true value of `condition`; AssertionError when there is none in time."""
    for pause_s in _pauses(within_s):
        value = condition()
        if value:
            return value
        if pause_s is None:
            raise AssertionError(f"not true within {within_s} s; last value: {value!r}")
        time.sleep(pause_s)
    raise AssertionError("unreachable")


def _pauses(within_s: float) -> Iterator[float | None]:
    """Yield how long to rest before each further look, at last None."""
    begun = time.monotonic()
    while (waited_s := time.monotonic() - begun) < within_s:
        yield min(max(_FIRST_S, waited_s * _OF_THE_WAIT), _LONGEST_S)
    yield None
