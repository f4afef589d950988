"""Packages that are installed so that they lead back to a project's own folder.

With such an installation the tests in another folder, a clone of the project, would run the code of the
project's folder, and prove nothing about their own. Only names and small files are read; nothing is run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from urllib.parse import unquote, urlsplit

_MOST_FILES = 2000
_MOST_BYTES = 256 * 1024


def leading_back(
    root: str,
    shared: Iterable[str],
    command: Sequence[str] | None,
    environment: Mapping[str, str],
    *,
    installs: bool = False,
) -> str | None:
    """Return what of an installation leads to the project at `root`: a file, a variable; None: nothing found.

    `shared` are the paths that a clone shares with the project (`.venv`, `node_modules`, `.env`). `command`
    runs the tests: the packages of its Python count, too. So do the ones of any Python in the PATH of
    `environment` where a command such as `make test` may use it, unless the clone `installs` its own. Blocks.
    """
    top = os.path.realpath(root)
    for path in shared:
        place = os.path.join(top, path)
        if os.path.isfile(place) and _names(_text(Path(place)), top):
            return place
    folders = [Path(top, path) for path in shared]
    programs = list((command or ())[:1])
    if _is_python(top) and not installs and not _ALONE.intersection(programs):
        programs += _PYTHONS
        folders.append(Path(environment.get("HOME", "/nonexistent"), ".local"))
    folders += [folder for one in programs for folder in _environments(one, environment.get("PATH", ""))]
    for folder in dict.fromkeys(folders):
        for found in (*_python(folder, top), *_node(folder, top)):
            return str(found)
    return next((name for name in _VARIABLES if _leads(environment.get(name, ""), top, shared)), None)


_PYTHONS = ("pytest", "python3", "python")
_ALONE = frozenset(
    {
        "bun", "cargo", "go", "gradle", "hatch", "mvn", "node", "nox", "npm", "npx", "pdm", "pipenv", "pnpm",
        "poetry", "tox", "uv", "yarn",
    }
)  # fmt: skip
"""Programs that run no Python, or one in an environment that they make for the folder."""
_MANIFESTS = ("pyproject.toml", "setup.py", "setup.cfg")
_VARIABLES = ("PYTHONPATH", "NODE_PATH")


def _is_python(root: str) -> bool:
    return any(os.path.isfile(os.path.join(root, name)) for name in _MANIFESTS)


def _environments(program: str, path: str) -> Iterator[Path]:
    """Yield the folders that the Python which a program belongs to has packages in.

    A program in the project's own folder is not in a clone, unless that is shared.
    """
    found = None if program.startswith(".") else shutil.which(program, path=path)
    if found is None:
        return
    for place in dict.fromkeys((found, os.path.realpath(found))):
        folder = Path(os.path.abspath(place)).parent.parent
        yield from (folder, folder / "local", *folder.glob("versions/*"))


def _leads(paths: str, root: str, shared: Iterable[str]) -> bool:
    """Return whether a list of paths names the project's folder, other than by what a clone shares."""
    own = [os.path.join(root, path) for path in shared]
    real = [os.path.realpath(path) for path in paths.split(os.pathsep) if path.startswith("/")]
    return any(_within(path, root) and not any(_within(path, one) for one in own) for path in real)


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _names(text: str, root: str) -> bool:
    """Return whether a text names the project's folder, or a path in it."""
    return re.search(rf"{re.escape(root)}(?![\w.-])", text) is not None


# --- Python -------------------------------------------------------------------------------------------
def _python(environment: Path, root: str) -> Iterator[Path]:
    """Yield the files by which an environment finds packages of the project: editable installations."""
    for packages in (found for pattern in _PACKAGES for found in environment.glob(pattern)):
        for file in islice(sorted(packages.glob("*.pth")), _MOST_FILES):
            if any(_is_in(line.strip(), root, environment) for line in _text(file).splitlines()):
                yield file
        for file in islice(sorted(packages.glob("__editable__*_finder.py")), _MOST_FILES):
            if f"'{root}/" in _text(file) or f"'{root}'" in _text(file):
                yield file
        for file in islice(sorted(packages.glob("*.dist-info/direct_url.json")), _MOST_FILES):
            if _is_editable(_text(file), root, environment):
                yield file


_PACKAGES = ("lib*/python3*/site-packages", "lib*/python3*/dist-packages")


def _is_editable(text: str, root: str, environment: Path) -> bool:
    """Return whether an installer has noted that a package is the code in the project's folder."""
    try:
        known = json.loads(text)
        url, editable = urlsplit(known["url"]), known["dir_info"]["editable"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return False
    return editable is True and url.scheme == "file" and _is_in(unquote(url.path), root, environment)


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
    spared = shared != root and _within(shared, root) and _within(real, shared)
    return _within(real, root) and not spared
