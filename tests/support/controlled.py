"""A control server on a real socket, in a thread of its own, over projects in memory and a real journal."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from tests.support.supervision import MemoryRenewing, MemorySupervision

from handoffd.api.client import Client
from handoffd.api.http.limits import Limits
from handoffd.api.http.server import ControlServer, TcpDoor
from handoffd.api.ports import Desk, Try
from handoffd.api.service import Service
from handoffd.clock import SystemClock
from handoffd.journal.journal import Journal
from handoffd.journal.records import Committed, Record

_T = TypeVar("_T")
_LIMITS = Limits()


class Controlled:
    """What a test has in its hands: the socket, the projects behind it, and the journal."""

    def __init__(
        self, portal: BlockingPortal, runtime: Path, journal: Journal, supervision: MemorySupervision
    ) -> None:
        self._portal = portal
        self.runtime = runtime
        self.socket = runtime / "control.sock"
        self.runs_dir = runtime / "runs"
        self.journal = journal
        self.supervision = supervision
        self.client = Client(self.socket)
        self.stopped_with: list[bool] = []
        self.renewing = MemoryRenewing(supervision)
        self.token_file = runtime / "state" / "control.token"
        self.tcp_port: int | None = None
        """The loopback port, if there is one."""

    def run(self, work: Callable[..., Awaitable[_T]], *arguments: Any) -> _T:
        """Return what `work` returns, run where the server runs."""
        return self._portal.call(work, *arguments)

    def commit(self, record: Record) -> Committed:
        """Have something happen."""
        return self._portal.call(self.journal.commit, record)


@contextmanager
def controlled(
    supervision: MemorySupervision,
    *,
    inside: Callable[[int], bool] = lambda _: False,
    uids: frozenset[int] | None = None,
    on_stop: Callable[[], None] = lambda: None,
    tcp: bool = False,
    host: Literal["127.0.0.1", "::1"] = "127.0.0.1",
    gates: bool = False,
    state: Path | None = None,
    limits: Limits = _LIMITS,
    desk: Desk | None = None,
    try_sinks: Try | None = None,
) -> Iterator[Controlled]:
    """Lend a server that answers; it is stopped as the daemon stops it.

    `state` is a folder whose journal it goes on with. With `tcp`, on a loopback port of `host`, too;
    `gates` as in the settings; `limits` are of both. `inside` tells which processes belong to executors:
    tests may themselves be run by one. `desk` and `try_sinks` are what the notifier of a daemon is.
    """
    # Not pytest's folders: the path of a socket has room for about a hundred bytes only.
    with tempfile.TemporaryDirectory(prefix="handoffd-") as name, start_blocking_portal() as portal:
        runtime = Path(name)
        journal = portal.call(Journal.open, (state or runtime / "state") / "journal.db")
        lent = Controlled(portal, runtime, journal, supervision)

        def stop(executors: bool) -> None:
            lent.stopped_with.append(executors)
            on_stop()

        service = Service(
            supervision, journal, SystemClock(), runs_dir=lent.runs_dir, stop=stop, inside=inside,
            renewing=lent.renewing, desk=desk, try_sinks=try_sinks,
        )  # fmt: skip
        door = TcpDoor(
            host=host, port=0, token_file=lent.token_file, gates=gates, limits=limits
        )  # fmt: skip
        server = ControlServer(
            service, lent.socket, uids=uids, door=door if tcp else None, limits=limits
        )  # fmt: skip
        gone = portal.call(anyio.Event)

        async def serve() -> None:
            try:
                await server.run()
            finally:
                gone.set()

        running = portal.start_task_soon(serve)
        portal.call(server.started.wait)
        lent.tcp_port = server.tcp_port
        try:
            yield lent
        finally:
            running.cancel()
            portal.call(gone.wait)
            portal.call(journal.close)
