"""Without a daemon nothing is counted, and that costs nothing."""

from __future__ import annotations

import subprocess
import sys

from tests.support.house import track_of

from handoffd.engine.events import ExecutorStarted
from handoffd.engine.track import TrackKey
from handoffd.metrics.recorder import Recorder, Uncounted


def test_it_takes_everything_in() -> None:
    """Each fact of the protocol, with no effect."""
    recorder: Recorder = Uncounted()
    key, started = TrackKey("/srv/shop"), ExecutorStarted(dispatch="d1", pid=1)

    recorder.found(track_of())
    recorder.committed(key, started, track_of(), track_of(), 0.1)
    recorder.waited(key)
    recorder.crashed()
    recorder.lagged(0.1)
    recorder.asked("start", "accepted")


def test_the_client_library_is_not_imported_for_it() -> None:
    """It takes an eighth of a second, which a verb without a daemon need not wait for."""
    code = "import sys, handoffd.track.services; sys.exit('prometheus_client' in sys.modules)"

    subprocess.run([sys.executable, "-c", code], check=True)
