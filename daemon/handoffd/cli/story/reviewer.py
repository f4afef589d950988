"""Who decides at a human step of `demo` and `rehearse`, and what they are shown before.

At each gate only the word `approve` approves: an empty line, a yes or the end of the input does not. Agents
wrote the files, so what is shown of them is escaped for the terminal and kept short.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from difflib import unified_diff
from pathlib import Path

from msgspec import Struct
from rich.console import Console

from handoffd.chat.commands import reason_meant
from handoffd.cli.wording import plain
from handoffd.engine.wording import counted
from handoffd.errors import HandoffdError, Json
from handoffd.protocol.state import Reason

MOST_FILES = 8
MOST_LINES = 14
_LEFT_OUT = frozenset({".git", ".ai", ".venv", "node_modules", "__pycache__"})
_MOST_BYTES = 64 * 1024
_MOST_KEPT = 16 * 1024 * 1024
"""Of all texts together: a rehearsal may be of any project."""


class Answer(Struct, frozen=True):
    """What is decided at a human step; `reason` is why it is rejected."""

    approve: bool
    reason: Reason | None = None
    note: str | None = None


Ask = Callable[[Json], Answer]


class Changes:
    """What became different in a project's files since this was made."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._hashes: dict[str, int] = {}
        self._texts: dict[str, str] = {}
        room = _MOST_KEPT
        for name, text in _texts(root):
            self._hashes[name] = hash(text)
            room -= len(text)
            if room > 0:
                self._texts[name] = text

    def told(self) -> list[str]:
        """Return lines for the user: each new or changed file with its essential lines."""
        found = [(name, text) for name, text in _texts(self._root) if self._hashes.get(name) != hash(text)]
        found.sort(key=lambda file: os.lstat(os.path.join(self._root, file[0])).st_mtime_ns)
        lines = []
        for name, text in found[:MOST_FILES]:
            old = self._texts.get(name)
            lines.append(f"{name} ({'changed' if name in self._hashes else 'new'})")
            lines += [f"  {line}" for line in (_essence(name, text) if old is None else _added(old, text))]
        if len(found) > MOST_FILES:
            lines.append(f"… and {counted(len(found) - MOST_FILES, 'more file')}")
        return [plain(line, lines=True) for line in lines]


def _texts(root: str) -> Iterator[tuple[str, str]]:
    """Yield path and text of each ordinary file, by name, except binary and oversized files."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - _LEFT_OUT)
        for name in sorted(names):
            path = os.path.join(folder, name)
            if (text := _text(path)) is not None:
                yield os.path.relpath(path, root), text


def _text(path: str) -> str | None:
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
            return None
        return Path(path).read_text("utf-8")
    except (OSError, ValueError):
        return None


def _essence(name: str, text: str) -> list[str]:
    """Return the lines of a new file; of long Markdown only the lines outside lists."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if len(lines) > MOST_LINES and name.endswith(".md"):
        lines = [line for line in lines if not line.lstrip().startswith(("-", "*", "+"))]
    return _cut(lines)


def _added(old: str, new: str) -> list[str]:
    """Return what a file got and lost, line by line."""
    changes = unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")
    lines = [line for line in changes if line[1:].strip() and not line.startswith(("---", "+++", "@@"))]
    return _cut(lines)


def _cut(lines: list[str]) -> list[str]:
    rest = len(lines) - MOST_LINES
    return lines if rest <= 0 else [*lines[:MOST_LINES], f"… {counted(rest, 'more line')}"]


def ask_at_terminal(console: Console, changes: Changes, hint: str) -> Ask:
    """Return how a person at this terminal is asked; `hint` is how to go on where the input ends."""

    def ask(track: Json) -> Answer:
        _show(console, track, changes)
        try:
            return _decision(console)
        except EOFError:
            message = f"the input ended before {track['step']} was decided: nothing is approved by that"
            raise HandoffdError(message, code="NOT_DECIDED", hint=hint) from None

    return ask


def approve_by_itself(console: Console, changes: Changes, why: str) -> Ask:
    """Return a reviewer that approves, shows what, and says why by itself; for demonstrations."""

    def ask(track: Json) -> Answer:
        _show(console, track, changes)
        console.print(
            f"{track['step']} is approved automatically: {why}\n",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        return Answer(approve=True)

    return ask


def can_ask() -> bool:
    """Return whether there is a person at a terminal to ask."""
    return sys.stdin is not None and sys.stdin.isatty()


def _show(console: Console, track: Json, changes: Changes) -> None:
    console.print(f"\n[bold yellow]{track['step']}[/] of {track['story']} waits for you. Please look at:")
    for line in changes.told() or ["no file has changed so far"]:
        console.print(f"    {line}", markup=False, highlight=False, soft_wrap=True)


def _decision(console: Console) -> Answer:
    """Ask until one of the two words comes. Raises EOFError when no more can come."""
    reasons = ", ".join(Reason)
    console.print("\nType [bold]approve[/] to let it pass, or [bold]reject[/] to send it back.")
    while True:
        given, _, rest = console.input("> ").strip().partition(" ")
        word = given.lower()
        if word == "approve" and not rest:
            return Answer(approve=True)
        if word == "reject":
            return _rejection(console, rest, reasons)
        console.print(
            "Nothing is decided: only the word [bold]approve[/] approves, and [bold]reject[/] rejects."
        )


def _rejection(console: Console, rest: str, reasons: str) -> Answer:
    while (reason := reason_meant(rest)) is None:
        console.print(f"Why? One of: {reasons}")
        rest = console.input("reason> ")
    note = console.input("What should change? ").strip() or None
    return Answer(approve=False, reason=reason, note=note)
