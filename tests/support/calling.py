"""A client that calls at a Unix socket without a pause, while what listens there is started and ended."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Caller:
    """The results of calls: inodes of sockets that accepted one, and of sockets that refused one."""

    def __init__(self) -> None:
        self.taken: set[int] = set()
        self.refused: set[int] = set()


@contextmanager
def calling(path: Path, kind: socket.SocketKind = socket.SOCK_STREAM) -> Iterator[Caller]:
    """Lend a caller that connects at `path` until the context ends."""
    caller, over = Caller(), threading.Event()

    def call() -> None:
        while not over.is_set():
            try:
                # Before the call: a name that is given away meanwhile leads to a later socket only.
                inode = os.stat(path).st_ino
            except FileNotFoundError:
                continue
            with socket.socket(socket.AF_UNIX, kind) as connection:
                try:
                    connection.connect(os.fspath(path))
                except ConnectionRefusedError:
                    caller.refused.add(inode)
                except FileNotFoundError:
                    continue
                else:
                    caller.taken.add(inode)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield caller
    finally:
        over.set()
        thread.join()
