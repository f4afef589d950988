"""What a person is told, as a value that every sink sends in the same form."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime

from handoffd.clock import rfc3339

FORMAT = 1
"""Raised when a key changes its meaning or goes; keys may be added at any time."""

ITEM = "- "
"""How a line of a digest begins that tells of a notice; the others are names of projects, and a count."""


def sign_of(notice: str) -> str:
    """Return what a notice is about, by its id: when it comes about again, only what follows ~ differs."""
    return notice.partition("~")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
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
    """How many notices it stands for; more than one only in a digest."""
    lines: tuple[str, ...] = ()
    """What a digest lists, ready to be shown one below the other."""
    more: int = 0
    """How many notices a digest does not list; the last of its lines says so."""

    def as_json(self) -> str:
        """Return the notice as one line of JSON, the form in which sinks send it."""
        return json.dumps({"format": FORMAT, **asdict(self), "at": rfc3339(self.at)}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Notice:
        """Return the notice that `as_json` wrote, a later format's unknown keys left out.

        Raises ValueError when it is none.
        """
        try:
            values = dict(json.loads(text))
            known = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
            known["at"] = datetime.fromisoformat(known["at"])
            known["review"] = tuple(known.get("review", ()))
            known["lines"] = tuple(known.get("lines", ()))
            return cls(**known)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a notice: {error}") from error
