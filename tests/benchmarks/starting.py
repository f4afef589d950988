"""How long a daemon takes from its exec to its first answer, beside a Python that does nothing.

Each lap has a state directory of its own, and asks again every 2 ms. The two take turns, so that a busy
machine slows both alike.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from tests.benchmarks.measures import summary
from tests.benchmarks.rows import Row, ratio
from tests.support.daemon import Daemon

GOAL_S = 1.0
LIMIT_S = 60.0
_ASK_EVERY_S = 0.002
_HEALTH = b"GET /v1/health HTTP/1.1\r\nHost: handoffd\r\nConnection: close\r\n\r\n"


def rows(base: Path, laps: int) -> list[Row]:
    """Return the p50 of both, and how many times one is in the other."""
    _answers_s(base / "first")  # compiles modules that never ran before
    answers, floor = [], []
    for lap in range(laps):
        answers.append(_answers_s(base / str(lap)))
        floor.append(_empty_s())
    ours, nothing = summary(answers).p50, summary(floor).p50
    return [
        Row(what="start to answering, p50", value=ours / 1000, unit="s", at_most=GOAL_S),
        Row(what="python -c pass", value=nothing, unit="ms"),
        Row(what="start to answering / python -c pass", value=ratio(ours, nothing), unit="x"),
    ]


def _answers_s(base: Path) -> float:
    """Return how long a new daemon takes to answer. Raises TimeoutError when it does not, or ends."""
    base.mkdir(parents=True)
    with closing(Daemon(base)) as daemon:
        began = time.perf_counter()
        process = daemon.launch()
        while not _asked(daemon.socket):
            if process.poll() is not None or time.perf_counter() - began > LIMIT_S:
                raise TimeoutError(f"the daemon does not answer: {daemon.log()[-500:]}")
            time.sleep(_ASK_EVERY_S)
        return time.perf_counter() - began


def _asked(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(LIMIT_S)
        if connection.connect_ex(str(path)) != 0:
            return False
        connection.sendall(_HEALTH)
        return connection.recv(64).startswith(b"HTTP/1.1 200")


def _empty_s() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - began
