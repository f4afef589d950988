"""Claude Code's settings files: where they are, and how our hooks get into one and out of it again.

A settings file belongs to a person: their content, indentation and order stay, to the byte, wherever we
have nothing to add. So we read the text as a tree that knows its positions, and insert or cut pieces instead
of writing the file anew.

The shape is Claude Code's: `hooks` is an object of events, an event a list of groups (each with an optional
`matcher`), a group has a list of handlers.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Final

from handoffd.errors import InvalidFile, Problem, Refused, remedies, with_remedy
from handoffd.files.atomic import replace_at, replace_text
from handoffd.files.rooted import open_file, open_parent

SHARED: Final = ".claude/settings.json"
LOCAL: Final = ".claude/settings.local.json"
MAX_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """One settings file: `name` below `root`, which is a project or a person's home.

    `keep` is a folder of ours for an original that removing our hooks would not restore.
    """

    root: Path
    name: str
    keep: Path

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.root / self.name

    def hooks(self) -> tuple[Found, ...]:
        """Return its command hooks. Raises InvalidFile and StoreError."""
        text = self._read()
        with remedies("/"):
            return () if text is None or not text.strip() else commands(text, str(self.path))

    def install(self, command: str, events: tuple[str, ...]) -> bool:
        """Put our hooks in, one at each of `events`; return whether that changed the file.

        Raises InvalidFile and StoreError; nothing is written then.
        """
        before = self._read()
        base = before if before is not None and before.strip() else EMPTY
        with remedies("/"):
            after = with_ours(base, str(self.path), command, events)
        if after == before:
            return False
        known, original = self._original(before)
        if known and without_ours(after, str(self.path)) != original:
            self._remember(after, original)
        self._write(after)
        return True

    def uninstall(self) -> bool:
        """Take our hooks out; return whether there were any. Raises InvalidFile and StoreError."""
        before = self._read()
        if before is None or not before.strip():
            return False
        known, original = self._remembered(before)
        with remedies("/"):
            after = original if known else without_ours(before, str(self.path))
        if after == before:
            return False
        if after is None:
            self._remove()
        else:
            self._write(after)
        with suppress(OSError):
            self._note(before).unlink()
        return True

    def _original(self, before: str | None) -> tuple[bool, str | None]:
        """Return whether we know the file's text without our hooks, and that text (None: no file)."""
        if before is None or not before.strip():
            return True, before
        if any(is_ours(one.command) for one in commands(before, str(self.path))):
            return self._remembered(before)
        return True, before

    def _read(self) -> str | None:
        with open_file(self.root, self.name) as handle:
            if handle is None:
                return None
            with open(handle, "rb", closefd=False) as file:
                raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise Refused(
                f"{self.path} is longer than {MAX_BYTES} bytes", hint=f"ls -l {quote(str(self.path))}"
            )
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            problem = Problem(file=str(self.path), message=f"byte {error.start} is not UTF-8")
            raise with_remedy(InvalidFile((problem,))) from None

    def _write(self, text: str) -> None:
        with open_parent(self.root, self.name, create=True) as folder:
            assert folder is not None
            replace_at(folder, self.path, text)

    def _remove(self) -> None:
        with open_parent(self.root, self.name) as folder:
            if folder is not None:
                os.unlink(self.path.name, dir_fd=folder)

    def _remember(self, installed: str, original: str | None) -> None:
        self.keep.mkdir(mode=0o700, parents=True, exist_ok=True)
        note = self._note(installed)
        replace_text(note, json.dumps({"file": str(self.path), "original": original}))
        note.chmod(0o600)

    def _remembered(self, installed: str) -> tuple[bool, str | None]:
        """Return whether we know the file's text before it became `installed`, and that text."""
        try:
            data = json.loads(self._note(installed).read_text("utf-8"))
            return True, data["original"]
        except (OSError, ValueError, KeyError, TypeError):
            return False, None

    def _note(self, installed: str) -> Path:
        told = f"{self.path}\0{installed}".encode()
        return self.keep / f"{hashlib.sha256(told).hexdigest()[:32]}.json"


# --- our entries in a text of settings ---------------------------------------------------------------
CHECKS_S: Final = 15 * 60
"""How long Claude Code waits for a hook that may run a project's tests and its post_check."""
ENDING_S: Final = 60
"""The most Claude Code gives hooks at the end of a session; 1.5 s unless a hook asks for more."""

TIMEOUTS_S: Final[Mapping[str, int]] = {
    "Stop": CHECKS_S,
    "SubagentStop": CHECKS_S,
    "SessionEnd": ENDING_S,
    "TaskCompleted": CHECKS_S,
    "TeammateIdle": CHECKS_S,
}
"""The events we have hooks for, and how long each of them may take."""

EMPTY: Final = "{}\n"

_MOST_OURS: Final = 10
"""Of one file: for each that is taken out the file is read again."""
_LONGEST_COMMAND: Final = 10_000
"""No command of ours is longer, and to split a long one into words takes seconds."""


@dataclass(frozen=True, slots=True)
class Found:
    """One command hook of a settings file."""

    event: str
    command: str
    timeout: object = None


def commands(text: str, file: str) -> tuple[Found, ...]:
    """Return every command hook in a settings text. Raises InvalidFile, naming `file`."""
    return tuple(_found(event, handler) for event, _, _, handler in _handlers(_parsed(text, file)))


def with_ours(text: str, file: str, command: str, events: Sequence[str]) -> str:
    """Return the text with one hook of ours at each of `events`, older ones replaced. Raises InvalidFile."""
    for event in events:
        entry = {"type": "command", "command": command, "timeout": TIMEOUTS_S[event]}
        there = [one for one in commands(text, file) if one.event == event and is_ours(one.command)]
        if there == [Found(event, command, TIMEOUTS_S[event])]:
            continue
        text = _added(without_ours(text, file, (event,)), file, event, {"hooks": [entry]})
    return text


def without_ours(text: str, file: str, events: Sequence[str] = tuple(TIMEOUTS_S)) -> str:
    """Return the text without our hooks, and without what held nothing else. Raises InvalidFile."""
    ours = sum(one.event in events and is_ours(one.command) for one in commands(text, file))
    if ours > _MOST_OURS:
        message = f"has {ours} hooks of handoffd; it never adds more than {len(TIMEOUTS_S)}: delete some"
        raise InvalidFile((Problem(file=file, key="hooks", message=message),))
    while (shorter := _one_less(text, file, events)) is not None:
        text = shorter
    return text


def is_ours(command: str) -> bool:
    """Return whether a command is `handoffd hook`, from whichever installation."""
    if len(command) > _LONGEST_COMMAND:
        return False
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    if len(words) > 2 and words[-3] == "--config":
        words = [*words[:-3], words[-1]]
    by_name = len(words) == 2 and os.path.basename(words[0]) == "handoffd"
    by_module = len(words) > 3 and words[-3:-1] == ["-m", "handoffd"]
    return words[-1:] == ["hook"] and (by_name or by_module)


def _added(text: str, file: str, event: str, group: object) -> str:
    root = _parsed(text, file)
    hooks = root.find("hooks")
    if hooks is None:
        return added(text, root, "hooks", {event: [group]})
    groups = hooks.find(event)
    return added(text, hooks, event, [group]) if groups is None else added(text, groups, None, group)


def _one_less(text: str, file: str, events: Sequence[str]) -> str | None:
    """Return the text without the first hook of ours; None if there is none."""
    root = _parsed(text, file)
    for event, groups, group, handler in _handlers(root):
        if event in events and is_ours(_found(event, handler).command):
            return _cut(text, root, event, groups, group, handler)
    return None


def _cut(text: str, root: Node, event: str, groups: Node, group: Node, handler: Node) -> str:
    """Return the text without a handler, and without its group, event and `hooks` if they become empty."""
    hooks, handlers = root.find("hooks"), group.find("hooks")
    assert hooks is not None
    assert handlers is not None
    if len(handlers.members) > 1:
        return removed(text, handlers, _number(handlers, handler))
    if len(groups.members) > 1:
        return removed(text, groups, _number(groups, group))
    if len(hooks.members) > 1:
        return removed(text, hooks, _number(hooks, groups))
    return removed(text, root, _number(root, hooks))


def _number(container: Node, value: Node) -> int:
    return next(number for number, one in enumerate(container) if one is value)


def _found(event: str, handler: Node) -> Found:
    command, timeout = handler.find("command"), handler.find("timeout")
    arguments = handler.find("args")
    words = arguments.value if arguments is not None and isinstance(arguments.value, list) else []
    whole = " ".join([str(command.value if command else ""), *(shlex.quote(str(word)) for word in words)])
    return Found(event, whole, None if timeout is None else timeout.value)


def _handlers(root: Node) -> Iterator[tuple[str, Node, Node, Node]]:
    """Yield event, list of groups, group and handler of every command hook."""
    hooks = root.find("hooks")
    for member in hooks.members if hooks is not None else ():
        for group in member.value:
            for handler in group.find("hooks") or ():
                if handler.find("command") is not None:
                    yield str(member.key), member.value, group, handler


def _parsed(text: str, file: str) -> Node:
    """Return the tree of a settings text. Raises InvalidFile if it is not JSON or has another shape."""
    try:
        root = tree_of(text)
    except json.JSONDecodeError as error:
        message = f"column {error.colno}: this is not JSON: {error.msg}"
        raise InvalidFile((Problem(file=file, line=error.lineno, message=message),)) from None
    except (RecursionError, ValueError) as error:
        too_deep = isinstance(error, RecursionError)
        message = "it is nested too deep" if too_deep else f"this is not JSON: {error}"
        raise InvalidFile((Problem(file=file, message=message),)) from None
    for key, node, wanted in _shapes(root):
        if not isinstance(node.value, wanted):
            kind = "an object" if wanted is dict else "a list"
            line = text.count("\n", 0, node.start) + 1
            raise InvalidFile((Problem(file=file, line=line, key=key or None, message=f"must be {kind}"),))
    return root


def _shapes(root: Node) -> Iterator[tuple[str, Node, type]]:
    """Yield what must be an object or a list for Claude Code to understand it, from the outside in."""
    yield "", root, dict
    hooks = root.find("hooks")
    if hooks is None:
        return
    yield "hooks", hooks, dict
    for member in hooks.members:
        yield f"hooks.{member.key}", member.value, list
        for number, group in enumerate(member.value):
            yield f"hooks.{member.key}.{number}", group, dict
            handlers = group.find("hooks")
            if handlers is not None:
                yield f"hooks.{member.key}.{number}.hooks", handlers, list
                for place, handler in enumerate(handlers):
                    yield f"hooks.{member.key}.{number}.hooks.{place}", handler, dict


# --- a JSON text as a tree that knows its places -----------------------------------------------------
_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\r\n]*")
_INDENT = re.compile(r"[ \t]*")
_HOLD_HOOKS: Final = frozenset({0, 3})
"""The levels of the settings and of a group: of their members, only `hooks` counts."""
_HOOK: Final = 5
"""The level of one hook, the innermost."""


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
    """Return the tree of a JSON text. Raises ValueError (json.JSONDecodeError) and RecursionError."""
    json.loads(text)
    return _value(text, _skip(text, 0))


def _leaf(text: str, at: int) -> Node:
    value, end = _DECODER.raw_decode(text, at)
    return Node(at, end, value)


def _value(text: str, at: int, level: int = 0) -> Node:
    """Return the tree of a value: the settings, their hooks, an event's groups, a group, its hooks, one hook.

    What is beside or below these has no members: with every value as a node, a long file takes seconds.
    """
    if text[at] not in "{[":
        return _leaf(text, at)
    members = []
    place = _skip(text, at + 1)
    while text[place] not in "}]":
        member = _member(text, place, keyed=text[at] == "{", level=level)
        members.append(member)
        place = _skip(text, member.end)
        if text[place] == ",":
            place = _skip(text, place + 1)
    value = (
        {one.key: one.value.value for one in members} if text[at] == "{" else [m.value.value for m in members]
    )
    return Node(at, place + 1, value, tuple(members))


def _member(text: str, at: int, *, keyed: bool, level: int) -> Member:
    if not keyed:
        return Member(at, None, _value(text, at, level + 1))
    key, end = _DECODER.raw_decode(text, at)
    start = _skip(text, _skip(text, end) + 1)
    is_tree = key == "hooks" if level in _HOLD_HOOKS else level < _HOOK
    return Member(at, key, _value(text, start, level + 1) if is_tree else _leaf(text, start))


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
