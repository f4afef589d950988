"""YAML that others wrote, as plain data, at a bounded cost.

No YAML loader is safe against hostile text: a few hundred bytes of aliases or merge keys expand for
seconds. So the text is capped, and `load` builds the data from the parser's events, one by one: anchors,
aliases, tags and merge keys are refused at the event that carries them, depth and number of events are
limited, and nothing is constructed but dicts, lists and scalars of YAML 1.2's core schema (`no`, `on` and
dates are strings). Keys are always strings. Building it here also keeps what a loader forgets: the line
of every value.

That takes a millisecond, while the next executor waits. So `read_flat` reads a front matter as agents are
asked to write it (`key: value` lines and lists of short texts) in a fiftieth of the time, and only where
it is certain to say what `load` would: what it does not know by heart is `load`'s to read. A property
test holds the two against each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from handoffd.errors import InvalidFile, Problem

MAX_BYTES = 64 * 1024

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


@dataclass(frozen=True, slots=True)
class YamlText:
    """What a text holds: `data` made of dicts, lists and scalars, and where each value stands."""

    data: Any
    lines: Mapping[str, int]

    def line_of(self, key: str) -> int | None:
        """Return the line of a dotted key (`steps.impl.timeout_min`, `projects.0`), from 1.

        For a key that is not there, the line of the nearest enclosing one that is.
        """
        while key not in self.lines and key:
            key = key.rpartition(".")[0]
        return self.lines.get(key)


def load(text: str | bytes, file: str, *, first_line: int = 1, resolve: bool = True) -> YamlText:
    """Return the one document in `text`; an empty one has the data None.

    `first_line` is the line of `file` at which `text` begins. Without `resolve` every scalar is the
    string that was written (`013` stays `013`), but for nulls. Raises InvalidFile.
    """
    builder = _Builder(file, first_line, resolve)
    content = _decode(text, builder)
    if not content:
        return YamlText(builder.root, builder.lines)
    try:
        for event in YAML(typ="safe", pure=True).parse(content):
            builder.take(event)
    except InvalidFile:
        raise
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise builder.invalid(_one_line(error), line=mark.line if mark else None) from None
    except ReaderError as error:
        line = content.count("\n", 0, error.position)
        raise builder.invalid("holds a character that YAML does not allow", line=line) from None
    except Exception as error:  # the parser itself breaks on some texts (escapes, versions out of range)
        raise builder.invalid(f"cannot be read as YAML ({error})") from None
    return YamlText(builder.root, builder.lines)


def _decode(text: str | bytes, builder: _Builder) -> str:
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise builder.invalid(f"is larger than {MAX_BYTES // 1024} KiB")
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise builder.invalid("is not UTF-8", line=text.count(b"\n", 0, error.start)) from None


def _one_line(error: MarkedYAMLError) -> str:
    parts = (error.context, error.problem)
    return " ".join(" ".join(part.split()) for part in parts if part) or "is not valid YAML"


@dataclass(slots=True)
class _Level:
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

    def take(self, event: Event) -> None:
        """Add one event."""
        self._events += 1
        self._check(event)
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

    def invalid(self, message: str, *, line: int | None = None, key: str | None = None) -> InvalidFile:
        """Return the error to raise; `line` counts from 0 inside the text."""
        at = None if line is None else self._first_line + line
        return InvalidFile((Problem(file=self._file, line=at, key=key, message=message),))

    def _check(self, event: Event) -> None:
        line = event.start_mark.line
        if self._events > MAX_EVENTS:
            raise self.invalid(f"holds more than {MAX_EVENTS} YAML events", line=line)
        if isinstance(event, AliasEvent) or getattr(event, "anchor", None) is not None:
            raise self.invalid("anchors and aliases are not accepted", line=line)
        if getattr(event, "tag", None) is not None:
            raise self.invalid("tags are not accepted", line=line)

    def _begin_document(self, event: DocumentStartEvent) -> None:
        self._documents += 1
        if self._documents > 1:
            raise self.invalid("holds more than one YAML document", line=event.start_mark.line)
        if event.version not in (None, (1, 2)):
            raise self.invalid("only YAML 1.2 is accepted", line=event.start_mark.line)

    def _awaits_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].container, dict) and self._open[-1].key is None

    def _begin_key(self, event: ScalarEvent) -> None:
        level, key, line = self._open[-1], str(event.value), event.start_mark.line
        if len(key) > MAX_KEY_CHARACTERS:
            raise self.invalid(f"a key is longer than {MAX_KEY_CHARACTERS} characters", line=line)
        if key == "<<" and event.style is None:
            raise self.invalid("merge keys are not accepted", line=line)
        dotted = _join(level.path, key)
        if key in level.container:
            raise self.invalid("the key is given twice", line=line, key=dotted)
        level.key = key
        self.lines.setdefault(dotted, self._first_line + line)

    def _enter(self, container: dict[str, Any] | list[Any], event: Event) -> None:
        line = event.start_mark.line
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
            self.lines.setdefault(path, self._first_line + event.start_mark.line)
            level.container.append(value)
            return path
        assert level.key is not None
        path = _join(level.path, level.key)
        level.container[level.key] = value
        level.key = None
        return path

    def _value(self, event: ScalarEvent) -> Any:
        text = str(event.value)
        if event.style is not None:
            return text
        if text in NULLS:
            return None
        if not self._resolve:
            return text
        return _core_scalar(text)


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


# --- a flat front matter, by its lines ----------------------------------------------------------------
MAX_CHARACTERS = 6 * 1024
"""Of so much text nothing can pass the loader's limits, which are not looked at here."""


# Printable ASCII but `:` and `#`, which may end a plain text or turn it into something else.
_PLAIN = r"[A-Za-z0-9_./(+][A-Za-z0-9 _./,;+=()\[\]{}'\"<>!?@$%^&*~|\\`-]*"

_QUOTED = r"\"[ !#-\[\]-~]*\"|'[ -&(-~]*'"

_SCALAR = rf"(?P<plain>{_PLAIN})|(?P<quoted>{_QUOTED})"

_ITEM = r" *[A-Za-z0-9_./(+][A-Za-z0-9 _./+=()@-]*"

_INLINE = rf"\[(?P<inline>(?:{_ITEM}(?:,{_ITEM})*)?) *\]"

_PAIR = re.compile(rf"(?P<key>[A-Za-z_][A-Za-z0-9_-]{{0,63}}):(?: +(?:{_SCALAR}|{_INLINE}))? *")

_ENTRY = re.compile(rf"(?P<indent> *)- +(?:{_SCALAR}) *")


def read_flat(text: str, *, first_line: int = 1) -> YamlText | None:
    """Return what `yamltext.load` returns for `text` without resolving; None where that has to be asked."""
    if not text or len(text) > MAX_CHARACTERS:
        return None
    reader = _FlatReader(first_line)
    for number, line in enumerate(text.split("\n"), start=first_line):
        if line and not reader.take(line, number):
            return None
    return YamlText(reader.values, reader.lines) if reader.values else None


class _FlatReader:
    """Takes lines, as long as it is certain of them."""

    def __init__(self, first_line: int) -> None:
        self.values: dict[str, str | list[str | None] | None] = {}
        self.lines: dict[str, int] = {"": first_line}
        self._open: str | None = None
        """The key without a value after which a list may begin, or goes on."""
        self._indent: str | None = None
        """That of the list's first entry."""

    def take(self, line: str, number: int) -> bool:
        """Add a line; False for one that may mean something else than it seems to."""
        pair = _PAIR.fullmatch(line)
        if pair is not None:
            return self._add_pair(pair, number)
        entry = _ENTRY.fullmatch(line)
        return entry is not None and self._add_entry(entry, number)

    def _add_pair(self, pair: re.Match[str], number: int) -> bool:
        key, inline = pair["key"], pair["inline"]
        if key in self.values:
            return False
        self.lines[key] = number
        self._open = self._indent = None
        if inline is not None:
            items = list(_inline(inline))
            self.values[key] = items
            self.lines |= {f"{key}.{at}": number for at in range(len(items))}
        elif pair["plain"] is None and pair["quoted"] is None:
            self.values[key], self._open = None, key
        else:
            self.values[key] = _scalar(pair)
        return True

    def _add_entry(self, entry: re.Match[str], number: int) -> bool:
        key = self._open
        if key is None or self._indent not in (None, entry["indent"]):
            return False
        self._indent = entry["indent"]
        items = self.values[key]
        if not isinstance(items, list):
            items = self.values[key] = []
        self.lines[f"{key}.{len(items)}"] = number
        items.append(_scalar(entry))
        return True


def _scalar(found: re.Match[str]) -> str | None:
    quoted: str | None = found["quoted"]
    return _meant(found["plain"]) if quoted is None else quoted[1:-1]


def _inline(text: str) -> Iterator[str | None]:
    for item in text.split(",") if text else ():
        yield _meant(item.lstrip(" "))


def _meant(plain: str) -> str | None:
    text = plain.rstrip(" ")
    return None if text in NULLS else text
