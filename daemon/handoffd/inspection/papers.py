"""What a project's papers say: what is next and what was done, what it is for, its rules, what happened last.

Agents and strangers write them. So they are quoted: a few lines of each, every one of them short and plain
text. Nothing is decided by what they say. Where a paper is missing, the others that may answer are named.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from handoffd.errors import HandoffdError, InvalidFile
from handoffd.files.rooted import open_file, read_project_file
from handoffd.inspection.framework import MEMORY, section_of
from handoffd.inspection.project_status import one_line
from handoffd.protocol.handoff_text import handoff_pieces
from handoffd.protocol.story_text import heading_in

Subject = Literal["left", "done", "purpose", "rules", "last", "history"]

MAX_BYTES: Final = 1024 * 1024
HISTORY_BYTES: Final = 16 * 1024
"""So much of the end of the history is read; it may be long."""
MOST_LINES: Final = 8
LINE_CHARACTERS: Final = 200

CONTEXT: Final = "PROJECT_CONTEXT.md"
CONSTITUTION: Final = "docs/constitution.md"
HANDOFF: Final = ".ai/HANDOFF.md"
HISTORY: Final = ".ai/history.md"
_OTHERS: Final[Mapping[str, tuple[str, ...]]] = {
    MEMORY: ("TODO.md", "ROADMAP.md", HISTORY, "docs/sdd.md", "README.md"),
    CONTEXT: ("README.md", "docs/sdd.md", "AGENTS.md", "CLAUDE.md"),
    CONSTITUTION: ("AGENTS.md", "CLAUDE.md", "CONTRIBUTING.md", "docs/sdd.md", "README.md"),
    HANDOFF: (HISTORY, MEMORY, "CHANGELOG.md"),
    HISTORY: (MEMORY, HANDOFF, "CHANGELOG.md"),
}
"""Where else to look, by what is missing; the most telling first."""

_COMMENT: Final = re.compile(r"<!--.*?(?:-->|$)", re.DOTALL)
_MARKS: Final = re.compile(r"^(?:[\s>]|[-*+]\s(?!\s*$)|\[[ ]?\])*")
_BELOW_THE_TITLE: Final = re.compile(r"\s{0,3}##")
_TICKED: Final = re.compile(r"^\s*[-*+]\s*\[[xX]\]")
_RULER: Final = re.compile(r"^[\s|:=*_-]*$|^\s*(?:```|~~~)")


class Quote(Struct, frozen=True, kw_only=True):
    """Lines of one paper, or of one `section` of it.

    `more` lines were left out: behind the quoted ones, of a history before them. `problem` says why the
    paper is missing (`missing`) or cannot be read; then `others` are files of the project that may answer.
    """

    file: str
    section: str | None = None
    lines: tuple[str, ...] = ()
    more: int = 0
    missing: bool = False
    problem: str | None = None
    others: tuple[str, ...] = ()


def quoted(root: str, subject: Subject) -> tuple[Quote, ...]:
    """Return what the papers of the project at `root` say of a subject. Raises nothing for what they hold."""
    file, read = _SOURCES[subject]
    try:
        return read(root)
    except HandoffdError as error:
        return (Quote(file=file, problem=one_line(error.message), others=_others(root, file)),)


def _others(root: str, file: str) -> tuple[str, ...]:
    return tuple(name for name in _OTHERS[file] if os.path.isfile(os.path.join(root, name)))


def _missing(root: str, file: str) -> tuple[Quote, ...]:
    return (Quote(file=file, missing=True, others=_others(root, file)),)


def _text(root: str, file: str) -> str | None:
    seen = read_project_file(Path(root), file, MAX_BYTES)
    return None if seen is None else seen.content.decode("utf-8", errors="replace")


def _whole(file: str) -> Callable[[str], tuple[Quote, ...]]:
    def read(root: str) -> tuple[Quote, ...]:
        text = _text(root, file)
        return _missing(root, file) if text is None else (_quote(file, text.splitlines()),)

    return read


def _sections(*names: str) -> Callable[[str], tuple[Quote, ...]]:
    def read(root: str) -> tuple[Quote, ...]:
        text = _text(root, MEMORY)
        if text is None:
            return _missing(root, MEMORY)
        return tuple(
            replace(_quote(MEMORY, list(section_of(text, name))[1:], open_only=True), section=name)
            for name in names
        )

    return read


def _last(root: str) -> tuple[Quote, ...]:
    """Return the last hand-off: which step it is of and how that ended, then its text."""
    text = _text(root, HANDOFF)
    if text is None or not text.strip("\0 \t\r\n"):
        return _missing(root, HANDOFF)
    try:
        pieces = handoff_pieces(text.encode("utf-8", errors="replace"))
    except InvalidFile:
        return (_quote(HANDOFF, text.splitlines()),)
    values = {} if pieces.fields is None else pieces.fields.values
    told = (values.get(key) for key in ("story", "step", "status", "reason"))
    head = ", ".join(str(value) for value in told if isinstance(value, str) and value.strip())
    return (_quote(HANDOFF, [*([head] if head else []), *pieces.body.splitlines()]),)


def _history(root: str) -> tuple[Quote, ...]:
    """Return the end of the history."""
    with open_file(Path(root), HISTORY) as handle:
        if handle is None:
            return _missing(root, HISTORY)
        begin = max(0, os.fstat(handle).st_size - HISTORY_BYTES)
        text = os.pread(handle, HISTORY_BYTES, begin).decode("utf-8", errors="replace")
    lines = _told(text.splitlines()[1 if begin else 0 :])
    last = tuple(lines[-MOST_LINES:])
    return (Quote(file=HISTORY, lines=last, more=len(lines) - len(last)),)


def _quote(file: str, lines: Iterable[str], *, open_only: bool = False) -> Quote:
    told = _told(line for line in lines if not (open_only and _TICKED.match(line)))
    return Quote(file=file, lines=tuple(told[:MOST_LINES]), more=max(0, len(told) - MOST_LINES))


def _told(lines: Iterable[str]) -> list[str]:
    """Return the lines that say something, without the marks of Markdown at their beginning."""
    text = _COMMENT.sub("", "\n".join(lines))
    plain = (_plain(line) for line in text.splitlines() if not _RULER.match(line))
    return [line for line in plain if line]


def _plain(line: str) -> str:
    if line.startswith("# "):
        return ""  # the title says which paper it is
    heading = heading_in(line) if _BELOW_THE_TITLE.match(line) else ""
    text = f"{heading.rstrip(':')}:" if heading else _MARKS.sub("", line, count=1)
    shown = "".join(sign if sign.isprintable() else " " for sign in " ".join(text.split()))
    return shown if len(shown) <= LINE_CHARACTERS else f"{shown[: LINE_CHARACTERS - 1]}…"


_SOURCES: Final[Mapping[Subject, tuple[str, Callable[[str], tuple[Quote, ...]]]]] = {
    "left": (MEMORY, _sections("NOW", "NEXT")),
    "done": (MEMORY, _sections("DONE")),
    "purpose": (CONTEXT, _whole(CONTEXT)),
    "rules": (CONSTITUTION, _whole(CONSTITUTION)),
    "last": (HANDOFF, _last),
    "history": (HISTORY, _history),
}
