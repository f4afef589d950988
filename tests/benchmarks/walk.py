"""What one step costs inside the daemon: visits to threads, writes and commits of the journal, files opened.

    python -m tests.benchmarks.walk [--steps 20] [--projects 20] [--json]

Counts, not times: they are nearly the same on every machine, so they show what a change of the way from one
executor's exit to the next one's start has added or taken away, and by which function. A story runs through a
table of `--steps` steps without checks, beside projects that rest; all is divided by the steps. Files of the
interpreter and of /proc are left out. `python -m tests.benchmarks.walk DAEMON OUT CONFIG` is the daemon,
counted from inside.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

from anyio import to_thread
from tests.benchmarks.executor import build
from tests.benchmarks.fleet import STORY, active_project, add_all, idle_projects
from tests.benchmarks.measures import machine
from tests.support.daemon import REPOSITORY, Daemon, Json
from tests.support.eventually import eventually_sync

from handoffd.journal.connections import Readers, Writer

DAEMON: Final = "daemon"
_LEFT_OUT: Final = ("/proc/", "/sys/", "/dev/", "/usr/", "/etc/")
_SHOWN: Final = 8
KINDS: Final = ("threads", "writes", "commits", "reads", "opened", "renamed")


# --- the daemon, from inside -------------------------------------------------------------------------
class Tally:
    """Counts by kind and by name; written to a file on SIGUSR1."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}

    def add(self, kind: str, name: str) -> None:
        """Count one."""
        self._counts[kind][name] += 1

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Count what the interpreter reports: files that are opened, and renamed."""
        if event == "open" and isinstance(arguments[0], str | bytes | Path):
            path = os.fsdecode(arguments[0])
            if not path.startswith(_LEFT_OUT) and not path.endswith((".py", ".pyc")):
                self.add("opened", os.path.basename(path) or path)
        elif event == "os.rename":
            self.add("renamed", os.path.basename(os.fsdecode(arguments[1])))

    def report(self, *_: object) -> None:
        """Write what was counted, with the processor time so far."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        found = {"cpu_s": used.ru_utime + used.ru_stime, **self._counts}
        new = self._out.with_suffix(".new")
        new.write_text(json.dumps(found))
        os.replace(new, self._out)


def name_of(work: Callable[..., object]) -> str:
    """Return the name of a function, also of one with some of its arguments given."""
    while isinstance(work, partial):
        work = work.func
    return str(getattr(work, "__qualname__", type(work).__name__)).replace(".<locals>", "")


def counted(tally: Tally) -> None:
    """Have visits to threads, and requests to the journal, counted."""
    run_sync, write, read, transact = to_thread.run_sync, Writer.run, Readers.run, Writer._transact

    def visit(work: Any, *arguments: Any, **more: Any) -> Any:
        tally.add("threads", name_of(work))
        return run_sync(work, *arguments, **more)

    def written(self: Writer, activity: str, work: Any) -> Any:
        tally.add("writes", activity.partition(" of /")[0])
        return write(self, activity, work)

    def committed(self: Writer, batch: Any) -> Any:
        tally.add("commits", f"of {len(batch)}")
        return transact(self, batch)

    def asked(self: Readers, activity: str, query: Any) -> Any:
        tally.add("reads", activity)
        return read(self, activity, query)

    setattr(to_thread, "run_sync", visit)  # noqa: B010
    setattr(Writer, "run", written)  # noqa: B010
    setattr(Writer, "_transact", committed)  # noqa: B010
    setattr(Readers, "run", asked)  # noqa: B010


def serve(out: str, config: str) -> None:
    """Be the daemon."""
    from handoffd.cli.start import main as start

    tally = Tally(Path(out))
    counted(tally)
    sys.addaudithook(tally.audit)
    signal.signal(signal.SIGUSR1, tally.report)
    sys.argv = ["handoffd", "run", "--config", config]
    start()


# --- and from outside --------------------------------------------------------------------------------
class Walk:
    """One daemon, and the stories that run under it, below one temporary folder."""

    def __init__(self, base: Path, steps: int, projects: int) -> None:
        self._steps = steps
        self._out = base / "walk.json"
        self._idle = idle_projects(base / "projects", projects)
        self._active = active_project(base / "active", steps=steps)
        stub = {"extends": "command", "argv": list(build(base).argv)}
        settings = {"executors": {"stub": stub}, "executor": "stub", "schedule": {"poll_s": 30}}
        self.daemon = Daemon(base, settings)
        self.daemon.module = ("tests.benchmarks.walk", DAEMON, str(self._out))
        self.daemon.environment["PYTHONPATH"] = f"{REPOSITORY / 'daemon'}:{REPOSITORY}"

    def run(self) -> Json:
        """Return what a step of a story took, by kind and name, after a story that warms everything up."""
        self.daemon.start()
        add_all(self.daemon, [self._active, *self._idle])
        self._story("WARM-1")
        before = self._seen()
        self._story(STORY)
        after = self._seen()
        kinds = {kind: self._each(Counter(after[kind]) - Counter(before[kind])) for kind in KINDS}
        cpu_ms = (after["cpu_s"] - before["cpu_s"]) * 1000 / self._steps
        return {"steps": self._steps, "cpu_ms": round(cpu_ms, 1), **kinds}

    def _story(self, story: str) -> None:
        self.daemon.verb("start", self._active, story=story)
        state = self._active / ".ai/STATE.json"

        def is_done() -> bool:  # a question to the daemon would be counted
            found = json.loads(state.read_text(encoding="utf-8"))
            return (found["story"], found["step"]) == (story, "done")

        eventually_sync(is_done)

    def _seen(self) -> Json:
        self._out.unlink(missing_ok=True)
        os.kill(self.daemon.pid, signal.SIGUSR1)
        eventually_sync(self._out.exists)
        seen: Json = json.loads(self._out.read_text())
        return seen

    def _each(self, counts: Counter[str]) -> dict[str, float]:
        """Return the counts of one step: the sum, then by name, the most frequent first."""
        each = {name: round(count / self._steps, 1) for name, count in counts.most_common()}
        return {"all": round(counts.total() / self._steps, 1), **each}


def measure(base: Path, steps: int, projects: int) -> Json:
    """Return what a step costs, working below `base`."""
    walk = Walk(base, steps, projects)
    with closing(walk.daemon):
        return {"machine": machine(base), "projects": projects, **walk.run()}


def text(found: Json) -> str:
    """Return the report for people."""
    lines = [
        ", ".join(f"{name} {value}" for name, value in found["machine"].items()),
        f"a step of {found['steps']}, beside {found['projects']} projects: {found['cpu_ms']} ms of processor",
    ]
    for kind in KINDS:
        names = [f"{name} {count:g}" for name, count in found[kind].items() if name != "all"]
        more = [f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
        lines.append(f"{kind:8} {found[kind]['all']:5.1f}   {', '.join([*names[:_SHOWN], *more])}")
    return "\n".join(lines)


def main(words: list[str]) -> None:
    """Measure, report, and exit; or be the daemon."""
    if words[:1] == [DAEMON]:
        serve(*words[1:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--projects", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="handoffd-walk-") as base:
        found = measure(Path(base), given.steps, given.projects)
    print(json.dumps(found, indent=2) if given.json else text(found))


if __name__ == "__main__":
    main(sys.argv[1:])
