"""`handoffd status --watch` on a screen with fewer lines than there are to tell.

A terminal cuts what is below its last line, and with many projects that is nearly all. So what somebody
has to act on comes first, then what runs, then what waits; of the rest there is a count, and warnings are
always there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from handoffd.cli.status_report import condition_of, parts

Json = dict[str, Any]

_ACT, _RUNS, _WAITS, _RESTS = range(4)
_MOST_FOOT = 3
"""The part of a screen, one in so many, that may be taken by what concerns no project alone."""


def fitted(status: Json, *, whole: bool, height: int) -> list[str]:
    """Return at most `height` lines for an answer of `GET /v1/status`: all, or those that matter most."""
    head, blocks, foot = parts(status, whole=whole)
    if len(head) + sum(map(len, blocks)) + len(foot) <= height:
        return [*head, *(line for block in blocks for line in block), *foot]
    foot = _cut(foot, max(height // _MOST_FOOT, 1))
    room = height - len(head) - len(foot) - 1
    told = [(project, track) for project in status["projects"] for track in project["tracks"] or [None]]
    order = sorted(range(len(told)), key=lambda number: _rank(*told[number]))
    lines: list[str] = []
    for place, number in enumerate(order):
        if len(lines) + len(blocks[number]) > room and place > 0:
            rest = [told[hidden] for hidden in order[place:]]
            return [*head, *lines, _rest(rest, daemon=status["daemon"]), *foot]
        lines += _cut(blocks[number], max(room, 1))
    return [*head, *lines, *foot][:height]


def _cut(lines: Sequence[str], most: int) -> list[str]:
    return list(lines) if len(lines) <= most else [*lines[: most - 1], "…"]


def _rank(project: Json, track: Json | None) -> int:
    """Return how soon somebody should see a track."""
    if project["condition"] != "ok" or project["warnings"] or track is None:
        return _ACT
    if track["dispatch"] is not None:
        return _RUNS
    if track["story"] is None or track["step"] == "done":
        return _RESTS
    return _ACT if track["next_command"] else _WAITS


def _rest(hidden: Sequence[tuple[Json, Json | None]], *, daemon: bool) -> str:
    counts = Counter(condition_of(project, track, daemon=daemon) for project, track in hidden)
    each = ", ".join(f"{count:,} {condition}" for condition, count in counts.most_common())
    return f"… and {len(hidden):,} more: {each} (handoffd status)"
