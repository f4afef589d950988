"""`globs` and `remove-tagged`: the files of a workspace that patterns name, and the marks in them.

A line that has `handoffd:TAG` goes. A line that has `handoffd:TAG begin` opens a passage, which ends with
the line that has `handoffd:TAG end`; both go, with all between them. A passage that is never closed, or is
opened in another one, is refused: guessing where it ends could take away code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from handoffd.engine.wording import counted
from handoffd.errors import Refused, StoreError
from handoffd.files.rooted import read_project_file
from handoffd.kit.given import Done, Given, as_json, invalid

LEFT_OUT: Final = frozenset(
    {
        *(".git", ".hg", ".svn", ".ai", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache"),
        *(".pytest_cache", ".ruff_cache", ".tox", ".gradle", "target"),
    }
)
"""Folders that hold no work of a person."""
MOST_FILES: Final = 100_000


MARK: Final = "handoffd:"
_TAG: Final = re.compile(r"[a-z][a-z0-9-]{0,63}")
_LARGEST: Final = 4 * 1024 * 1024
"""Bytes of a file; larger ones were not written by hand."""


def globs(given: Given) -> Done:
    """List the files that the globs of the parameter `paths` name; a folder names all in it."""
    patterns = given.param_list("paths")
    fits = matcher(patterns)
    files = [file for file in walked(given.root) if fits(file)]
    out = {"files.json": as_json({"files": files, "globs": list(patterns)})}
    return Done(outcome="found" if files else "none", summary=f"{counted(len(files), 'file')}.", out=out)


def walked(root: Path) -> Iterator[str]:
    """Yield the regular files below a folder, sorted; links are neither followed nor listed."""
    count = 0
    for place, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT)
        for name in sorted(files):
            path = os.path.join(place, name)
            if os.path.isfile(path) and not os.path.islink(path):
                count += 1
                if count > MOST_FILES:
                    raise Refused(f"{root} has more than {MOST_FILES:,} files")
                yield os.path.relpath(path, root)


class _Matcher:
    """Whether a path fits one of some patterns, which are as in a .gitignore."""

    def __init__(self, patterns: Sequence[str]) -> None:
        from pathspec import GitIgnoreSpec  # noqa: PLC0415  (only this program needs it)

        everything = ["**" if pattern in {".", "./", ""} else pattern for pattern in patterns]
        # `./src` means the same as `src` to a person, and nothing at all in a .gitignore.
        self._fits = GitIgnoreSpec.from_lines(one.removeprefix("./") for one in everything).match_file

    def __call__(self, path: str) -> bool:
        return bool(self._fits(path))


def matcher(patterns: Sequence[str]) -> _Matcher:
    """Return what says whether a path fits. Raises InvalidFile for a pattern that leaves the folder."""
    for at, pattern in enumerate(patterns):
        if pattern.startswith(("/", "~")) or ".." in pattern.split("/"):
            invalid("HANDOFFD_PARAM_PATHS", f"[{at}]", f"'{pattern[:80]}' leads out of the project's folder")
    return _Matcher(patterns)


# --- marks ----------------------------------------------------------------------------------------------
def remove_tagged(given: Given) -> Done:
    """Remove the marked lines of all files."""
    tag = given.words["tag"]
    if _TAG.fullmatch(tag) is None:
        raise Refused(f"'{tag[:80]}' cannot be a tag: small letters, digits and '-'")
    writes, removed = {}, 0
    for path in walked(given.root):
        content = _content(given, path)
        if content is None or f"{MARK}{tag}".encode() not in content:
            continue
        kept, gone = without(content, tag, path)
        removed += gone
        if gone:
            writes[path] = kept
    summary = f"{counted(removed, 'line')} of {counted(len(writes), 'file')} removed."
    return Done(fields={"removed": removed, "files": len(writes)}, summary=summary, writes=writes)


def _content(given: Given, path: str) -> bytes | None:
    """Return a file; None for one that is too large or was removed."""
    try:
        found = read_project_file(given.root, path, _LARGEST)
    except StoreError:
        return None
    return None if found is None else found.content


def without(content: bytes, tag: str, path: str) -> tuple[bytes, int]:
    """Return a file without its marked lines, and how many these were. Raises InvalidFile."""
    mark = re.compile(rf"{MARK}{re.escape(tag)}(?![a-z0-9-])(?:[ \t]+(begin|end)\b)?".encode())
    kept: list[bytes] = []
    opened, gone = 0, 0
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        found = mark.search(line)
        kind = found[1] if found else None
        if kind == b"begin" and opened:
            invalid(path, f"line {number}", f"a passage is open since line {opened}")
        if kind == b"end" and not opened:
            invalid(path, f"line {number}", "no passage is open here")
        if found or opened:
            gone += 1
        else:
            kept.append(line)
        opened = number if kind == b"begin" else 0 if kind == b"end" else opened
    if opened:
        invalid(path, f"line {opened}", f"this passage has no '{MARK}{tag} end'")
    return b"".join(kept), gone
