"""One case through one program: a folder of its own, the words said, the outcome.

Of a sequence, each verb is such a case. Its folder is what ours has made of it so far: the reference keeps
nothing but files, so it is given a copy before each verb, and one difference does not hide the next. Both are
asked as if seconds had passed since the verb before.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from tests.differential.cases import ROOT, Case
from tests.differential.folders import HANDOFF, STATE, Folder, made
from tests.differential.outcomes import MOMENT_PATTERN, Spoken, files_of, lasting, outcome, state_of
from tests.differential.reference import Reference
from tests.differential.sequences import HISTORY, Played, Said
from tests.differential.story import Story

from handoffd.clock import SystemClock, rfc3339
from handoffd.orchestrator.main import main

Json = dict[str, Any]

_OURS = ("HANDOFFD_", "XDG_", "STATE_DIRECTORY", "RUNTIME_DIRECTORY")
TOOLS = "tools"
BETWEEN_S = 5
"""So much time passes between two verbs for the reference: enough for files of before to be older."""
PROMPTS = frozenset({"review", "triage"})


def through(program: Callable[[Sequence[str], Path], Spoken], case: Case) -> Json:
    """Return what a case comes to. `program` is given the words, and a folder for what it keeps."""
    with tempfile.TemporaryDirectory(prefix="handoffd-") as name:
        base = Path(name)
        root = base / "work" / "shop"
        made(case.folder, root, SystemClock().now())
        before = files_of(root)
        spoken = program(_about(case.words, root), base)
        return outcome(spoken, root, before, prompt_only=case.verb in PROMPTS)


@dataclass(frozen=True, slots=True)
class Turn:
    """One verb of a sequence: `name` is what rules know it by, `state` is STATE.json before it.

    `given` is a digest of the words and the files that both programs were given.
    """

    name: str
    verb: str
    given: str
    state: Json | None
    theirs: Json
    ours: Json


class Theirs(Protocol):
    """What the reference does with a verb: it is asked now, or what it did is remembered."""

    def answer(self, number: int, words: Sequence[str], given: str, root: Path) -> Json:
        """Return the outcome of the `number`th verb of a sequence about the project at `root`."""


class Live:
    """The reference itself, with a copy of the project. Its clock is ahead by some seconds for each verb."""

    def __init__(self, reference: Reference, base: Path) -> None:
        self._reference = reference
        self._root = base / "theirs" / "shop"
        self._begun: list[float] = []

    def answer(self, number: int, words: Sequence[str], given: str, root: Path) -> Json:
        """Return the outcome of a verb."""
        self._begun.append(SystemClock().now().timestamp())
        self._copy(root)
        before = files_of(self._root)
        spoken = self._reference.run(_about(words, self._root), number * BETWEEN_S)
        return outcome(spoken, self._root, before, prompt_only=words[0] in PROMPTS)

    def _copy(self, root: Path) -> None:
        shutil.rmtree(self._root, ignore_errors=True)
        shutil.copytree(root, self._root)
        for path in self._root.rglob("*"):
            if path.is_file():
                written = self._moved(path.stat().st_mtime)
                os.utime(path, (written, written))
        state = self._root / STATE
        if state.is_file():
            state.write_text(MOMENT_PATTERN.sub(self._moved_text, state.read_text(encoding="utf-8")))

    def _moved_text(self, found: re.Match[str]) -> str:
        moment = datetime.fromisoformat(found[0])
        return rfc3339(datetime.fromtimestamp(self._moved(moment.timestamp()), UTC))

    def _moved(self, moment: float) -> float:
        """Return a moment by the clock of the reference."""
        return moment + BETWEEN_S * sum(begun <= moment for begun in self._begun)


def turns(sequence: Played, theirs: Callable[[Path], Theirs]) -> Iterator[Turn]:
    """Play a sequence, and yield what both programs make of each of its verbs."""
    with tempfile.TemporaryDirectory(prefix="handoffd-") as name:
        base = Path(name)
        root = base / "work" / "shop"
        made(sequence.folder, root, SystemClock().now())
        _put_tools(base / TOOLS)
        beside, story = theirs(base), Story(sequence)
        number = 0
        for move in sequence.moves:
            if not isinstance(move, Said):
                story.does(move, root)
                continue
            state = story.sees(move, root)
            place, before = story.place(move, state), files_of(root)
            given = _digest(move.words, before, root)
            told = beside.answer(number, move.words, given, root)
            spoken = ours(_about(move.words, root), base)
            own = outcome(spoken, root, before, prompt_only=move.verb in PROMPTS)
            yield Turn(f"{place} #{sequence.seed}.{number}", move.verb, given, state, told, own)
            number += 1


def _about(words: Sequence[str], root: Path) -> list[str]:
    return [word.replace(ROOT, str(root)) for word in words]


_READ = frozenset({HANDOFF, HISTORY, "PROJECT_MEMORY.md", "package.json", "go.mod"})
"""Files whose texts the reference reads; of all others it only knows whether they are there."""


def _digest(words: Sequence[str], files: Mapping[str, str], root: Path) -> str:
    """Return a digest of what the reference is given: the words, and what it can see of the project."""
    seen = {name: lasting(text, root) if name in _READ else "" for name, text in sorted(files.items())}
    told = json.dumps([list(words), state_of(root), seen])
    return hashlib.sha256(told.encode("utf-8", errors="surrogateescape")).hexdigest()[:12]


def _put_tools(folder: Path) -> None:
    """Put programs there that the checks of presets run: what is installed makes no difference then."""
    folder.mkdir()
    for name in ("go", "golangci-lint"):
        path = folder / name
        path.write_text("#!/bin/sh\nexit 0\n")
        path.chmod(0o755)


def before(folder: Folder) -> Any:
    """Return what STATE.json of a folder says before any verb."""
    with tempfile.TemporaryDirectory(prefix="handoffd-") as name:
        root = Path(name) / "work"
        made(replace(folder, files={}), root, SystemClock().now())
        return state_of(root)


def ours(words: Sequence[str], base: Path) -> Spoken:
    """Run our program in this process, with places of its own below `base`."""
    out, err = io.StringIO(), io.StringIO()
    with _environment(_places(base)), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words)
        except SystemExit as exited:
            return Spoken(int(exited.code or 0), out.getvalue(), err.getvalue())
    raise AssertionError("the program did not exit")


def _places(base: Path) -> Mapping[str, str]:
    """Return variables with which nothing of the person's own is read or written."""
    places = {"HANDOFFD_STATE_DIR": "state", "HANDOFFD_RUNTIME_DIR": "run", "HOME": "home"}
    own = {name: str(base / folder) for name, folder in places.items()}
    return {**own, "PATH": f"{base / TOOLS}:{os.environ['PATH']}"}


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:

    before = dict(os.environ)
    own = {name: value for name, value in before.items() if not name.startswith(_OURS)}
    os.environ.clear()
    os.environ.update({**own, **variables})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
