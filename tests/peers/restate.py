"""restate as an engine: its server from npm, and a service written with its Python SDK."""

from __future__ import annotations

import contextlib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.peers.engine import START_LIMIT_S, Engine, Running, Scripted, Work, script_of, server, until_up
from tests.peers.installing import installed, pinned
from tests.support.loopback import free_port

_PROGRAM = "@restatedev/restate-server-linux-x64/bin/restate-server"
"""The server itself: the package's own command is node, which starts it and waits."""


class Restate(Engine):
    """A server and a service, which is killed in the kill test."""

    name = "restate"
    victim = "the service"

    def __init__(self, cache: Path) -> None:
        self._cache = cache

    def install(self) -> str:
        """Install both halves."""
        installed(self._cache, self.name)
        packages = pinned()[self.name]
        own = packages["npm"]["@restatedev/restate-server"]
        return f"restate-server {own}, restate-sdk {packages['pypi']['restate-sdk']}"

    @contextlib.contextmanager
    def opened(self, work: Work) -> Iterator[Running]:
        """Lend a server without a service."""
        place, ports = installed(self._cache, self.name), Ports()
        argv = [str(place.modules / _PROGRAM), "--no-logo"]
        with server(argv, work.folder, environment=ports.environment(work.folder)) as process:
            until_up(process, work.folder, ports.up)
            script = script_of(place.python, "with_restate", work, ports.address)
            with contextlib.closing(Scripted(script, work.folder, [process])) as running:
                yield running


class Ports:
    """Where the parts of a server listen: on this machine only."""

    def __init__(self) -> None:
        self._ports = {name: free_port() for name in ("node", "ingress", "admin", "service")}

    def _url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._ports[name]}"

    @property
    def address(self) -> dict[str, object]:
        """What the service must know."""
        return {**{name: self._url(name) for name in self._ports}, "limit_s": START_LIMIT_S * 5}

    def environment(self, folder: Path) -> dict[str, str]:
        """Return the settings of the server: where it is, and nothing about how it works."""
        return {
            "RESTATE_BASE_DIR": str(folder / "restate"),
            "RESTATE_NODE_NAME": "bench",  # else the machine's name is looked up
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_LISTEN_MODE": "tcp",
            "RESTATE_BIND_IP": "127.0.0.1",
            "RESTATE_ADVERTISED_HOST": "127.0.0.1",
            "RESTATE_BIND_PORT": str(self._ports["node"]),
            "RESTATE_INGRESS__BIND_PORT": str(self._ports["ingress"]),
            "RESTATE_ADMIN__BIND_PORT": str(self._ports["admin"]),
        }

    def up(self) -> bool:
        """Return whether it answers in both of its roles."""
        return _answers(f"{self._url('admin')}/health") and _answers(f"{self._url('ingress')}/restate/health")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
