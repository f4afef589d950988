"""What people have not been told yet, what they will be told again, and why, as plain JSON values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from math import inf
from typing import Any

from handoffd.clock import rfc3339
from handoffd.control.history import Json, backlog_json
from handoffd.control.ports import Desk
from handoffd.engine.waiting import still_waits
from handoffd.store.outbox import Outbox
from handoffd.store.records import Backlog, HeldBack, MatterNow, StoredMatter

MOST_WAITING = 200
"""Matters that are told of; the oldest."""


class NoDesk:
    """Nothing is known of what will be: no daemon runs."""

    def next_tries(self) -> Mapping[str, float]:
        """Return nothing."""
        return {}

    def releases(self) -> Mapping[tuple[str, str], datetime]:
        """Return nothing."""
        return {}

    def reminders(self) -> Mapping[str, datetime | None]:
        """Return nothing."""
        return {}


async def notices_json(outbox: Outbox, desk: Desk, lately_s: float, root: str | None = None) -> Json:
    """Return what waits for each sink, what is held back until when, and what people hear of again.

    `root`: of what waits, that of one project.
    """
    backlogs, held = await outbox.backlog(lately_s), await outbox.held_back()
    tries, releases, reminders = desk.next_tries(), desk.releases(), desk.reminders()
    matters = [one for one in await outbox.matters() if root is None or one.key.project == root]
    waiting = []
    for matter in matters[:MOST_WAITING]:
        now = await outbox.matter_now(matter.notice)
        if now is not None and _waits(now):
            waiting.append(_matter(matter, now, reminders.get(matter.notice)))
    return {
        "sinks": [_backlog(one, tries) for one in backlogs],
        "held": [_held(one, releases.get((one.sink, one.reason))) for one in held],
        "waiting": waiting,
        "more_waiting": max(0, len(matters) - MOST_WAITING),
    }


def trials_json(trials: Iterable[tuple[str, str, str | None, float]]) -> Json:
    """Return how a sample went through sinks: name, form, why it failed, and seconds of each."""
    sinks = [
        {"sink": name, "form": form, "ok": why is None, "why": why, "seconds": seconds}
        for name, form, why, seconds in trials
    ]
    return {"type": "tested", "ok": all(one["ok"] for one in sinks), "sinks": sinks}


def _backlog(backlog: Backlog, tries: Mapping[str, float]) -> Json:
    return backlog_json(backlog, tries.get(backlog.sink))


def _held(held: HeldBack, until: datetime | None) -> Json:
    return {
        "sink": held.sink,
        "reason": held.reason,
        "count": held.count,
        "since": rfc3339(held.oldest),
        "until": None if until is None else rfc3339(until),
    }


def _waits(now: MatterNow) -> bool:
    told = _told(now)
    if not now.supervised:
        return False
    return now.track is None or still_waits(now.track, told.get("story"), str(told.get("step")))


def _matter(matter: StoredMatter, now: MatterNow, again: datetime | None) -> Json:
    told = _told(now)
    return {
        "project": matter.key.project,
        "track": told.get("track", ""),
        "name": told.get("name"),
        "story": told.get("story"),
        "kind": told.get("kind"),
        "text": told.get("text"),
        "next": told.get("action"),
        "since": rfc3339(matter.since),
        "reminded_min": matter.reached_min if 0 < matter.reached_min < inf else None,
        "again_at": None if again is None else rfc3339(again),
    }


def _told(now: MatterNow) -> dict[str, Any]:
    """Return a notice as recorded; of one that cannot be read, nothing."""
    try:
        told = json.loads(now.body)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
