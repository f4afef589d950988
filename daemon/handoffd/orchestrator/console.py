"""Arguments in, by position, and lines out, as JSON that equals the reference's to the byte.

Text copied from a chat or a document has invisible characters; we remove them, as the reference does. It
also removes everything beyond ASCII, and so a Chinese message: that we keep.

Scripts compare the JSON, and some cut it with sed. The reference's differs from Python's own in numbers
(5.0 is 5, small ones have other exponents), in the order of keys that look like array indices, and in
halves of surrogate pairs. A verb returns its output as a value; only `main` writes it.
"""

from __future__ import annotations

import json
import math
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from msgspec import Struct

# --- words in ----------------------------------------------------------------------------------------
FORCE = "--force"
AGENT_TEAMS = "--agent-teams"

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_KEPT = frozenset("\n\t")


class UsageError(Exception):
    """The arguments cannot be understood; `lines` say why, for stderr."""

    def __init__(self, *lines: str) -> None:
        super().__init__(*lines)
        self.lines = lines


class Words(Struct, frozen=True):
    """The arguments after the verb; a missing word is an empty one."""

    given: tuple[str, ...]

    @classmethod
    def of(cls, raw: Sequence[str]) -> Words:
        """Return the words without invisible characters."""
        return cls(tuple(map(seen, raw)))

    def root(self) -> str:
        """Return the project's folder, absolute. Raises UsageError when it is missing."""
        return os.path.abspath(self.needed(0, "project-root"))

    def needed(self, index: int, name: str, *more: str) -> str:
        """Return a word. Raises UsageError when it is missing, with `more` lines, such as an example."""
        word = self.at(index)
        if not word:
            raise UsageError(f"Error: <{name}> is required", *more)
        return word

    def at(self, index: int) -> str:
        """Return a word, or the empty one."""
        return self.given[index] if index < len(self.given) else ""

    def rest(self, index: int) -> str:
        """Return all words from there on, as one text."""
        return " ".join(self.given[index:])

    def has(self, flag: str) -> bool:
        """Return whether a flag is among the words."""
        return flag in self.given


def seen(word: str) -> str:
    """Return a word without invisible characters, and without space around it."""
    kept = (char for char in word if char in _KEPT or unicodedata.category(char) not in _INVISIBLE)
    return "".join(kept).strip()


# --- lines out ---------------------------------------------------------------------------------------
FAILED, RECOVERABLE, BROKEN = 1, 2, 127


class Said(Struct, frozen=True):
    """`out` is what scripts read, `err` what people do."""

    out: tuple[str, ...] = ()
    err: tuple[str, ...] = ()
    code: int = 0


def as_json(value: Any, *err: str, code: int = 0) -> Said:
    """Return a value for stdout as JSON."""
    return Said((js_json(value),), err, code)


def refused(verb: str, error: Mapping[str, Any], code: int | None = None) -> Said:
    """Return an error as the reference prints it: JSON for programs, a line and the next command for people.

    `error` has `code`, `message`, perhaps `recoverable`, and of ours `next_command`. The exit code is 2
    for what may work later, else 1, unless `code` is given: then the error is never recoverable.
    """
    recoverable = bool(error.get("recoverable")) and code is None
    shown = {"type": "error", "code": error["code"], "message": error["message"], "recoverable": recoverable}
    err = [f"[{verb}] ERROR ({error['code']}): {error['message']}"]
    if error.get("next_command"):
        err.append(f"  next: {error['next_command']}")
    given = RECOVERABLE if recoverable else FAILED
    return as_json(shown, *err, code=given if code is None else code)


def broken(message: str, hint: str | None = None) -> Said:
    """Return the output for a verb that cannot be carried out at all."""
    error = {"type": "error", "code": "INTERNAL_ERROR", "message": message}
    more = (f"  next: {hint}",) if hint else ()
    return as_json(error, f"[INTERNAL] {message}", *more, code=BROKEN)


# --- JSON as JavaScript writes it --------------------------------------------------------------------
_LONE = re.compile("[\ud800-\udfff]")
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
_LAST_INDEX = 2**32 - 2
_EXACT = 2**53


def js_json(value: Any, indent: str = "") -> str:
    """Return `value` as JSON.stringify(value, null, 2) writes it."""
    inner = indent + "  "
    if isinstance(value, Mapping):
        items = [f"{inner}{_text(key)}: {js_json(item, inner)}" for key, item in _ordered(value)]
        return _wrapped("{", items, indent, "}")
    if isinstance(value, list | tuple):
        return _wrapped("[", [inner + js_json(item, inner) for item in value], indent, "]")
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return js_number(value)


def js_number(value: float) -> str:
    """Return a number as JavaScript writes it; infinity and NaN are null."""
    if isinstance(value, int) and abs(value) <= _EXACT:
        return str(value)
    number = _as_double(value)
    if not math.isfinite(number):
        return "null"
    if number == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)
    return ("-" if sign else "") + _laid_out("".join(map(str, digits)), exponent + len(digits))


def _as_double(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _laid_out(digits: str, point: int) -> str:
    """Return digits with the decimal point behind the first `point` of them, by ECMAScript's rules."""
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    mantissa = digits if len(digits) == 1 else f"{digits[0]}.{digits[1:]}"
    return f"{mantissa}e{point - 1:+d}"


def _ordered(value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the items with keys that are array indices first, as JavaScript's objects have them."""
    indices = [key for key in value if _INDEX.fullmatch(key) and int(key) <= _LAST_INDEX]
    if not indices:
        return list(value.items())
    rest = [(key, item) for key, item in value.items() if key not in set(indices)]
    return [*((key, value[key]) for key in sorted(indices, key=int)), *rest]


def _text(value: str) -> str:
    return _LONE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def _wrapped(begin: str, items: list[str], indent: str, end: str) -> str:
    if not items:
        return begin + end
    return begin + "\n" + ",\n".join(items) + f"\n{indent}{end}"
