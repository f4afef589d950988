"""Reading and writing inside the project, and nowhere else.

The rehearsal runs on any copy of any project. So every path is resolved first and refused when it
leaves the root, reads are capped, writes are all or nothing, and a file that is already as it should
be is not touched: doing a step twice changes what doing it once changes.
"""

from __future__ import annotations

import os

MARK = "handoffd-rehearsal"
"""In every generated file; one without it belongs to a person and is left alone."""

_MOST_BYTES = 1024 * 1024


class OutsideProject(Exception):
    """A path leads out of the project, through a symbolic link for instance."""


class Workspace:
    """The files of one project, by paths relative to its root with `/` between the parts."""

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)

    def path(self, name: str) -> str:
        """Return the absolute path of `name`; `OutsideProject` when it is not in the root."""
        path = os.path.realpath(os.path.join(self.root, name))
        if path != self.root and not path.startswith(self.root.rstrip("/") + "/"):
            raise OutsideProject(f"{name} leads to {path}, outside of the project")
        return path

    def exists(self, name: str) -> bool:
        """Is there a file or folder of that name?"""
        return os.path.exists(self.path(name))

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder; none when it is missing."""
        try:
            return sorted(os.listdir(self.path(folder)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, name: str) -> str | None:
        """Return the text of a file (its first MiB; undecodable bytes replaced), or None without one."""
        path = self.path(name)
        if not os.path.isfile(path):
            return None
        with open(path, "rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")

    def write(self, name: str, text: str) -> None:
        """Make `name` hold `text`, by a rename; a file that holds it already is not touched."""
        if self.read(name) != text:
            self.replace(name, text.encode())

    def write_new(self, name: str, text: str) -> bool:
        """Write a file of ours; False, and nothing written, when a person's file has that name."""
        present = self.read(name)
        if present is not None and present != text and MARK not in present:
            return False
        self.write(name, text)
        return True

    def replace(self, name: str, body: bytes) -> None:
        """Replace `name` whatever it holds: a new inode every time."""
        path = self.path(name)
        folder, base = os.path.split(path)
        os.makedirs(folder, exist_ok=True)
        # A fixed name: what a killed rehearsal leaves behind is overwritten by the next.
        temporary = os.path.join(folder, f".{base}.{MARK}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o644), "wb") as file:
            file.write(body)
        if os.path.exists(path):
            os.chmod(temporary, os.stat(path).st_mode & 0o777)
        os.replace(temporary, path)


# --- the files of the sample project and of its story ------------------------------------------------
STORY = "US-001"

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sample")
_SUFFIX = ".sample"
"""So that no tool working on handoffd itself takes them for its own sources or tests."""
_HIDDEN = {"gitignore": ".gitignore", "gitkeep": ".gitkeep"}  # hidden names would act on this repository
_TABLE = "[tool.handoffd-rehearsal]"


def is_sample(workspace: Workspace) -> bool:
    """Is this project (a copy of) the sample?"""
    return _TABLE in (workspace.read("pyproject.toml") or "")


def project_files() -> dict[str, str]:
    """Return the sample's files as it ships: project path to text."""
    top = os.path.join(_FOLDER, "files")
    found = {}
    for folder, _, names in os.walk(top):
        for name in sorted(names):
            base = name.removesuffix(_SUFFIX)
            path = os.path.relpath(os.path.join(folder, _HIDDEN.get(base, base)), top)
            found[path] = _read(os.path.join(folder, name))
    return found


def project_file(name: str) -> str:
    """Return one file of the sample as it ships, such as `shop/pricing.py`."""
    return _read(os.path.join(_FOLDER, "files", name + _SUFFIX))


def story_file(name: str) -> str:
    """Return one file of story US-001, such as `tests/test_discounts.py`."""
    return _read(os.path.join(_FOLDER, "us_001", name + _SUFFIX))


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
