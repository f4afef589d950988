"""The more than a hundred services that apprise knows, through a worker beside the daemon.

apprise is never imported here: it is slow, blocks, and some of its services hang. What an address is
made of is a secret. A notice that some of several addresses have taken is sent again only to the others.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import anyio.to_thread

from handoffd.notify import apprise_worker
from handoffd.notify.command import known_environment
from handoffd.notify.notice import Notice
from handoffd.notify.sink import Undelivered
from handoffd.notify.wording import headline, message
from handoffd.notify.worker import Worker, WorkerFailed
from handoffd.settings_notify import AppriseSettings

ARGV: Final = (sys.executable, "-I", str(Path(apprise_worker.__file__).resolve()))
FIRST_S: Final = 15.0
"""So much longer the first request may take: apprise reads its hundred plug-ins."""

_KINDS: Final[Mapping[str, str]] = {
    "needs_human": "warning", "timeout": "failure", "blocked": "failure", "done": "success",
    "warning": "warning", "reminder": "warning", "escalation": "failure",
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
        """Return what is wrong with the addresses; sends nothing. Raises Undelivered when nobody can tell."""
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
                raise Undelivered(f"{settings.config_file} is no file")
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
