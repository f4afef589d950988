"""The next command to type when what somebody wrote is wrong: it opens the file, or shows the variable."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from shlex import quote

from handoffd.errors import InvalidFile, Problem

_VARIABLE = re.compile(r"HANDOFFD_\w+", re.IGNORECASE | re.ASCII)


def with_remedy(invalid: InvalidFile, folder: str = "/") -> InvalidFile:
    """Return the error with the command that helps to mend it. Relative names are of files in `folder`."""
    return InvalidFile(invalid.problems, hint=_remedy(invalid.problems, folder))


@contextmanager
def remedies(folder: str) -> Iterator[None]:
    """Give every InvalidFile that is raised within its remedy; relative names are of files in `folder`."""
    try:
        yield
    except InvalidFile as invalid:
        raise with_remedy(invalid, folder) from None


def _remedy(problems: tuple[Problem, ...], folder: str) -> str:
    for problem in problems:
        path = os.path.join(folder, problem.file)
        if os.path.isfile(path):
            return _editor(path, problem.line)
    name = problems[0].file
    if name.startswith("--"):
        return "handoffd run --help"
    if "/" in name:
        return f"ls -l {quote(os.path.dirname(os.path.join(folder, name)))}"
    return f"printenv {name}" if _VARIABLE.fullmatch(name) else "env | grep ^HANDOFFD_"


def _editor(path: str, line: int | None) -> str:
    place = "" if line is None else f"+{line} "
    return f"${{EDITOR:-vi}} {place}{quote(path)}"
