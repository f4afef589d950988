"""Packages that are installed so that they lead back to a project's own folder.

With such an installation the tests in another folder, a clone of the project, would run the code of the
project's folder, and prove nothing about their own. Only names and small files are read; nothing is run.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

_MOST_FILES = 2000
_MOST_BYTES = 256 * 1024


def leading_back(root: str, folders: Iterable[str], program: str | None, path: str) -> str | None:
    """Return a file of an installation that leads to the project at `root`; None when none is found.

    `folders` are the ones that a clone shares with the project (`.venv`, `node_modules`). `program` runs the
    tests: its own packages count, too; it is looked for in `path`. Blocks.
    """
    top = os.path.realpath(root)
    shared = [os.path.join(top, folder) for folder in folders]
    for folder in (*shared, *_environments(top, program, path)):
        for found in (*_python(Path(folder), top), *_node(Path(folder), top)):
            return str(found)
    return None


def _environments(root: str, program: str | None, path: str) -> Iterator[str]:
    """Yield the folder of the Python that a program belongs to, unless it is one of the project's own.

    What is in the project's folder is not in a clone, unless it is shared.
    """
    found = None if program is None or program.startswith(".") else shutil.which(program, path=path)
    if found is None:
        return
    for place in dict.fromkeys((found, os.path.realpath(found))):
        yield os.path.dirname(os.path.dirname(os.path.abspath(place)))


# --- Python -------------------------------------------------------------------------------------------
def _python(environment: Path, root: str) -> Iterator[Path]:
    """Yield the files by which an environment finds packages of the project: editable installations."""
    for packages in environment.glob("lib*/python3*/site-packages"):
        for file in islice(sorted(packages.glob("*.pth")), _MOST_FILES):
            if any(_is_in(line.strip(), root, environment) for line in _text(file).splitlines()):
                yield file
        for file in islice(sorted(packages.glob("__editable__*_finder.py")), _MOST_FILES):
            if f"'{root}/" in _text(file) or f"'{root}'" in _text(file):
                yield file


def _text(file: Path) -> str:
    with suppress(OSError):
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                return os.read(handle, _MOST_BYTES).decode("utf-8", "replace")
        finally:
            os.close(handle)
    return ""


# --- node ---------------------------------------------------------------------------------------------
def _node(modules: Path, root: str) -> Iterator[Path]:
    """Yield the packages of a `node_modules` that are links to folders of the project: its workspaces."""
    if modules.name != "node_modules":
        return
    for entry in islice((*modules.glob("*"), *modules.glob("@*/*")), _MOST_FILES):
        if entry.is_symlink() and _is_in(os.path.realpath(entry), root, modules):
            yield entry


def _is_in(path: str, root: str, but: Path) -> bool:
    """Return whether a path is in the project, but not in the shared folder itself."""
    if not path.startswith("/"):
        return False
    real, shared = os.path.realpath(path), os.path.realpath(but)
    inside = real == root or real.startswith(f"{root}/")
    return inside and not (real == shared or real.startswith(f"{shared}/"))
