"""One visit of a project's folder: all that a look needs of the disk, fetched by one thread in one go.

A hop to a thread costs more than reading a few small files, and a daemon that starts looks at all its
projects. What cannot be read is part of what was found: the rest still counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from handoffd.errors import HandoffdError
from handoffd.files.atomic import has_temporaries
from handoffd.files.locks import project_lock_path
from handoffd.files.ownership import owner_of
from handoffd.files.projection import Seen, read_state
from handoffd.inspection.own_files import Texts, read_texts


@dataclass(slots=True, kw_only=True)
class Found:
    """What lay there. `lock` guards the folder that lies at the root now; `texts` is None if not read.

    `halves`: whether a write that a crash cut off has left its file.
    """

    lock: Path
    texts: Texts | None = None
    states: dict[str, Seen | None] = field(default_factory=dict)
    halves: bool = False
    owner: str | None = None
    """The state directory of another daemon that the project belongs to."""
    error: HandoffdError | None = None
    """Why there is not more: what comes after it was not looked at."""


def visit(state_dir: Path, root: Path, tracks: Iterable[str], *, texts: bool, first: bool) -> Found:
    """Return what lies in a project: its own files if asked for, the STATE file of every track.

    With `first`, halves are looked for. Blocks for as long as the disk does. Raises StoreError when
    the root is gone or cannot be looked at.
    """
    found = Found(lock=project_lock_path(state_dir, root), owner=owner_of(str(root), state_dir))
    try:
        found.halves = first and has_temporaries(root / ".ai")
        if texts:
            found.texts = read_texts(root)
        for track in tracks:
            found.states[track] = read_state(root, track)
    except HandoffdError as error:
        found.error = error
    return found
