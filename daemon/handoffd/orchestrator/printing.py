"""JSON as the reference prints it, to the byte: scripts compare text, and some cut it with sed.

Differs from Python's own in numbers (5.0 is 5, small ones have other exponents), in the order of keys
that look like array indices, and in halves of surrogate pairs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

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
    """Return a number as JavaScript writes it; what is not finite is null."""
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
