"""What `handoffd service` has on the disk: found, compared, written and removed.

Only files that carry our mark are touched, and no link is followed: it is somebody's decision.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from shlex import quote

from handoffd.cli import unitfiles
from handoffd.cli.service_scope import Scope
from handoffd.errors import Refused


def differs(file: unitfiles.UnitFile) -> bool:
    """Return whether `file` must be written; Refused when somebody else's file is in its place."""
    if not file.path.exists() and not file.path.is_symlink():
        return True
    if not is_ours(file.path):
        raise Refused(
            f"{file.path} was not written by handoffd and is left alone",
            hint=f"mv {quote(str(file.path))} {quote(str(file.path))}.before  # then install again",
        )
    return file.path.read_text(encoding="utf-8") != file.text


def is_ours(path: Path) -> bool:
    """Return whether a file carries our mark."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        return unitfiles.MARK == file.readline(200).rstrip("\n")


def write(scope: Scope, files: Iterable[unitfiles.UnitFile]) -> None:
    """Put files into their places, each whole; Refused where that is not allowed."""
    try:
        for file in files:
            file.path.parent.mkdir(parents=True, exist_ok=True)
            temporary = file.path.with_name(f".{file.path.name}.new")
            temporary.write_text(file.text, encoding="utf-8")
            temporary.chmod(0o644)
            temporary.replace(file.path)
    except OSError as error:
        hint = _as_root(scope, "install")
        raise Refused(f"{scope.folder} cannot be written: {error.strerror}", hint=hint) from error


def remove(scope: Scope, paths: Iterable[Path]) -> None:
    """Remove files, and the folders that are empty without them; Refused where that is not allowed."""
    try:
        for path in paths:
            path.unlink(missing_ok=True)
            if path.parent != scope.folder:
                _remove_empty(path.parent)
    except OSError as error:
        hint = _as_root(scope, "uninstall")
        raise Refused(f"{scope.folder} cannot be changed: {error.strerror}", hint=hint) from error
    if scope.account is None:  # ~/.config/systemd/user, which `install` may have made
        for folder in (scope.folder, *scope.folder.parents[:2]):
            _remove_empty(folder)


def remove_sockets(scope: Scope) -> None:
    """Remove the sockets at which nobody listens, and their folder with the last of them.

    An account's is in one of all accounts, which goes with the last of those.
    """
    folder = scope.runtime
    for name in ("control.sock", "launcher.sock"):
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
            with socket.socket(socket.AF_UNIX, kind) as caller, suppress(OSError):
                try:
                    caller.connect(str(folder / name))
                except ConnectionRefusedError:
                    (folder / name).unlink()
    _remove_empty(folder)
    if scope.account is not None:
        _remove_empty(folder.parent)


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return  # there is something else in it


def _as_root(scope: Scope, verb: str) -> str:
    """Return the verb for whoever may write there; a folder of one's own is looked at first."""
    if scope.account is None:
        return f"ls -ld {quote(str(scope.folder))}"
    return f"sudo {scope.command(verb)}"
