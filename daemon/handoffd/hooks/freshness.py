"""Whether a hand-off may be news, told by the times that were recorded.

A hint, as everything a hook finds out before the engine is asked: what cannot be told may be news.
"""

from __future__ import annotations

from datetime import UTC, datetime

from handoffd.hooks.finding import Standing

SLACK_NS = 2_000_000_000
"""File systems and tools round the times they record; so much earlier than the dispatch still counts."""


def is_fresh(standing: Standing) -> bool:
    """Return whether there is a hand-off that may be of the attempt dispatched last."""
    return _since(standing, "dispatched_at", SLACK_NS)


def is_fresh_again(standing: Standing) -> bool:
    """Return whether there is a hand-off that was written after the attempt was judged."""
    return standing.state.get("completed_at") is not None and _since(standing, "completed_at", 0)


def _since(standing: Standing, field: str, slack_ns: int) -> bool:
    if standing.written_ns is None:
        return False
    moment = moment_ns(standing.state.get(field))
    return moment is None or standing.written_ns >= moment - slack_ns


def moment_ns(value: object) -> int | None:
    """Return an RFC 3339 time in nanoseconds since the epoch; None if it is none."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        known = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return int(known.timestamp() * 1_000_000) * 1000
    except (ValueError, OverflowError):
        return None
