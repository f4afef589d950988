"""Accounts that must not be asked for a while: what one track has met, and the words for it.

A limit belongs to an account, not to the track that ran into it; but the track's ledger is where the
journal keeps it, so whoever wants to know which accounts are limited looks at all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from handoffd.engine.ends import End

LIMITS: Final = frozenset({End.LIMIT, End.OVERLOAD})
"""Ends that say nothing about the work, only that the account cannot be asked now."""

LimitKind = Literal["limit", "overload", "refusal"]
"""A refusal concerns the track that met it; the others everything that uses the account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """An account that answered one of a track's executors with a limit, and has not answered better since."""

    account: str
    executor: str
    kind: LimitKind
    since: datetime
    """When it did so first, by the end of the executor that met it."""
    until: datetime
    """When it is asked again."""
    answers: int = 1
    """How often in a row it did so."""
    why: str = ""
    """What the agent said last, in one line."""
    told: bool = False
    """Whether a person was told of it."""
    reminded: bool = False
    """Whether a person was told that it lasts long."""


_WORDS: Final[Mapping[LimitKind, str]] = {
    "limit": "usage limit",
    "overload": "overloaded provider",
    "refusal": "refusing provider",
}


def limit_of(limits: Iterable[Limit], account: str) -> Limit | None:
    """Return what is known of an account's limit."""
    return next((limit for limit in limits if limit.account == account), None)


def without(limits: Iterable[Limit], account: str) -> tuple[Limit, ...]:
    """Return the limits of all other accounts."""
    return tuple(limit for limit in limits if limit.account != account)


def named(account: str, kind: LimitKind) -> str:
    """Return `claude's usage limit`, or that its provider is overloaded or refuses."""
    return f"{account}'s {_WORDS[kind]}"


def until_words(until: datetime, now: datetime) -> str:
    """Return `until 15:00 UTC (in 2 h 10 min)`, by the clock of the zone that `until` is in."""
    local = now.astimezone(until.tzinfo)
    day = "" if local.date() == until.date() else f"{until:%a %d %b} "
    return f"until {day}{until:%H:%M} {until:%Z} (in {span(until - now)})"


def span(length: timedelta) -> str:
    """Return a span of time in the two units that matter: `3 d 4 h`, `2 h 10 min`, `12 min`, `45 s`."""
    seconds = max(round(length.total_seconds()), 0)
    if seconds < 100:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"
