"""Running another program to its end, with a limit.

A module of its own because importing `subprocess` costs a third of the rehearsal's start-up, and
only two steps run anything.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import NamedTuple


class Ran(NamedTuple):
    """How a program ended; `code` is None when it could not be started or passed its limit."""

    code: int | None
    output: str


def run(argv: Sequence[str], cwd: str, *, limit_s: float) -> Ran:
    """Run `argv` in `cwd` without input and return its exit code and its output, both streams together."""
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C.UTF-8",
    }
    try:
        ended = subprocess.run(
            argv,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Ran(None, f"{argv[0]} was not done after {limit_s:g} s")
    except OSError as error:
        return Ran(None, f"{argv[0]}: {error.strerror}")
    return Ran(ended.returncode, ended.stdout.decode("utf-8", "replace"))
