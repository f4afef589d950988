"""A person at a terminal: a command on a pseudo-terminal, and keys hit when it asks for them."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psutil
from tests.support.children import ending
from tests.support.eventually import eventually_sync

_MOST = 65536


class Terminal:
    """A command that runs on a terminal of its own."""

    def __init__(self, handle: int, process: subprocess.Popen[bytes]) -> None:
        self._handle = handle
        self._process = process
        self.shown = ""
        """All that it has printed."""
        self._seen = 0

    def wait_for(self, text: str) -> None:
        """Wait until it has printed a text since the last one that was waited for."""
        while text not in self.shown[self._seen :]:
            self.shown += self._read()
        self._seen = self.shown.index(text, self._seen) + len(text)

    def type(self, text: str) -> None:
        """Type a text."""
        os.write(self._handle, text.encode())

    def answer(self, question: str, text: str) -> None:
        """Wait for a question, and type the answer."""
        self.wait_for(question)
        self.type(text)

    def interrupt(self) -> None:
        """Do what Ctrl-C does, once it reads: a signal just before that would wait for the next line."""
        process = psutil.Process(self._process.pid)
        eventually_sync(lambda: process.status() == psutil.STATUS_SLEEPING)
        self._process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Wait for its end; return its exit code."""
        try:
            while True:
                self.shown += self._read()
        except EOFError:
            return self._process.wait(60)

    def _read(self) -> str:
        try:
            data = os.read(self._handle, _MOST)
        except OSError:  # its end closes the terminal
            data = b""
        if not data:
            raise EOFError(self.shown)
        return data.decode("utf-8", "replace").replace("\r\n", "\n")


@contextmanager
def at_terminal(*words: str, env: Mapping[str, str]) -> Iterator[Terminal]:
    """Run `python -m handoffd` on a terminal until the context ends; its pager is `cat`, or as in `env`."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "handoffd", *words]
    environment = {"PAGER": "cat", **env, "TERM": "xterm"}
    try:
        with ending(
            subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
        ) as process:
            os.close(theirs)
            yield Terminal(ours, process)
    finally:
        os.close(ours)
