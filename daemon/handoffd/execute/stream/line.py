"""Reads one line of an agent's output by the rules for it.

Agents and tools write these lines, so each value may be anything: a value of another form is skipped, and
nothing here raises. Texts are returned unchanged, neither bounded nor printable, except in the verdict, the
line that reports the result of the run: people read that.

Neither the exit code nor a line's subtype is reliable: some agents report a failed request as a success with
exit code 0. The error flag of the last result line counts.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

from msgspec import Struct

from handoffd.engine.run import Usage
from handoffd.execute.reports.report import printable
from handoffd.execute.stream.format import (
    Conditions,
    LineRule,
    PartRule,
    Paths,
    ResultRule,
    StreamFormat,
    UsageRule,
)

MAX_PLAIN = 1024
"""How much of a plain line the expressions search: on a longer one they might run for hours."""

MAX_KEY_CHARS = 256
"""Of what tells whether a usage is reported again: readers keep some of them, and write them down."""

Kind = Literal["session", "told", "said", "thought", "tool", "tool_result", "tool_error"]


class Part(Struct, frozen=True, kw_only=True):
    """One message to the agent (`told`), message from it, or action. `tool` names the tool of a call.

    The `text` of a thought that the agent does not publish is empty.
    """

    kind: Kind
    text: str
    tool: str = ""


class Stated(Struct, frozen=True, kw_only=True):
    """The usage in a line: of the whole run (or session) so far, or an addition to it.

    Of several lines with the same `key`, the last one counts.
    """

    mode: Literal["total", "add"]
    usage: Usage
    key: str | None = None
    counts: Literal["run", "session"] = "run"


class LineReading(Struct, frozen=True, kw_only=True):
    """The content of a line. `data` is its JSON object, or the named groups of the matching expression."""

    data: Mapping[str, Any]
    known: bool = False
    """Whether a rule fits the line."""
    parts: tuple[Part, ...] = ()
    files: tuple[str, ...] = ()
    usage: Stated | None = None
    error: str | None = None
    resets_at: float | None = None
    verdict: StreamVerdict | None = None


def read_line(line: str | bytes, rules: StreamFormat) -> LineReading | None:
    """Return the content of a line; None if it is neither a JSON object nor matches an expression."""
    data = decoded(line)
    if data is not None:
        rule = next((rule for rule in _rules_for(data, rules) if fits(data, rule.when or {})), None)
        return LineReading(data=data) if rule is None else _told(data, rule)
    begun = line[:MAX_PLAIN]
    text = begun if isinstance(begun, str) else begun.decode("utf-8", "replace")
    for rule in rules.lines:
        if rule.match is not None and (found := rule.match.search(text)):
            return _told(found.groupdict(), rule)
    return None


def decoded(line: str | bytes) -> dict[str, Any] | None:
    """Return the JSON object in `line`; None if the line holds anything else."""
    line = line.strip()
    opening, closing = ("{", "}") if isinstance(line, str) else (b"{", b"}")
    if not (line[:1] == opening and line[-1:] == closing):
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _rules_for(data: Mapping[str, Any], rules: StreamFormat) -> tuple[LineRule, ...]:
    kind = data.get("type")
    others = rules.for_objects[None]
    return rules.for_objects.get(kind, others) if isinstance(kind, str | int) else others


def _told(data: Mapping[str, Any], rule: LineRule) -> LineReading:
    parts: list[Part] = []
    files: list[str] = []
    for item in _items(data, rule):
        part = next((part for part in rule.parts if fits(item, part.where)), None)
        if part is not None:
            parts += _parts(item, part)
            files += texts_at(item, part.file)
    return LineReading(
        data=data,
        known=True,
        parts=tuple(parts),
        files=tuple(files),
        usage=_stated(data, rule.usage) if rule.usage else None,
        error=text_at(data, rule.error) or None,
        resets_at=number_at(data, rule.resets),
        verdict=verdict_of(data, rule.result) if rule.result else None,
    )


def _items(data: Mapping[str, Any], rule: LineRule) -> Iterator[object]:
    """Yield the items to which the rule's parts apply; a value in place of a list counts as its only item."""
    for found in find(data, rule.each or "."):
        if isinstance(found, list):
            yield from found
        else:
            yield found


def _parts(item: object, rule: PartRule) -> Iterator[Part]:
    if rule.session and (begun := texts_at(item, rule.session)):
        yield Part(kind="session", text=", ".join(begun))
    if rule.told and (told := text_at(item, rule.told)):
        yield Part(kind="told", text=told)
    if rule.thought:
        yield Part(kind="thought", text=text_at(item, rule.thought))
    if rule.said and (said := text_at(item, rule.said)):
        yield Part(kind="said", text=said)
    if rule.tool and (tool := text_at(item, rule.tool)):
        yield Part(kind="tool", text=argument_at(item, rule.argument), tool=tool)
    if rule.tool_result:
        yield Part(kind="tool_result", text=text_at(item, rule.tool_result))
    if rule.tool_error:
        yield Part(kind="tool_error", text=text_at(item, rule.tool_error))


def _stated(data: Mapping[str, Any], rule: UsageRule) -> Stated | None:
    """Return the usage of a line; None if it has no number at any of the paths."""
    counts = [
        number_at(data, paths) for paths in (rule.input, rule.output, rule.cache_read, rule.cache_write)
    ]
    cost = number_at(data, rule.cost)
    if cost is None and all(count is None for count in counts):
        return None
    sent, answered, read, wrote = (int(count or 0) for count in counts)
    usage = Usage(
        input_tokens=max(0, sent - read - wrote) if rule.input_includes_cache else sent,
        output_tokens=answered,
        cache_read_tokens=read,
        cache_write_tokens=wrote,
        cost_usd=None if cost is None else float(cost),
        priced=None if cost is None else "provider",
    )
    key = first(data, rule.per) if rule.per else None
    named = printable(key[:MAX_KEY_CHARS]) if isinstance(key, str) else None
    return Stated(mode=rule.mode, usage=usage, key=named, counts=rule.counts)


# --- the result of the run ---------------------------------------------------------------------------
MAX_TEXT_CHARS = 500
MAX_NAME_CHARS = 64
MAX_TOOLS = 10
_NO_TEXT = "an error without a text"


class StreamVerdict(Struct, frozen=True, kw_only=True):
    """The result that a stream reports. `is_error` is None if the result line has no such flag."""

    is_error: bool | None = None
    error: str | None = None
    """One line, at most 500 characters; set only with `is_error`."""
    said: str | None = None
    """The agent's last message if it reports no error; one line, at most 500 characters."""
    denied: tuple[str, ...] = ()
    """The tools that the agent was not permitted to use, each once."""


def verdict_of(data: Mapping[str, Any], rule: ResultRule) -> StreamVerdict:
    """Return the result of the run in a line's object."""
    flag = rule.is_error if isinstance(rule.is_error, bool) else first(data, rule.is_error)
    is_error = flag if isinstance(flag, bool) else None
    error = one_line(text_at(data, rule.error or rule.text)) or _NO_TEXT
    names = (printable(name)[:MAX_NAME_CHARS] for name in texts_at(data, rule.denied))
    return StreamVerdict(
        is_error=is_error,
        error=error if is_error else None,
        said=one_line(text_at(data, rule.text)) if is_error is False else None,
        denied=tuple(dict.fromkeys(names))[:MAX_TOOLS],
    )


def one_line(text: str, most: int = MAX_TEXT_CHARS) -> str | None:
    """Return a text as one printable line of at most `most` characters; None if it is empty."""
    # A text may be as long as a line of the stream, so most of it is cut off before the work.
    return printable(" ".join(text[: 8 * most].split()))[:most] or None


# --- looking things up in JSON -----------------------------------------------------------------------
ALL = "*"
ITSELF = "."
MOST = 10**15
"""Larger numbers are not counts or costs."""

_SHORT_NUMBER = re.compile(r"(\d{1,3}(?:,\d{3})+|\d{1,15})(\.\d{1,12})?([kKM]?)", re.ASCII)
_SCALE = {"": 1, "k": 1_000, "K": 1_000, "M": 1_000_000}


def find(data: object, path: str) -> Iterable[Any]:
    """Return the values at `path`, several if it holds `*`. A null does not count."""
    keys = _keys(path)
    if ALL in keys:
        return _walk(data, keys)
    value = first(data, path)
    return () if value is None else (value,)


def first(data: object, path: str) -> Any:
    """Return the first value at `path`; None if there is none."""
    keys = _keys(path)
    if ALL in keys:
        return next(_walk(data, keys), None)
    for key in keys:
        data = _inside(data, key)
    return data


def fits(data: object, conditions: Conditions) -> bool:
    """Return whether the value at each path is an allowed one, of the same type (True is not 1)."""
    return all(_is_one_of(first(data, path), values) for path, values in conditions.items())


def text_at(data: object, paths: Paths) -> str:
    """Return the text at the first path that has one, its parts joined by line breaks; else ""."""
    return next((joined for path in paths if (joined := "\n".join(_texts(data, path)))), "")


def word_at(data: object, paths: Paths) -> str:
    """Return the text or the whole number at the first path that has one; else ""."""
    found = (first(data, path) for path in paths)
    words = (str(one).strip() for one in found if isinstance(one, str | int) and not isinstance(one, bool))
    return next(filter(None, words), "")


def texts_at(data: object, paths: Paths) -> tuple[str, ...]:
    """Return all texts at all paths."""
    return tuple(text for path in paths for text in _texts(data, path))


def argument_at(data: object, paths: Paths) -> str:
    """Return the text at the first path that has one; a list or mapping becomes JSON."""
    for path in paths:
        for value in find(data, path):
            if isinstance(value, str) and value.strip():
                return value
            if isinstance(value, dict | list) and value:
                return _dumped(value)
    return ""


def number_at(data: object, paths: Paths) -> float | None:
    """Return the sum of the numbers at all paths; None if there is none. `2.3k` is a number, too."""
    found = [number for path in paths for value in find(data, path) if (number := _number(value)) is not None]
    return min(sum(found), MOST) if found else None


@lru_cache(maxsize=1024)
def _keys(path: str) -> tuple[str, ...]:
    return () if path == ITSELF else tuple(path.split("."))


def _walk(data: object, keys: tuple[str, ...]) -> Iterator[Any]:
    for place, key in enumerate(keys):
        if key == ALL:
            values = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
            for value in values:
                yield from _walk(value, keys[place + 1 :])
            return
        data = _inside(data, key)
        if data is None:
            return
    yield data


def _inside(data: object, key: str) -> Any:
    """Return the value at `key` of a mapping, or at that index of a list; None if there is none."""
    if isinstance(data, dict):
        return data.get(key)
    if isinstance(data, list) and key.isdecimal() and int(key) < len(data):
        return data[int(key)]
    return None


def _is_one_of(value: object, values: tuple[bool | int | str, ...]) -> bool:
    return value in values and any(type(value) is type(one) and value == one for one in values)


def _texts(data: object, path: str) -> Iterator[str]:
    return (value for value in find(data, path) if isinstance(value, str) and value.strip())


def _dumped(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return ""


def _number(value: object) -> float | None:
    if isinstance(value, str) and (written := _SHORT_NUMBER.fullmatch(value)):
        whole, part, scale = written.groups("")
        value = float(whole.replace(",", "") + part) * _SCALE[scale]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value < MOST and math.isfinite(value) else None
