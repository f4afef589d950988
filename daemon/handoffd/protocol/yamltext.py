"""YAML that others wrote, as plain data, at a bounded cost.

No YAML loader is safe against hostile text: a few hundred bytes of aliases or merge keys expand for
seconds. So the text is capped, and `load` builds the data from the parser's events, one by one: anchors,
aliases, tags and merge keys are refused at the event that carries them, depth and number of events are
limited, and nothing is constructed but dicts, lists and scalars of YAML 1.2's core schema (`no`, `on` and
dates are strings). Keys are always strings. Building it here also keeps what a loader forgets: the line
of every value.

libyaml does the parsing; a build of PyYAML without it parses the same in Python, ten times slower.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml
from msgspec import Struct
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from handoffd.errors import InvalidFile, Problem

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_NO_BREAKS = dict.fromkeys((0x85, 0x2028, 0x2029), " ")
"""libyaml ends a line at these, as YAML 1.1 did; in YAML 1.2 they are text."""

MAX_BYTES = 64 * 1024

_FOREIGN = "holds a character that YAML does not allow"

MAX_DEPTH = 20

MAX_EVENTS = 5_000

MAX_KEY_CHARACTERS = 200


NULLS = frozenset({"", "~", "null", "Null", "NULL"})
"""The plain scalars that mean nothing."""


# --- all that is accepted, from the parser's events ---------------------------------------------------
_BOOLEAN = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}

_INTEGER = re.compile(r"[-+]?[0-9]{1,100}")

_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]{1,100}")

_OCTAL = re.compile(r"0o[0-7]{1,100}")

_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,3})?")


class YamlText(Struct, frozen=True):
    """What a text holds: `data` made of dicts, lists and scalars, and the line of each value."""

    data: Any
    lines: Mapping[str, int]

    def line_of(self, key: str) -> int | None:
        """Return the line of a dotted key (`steps.impl.timeout_min`, `projects.0`), from 1.

        For a key that is not there, the line of the nearest enclosing one that is.
        """
        while key not in self.lines and key:
            key = key.rpartition(".")[0]
        return self.lines.get(key)


def load(
    text: str | bytes, file: str, *, first_line: int = 1, resolve: bool = True, advise: bool = False
) -> YamlText:
    """Return the one document in `text`; an empty one has the data None.

    `first_line` is the line of `file` at which `text` begins. Without `resolve` every scalar is the
    string that was written (`013` stays `013`), but for nulls. With `advise` the usual mistakes have
    messages that say what to write. Raises InvalidFile.
    """
    builder = _Builder(file, first_line, resolve)
    content = _decode(text, builder)
    if not content:
        return YamlText(builder.root, builder.lines)
    try:
        for event in yaml.parse(content, Loader=_LOADER):
            builder.take(event)
    except InvalidFile:
        raise
    except yaml.MarkedYAMLError as error:
        raise builder.unread(error, content if advise else None) from None
    except yaml.reader.ReaderError as error:
        line = content.encode()[: error.position].count(b"\n")
        raise builder.invalid(_FOREIGN, line=line) from None
    except UnicodeEncodeError as error:  # half of a character
        raise builder.invalid(_FOREIGN, line=content.count("\n", 0, error.start)) from None
    except Exception as error:  # the parser itself breaks on some texts (escapes, versions out of range)
        raise builder.invalid(f"cannot be read as YAML ({error})") from None
    return YamlText(builder.root, builder.lines)


def _decode(text: str | bytes, builder: _Builder) -> str:
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise builder.invalid(f"is larger than {MAX_BYTES // 1024} KiB")
    try:
        plain = text.decode("utf-8") if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start)
        raise builder.invalid("is not UTF-8", line=line) from None
    return plain.removeprefix("\ufeff").translate(_NO_BREAKS)


class _Mistake(Struct):
    """One error of the parser, with the text around it; lines count from 0."""

    lines: list[str]
    first_line: int
    line: int
    column: int
    began: int
    """Where what the parser could not finish began."""
    quote: int | None
    """Where a quoted text of several lines began that ends on this line."""

    def told(self, problem: str) -> tuple[str, int] | None:
        """Return a sentence for a usual mistake, and its line; None for another one."""
        text = self.lines[self.line] if self.line < len(self.lines) else ""
        before, sign = text[: self.column], text[self.column : self.column + 1]
        if "tab character" in problem or sign == "\t":
            return "is indented with a tab: only spaces indent", self.line
        if problem == "found character that cannot start any token":
            return f"a text that begins with {sign!r} needs quotes", self.line
        if problem in {"found unexpected end of stream", "found unexpected document indicator"}:
            return "the quote that begins here is never closed", self.began
        if problem == "mapping values are not allowed in this context":
            named = re.search(r":\s", before) is not None
            return ("a text with ': ' in it needs quotes", self.line) if named else self._indented()
        if problem == "could not find expected ':'":
            return "a key needs a ':' and a space", self.began
        if problem.startswith("did not find expected ','"):
            return self._brackets(problem)
        if problem == "did not find expected '-' indicator" and not before.strip():
            return "an entry of a list begins with '- '; a key after the list is indented less", self.line
        if problem in {"did not find expected key", "did not find expected '-' indicator"}:
            return self._rest() if before.strip() else self._indented()
        return None

    def _brackets(self, problem: str) -> tuple[str, int]:
        opened = "{" if "'}'" in problem else "["
        where = "" if self.began == self.line else f" of line {self.first_line + self.began}"
        words = f"the {opened!r}{where} is not closed before this, or a text in it needs quotes"
        return f"{words}: a text with {{ }} [ ] or a comma in it does", self.line

    def _rest(self) -> tuple[str, int]:
        if self.quote is not None:
            return (
                f"a quote is not closed on its line: it ends on line {self.first_line + self.line}",
                self.quote,
            )
        return "more follows what is in quotes or brackets: put the whole text in quotes", self.line

    def _indented(self) -> tuple[str, int]:
        above = next((at for at in range(self.line - 1, -1, -1) if self.lines[at].strip()), None)
        if above is None:
            return "is indented like no line above", self.line
        here, there = (len(one) - len(one.lstrip(" ")) for one in (self.lines[self.line], self.lines[above]))
        if here == there:
            return "a key needs a ':' and a space", above
        spaces = f"{here} space{'s'[: here != 1]}, and line {self.first_line + above} has {there}"
        return f"the indentation is wrong: {spaces}", self.line


def _one_line(error: yaml.MarkedYAMLError) -> str:
    parts = (error.context, error.problem)
    return " ".join(" ".join(part.split()) for part in parts if part) or "is not valid YAML"


class _Level(Struct):
    """A collection that is still open; `key` is the key (or index) of the value that comes next."""

    container: dict[str, Any] | list[Any]
    path: str
    key: str | None = None


class _Builder:
    """Turns events into data. Lines inside count from 0, as the parser's do."""

    def __init__(self, file: str, first_line: int, resolve: bool) -> None:
        self.root: Any = None
        self.lines: dict[str, int] = {"": first_line}
        self._file = file
        self._first_line = first_line
        self._resolve = resolve
        self._open: list[_Level] = []
        self._events = 0
        self._documents = 0
        self._quote: tuple[int, int] | None = None
        """The first and the last line of the quoted text before."""

    def take(self, event: Event) -> None:
        """Add one event."""
        self._events += 1
        self._check(event)
        if isinstance(event, ScalarEvent) and event.style in {"'", '"'}:
            assert event.end_mark is not None  # the parser sets one
            self._quote = _line_of(event), event.end_mark.line
        match event:
            case DocumentStartEvent():
                self._begin_document(event)
            case MappingStartEvent():
                self._enter({}, event)
            case SequenceStartEvent():
                self._enter([], event)
            case MappingEndEvent() | SequenceEndEvent():
                self._open.pop()
            case ScalarEvent() if self._awaits_key():
                self._begin_key(event)
            case ScalarEvent():
                self._add(self._value(event), event)
            case _:
                pass

    def unread(self, error: yaml.MarkedYAMLError, content: str | None) -> InvalidFile:
        """Return the error to raise for one of the parser; with the content, in words for usual mistakes."""
        mark = error.problem_mark or error.context_mark
        if content is None or mark is None:
            return self.invalid(_one_line(error), line=mark.line if mark else None)
        began = error.context_mark or mark
        quote = self._quote[0] if self._quote and self._quote[0] < self._quote[1] == mark.line else None
        mistake = _Mistake(content.split("\n"), self._first_line, mark.line, mark.column, began.line, quote)
        told = mistake.told(str(error.problem))
        return self.invalid(told[0], line=told[1]) if told else self.invalid(_one_line(error), line=mark.line)

    def invalid(self, message: str, *, line: int | None = None, key: str | None = None) -> InvalidFile:
        """Return the error to raise; `line` counts from 0 inside the text."""
        at = None if line is None else self._first_line + line
        return InvalidFile((Problem(file=self._file, line=at, key=key, message=message),))

    def _check(self, event: Event) -> None:
        line = _line_of(event)
        if self._events > MAX_EVENTS:
            raise self.invalid(f"holds more than {MAX_EVENTS} YAML events", line=line)
        if isinstance(event, AliasEvent) or getattr(event, "anchor", None) is not None:
            raise self.invalid("anchors and aliases are not accepted", line=line)
        if getattr(event, "tag", None) is not None:
            raise self.invalid("tags are not accepted", line=line)

    def _begin_document(self, event: DocumentStartEvent) -> None:
        self._documents += 1
        if self._documents > 1:
            raise self.invalid("holds more than one YAML document", line=_line_of(event))
        if event.version not in (None, (1, 2)):
            raise self.invalid("only YAML 1.2 is accepted", line=_line_of(event))

    def _awaits_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].container, dict) and self._open[-1].key is None

    def _begin_key(self, event: ScalarEvent) -> None:
        level, key, line = self._open[-1], str(event.value), _line_of(event)
        if len(key) > MAX_KEY_CHARACTERS:
            raise self.invalid(f"a key is longer than {MAX_KEY_CHARACTERS} characters", line=line)
        if key == "<<" and not event.style:
            raise self.invalid("merge keys are not accepted", line=line)
        dotted = _join(level.path, key)
        if key in level.container:
            raise self.invalid("the key is given twice", line=line, key=dotted)
        level.key = key
        self.lines.setdefault(dotted, self._first_line + line)

    def _enter(self, container: dict[str, Any] | list[Any], event: Event) -> None:
        line = _line_of(event)
        if self._awaits_key():
            raise self.invalid("a key must be plain text", line=line)
        if len(self._open) >= MAX_DEPTH:
            raise self.invalid(f"is nested more than {MAX_DEPTH} levels deep", line=line)
        path = self._add(container, event)
        self._open.append(_Level(container, path))

    def _add(self, value: Any, event: Event) -> str:
        """Put a value where it belongs; return its dotted path."""
        if not self._open:
            self.root = value
            return ""
        level = self._open[-1]
        if isinstance(level.container, list):
            path = _join(level.path, str(len(level.container)))
            self.lines.setdefault(path, self._first_line + _line_of(event))
            level.container.append(value)
            return path
        assert level.key is not None
        path = _join(level.path, level.key)
        level.container[level.key] = value
        level.key = None
        return path

    def _value(self, event: ScalarEvent) -> Any:
        text = str(event.value)
        if event.style:  # quoted, or a block
            return text
        if text in NULLS:
            return None
        if not self._resolve:
            return text
        return _core_scalar(text)


def _line_of(event: Event) -> int:
    assert event.start_mark is not None  # the parser sets one
    return event.start_mark.line


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _core_scalar(text: str) -> Any:
    """Return what a plain scalar means in the core schema of YAML 1.2; what is too long is text."""
    if text in _BOOLEAN:
        return _BOOLEAN[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    if _OCTAL.fullmatch(text):
        return int(text, 8)
    if len(text) <= 100 and _FLOAT.fullmatch(text):
        return float(text)
    return text
