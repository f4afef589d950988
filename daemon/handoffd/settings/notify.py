"""The settings of notices: which sinks deliver which notices, and when.

A sink has one of four forms. Without a name (`notify.ntfy`) it is called like its form (`ntfy`); with one
it is in `notify.sinks` (`notify.sinks.phone.ntfy`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, TypeVar, get_args
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from handoffd.settings.section import AbsolutePath, Hours, Minutes, Seconds, Secret, Section

_Routed = Literal["needs_human", "timeout", "blocked", "done", "warning", "reminder", "report"]
NoticeKind = Literal[_Routed, "escalation"]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]

FORMS = ("command", "webhook", "ntfy", "apprise")
"""The four forms of a sink; also the names of sinks without their own."""

GROUP = "group:"
"""The prefix of a pattern that means the projects of a group."""

EXAMPLE_TOPIC: Final = "a-name-that-is-hard-to-guess"
"""The ntfy topic of the README's example, which is public."""

_T = TypeVar("_T")

_SINK_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


def _time_of_day(text: str) -> str:
    if not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", text):
        raise ValueError("must be a time of the day from 00:00 to 23:59")
    return text


def _time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (OSError, ValueError, LookupError) as error:
        raise ValueError("must be a time zone that this machine knows, such as Europe/Berlin") from error
    return name


def _not_escalation(kind: Any) -> Any:
    """Refuse the kind `escalation`, which another setting routes; the message names that setting."""
    if kind == "escalation":
        allowed = {"expected": " or ".join(map(repr, get_args(_Routed)))}
        raise PydanticCustomError("told_by_other_key", _WHO_HEARS_ESCALATIONS, allowed)
    return kind


_WHO_HEARS_ESCALATIONS: Final = (
    "escalations go only to the sinks that notify.remind.escalate names: put the sink there"
)

RoutedKind = Annotated[_Routed, BeforeValidator(_not_escalation)]
"""A kind whose sinks the routes choose. The sinks of escalations are in `EscalationSettings`."""

TimeOfDay = Annotated[str, AfterValidator(_time_of_day)]
"""`HH:MM`."""
TimeZone = Annotated[str, AfterValidator(_time_zone)]
"""A name of the tz database."""


def _some(values: tuple[_T, ...]) -> tuple[_T, ...]:
    if not values:
        raise ValueError("must not be empty")
    return values


Some = Annotated[tuple[_T, ...], AfterValidator(_some)]
"""A list that is not empty. If its only item is invalid, the error is about the item."""


def _web_address(text: str) -> str:
    try:
        parts = urlsplit(text)
        proper = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        proper = False
    # The message must not quote the text: it is logged.
    if not proper:
        raise ValueError("must be a whole address that begins with https:// or http://")
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise ValueError("must contain no blanks, and no letters outside ASCII")
    return text


def _topic(topic: SecretStr) -> SecretStr:
    if not topic.get_secret_value().strip():
        raise ValueError("must not be empty")
    return topic


def _token(token: SecretStr) -> SecretStr:
    text = token.get_secret_value()
    # It goes into a header; the message must not quote it.
    if not (text.isascii() and text.isprintable()) or " " in text or not text:
        raise ValueError("must be one word of ASCII")
    return token


def _one_of(section: Section, *names: str) -> None:
    """Raise ValueError unless exactly one of these keys is given."""
    if sum(getattr(section, name) is not None for name in names) != 1:
        raise ValueError(f"needs exactly one of these: {', '.join(names)}")


class WebhookSettings(Section):
    """A URL that receives every notice as JSON by POST. It is a secret: most hold a key."""

    url: Secret
    timeout_s: Seconds = 10

    @field_validator("url")
    @classmethod
    def _must_be_web_address(cls, url: SecretStr) -> SecretStr:
        _web_address(url.get_secret_value())
        return url


class NtfySettings(Section):
    """A topic of an ntfy server. The topic is secret, too: a person who knows it can read its messages."""

    server: Annotated[str, AfterValidator(_web_address)] = "https://ntfy.sh"
    topic: Annotated[Secret, AfterValidator(_topic)]
    token: Annotated[Secret, AfterValidator(_token)] | None = None
    priority: Mapping[NoticeKind, Annotated[int, Field(ge=1, le=5)]] = Field(default_factory=dict)
    """1 to 5 by kind, instead of our defaults."""
    tags: tuple[str, ...] = ()
    click: Annotated[str, AfterValidator(_web_address)] | None = None
    """The address that a tap on the notice opens."""
    timeout_s: Seconds = 10


class AppriseSettings(Section):
    """Addresses of apprise, which supports more than a hundred services. They are secrets."""

    urls: Some[Secret] | None = None
    """Each may hold several, one per line; lines that begin with # are comments."""
    config_file: AbsolutePath | None = None
    """A configuration file of apprise, as text or YAML."""
    tags: tuple[str, ...] = ()
    """Only addresses of the configuration file with one of these tags."""
    timeout_s: Seconds = 30

    @model_validator(mode="after")
    def _must_have_addresses(self) -> AppriseSettings:
        _one_of(self, "urls", "config_file")
        if self.urls is not None and not self.addresses():
            raise ValueError("contains no address")
        return self

    def addresses(self) -> list[str]:
        """Return the addresses of `urls`."""
        lines = (line.strip() for url in self.urls or () for line in url.get_secret_value().splitlines())
        return [line for line in lines if line and not line.startswith("#")]


class Forms(Section):
    """The four forms of a sink."""

    command: Some[str] | None = None
    """argv of a program that gets the notice as JSON on stdin; its remaining processes are killed."""
    command_timeout_s: Seconds = 30
    webhook: WebhookSettings | None = None
    ntfy: NtfySettings | None = None
    apprise: AppriseSettings | None = None


class SinkSettings(Forms):
    """A sink: one way to reach people, in one of the four forms."""

    quiet: bool = True
    """Whether it observes quiet hours."""
    digest: bool = True
    """Whether it gets digests instead of single notices."""
    burst: bool | None = None
    """Whether many notices at once become one; None: for ntfy and apprise, which reach people."""

    @model_validator(mode="after")
    def _must_have_one_form(self) -> SinkSettings:
        _one_of(self, *FORMS)
        return self

    @property
    def folds(self) -> bool:
        """Whether many notices at once become one."""
        return self.burst if self.burst is not None else bool(self.ntfy or self.apprise)

    @property
    def switched_off(self) -> str | None:
        """Why the sink sends nothing; None when it is in use."""
        if self.ntfy is None or self.ntfy.topic.get_secret_value().strip() != EXAMPLE_TOPIC:
            return None
        return f"its topic, {EXAMPLE_TOPIC}, is the public one of the examples: choose your own"


class RouteSettings(Section):
    """Which notices go to which sinks. None: any kind, any project."""

    kinds: Some[RoutedKind] | None = None
    projects: Some[str] | None = None
    """Patterns (`*`, `?`, `[…]`) of a project's name or of its path; `group:NAME` for a group of projects."""
    to: tuple[str, ...]
    """Names of sinks; without names such notices go nowhere."""


class QuietSettings(Section):
    """Hours in which only urgent notices are sent."""

    start: TimeOfDay
    end: TimeOfDay
    """Before `start`: on the next day."""
    timezone: TimeZone | None = None
    days: Some[Day] | None = None
    """The days on which quiet hours begin; None: all."""
    urgent: tuple[NoticeKind, ...] = ()
    """The kinds that are sent all the same."""

    @model_validator(mode="after")
    def _must_end(self) -> QuietSettings:
        if self.start == self.end and len(set(self.days or range(7))) == 7:
            raise ValueError("must not be the whole of every day: no notice would ever be sent")
        return self


class DigestSettings(Section):
    """When collected notices are sent as one, and of which kinds."""

    at: TimeOfDay | None = None
    every_h: Hours | None = None
    timezone: TimeZone | None = None
    kinds: Some[NoticeKind] = ("done", "warning")

    @model_validator(mode="after")
    def _must_have_a_time(self) -> DigestSettings:
        _one_of(self, "at", "every_h")
        return self


class EscalationSettings(Section):
    """Further sinks for a task that has waited for a person that long."""

    after_min: Minutes
    to: Some[str]
    """Names of sinks. Routes and `events` do not apply to them."""


class RemindSettings(Section):
    """When people are reminded of a task that waits for them."""

    after_min: tuple[Minutes, ...] = (60, 240, 1440)
    escalate: tuple[EscalationSettings, ...] = ()


class BurstSettings(Section):
    """How many notices of one kind a sink gets at once; the rest become one."""

    most: int = Field(10, ge=1, le=1_000_000)
    within_s: Seconds = 60


class ReportSettings(Section):
    """When the report of a night is sent, as a notice of the kind `report`."""

    at: TimeOfDay | Literal["off"] | None = None
    """None: when the quiet hours end, or at 07:00."""
    timezone: TimeZone | None = None


class NotifySettings(Forms):
    """Which notices are sent, by which sinks, and when."""

    sinks: Mapping[str, SinkSettings] = Field(default_factory=dict)
    """Further sinks, by name."""
    events: tuple[RoutedKind, ...] = (
        "needs_human", "timeout", "blocked", "done", "warning", "reminder", "report",
    )  # fmt: skip
    routes: tuple[RouteSettings, ...] = ()
    quiet: QuietSettings | None = None
    digest: DigestSettings | None = None
    remind: RemindSettings = RemindSettings()
    burst: BurstSettings = BurstSettings()
    backoff_s: Seconds = 5
    """Pause after the first failure; it doubles with each further one in a row."""
    backoff_max_s: Seconds = 900
    give_up_h: Hours = 24
    """Hours of a running daemon after which an undelivered notice is given up."""

    @field_validator("sinks")
    @classmethod
    def _must_be_names(cls, sinks: Mapping[str, SinkSettings], info: ValidationInfo) -> Mapping[str, Any]:
        for name in sinks:
            if not _SINK_NAME.fullmatch(name):
                raise ValueError("a sink's name has 1 to 32 small letters, digits, - and _")
            if name in FORMS and info.data.get(name) is not None:
                raise ValueError(f"{name} exists twice: as notify.{name} and as notify.sinks.{name}")
        return sinks

    @field_validator("routes")
    @classmethod
    def _must_lead_somewhere(
        cls, routes: tuple[RouteSettings, ...], info: ValidationInfo
    ) -> tuple[RouteSettings, ...]:
        _check_names((name for route in routes for name in route.to), info)
        return routes

    @field_validator("remind")
    @classmethod
    def _must_escalate_to_sinks(cls, remind: RemindSettings, info: ValidationInfo) -> RemindSettings:
        _check_names((name for rung in remind.escalate for name in rung.to), info)
        return remind

    def groups(self) -> tuple[str, ...]:
        """Return the groups of projects that the routes name."""
        patterns = (pattern for route in self.routes for pattern in route.projects or ())
        return tuple(one.removeprefix(GROUP) for one in patterns if one.startswith(GROUP))

    def named(self) -> dict[str, SinkSettings]:
        """Return every sink by its name, first the ones called like their form."""
        simple = {form: getattr(self, form) for form in FORMS if getattr(self, form) is not None}
        limits = {"command": {"command_timeout_s": self.command_timeout_s}}
        made = {
            form: SinkSettings.model_validate({form: value, **limits.get(form, {})})
            for form, value in simple.items()
        }
        return {**made, **self.sinks}

    def in_use(self) -> dict[str, SinkSettings]:
        """Return the sinks that send notices, by name."""
        return {name: sink for name, sink in self.named().items() if sink.switched_off is None}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Which sinks are switched off, and why, in words."""
        off = ((name, sink.switched_off) for name, sink in self.named().items())
        return tuple(f"the sink {name} is switched off: {why}" for name, why in off if why is not None)


def _check_names(names: Iterable[str], info: ValidationInfo) -> None:
    """Raise ValueError for a sink that does not exist, unless a sink itself is invalid."""
    if not {"sinks", *FORMS} <= info.data.keys():
        return
    known = [*(form for form in FORMS if info.data[form] is not None), *info.data["sinks"]]
    if wrong := [repr(name[:32]) for name in dict.fromkeys(names) if name not in known]:
        raise ValueError(f"there is no sink {', '.join(wrong)} (sinks: {', '.join(known) or 'none'})")
