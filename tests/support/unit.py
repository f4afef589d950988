"""A service manager in a few lines: `unit.py COMMAND...` keeps a command running until it is killed.

As systemd does with Restart=always and KillMode=process: it starts the command anew whenever the
process it started has ended, and leaves alone what that one has left behind. Orphans are its to reap.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time

_PR_SET_CHILD_SUBREAPER = 36
_RESTART_S = 0.02


def main(command: list[str]) -> None:
    """Keep `command` running for ever."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    while True:
        process = subprocess.Popen(command)
        while os.wait()[0] != process.pid:
            pass
        process.returncode = 0  # it has been reaped just now
        time.sleep(_RESTART_S)


if __name__ == "__main__":
    main(sys.argv[1:])
