"""What starts at fixed times: the entries of `schedule` in the settings, checked as they are read.

The package `schedule` computes when an entry is due next.

Cron expressions are the ones of crontab(5): five fields. Scheduler libraries differ from it in details that
cost a night's work: which day of the week is 0, and what two restricted days mean. So the text is parsed
here, into plain sets of numbers.
"""

from __future__ import annotations

import calendar
import re
import zoneinfo
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, Literal

from msgspec import Struct
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_STORY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_BLANKS: Final = ("{name}", "{date}", "{time}", "{week}")
_SAMPLE: Final = datetime(2026, 12, 31, 23, 59)  # noqa: DTZ001  (only its digits count)


def _cron(text: str) -> str:
    parse(text)
    return text


def _zone(name: str) -> str:
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"must be a time zone such as Europe/Berlin or UTC, not {name[:40]!r}") from error
    return name


def _name(text: str) -> str:
    if not _NAME.fullmatch(text) or ".." in text:
        raise ValueError(
            f"must be 1 to 32 of A-Z a-z 0-9 . _ -, beginning with a letter or digit: {text[:40]!r}"
        )
    return text


def _template(text: str) -> str:
    filled = expanded(text, "x", _SAMPLE)
    if not _STORY.fullmatch(filled) or ".." in filled:
        raise ValueError(
            f"must be the id of a story, of A-Z a-z 0-9 . _ -, in which {', '.join(_BLANKS)} are filled in,"
            f" not {text[:80]!r}"
        )
    return text


def expanded(template: str, name: str, at: datetime) -> str:
    """Return the id of the story that an entry called `name` starts `at` that local time."""
    year, week, _ = at.isocalendar()
    values: Mapping[str, str] = {
        "{name}": name, "{date}": f"{at:%Y-%m-%d}", "{time}": f"{at:%H%M}", "{week}": f"{year}-W{week:02}",
    }  # fmt: skip
    for blank, value in values.items():
        template = template.replace(blank, value)
    return template


def _names(value: object) -> object:
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value


class ScheduledStart(BaseModel):
    """A story or custom task that starts at fixed times; exactly one of `start` and `custom`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Annotated[str, AfterValidator(_name)]
    cron: Annotated[str, AfterValidator(_cron)]
    timezone: Annotated[str, AfterValidator(_zone)] | None = None
    """None: the machine's."""
    start: Annotated[str, AfterValidator(_template)] | None = None
    """The story's id; {name}, {date}, {time} and {week} of the time it is due are filled in."""
    custom: Annotated[str, Field(min_length=1, max_length=64 * 1024)] | None = None
    """The instruction of a custom task, instead."""
    label: Annotated[str, AfterValidator(_template)] = "{name}-{date}-{time}"
    """The id of a custom task."""
    overlap: Literal["skip", "queue"] = "skip"
    """Whether it is left out or queued while another story is in flight."""
    catch_up: Literal["none", "one"] = "none"
    """`one`: after the daemon was down, the latest missed start is made up for."""
    catch_up_h: float = Field(24, gt=0, le=24 * 366)
    """Hours after which a missed start is not made up for."""
    jitter_s: float = Field(0, ge=0, le=3600)
    """At most this many seconds later, a different delay for each project."""
    priority: int = Field(0, ge=-1000, le=1000)
    complexity: Literal["S", "M", "L"] | None = None
    executor: Annotated[tuple[str, ...], BeforeValidator(_names, json_schema_input_type=str)] = ()
    agent_teams: bool = False

    @model_validator(mode="after")
    def _must_say_what(self) -> ScheduledStart:
        if (self.start is None) == (self.custom is None):
            raise ValueError("must have `start` (a story) or `custom` (an instruction), and not both")
        return self

    @property
    def fingerprint(self) -> str:
        """The times as text: when it changes, the entry starts anew."""
        return f"{self.cron} {self.timezone or ''}".strip()

    def story(self, due: datetime) -> str:
        """Return the id of the story that starts at the local time `due`."""
        return expanded(self.label if self.start is None else self.start, self.name, due)


class SharedStart(ScheduledStart):
    """An entry of the daemon's settings, for some of its projects."""

    projects: Annotated[tuple[str, ...], Field(min_length=1)]
    """Names, paths, or patterns of them: `*` within a name, `**` across folders; `group:NAME` for a group."""


def must_differ(starts: tuple[ScheduledStart, ...]) -> tuple[ScheduledStart, ...]:
    """Return the entries of one file; ValueError when two of them have one name."""
    names = [one.name for one in starts]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two entries are called {twice!r}")
    return starts


# --- cron expressions --------------------------------------------------------------------------------
_MONTHS: Final = tuple(name.lower() for name in calendar.month_abbr[1:])
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LONGEST: Final = 200
"""Characters of an expression; no expression needs more."""

_NICKNAMES: Final[Mapping[str, str]] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class _Field(Struct, frozen=True):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    """Words for its numbers, from `first` on."""
    first: int = 0

    @property
    def allowed(self) -> str:
        words = f" or {self.names[0]} to {self.names[-1]}" if self.names else ""
        return f"{self.low} to {self.high}{words}"


_FIELDS: Final = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS, 1),
    _Field("day of week", 0, 7, _WEEKDAYS),
)


class Crontab(Struct, frozen=True, kw_only=True):
    """When something is due. Weekdays count from Sunday, 0; `days` or `weekdays` None: every day.

    With both, a day must be in either, or, if one of them begins with `*` (`*/2`), in both, as in crontab(5).
    `every_hour`: the hours are `*` or `*/n`, so the entry is also due in an hour that the clock repeats.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...] | None
    months: tuple[int, ...]
    weekdays: tuple[int, ...] | None
    in_both: bool
    every_hour: bool


def parse(text: str) -> Crontab:
    """Parse a cron expression. Raises ValueError with the fault and what is allowed."""
    words = _NICKNAMES.get(text.strip().lower(), text).split()
    if len(words) != len(_FIELDS) or len(text) > _LONGEST:
        known = ", ".join(_NICKNAMES)
        raise ValueError(
            f"must be five fields, `minute hour day-of-month month day-of-week`, or one of {known};"
            f" {text[:40]!r} has {len(words)}"
        )
    minutes, hours, days, months, weekdays = (
        _numbers(field, word.lower()) for field, word in zip(_FIELDS, words, strict=True)
    )
    found = Crontab(
        minutes=minutes or tuple(range(60)),
        hours=hours or tuple(range(24)),
        days=days,
        months=months or tuple(range(1, 13)),
        weekdays=None if weekdays is None else tuple(sorted({day % 7 for day in weekdays})),
        in_both=words[2].startswith("*") or words[4].startswith("*"),
        every_hour=words[1].startswith("*"),
    )
    _must_come(found)
    return found


def _must_come(found: Crontab) -> None:
    """Raise ValueError for a day that never comes, such as the 30th of February."""
    longest = max(calendar.monthrange(2028, month)[1] for month in found.months)
    if found.days is not None and found.in_both and min(found.days) > longest:
        raise ValueError(f"never comes: none of its months has a day {min(found.days)}")


def _numbers(field: _Field, word: str) -> tuple[int, ...] | None:
    """Return the numbers of a field; None for all of them."""
    if word == "*":
        return None
    found: set[int] = set()
    for item in word.split(","):
        found.update(_range(field, item))
    return tuple(sorted(found))


_ITEM: Final = re.compile(r"(?P<low>\*|[a-z0-9]+)(-(?P<high>[a-z0-9]+))?(/(?P<step>[0-9]{1,4}))?")


def _range(field: _Field, item: str) -> range:
    parts = _ITEM.fullmatch(item)
    if parts is None or (parts["low"] == "*" and parts["high"]):
        raise ValueError(
            f"{item[:40]!r} is not a {field.name}: a number, a range `a-b`, a list `a,b` or steps `*/n`"
            f" (allowed: {field.allowed})"
        )
    step = int(parts["step"] or 1)
    if step < 1:
        raise ValueError(f"{item[:40]!r} has no steps: write `*/n` with n from 1")
    if parts["low"] == "*":
        return range(field.low, field.high + 1, step)
    low = _number(field, parts["low"])
    high = _number(field, parts["high"]) if parts["high"] else field.high if parts["step"] else low
    if low > high:
        raise ValueError(f"{item[:40]!r} runs backwards: write `{parts['low']}-{field.high},…` in two parts")
    return range(low, high + 1, step)


def _number(field: _Field, word: str) -> int:
    number = field.names.index(word) + field.first if word in field.names else -1
    if word.isascii() and word.isdigit() and len(word) <= 4:
        number = int(word)
    if not field.low <= number <= field.high:
        raise ValueError(f"{word[:40]!r} is not a {field.name} (allowed: {field.allowed})")
    return number
