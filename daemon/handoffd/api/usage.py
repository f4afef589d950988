"""What runs have used, summed up; beside steps and stories the tokens that the protocol expects.

They compare tokens that were new to the model (input, output, cache writes): an agent reads the same context
again with every call, and a cache makes that cheap.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, time, timedelta
from functools import reduce
from operator import add
from typing import Any, Final, get_args

from msgspec.structs import asdict

from handoffd.api.answers import UsageRow
from handoffd.api.events import Names, named, usage_counts
from handoffd.engine.run import Usage
from handoffd.errors import Refused
from handoffd.journal.dispatches import Grouping
from handoffd.journal.records import UsageSum

REFERENCE: Final[Mapping[str, tuple[int, int]]] = {
    "bdd": (2_000, 5_000),
    "sdd-delta": (3_000, 8_000),
    "contract": (1_000, 3_000),
    "review": (0, 0),
    "scaffold": (2_000, 5_000),
    "impl": (5_000, 15_000),
    "verify": (1_000, 3_000),
    "update-memory": (500, 1_000),
}
"""Expected tokens of one run of a step: low and high, from the protocol."""
STORY_REFERENCE: Final = (15_000, 40_000)
"""Expected tokens of a whole story: low and high."""

_AGO = re.compile(r"(\d{1,4})([hdw])")
_UNITS: Final[Mapping[str, timedelta]] = {
    "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1),
}  # fmt: skip


def grouping(text: str | None) -> Grouping:
    """Return the grouping, by step for None. Raises Refused (BAD_ARGUMENT)."""
    if text is None:
        return "step"
    known: tuple[Grouping, ...] = get_args(Grouping)
    for by in known:
        if text == by:
            return by
    message = f"by must be one of {', '.join(get_args(Grouping))}, not {str(text)[:80]!r}"
    raise Refused(message, code="BAD_ARGUMENT", hint="handoffd usage --by step")


def begin_of(text: str | None, now: datetime) -> datetime | None:
    """Return the moment for `7d`, `12h`, `2w`, a date (its local midnight) or an RFC 3339 time.

    Raises Refused (BAD_ARGUMENT) for anything else.
    """
    if not text:
        return None
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now - int(ago[1]) * _UNITS[ago[2]]
    try:
        moment = datetime.fromisoformat(text)
        here = moment if moment.tzinfo else datetime.combine(moment.date(), time())
        return here.astimezone(UTC)
    except (ValueError, OverflowError):
        message = f"since must be like 7d, 12h, 2w or 2026-01-31, not {text[:80]!r}"
        raise Refused(message, code="BAD_ARGUMENT", hint="handoffd usage --since 7d") from None


def usage_report(sums: Iterable[UsageSum], by: Grouping, names: Names) -> tuple[list[UsageRow], UsageRow]:
    """Return the sums as rows, and their total."""
    found = tuple(sums)
    whole = UsageSum(
        key=(),
        runs=sum(one.runs for one in found),
        measured=sum(one.measured for one in found),
        unpriced=sum(one.unpriced for one in found),
        usage=reduce(add, (one.usage for one in found), Usage()),
    )
    rows = [_row(one, **_key(one.key, by, names), **_compared(one, by)) for one in found]
    return rows, _row(whole)


def _row(one: UsageSum, **more: Any) -> UsageRow:
    counts = asdict(usage_counts(one.usage))
    return UsageRow(runs=one.runs, measured=one.measured, unpriced=one.unpriced, **counts, **more)


def _key(key: tuple[str | None, ...], by: Grouping, names: Names) -> dict[str, str | None]:
    match by:
        case "story":
            root, story = key
            return {"project": root, "name": named(root or "", names), "story": story}
        case "project":
            (root,) = key
            return {"project": root, "name": named(root or "", names)}
        case _:
            return {by: key[0]}


def _compared(one: UsageSum, by: Grouping) -> dict[str, Any]:
    """Return the tokens new to the model, per run or per story, beside the expected ones; else empty."""
    if by not in {"step", "story"}:
        return {}
    new, expected = _new_tokens(one, by)
    above = None if new is None or expected is None else new > expected[1]
    return {"new_tokens": new, "reference": expected, "above": above}


def _new_tokens(one: UsageSum, by: Grouping) -> tuple[int | None, tuple[int, int] | None]:
    new = one.usage.tokens - one.usage.cache_read_tokens
    if by == "step" and one.measured:
        return round(new / one.measured), REFERENCE.get(one.key[0] or "")
    if by == "story" and one.measured and not str(one.key[1]).startswith("CUSTOM-"):
        return new, STORY_REFERENCE
    return None, None
