"""An agent that writes down that it was started, is held at its step, and is the rehearsal from then on.

It begins its work when `.ai/release-STEP` is there, and gives up after ten minutes. `.ai/starts.log` has
the id of every start: what no journal can change.
"""

import os
import sys
import time
from pathlib import Path

with Path(".ai/starts.log").open("a") as log:
    log.write(os.environ["HANDOFFD_RUN"] + "\n")
give_up_at = time.monotonic() + 600
while not Path(f".ai/release-{os.environ['HANDOFFD_STEP']}").exists():
    if time.monotonic() > give_up_at:
        sys.exit("no test released this agent")
    time.sleep(0.02)
os.execv(sys.executable, [sys.executable, "-I", "-m", "handoffd.rehearsal"])
