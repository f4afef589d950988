"""Removes the remains of runs; a crash leaves all of them, or a remainder that its name gives away.

Links are not followed. In a project, where agents and people write, only files with the daemon's own names
are removed, one by one; a folder that holds anything else stays, and so does one that was written to after
its run, which the run's records show. `fleet/housekeeping.py` decides when runs are removed, and
`journal/retention.py` which ones.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

from handoffd.files.atomic import FOLDER_FLAGS
from handoffd.files.errors import storage_error
from handoffd.files.rooted import open_parent

RUN_ID = re.compile(r"\d{8}T\d{6}-[0-9a-f]{8}")
"""What the daemon calls a dispatch; its checks have a suffix in the state directory."""

_COPY = re.compile(r"prompt\.md|output\.log|\.prompt\.md\.[0-9a-f]{16}\.tmp|\.output\.log\.\d+")
"""What the daemon and its shims write there, and what a kill leaves of that."""
_GONE = ".gone-"
_PROMPT, _OUTPUT, _END = "prompt.md", "output.log", "exit.json"
_LATE_S = 600.0
"""How long after a run's end its output may be written: processes that it left behind are being ended."""


Content = Literal["ours", "edited", "unverifiable"]
"""Whether a copy was written to after its run; only the run's records can tell."""


class Copy(Struct, frozen=True, kw_only=True):
    """A run's folder in its project. `strangers`: names in it that are not the daemon's."""

    id: str
    bytes: int
    changed: float
    strangers: tuple[str, ...]
    content: Content


def run_folders(runs_dir: Path) -> dict[str, list[Path]]:
    """Return each dispatch's folders in the state directory: its own, and its checks'."""
    found: dict[str, list[Path]] = {}
    try:
        names = sorted(os.listdir(runs_dir))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise storage_error("list the runs", runs_dir, error) from error
    for name in names:
        dispatch = name.partition(".")[0]
        if RUN_ID.fullmatch(dispatch):
            found.setdefault(dispatch, []).append(runs_dir / name)
    return found


def bytes_below(path: Path) -> int:
    """Return the bytes a folder takes on the disk; a file that vanishes meanwhile counts nothing."""
    total, folders = 0, [str(path)]
    while folders:  # not os.walk: an agent may nest folders deeper than it goes
        folder = folders.pop()
        with suppress(OSError), os.scandir(folder) as entries:
            total += os.lstat(folder).st_blocks * 512
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    total += _bytes_of(entry)
    return total


def _bytes_of(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * 512
    except OSError:
        return 0


def dispose(folders: list[Path]) -> None:
    """Remove the folders of one dispatch. Raises StoreError."""
    for folder in folders:
        # Renamed first: a half removed folder must not be taken for a run.
        away = folder.with_name(f"{_GONE}{folder.name}")
        try:
            shutil.rmtree(away, ignore_errors=True)
            folder.rename(away)
            shutil.rmtree(away)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise storage_error("remove", folder, error) from error


def dispose_remainders(runs_dir: Path) -> None:
    """Finish the removals that a crash has interrupted."""
    for path in runs_dir.glob(f"{_GONE}*"):
        shutil.rmtree(path, ignore_errors=True)


def copies(root: Path, folder: str, runs_dir: Path) -> Iterator[Copy]:
    """Yield the runs that `folder`, below a project's root, has copies of. Raises StoreError.

    `runs_dir` has the records of these runs, as long as they are kept.
    """
    with open_parent(root, f"{folder}/any") as handle:
        names = [] if handle is None else sorted(os.listdir(handle))
        for name in names:
            if handle is not None and RUN_ID.fullmatch(name) and (copy := _copy(handle, name, runs_dir)):
                yield copy


def _copy(parent: int, name: str, runs_dir: Path) -> Copy | None:
    try:
        handle = os.open(name, FOLDER_FLAGS, dir_fd=parent)
    except OSError:  # a link, a file, or gone
        return None
    try:
        seen = os.fstat(handle)
        found = {one: os.stat(one, dir_fd=handle, follow_symlinks=False) for one in os.listdir(handle)}
        content = _content(handle, found, runs_dir / name)
    except OSError:
        return None
    finally:
        os.close(handle)
    strangers = [one for one, status in found.items() if not _is_ours(one, status)]
    weight = seen.st_blocks + sum(status.st_blocks for status in found.values())
    return Copy(
        id=name, bytes=weight * 512, changed=seen.st_mtime, strangers=tuple(sorted(strangers)),
        content=content,
    )  # fmt: skip


def _content(folder: int, found: Mapping[str, os.stat_result], records: Path) -> Content:
    """Compare the prompt with the executor's, and the age of the output with the run's end."""
    try:
        os.lstat(records)
        edited = _is_another(folder, found, records) or _is_late(found.get(_OUTPUT), records)
    except OSError:
        return "unverifiable"
    return "edited" if edited else "ours"


def _is_late(output: os.stat_result | None, records: Path) -> bool:
    try:
        ended = os.lstat(records / _END).st_mtime
    except FileNotFoundError:  # it was never started, or its end was lost
        return False
    return output is not None and output.st_mtime > ended + _LATE_S


def _is_another(folder: int, found: Mapping[str, os.stat_result], records: Path) -> bool:
    prompt = found.get(_PROMPT)
    if prompt is None or not _is_ours(_PROMPT, prompt):
        return False
    text = (records / _PROMPT).read_bytes()
    if prompt.st_size != len(text):
        return True
    handle = os.open(_PROMPT, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with open(handle, "rb") as file:
        return file.read(len(text) + 1) != text


def _is_ours(name: str, status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and _COPY.fullmatch(name) is not None


def dispose_copy(root: Path, folder: str, run: str, runs_dir: Path) -> bool:
    """Remove a run's copies from a project; return whether its folder is gone, too. Raises StoreError.

    A copy stays if it was written to since `copies` read it, or if the run's records are gone.
    """
    with open_parent(root, f"{folder}/{run}/any") as handle:
        if handle is None:
            return True
        try:
            found = {name: os.stat(name, dir_fd=handle, follow_symlinks=False) for name in os.listdir(handle)}
            if _content(handle, found, runs_dir / run) != "ours":
                return False
            for name, status in found.items():
                if _is_ours(name, status):
                    os.unlink(name, dir_fd=handle)
        except OSError as error:
            raise storage_error("remove what is in", root / folder / run, error) from error
    with open_parent(root, f"{folder}/{run}") as parent:
        try:
            os.rmdir(run, dir_fd=parent)
        except OSError:  # it holds something of others
            return False
    return True
