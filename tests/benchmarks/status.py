"""How long a person waits for `handoffd status`, beside the reference's, in whole processes.

The laps take turns, so that a busy machine slows all alike.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.benchmarks.fleet import add_all, idle_projects
from tests.benchmarks.measures import summary
from tests.benchmarks.rows import Row, ratio
from tests.support.children import ending
from tests.support.commands import environment
from tests.support.daemon import running

LIMIT_S = 60.0
OURS = str(Path(sys.executable).with_name("handoffd"))

Words = Sequence[str]


def rows(base: Path, projects: int, rounds: int, cli: Path | None) -> list[Row]:
    """Return how long both take, with one project and with many."""
    one, *others = idle_projects(base / "projects", projects)
    theirs = {"reference": ("node", str(cli), "status", str(one))} if cli is not None else {}
    with running(base) as daemon:
        env = environment(daemon.runtime_dir, HANDOFFD_STATE_DIR=str(daemon.state_dir))
        add_all(daemon, [one])
        alone = _laps({"all": (OURS, "status"), **theirs}, env, rounds)
        add_all(daemon, others)
        many = _laps({"all": (OURS, "status"), "one": (OURS, "status", str(one)), **theirs}, env, rounds)
    return [
        Row(what="status, 1 project", value=alone["all"], unit="ms"),
        Row(what="its reference", value=alone.get("reference"), unit="ms"),
        Row(what="status, 1 project / reference", value=ratio(alone["all"], alone.get("reference")),
            unit="x", at_most=1),
        Row(what=f"status of one of {projects:,}", value=many["one"], unit="ms"),
        Row(what=f"status of one of {projects:,} / reference",
            value=ratio(many["one"], many.get("reference")), unit="x", at_most=1),
        Row(what=f"status of all {projects:,}", value=many["all"], unit="ms"),
    ]  # fmt: skip


def _laps(kinds: Mapping[str, Words], env: Mapping[str, str], rounds: int) -> dict[str, float]:
    """Return the p50 of whole processes, in milliseconds, by kind."""
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, words in kinds.items():
            times[kind].append(_lap_s(words, env))
    return {kind: summary(spent).p50 for kind, spent in times.items()}


def _lap_s(words: Words, env: Mapping[str, str]) -> float:
    """Return how long a process takes from fork to exit, in seconds.

    With a limit of its own, `subprocess` would look every 50 ms whether it has ended. Raises
    CalledProcessError when it fails, or takes too long.
    """
    began = time.perf_counter()
    with ending(subprocess.Popen(words, env=dict(env), stdout=subprocess.DEVNULL)) as process:
        end = os.pidfd_open(process.pid)
        try:
            if not select.select([end], [], [], LIMIT_S)[0]:
                process.kill()
        finally:
            os.close(end)
    took_s = time.perf_counter() - began
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(words))
    return took_s
