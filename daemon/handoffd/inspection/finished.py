"""Which stories were done before the project was taken in, by what its files say.

Agents write these files. So what is found here is asked for once, when a project gets its first track, and
becomes a part of that event: it tells which stories need not be done again, and opens no gate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from handoffd.errors import HandoffdError
from handoffd.files.projection import read_state
from handoffd.files.rooted import read_project_file
from handoffd.inspection.framework import read_memory, section_of
from handoffd.protocol.rules import DONE
from handoffd.protocol.state import State, parse_state
from handoffd.protocol.story import is_story_id

HISTORY = ".ai/history.md"
STATES = ".ai/states"
MAX_BYTES = 4 * 1024 * 1024
MOST_STORIES = 1000

_ID = re.compile(r"(?<![\w.-])[A-Z][A-Z0-9]*-\d[A-Za-z0-9_-]*")
_HEADING = re.compile(r"#{1,6}\s+(.*)")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+(?:\[[xX]\]\s*)?[*_`]*(.*)")
_SAID = re.compile(r"\b(?:done|complete|completed|finished)\b|完成", re.IGNORECASE)
_DENIED = re.compile(
    r"\b(?:not|never|isn't|almost|nearly|half|partly|partially|un\w*|todo|when|until|once|before|blocked)\b"
    r"|\[ \]|未|尚|沒|没",
    re.IGNORECASE,
)
_STEPS = re.compile(
    r"\b(?:bootstrap|bdd|sdd|sdd-delta|contract|review|scaffold|impl|verify|commit)\b", re.IGNORECASE
)


def finished_before(root: str, state: State | None = None) -> tuple[str, ...]:
    """Return the stories that were done, in the order in which they are named; `state` is STATE.json.

    A story that STATE.json has in hand is not among them, whatever the other files say. A file that cannot
    be read names none.
    """
    found: dict[str, None] = {}
    with suppress(HandoffdError):
        found |= dict.fromkeys(named_in_memory(read_memory(root) or ""))
    for story, done in archived(root).items():
        if done:
            found[story] = None
        else:
            found.pop(story, None)
    states = (*_states(root), *((state,) if state is not None else ()))
    for one in states:
        if one.story is not None and is_story_id(one.story):
            found.pop(one.story, None)
            if one.step == DONE:
                found[one.story] = None
    return tuple(found)[-MOST_STORIES:]


def archived(root: str) -> dict[str, bool]:
    """Return the stories of the project's own archive, done (True) or reopened; none if it cannot be read."""
    try:
        seen = read_project_file(Path(root), HISTORY, MAX_BYTES)
    except HandoffdError:
        return {}
    return named_in_history(seen.content.decode("utf-8", errors="replace") if seen else "")


def named_in_memory(memory: str) -> tuple[str, ...]:
    """Return the stories that the DONE section lists: an id at the beginning of an item, not struck out."""
    items = (_ITEM.fullmatch(line) for line in section_of(memory, "DONE") if not _DENIED.search(line))
    ids = (_ID.match(item[1]) for item in items if item is not None)
    return tuple(dict.fromkeys(_valid(one[0] for one in ids if one is not None)))


def named_in_history(history: str) -> dict[str, bool]:
    """Return the stories of which the archive says that they are done (True), or were reopened (False).

    The last word counts. What is said of one step of a story says nothing of the story.
    """
    found: dict[str, bool] = {}
    below_done = False
    for line in history.splitlines():
        heading = _HEADING.fullmatch(line)
        if heading is not None:
            below_done = heading[1].strip().upper() == "DONE"
        ids = tuple(_valid(_ID.findall(line)))
        if heading is not None and heading[1].startswith("Reopen"):
            found |= dict.fromkeys(ids[:1], False)
        elif _DENIED.search(line) or _STEPS.search(line):
            continue
        elif (below_done and heading is None) or _SAID.search(line):
            for story in ids[:1]:
                found.pop(story, None)
                found[story] = True
    return found


def _states(root: str) -> Iterator[State]:
    """Yield what tracks of their own say, as far as it can be understood."""
    folder = Path(root, STATES)
    try:
        names = sorted(path.stem for path in folder.iterdir() if path.suffix == ".json")
    except OSError:
        return
    for name in names[:MOST_STORIES]:
        with suppress(HandoffdError):
            seen = read_state(Path(root), name)
            if seen is not None:
                yield parse_state(seen.text).state


def _valid(names: Iterable[str]) -> Iterator[str]:
    return (name for name in names if is_story_id(name))
