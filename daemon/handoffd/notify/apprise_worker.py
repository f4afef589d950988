"""The program beside the daemon in which apprise runs: one line of JSON in, one line of JSON out.

It is run by its path, knows nothing of handoffd, and gets everything, secrets too, on its standard
input. Every address is sent to by itself and answered for by itself, so that a notice that one service
did not take is not sent again to services that did. Whatever apprise or a plug-in prints is lost.

A request has `urls` or `config` (a path), `tags`, `title`, `body`, `kind` (apprise's: info, success,
warning, failure) and `skip` (marks of addresses that have it). The answer has `taken` (marks), `failed`
and `unusable` (each {mark or number, why}), or `error`. With `check`, nothing is sent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import queue
import re
import sys
import threading
from collections.abc import Iterator
from shlex import quote
from typing import Any
from urllib.parse import unquote

_MOST_WHY = 300
REQUIREMENT = "apprise>=1.9,<3"
"""What the extra of the same name installs."""

_MISSING = f"apprise is not installed: {quote(sys.executable)} -m pip install {quote(REQUIREMENT)}"


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the result of one request."""
    try:
        import apprise  # noqa: PLC0415  (slow, and perhaps not there)
    except ImportError:
        return {"error": _MISSING}
    found: dict[str, Any] = {"taken": [], "failed": [], "unusable": []}
    for number, server, secrets in _servers(apprise, request):
        if server is None:
            found["unusable"].append({"number": number, "why": "apprise does not know such an address"})
            continue
        mark = hashlib.sha256(server.url().encode()).hexdigest()[:16]
        if mark in request.get("skip", ()):
            continue
        why = None if request.get("check") else _send(apprise, server, request, secrets)
        if why is None:
            found["taken"].append(mark)
        else:
            found["failed"].append({"mark": mark, "why": why})
    return found


def _servers(apprise: Any, request: dict[str, Any]) -> Iterator[tuple[int, Any, list[str]]]:
    """Yield each address with its number, from 1, and its secret parts."""
    asset = apprise.AppriseAsset(app_id="handoffd", app_desc="handoffd", async_mode=False)
    if request.get("config"):
        config = apprise.AppriseConfig(paths=request["config"], asset=asset)
        several = apprise.Apprise(asset=asset)
        several.add(config)
        tags = request.get("tags") or None
        found = list(several.find(tag=tags) if tags else several)
        for number, server in enumerate(found, 1):
            yield number, server, _pieces(server.url())
        if not found:
            yield 1, None, []
        return
    for number, url in enumerate(request["urls"], 1):
        yield number, apprise.Apprise.instantiate(url, asset=asset), _pieces(url)


def _send(apprise: Any, server: Any, request: dict[str, Any], secrets: list[str]) -> str | None:
    """Send to one address; return why it failed, None when it did not."""
    one = apprise.Apprise(asset=server.asset)
    one.add(server)
    with apprise.LogCapture(level=logging.WARNING) as capture:
        try:
            taken = one.notify(
                title=request["title"], body=request["body"], notify_type=request["kind"], body_format="text"
            )
        except Exception as error:
            return f"{_scheme(server)}: {type(error).__name__}"
        told = capture.getvalue()
    return None if taken else f"{_scheme(server)}: {_harmless(told, secrets) or 'not taken'}"


def _scheme(server: Any) -> str:
    name = getattr(server, "service_name", None)
    return str(name or "a service")[:40]


def _harmless(told: str, secrets: list[str]) -> str:
    """Return what apprise logged, in one line, without times and without any piece of the address."""
    lines = [re.sub(r"^[0-9-]+ [0-9:,]+ - [A-Z]+ - ", "", line) for line in told.splitlines()]
    text = " ".join(" ".join(lines).split())
    for piece in secrets:
        text = text.replace(piece, "…")
    return text[:_MOST_WHY]


def _pieces(url: str) -> list[str]:
    """Return the parts of an address of which any may be a key, in either spelling, the longest first."""
    rest = url.partition("://")[2]
    parts = {part for part in re.split(r"[/:@?&=#,]", rest) if len(part) >= 4}
    return sorted({rest, *parts, *map(unquote, parts)}, key=len)[::-1]


def main() -> None:
    """Answer until the input ends; then end, whatever is being done."""
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    while True:
        line = requests.get()
        try:
            reply = answer(json.loads(line))
        except Exception as error:  # whatever a plug-in does; its text may quote an address
            reply = {"error": f"apprise failed ({type(error).__name__})"}
        with contextlib.suppress(BrokenPipeError):
            replies.write(json.dumps(reply).encode() + b"\n")


def _read(requests: queue.SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        requests.put(line)
    os._exit(0)  # the daemon is gone, and only it could end a request that hangs


if __name__ == "__main__":
    main()
