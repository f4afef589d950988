"""A daemon that is killed at an instant that was chosen: `python -m tests.support.dying --config FILE`.

HANDOFFD_DIE_AT names it: `after_commit:7` is the seventh time that point is reached.
"""

from __future__ import annotations

import os
import signal
import sys

from handoffd import failpoints
from handoffd.cli.main import main

VARIABLE = "HANDOFFD_DIE_AT"


def _die_at(wanted: str, number: int) -> failpoints.Action:
    reached = 0

    def count(point: failpoints.Point, _: str) -> None:
        nonlocal reached
        reached += point == wanted
        if reached == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return count


if __name__ == "__main__":
    name, _, times = os.environ[VARIABLE].partition(":")
    failpoints.arm(_die_at(name, int(times)))
    main(["--config", sys.argv[-1], "run"])
