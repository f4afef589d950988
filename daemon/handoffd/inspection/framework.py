"""How far a project has adopted the protocol: its files, its memory, and the stories that these name.

Executors write these files. They are shown to people, and little is decided by them. Which stories were done
before the project was taken in is asked for once, when the project gets its first track, and becomes a part
of that event: it tells which stories need not be done again. Whether a story is described anywhere, and which
number is the next, become a part of the event of its start. None of that opens a gate.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from handoffd.errors import HandoffdError, Refused
from handoffd.files.rooted import read_project_file
from handoffd.files.state_file import MAIN, read_state, state_name
from handoffd.protocol.rules import DONE
from handoffd.protocol.state import State, parse_state
from handoffd.protocol.story import Numbering, expand, is_story_id, numberings, qualified
from handoffd.protocol.story_text import StoryText, story_text

# --- which files are there ----------------------------------------------------------------------------
Level = Literal[0, 1, 2]


class Framework(Struct, frozen=True, kw_only=True):
    """Which of the protocol's files a project has; `level` is 0 for none of the first five, 2 for all."""

    has_state: bool
    has_memory: bool
    has_context: bool
    has_constitution: bool
    has_sdd: bool
    has_handoff: bool
    has_history: bool
    level: Level


def detect_framework(root: str) -> Framework:
    """Return which of the protocol's files the project at `root` has. A missing folder has none.

    They are looked for and not read. For STATE.json it is enough that something has its name: its reader
    reports what is wrong with it.
    """
    project = Path(root)
    state = _exists(project / state_name(MAIN))
    memory, context = _is_file(project / MEMORY), _is_file(project / "PROJECT_CONTEXT.md")
    constitution, sdd = _is_file(project / "docs/constitution.md"), _is_file(project / "docs/sdd.md")
    found = (state, memory, context, constitution, sdd)
    return Framework(
        has_state=state,
        has_memory=memory,
        has_context=context,
        has_constitution=constitution,
        has_sdd=sdd,
        has_handoff=_is_file(project / ".ai/HANDOFF.md"),
        has_history=_is_file(project / ".ai/history.md"),
        level=2 if all(found) else 1 if any(found) else 0,
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False  # a folder on the way that is not ours to look into


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


# --- PROJECT_MEMORY.md --------------------------------------------------------------------------------
MEMORY = "PROJECT_MEMORY.md"
MAX_BYTES = 1024 * 1024
SUMMARY_CHARACTERS = 500
MOST_ISSUES = 500
_HEADING = re.compile(r"(#{1,6})\s+(.*)")
_LABEL = re.compile(r"ISSUES\s*[:：]", re.IGNORECASE)
_ITEM = re.compile(r"\s{0,3}[-*+]\s*\[\s*\](.*)")
_BELOW_ALL_HEADINGS = 7
_BEGINS_OR_ENDS = re.compile(r"#|\s*```|ISSUES\s*[:：]", re.IGNORECASE)
"""What every line that begins or ends a section, or a block of code, begins with. Few lines do."""


def read_memory(root: str) -> str | None:
    """Return the text of the project's memory, None when there is none.

    Raises StoreError (UNSAFE_FILE) for a link, a folder, or more than 1 MiB.
    """
    seen = read_project_file(Path(root), MEMORY, MAX_BYTES)
    return None if seen is None else seen.content.decode("utf-8", errors="replace")


def memory_summary(memory: str) -> str | None:
    """Return the NEXT section with its heading, at most 500 characters; None without one."""
    lines = list(section_of(memory, "NEXT"))
    return "\n".join(lines).strip()[:SUMMARY_CHARACTERS] or None


def open_issues(memory: str) -> tuple[str, ...]:
    """Return the unticked items of the ISSUES section, one line each, at most 500 of them."""
    found: list[str] = []
    for line in section_of(memory, "ISSUES"):
        item = _ITEM.match(line)
        if item and item[1].strip() and len(found) < MOST_ISSUES:
            found.append(item[1].strip())
    return tuple(found)


def section_of(text: str, name: str) -> Iterator[str]:
    """Yield the lines of every section of that name, with its heading and what is below it."""
    depth, fenced = 0, False
    for line in text.splitlines():
        if _BEGINS_OR_ENDS.match(line) is None:
            if depth:
                yield line
            continue
        fenced = fenced != line.lstrip().startswith("```")
        level, title = (0, "") if fenced else _title(line)
        if level and _names(title, name):
            depth = depth or level
        elif 0 < level <= depth:
            depth = 0
        if depth:
            yield line


def _title(line: str) -> tuple[int, str]:
    """Return the depth of a heading and what it says; depth 0 for a line that is none.

    A bare `ISSUES:` heads a section, too; whatever heading comes next ends that.
    """
    heading = _HEADING.fullmatch(line)
    if heading:
        return len(heading[1]), heading[2].strip()
    return (_BELOW_ALL_HEADINGS, line) if _LABEL.match(line) else (0, "")


def _names(title: str, name: str) -> bool:
    return title.upper().startswith(name) and not title[len(name) : len(name) + 1].isalnum()


# --- stories done before the project was taken in -----------------------------------------------------
HISTORY = ".ai/history.md"
STATES = ".ai/states"
MAX_HISTORY_BYTES = 4 * 1024 * 1024
MOST_STORIES = 1000
_ID = re.compile(r"(?<![\w.-])[A-Z][A-Z0-9]*-\d[A-Za-z0-9_-]*")
_HISTORY_HEADING = re.compile(r"#{1,6}\s+(.*)")
_DONE_ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+(?:\[[xX]\]\s*)?[*_`]*(.*)")
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
        seen = read_project_file(Path(root), HISTORY, MAX_HISTORY_BYTES)
    except HandoffdError:
        return {}
    return named_in_history(seen.content.decode("utf-8", errors="replace") if seen else "")


def named_in_memory(memory: str) -> tuple[str, ...]:
    """Return the stories that the DONE section lists: an id at the beginning of an item, not struck out."""
    items = (_DONE_ITEM.fullmatch(line) for line in section_of(memory, "DONE") if not _DENIED.search(line))
    ids = (_ID.match(item[1]) for item in items if item is not None)
    return tuple(dict.fromkeys(_valid(one[0] for one in ids if one is not None)))


def named_in_history(history: str) -> dict[str, bool]:
    """Return the stories of which the archive says that they are done (True), or were reopened (False).

    The last word counts. A statement about one step of a story is none about the story.
    """
    found: dict[str, bool] = {}
    below_done = False
    for line in filter(None, history.splitlines()):
        heading = _HISTORY_HEADING.fullmatch(line) if line.startswith("#") else None
        if heading is not None:
            below_done = heading[1].strip().upper() == "DONE"
        ids = tuple(_valid(_ID.findall(line)))
        if not ids:
            continue
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
            seen = read_state(Path(root), name, beside=True)
            if seen is not None:
                yield parse_state(seen.text).state


def _valid(names: Iterable[str]) -> Iterator[str]:
    return (name for name in names if is_story_id(name))


# --- stories that the files describe ------------------------------------------------------------------
# By what they say a start is warned of, or a number is chosen. A memory that cannot be read describes every
# story: that holds no start up.
SCENARIOS: Final = "docs/bdd"
_SPECIFICATIONS: Final = (SCENARIOS, "docs/deltas")
_MOST_FILES: Final = 5_000
_MOST_MENTIONED: Final = 50
"""Prefixes that a memory may mention: more are a hostile text, and each is a part of the event."""

_WORD: Final = re.compile(r"(?<![\w.-])([A-Za-z][A-Za-z0-9]{0,19}[-_])?[0-9]{1,6}(?![\w-])")
_FILED: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,19}[-_][0-9]{1,6}(?=$|[-_.])")
_HEADED: Final = re.compile(r"\s*(?:#{1,6}|[-*+]|\d+[.)])\s+(?:\[[ xX]?\]\s*)?[*_`]*")


class StoryFacts(Struct, frozen=True, kw_only=True):
    """What a project's files say of stories that are asked for."""

    undescribed: tuple[str, ...]
    """The stories that they do not mention."""
    numbers: tuple[Numbering, ...]


def story_facts(root: str, stories: Iterable[str]) -> StoryFacts:
    """Return which of `stories` no file of the project at `root` describes, and its numbering."""
    memory = _memory(root)
    names = tuple(_specified(root))
    lines = (memory or "").splitlines()
    headed = (word for line in lines if (word := _heading_id(line)) is not None)
    mentioned = (found[0] for line in lines for found in _WORD.finditer(line) if found[1])
    filed = (found[0] for name in names if (found := _FILED.match(name)) is not None)
    known = numberings((*filed, *archived(root), *headed), mentioned)
    undescribed = tuple(one for one in stories if not _is_described(root, one, memory, names))
    return StoryFacts(undescribed=undescribed, numbers=known[:_MOST_MENTIONED])


def _memory(root: str) -> str | None:
    """Return the project's memory, empty if it has none; None if that cannot be read."""
    try:
        return read_memory(root) or ""
    except HandoffdError:
        return None


def _is_described(root: str, story: str, memory: str | None, names: Iterable[str]) -> bool:
    if memory is None or os.path.lexists(os.path.join(root, expand(f"{SCENARIOS}/US-{{story}}.md", story))):
        return True
    ids = {story, qualified(story)}
    heads = tuple(f"{one}{sign}" for one in ids for sign in "-_.")
    if any(name in ids or name.startswith(heads) for name in names):
        return True
    return any(re.search(rf"(?<![\w-]){re.escape(one)}(?![\w-])", memory) for one in ids)


def _specified(root: str) -> Iterator[str]:
    """Yield the names of the project's specifications, without their extension."""
    for folder in _SPECIFICATIONS:
        try:
            with os.scandir(Path(root, folder)) as entries:
                found = sorted(entry.name for _, entry in zip(range(_MOST_FILES), entries, strict=False))
        except OSError:
            continue
        yield from (name.rpartition(".")[0] or name for name in found)


_MOST_DESCRIBED: Final = 40
"""Lines of a memory that are quoted as the description of a story."""


def described_in_memory(root: str, story: str) -> StoryText | None:
    """Return what the project's memory says of a story; None where no heading and no item begins with its id.

    Agents write there, too: the text is for a person to read, and never a part of a prompt.
    """
    lines, ids = (_memory(root) or "").splitlines(), {story, qualified(story)}
    at = next((place for place, line in enumerate(lines) if _heading_id(line) in ids), None)
    if at is None:
        return None
    head, below = _HEADED.match(lines[at]), takewhile(partial(_is_below, lines[at]), lines[at + 1 :])
    assert head is not None
    said = _WORD.sub("", lines[at][head.end() :], count=1).lstrip(" \t*_`:：.)|–—-").rstrip(" \t#*_`")
    with suppress(Refused):  # there is nothing but its id, or control characters
        return story_text("\n".join([said, *islice(below, _MOST_DESCRIBED)]), source=MEMORY)
    return None


def _is_below(head: str, line: str) -> bool:
    """Return whether a line belongs to an item, as it is indented further; or to a heading, as it is none."""
    if head.lstrip().startswith("#"):
        return not line.startswith("#") and _heading_id(line) is None
    return bool(line.strip()) and _indent(line) > _indent(head)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _heading_id(line: str) -> str | None:
    """Return the id that a heading or an item of a list begins with: there a memory names its stories."""
    head = _HEADED.match(line)
    word = _WORD.match(line, head.end()) if head is not None else None
    return word[0] if word is not None and word[1] else None
