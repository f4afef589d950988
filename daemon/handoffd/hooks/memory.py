"""What became of a hand-off that nobody waited for: the next hook tells it, and asks nobody again."""

from __future__ import annotations

import json
import os
from contextlib import suppress

from handoffd.hooks.finding import Standing
from handoffd.hooks.tally import tally_path

_MAX_BYTES = 256 * 1024


def remember(folder: str, standing: Standing, result: dict[str, object]) -> None:
    """Keep what applying the hand-off led to that lies there as `standing` says. Raises OSError."""
    path = tally_path(folder, standing.root, "last")
    with open(f"{path}.{os.getpid()}", "w", encoding="utf-8", opener=_private) as file:
        json.dump({"of": _identity(standing), "result": result}, file)
    os.replace(f"{path}.{os.getpid()}", path)


def remembered(folder: str, standing: Standing) -> dict[str, object] | None:
    """Return what applying this very hand-off led to; None if nobody tried, or it is not known."""
    with suppress(OSError, ValueError, RecursionError, KeyError, TypeError):
        with open(tally_path(folder, standing.root, "last"), encoding="utf-8") as file:
            data = json.loads(file.read(_MAX_BYTES))
        if data["of"] == _identity(standing) and isinstance(data["result"], dict):
            return dict(data["result"])
    return None


def _identity(standing: Standing) -> list[object]:
    return [
        standing.written_ns,
        standing.status,
        standing.state.get("dispatched_at"),
        standing.state.get("step"),
    ]


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
