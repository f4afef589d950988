"""Hooks of others, in Claude Code's settings, that write STATE.json or call another orchestrator.

Two that write one state undo each other's work: an edit from outside is held, restored or taken for a
person's. Nobody looks for that in a settings file, least of all in one that a project brought along.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from handoffd.doctor.finding import Finding, fine, warning
from handoffd.errors import InvalidFile, StoreError
from handoffd.files.rooted import open_file
from handoffd.hooks.claude_settings import LOCAL, MAX_BYTES, SHARED, Found, commands, is_ours

CHECK = "hooks"

_SUSPECT = re.compile(r"STATE\.json|orchestrator|apply-handoff|\bdispatch\b")
_SUSPECT_SCRIPT = re.compile(r"STATE\.json|\borchestrator\b|apply-handoff")
_FOLDER = re.compile(r"\$\{?CLAUDE_PROJECT_DIR\}?/*")
_HOME = re.compile(r"^(?:~|\$HOME|\$\{HOME\})(?=/)")
_BETWEEN = re.compile(r"[;&|()`<>\n]+")
"""What ends a simple command in a shell, or a part of it that names a file."""
_AROUND = re.compile(r"[\s;&|()`<>\"'=]+")
_MOST_WORDS = 100
_SCRIPT_BYTES = 64 * 1024
_SHOWN = 120
_WHY = "it may write STATE.json, which handoffd writes: the one then undoes what the other did"


@dataclass(frozen=True, slots=True)
class Foreign:
    """One hook of others, and the settings file it is in."""

    file: str
    hook: Found


@dataclass(frozen=True, slots=True)
class HookFacts:
    """What was found in settings files.

    `unreadable` are those that could not be understood, and why; `unseen` those that were not opened.
    """

    foreign: Sequence[Foreign] = ()
    unreadable: Sequence[InvalidFile] = ()
    unseen: Sequence[str] = ()


def gather(home: str, roots: Sequence[str]) -> HookFacts:
    """Return the suspect hooks of a person and of projects. Reads files below `home` and `roots`."""
    foreign, unreadable, unseen = [], [], []
    for folder in dict.fromkeys((home, *roots)):
        for name in (SHARED, LOCAL):
            try:
                foreign += list(_in_file(folder, name, home))
            except InvalidFile as invalid:
                unreadable.append(invalid)
            except StoreError:  # a link or a pipe: not one that we follow
                if os.path.lexists(file := os.path.join(folder, name)):
                    unseen.append(file)
    return HookFacts(foreign=tuple(foreign), unreadable=tuple(unreadable), unseen=tuple(unseen))


def check(facts: HookFacts) -> tuple[Finding, ...]:
    """Return a warning for each hook that gets in the way, and for each file that was not understood."""
    found = (
        *map(_invalid, facts.unreadable),
        *map(_unseen, facts.unseen),
        *map(_finding, facts.foreign),
    )
    return found or (fine(CHECK, "no hook of others that was found writes STATE.json"),)


def _finding(one: Foreign) -> Finding:
    command = "".join(sign if sign.isprintable() else "?" for sign in one.hook.command)
    shown = command if len(command) <= _SHOWN else f"{command[: _SHOWN - 1]}…"
    what = f"{one.file} has a hook at {one.hook.event} that is not handoffd's: {shown}"
    return warning(CHECK, what, _WHY, f"${{EDITOR:-vi}} {quote(one.file)}")


def _invalid(invalid: InvalidFile) -> Finding:
    problem = invalid.problems[0]
    why = "Claude Code cannot read it either: none of the hooks in it is run"
    return warning(CHECK, str(problem), why, f"${{EDITOR:-vi}} {quote(problem.file)}")


def _unseen(file: str) -> Finding:
    what = f"{file} was not looked at: a symbolic link leads there, or it is no regular file one may read"
    why = "Claude Code may run hooks from it, and one that writes STATE.json would not be told of"
    return warning(CHECK, what, why, f"ls -lL {quote(file)}")


def _in_file(folder: str, name: str, home: str) -> Iterator[Foreign]:
    text = _text(folder, name, MAX_BYTES)
    if not text.strip():
        return
    file = os.path.join(folder, name)
    for hook in commands(text, file):
        if not is_ours(hook.command) and _is_suspect(hook.command, folder, home):
            yield Foreign(file, hook)


def _is_suspect(command: str, root: str, home: str) -> bool:
    """Return whether a command, or a script that it names, speaks of what is not its own.

    A script is looked for in the project and in the home.
    """
    if any(_SUSPECT.search(part) and not _calls_us(part) for part in _BETWEEN.split(command)):
        return True
    named = dict.fromkeys((*_words(command), *_AROUND.split(command)))
    scripts = (_FOLDER.sub("", _HOME.sub(lambda _: home, word)) for word in list(named)[:_MOST_WORDS])
    return any(
        _SUSPECT_SCRIPT.search(_script(folder, script))
        for script in scripts
        for folder in ((root, home) if os.path.isabs(script) else (root,))
    )


def _calls_us(command: str) -> bool:
    words = _words(command)
    return bool(words) and os.path.basename(words[0]) == "handoffd"


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def _script(root: str, word: str) -> str:
    """Return the beginning of a file below `root`; empty for every other word."""
    path = os.path.relpath(word, root) if os.path.isabs(word) else word
    with suppress(StoreError, ValueError):
        return _text(root, path, _SCRIPT_BYTES)
    return ""


def _text(root: str, name: str, most: int) -> str:
    with open_file(Path(root), name) as handle:
        if handle is None:
            return ""
        with open(handle, "rb", closefd=False) as file:
            return file.read(most).decode("utf-8", errors="replace")
