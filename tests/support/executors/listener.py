"""An agent that says which signals it gets: `listener.py [polite]`. A polite one leaves on INT."""

from __future__ import annotations

import os
import signal
import sys


def heard(number: int, _: object) -> None:
    """Write the signal's name; a polite agent then tidies up and ends well."""
    os.write(1, signal.Signals(number).name.encode() + b"\n")
    if number == signal.SIGINT and "polite" in sys.argv:
        os.write(1, b"tidied up\n")
        os._exit(0)


for caught in (signal.SIGINT, signal.SIGTERM):
    signal.signal(caught, heard)
os.write(1, b"ready\n")
while True:
    signal.pause()
