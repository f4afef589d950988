"""What one line of an agent's output tells, by the rules for it.

Agents and tools write these lines, so each value may be anything: what has not the expected form is
passed over, and nothing here raises. Texts are returned as they are, neither bounded nor printable, but for
the verdict, the line in which an agent tells how its run went: that is shown to people.

Neither the exit code nor a line's subtype can be trusted: some agents report a failed request as a
success with exit code 0. What counts is the error flag of the last such line.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

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
"""How much of a plain line expressions look at: of a longer one they might never come back."""

Kind = Literal["session", "told", "said", "thought", "tool", "tool_result", "tool_error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One thing that was said to the agent (`told`), or by it, or done. `tool` names the tool of a call.

    Agents keep some thoughts to themselves: their `text` is empty.
    """

    kind: Kind
    text: str
    tool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What a line says about usage: of the whole run (or session) so far, or more of it.

    Of several lines with the same `key`, the last counts.
    """

    mode: Literal["total", "add"]
    usage: Usage
    key: str | None = None
    counts: Literal["run", "session"] = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReading:
    """What a line tells. `data` is its JSON object, or the named groups of the expression that it fits."""

    data: Mapping[str, Any]
    known: bool = False
    """A rule fits the line."""
    parts: tuple[Part, ...] = ()
    files: tuple[str, ...] = ()
    usage: Stated | None = None
    error: str | None = None
    resets_at: float | None = None
    verdict: StreamVerdict | None = None


def read_line(line: str | bytes, rules: StreamFormat) -> LineReading | None:
    """Return what a line tells; None when it is neither a JSON object nor fits an expression."""
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
    """Return the JSON object in `line`, None when it holds anything else, or more besides."""
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
    """Yield what the rule's parts speak of; what should be a list and is none stands for its only item."""
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
    """Return the usage of a line; None when it has no number where one should be."""
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
    return Stated(mode=rule.mode, usage=usage, key=key if isinstance(key, str) else None, counts=rule.counts)


# --- how the run went --------------------------------------------------------------------------------
MAX_TEXT_CHARS = 500
MAX_NAME_CHARS = 64
MAX_TOOLS = 10
_NO_TEXT = "an error without a text"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamVerdict:
    """`is_error` is None when the stream does not say (it was cut off, or is no such stream)."""

    is_error: bool | None = None
    error: str | None = None
    """One line, at most 500 characters; set only with `is_error`."""
    said: str | None = None
    """The agent's last message when it does not report an error; one line, as long."""
    denied: tuple[str, ...] = ()
    """The tools it wanted and was not permitted to use, each once."""


def verdict_of(data: Mapping[str, Any], rule: ResultRule) -> StreamVerdict:
    """Return what a line's object says about the run."""
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
    """Return a text as one printable line of at most `most` characters; None when nothing is in it."""
    # A text may be as long as a line of the stream: what cannot be shown need not be split.
    return printable(" ".join(text[: 8 * most].split()))[:most] or None


# --- looking things up in JSON -----------------------------------------------------------------------
ALL = "*"
ITSELF = "."
MOST = 10**15
"""No count and no cost is as large."""

_SHORT_NUMBER = re.compile(r"(\d{1,3}(?:,\d{3})+|\d{1,15})(\.\d{1,12})?([kKM]?)", re.ASCII)
_SCALE = {"": 1, "k": 1_000, "K": 1_000, "M": 1_000_000}


def find(data: object, path: str) -> Iterable[Any]:
    """Return what is at `path`; several things where it holds `*`. A null is nothing."""
    keys = _keys(path)
    if ALL in keys:
        return _walk(data, keys)
    value = first(data, path)
    return () if value is None else (value,)


def first(data: object, path: str) -> Any:
    """Return the first thing at `path`; None when there is none."""
    keys = _keys(path)
    if ALL in keys:
        return next(_walk(data, keys), None)
    for key in keys:
        data = _inside(data, key)
    return data


def fits(data: object, conditions: Conditions) -> bool:
    """Return whether each path leads to one of its values, which must be of the same type as well."""
    return all(_is_one_of(first(data, path), values) for path, values in conditions.items())


def text_at(data: object, paths: Paths) -> str:
    """Return the text at the first path that has one, its parts joined by line breaks; else none."""
    return next((joined for path in paths if (joined := "\n".join(_texts(data, path)))), "")


def word_at(data: object, paths: Paths) -> str:
    """Return the text or the whole number at the first path that has one; else none."""
    found = (first(data, path) for path in paths)
    words = (str(one).strip() for one in found if isinstance(one, str | int) and not isinstance(one, bool))
    return next(filter(None, words), "")


def texts_at(data: object, paths: Paths) -> tuple[str, ...]:
    """Return all texts at all paths."""
    return tuple(text for path in paths for text in _texts(data, path))


def argument_at(data: object, paths: Paths) -> str:
    """Return the text at the first path that has one; of another kind of value, its JSON."""
    for path in paths:
        for value in find(data, path):
            if isinstance(value, str) and value.strip():
                return value
            if isinstance(value, dict | list) and value:
                return _dumped(value)
    return ""


def number_at(data: object, paths: Paths) -> float | None:
    """Return the sum of the numbers at all paths; None when there is none. `2.3k` is a number, too."""
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
    """Return what is at `key` of a mapping, or at that place of a list; None when there is nothing."""
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
