"""A notice, and what is known of its way to people: values that the notifier and the journal share.

The notifier decides when a notice is sent, and the journal keeps it until then. Neither imports the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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
    needs_human, timeout, blocked, done, warning, reminder, escalation, digest, test.
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
