"""A notice in words: a headline, and below it all that a tired person needs.

That is what happened, why, where, and what to type.
"""

from __future__ import annotations

from collections.abc import Sequence

from handoffd.engine.notice import Notice

ITEM = "- "
"""Prefix of a digest's lines that list a notice; other lines are project names and a count."""

MOST_HEADLINE = 120
MOST_BYTES = 3500
"""Of a message: ntfy makes a file of what is longer than 4096, other services refuse it."""
_MOST_FILES = 10

_HEADS = {
    "needs_human": "needs you",
    "timeout": "ran out of time",
    "blocked": "is blocked",
    "done": "is done",
    "warning": "has a warning",
    "reminder": "still waits for you",
    "escalation": "still waits for an answer",
    "digest": "has news",
    "test": "tests this way of telling you",
}


def headline(notice: Notice) -> str:
    """Return who and what, in one short line."""
    who = f"{notice.name} {notice.story}" if notice.story else notice.name
    return cut(f"{who} {_HEADS.get(notice.kind, notice.kind)}", MOST_HEADLINE)


def message(notice: Notice) -> str:
    """Return what happened, why, where, and what to type; at most MOST_BYTES bytes of UTF-8."""
    first = [notice.text, *([f"Why: {notice.why}"] if notice.why else [])]
    then = []
    if notice.review:
        more = len(notice.review) - _MOST_FILES
        files = ", ".join(notice.review[:_MOST_FILES]) + (f" and {more} more" if more > 0 else "")
        then.append(f"To look at: {files}")
    where = f"{notice.project} ({notice.step})" if notice.step else notice.project
    end = [f"Where: {where}", *([f"Next: {notice.action}"] if notice.action else [])]
    lines = _listed(notice.lines, notice.more, MOST_BYTES - _size([*first, *then, *end]))
    return _fitted("\n".join([*first, *lines, *then]), "\n".join(end))


def and_more(count: int) -> str:
    """Return the line below what a digest lists that counts what it does not."""
    return f"and {count} more: handoffd notices"


def _listed(lines: Sequence[str], more: int, room: int) -> Sequence[str]:
    """Return the lines of a digest, or the first of them that fit and how many notices they leave out.

    Only whole ones: half a command could still be typed, and would be another one.
    """
    if not lines or _size(lines) <= room:
        return lines
    total = more + sum(line.startswith(ITEM) for line in lines)
    shown: list[str] = []
    left = room - _size([and_more(total)])
    for line in lines:
        left -= _size([line])
        if left < 0:
            break
        shown.append(line)
    while shown and not shown[-1].startswith(ITEM):  # the name of a project of which nothing follows
        shown.pop()
    return [*shown, and_more(total - sum(line.startswith(ITEM) for line in shown))]


def _size(lines: Sequence[str]) -> int:
    """Return how many bytes lines take, each with its end."""
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)


def _fitted(body: str, end: str) -> str:
    """Join the two, cutting only the body: the end has the command to type."""
    last = end.encode("utf-8", "replace")[: MOST_BYTES // 2]
    room = MOST_BYTES - len(last) - 1
    first = body.encode("utf-8", "replace")
    if len(first) > room:
        first = first[: room - 4] + "…".encode()
    return b"\n".join((first, last)).decode("utf-8", "ignore")


def cut(text: str, most: int) -> str:
    """Return a text as one line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
