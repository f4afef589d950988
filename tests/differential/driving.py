"""One case through one program: a folder of its own, the words said, the outcome."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.differential.cases import ROOT, Case
from tests.differential.folders import Folder, made
from tests.differential.outcomes import Spoken, files_of, outcome, state_of

from handoffd.clock import SystemClock
from handoffd.orchestrator.main import main

Json = dict[str, Any]

_OURS = ("HANDOFFD_", "XDG_", "STATE_DIRECTORY", "RUNTIME_DIRECTORY")
PROMPTS = frozenset({"review", "triage"})


def through(program: Callable[[Sequence[str], Path], Spoken], case: Case) -> Json:
    """Return what a case comes to. `program` is given the words, and a folder for what it keeps."""
    with tempfile.TemporaryDirectory(prefix="handoffd-") as name:
        base = Path(name)
        root = base / "work" / "shop"
        made(case.folder, root, SystemClock().now())
        before = files_of(root)
        spoken = program([word.replace(ROOT, str(root)) for word in case.words], base)
        return outcome(spoken, root, before, prompt_only=case.verb in PROMPTS)


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
        finally:
            shutil.rmtree(base / "state", ignore_errors=True)
    raise AssertionError("the program did not exit")


def _places(base: Path) -> Mapping[str, str]:
    """Return variables with which nothing of the person's own is read or written."""
    places = {"HANDOFFD_STATE_DIR": "state", "HANDOFFD_RUNTIME_DIR": "run", "HOME": "home"}
    return {name: str(base / folder) for name, folder in places.items()}


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
