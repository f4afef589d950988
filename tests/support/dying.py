"""Kills a daemon at a chosen instant: `HANDOFFD_DIE_AT=after_commit:7` is the seventh time at that point."""

from __future__ import annotations

import os
import signal

from handoffd import failpoints

VARIABLE = "HANDOFFD_DIE_AT"


def arm() -> None:
    """End this process at the place that its environment names, if it names one."""
    wanted, _, times = os.environ.get(VARIABLE, "").partition(":")
    if not wanted:
        return
    left = int(times)

    def count(point: failpoints.Point, _: str) -> None:
        nonlocal left
        left -= point == wanted
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    failpoints.arm(count)
