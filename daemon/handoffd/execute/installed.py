"""Whether an executor could be started here: its program, its version, its login, its folders.

Nobody is asked over a network, and nothing is changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from handoffd.execute.environment import child_environment, expanded
from handoffd.execute.executor import Executor, InvocationContext, invocation, version_call
from handoffd.execute.reports.report import printable

VERSION_S: Final = 10.0
"""How long a program may take to tell its version."""
_MAX_CHARS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """An executor as it is found with the environment that it would get."""

    program: str
    path: str
    """The PATH it was looked for on."""
    found: str | None
    """The program's own path."""
    version: str | None = None
    version_error: str | None = None
    """Why there is none; None also when the executor does not say how to ask."""
    logged_in: bool | None = None
    """None: that cannot be said."""
    unwritable: tuple[str, ...] = ()
    """Those of its `writes` that it could not write or make."""
    empty: tuple[str, ...] = ()
    """Variables that it may see and that are set to nothing."""


def program_of(executor: Executor) -> str:
    """Return the program that an executor starts. Raises ConfigurationError for a mere pattern."""
    return invocation(executor, _here()).argv[0]


def find_program(executor: Executor, environment: Mapping[str, str]) -> str | None:
    """Return where the program of `executor` is found on the PATH of its environment; None: nowhere."""
    return shutil.which(program_of(executor), path=environment.get("PATH"))


def found_at(executor: Executor, environment: Mapping[str, str], allowed: Sequence[str]) -> str | None:
    """Return where its program is, on the PATH that the executor gets of the daemon's `environment`."""
    return find_program(executor, child_environment(environment, allowed, executor.env))


def is_own(executor: Executor) -> bool:
    """Return whether an executor is a part of handoffd: always there, and no agent (the rehearsal)."""
    return bool(executor.argv) and executor.argv[0] == "{python}"


def look(executor: Executor, environment: Mapping[str, str]) -> Installation:
    """Return how an executor is found. `environment` is the whole of the one that it would get."""
    found = find_program(executor, environment)
    version, error = _version(executor, environment) if found is not None else (None, None)
    return Installation(
        program=program_of(executor),
        path=environment.get("PATH", ""),
        found=found,
        version=version,
        version_error=error,
        logged_in=_logged_in(executor, environment),
        unwritable=tuple(path for path in executor.writes if not _writable(path, environment)),
        empty=tuple(name for name in executor.env if environment.get(name) == ""),
    )


def _here() -> InvocationContext:
    return InvocationContext(python=sys.executable, prompt_file="prompt")


def _version(executor: Executor, environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the first line that the program prints when it is asked, or why there is none."""
    call = version_call(executor, _here())
    if not call:
        return None, None
    try:
        ended = subprocess.run(
            call, env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, timeout=VERSION_S,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None, f"it took more than {VERSION_S:g} seconds"
    except OSError as error:
        return None, str(error)
    said = _first_line(ended.stdout) or _first_line(ended.stderr)
    if ended.returncode != 0:
        return None, f"exit code {ended.returncode}" + (f": {said}" if said else "")
    return (said, None) if said else (None, "it printed nothing")


def _first_line(output: bytes) -> str:
    lines = (line.strip() for line in output.decode("utf-8", "replace").splitlines())
    return printable(next((line for line in lines if line), ""))[:_MAX_CHARS]


def _logged_in(executor: Executor, environment: Mapping[str, str]) -> bool | None:
    if executor.login is None:
        return None
    files = (expanded(file, environment) for file in executor.login.files)
    by_variable = any(environment.get(name) for name in executor.login.env)
    return by_variable or any(file is not None and os.path.exists(file) for file in files)


def _writable(written: str, environment: Mapping[str, str]) -> bool:
    """Return whether a folder is there and can be written, or could be made.

    Files are written beside what they replace, so of those it is their folder that counts.
    """
    path = expanded(written, environment)
    if path is None:
        return False
    path = os.path.dirname(path) if path.endswith("*") else path
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)
