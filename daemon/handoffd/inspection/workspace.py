"""The projects in a folder of projects, whether anybody supervises them or not."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path

from handoffd.errors import HandoffdError, NotFound
from handoffd.files.errors import storage_error
from handoffd.inspection.project_status import (
    INVALID_STATE,
    NO_STEP,
    NOT_INITIALIZED,
    parsed_state,
    project_name,
)

MARKERS = (
    ".ai/STATE.json", "package.json", "go.mod", "Cargo.toml", "pyproject.toml", "setup.py", ".git",
)  # fmt: skip
"""A folder that has one of these is a project."""
MOST_FOLDERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedProject:
    """One project of a folder: `dir` is its name there. `status` as in `ProjectStatus`."""

    name: str
    dir: str
    step: str = NO_STEP
    status: str = NOT_INITIALIZED
    story: str | None = None
    has_framework: bool = False


def list_projects(folder: str) -> tuple[ListedProject, ...]:
    """Return the projects that lie in `folder`, by name; hidden ones and what cannot be read are left out.

    Looks at 10,000 entries at most. Raises NotFound when it is no folder, StoreError when it cannot be
    listed.
    """
    try:
        names = sorted(os.listdir(folder), key=os.fsencode)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"{folder} is no folder", hint="handoffd projects") from error
    except OSError as error:
        raise storage_error("list", Path(folder), error) from error
    shown = [name for name in names if not name.startswith(".")][:MOST_FOLDERS]
    found = (_project(Path(folder, name)) for name in shown)
    return tuple(project for project in found if project is not None)


def folders_called(words: Iterable[str], bases: Iterable[str], sure: str | None = None) -> dict[str, str]:
    """Return which of some words are names of project folders in `bases`, with their places.

    The first base that has one counts. `sure` is the name of a project in any case: it needs no marker.
    """
    found: dict[str, str] = {}
    for base in bases:
        for word in words:
            if word in found or not _is_name(word):
                continue
            place = os.path.join(base, word)
            if os.path.isdir(place) and (word == sure or looks_like_project(place)):
                found[word] = place
    return found


def _is_name(word: str) -> bool:
    return bool(word) and "/" not in word and "\0" not in word and not word.startswith(".")


def looks_like_project(folder: str) -> bool:
    """Return whether a folder has what makes a project of it; it is not looked into any further."""
    try:
        return any(os.path.lexists(os.path.join(folder, marker)) for marker in MARKERS)
    except ValueError:  # a character that no name can have
        return False


def others_in(bases: Iterable[str], known: Container[str]) -> tuple[str, ...]:
    """Return the names of project folders in `bases` that are not `known` by their places.

    Hidden ones and what cannot be listed are left out; 10,000 entries of each are looked at.
    """
    found: set[str] = set()
    for base in bases:
        try:
            names = sorted(os.listdir(base))[:MOST_FOLDERS]
        except OSError:
            continue  # not ours to look into
        places = ((name, os.path.join(base, name)) for name in names if not name.startswith("."))
        found |= {name for name, place in places if place not in known and looks_like_project(place)}
    return tuple(os.fsencode(name).decode("utf-8", errors="replace") for name in sorted(found))


def _project(root: Path) -> ListedProject | None:
    try:
        if not root.is_dir() or not any((root / marker).exists() for marker in MARKERS):
            return None
        return listed(root)
    except (OSError, HandoffdError):
        return None  # not ours to look into, or taken away this moment


def listed(root: Path) -> ListedProject:
    """Return what a project's own files say of it."""
    shown = os.fsencode(root.name).decode("utf-8", errors="replace")
    has_state = (root / MARKERS[0]).exists()
    try:
        parsed = parsed_state(str(root)) if has_state else None
    except HandoffdError:
        return ListedProject(name=_name(root), dir=shown, status=INVALID_STATE, has_framework=True)
    if parsed is None:
        return ListedProject(name=_name(root), dir=shown)
    state = parsed.state
    return ListedProject(
        name=state.project,
        dir=shown,
        step=state.step,
        status=state.status.value,
        story=state.story,
        has_framework=True,
    )


def _name(root: Path) -> str:
    return os.fsencode(project_name(str(root))).decode("utf-8", errors="replace")
