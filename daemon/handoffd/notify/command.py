"""A program that tells a person: gets the notice as JSON on its standard input.

It is started without a shell, in `/` (never in a project, whose files it might pick up), in its own
session, with the few environment variables that desktop and mail programs need. Both ends of it
are files: nothing it leaves behind can hold a pipe open, and a notice is read whether or not
it reads. When it has ended, or its time is up, its process group is killed while the dead leader
still holds the group's number, so that no other group can be hit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from typing import IO

import anyio
import anyio.to_thread

from handoffd.notify.notice import Notice
from handoffd.notify.sink import Undelivered
from handoffd.settings_notify import Forms

ID_VARIABLE = "HANDOFFD_NOTICE_ID"
"""Names the notice for programs that do not read JSON; the same when it is sent again."""
_TAIL_BYTES = 2048
_REAP_S = 5.0
_ENVIRONMENT = (
    "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "TZ",
    "USER", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR",
)  # fmt: skip


def known_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return of an environment what programs get that tell people."""
    return {name: environ[name] for name in _ENVIRONMENT if name in environ}


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
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output:
            given.write(notice.as_json().encode("utf-8", "replace") + b"\n")
            given.seek(0)
            code = await self._run(notice.id, given, output)
            if code == 0:
                return
            if code is None:
                ending = f"ended by us after {self._timeout_s:g} s"
            else:
                ending = f"exit code {code}" if code > 0 else f"signal {-code}"
            raise Undelivered(f"{self._argv[0]}: {ending}{_tail(output)}")

    def close(self) -> None:
        """Hold nothing."""

    async def _run(self, notice: str, given: IO[bytes], output: IO[bytes]) -> int | None:
        """Return the exit code, negative for a signal; None if the time was up."""
        # Not abandoned when cancelled: a process that was started must be ended.
        process = await anyio.to_thread.run_sync(self._start, notice, given, output)
        pidfd = _pidfd(process)
        ended = False
        try:
            with anyio.move_on_after(self._timeout_s):
                await anyio.wait_readable(pidfd)
                ended = True
        finally:
            _kill_group(process.pid)
            with anyio.move_on_after(_REAP_S, shield=True):
                await anyio.wait_readable(pidfd)
            os.close(pidfd)
            code = process.poll()
        return code if ended else None

    def _start(self, notice: str, given: IO[bytes], output: IO[bytes]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._argv, stdin=given, stdout=output, stderr=subprocess.STDOUT, cwd="/",
                env={**self._environment, ID_VARIABLE: notice}, start_new_session=True,
            )  # fmt: skip
        except OSError as error:  # a program may be installed, or a path mended, while notices wait
            raise Undelivered(f"{self._argv[0]} cannot be started: {error.strerror}") from error


def _pidfd(process: subprocess.Popen[bytes]) -> int:
    try:
        return os.pidfd_open(process.pid)
    except OSError:
        _kill_group(process.pid)
        process.wait()
        raise


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def _tail(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _TAIL_BYTES))
    text = output.read(_TAIL_BYTES).decode("utf-8", "replace").strip()
    return f", after writing: {text}" if text else ""
