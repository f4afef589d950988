"""What expressions compute with: operators and functions, each by the kinds that it takes, within a bound.

The closures of an expression handle plain data: None, bool, float, str, list, dict. What has no value raises
Failed, so that no error counts as true. Steps are counted, so that no expression takes long.
"""

from __future__ import annotations

import math
import operator
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import product
from typing import Any, Final

import msgspec
from msgspec import Struct

from handoffd.protocol.patterns import pattern_of

Values = dict[str, Any]
"""The values of one evaluation by name, and the steps that are left under `STEPS`."""
Run = Callable[[Values], Any]
STEPS: Final = ""
MOST_STEPS: Final = 10_000
"""Elements that the comprehensions of one evaluation go through; long values cost steps, too."""
MOST_TEXT: Final = 65_536
"""Characters of all texts in a result."""
MOST_ELEMENTS: Final = 10_000
"""Elements of all lists and maps in a result."""
MOST_LEVELS: Final = 100
"""Lists and maps in each other, in a value."""
TYPES: Final[Mapping[str, type]] = {
    "number": float, "text": str, "boolean": bool, "list": list, "map": dict, "null": type(None),
}  # fmt: skip
_KINDS: Final = {type_: kind for kind, type_ in TYPES.items()}


class Failed(Exception):
    """Something has no value, for the reason in the message; `&&`, `||`, `all` and `exists` may absorb it."""


class Spent(Exception):
    """An evaluation is larger than its bounds; nothing absorbs this."""


def spend(values: Values, steps: int) -> None:
    """Take steps from what is left of them. Raises Spent."""
    values[STEPS] -= steps
    if values[STEPS] < 0:
        raise Spent(f"it takes more than {MOST_STEPS:,} steps through elements and long values")


def kind_of(value: object) -> str:
    """Return the kind of plain data."""
    return _KINDS[type(value)]


def unfit(name: str, *kinds: str) -> str:
    """Return the sentence about an operator or function that is given the wrong kinds."""
    if name.startswith("."):
        return f"there is no '{name[1:]}' in a {kinds[0]}"
    return f"'{name}' takes no {' and '.join(kinds)}"


def refused(name: str, *values: object) -> Failed:
    """Return the error about an operator or function that is given values of the wrong kinds."""
    return Failed(unfit(name, *map(kind_of, values)))


def finite(number: float) -> float:
    """Return a number as a double. Raises Failed."""
    try:
        if math.isfinite(double := float(number)):
            return double
    except OverflowError:
        pass
    raise Failed(f"{str(number)[:40]} cannot be used as a number")


_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 40
short: Final = _SHORT.repr
"""Returns a value as a message shows it."""


def copied(value: object, room: list[int] | None, levels: int = MOST_LEVELS) -> object:
    """Return a copy in dicts and lists, each number as a float, keys in order. Raises Failed, Spent.

    `room`: the elements and the characters that it may have.
    """
    if value is None or value is True or value is False:
        return value
    if type(value) is float or type(value) is int:
        return finite(value)
    if isinstance(value, Struct):
        value = msgspec.structs.asdict(value)
    if room is not None and isinstance(value, str | list | dict):
        room[isinstance(value, str)] -= len(value)
        if min(room) < 0:
            raise Spent(f"the value has more than {MOST_ELEMENTS:,} elements or {MOST_TEXT:,} characters")
    if isinstance(value, str):
        return _whole(value)
    if not levels:
        raise Failed(f"a value has more than {MOST_LEVELS} levels")
    if isinstance(value, list | tuple):
        return [copied(one, room, levels - 1) for one in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {copied(key, room): copied(value[key], room, levels - 1) for key in sorted(value)}
    raise Failed(f"a {type(value).__name__} is not a JSON value")


def _whole(text: str) -> str:
    if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
        raise Failed(f"{short(text)} has half of a character")
    return text if type(text) is str else "".join(text)


def given(name: str, kind: str, value: object) -> object:
    """Return a copy of the value that a name has. Raises Failed."""
    plain = copied(value, None)
    if kind != "any" and type(plain) is not TYPES[kind]:
        raise Failed(f"'{name}' is a {kind}, and its value is {short(value)}")
    return plain


def taken(value: object, kind: str) -> object:
    """Return a copy of the value of an expression. Raises Failed, Spent."""
    if kind != "any" and type(value) is not TYPES[kind]:
        raise Failed(f"a {kind} is needed here, and this is a {kind_of(value)}: {short(value)}")
    return copied(value, [MOST_ELEMENTS, MOST_TEXT])


# --- what the functions do ----------------------------------------------------------------------------
def _same(values: Values, left: Any, right: Any) -> bool:
    """Return whether two values are equal; of different kinds, they are not."""
    if type(left) is not type(right):
        return False
    if type(left) is not list and type(left) is not dict:
        return bool(left == right)
    spend(values, 1 + (len(left) >> 6))
    if isinstance(left, list):
        return len(left) == len(right) and all(_same(values, *pair) for pair in zip(left, right, strict=True))
    return left.keys() == right.keys() and all(_same(values, left[key], right[key]) for key in left)


def _among(values: Values, one: Any, many: Any) -> bool:
    if type(many) is dict:
        return type(one) is str and one in many
    spend(values, len(many) >> 6)
    return any(_same(values, one, other) for other in many)


def _added(values: Values, left: Any, right: Any) -> Any:
    if type(left) is not float:
        size, most = len(left) + len(right), MOST_TEXT if type(left) is str else MOST_ELEMENTS
        if size > most:
            raise Spent(f"'+' makes more than {most:,} characters or elements")
        spend(values, size >> 6)
    return left + right


def _divided(divide: Callable[[float, float], float], left: float, right: float) -> float:
    if not right:
        raise Failed("division by zero")
    return divide(left, right)


def _selected(whole: dict[str, Any], key: str) -> Any:
    if key not in whole:
        raise Failed(f"there is no key '{key[:40]}'")
    return whole[key]


def _indexed(_: Values, whole: Any, index: Any) -> Any:
    if type(whole) is dict:
        return _selected(whole, index)
    if not index.is_integer() or not 0 <= index < len(whole):
        raise Failed(f"there is no element [{index:g}] in a list of {len(whole)}")
    return whole[int(index)]


def _contains(values: Values, text: str, part: str) -> bool:
    spend(values, len(text) >> 10)
    return part in text


def _matches(values: Values, text: str, says: str) -> bool:
    try:
        pattern = pattern_of(says)
    except ValueError as error:
        raise Failed(str(error)) from None
    spend(values, len(text) * pattern.size >> 10)
    return pattern.occurs_in(text)


def _double(_: Values, value: float | str) -> float:
    if type(value) is str and not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", value, re.ASCII):
        raise Failed(f"'{value[:40]}' is not a number")
    return finite(float(value))


def _string(_: Values, value: float | str) -> str:
    return value if isinstance(value, str) else str(value).removesuffix(".0")


def total(numbers: Iterable[float]) -> float:
    """Return the sum, the same in each version of Python. Raises Failed."""
    try:
        return math.fsum(numbers)
    except OverflowError:
        raise Failed("the sum cannot be used as a number") from None


def _of_numbers(compute: Callable[[list[float]], float]) -> Callable[[Values, list[Any], str], float]:
    def computed(values: Values, elements: list[Any], key: str) -> float:
        found = (element.get(key) for element in _maps(values, elements))
        numbers = [value for value in found if type(value) is float]
        return compute(numbers) if numbers else 0.0

    return computed


def _maps(values: Values, elements: list[Any]) -> list[dict[str, Any]]:
    spend(values, len(elements) >> 6)
    return [element for element in elements if type(element) is dict]


def _scalars(values: Values, value: object) -> set[Any]:
    found = value if isinstance(value, list) else [value]
    spend(values, len(found) >> 6)
    return {one for one in found if isinstance(one, str | float)}


def _acyclic(values: Values, elements: list[Any], key: str) -> bool:
    """Return whether no element needs itself, through others either."""
    graph = TopologicalSorter[object]()
    for element in _maps(values, elements):
        if isinstance(element.get("id"), str):
            graph.add(element["id"], *_scalars(values, element.get(key)))
    try:
        graph.prepare()
    except CycleError:
        return False
    return True


def _covers(values: Values, elements: list[Any], ids: list[Any]) -> bool:
    known = _scalars(values, [element.get("id") for element in _maps(values, elements)])
    spend(values, len(ids) >> 6)
    return all(isinstance(one, str | float) and one in known for one in ids)


def _disjoint(values: Values, elements: list[Any], key: str) -> bool:
    """Return whether no two elements share a value under a key."""
    found = [_scalars(values, element.get(key)) for element in _maps(values, elements)]
    return len(set().union(*found)) == sum(map(len, found))


def _signals(values: Values, text: str, words: list[Any]) -> float:
    """Return how many of the words are somewhere in the text, upper case or lower."""
    folded = text.casefold()
    wanted = {word.casefold() for word in words if isinstance(word, str) and word}
    spend(values, len(wanted) * len(folded) >> 12)
    return float(sum(word in folded for word in wanted))


# --- closures -----------------------------------------------------------------------------------------
def call(name: str, function: Function, parts: list[Run]) -> Run:
    """Return the closure of a function or operator, of one value or two."""
    does, types = function.does, function.types

    def run_one(values: Values) -> Any:
        one = parts[0](values)
        if (type(one),) not in types:
            raise refused(name, one)
        value = does(values, one)
        return finite(value) if type(value) is float else value

    def run_two(values: Values) -> Any:
        one, other = parts[0](values), parts[1](values)
        if (type(one), type(other)) not in types:
            raise refused(name, one, other)
        value = does(values, one, other)
        return finite(value) if type(value) is float else value

    return run_two if function.count == 2 else run_one


def variable(slot: str, name: str) -> Run:
    """Return the closure of a name."""

    def run(values: Values) -> Any:
        if slot in values:
            return values[slot]
        raise Failed(f"'{name}' has no value")

    return run


def choice(condition: Run, then: Run, other: Run) -> Run:
    """Return the closure of `condition ? then : other`."""

    def run(values: Values) -> Any:
        if type(value := condition(values)) is not bool:
            raise refused("? :", value)
        return then(values) if value else other(values)

    return run


def mapped(pairs: list[tuple[Run, Run]]) -> Run:
    """Return the closure of a map."""

    def run(values: Values) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if type(name := key(values)) is not str or name in found:
                raise Failed(f"the keys of a map are texts, each of them once, and here is {short(name)}")
            found[name] = value(values)
        return found

    return run


def weighing(weights: dict[str, Run]) -> Run:
    """Return the closure of `weighted`: the mean of the fields that are there; 0 where there are none."""

    def run(values: Values) -> float:
        made = {name: weight(values) for name, weight in weights.items()}
        if wrong := [weight for weight in made.values() if type(weight) is not float]:
            raise refused("weighted", *wrong)
        there = {name: made[name] for name in made if type(values.get(name)) is float and made[name] > 0}
        parts = [finite(values[name] * weight) for name, weight in there.items()]
        return finite(total(parts) / total(there.values())) if there else 0.0

    return run


def junction(sign: str, parts: Iterable[Run], values: Values) -> bool:
    """Return what `&&` and `||` make of parts: one that decides outweighs errors of others. Raises Failed."""
    decides = sign in {"||", "exists"}
    failed = None
    for part in parts:
        try:
            value = part(values)
            if type(value) is not bool:
                raise refused(sign, value)
            if value is decides:
                return decides
        except Failed as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return not decides


def comprehension(name: str, source: Run, slot: str, body: Run) -> Run:
    """Return the closure of a macro, which keeps each element, or key, under `slot` in turn."""

    def elements(values: Values) -> Iterator[Any]:
        whole = source(values)
        if type(whole) is not list and type(whole) is not dict:
            raise refused(name, whole)
        for one in whole:
            spend(values, 1)
            values[slot] = one
            yield one

    if name == "map":
        return lambda values: [body(values) for _ in elements(values)]
    if name in {"all", "exists"}:
        return lambda values: junction(name, (body for _ in elements(values)), values)

    def asked(values: Values) -> bool:
        if type(value := body(values)) is bool:
            return value
        raise refused(name, value)

    if name == "filter":
        return lambda values: [one for one in elements(values) if asked(values)]
    return lambda values: [asked(values) for _ in elements(values)].count(True) == 1


# --- the functions, by name ---------------------------------------------------------------------------
class Function:
    """A function or operator: what computes it, and the kinds that it takes and gives."""

    def __init__(self, does: Callable[..., Any], *overloads: str, strict: bool = True) -> None:
        self.does = does
        self._overloads = [tuple(overload.split()) for overload in overloads]
        self.count = len(self._overloads[0]) - 1
        taken = [kinds[:-1] if strict else ["any"] * self.count for kinds in self._overloads]
        every = {"any": list(TYPES)}
        rows = (row for kinds in taken for row in product(*(every.get(kind, [kind]) for kind in kinds)))
        self.types = frozenset(tuple(TYPES[kind] for kind in row) for row in rows)
        """The types that it takes when it is evaluated."""

    def gives(self, kinds: Iterable[str]) -> str | None:
        """Return the kind of the value; `any` where that is not known yet, None if it takes no such kinds."""
        given = list(kinds)
        found = {
            gives
            for *takes, gives in self._overloads
            if all(kind == take or "any" in {kind, take} for kind, take in zip(given, takes, strict=True))
        }
        return (found.pop() if len(found) == 1 else "any") if found else None


def selection(key: str) -> Function:
    """Return the function that selects a key of a map."""
    return Function(lambda _, whole: _selected(whole, key), "map any")


def presence(key: str) -> Function:
    """Return the function that says whether a map has a key."""
    return Function(lambda _, whole: key in whole, "map boolean")


_ORDERED: Final = ("number number boolean", "text text boolean", "boolean boolean boolean")
_EQUAL: Final = (*_ORDERED, "list list boolean", "map map boolean", "null null boolean")
_NUMBERS: Final = "number number number"
_ABOUT_TEXT: Final = "text text boolean"
FUNCTIONS: Final[Mapping[str, Function]] = {
    "==": Function(_same, *_EQUAL, strict=False),
    "!=": Function(lambda values, left, right: not _same(values, left, right), *_EQUAL, strict=False),
    "<": Function(lambda _, left, right: left < right, *_ORDERED),
    "<=": Function(lambda _, left, right: left <= right, *_ORDERED),
    ">": Function(lambda _, left, right: left > right, *_ORDERED),
    ">=": Function(lambda _, left, right: left >= right, *_ORDERED),
    "&&": Function(junction, "boolean boolean boolean"),
    "||": Function(junction, "boolean boolean boolean"),
    "in": Function(_among, "any list boolean", "any map boolean"),
    "+": Function(_added, _NUMBERS, "text text text", "list list list"),
    "-": Function(lambda _, left, right: left - right, _NUMBERS),
    "*": Function(lambda _, left, right: left * right, _NUMBERS),
    "/": Function(lambda _, left, right: _divided(operator.truediv, left, right), _NUMBERS),
    "%": Function(lambda _, left, right: _divided(math.fmod, left, right), _NUMBERS),
    "-_": Function(lambda _, value: -value, "number number"),
    "!_": Function(lambda _, value: not value, "boolean boolean"),
    "[ ]": Function(_indexed, "list number any", "map text any"),
    "size": Function(lambda _, value: float(len(value)), "list number", "map number", "text number"),
    "double": Function(_double, "number number", "text number"),
    "int": Function(lambda _, value: float(math.trunc(_double(_, value))), "number number", "text number"),
    "string": Function(_string, "number text", "text text"),
    "startsWith": Function(lambda _, text, part: text.startswith(part), _ABOUT_TEXT),
    "endsWith": Function(lambda _, text, part: text.endswith(part), _ABOUT_TEXT),
    "contains": Function(_contains, _ABOUT_TEXT),
    "matches": Function(_matches, _ABOUT_TEXT),
    "kit.avg": Function(_of_numbers(lambda numbers: total(numbers) / len(numbers)), "list text number"),
    "kit.spread": Function(_of_numbers(lambda numbers: max(numbers) - min(numbers)), "list text number"),
    "kit.min": Function(_of_numbers(min), "list text number"),
    "kit.max": Function(_of_numbers(max), "list text number"),
    "kit.sum": Function(_of_numbers(total), "list text number"),
    "kit.acyclic": Function(_acyclic, "list text boolean"),
    "kit.covers": Function(_covers, "list list boolean"),
    "kit.disjoint": Function(_disjoint, "list text boolean"),
    "kit.signals": Function(_signals, "text list number"),
}
