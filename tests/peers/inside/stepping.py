"""What the peers' scripts have in common: the order they were given, and one step of it.

Each script runs in its peer's own environment and imports nothing but the peer, the standard library and
this. All start a step in the same way, and in the cheapest one there is: `posix_spawn`, and a thread that
waits for the exit. So the difference between two peers is theirs, and not that of two ways to start a
process.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

MOST_SLOTS = 64
_WAITING = ThreadPoolExecutor(max_workers=MOST_SLOTS)
"""asyncio's own pool has four threads more than there are processors: fewer than slots on a small machine."""


@dataclass(frozen=True)
class Order:
    """What to do: `names` one after the other if `slots` is 1, otherwise as many of them at once."""

    program: str
    log: str
    names: list[str]
    work_ms: int
    slots: int
    address: dict[str, Any]
    """Where the peer's server is; its form is the peer's."""


def order() -> Order:
    """Return the order on the command line, which is one word of JSON."""
    return Order(**json.loads(sys.argv[1]))


async def run_step(given: Order, name: str) -> int:
    """Run a step to its end. Raises RuntimeError if it fails."""
    loop = asyncio.get_running_loop()
    _, status = await loop.run_in_executor(_WAITING, os.waitpid, spawned(given, name), 0)
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        raise RuntimeError(f"{name} ended with {code}")
    return code


def spawned(given: Order, name: str) -> int:
    """Start a step; return its pid."""
    argv = [given.program, given.log, str(given.work_ms), name]
    return os.posix_spawn(argv[0], argv, os.environ)


async def until_told() -> None:
    """Return when stdin has ended: the benchmark has what it wanted, or is gone itself."""
    await asyncio.to_thread(sys.stdin.read)
