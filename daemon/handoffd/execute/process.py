"""The daemon's side of starting runs: the client of the launcher, and the fallback without one.

Without a service manager, the daemon replaces a launcher that does not answer or has another version with a
new one, which takes over the socket; the old one looks after its shims to their end. If no launcher can be
started, the daemon starts the shim as a detached program of its own. Whatever fails on the way, and however
many processes try, a run begins once, because its shim claims the run directory exclusively.

Under a service manager the launcher is a unit of its own. A process that the daemon starts itself belongs to
the daemon's unit: it is hardened like the daemon and ends with it. So the daemon first waits, for a limited
time, until the manager starts the launcher.

On the connection one packet is one request or one answer. Only a launcher of the same account counts, and
every wait has a limit: a launcher that hangs delays a start and never blocks the daemon.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import anyio
import structlog
from anyio import to_thread
from msgspec import Struct

import handoffd
from handoffd.errors import HandoffdError
from handoffd.execute import base
from handoffd.execute.run import Run, claimed
from handoffd.execute.runner import proc, records
from handoffd.execute.witness import Witness
from handoffd.failpoints import reached

log = structlog.get_logger(__name__)

_RUNNER = Path(__file__).resolve().parent / "runner"
_ISOLATED = ("-I", "-S", "-E", "-X", "utf8")
_PROGRAM_S = 15.0
_LOOK_AGAIN_S = 0.05


class Limits(Struct, frozen=True, kw_only=True):
    """How long a start may be delayed, in seconds."""

    hello_s: float = 2.0
    """A launcher that does not answer within this time counts as hung."""
    unit_s: float = 10.0
    """A service manager that has not started a launcher within this time will not."""


USUAL: Final = Limits()


class Launcher:
    """Starts runs through the launcher program that listens at `socket`.

    `python` must be the interpreter itself: with a wrapper such as pyenv's, a start takes ten times as long.
    With `managed`, a service manager runs the launcher and gets some time to start one of this version;
    otherwise, or after that time, the daemon starts one itself.
    """

    def __init__(
        self,
        socket: Path,
        *,
        python: str = os.path.realpath(sys.executable),
        managed: bool = False,
        limits: Limits = USUAL,
    ) -> None:
        self._socket = Path(os.path.abspath(socket))
        self._python = python
        self._managed = managed
        self._limits = limits
        self._unit_failed = False
        self._replacing = anyio.Lock()
        self.witness = Witness(self._socket)
        """Reads facts about processes that the daemon may not read."""
        self.started = False
        """Whether the daemon itself has started a launcher."""

    async def start(self, run_dir: Path, spec: base.RunSpec) -> Run:
        """Return the run of `run_dir`; starts it unless any process has started it already.

        On return the run's start, or the exit record with the reason why it could not start, is on disk.
        Raises HandoffdError if no process could be started for it.
        """
        if run := claimed(run_dir):
            return run
        prepared = _prepared(run_dir, spec)
        reached("before_spawn")
        failure = await self._launch(prepared)
        reached("after_spawn")
        if run := claimed(run_dir):
            return run
        raise _cannot_launch(failure)

    async def learn_boot(self) -> None:
        """Accept the boot id that the launcher reads as an id of this boot, beside the daemon's own.

        A container or a hardened unit may show the two processes different ids for one boot.
        """
        theirs, ours = await to_thread.run_sync(self.witness.boot_id), proc.boot_id()
        if theirs is not None and theirs != ours:
            proc.recognise_boot(theirs)
            log.info("the launcher reads another boot id", launcher=theirs, daemon=ours)

    async def retire(self) -> None:
        """Ask the launcher to stop listening and to exit after its last shim has ended."""
        connection = await self._connection()
        if connection is not None:
            with connection:
                await connection.retire()

    async def _connection(self) -> Connection | None:
        return await Connection.open(self._socket, self._limits.hello_s)

    async def _launch(self, run_dir: Path) -> str:
        """Get a shim for `run_dir`; return the failure if there is none in the end, else ""."""
        connection = await self._connection()
        answer = await _through(connection, run_dir)
        if answer is None:
            async with self._replacing:
                replacement = await self._replaced(connection.pid if connection else None)
            answer = await _through(replacement, run_dir)
        if answer is not None:
            self._unit_failed = False
        if claimed(run_dir):
            return ""
        log.warning("starting without a launcher", run=run_dir.name, answer=answer)
        return await self._program("shim.py", str(run_dir))

    async def _replaced(self, failed: int | None) -> Connection | None:
        """Return a connection to a launcher of this version that is not process `failed`."""
        found = await self._look(failed)
        if isinstance(found, Connection):
            return found
        if self._managed and not self._unit_failed:
            if successor := await self._from_its_unit(found):
                return successor
            self._unit_failed = True
        if failure := await self._program("launcher.py", str(self._socket)):
            log.warning("no launcher", socket=str(self._socket), error=failure)
            return None
        self.started = True
        return await self._connection()

    async def _from_its_unit(self, useless: int | None) -> Connection | None:
        """Return a connection to the launcher that the service manager starts, if it does so in time.

        Asks process `useless`, which has listened until now, to give up its place.
        """
        asked: set[int] = set()
        with anyio.move_on_after(self._limits.unit_s):
            while True:
                found = await self._look(useless, asked)
                if isinstance(found, Connection):
                    return found
                if found is not None and useless is not None and found != useless:
                    break  # the unit has started a launcher of another version, and would do so again
                useless = found if found is not None else useless
                await anyio.sleep(_LOOK_AGAIN_S)
        log.warning(
            "no launcher of this version from its unit; runs started from here end with the daemon",
            version=handoffd.__version__,
            hint=_status_command(),
        )
        return None

    async def _look(self, useless: int | None, asked: set[int] | None = None) -> Connection | int | None:
        """Return a connection to a launcher of this version, else the pid of the process that listens.

        Process `useless` has failed before and does not count. With `asked`, ask any other process to give up
        its place, once, and add it to `asked`.
        """
        connection = await self._connection()
        if connection is None:
            return None
        try:
            if connection.pid != useless and await connection.is_current():
                return connection
            if asked is not None and connection.pid not in asked:
                connection.tell_to_retire()
                asked.add(connection.pid)
        except BaseException:
            connection.close()
            raise
        connection.close()
        return connection.pid

    async def _program(self, name: str, argument: str) -> str:
        """Run a program that leaves a process behind and exits; return why it failed, or ""."""
        command = [self._python, *_ISOLATED, str(_RUNNER / name), argument]
        # Without the daemon's environment: other processes of the account could read it in /proc.
        env = {key: os.environ[key] for key in ("LD_LIBRARY_PATH",) if key in os.environ}
        try:
            with anyio.fail_after(_PROGRAM_S):
                done = await anyio.run_process(
                    command, stdin=subprocess.DEVNULL, check=False, env=env, start_new_session=True
                )
        except TimeoutError:
            return f"{name} was not ready within {_PROGRAM_S:.0f} s"
        except OSError as error:
            if error.errno in {errno.EMFILE, errno.ENFILE}:
                raise  # the daemon is out of descriptors; the program is not at fault
            return f"{self._python}: {error.strerror}"
        printed = done.stderr.decode("utf-8", "replace").strip()
        return "" if done.returncode == 0 else printed or f"{name} ended with {done.returncode}"


async def _through(connection: Connection | None, run_dir: Path) -> str | None:
    """Return a launcher's answer to the request to run `run_dir`; None if it did not take the request."""
    if connection is None:
        return None
    with connection:
        return await connection.run(run_dir)


def _prepared(run_dir: Path, spec: base.RunSpec) -> Path:
    """Return the absolute path of the run directory, which now holds `spec`."""
    absolute = Path(os.path.abspath(run_dir))
    try:
        absolute.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Needs no sync: a power cut ends the run, and nothing reads the specification of an ended one.
        records.write(str(absolute), base.SPEC, spec.to_json(), durable=False)
    except OSError as error:
        raise _cannot_launch(f"{run_dir}: {error.strerror}") from error
    return absolute


def _status_command() -> str:
    """Return the command that shows the status of the launcher's unit."""
    # The machine's service manager is process 1; a user's own is any other.
    if os.getppid() == 1:
        return "systemctl status 'handoffd-launcher@*'"
    return "systemctl --user status handoffd-launcher"


def _cannot_launch(reason: str) -> HandoffdError:
    return HandoffdError(
        f"no process could be started for the run: {reason or 'its shim ended at once'}",
        hint="handoffd config show",  # where the state and runtime directories are
        code="CANNOT_LAUNCH",
    )


# --- the connection ----------------------------------------------------------------------------------
_ANSWER_S = 15.0
_CROWDED_S = 0.01
_PACKET_BYTES = 8192
_CREDENTIALS = struct.Struct("3i")


class Connection:
    """An open connection; a context manager that closes it."""

    def __init__(self, connection: socket.socket, pid: int, patience_s: float) -> None:
        self._socket = connection
        self._patience_s = patience_s
        self.pid = pid
        """The listening process, according to the kernel; so even a hung one has a known pid."""

    @classmethod
    async def open(cls, path: Path, patience_s: float) -> Self | None:
        """Return a connection to the process at `path`; None if no process of this account listens there.

        A process that does not answer within `patience_s` seconds counts as hung. The socket of a killed
        launcher stays open for a moment in a shim that it had just forked; that does not count either.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            with anyio.fail_after(patience_s):
                await _connect(connection, path)
            raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            pid, user, _ = _CREDENTIALS.unpack(raw)
            if user == os.geteuid() and proc.is_alive(pid):
                return cls(connection, pid, patience_s)
        except (OSError, TimeoutError):
            log.debug("no launcher answers", socket=str(path))
        except BaseException:
            connection.close()
            raise
        connection.close()
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    async def is_current(self) -> bool:
        """Return whether a launcher of this version answers in time."""
        answer = await self._ask(b"hello")
        return (answer or "").split()[:2] == ["handoffd", handoffd.__version__]

    async def run(self, run_dir: Path) -> str | None:
        """Ask the launcher to run `run_dir`; None if it did not take the request (hung, other version).

        Otherwise return its answer, after the run's start or failure is on disk; empty without one in time.
        """
        request = b"run %s %s" % (handoffd.__version__.encode(), os.fsencode(run_dir))
        taken = await self._ask(request)
        if taken != "accepted":
            return taken if taken is not None and taken.startswith("error ") else None
        return await self._answer(_ANSWER_S) or ""

    async def retire(self) -> None:
        """Ask the launcher to give up its place; its runs continue."""
        await self._ask(b"retire")

    def tell_to_retire(self) -> None:
        """Ask without waiting for an answer: a launcher that hangs may read it later."""
        self._send(b"retire")

    def _send(self, request: bytes) -> bool:
        try:
            # A packet goes whole or not at all; only a launcher that does not read has a full buffer.
            self._socket.send(request)
        except OSError as error:
            log.debug("launcher did not take a request", error=error.strerror)
            return False
        return True

    async def _ask(self, request: bytes) -> str | None:
        """Return the answer to `request`; None without one in time."""
        return await self._answer(self._patience_s) if self._send(request) else None

    async def _answer(self, within_s: float) -> str | None:
        try:
            with anyio.fail_after(within_s):
                packet = await asyncio.get_running_loop().sock_recv(self._socket, _PACKET_BYTES)
        except (OSError, TimeoutError):
            return None
        return packet.decode("utf-8", "replace") or None


async def _connect(connection: socket.socket, path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Through the descriptor, because a socket's address has room for 107 bytes only.
        address = f"/proc/self/fd/{folder}/{path.name}"
        while True:
            try:
                return connection.connect(address)
            except BlockingIOError:  # the backlog is full, and no event reports when it has room again
                await anyio.sleep(_CROWDED_S)
    finally:
        os.close(folder)
