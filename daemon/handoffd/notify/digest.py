"""One notice instead of many: by project, each with what to type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from handoffd.notify.hours import Reason
from handoffd.notify.notice import ITEM, Notice
from handoffd.notify.wording import and_more, cut

MOST_LISTED = 40
"""Notices that a digest lists; of more, it says how many. A sink with less room for words shows fewer."""
_MOST_NAMED = 3
_MOST_LINE = 220

_WHY: dict[Reason, str] = {
    "quiet": "they came about during the quiet hours (notify.quiet)",
    "digest": "they are collected by your settings (notify.digest)",
    "burst": "more came about at once than are told one by one (notify.burst)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover:
    """What is written on a digest: its id, the folder that it names as its project, and when it was made."""

    id: str
    place: str
    at: datetime


def folded(notices: Sequence[Notice], count: int, reason: Reason, cover: Cover) -> Notice:
    """Return the notice that stands for `count` others, of which these are the first.

    A single one stays what it is. Of several about one and the same matter (a gate, and reminders of it) the
    last is listed.
    """
    assert notices
    if count == 1:
        return replace(notices[0], id=cover.id)
    matters = _last_of_each_matter(notices)
    listed = matters[:MOST_LISTED]
    more = len(matters) - len(listed) + count - len(notices)
    return Notice(
        id=cover.id, at=cover.at, project=cover.place, name="handoffd", story=None, step="", kind="digest",
        text=f"{count} notices: {_projects(notices, count)}", why=_WHY[reason], action="handoffd status",
        count=count, lines=_lines(listed, more), more=more,
    )  # fmt: skip


def _last_of_each_matter(notices: Sequence[Notice]) -> list[Notice]:
    last = {notice.of or notice.id: notice for notice in notices}
    return [notice for notice in notices if last[notice.of or notice.id] is notice]


def _projects(notices: Sequence[Notice], count: int) -> str:
    """Return the first few projects, with how many notices are about them where that is known."""
    names = [notice.name for notice in notices]
    counts = {name: names.count(name) for name in dict.fromkeys(names)}
    shown = [f"{name} ({number})" for name, number in counts.items()][:_MOST_NAMED]
    rest = len(counts) > len(shown) or count > len(notices)
    return cut(", ".join(shown), _MOST_LINE) + (" and others" if rest else "")


def _lines(shown: Sequence[Notice], more: int) -> tuple[str, ...]:
    lines: list[str] = []
    for root, name in dict.fromkeys((notice.project, notice.name) for notice in shown):
        lines.append(f"{cut(name, 60)}:")
        lines += [_line(notice) for notice in shown if (notice.project, notice.name) == (root, name)]
    return (*lines, and_more(more)) if more else tuple(lines)


def _line(notice: Notice) -> str:
    about = " ".join(part for part in (notice.story, notice.step) if part)
    told = cut(f"{about}: {notice.text}" if about else notice.text, _MOST_LINE)
    return f"{ITEM}{told} > {notice.action}" if notice.action else f"{ITEM}{told}"
