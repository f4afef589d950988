"""The hand-off files of one project, looked at: what is there now, and does it count?

File events are hints; this is the look. Files are read whole, size-capped, without following any
link out of the project, and told apart by identity, not by time.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from handoffd.engine.track import Dispatch
from handoffd.errors import Problem, StoreError
from handoffd.files.atomic import digest_of, replace_text
from handoffd.files.rooted import FileSeen, read_project_file
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


class HandoffFiles:
    """HANDOFF.md and executor-result under one root. Its calls block: give them to a thread."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def mark(self) -> HandoffMark:
        """Return the identity of both files as they are now; of one that cannot be read, none."""
        return _mark(self._see_safely(HANDOFF_FILE), self._see_safely(RESULT_FILE))

    def read(self, dispatch: Dispatch) -> tuple[Reading, HandoffMark]:
        """Return what the files say to the attempt of `dispatch`, and their identity."""
        expected = Expected(
            mark=dispatch.mark,
            story=dispatch.story,
            step=dispatch.step,
            attempt=dispatch.attempt,
            dispatch=dispatch.id,
        )
        return self.read_for(expected)

    def read_for(self, expected: Expected) -> tuple[Reading, HandoffMark]:
        """Return what the files say to an attempt described by `expected`, and their identity.

        A file that must not be read (a link, a pipe, over the cap) is a malformed hand-off.
        """
        try:
            handoff, result = self._see(HANDOFF_FILE), self._see(RESULT_FILE)
        except StoreError as error:
            return Malformed(problem=Problem(file=HANDOFF_FILE, message=error.message)), self.mark()
        mark = _mark(handoff, result)
        texts = HandoffTexts(
            handoff=handoff.content if handoff else None,
            result=result.content if result else None,
            mark=mark,
        )
        return read_handoff(texts, expected), mark

    def copy_to(self, folder: Path) -> None:
        """Keep copies of both files in `folder`, for people: nothing relies on them, so nothing fails."""
        for name in (HANDOFF_FILE, RESULT_FILE):
            seen = self._see_safely(name)
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
    """Return the identity by which a rewritten file is told from this one."""
    if seen is None:
        return None
    return FileMark(digest=digest_of(seen.content), inode=seen.inode, mtime_ns=seen.mtime_ns)
