"""An agent that talks: `flood.py LINES` writes LINES numbered lines of 30 bytes."""

from __future__ import annotations

import sys

for number in range(int(sys.argv[1])):
    sys.stdout.write(f"line {number:08d} {'.' * 15}\n")
