"""What is started by the clock: the entries of `schedule` in the settings, checked as they are read.

Only what an entry says is known here; when it is due next is reckoned in `schedule/`.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from handoffd.crontab import parse

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_STORY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_BLANKS: Final = ("{name}", "{date}", "{time}", "{week}")
_SAMPLE: Final = datetime(2026, 12, 31, 23, 59)  # noqa: DTZ001  (only its digits are looked at)


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
    """A story or custom task that is started by the clock; exactly one of `start` and `custom`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Annotated[str, AfterValidator(_name)]
    cron: Annotated[str, AfterValidator(_cron)]
    timezone: Annotated[str, AfterValidator(_zone)] | None = None
    """None: that of the machine."""
    start: Annotated[str, AfterValidator(_template)] | None = None
    """The story's id; {name}, {date}, {time} and {week} of the time it is due are filled in."""
    custom: Annotated[str, Field(min_length=1, max_length=64 * 1024)] | None = None
    """The instruction of a custom task, instead."""
    label: Annotated[str, AfterValidator(_template)] = "{name}-{date}-{time}"
    """What a custom task is called."""
    overlap: Literal["skip", "queue"] = "skip"
    """What becomes of it while another story is in flight."""
    catch_up: Literal["none", "one"] = "none"
    """`one`: when the daemon was down, the latest time that was missed is made up for."""
    catch_up_h: float = Field(24, gt=0, le=24 * 366)
    """Hours after which what was missed is missed."""
    jitter_s: float = Field(0, ge=0, le=3600)
    """Up to so many seconds later, another number for each project."""
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
        """When it is due, as text: an entry with another one begins anew."""
        return f"{self.cron} {self.timezone or ''}".strip()

    def story(self, due: datetime) -> str:
        """Return the id of what is started at the time `due`, which is local."""
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
