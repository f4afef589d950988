"""A notice, and what is known of its way to people: values that the notifier and the journal share.

The notifier decides when a notice is sent, and the journal keeps it until then. Neither imports the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from msgspec import Struct, field, to_builtins

from handoffd.clock import rfc3339

FORMAT = 1
"""Raised when a key changes its meaning or goes; keys may be added at any time."""

Reason = Literal["quiet", "digest", "burst"]
"""Why a notice is held back."""

Lane = tuple[str, str]
"""A project and what of it: one of its tracks, or (with an empty track, or one that starts with ~) itself."""


def sign_of(notice: str) -> str:
    """Return what a notice is about, by its id: when it comes about again, only what follows ~ differs."""
    return notice.partition("~")[0]


class Notice(Struct, frozen=True, kw_only=True):
    """One thing a person should know, with the next command to type.

    `id` is unique, also among daemons, and stays the same when a notice is sent again: receivers may
    use it to drop repetitions. `at` is when it came about, however late it is sent. `kind` is one of
    needs_human, timeout, blocked, done, warning, reminder, escalation, digest, report, test.
    """

    id: str
    at: datetime
    project: str
    """Absolute path of the project's root."""
    name: str
    story: str | None
    step: str
    kind: str
    text: str
    why: str | None = None
    action: str | None = None
    review: tuple[str, ...] = ()
    """Files to look at, relative to the root."""
    track: str = ""
    """The track it is about; empty for one about the project as a whole."""
    of: str | None = None
    """The id of the notice that a reminder or an escalation is about."""
    count: int = 1
    """How many notices it contains; more than one only in a digest."""
    lines: tuple[str, ...] = ()
    """What a digest lists, ready to be shown one below the other."""
    facts: tuple[str, ...] = ()
    """Of an open gate: what a person needs to decide it, and both answers. Of a done story: where it is."""
    more: int = 0
    """How many notices a digest does not list; its last line reports them."""

    def as_json(self) -> str:
        """Return the notice as one line of JSON, the form in which sinks send it."""
        return json.dumps({"format": FORMAT, **to_builtins(self), "at": rfc3339(self.at)}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Notice:
        """Return the notice that `as_json` wrote, a later format's unknown keys left out.

        Raises ValueError when it is none.
        """
        try:
            values = dict(json.loads(text))
            known = {name: values[name] for name in cls.__struct_fields__ if name in values}
            known["at"] = datetime.fromisoformat(known["at"])
            known["review"] = tuple(known.get("review", ()))
            known["lines"] = tuple(known.get("lines", ()))
            known["facts"] = tuple(known.get("facts", ()))
            return cls(**known)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a notice: {error}") from error


# --- on its way ---------------------------------------------------------------------------------------
class Opening(Struct, frozen=True, kw_only=True):
    """Something waits for a person from now on, instead of what waited in its lane before.

    `reached_min`: how far the ladder of reminders counts as climbed; with `inf` there are no reminders.
    """

    lane: Lane
    reached_min: float = 0.0


class Parcel(Struct, frozen=True, kw_only=True):
    """A notice, its sinks, and its order; None: it comes from no order, so no order repeats it.

    `held` has the reason for each sink that must not get it yet. `opens`: the matter that it opens.
    `climbed`: the id of the notice that it repeats, and how far the ladder is climbed with it.
    """

    notice: Notice
    sinks: tuple[str, ...]
    order: int | None = None
    held: Mapping[str, Reason] = field(default_factory=dict)
    opens: Opening | None = None
    climbed: tuple[str, float] | None = None


class Matter(Struct, frozen=True, kw_only=True):
    """A matter that waits for the user, by the id of the notice about it."""

    notice: str
    lane: Lane
    since: datetime
    reached_min: float = 0.0


class Held(Struct, frozen=True, kw_only=True):
    """The notices held back from a sink for one reason: how many, and since when."""

    sink: str
    reason: Reason
    count: int
    since: datetime


class Lot(Struct, frozen=True, kw_only=True):
    """What is held back up to a number: how many, and the first of them."""

    upto: int
    count: int
    notices: tuple[Notice, ...]


class Expired(Struct, frozen=True, kw_only=True):
    """Notices of one track that a sink did not take in their time: their numbers, and the first one's id."""

    lane: Lane
    numbers: tuple[int, ...]
    first: str


class Waiting(Struct, frozen=True, kw_only=True):
    """One notice that a sink has not taken yet. Numbers rise in the order of recording."""

    number: int
    lane: Lane
    """Project and track: within a lane, order is kept."""
    tries: int = 0
    failed: bool = False
    """Whether it failed since the sink last worked."""
    doubts: int = 0
    """How often it failed while the sink took others."""
    due_s: float = 0.0


class Opened(Struct, frozen=True, kw_only=True):
    """What an earlier life left: its clock, and how many notices were dropped for each sink that is gone."""

    lived_s: float
    dropped: Mapping[str, int]


# --- its words: what happened, why, where, and what to type ----------------------------------------------
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
    "report": "reports on the night",
    "test": "tests this way of telling you",
}


def headline(notice: Notice) -> str:
    """Return who and what, in one short line."""
    who = f"{notice.name} {notice.story}" if notice.story else notice.name
    return cut(f"{who} {_HEADS.get(notice.kind, notice.kind)}", MOST_HEADLINE)


def message(notice: Notice) -> str:
    """Return what happened, why, where, and what to type; at most MOST_BYTES bytes of UTF-8."""
    first = [notice.text, *([f"Why: {notice.why}"] if notice.why else []), *notice.facts]
    then = []
    if notice.review:
        more = len(notice.review) - _MOST_FILES
        files = ", ".join(notice.review[:_MOST_FILES]) + (f" and {more} more" if more > 0 else "")
        then.append(f"To look at: {files}")
    where = f"{notice.project} ({notice.step})" if notice.step else notice.project
    end = [f"Where: {where}", *([f"Next: {notice.action}"] if notice.action else [])]
    whole = "handoffd report" if notice.kind == "report" else "handoffd notices"
    lines = _listed(notice.lines, notice.more, MOST_BYTES - _size([*first, *then, *end]), whole)
    return _fitted("\n".join([*first, *lines, *then]), "\n".join(end))


def and_more(count: int, whole: str = "handoffd notices") -> str:
    """Return the line below what a digest lists that counts what it does not; `whole` shows all of it."""
    return f"and {count} more: {whole}"


def _listed(lines: Sequence[str], more: int, room: int, whole: str) -> Sequence[str]:
    """Return the lines of a digest, or the first of them that fit and how many notices they leave out.

    Only whole ones: half a command could still be typed, and would be another one.
    """
    if not lines or _size(lines) <= room:
        return lines
    total = more + sum(line.startswith(ITEM) for line in lines)
    shown: list[str] = []
    left = room - _size([and_more(total, whole)])
    for line in lines:
        left -= _size([line])
        if left < 0:
            break
        shown.append(line)
    while shown and not shown[-1].startswith(ITEM):  # the name of a project of which nothing follows
        shown.pop()
    return [*shown, and_more(total - sum(line.startswith(ITEM) for line in shown), whole)]


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
