"""Many executors alive at once under one daemon: all begin, all ends are seen, and the event loop stays free.

The executors wait for a pipe to be opened, which costs nothing, and hand over when the benchmark opens it:
all at once, which is the worst that many can do. The event loop is watched from inside, and beside it
a client asks the daemon for its health again and again: an answer waits for the loop, and for a processor.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tests.benchmarks.fleet import add_all, table, tell_all
from tests.benchmarks.loop_lag import LoopLag
from tests.benchmarks.measures import cpu_s, summary
from tests.benchmarks.rows import Row
from tests.support.daemon import Daemon, Json

LIMIT_S = 120.0
GOAL_LAG_MS = 20.0

_AGENT = """\
read -r _ < "$1"
printf -- '---\\nstory: %s\\nstep: %s\\ndispatch: %s\\nstatus: pass\\n---\\n' \
  "$HANDOFFD_STORY" "$HANDOFFD_STEP" "$HANDOFFD_RUN" > .ai/new
mv .ai/new .ai/HANDOFF.md
"""
_HEALTH = b"GET /v1/health HTTP/1.1\r\nHost: handoffd\r\n\r\n"


def rows(base: Path, count: int) -> list[Row]:
    """Return how `count` executors at once do."""
    gate = base / "gate"
    os.mkfifo(gate)
    script = base / "agent.sh"
    script.write_text(_AGENT)
    roots = [_project(base / "live" / f"live-{number:03}") for number in range(count)]
    settings = {
        "executors": {"stub": {"extends": "command", "argv": ["/bin/sh", str(script), str(gate)]}},
        "executor": "stub",
        "execute": {"slots": count},
        "scheduling": {"min_free_memory_mb": 0, "memory_per_agent_mb": 0},
        "schedule": {"poll_s": 30},
    }
    with contextlib.closing(Daemon(base, settings)) as daemon:
        loop = LoopLag(daemon)
        daemon.start()
        add_all(daemon, roots)
        return _measured(daemon, loop, roots, gate)


def _measured(daemon: Daemon, loop: LoopLag, roots: list[Path], gate: Path) -> list[Row]:
    process = psutil.Process(daemon.pid)
    loop.seen()
    with _asking(daemon.socket) as asked:
        began = time.monotonic()
        tell_all(daemon, "start", roots, story="US-001")
        _until(lambda: _executing(daemon, len(roots)))
        begun, used = time.monotonic() - began, cpu_s(process)
        rss_mb = process.memory_info().rss / 2**20
        beginning = loop.seen()["lag_ms"]
        opened = time.monotonic()
        gate.open("w").close()
        ended = _until(lambda: all(map(_is_done, roots)))
        over = time.monotonic() - opened
        used = cpu_s(process) - used
        judging = loop.seen()["lag_ms"]
    answers = summary(asked.answers_s)
    return [
        Row(what="executors alive at once", value=len(roots), unit=""),
        Row(what="their ends that were seen", value=_done(daemon), unit="", at_least=len(roots)),
        Row(what="all begun after", value=round(begun, 2), unit="s"),
        Row(what="all judged after the gate was opened", value=round(over, 2) if ended else None, unit="s"),
        Row(what="processor time for each end", value=round(1000 * used / len(roots), 2), unit="ms"),
        Row(what="memory of the daemon", value=round(rss_mb, 1), unit="MB"),
        *_lag("while they begin", beginning),
        *_lag("while they are judged", judging),
        Row(what="an answer meanwhile, p50", value=answers.p50, unit="ms"),
        Row(what="an answer meanwhile, p99", value=answers.p99, unit="ms"),
    ]


def _lag(when: str, lag_ms: Json) -> list[Row]:
    named = f"lag of the event loop {when}"
    return [
        Row(what=f"{named}, p50", value=lag_ms["p50"], unit="ms"),
        Row(what=f"{named}, p99", value=lag_ms["p99"], unit="ms", at_most=GOAL_LAG_MS),
        Row(what=f"{named}, most", value=lag_ms["max"], unit="ms"),
    ]


def _project(root: Path) -> Path:
    folder = root / ".ai"
    folder.mkdir(parents=True)
    (root / "PROJECT_CONTEXT.md").write_text("A project for many executors.\n")
    (folder / "step-rules.yaml").write_text(json.dumps(table(1)))  # JSON is YAML
    return root


def _executing(daemon: Daemon, count: int) -> bool:
    return len(list(daemon.state_dir.glob("runs/*/start.json"))) >= count


def _is_done(root: Path) -> bool:
    """Return whether STATE.json shows the end: asking the daemon for all projects is a load of its own."""
    state = json.loads((root / ".ai" / "STATE.json").read_bytes())
    return bool(state["step"] == "done")


def _done(daemon: Daemon) -> int:
    projects = daemon.get("/v1/status")["projects"]
    return sum(track["step"] == "done" for project in projects for track in project["tracks"])


@dataclass(slots=True)
class _Asked:
    answers_s: list[float] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)


@contextlib.contextmanager
def _asking(path: Path) -> Iterator[_Asked]:
    """Ask for the daemon's health every 20 ms, on one connection, in a thread."""
    asked = _Asked()
    asker = threading.Thread(target=_ask, args=(path, asked))
    asker.start()
    try:
        yield asked
    finally:
        asked.over.set()
        asker.join()


def _ask(path: Path, asked: _Asked) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        while not asked.over.wait(0.02):
            began = time.perf_counter()
            connection.sendall(_HEALTH)
            answer = connection.recv(65536)
            while not answer.endswith(b"}"):
                answer += connection.recv(65536)
            asked.answers_s.append(time.perf_counter() - began)


def _until(reached: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if reached():
            return True
        time.sleep(0.2)  # looking costs what is being measured
    return False
