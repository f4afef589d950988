"""The launcher's socket at a path, and whether the path still leads to it.

A new launcher takes the place of an old one by renaming its socket over the old one's, and then tells the old
one to retire, so there is a launcher at every moment. An old one that misses the message notices by itself.
The name is never unlinked: between the check and the unlink it could have become another launcher's. Without
a listener, the kernel refuses callers at once.
"""

from __future__ import annotations

import os
import socket
import struct

from handoffd.execute.runner import proc

_BACKLOG = 128
_CREDENTIALS = struct.Struct("3i")


class Unusable(Exception):
    """The socket cannot be created; the text is the reason."""


class Listener:
    """The socket at a path, as long as the path leads to it."""

    def __init__(self, path: str) -> None:
        """Listen at `path`, taking it over from an earlier launcher; raises Unusable."""
        self._path = path
        try:
            folder = _private_folder(os.path.dirname(path))
            try:
                with _predecessor(folder, os.path.basename(path)) as predecessor:
                    self._socket = _bind(folder, os.path.basename(path))
                    self._inode = os.stat(path).st_ino
                    _retire(predecessor)
            finally:
                os.close(folder)
        except OSError as error:
            raise Unusable(f"cannot listen at {path}: {error.strerror}") from error

    def fileno(self) -> int:
        """Return the descriptor that is readable when a client connects."""
        return self._socket.fileno()

    def accept(self) -> socket.socket | None:
        """Return the next connection; None if it is gone again or belongs to another account."""
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return None  # the client has disconnected again
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(raw)[1] != os.geteuid():
            connection.close()
            return None
        connection.setblocking(False)
        return connection

    def is_ours(self) -> bool:
        """Return whether the path still leads to this socket."""
        try:
            return os.stat(self._path).st_ino == self._inode
        except OSError:
            return False

    def close(self) -> None:
        """Close the socket: the kernel refuses clients from now on."""
        self._socket.close()


def _predecessor(folder: int, name: str) -> socket.socket:
    """Return a socket connected to the launcher at `name`; unconnected if none accepts."""
    caller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    try:
        caller.connect(f"/proc/self/fd/{folder}/{name}")
    except OSError:
        return caller  # no launcher, or a busy or hung one, which will notice by itself
    return caller


def _retire(predecessor: socket.socket) -> None:
    try:
        predecessor.send(b"retire")
    except OSError:
        return  # no launcher was connected


def _bind(folder: int, name: str) -> socket.socket:
    """Return a socket that listens at `name`, replacing any earlier one; raises OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    beside = f".{name}.{os.getpid()}"
    try:
        _sweep(folder, name)
        # Through the descriptor, because a socket's address has room for 107 bytes only.
        umask = os.umask(0o177)
        try:
            listener.bind(f"/proc/self/fd/{folder}/{beside}")
        finally:
            os.umask(umask)
        listener.listen(_BACKLOG)
        os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        listener.close()
        _unlink(beside, folder)
        raise
    return listener


def _sweep(folder: int, name: str) -> None:
    """Remove temporary sockets of launchers that died before the rename."""
    begins = f".{name}."
    for left in os.listdir(folder):
        pid = left.removeprefix(begins)
        if not left.startswith(begins) or not pid.isdecimal():
            continue
        if int(pid) == os.getpid() or not proc.is_alive(int(pid)):  # a dead launcher may have had our pid
            _unlink(left, folder)


def _unlink(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return


def _private_folder(path: str) -> int:
    """Return a descriptor of the folder `path`, created if missing, private; raises Unusable."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    seen = os.fstat(folder)
    if seen.st_uid != os.geteuid() or seen.st_mode & 0o022:
        os.close(folder)
        raise Unusable(f"{path} must belong to this account and be writable by it alone (chmod 700)")
    return folder
