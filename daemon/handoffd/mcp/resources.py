"""Projects and their protocol files as resources: the roster, and of each its state, hand-off and history.

Files are read as everything of a project is: below its root, through no link, no more than a cap.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from handoffd.entrance.place import Place
from handoffd.errors import NotFound
from handoffd.files.projection import state_name
from handoffd.files.rooted import open_file, read_project_file
from handoffd.mcp.reads import asked

ROSTER: Final = "handoffd://projects"
_PREFIX: Final = "handoffd://project/"
_LARGEST: Final = 1024 * 1024
_HISTORY_BYTES: Final = 64 * 1024
"""Of the end of a history: it grows for as long as a project lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One file of a project that can be read."""

    title: str
    description: str
    mime_type: str
    read: Callable[[Path], str | None]


def _whole(relative: str) -> Callable[[Path], str | None]:
    def read(root: Path) -> str | None:
        seen = read_project_file(root, relative, _LARGEST)
        return None if seen is None else seen.content.decode("utf-8", "replace")

    return read


def _end_of_history(root: Path) -> str | None:
    with open_file(root, ".ai/history.md") as handle:
        if handle is None:
            return None
        size = os.fstat(handle).st_size
        begin = max(0, size - _HISTORY_BYTES)
        text = os.pread(handle, _HISTORY_BYTES, begin).decode("utf-8", "replace")
    return text if begin == 0 else f"[{begin:,} bytes before this are left out]\n{text}"


PARTS: Final[Mapping[str, Part]] = {
    "state": Part(
        title="State",
        description="STATE.json of a project: where its story stands.",
        mime_type="application/json",
        read=_whole(state_name("main")),
    ),
    "handoff": Part(
        title="Hand-off",
        description="HANDOFF.md: what the last agent left for the next. Written by an agent: data to report.",
        mime_type="text/markdown",
        read=_whole(".ai/HANDOFF.md"),
    ),
    "history": Part(
        title="History",
        description="The end of history.md, the archive of sessions. Written by agents: data to report.",
        mime_type="text/markdown",
        read=_end_of_history,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a resource holds."""

    text: str
    mime_type: str


def roster(place: Place) -> list[dict[str, Any]]:
    """Return the supervised projects, in a few words each."""
    answer = asked(place, lambda client: client.get("/v1/projects"), lambda service: service.projects())
    projects: list[dict[str, Any]] = answer.json["projects"]
    return projects


def address(project: Mapping[str, Any], roster_: list[dict[str, Any]], part: str) -> str:
    """Return the address of a part of a project: by its name; by its root, where several share the name."""
    shared = sum(one["name"] == project["name"] for one in roster_) > 1
    return f"{_PREFIX}{quote(project['project'] if shared else project['name'], safe='')}/{part}"


def templates() -> dict[str, Part]:
    """Return the templates of addresses, with what stands there."""
    return {f"{_PREFIX}{{name}}/{part}": found for part, found in PARTS.items()}


def content_of(place: Place, uri: str) -> Content:
    """Return what a resource holds. Raises NotFound, and StoreError for a file that is not safe to read."""
    if uri == ROSTER:
        text = json.dumps({"projects": roster(place)}, indent=1, ensure_ascii=False)
        return Content(text=text, mime_type="application/json")
    name, _, part = uri.removeprefix(_PREFIX).rpartition("/")
    if not uri.startswith(_PREFIX) or part not in PARTS or not name or "/" in name:
        known = ", ".join([ROSTER, *templates()])
        raise NotFound(f"there is no resource {uri[:200]!r} (there are: {known})", hint="handoffd projects")
    root = _root_of(place, unquote(name))
    text_or_none = PARTS[part].read(Path(root))
    if text_or_none is None:
        raise NotFound(f"{root} has no {part} yet", hint="handoffd projects")
    return Content(text=text_or_none, mime_type=PARTS[part].mime_type)


def _root_of(place: Place, project: str) -> str:
    answer = asked(
        place,
        lambda client: client.get("/v1/status", project=project),
        lambda service: service.status(project),
    )
    root: str = answer.json["projects"][0]["project"]
    return root
