"""What a person says that a story shall bring: its text, a title, and where it comes from.

Strangers write issues, so a text is data from end to end: here it gets one form, bounded so that a prompt can
quote it whole (`prompt.py`). It comes as a text, or in a file: Markdown, of one story or of several, or the
JSON of issues. Of a file, only its front matter is read as anything but text: an id, a title, what the story
waits for, and its priority.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from handoffd.errors import InvalidFile, Problem, Refused
from handoffd.protocol.story import is_story_id
from handoffd.protocol.yamltext import YamlText, load

INVALID_TEXT: Final = "INVALID_TEXT"

MAX_BYTES: Final = 64 * 1024
"""Of a text as a prompt quotes it: in UTF-8, with `QUOTE_BYTES` more for each line."""
QUOTE_BYTES: Final = 3
TITLE_CHARACTERS: Final = 120
MAX_SOURCE: Final = 500

_LINE_END: Final = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_HEADING: Final = re.compile(r"\s{0,3}#{1,6}\s+(.*)")
_CLOSING: Final = re.compile(r"(?<![\s#])[\s#]+$")
"""The look-behind keeps a long row of these from costing its square."""
_CONTROLS: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)


class StoryText(Struct, frozen=True, kw_only=True):
    """A story in a person's words."""

    title: str
    """One line, at most 120 characters."""
    text: str
    """What it shall bring; empty once only its title is kept."""
    source: str | None = None
    """Where it comes from, such as an issue's address: by that it is recognised when it is imported again."""


class NewStory(Struct, frozen=True, kw_only=True):
    """A story for the backlog, in a person's words."""

    story: str
    """Empty until the track's consumer has chosen an id."""
    described: StoryText
    blocked_by: tuple[str, ...] = ()
    priority: int = 0


def story_text(text: str, title: str | None = None, source: str | None = None) -> StoryText:
    """Return a story's text in its one form. `title` None: what its first line says.

    Line ends become LF, a byte order mark and blank lines around it go. Raises Refused (INVALID_TEXT) for a
    text that is empty or too long, or holds what is not text.
    """
    plain = _LINE_END.sub("\n", text.removeprefix("\ufeff"))
    _check_characters(plain)
    every = [line.rstrip() for line in plain.split("\n")]
    filled = [number for number, line in enumerate(every) if line]
    lines = every[filled[0] : filled[-1] + 1] if filled else []
    if not lines:
        raise _invalid("it is empty: say what the story shall bring")
    whole = "\n".join(lines)
    size = len(whole.encode()) + QUOTE_BYTES * len(lines)
    if size > MAX_BYTES:
        most = f"{MAX_BYTES // 1024} KiB"
        raise _invalid(f"it takes {size / 1024:.1f} KiB of a prompt, and {most} is the most: shorten it")
    named = _one_line(title) if title is not None else title_of(whole)
    if not named:
        raise _invalid("its title is empty")
    origin = None if source is None else _one_line(source, MAX_SOURCE)
    return StoryText(title=named, text=whole, source=origin)


def title_of(text: str) -> str:
    """Return what the first line of a text says, without the marks of a heading."""
    first = next((line for line in text.split("\n") if line.strip()), "")
    return _one_line(heading_in(first) or first)


def heading_in(line: str) -> str:
    """Return what a heading says; empty for a line that is none."""
    found = _HEADING.match(line)
    return "" if found is None else _CLOSING.sub("", found[1])


def decoded(content: bytes) -> str:
    """Return the text that bytes are. Raises Refused (INVALID_TEXT) for anything but UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _invalid(f"line {line} is not UTF-8: save it as UTF-8") from None


def _check_characters(text: str) -> None:
    """Raise Refused for what no text holds: such a file is a program, a picture, or UTF-16."""
    if "\0" in text:
        raise _invalid(f"line {_line_of(text, text.index(chr(0)))} holds a NUL character, so it is not text")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _invalid(f"line {_line_of(text, error.start)} holds half of a character") from None


def _line_of(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _one_line(text: str, most: int = TITLE_CHARACTERS) -> str:
    """Return `text` as one line without control characters."""
    flat = " ".join(_CONTROLS.sub(" ", text[: 4 * most]).split())
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"


def _invalid(why: str) -> Refused:
    return Refused(f"the text of the story cannot be used: {why}", code=INVALID_TEXT)


# --- files of stories -----------------------------------------------------------------------------------
KEYS: Final = ("id", "title", "blocked_by", "priority")
"""What a story's front matter may say."""
MOST_URGENT: Final = 1000

_SECOND: Final = re.compile(r"##\s+\S")
_FIRST: Final = re.compile(r"#\s")
_FENCE: Final = re.compile(r"\s{0,3}(?:```|~~~)")
_WITH_ID: Final = re.compile(r"([A-Z][A-Za-z0-9]{0,19}-[0-9]{1,6})\s*[:：]\s*(\S.*)")


class WrittenStory(Struct, frozen=True, kw_only=True):
    """A story as a file has it, and where: a line, or a place in a list."""

    described: StoryText
    id: str | None = None
    blocked_by: tuple[str, ...] = ()
    priority: int | None = None
    line: int | None = None
    key: str | None = None


def story_in(file: str, content: str) -> WrittenStory:
    """Return the one story that a file is: an issue as JSON, or a text.

    Front matter that says anything but `KEYS` is a part of the text. Raises Refused and InvalidFile.
    """
    issue = _json_of(file, content)
    if isinstance(issue, list):
        hint = "handoffd backlog import FILE"
        raise Refused("this is a list of issues, and a start takes one", code=INVALID_TEXT, hint=hint)
    return _markdown(file, content, strict=False) if issue is None else _issue(issue)


def stories_in(file: str, content: str, *, name: str | None = None) -> Iterator[WrittenStory | Problem]:
    """Yield the stories of a file, and what is wrong with others.

    With a `name`, Markdown is one story, called so unless it has a heading. Without one, each heading of the
    second level begins a story, unless the file has front matter.
    """
    try:
        found = _json_of(file, content)
    except InvalidFile as invalid:
        yield from invalid.problems
        return
    if found is not None:
        issues = found if isinstance(found, list) else [found]
        yield from (_listed(file, f"{place}", one) for place, one in enumerate(issues))
        return
    whole = name is not None or content.lstrip("\ufeff").startswith("---")
    parts = [] if whole else list(_sections(content))
    for line, part in parts or [(1, content)]:
        try:
            yield _markdown(file, part, strict=True, line=line, name=name, headed=bool(parts))
        except InvalidFile as invalid:
            yield from invalid.problems
        except Refused as refused:
            yield Problem(file=file, line=line, message=refused.message)


def _listed(file: str, key: str, issue: Any) -> WrittenStory | Problem:
    try:
        return replace(_issue(issue), key=key)
    except Refused as refused:
        return Problem(file=file, key=key, message=refused.message)


PIPED: Final = "standard input"
"""In place of a file's name."""
_AS_JSON: Final = re.compile(r"\s*(?:\{\s*(?:\"|\Z)|\[\s*(?:\{|\Z))")
"""How an object begins, or a list of some: not as a text that begins with a link or an unticked box."""
_OF_GH: Final = "gh issue view N --json number,title,body,url"


def _json_of(file: str, content: str) -> Any:
    """Return the issue or the issues that a text is; None for any other text.

    Raises InvalidFile for broken JSON: a pipe that was cut off is not a story.
    """
    text = content.removeprefix("\ufeff").rstrip()
    meant = file.lower().endswith(".json") and bool(text)
    if not meant and not text.lstrip().startswith(("{", "[")):
        return None
    why, line = "it is neither an object nor a list of objects", 1
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        line, why = error.lineno, f"column {error.colno}: {error.msg}"
        meant = meant or _AS_JSON.match(text) is not None
    except (RecursionError, ValueError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else f"{error}"
        meant = meant or _AS_JSON.match(text) is not None
    else:
        if isinstance(found, dict) or (
            isinstance(found, list) and all(isinstance(one, dict) for one in found)
        ):
            return found
    if not meant:
        return None
    message = f"this should be JSON of issues, and is broken: {why}"
    again = f"{_OF_GH} | handoffd start PROJECT -" if file == PIPED else None
    raise InvalidFile((Problem(file=file, line=line, message=message),), hint=again)


def _issue(issue: Any) -> WrittenStory:
    """Return the story that an issue is, as `gh issue view --json number,title,body,url` prints it."""
    title, body = issue.get("title"), issue.get("body")
    if not isinstance(title, str) or not title.strip() or not isinstance(body, str | None):
        raise _invalid(f"as JSON it needs a title and a body: {_OF_GH}")
    url, number = issue.get("url"), issue.get("number")
    address = url if isinstance(url, str) and url.strip() else None
    source = address or (f"issue #{number}" if isinstance(number, int) else None)
    parts = (title.strip(), (body or "").strip(), f"Source: {source}" if source else "")
    return WrittenStory(described=story_text("\n\n".join(part for part in parts if part), title, address))


def _sections(content: str) -> Iterator[tuple[int, str]]:
    """Yield the parts of a text that begin with a heading of the second level, and the line of each."""
    begun, lines, fenced = 0, list[str](), False
    for number, line in enumerate(content.splitlines(), start=1):
        fenced = fenced != bool(_FENCE.match(line))
        if not fenced and (_SECOND.match(line) or _FIRST.match(line)):
            if begun:
                yield begun, "\n".join(lines)
            begun, lines = (number if _SECOND.match(line) else 0), []
        lines.append(line)
    if begun:
        yield begun, "\n".join(lines)


def _markdown(
    file: str, content: str, *, strict: bool, line: int = 1, name: str | None = None, headed: bool = False
) -> WrittenStory:
    front, body = _front_matter(file, content, strict=strict)
    told = {} if front is None else dict(front.data)
    if headed and (found := _WITH_ID.fullmatch(title_of(body))) is not None:
        told |= {"id": found[1], "title": found[2]}
    title = told.get("title")
    if title is not None and not isinstance(title, str):
        raise _key(file, front, "title", "must be a text")
    return WrittenStory(
        described=story_text(body, title or (_heading_of(body) or name if name else None)),
        id=_id(file, front, told.get("id")),
        blocked_by=_blocked_by(file, front, told.get("blocked_by")),
        priority=_priority(file, front, told.get("priority")),
        line=line,
    )


def _heading_of(text: str) -> str | None:
    """Return what the first heading of a text says; None if it has none."""
    return next((said for line in text.split("\n") if (said := heading_in(line))), None)


def _front_matter(file: str, content: str, *, strict: bool) -> tuple[YamlText | None, str]:
    """Return the front matter of a story, if it has some, and the text below it."""
    lines = _LINE_END.sub("\n", content.removeprefix("\ufeff")).split("\n")
    closing = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if lines[0].rstrip() != "---" or closing is None:
        return None, content
    try:
        front = load("\n".join(lines[1:closing]), file, first_line=2)
        keys = front.data if isinstance(front.data, dict) else dict.fromkeys(("",) if front.data else ())
        unknown = [key for key in keys if key not in KEYS]
        if unknown:
            raise _key(file, front, unknown[0], f"unknown key (allowed: {', '.join(KEYS)})")
    except InvalidFile:
        if strict:
            raise
        return None, content
    return (front if front.data else None), "\n".join(lines[closing + 1 :])


def _id(file: str, front: YamlText | None, value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, str) and is_story_id(value):
        return value
    raise _key(file, front, "id", f"{str(value)[:80]!r} cannot be a story id, such as US-001")


def _blocked_by(file: str, front: YamlText | None, value: object) -> tuple[str, ...]:
    names = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(name, str) and is_story_id(name) for name in names):
        raise _key(file, front, "blocked_by", "must be story ids, such as [US-001, US-002]")
    return tuple(dict.fromkeys(names))


def _priority(file: str, front: YamlText | None, value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MOST_URGENT:
        return value
    raise _key(file, front, "priority", f"must be a whole number from -{MOST_URGENT} to {MOST_URGENT}")


def _key(file: str, front: YamlText | None, key: str, message: str) -> InvalidFile:
    line = None if front is None else front.line_of(key)
    return InvalidFile((Problem(file=file, line=line, key=key or None, message=message),))
