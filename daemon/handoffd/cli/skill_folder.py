"""Where a skill lies, and what is there: ours, an older one of ours, or what a person made of it.

Agents look for skills in folders of a person (`~/.claude/skills`) or of a project. What we wrote is noted
beside it by its digest, so that a file somebody changed is told from one of an older release.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import handoffd
from handoffd.errors import NotFound
from handoffd.files.atomic import digest_of
from handoffd.files.rooted import open_parent, read_project_file, write_project_file
from handoffd.settings.paths import shared

NAME: Final = "handoffd"
FILE: Final = "SKILL.md"
NOTE: Final = ".installed.json"
_LARGEST: Final = 1024 * 1024

Standing = Literal["absent", "current", "outdated", "changed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A folder for skills. `root` may be reached through links, as a person made them; `below` it may not."""

    root: Path
    below: str = ""

    @property
    def file(self) -> Path:
        """Where the skill is, or would be."""
        return self.root / self.inside(FILE)

    def inside(self, name: str) -> str:
        """Return a file of the skill, below the root."""
        return "/".join(part for part in (self.below, NAME, name) if part)


def place_of(folder: str | None, project: str | None, home: Path) -> Place:
    """Return where to put the skill: in a folder of skills, in a project, else for a person's every project.

    Raises NotFound for a project that is no folder.
    """
    if folder is not None:
        return Place(root=Path(os.path.abspath(os.path.expanduser(folder))))
    if project is None:
        return Place(root=home / ".claude" / "skills")
    root = Path(os.path.abspath(os.path.expanduser(project)))
    if not root.is_dir():
        raise NotFound(f"{root} is no folder", hint=f"ls {root.parent}")
    return Place(root=root, below=".claude/skills")


def shipped() -> str:
    """Return the skill as it ships."""
    return shared("config", "skill", FILE).read_text(encoding="utf-8")


def standing(place: Place) -> Standing:
    """Return what is there. Raises StoreError for what is not safe to read."""
    found = _read(place, FILE)
    if found is None:
        return "absent"
    if found == shipped().encode():
        return "current"
    return "outdated" if digest_of(found) == _noted(place) else "changed"


def write(place: Place) -> None:
    """Put the skill there, over whatever is. Raises StoreError."""
    place.root.mkdir(parents=True, exist_ok=True)
    text = shipped()
    note = {"version": handoffd.__version__, "digest": digest_of(text)}
    write_project_file(place.root, place.inside(FILE), text)
    write_project_file(place.root, place.inside(NOTE), json.dumps(note) + "\n")


def remove(place: Place) -> None:
    """Take the skill away, and its folder if nothing else is in it. Raises StoreError."""
    with open_parent(place.root, place.inside(FILE)) as folder:
        for name in (FILE, NOTE) if folder is not None else ():
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
    with open_parent(place.root, place.inside(FILE).removesuffix(f"/{FILE}")) as above, suppress(OSError):
        os.rmdir(NAME, dir_fd=above)  # there may be more in it, of a person's


def _read(place: Place, name: str) -> bytes | None:
    if not place.root.is_dir():
        return None
    seen = read_project_file(place.root, place.inside(name), _LARGEST)
    return None if seen is None else seen.content


def _noted(place: Place) -> str | None:
    try:
        noted = json.loads(_read(place, NOTE) or b"{}")
    except ValueError:
        return None
    digest = noted.get("digest") if isinstance(noted, dict) else None
    return digest if isinstance(digest, str) else None
