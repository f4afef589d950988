"""What tests of real runs share: specifications, counting processes, and leaving none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.children import ending
from tests.support.eventually import eventually_sync

from handoffd.execute.base import Rung, RunSpec
from handoffd.execute.runner import proc, tree

EXECUTORS = Path(__file__).resolve().parent / "executors"
UNIT = Path(__file__).resolve().parent / "unit.py"
PYTHON = os.path.realpath(sys.executable)
PACKAGE = str(Path(proc.__file__).parents[3])


def printed(program: str, *words: str) -> str:
    """Return what a program prints that runs in a process of its own and imports our package only."""
    prelude = f"import os, signal, sys\nsys.path.append({PACKAGE!r})\n"
    command = [PYTHON, "-I", "-S", "-c", prelude + program, *words]
    return subprocess.run(command, capture_output=True, check=True, text=True, timeout=60).stdout


def script(name: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs one of the scripts in `executors/`."""
    return (PYTHON, "-I", "-S", str(EXECUTORS / f"{name}.py"), *arguments)


def run_spec(root: Path, run_id: str, *argv: str, **more: Any) -> RunSpec:
    """Return a specification that runs `argv` in `root`, with a limit that no test should reach."""
    values: dict[str, Any] = {
        "run_id": run_id,
        "argv": argv,
        "env": {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        "cwd": str(root),
        "stdin": None,
        "output": str(root / "runs" / run_id / "output.log"),
        "deadline_s": 600.0,
        "ladder": (Rung(signal="TERM", grace_s=0.1),),
        "drain_s": 0.1,
    }
    return RunSpec(**values | more)


def processes(word: str) -> list[int]:
    """Return the pids of the living processes that have `word` in their command line."""
    wanted = os.fsencode(word)
    others = (int(entry) for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid())
    named = [pid for pid in others if wanted in (proc.read(f"/proc/{pid}/cmdline") or b"")]
    return [pid for pid in named if (seen := proc.stat(pid)) and not seen.ended]


def working_in(folder: Path) -> list[int]:
    """Return the pids of the living processes whose working directory is `folder`."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.readlink(f"/proc/{entry}/cwd") == str(folder):
                found.append(int(entry))
        except OSError:
            continue  # gone, or another account's
    return [pid for pid in found if (seen := proc.stat(pid)) and not seen.ended]


def hydra_is_grown(marker: str) -> bool:
    """Tell whether each of the eight processes of a hydra that stays has become deaf to signals."""
    try:
        return len(Path(marker).read_bytes().split()) >= 8
    except FileNotFoundError:
        return False


def launchers(socket: Path) -> list[int]:
    """Return the pids of the launchers for `socket`, without the shims that they forked."""
    named = {pid for pid in processes(str(socket)) if proc.read(f"/proc/{pid}/comm") == b"handoffd-launch\n"}
    # A shim has the launcher's name until it gives itself one.
    return sorted(pid for pid in named if (seen := proc.stat(pid)) and seen.parent not in named)


@contextmanager
def unit(program: Path, socket: Path, place: Path | None = None) -> Iterator[int]:
    """Have a service manager keep the launcher `program` at `socket`; the manager's pid.

    With `place`, it is in this control group, which is delegated to it.
    """
    inside = ["sh", "-c", 'echo 0 > "$0/cgroup.procs" && exec "$@"', str(place)] if place else []
    command = [
        *inside,
        PYTHON,
        "-I",
        "-S",
        str(UNIT),
        PYTHON,
        "-I",
        "-S",
        "-E",
        str(program),
        str(socket),
        "--foreground",
        *(["--delegated"] if place else []),
    ]
    with ending(subprocess.Popen(command, stdin=subprocess.DEVNULL)) as manager:
        try:
            yield manager.pid
        finally:
            manager.kill()


def descends(pid: int, ancestor: int) -> bool:
    """Tell whether `ancestor` is the parent of `pid`, or the parent's parent, and so on."""
    while pid > 1:
        seen = proc.stat(pid)
        pid = seen.parent if seen else 0
        if pid == ancestor:
            return True
    return False


def end_processes(root: Path) -> None:
    """Kill every process that has a path below `root` in its command line, and all below those."""
    ended: set[int] = set()

    def none_left() -> bool:
        named = processes(f"{root}/")
        # Their descendants are noted before the first dies: later there is nothing to know them by.
        left = {member.pid for pid in named for member in tree.descendants(pid)} | set(named)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        ended.update(left)
        return not left and not any((seen := proc.stat(pid)) and not seen.ended for pid in ended)

    eventually_sync(none_left)
