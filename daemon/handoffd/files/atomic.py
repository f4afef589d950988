"""Replacing a file whole or not at all, and the digest by which its texts are told apart.

A reader sees the old text or the new one, also after a power cut. The target's folder is held open
and everything is done relative to it, so that nobody can swap the folder for a symlink between two
calls; a target that is no regular file is refused, never followed.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from handoffd.failpoints import reached
from handoffd.files.errors import storage_error, unsafe_file

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp", re.DOTALL)
_NEW_MODE = 0o666  # before the umask, as for any file a person creates

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def replace_text(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Replace the file at `path` by `content` (text as UTF-8), keeping its mode; create it if missing.

    With `durable`, it survives a power cut after return. Raises StoreError when the folder or the
    target is a symlink or no regular file, or when the disk fails; the old file then is as it was.
    """
    try:
        folder = os.open(path.parent, FOLDER_FLAGS)
    except OSError as error:
        if path.parent.is_symlink():
            raise unsafe_file(path, "its folder is a symbolic link") from error
        raise storage_error("write", path, error) from error
    try:
        replace_at(folder, path, content, durable=durable)
    finally:
        os.close(folder)


def replace_at(
    folder: int,
    path: Path,
    content: str | bytes,
    *,
    durable: bool = True,
    known: Callable[[], bool] | None = None,
) -> bool:
    """Do what `replace_text` does, in the folder that is open as `folder`; `path` is for messages.

    `known` is asked last of all, when only the rename is missing, whether the file that is there may go.
    Returns False when it may not, and nothing was replaced.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    temporary = f".{path.name}.{secrets.token_hex(8)}.tmp"
    try:
        mode = _mode_of(folder, path)
        try:
            _write(folder, temporary, data, mode, durable)
            reached("before_rename", path.name)
            if known is not None and not known():
                os.unlink(temporary, dir_fd=folder)
                return False
            os.rename(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            reached("after_rename", path.name)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        if durable:
            os.fsync(folder)  # the rename itself must reach the disk
    except OSError as error:
        raise storage_error("write", path, error) from error
    return True


def digest_of(content: str | bytes) -> str:
    """Return the SHA-256 of `content` (text as UTF-8), in 64 hexadecimal digits."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()


def sweep_temporaries(folder: Path) -> tuple[str, ...]:
    """Remove what our own crashed writes left in `folder`, and return the names.

    Call it while holding the project's lock: a write under way would lose its file. A folder that
    is missing or unreadable holds nothing for us to remove.
    """
    removed = []
    try:
        handle = os.open(folder, FOLDER_FLAGS)
    except OSError:
        return ()
    try:
        for name in os.listdir(handle):
            if _TEMPORARY.fullmatch(name) and _is_regular(handle, name):
                with suppress(OSError):
                    os.unlink(name, dir_fd=handle)
                    removed.append(name)
    finally:
        os.close(handle)
    return tuple(removed)


def has_temporaries(folder: Path) -> bool:
    """Return whether `sweep_temporaries` may find something in `folder`; needs no lock."""
    try:
        return any(_TEMPORARY.fullmatch(name) for name in os.listdir(folder))
    except OSError:
        return False


def _mode_of(folder: int, path: Path) -> int | None:
    """Return the permissions of the file to be replaced; None when there is none."""
    try:
        mode = os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(mode):
        raise unsafe_file(path, "it is a symbolic link")
    if not stat.S_ISREG(mode):
        raise unsafe_file(path, "it is no regular file")
    return stat.S_IMODE(mode) & 0o777


def _write(folder: int, name: str, data: bytes, mode: int | None, durable: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(name, flags, _NEW_MODE if mode is None else mode, dir_fd=folder)
    try:
        if mode is not None:
            os.fchmod(handle, mode)  # whatever the umask took away
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(handle, rest) :]
        if durable:
            os.fsync(handle)
    finally:
        os.close(handle)


def _is_regular(folder: int, name: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False
