"""The files that the sample project and its story US-001 are made of.

They carry the suffix `.sample`, so that no tool working on handoffd itself takes them for its own
sources or tests; it is dropped when they are written into a project.
"""

from __future__ import annotations

import os

from handoffd.rehearsal.workspace import Workspace

STORY = "US-001"

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sample")
_SUFFIX = ".sample"
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
