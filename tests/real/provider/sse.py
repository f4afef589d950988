"""Server-sent events, the framing all four providers stream in."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tests.real.provider.turns import Json

STREAM = "text/event-stream"
PLAIN = "application/json"
COMMENT = b": keep-alive\n\n"
"""An event that readers pass over."""


def named(events: Iterable[Json]) -> bytes:
    """Return events whose name is their `type`."""
    return b"".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events)


def bare(events: Iterable[Json], *, end: bytes = b"") -> bytes:
    """Return events without names, and what closes the stream."""
    return b"".join(f"data: {json.dumps(e)}\n\n".encode() for e in events) + end
