"""Reads what `observed.py` sees of a daemon's event loop, from outside."""

from __future__ import annotations

import json
import os
import signal

from tests.benchmarks.measures import summary
from tests.support.daemon import REPOSITORY, Daemon, Json
from tests.support.eventually import eventually_sync


class LoopLag:
    """How late the event loop of one daemon is, as a task within it notices every 5 ms."""

    def __init__(self, daemon: Daemon) -> None:
        """Have `daemon`, which has not been started yet, start with such a task."""
        self._daemon = daemon
        self._out = daemon.base / "observed.json"
        daemon.module = ("tests.benchmarks.observed", str(self._out))
        daemon.environment["PYTHONPATH"] = f"{REPOSITORY / 'daemon'}:{REPOSITORY}"

    def pause(self) -> None:
        """Stop looking, which costs something, until `seen` is asked the next time."""
        os.kill(self._daemon.pid, signal.SIGUSR2)

    def seen(self) -> Json:
        """Return what was seen since the last time; `lag_ms` has its p50, p99 and max."""
        self._out.unlink(missing_ok=True)
        os.kill(self._daemon.pid, signal.SIGUSR1)
        eventually_sync(self._out.exists)
        seen: Json = json.loads(self._out.read_text())
        lags = summary([lag / 1000 for lag in seen["lags_ms"] or [0.0]])
        return {**seen, "lag_ms": {"p50": lags.p50, "p99": lags.p99, "max": lags.max}}
