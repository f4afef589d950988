"""Server-sent events: the history as browsers' EventSource and its kin in every language read it.

A reader's place is a number of the journal, not a queue of ours: a slow one is behind and misses nothing, and
what is held for it is one batch. It comes back with the last number it saw and goes on from there.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Final

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from handoffd.control.history import Json

MEDIA: Final = "text/event-stream"
BEAT_S: Final = 15.0
"""How often a reader hears that the connection is alive, while nothing happens."""
_HELLO: Final = b"retry: 2000\n\n"
_BEAT: Final = b": nothing new\n\n"


def encoded(line: Json) -> bytes:
    """Return an event of the history, or a gap in it, as one message.

    A gap's `from` and `to` are the first and the last number that is not to be had; `to` null: whatever
    was beyond. Its id is such that a reader which comes back goes on behind it.
    """
    if line["type"] == "gap":
        first, last = line["after"] + 1, line["next"] - 1
        gap = {"from": first, "to": last if last >= first else None, "next": line["next"], "why": line["why"]}
        return _message(last, "gap", gap)
    return _message(line["seq"], line["kind"], line)


def _message(number: int, kind: str, data: Mapping[str, object]) -> bytes:
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


class EventStream(Response):
    """An answer of messages as they come, with a comment when none has come for a while."""

    media_type = MEDIA

    def __init__(self, lines: AsyncIterator[Json], beat_s: float = BEAT_S) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._lines = lines
        self._beat_s = beat_s
        self._alone = anyio.Lock()
        self._sent = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send messages until there are no more, or the reader is gone."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await self._send(send, _HELLO)
        async with anyio.create_task_group() as tasks:

            async def follow_reader() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                tasks.cancel_scope.cancel()

            tasks.start_soon(follow_reader, name="reader of events")
            tasks.start_soon(self._beat, send, name="heartbeat of events")
            async for line in self._lines:
                await self._send(send, encoded(line))
            tasks.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, piece: bytes) -> None:
        async with self._alone:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            self._sent += 1

    async def _beat(self, send: Send) -> None:
        while True:
            before = self._sent
            await anyio.sleep(self._beat_s)
            if self._sent == before:
                await self._send(send, _BEAT)
