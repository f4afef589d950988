"""JSON that others wrote, as plain data: strict, bounded, and with the line of every key.

The standard parser accepts what would hurt later: duplicate keys (the last wins, silently), NaN,
numbers beyond a float, half surrogate pairs that no UTF-8 file can hold, and nesting that breaks the
writer. All of that is refused here, before a model sees it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from handoffd.errors import InvalidFile, Problem

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 50

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?|[{}\[\],]')


_BLANK = re.compile(r"\s*")

Path = tuple[str | int, ...]
"""Where a value stands: keys of objects and indices of lists, from the outside in."""


@dataclass(frozen=True, slots=True)
class JsonText:
    """A JSON object (`data`) and the text it was read from."""

    data: dict[str, Any]
    text: str

    def lines_of(self, paths: Collection[Path]) -> dict[Path, int]:
        """Return the lines, from 1, of the values under `paths`; what is not there is left out."""
        wanted = set(paths)
        found: dict[Path, int] = {}
        at: list[str | int] = []
        for token in _TOKEN.finditer(self.text):
            match token[0][0]:
                case "{":
                    at.append("")
                case "[":
                    at.append(0)
                case "}" | "]":
                    at.pop()
                case ",":
                    at[-1] = at[-1] + 1 if isinstance(at[-1], int) else ""
                case _ if token[1] is not None:
                    at[-1] = str(json.loads(token[0].rstrip(": \t\r\n")))
                case _:
                    continue
            path = tuple(at)
            if path in wanted and path not in found:
                value = _BLANK.match(self.text, token.end())
                found[path] = self.text.count("\n", 0, value.end() if value else token.end()) + 1
        return found


def load_object(text: str | bytes, file: str) -> JsonText:
    """Return the JSON object in `text`. Raises InvalidFile."""
    content = _decode(text, file)
    try:
        data = json.loads(
            content, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite
        )
    except json.JSONDecodeError as error:
        message = "is empty" if not content.strip() else f"is not valid JSON ({error.msg})"
        raise _invalid(file, message, line=error.lineno) from None
    except _DuplicateKeyError as error:
        last = content.rfind(json.dumps(error.key, ensure_ascii=False))
        line = content.count("\n", 0, last) + 1 if last >= 0 else None
        raise _invalid(file, "the key is given twice", line=line, key=error.key) from None
    except ValueError as error:
        raise _invalid(file, f"holds a number that cannot be kept ({error})") from None
    except RecursionError:
        raise _invalid(file, f"is nested more than {MAX_DEPTH} levels deep") from None
    if not isinstance(data, dict):
        raise _invalid(file, "must be a JSON object", line=1)
    _check_whole(data, file)
    return JsonText(data, content)


def _check_whole(data: dict[str, Any], file: str) -> None:
    if _deeper_than(data, MAX_DEPTH):
        raise _invalid(file, f"is nested more than {MAX_DEPTH} levels deep")
    try:
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _invalid(file, "holds half of a surrogate pair, which is no character") from None


def _decode(text: str | bytes, file: str) -> str:
    content = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    if len(content) > MAX_BYTES:
        raise _invalid(file, f"is larger than {MAX_BYTES // 1024} KiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _invalid(file, "is not UTF-8", line=content.count(b"\n", 0, error.start) + 1) from None


class _DuplicateKeyError(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _DuplicateKeyError(key)
        found[key] = value
    return found


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is out of range")
    return number


def _deeper_than(value: object, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    items = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper_than(item, levels - 1) for item in items)


def _invalid(file: str, message: str, *, line: int | None = None, key: str | None = None) -> InvalidFile:
    return InvalidFile((Problem(file=file, line=line, key=key, message=message),))
