"""STATE.json: text in, `State` out, and back.

Other tools read and write the same file, so what is not ours to change stays as it was: unknown keys
and the order of all keys. What comes in is normalised where it nearly fits, each time with a warning;
a status that means nothing is refused, never guessed. The order of keys travels with the state (its
layout), so that it survives the journal; keys inside `tests` are in it as `tests`, NUL, key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from handoffd.clock import rfc3339
from handoffd.errors import InvalidFile, Problem
from handoffd.protocol.jsontext import JsonText, Path, load_object
from handoffd.protocol.state import Reason, State, Status, TestCounts, near_reason, near_status
from handoffd.protocol.story import is_story_id

STATE_FILE = ".ai/STATE.json"
MAX_PROBLEMS = 20
"""More help nobody, and each one costs a walk through the text."""
_REQUIRED = ("project", "step", "status")
_LISTS = ("failing_tests", "files_changed", "blocked_by")
_NULLABLE_WHEN_BLANK = ("story", "reason", "dispatched_at", "completed_at", "reopened_from")
_COUNTS = {"passed": "pass", "failed": "fail", "skipped": "skip"}
_NESTED = "tests\0"
_PLAIN = frozenset({str, int, bool, type(None)})


@dataclass(frozen=True, slots=True)
class ParsedState:
    """A STATE.json as a value; `warnings` say what was normalised, one sentence each."""

    state: State
    warnings: tuple[str, ...] = ()


def parse_state(text: str | bytes, *, file: str = STATE_FILE) -> ParsedState:
    """Return the state that `text` describes. Raises InvalidFile with the problems of its values."""
    raw = load_object(text, file)
    values = dict(raw.data)
    warnings = tuple(_normalise(values))
    flaws = [_Flaw((key,), "is missing") for key in _REQUIRED if key not in values]
    story = values.get("story")
    if isinstance(story, str) and not is_story_id(story):
        flaws.append(_Flaw(("story",), "is not a story id (A-Z a-z 0-9 . _ -, at most 64)"))
    try:
        state = State.model_validate(values)
    except ValidationError as error:
        found = [item for item in error.errors(include_url=False) if item["type"] != "missing"]
        flaws += [_Flaw(item["loc"], _message(item)) for item in found[:MAX_PROBLEMS]]
        raise _invalid(flaws, file, raw) from None
    if flaws:
        raise _invalid(flaws, file, raw)
    state._layout = _layout_of(values)  # noqa: SLF001  (the order of keys is this module's business)
    return ParsedState(state, warnings)


def render_state(state: State) -> str:
    """Return the text of STATE.json: 2-space JSON with a final newline, keys in their document's order."""
    layout = state._layout  # noqa: SLF001
    values = {name: _plain(value) for name, value in vars(state).items()} | (state.model_extra or {})
    if state.tests is not None:
        nested = tuple(key.removeprefix(_NESTED) for key in layout if key.startswith(_NESTED))
        values["tests"] = _ordered(_counts(state.tests), nested)
    return _document(_ordered(values, layout))


def _document(values: dict[str, Any]) -> str:
    """Return what `json.dumps` makes of `values` with an indent of 2, and a newline.

    It does that in Python for each value, as soon as there is an indent: too long for every commit.
    """
    pairs = ",\n  ".join(f"{encode_basestring(key)}: {_value(value)}" for key, value in values.items())
    return f"{{\n  {pairs}\n}}\n"


def _value(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return encode_basestring(value)
    if value is None:
        return "null"
    if kind is int:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is list and not value:
        return "[]"
    return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", "\n  ")


# --- values -------------------------------------------------------------------------------------------
def _normalise(values: dict[str, Any]) -> Iterator[str]:
    """Change near-misses in place; yield a warning for each."""
    for key in _NULLABLE_WHEN_BLANK:
        if isinstance(values.get(key), str) and not values[key].strip():
            values[key] = None
            yield f"{key} was blank and is read as null"
    for key in _LISTS:
        if key in values and values[key] is None:
            values[key] = []
            yield f"{key} was null and is read as an empty list"
    yield from _normalise_counts(values)
    yield from _normalise_status(values)
    yield from _normalise_reason(values)
    for key in ("dispatched_at", "completed_at"):
        if _lacks_offset(values.get(key)):
            yield f"{key} has no offset and is read as UTC"


def _normalise_counts(values: dict[str, Any]) -> Iterator[str]:
    tests = values.get("tests")
    if not isinstance(tests, dict):
        return
    names = {wrong: right for wrong, right in _COUNTS.items() if wrong in tests and right not in tests}
    values["tests"] = {names.get(key, key): count for key, count in tests.items()}
    for wrong, right in names.items():
        yield f"tests.{wrong} is read as tests.{right}"


def _normalise_status(values: dict[str, Any]) -> Iterator[str]:
    written = values.get("status")
    near = near_status(written) if isinstance(written, str) else None
    if near is not None and near.value != written:
        values["status"] = near.value
        yield f"status {written!r} is read as {near.value!r}"


def _normalise_reason(values: dict[str, Any]) -> Iterator[str]:
    written = values.get("reason")
    if not isinstance(written, str) or written in set(Reason):
        return
    near = near_reason(written)
    values["reason"] = near
    if near is not None:
        yield f"reason {written!r} is read as {near.value!r}"
        return
    remark = f"unknown reason {written[:200]!r}"
    earlier = values.get("last_error")
    if earlier is None or isinstance(earlier, str):
        values["last_error"] = f"{earlier}; {remark}" if earlier else remark
    yield f"reason {written[:200]!r} is not known and is read as null"


def _lacks_offset(value: object) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is None
    except ValueError:
        return False


# --- problems -----------------------------------------------------------------------------------------
class _Flaw(NamedTuple):
    path: Path
    message: str


def _invalid(flaws: list[_Flaw], file: str, raw: JsonText) -> InvalidFile:
    lines = raw.lines_of({flaw.path for flaw in flaws} | {flaw.path[:1] for flaw in flaws})
    return InvalidFile(
        tuple(
            Problem(
                file=file,
                line=lines.get(flaw.path) or lines.get(flaw.path[:1]),
                key=".".join(map(str, flaw.path)),
                message=flaw.message,
                allowed=_allowed(flaw.path),
            )
            for flaw in flaws
        )
    )


def _message(details: ErrorDetails) -> str:
    if details["type"] == "enum":
        message = "must be one of the allowed values"
    else:
        message = details["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    given = details["input"]
    return message if isinstance(given, dict | list) else f"{message}, not {_shown(given)}"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:79] + "…"


def _allowed(path: Path) -> tuple[str, ...]:
    kinds: dict[str | int, type[Enum]] = {"status": Status, "reason": Reason}
    return tuple(member.value for member in kinds[path[0]]) if path[0] in kinds else ()


# --- layout -------------------------------------------------------------------------------------------
def _layout_of(raw: dict[str, Any]) -> tuple[str, ...]:
    nested = raw.get("tests")
    inner = tuple(_NESTED + key for key in nested) if isinstance(nested, dict) else ()
    return (*raw, *inner)


def _ordered(values: dict[str, Any], layout: tuple[str, ...]) -> dict[str, Any]:
    """Return `values` in the order of `layout`; keys that are new follow in the order of the schema."""
    return {key: values[key] for key in (*dict.fromkeys(layout), *values) if key in values}


def _counts(tests: TestCounts) -> dict[str, Any]:
    known = {"pass": tests.passed, "fail": tests.failed, "skip": tests.skipped}
    return known | (tests.model_extra or {})


def _plain(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return rfc3339(value)
    return list(value) if isinstance(value, tuple) else value
