"""The executor that is timed: a program so small that what is measured is handoffd, not it.

It is compiled when the benchmark runs (`stub.c`). Without a C compiler a shell script takes its
place (`stub.sh`), with a clock that is 10 ms coarse, which the report mentions.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Stub:
    """How to run the stub: `argv` ends with the log it adds its line to."""

    argv: tuple[str, ...]
    log: Path
    kind: str
    resolution_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """One line of the log: times in seconds of the monotonic clock."""

    run: str
    started: float
    renamed: float


def build(base: Path) -> Stub:
    """Return the stub, compiled into `base` if there is a compiler."""
    log = base / "stamps.log"
    log.touch()
    program = base / "stub"
    flags = compiled(HERE / "stub.c", program)
    if flags is not None:
        return Stub(argv=(str(program), str(log)), log=log, kind=" ".join(["C", *flags]), resolution_ms=0)
    argv = ("/bin/sh", str(HERE / "stub.sh"), str(log))
    return Stub(argv=argv, log=log, kind="shell script (no C compiler found)", resolution_ms=10)


def compiled(source: Path, program: Path) -> list[str] | None:
    """Compile a C program, and return the flags that worked; None without a compiler."""
    for compiler in filter(None, map(shutil.which, ("cc", "gcc", "clang"))):
        # Static if possible: no time goes into loading libraries before the first instruction.
        for flags in (["-O2", "-static"], ["-O2"]):
            command = [compiler, *flags, "-o", str(program), str(source)]
            if subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0:
                return flags
    return None


def stamps(log: Path) -> list[Stamp]:
    """Return the whole lines of the log, oldest first."""
    lines = [line.split() for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [
        Stamp(run=run, started=int(started) / 1e9, renamed=int(renamed) / 1e9)
        for run, started, renamed in lines
    ]
