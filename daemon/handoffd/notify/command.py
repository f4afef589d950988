"""The sink that runs a program: it gets the notice as JSON on its standard input.

It is started without a shell, in `/` (never in a project, whose files it might pick up), in its own
session, with the few environment variables that desktop and mail programs need. It gets the notice as a file
in memory, so the daemon need not wait until it reads. Only the end of its output is kept: a program
that floods fills neither disk nor memory. When the program has ended, even if a child holds its output open,
or when its time is up, its process group is killed while the dead leader still holds the group's number, so
no other group can be hit.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from typing import IO

import anyio
import anyio.to_thread

from handoffd.engine.notice import Notice
from handoffd.notify.ports import Undelivered
from handoffd.settings.notify import Forms

ID_VARIABLE = "HANDOFFD_NOTICE_ID"
"""Names the notice for programs that do not read JSON; the same when it is sent again."""
_TAIL_BYTES = 2048
_PIECE_BYTES = 64 * 1024
_BREATH_S = 0.01
"""Between two pieces: a flood is slowed down, and the daemon is not."""
_REAP_S = 5.0
_ENVIRONMENT = (
    "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "TZ",
    "USER", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR",
)  # fmt: skip


_CHILD = "HANDOFFD_CHILD"
"""Marks programs that the daemon starts: verbs are refused to them."""


def known_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an environment that notification programs get."""
    return {name: environ[name] for name in _ENVIRONMENT if name in environ} | {_CHILD: "1"}


class CommandSink:
    """Runs the configured program once for each notice."""

    def __init__(self, settings: Forms, environ: Mapping[str, str], name: str = "command") -> None:
        assert settings.command
        self.name = name
        self._argv = settings.command
        self._timeout_s = settings.command_timeout_s
        self._environment = known_environment(environ)

    async def deliver(self, notice: Notice) -> None:
        """Run the program and wait for it; exit code 0 is a delivery, anything else Undelivered."""
        # Not abandoned when cancelled: a process that was started must be ended.
        process, output = await anyio.to_thread.run_sync(self._start, notice)
        try:
            code = await self._until_it_ends(process, output)
        finally:
            output.close()
        if code == 0:
            return
        if code is None:
            ending = f"ended by us after {self._timeout_s:g} s"
        else:
            ending = f"exit code {code}" if code > 0 else f"signal {-code}"
        raise Undelivered(f"{self._argv[0]}: {ending}{output.told}")

    def close(self) -> None:
        """Do nothing: a program has no connection to close."""

    async def _until_it_ends(self, process: subprocess.Popen[bytes], output: _Output) -> int | None:
        """Return the exit code, negative for a signal; None if the time was up."""
        pidfd = _pidfd(process)
        ended = False
        try:
            with anyio.move_on_after(self._timeout_s):
                async with anyio.create_task_group() as reading:
                    reading.start_soon(output.follow)
                    await anyio.wait_readable(pidfd)
                    reading.cancel_scope.cancel()
                ended = True
        finally:
            kill_group(process.pid)
            with anyio.move_on_after(_REAP_S, shield=True):
                await anyio.wait_readable(pidfd)
            os.close(pidfd)
            code = process.poll()
        return code if ended else None

    def _start(self, notice: Notice) -> tuple[subprocess.Popen[bytes], _Output]:
        try:
            with _in_memory(notice.as_json().encode("utf-8", "replace") + b"\n") as given:
                return self._started(notice.id, given)
        except OSError as error:  # the user may install the program or correct the path meanwhile
            raise Undelivered(f"{self._argv[0]} cannot be started: {error.strerror}") from error

    def _started(self, notice: str, given: IO[bytes]) -> tuple[subprocess.Popen[bytes], _Output]:
        readable, writable = os.pipe()
        try:
            process = subprocess.Popen(
                self._argv, stdin=given, stdout=writable, stderr=subprocess.STDOUT, cwd="/",
                env={**self._environment, ID_VARIABLE: notice}, start_new_session=True,
            )  # fmt: skip
        except BaseException:
            os.close(readable)
            raise
        finally:
            os.close(writable)
        return process, _Output(readable)


class _Output:
    """The end of what a program prints, read from a pipe as it comes."""

    def __init__(self, number: int) -> None:
        os.set_blocking(number, False)
        self._number = number
        self._tail = b""

    @property
    def told(self) -> str:
        """The text for the error message, after how the program ended."""
        text = self._tail.decode("utf-8", "replace").strip()
        return f", after writing: {text}" if text else ""

    async def follow(self) -> None:
        """Read until all writers have closed the pipe, or until cancelled."""
        while self._read() != 0:
            await anyio.sleep(_BREATH_S)
            await anyio.wait_readable(self._number)

    def close(self) -> None:
        """Take what is there, a pipe's content at most, and let go."""
        self._read()
        os.close(self._number)

    def _read(self) -> int | None:
        """Return how much there was; None: nothing yet."""
        try:
            piece = os.read(self._number, _PIECE_BYTES)
        except BlockingIOError:
            return None
        self._tail = (self._tail + piece)[-_TAIL_BYTES:]
        return len(piece)


def _in_memory(text: bytes) -> IO[bytes]:
    file = open(os.memfd_create("notice"), "w+b")  # noqa: SIM115  (the caller closes it)
    file.write(text)
    file.seek(0)
    return file


def _pidfd(process: subprocess.Popen[bytes]) -> int:
    try:
        return os.pidfd_open(process.pid)
    except OSError:
        kill_group(process.pid)
        process.wait()
        raise


def kill_group(group: int) -> None:
    """End every process of a group; harmless when there is none any more."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
