"""Looking things up in JSON that strangers wrote: nothing here raises, whatever the values are."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from handoffd.execute.stream.format import Conditions, Paths

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
