"""Our entries among the hooks in a text of Claude Code's settings: put in, found, taken out.

The shape is Claude Code's: `hooks` is an object of events, an event a list of groups (each with an
optional `matcher`), a group has a list of handlers. Text goes in and comes out; nothing is read or written.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from handoffd.errors import InvalidFile, Problem
from handoffd.hooks.jsontree import Node, added, removed, tree_of

CHECKS_S: Final = 15 * 60
"""How long Claude Code waits for a hook that may run a project's tests and its post_check."""
ENDING_S: Final = 60
"""The most Claude Code gives hooks at the end of a session; without any wish it is 1.5 s."""

TIMEOUTS_S: Final[Mapping[str, int]] = {
    "Stop": CHECKS_S,
    "SubagentStop": CHECKS_S,
    "SessionEnd": ENDING_S,
    "TaskCompleted": CHECKS_S,
    "TeammateIdle": CHECKS_S,
}
"""The events we have hooks for, and how long each of them may take."""

EMPTY: Final = "{}\n"


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
    while (shorter := _one_less(text, file, events)) is not None:
        text = shorter
    return text


def is_ours(command: str) -> bool:
    """Return whether a command is `handoffd hook`, from whichever installation."""
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
    """Return the tree of a settings text. Raises InvalidFile if it is no JSON or has another shape."""
    try:
        root = tree_of(text)
    except json.JSONDecodeError as error:
        message = f"column {error.colno}: this is no JSON: {error.msg}"
        raise InvalidFile((Problem(file=file, line=error.lineno, message=message),)) from None
    except RecursionError:
        raise InvalidFile((Problem(file=file, message="it is nested too deep"),)) from None
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
