"""A long answer, made into text a piece at a time, so that others have their turn meanwhile."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import anyio.lowlevel
from starlette.responses import Response

from handoffd.control.history import Json

_AT_ONCE = 50


async def rendered(told: Json, long: str) -> Response:
    """Return the JSON answer `told`, whose value at `long` is a list that may have thousands of entries."""
    entries = iter(told[long])
    rest = {name: value for name, value in told.items() if name != long}
    pieces = [_text(rest)[:-1], "," if rest else "", _text(long), ":["]
    between = ""
    while some := list(islice(entries, _AT_ONCE)):
        pieces += [between, _text(some)[1:-1]]
        between = ","
        await anyio.lowlevel.checkpoint()
    return Response("".join([*pieces, "]}"]), media_type="application/json")


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
