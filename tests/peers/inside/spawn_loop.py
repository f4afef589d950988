"""The floor: steps started by `posix_spawn` and waited for, by one thread that remembers nothing.

    python -m tests.peers.inside.spawn_loop ORDER

No engine that gives each step a process of its own can be faster. After a kill it begins at the first step
again.
"""

from __future__ import annotations

import os
import sys

from tests.peers.inside.stepping import Order, order, spawned


def run(given: Order) -> None:
    """Run the steps, at most `slots` at once."""
    running: set[int] = set()
    for name in given.names:
        if len(running) == given.slots:
            running.remove(_ended())
        running.add(spawned(given, name))
    while running:
        running.remove(_ended())


def _ended() -> int:
    pid, status = os.waitpid(-1, 0)
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        raise RuntimeError(f"a step ended with {code}")
    return pid


if __name__ == "__main__":
    run(order())
    sys.stdin.read()
