"""The more than a hundred services of apprise, through a worker process beside the daemon.

apprise is never imported here: it is slow, blocks, and some of its services hang. The parts of an address are
secret. A notice that some of several addresses have taken is sent again only to the others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

import anyio
import anyio.to_thread

from handoffd.engine.notice import Notice, headline, message
from handoffd.notify import apprise_worker
from handoffd.notify.command import kill_group, known_environment
from handoffd.notify.ports import Undelivered
from handoffd.settings.notify import AppriseSettings

ARGV: Final = (sys.executable, "-I", str(Path(apprise_worker.__file__).resolve()))
FIRST_S: Final = 15.0
"""Extra seconds for the first request: apprise reads its hundred plug-ins."""

_KINDS: Final[Mapping[str, str]] = {
    "needs_human": "warning", "timeout": "failure", "blocked": "failure", "done": "success",
    "warning": "warning", "reminder": "warning", "escalation": "failure", "report": "info",
}  # fmt: skip
_REMEMBERED = 200
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE")


class AppriseSink:
    """Sends the notice in words to each address."""

    def __init__(
        self,
        settings: AppriseSettings,
        environ: Mapping[str, str],
        name: str = "apprise",
        worker: Worker | None = None,
    ) -> None:
        self.name = name
        self._settings = settings
        proxies = {key: environ[key] for key in _PROXIES if key in environ}
        self._worker = worker or Worker(ARGV, {**known_environment(environ), **proxies})
        self._taken: OrderedDict[str, set[str]] = OrderedDict()
        """By id, the marks of the addresses that have taken a notice which others have not."""

    async def deliver(self, notice: Notice) -> None:
        """Have the notice sent; raises Undelivered unless every address took it."""
        request = {
            **await anyio.to_thread.run_sync(self._addresses),
            "title": headline(notice),
            "body": message(notice),
            "kind": _KINDS.get(notice.kind, "info"),
            "skip": sorted(self._taken.get(notice.id, ())),
        }
        self._judge(notice.id, await self._ask(request))

    async def check(self) -> list[str]:
        """Return what is wrong with the addresses; sends nothing. Raises Undelivered if the worker fails."""
        found = await self._ask({**await anyio.to_thread.run_sync(self._addresses), "check": True})
        return [_unusable(one) for one in found["unusable"]]

    def close(self) -> None:
        """End the worker; there is a new one when it is needed."""
        self._worker.close()

    async def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        fresh = not self._worker.running
        try:
            answer = await self._worker.ask(request, self._settings.timeout_s + (FIRST_S if fresh else 0))
        except WorkerFailed as failure:
            raise Undelivered(f"the worker of apprise failed: {failure}") from failure
        if "error" in answer:
            raise Undelivered(str(answer["error"]))
        return answer

    def _addresses(self) -> dict[str, Any]:
        settings = self._settings
        if settings.config_file is not None:
            if not settings.config_file.is_file():
                raise Undelivered(f"{settings.config_file} is not a file")
            return {"config": str(settings.config_file), "tags": list(settings.tags)}
        return {"urls": settings.addresses()}

    def _judge(self, notice: str, answer: Mapping[str, Any]) -> None:
        failures = [*(str(one["why"]) for one in answer["failed"]), *map(_unusable, answer["unusable"])]
        if not failures:
            self._taken.pop(notice, None)
            return
        self._taken.setdefault(notice, set()).update(answer["taken"])
        while len(self._taken) > _REMEMBERED:
            self._taken.popitem(last=False)
        raise Undelivered("; ".join(failures))


def _unusable(one: Mapping[str, Any]) -> str:
    return f"address {one['number']}: {one['why']}"


# --- the process that apprise runs in ----------------------------------------------------------------
MOST_BYTES = 64 * 1024
"""Of one answer."""


class WorkerFailed(Exception):
    """There is no answer; the text says why, and holds nothing secret."""


class Worker:
    """A child that answers one line of JSON with another, started when it is needed; one request at a time.

    Requests may hold secrets, so they go over a pipe and nowhere else; what it prints besides its answers
    is lost. When it does not answer in time, or answers nonsense, its whole process group is killed, and
    the next request starts another one. It ends by itself when its input ends: however the daemon dies.
    """

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self._argv = tuple(argv)
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._turn = anyio.Lock()

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    async def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Return the answer to a request. Raises WorkerFailed when there is none in time."""
        async with self._turn:
            answered = False
            try:
                with anyio.move_on_after(timeout_s):
                    answer = await self._exchange(json.dumps(request).encode() + b"\n")
                    answered = True
                    return answer
            finally:
                if not answered:  # also when cancelled: the result is not needed any more
                    self._end()
            raise WorkerFailed(f"it did not answer within {timeout_s:g} s, and was ended")

    def close(self) -> None:
        """End the process, if there is one, unless it works just now."""
        if not self._turn.locked():
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        os.close(self._pidfd)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
        # Not reaped before its group is gone: until then its number cannot be another's.
        if process.returncode is None:
            kill_group(process.pid)
        threading.Thread(target=process.wait, name="reap a worker", daemon=True).start()

    async def _exchange(self, line: bytes) -> dict[str, Any]:
        if self._process is None:
            self._process = await anyio.to_thread.run_sync(self._start)
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            await _write(process.stdin, line)
            answer = await self._read_line(process.stdout)
        except BrokenPipeError:
            answer = b""
        if not answer:
            ending = await anyio.to_thread.run_sync(_ending, process)
            raise WorkerFailed(f"it ended without an answer{ending}")
        return _decoded(answer)

    async def _read_line(self, pipe: IO[bytes]) -> bytes:
        """Return the next line, or what there was of it when the process ended or it became too long."""
        line = b""
        while not line.endswith(b"\n") and len(line) <= MOST_BYTES:
            # What it has started may hold the pipe open: that it has ended must be seen by itself.
            ended = await _first_readable(self._pidfd, pipe.fileno()) == self._pidfd
            try:
                piece = os.read(pipe.fileno(), MOST_BYTES)
            except BlockingIOError:
                piece = b""
            if not piece and ended:
                break
            line += piece
        return line

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            process = subprocess.Popen(
                self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                cwd="/", env=self._environment, start_new_session=True, bufsize=0,
            )  # fmt: skip
        except OSError as error:
            raise WorkerFailed(f"{self._argv[0]} cannot be started: {error.strerror}") from error
        self._pidfd = os.pidfd_open(process.pid)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
        return process


async def _write(pipe: IO[bytes], line: bytes) -> None:
    while line:
        await anyio.wait_writable(pipe.fileno())
        try:
            line = line[os.write(pipe.fileno(), line) :]
        except BlockingIOError:
            continue


async def _first_readable(*numbers: int) -> int:
    """Return the first of these descriptors that has something to read, or has ended."""
    first: list[int] = []

    async def watch(number: int) -> None:
        await anyio.wait_readable(number)
        first.append(number)
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for number in numbers:
            tasks.start_soon(watch, number)
    return min(first, key=numbers.index)


def _decoded(answer: bytes) -> dict[str, Any]:
    if not answer.endswith(b"\n"):
        raise WorkerFailed("it answered too much, or broke off")
    try:
        found = json.loads(answer)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise WorkerFailed("it answered nonsense")
    return found


def _ending(process: subprocess.Popen[bytes]) -> str:
    """Return how a process has ended whose output has; one that lives on is ended. Blocks a moment."""
    kill_group(process.pid)
    code = process.wait()
    return f" (exit code {code})" if code >= 0 else f" (signal {-code})"
