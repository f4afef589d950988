"""Files inside a project's root, reached without ever leaving it.

An agent or a stranger decides what lies under a root: symlinks to elsewhere, pipes that block
their reader, files without end. So every path is walked folder by folder from the root, each
opened relative to the one before and never through a symlink, and only regular files are read.
The root itself was named by a person and may be reached through symlinks.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath

from handoffd.errors import StoreError
from handoffd.store.atomic import FOLDER_FLAGS
from handoffd.store.faults import PROJECT_GONE, storage_error, unsafe_file

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # a pipe must not block us
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

# What the kernel says to O_NOFOLLOW on a symlink, to a path through a file, to a socket or a pipe
# without a reader, and to opening a folder for writing.
_NOT_REGULAR = frozenset({errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EISDIR})


@contextmanager
def open_parent(root: Path, relative: str, *, create: bool = False) -> Iterator[int | None]:
    """Yield a descriptor of the folder that holds `relative`, or None when that folder is missing.

    With `create`, missing folders are made. Raises StoreError when `relative` is absolute or climbs
    (`..`), when a folder on the way is a symlink, or when the root is gone (PROJECT_GONE).
    """
    *folders, _ = parts_of(root, relative)
    handle = _open_root(root)
    try:
        for depth in range(1, len(folders) + 1):
            below = _step_into(handle, (root, *folders[:depth]), create=create)
            if below is None:
                yield None
                return
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


@contextmanager
def open_file(root: Path, relative: str, *, append: bool = False) -> Iterator[int | None]:
    """Yield a descriptor of the regular file at `relative`, or None when it is missing.

    With `append`, it is created when missing, and so are its folders. Raises StoreError when it is
    anything but a regular file.
    """
    with open_parent(root, relative, create=append) as folder:
        flags = _APPEND if append else _READ
        handle = None if folder is None else _open_regular(folder, (root, relative), flags)
        try:
            yield handle
        finally:
            if handle is not None:
                os.close(handle)


def parts_of(root: Path, relative: str) -> tuple[str, ...]:
    """Return the names `relative` consists of; StoreError when it is empty or leaves the root."""
    parts = _parts_inside(relative)
    if parts is None:
        raise unsafe_file(root / relative.replace("\0", "?"), "the path leaves the project")
    return parts


@lru_cache(maxsize=256)  # the same few names, again and again
def _parts_inside(relative: str) -> tuple[str, ...] | None:
    pure = PurePosixPath(relative)
    if pure.is_absolute() or not pure.parts or ".." in pure.parts or "\0" in relative:
        return None
    return pure.parts


def _open_root(root: Path) -> int:
    try:
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        hint = f"mount it or move it back; or: handoffd remove {root}"
        raise StoreError(f"the project {root} is gone", code=PROJECT_GONE, hint=hint) from error
    except OSError as error:
        raise storage_error("open the project", root, error) from error


def _step_into(folder: int, place: tuple[Path | str, ...], *, create: bool) -> int | None:
    """Return a descriptor of the last of `place`, whose own folder is open as `folder`."""
    name = str(place[-1])
    try:
        try:
            return os.open(name, FOLDER_FLAGS, dir_fd=folder)
        except FileNotFoundError:
            if not create:
                return None
            _make_folder(folder, name)
            return os.open(name, FOLDER_FLAGS, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in _NOT_REGULAR:
            raise unsafe_file(Path(*place), "it is a symbolic link, or no folder") from error
        raise storage_error("open", Path(*place), error) from error


def _make_folder(folder: int, name: str) -> None:
    with suppress(FileExistsError):  # somebody was quicker
        os.mkdir(name, dir_fd=folder)
        os.fsync(folder)


def _open_regular(folder: int, place: tuple[Path, str], flags: int) -> int | None:
    """Return a descriptor of the file at `place`, a root and a path below it; `folder` is the file's own."""
    root, relative = place
    try:
        handle = os.open(parts_of(root, relative)[-1], flags, 0o666, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in _NOT_REGULAR:
            raise unsafe_file(root / relative, "it is a symbolic link, or no regular file") from error
        raise storage_error("open", root / relative, error) from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise unsafe_file(root / relative, "it is no regular file")
    return handle
