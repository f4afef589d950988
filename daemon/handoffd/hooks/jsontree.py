"""A JSON text as a tree that knows its places, so that it can be changed here and there.

A person's settings file is theirs: what they wrote, how they indented it and in which order stays, to
the byte, wherever we have nothing to add. So nothing is written anew; pieces are put in and cut out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\r\n]*")
_INDENT = re.compile(r"[ \t]*")


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an object (or array: no `key`), from its first character to behind its last."""

    start: int
    key: str | None
    value: Node

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.value.end


@dataclass(frozen=True, slots=True)
class Node:
    """One value: its place in the text, what it is in Python, and its members, if it can have any."""

    start: int
    end: int
    value: object
    members: tuple[Member, ...] = ()

    def find(self, key: str) -> Node | None:
        """Return what an object holds under `key`; of several, the last, as every parser does."""
        return next((one.value for one in reversed(self.members) if one.key == key), None)

    def __iter__(self) -> Iterator[Node]:
        return (one.value for one in self.members)


def tree_of(text: str) -> Node:
    """Return the tree of a JSON text. Raises json.JSONDecodeError and RecursionError."""
    json.loads(text)
    return _value(text, _skip(text, 0))


def _value(text: str, at: int) -> Node:
    if text[at] not in "{[":
        value, end = _DECODER.raw_decode(text, at)
        return Node(at, end, value)
    members = []
    place = _skip(text, at + 1)
    while text[place] not in "}]":
        member = _member(text, place, keyed=text[at] == "{")
        members.append(member)
        place = _skip(text, member.end)
        if text[place] == ",":
            place = _skip(text, place + 1)
    value = (
        {one.key: one.value.value for one in members} if text[at] == "{" else [m.value.value for m in members]
    )
    return Node(at, place + 1, value, tuple(members))


def _member(text: str, at: int, *, keyed: bool) -> Member:
    if not keyed:
        return Member(at, None, _value(text, at))
    key, end = _DECODER.raw_decode(text, at)
    colon = _skip(text, end)
    return Member(at, key, _value(text, _skip(text, colon + 1)))


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    assert match is not None
    return match.end()


def added(text: str, container: Node, key: str | None, value: object) -> str:
    """Return the text with a last member more in an object or array, in the style of what is there."""
    if container.members and not _has_line(text, container.start, container.members[0].start):
        end = container.members[-1].end
        return f"{text[:end]}, {_piece(key, json.dumps(value, ensure_ascii=False))}{text[end:]}"
    unit, line = _unit(text), "\r\n" if "\r\n" in text else "\n"
    if container.members:
        last = container.members[-1]
        indent = _indent_at(text, last.start)
        piece = _piece(key, _pretty(value, unit, line, indent))
        return f"{text[: last.end]},{line}{indent}{piece}{text[last.end :]}"
    outer = _indent_at(text, container.start)
    piece = _piece(key, _pretty(value, unit, line, outer + unit))
    inner = f"{line}{outer}{unit}{piece}{line}{outer}"
    return f"{text[: container.start + 1]}{inner}{text[container.end - 1 :]}"


def removed(text: str, container: Node, number: int) -> str:
    """Return the text without one member of an object or array, and without the comma it needed."""
    members = container.members
    if len(members) == 1:
        return f"{text[: container.start + 1]}{text[container.end - 1 :]}"
    if number == 0:
        return f"{text[: members[0].start]}{text[members[1].start :]}"
    return f"{text[: members[number - 1].end]}{text[members[number].end :]}"


def _piece(key: str | None, value: str) -> str:
    return value if key is None else f"{json.dumps(key, ensure_ascii=False)}: {value}"


def _pretty(value: object, unit: str, line: str, indent: str) -> str:
    first, *rest = json.dumps(value, ensure_ascii=False, indent=unit).split("\n")
    return line.join([first, *(indent + one for one in rest)])


def _has_line(text: str, start: int, end: int) -> bool:
    return "\n" in text[start:end]


def _indent_at(text: str, at: int) -> str:
    """Return the blanks at the beginning of the line a place is in."""
    match = _INDENT.match(text, text.rfind("\n", 0, at) + 1)
    assert match is not None
    return match[0]


def _unit(text: str) -> str:
    """Return what one level is indented by: as much as the first indented line is."""
    found = re.search(r"\n([ \t]+)\S", text)
    return found[1] if found else "  "
