"""Whether the kernel has ended a process for want of memory.

The kernel does not say so to the parent of the process: it died of SIGKILL like any other that was killed.
It counts: for a run's control group where that has the controller (`cgroup`), else for the whole machine.
Then what is told here is a likelihood: some process was ended for want of memory while the run lasted, and
the run's main process was killed by nobody that we know of.
"""

from __future__ import annotations

import signal

from handoffd.execute.runner import proc

_COUNTER = b"oom_kill "
_BY_A_SHELL = 128
"""What shells add to the number of the signal that ended their child."""


def kills(vmstat: str = "/proc/vmstat") -> int:
    """Return how many processes the kernel has ended for want of memory; 0 when it does not say."""
    for line in (proc.read(vmstat) or b"").splitlines():
        if line.startswith(_COUNTER):
            return int(line[len(_COUNTER) :])
    return 0


def explains(result: int | None, kills: int) -> bool:
    """Tell whether so many `kills` for want of memory explain `result`, an exit code or minus a signal."""
    return kills > 0 and result in (-signal.SIGKILL, _BY_A_SHELL + signal.SIGKILL)
