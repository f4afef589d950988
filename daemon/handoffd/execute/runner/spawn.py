"""Starts a program as the child of a shim, by posix_spawn and not by fork.

A fork copies the memory pages that parent and child touch next, which takes longer than everything else in a
start; posix_spawn lends the child the parent's memory until the program is executed. It also reports to the
parent at once why a program could not be executed.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping, Sequence

_CATCHABLE = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}


class Refusal(Exception):
    """The run cannot be started; the text is one line that says why.

    `no_program`: there is no such program, or it cannot be executed.
    """

    def __init__(self, why: str, *, no_program: bool = False) -> None:
        super().__init__(why)
        self.no_program = no_program


def explain(what: str, error: Exception) -> str:
    """Return one line on why a run could not be started, such as `ENOENT: program 'x': No such file`."""
    if isinstance(error, OSError) and error.errno:
        return f"{errno.errorcode.get(error.errno, error.errno)}: {what}: {error.strerror}"
    return f"{what}: {error}"


def open_stdin(path: str | None) -> int:
    """Return a descriptor to read `path` (None: nothing) from; raises Refusal."""
    # O_NONBLOCK: opening a named pipe would otherwise wait for a writer.
    try:
        stdin = os.open(path or os.devnull, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise Refusal(explain(f"stdin {path!r}", error)) from error
    os.set_blocking(stdin, True)
    return stdin


def spawn(argv: Sequence[str], env: Mapping[str, str], cwd: str, stdin: int, output: int) -> int:
    """Return the pid of a child that executes `argv` in `cwd`, in a session of its own.

    It has no descriptor but the three, every signal has its default effect, and its PATH is the one
    in `env`. Changes the working directory of this process, too: to `cwd`, and then to the root,
    so that it keeps no file system busy. Raises Refusal.
    """
    what, path = f"working directory {cwd!r}", ""
    try:
        os.chdir(cwd)
        what = f"program {argv[0]!r}"
        _refuse_nul(argv)
        path = _found(argv[0], env)
        streams = [(os.POSIX_SPAWN_DUP2, fd, stream) for stream, fd in enumerate((stdin, output, output))]
        return os.posix_spawn(
            path,
            list(argv),
            env,
            file_actions=streams,
            setsid=True,
            setsigmask=(),
            setsigdef=_CATCHABLE,
        )
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError) and os.path.isfile(path):
            what = f"the interpreter that the first line of {path!r} names"
        missing = bool(path) and isinstance(error, FileNotFoundError | PermissionError)
        raise Refusal(explain(what, error), no_program=missing) from error
    finally:
        os.chdir("/")


def _refuse_nul(argv: Sequence[str]) -> None:
    """Raise Refusal for a NUL character, which no name of a file and no argument can hold.

    The search for a program would only say that there is none.
    """
    for place, word in enumerate(argv):
        if "\0" in word:
            what = f"argument {place} of the program" if place else "the name of the program"
            raise Refusal(f"{what} {argv[0]!r} holds a NUL character", no_program=not place)


def _found(program: str, env: Mapping[str, str]) -> str:
    """Return the path of `program`, looked for in the PATH of `env` when it has no slash.

    Looked for here, because the search of posix_spawnp uses this process's own PATH. Raises Refusal
    when it is nowhere, or may not be executed.
    """
    if "/" in program:
        return program
    folders = os.get_exec_path(env)
    paths = [path for folder in folders if os.path.isfile(path := os.path.join(folder, program))]
    for path in paths:
        if os.access(path, os.X_OK):
            return path
    if paths:
        error = OSError(errno.EACCES, os.strerror(errno.EACCES))
        raise Refusal(explain(f"program {program!r}", error), no_program=True)
    raise Refusal(f"ENOENT: program {program!r} is not on the daemon's PATH", no_program=True)
