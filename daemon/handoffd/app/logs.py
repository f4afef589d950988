"""The format and destination of the daemon's log lines.

A terminal gets one line of text with key=value pairs; the systemd journal gets JSON, after a priority that
journald removes. Log lines of libraries take the same way. Two rules hold for every line, also a library's:
it contains no secret (recognised by key, and by well-known shapes of secrets inside text), and it cannot
forge a second line or control the terminal, because file names and agents' output are not trusted.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping, MutableMapping, Sequence
from functools import lru_cache, partialmethod
from typing import Any, ClassVar, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor

from handoffd.settings.model import LogSettings

REDACTED = "[redacted]"

_SECRET_KEY = re.compile(
    r"(^|_)(token|secret|password|passwd|passphrase|authorization|cookie|credential|api_?key|private_?key)s?($|_)"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SECRETS_IN_TEXT = (
    re.compile(r"(?i)(?<=://)[^\s/@:]*:[^\s/@]+(?=@)"),
    re.compile(r"(?i)(?<=\bbearer )[^\s'\",;]+"),
    re.compile(r"(?i)(?<=\bbasic )[a-z0-9+/]{8,}=*"),
    re.compile(
        r"(?i)(?<![a-z])(?P<name>[\w-]*(?:token|secret|password|passwd|api[_-]?key)s?[\"']?\s*[=:]\s*[\"']?)[^\s\"',;&]+"
    ),
)
_MAY_HOLD_SECRETS = re.compile(r"(?i)://|bearer|basic|token|secret|passw|api[_-]?key")
"""Matches a word that each secret pattern needs: most texts have none, and skip the slower patterns."""
_PRIORITIES = {"critical": 2, "error": 3, "warning": 4, "info": 6, "debug": 7}
_MOST_NESTING = 6
# They log every request, tick or file event at a level that this daemon reserves for people.
_CHATTY = ("uvicorn", "uvicorn.access", "apscheduler", "watchfiles", "httpx", "httpcore", "asyncio")

Form = Literal["text", "json"]


def configure_logging(settings: LogSettings, *, stream: TextIO, environment: Mapping[str, str]) -> None:
    """Send all logging of the process to `stream`; call it again to change level or format.

    Of `environment` only systemd's variables count (JOURNAL_STREAM, INVOCATION_ID).
    """
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    form = settings.format
    chosen = form_for(stream, environment) if form == "auto" else form
    handler = _Handler(stream, level, _finish(chosen, priorities=_is_journal(stream, environment)))
    _Lines.handler = handler
    root = logging.getLogger()
    root.handlers[:] = [other for other in root.handlers if not isinstance(other, _Handler)] + [handler]
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(
            max(level, logging.WARNING) if level > logging.DEBUG else logging.INFO
        )
    logging.captureWarnings(True)
    structlog.configure(
        processors=[*_SHARED, _as_it_is],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=_Lines,
        # Loggers live in modules for ever; a cached one would not follow a second call of this.
        cache_logger_on_first_use=False,
    )


def form_for(stream: TextIO, environment: Mapping[str, str]) -> Form:
    """Return what `auto` means here: text for a terminal, else JSON under systemd, else text.

    The terminal comes first, because a shell inside a desktop session inherits systemd's marks.
    """
    if stream.isatty():
        return "text"
    return "json" if "JOURNAL_STREAM" in environment or "INVOCATION_ID" in environment else "text"


def redact(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Return the event with every secret in it replaced: by key at any depth, and inside text."""
    return {key: _without_secrets(key, value, 0) for key, value in event.items()}


class _Handler(logging.StreamHandler[TextIO]):
    """Ours, so that a second configuration replaces it and leaves others (a test's) alone."""

    def __init__(self, stream: TextIO, level: int, finish: Sequence[Processor]) -> None:
        super().__init__(stream)
        self.setLevel(level)
        self._finish = finish
        meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
        self.setFormatter(
            structlog.stdlib.ProcessorFormatter(foreign_pre_chain=_SHARED, processors=[meta, *finish])
        )

    def write(self, lines: _Lines, method: str, event: EventDict) -> None:
        """Write a line of ours."""
        self.acquire()
        try:
            line: Any = event
            for processor in self._finish:
                line = processor(lines, method, line)
            self.stream.write(f"{line}\n")
            self.flush()
        except Exception:
            self.handleError(logging.makeLogRecord({"msg": event.get("event")}))
        finally:
            self.release()


class _Lines:
    """What structlog hands our lines to. They do without the library's records, which cost as much again."""

    handler: ClassVar[_Handler]
    """That of the latest configuration, also for loggers that are older."""

    def __init__(self, name: str) -> None:
        self.name = name

    def _write(self, event: EventDict, *, level: int, method: str) -> None:
        if level >= self.handler.level:
            self.handler.write(self, method, event)

    debug = partialmethod(_write, level=logging.DEBUG, method="debug")
    info = partialmethod(_write, level=logging.INFO, method="info")
    warning = partialmethod(_write, level=logging.WARNING, method="warning")
    error = partialmethod(_write, level=logging.ERROR, method="error")
    critical = partialmethod(_write, level=logging.CRITICAL, method="critical")


def _as_it_is(_logger: object, _method: str, event: EventDict) -> tuple[tuple[EventDict], dict[str, Any]]:
    return (event,), {}


def _finish(form: Form, *, priorities: bool) -> tuple[Processor, ...]:
    """Return what makes an event a line of text."""
    render: Processor = structlog.processors.JSONRenderer(_json) if form == "json" else _text
    return (
        structlog.processors.format_exc_info,
        redact,
        _with_priority(render) if priorities else render,
    )


_SHARED: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    structlog.processors.StackInfoRenderer(),
]


def _is_journal(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return whether `stream` is the very one systemd connected to the journal."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return environment.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def _with_priority(render: Processor) -> Processor:
    """Return `render` with `<4>` and the like in front, on every line it returns."""

    def rendered(logger: Any, method: str, event: EventDict) -> str:
        prefix = f"<{_PRIORITIES.get(event.get('level', ''), 6)}>"
        text = str(render(logger, method, event))
        return "\n".join(prefix + line for line in text.split("\n"))

    return rendered


def _json(event: Mapping[str, Any], **_options: Any) -> str:
    """Return one line of JSON; what JSON does not know is written as text."""
    first = {key: event[key] for key in ("time", "level", "logger", "event") if key in event}
    line = json.dumps({**first, **event}, default=str, ensure_ascii=False)
    # A file name that is not UTF-8 holds lone surrogates: escaped, they are still JSON.
    return line.encode("utf-8", "backslashreplace").decode("utf-8")


def _text(_logger: Any, _method: str, event: EventDict) -> str:
    """Return one line for a person, and below it, indented, a traceback if there is one."""
    time, level, message = (str(event.pop(key, "")) for key in ("time", "level", "event"))
    event.pop("logger", None)
    below = [str(event.pop(key)) for key in ("exception", "stack") if key in event]
    pairs = "".join(f" {_visible(key)}={_quoted(value)}" for key, value in event.items())
    lines = [f"    {_visible(line)}" for block in below for line in block.splitlines()]
    return "\n".join([f"{time} {level:<7} {_visible(message)}{pairs}", *lines])


def _quoted(value: object) -> str:
    text = str(value)
    plain = text.isprintable() and text and not re.search(r"[\s\"'=]", text)
    return text if plain else f'"{_visible(text, quote=True)}"'


def _visible(text: str, *, quote: bool = False) -> str:
    """Return `text` with everything escaped that is not a character on a screen."""
    if quote:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in text)


def _escape(letter: str) -> str:
    return json.dumps(letter)[1:-1] if ord(letter) < 0x20 else ascii(letter)[1:-1]


def _without_secrets(key: object, value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(key, str) and _names_secret(key):
        counted = isinstance(value, (int, float)) and "tokens" in key.lower()
        return value if counted else REDACTED
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, str):
        return _without_secrets_in_text(value)
    if depth >= _MOST_NESTING:
        return "..."
    if isinstance(value, Mapping):
        return {inner: _without_secrets(inner, item, depth + 1) for inner, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return _without_secret_items(list(value), depth)
    return _without_secrets_in_text(str(value))


def _without_secret_items(items: list[Any], depth: int) -> list[Any]:
    """Return the items; in an argv, the word after `--token` is the secret."""
    flags: list[Any] = [None, *items][: len(items)]
    return [
        _without_secrets(flag if isinstance(flag, str) and flag.startswith("-") else None, item, depth + 1)
        for flag, item in zip(flags, items, strict=True)
    ]


@lru_cache(maxsize=1024)
def _names_secret(key: str) -> bool:
    """Return whether `apiKey`, `API-KEY`, `--api_key` and the like name something secret."""
    return bool(_SECRET_KEY.search(_CAMEL.sub("_", key).lower().replace("-", "_")))


def _without_secrets_in_text(text: str) -> str:
    if not _MAY_HOLD_SECRETS.search(text):
        return text
    for pattern in _SECRETS_IN_TEXT:
        text = pattern.sub(lambda found: (found.groupdict().get("name") or "") + REDACTED, text)
    return text
