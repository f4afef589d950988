"""What a track reads and writes in a project's `.ai` folder: the hand-off, its runs' folders, the history.

An agent can write there, too: a link, a pipe or a file over its cap is never followed or read whole, but is a
malformed hand-off, or an error. All calls block: give them to a thread.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import structlog

from handoffd.engine.track import Dispatch
from handoffd.errors import Problem, StoreError
from handoffd.execute.base import EXIT, START, ExitRecord
from handoffd.execute.run import adopt
from handoffd.files.atomic import digest_of, replace_text
from handoffd.files.rooted import (
    FileSeen,
    append_project_file,
    read_project_file,
    visiting,
    write_project_file,
)
from handoffd.inspection.checklist import CHECKLIST
from handoffd.inspection.own_files import RULES, SETTINGS
from handoffd.protocol.handoff import (
    HANDOFF_FILE,
    MAX_FILE_BYTES,
    RESULT_FILE,
    FileMark,
    HandoffMark,
    Malformed,
    Reading,
)
from handoffd.protocol.reading import Expected, HandoffTexts, read_handoff

log = structlog.get_logger(__name__)


# --- the hand-off -------------------------------------------------------------------------------------
class HandoffFiles:
    """HANDOFF.md and executor-result in one folder."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def mark(self) -> HandoffMark:
        """Return the identity of both files as they are now; of one that cannot be read, none."""
        return _mark(self._see_safely(HANDOFF_FILE), self._see_safely(RESULT_FILE))

    def read(self, dispatch: Dispatch, keep_in: Path | None = None) -> tuple[Reading, HandoffMark]:
        """Return what the files say to the attempt of `dispatch`, and their identity.

        Copies of what was read are kept in the folder `keep_in`, for people.
        """
        expected = Expected(
            mark=dispatch.mark,
            story=dispatch.story,
            step=dispatch.step,
            attempt=dispatch.attempt,
            dispatch=dispatch.id,
            ours=True,
        )
        return self.read_for(expected, keep_in)

    def read_for(self, expected: Expected, keep_in: Path | None = None) -> tuple[Reading, HandoffMark]:
        """Return what the files say to an attempt described by `expected`, and their identity.

        A file that must not be read (a link, a pipe, over the cap) is a malformed hand-off.
        """
        try:
            with visiting(self._root):
                handoff, result = self._see(HANDOFF_FILE), self._see(RESULT_FILE)
        except StoreError as error:
            return Malformed(problem=Problem(file=HANDOFF_FILE, message=error.message)), self.mark()
        if keep_in is not None:
            self._keep(keep_in, {HANDOFF_FILE: handoff, RESULT_FILE: result})
        mark = _mark(handoff, result)
        texts = HandoffTexts(
            handoff=handoff.content if handoff else None,
            result=result.content if result else None,
            mark=mark,
        )
        return read_handoff(texts, expected), mark

    def _keep(self, folder: Path, found: Mapping[str, FileSeen | None]) -> None:
        """Nothing relies on the copies, so nothing fails."""
        for name, seen in found.items():
            if seen is None:
                continue
            try:
                replace_text(folder / Path(name).name, seen.content, durable=False)
            except StoreError as error:
                log.warning("hand-off not kept", project=str(self._root), error=error.message)

    def _see_safely(self, name: str) -> FileSeen | None:
        try:
            return self._see(name)
        except StoreError:
            return None

    def _see(self, name: str) -> FileSeen | None:
        return read_project_file(self._root, name, MAX_FILE_BYTES)


def _mark(handoff: FileSeen | None, result: FileSeen | None) -> HandoffMark:
    return HandoffMark(handoff=_file_mark(handoff), result=_file_mark(result))


def _file_mark(seen: FileSeen | None) -> FileMark | None:
    """Return the identity that distinguishes this file from a rewritten one."""
    if seen is None:
        return None
    return FileMark(digest=digest_of(seen.content), inode=seen.inode, mtime_ns=seen.mtime_ns)


# --- the folders of runs ------------------------------------------------------------------------------
RUNS = ".ai/runs"

_SLACK_NS = 2_000_000_000
"""Clocks that are steered drift by so much without having been set."""


def output_path(root: str, run_id: str) -> str:
    """Return the path of an executor's bounded output; that of checks is kept with their records."""
    return f"{root}/{RUNS}/{run_id}/output.log"


def prepare(root: str, run_id: str, prompt: str) -> None:
    """Make the run's folder with its prompt, and keep all runs out of version control.

    Raises StoreError if the project cannot be written or a link is in the way.
    """
    ignore = f"{RUNS}/.gitignore"
    if read_project_file(Path(root), ignore, 4096) is None:
        write_project_file(Path(root), ignore, "*\n", durable=False)
    write_project_file(Path(root), f"{RUNS}/{run_id}/prompt.md", prompt, durable=False)


def started_ns(run_dir: Path) -> int:
    """Return when an executor began, by the clock that also stamps files; 0 if it was not ours.

    If that clock was set back while it ran, by as much earlier: what it wrote afterwards is younger
    all the same. How long a run took was measured by the other clock, so that this can be seen.
    """
    try:
        began = Path(run_dir, START).stat().st_mtime_ns
        ended = Path(run_dir, EXIT).stat().st_mtime_ns
    except OSError:
        return _mtime_ns(Path(run_dir, START))
    record = adopt(run_dir)
    if not isinstance(record, ExitRecord):
        return began
    set_back_ns = int(record.seconds * 1_000_000_000) - (ended - began)
    return began - set_back_ns if set_back_ns > _SLACK_NS else began


def _mtime_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


# --- the history --------------------------------------------------------------------------------------
HISTORY = ".ai/history.md"
"""Executors append what they did, and the daemon an entry for each story that it reopens."""

MAX_BYTES = 4 * 1024 * 1024

_REOPENED = re.compile(rb"^### Reopen\b", re.MULTILINE)


def append_history(root: str, text: str) -> None:
    """Append an entry to the history, unless it is the last one: an order may be given twice."""
    seen = read_project_file(Path(root), HISTORY, MAX_BYTES)
    if seen is not None and seen.content.endswith(text.encode()):
        return
    unended = seen is not None and seen.content and not seen.content.endswith(b"\n")
    append_project_file(Path(root), HISTORY, f"\n{text}" if unended else text)


def take_along(root: Path, clone: Path) -> int | None:
    """Give a clone the papers of its project that git does not keep: checklist, history, settings, rules.

    Returns how many bytes of history there are; None: git keeps it. Raises StoreError.
    """
    checklist = read_project_file(root, CHECKLIST, MAX_BYTES)
    if checklist is not None:
        write_project_file(clone, CHECKLIST, checklist.content, durable=False)
    for name in (SETTINGS, RULES):
        own = read_project_file(root, name, MAX_BYTES)
        if own is not None and read_project_file(clone, name, MAX_BYTES) is None:
            write_project_file(clone, name, own.content, durable=False)
    if read_project_file(clone, HISTORY, MAX_BYTES) is not None:
        return None
    history = read_project_file(root, HISTORY, MAX_BYTES)
    if history is not None:
        write_project_file(clone, HISTORY, history.content, durable=False)
    return 0 if history is None else len(history.content)


def bring_home(clone: Path, root: Path, known: int | None, *, ticked: bool) -> int | None:
    """Give a project what was written in the papers of a clone; `known` and the result as of `take_along`.

    `ticked`: the checklist, too; that of one story among several stays in its clone. Raises StoreError.
    """
    checklist = read_project_file(clone, CHECKLIST, MAX_BYTES) if ticked else None
    if checklist is not None:
        write_project_file(root, CHECKLIST, checklist.content, durable=False)
    history = read_project_file(clone, HISTORY, MAX_BYTES) if known is not None else None
    if history is None or known is None or len(history.content) <= known:
        return known
    append_history(str(root), history.content[known:].decode(errors="replace"))
    return len(history.content)


def reopenings(root: str) -> int:
    """Return the number of reopenings in the history, by any tool; 0 if it cannot be read."""
    try:
        seen = read_project_file(Path(root), HISTORY, MAX_BYTES)
    except StoreError:
        return 0
    return 0 if seen is None else len(_REOPENED.findall(seen.content))
