"""How late the event loop is: what comes of everything that keeps it busy for too long at a stretch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

EVERY_S: Final = 1.0


async def follow(told: Callable[[float], None], every_s: float = EVERY_S) -> None:
    """Tell, once in `every_s`, by how many seconds a sleep of that length was too long; until cancelled."""
    while True:
        due = anyio.current_time() + every_s
        await anyio.sleep_until(due)
        told(max(0.0, anyio.current_time() - due))
