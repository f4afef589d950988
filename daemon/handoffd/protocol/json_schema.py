"""JSON Schema (draft 2020-12): whether a schema can be used, and where a value does not fit it.

An agent wrote the value, and perhaps the schema, so both are judged at a bounded cost: patterns are matched
in linear time, references lead nowhere but into the schema itself, and steps and levels are counted. A schema
with a keyword that is not known here is refused, so that no mistake in it approves everything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from msgspec import Struct

from handoffd.protocol.patterns import pattern_of

Schema = Mapping[str, Any]
MOST_MISFITS: Final = 5
MOST_STEPS: Final = 1_000_000
"""Schemas that are held against parts of one value; long texts cost more."""
MOST_LEVELS: Final = 80
"""Schemas in each other, references included."""
MOST_SHOWN: Final = 60
"""Characters of a value that a message shows."""
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_TYPES: Final[Mapping[str, tuple[str, tuple[type, ...]]]] = {
    "string": ("a text", (str,)),
    "integer": ("a whole number", (int, float)),
    "number": ("a number", (int, float)),
    "boolean": ("true or false", (bool,)),
    "null": ("null", (type(None),)),
    "array": ("a list", (list,)),
    "object": ("an object", (dict,)),
}
_NOTES: Final = frozenset(
    {
        *("$schema", "$comment", "title", "description", "default", "examples", "format"),
        *("deprecated", "readOnly", "writeOnly"),
    }
)
_NAMED: Final = frozenset({"$defs", "properties"})
"""Keywords that hold schemas by name."""
_LISTED: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SINGLE: Final = frozenset(
    {"additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"}
)
_COUNTS: Final = frozenset(
    {
        *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        *("minContains", "maxContains"),
    }
)
_NUMBERS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})


def misfits(value: object, schema: Schema, *, most: int = MOST_MISFITS) -> tuple[str, ...]:
    """Return the first places where plain JSON data does not fit a schema, and what must be there.

    A place is a JSON pointer: `/tasks/0/id must be a text, not 7`. The schema has no flaws.
    """
    try:
        return tuple(islice(map(str, _Judge(schema).walk(value, schema, "", MOST_LEVELS)), most))
    except _TooMuch as error:
        return (str(error),)


def flaws(schema: object) -> tuple[str, ...]:
    """Return what keeps plain JSON data from being used as a schema, each with its JSON pointer."""
    if not isinstance(schema, dict):
        return ("a schema is an object",)
    if schema.get("$schema", DIALECT) != DIALECT:
        return (f"/$schema: must be {DIALECT}",)
    return tuple(islice(_flaws(schema, schema, "", MOST_LEVELS // 2), MOST_MISFITS))


def shown(value: object) -> str:
    """Return a value as a message shows it: short, on one line, as JSON."""
    if isinstance(value, list | dict):
        many = len(value)
        what = ("entry", "entries") if isinstance(value, list) else ("key", "keys")
        return f"{'a list' if isinstance(value, list) else 'an object'} of {many:,} {what[many != 1]}"
    if isinstance(value, str) and len(value) > MOST_SHOWN:
        value = value[: MOST_SHOWN - 1] + "…"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return json.dumps(value, ensure_ascii=not str(value).isprintable())[: 2 * MOST_SHOWN]


class _TooMuch(Exception):
    """The value, or the schema, is larger than the bounds."""


class _Misfit(Struct, frozen=True):
    place: str
    words: str

    def __str__(self) -> str:
        return f"{self.place or 'the whole'} {self.words}"


class _Judge:
    """Holds values against the parts of one schema, within bounds."""

    def __init__(self, whole: Schema) -> None:
        self._whole = whole
        self._left = MOST_STEPS

    def spend(self, steps: int) -> None:
        """Take steps from what is left of them. Raises _TooMuch."""
        self._left -= steps
        if self._left < 0:
            raise _TooMuch("there is too much in it to be compared with its schema")

    def walk(self, value: Any, schema: Any, at: str, levels: int) -> Iterator[_Misfit]:
        """Yield every misfit, in the order of the schema's keywords."""
        self.spend(1)
        if levels <= 0:
            raise _TooMuch("it is nested too deeply to be compared with its schema")
        if isinstance(schema, bool):
            if not schema:
                yield _Misfit(at, "must not be there")
            return
        for keyword, wanted in schema.items():
            if keyword in _SIMPLE:
                for words in _SIMPLE[keyword](value, wanted, schema, self):
                    yield _Misfit(at, words)
            elif keyword in _PARTS:
                yield from _PARTS[keyword](self, value, wanted, schema, at, levels - 1)

    def fits(self, value: Any, schema: Any, levels: int) -> bool:
        """Return whether there is no misfit."""
        return next(self.walk(value, schema, "", levels), None) is None

    # --- keywords that hold schemas -------------------------------------------------------------------
    def ref(self, value: Any, wanted: str, _: Schema, at: str, levels: int) -> Iterator[_Misfit]:
        yield from self.walk(value, _referred(self._whole, wanted), at, levels)

    def all_of(self, value: Any, wanted: Any, _: Schema, at: str, levels: int) -> Iterator[_Misfit]:
        for part in wanted:
            yield from self.walk(value, part, at, levels)

    def any_of(self, value: Any, wanted: Any, _: Schema, at: str, levels: int) -> Iterator[_Misfit]:
        firsts = []
        for part in wanted:
            first = next(self.walk(value, part, at, levels), None)
            if first is None:
                return
            firsts.append(first)
        nearest = max(firsts, key=lambda one: one.place.count("/"))
        place = f" at {nearest.place}" if nearest.place != at else ""
        yield _Misfit(at, f"fits none of {len(wanted)} forms; the nearest one{place} {nearest.words}")

    def one_of(self, value: Any, wanted: Any, schema: Schema, at: str, levels: int) -> Iterator[_Misfit]:
        fitting = sum(self.fits(value, part, levels) for part in wanted)
        if not fitting:
            yield from self.any_of(value, wanted, schema, at, levels)
        elif fitting > 1:
            yield _Misfit(at, f"fits {fitting} of {len(wanted)} forms, and must fit one alone")

    def not_(self, value: Any, wanted: Any, _: Schema, at: str, levels: int) -> Iterator[_Misfit]:
        if self.fits(value, wanted, levels):
            yield _Misfit(at, f"has a form that is not allowed: {shown(value)}")

    def if_(self, value: Any, wanted: Any, schema: Schema, at: str, levels: int) -> Iterator[_Misfit]:
        branch = "then" if self.fits(value, wanted, levels) else "else"
        yield from self.walk(value, schema.get(branch, True), at, levels)

    def properties(self, value: Any, wanted: Any, _: Schema, at: str, levels: int) -> Iterator[_Misfit]:
        for name, part in wanted.items() if isinstance(value, dict) else ():
            if name in value:
                yield from self.walk(value[name], part, _below(at, name), levels)

    def others(self, value: Any, wanted: Any, schema: Schema, at: str, levels: int) -> Iterator[_Misfit]:
        known = schema.get("properties", {})
        names = [name for name in value if name not in known] if isinstance(value, dict) else []
        if wanted is False and names:
            allowed = f"; allowed: {_several(known)}" if known else ""
            yield _Misfit(at, f"has the unknown {_plural('key', names)} {_several(names)}{allowed}")
            return
        for name in names:
            yield from self.walk(value[name], wanted, _below(at, name), levels)

    def names(self, value: Any, wanted: Any, _: Schema, at: str, levels: int) -> Iterator[_Misfit]:
        for name in value if isinstance(value, dict) else ():
            for wrong in islice(self.walk(name, wanted, "", levels), 1):
                yield _Misfit(at, f"has the key {shown(name)}, which {wrong.words}")

    def items(self, value: Any, wanted: Any, schema: Schema, at: str, levels: int) -> Iterator[_Misfit]:
        first = len(schema.get("prefixItems", ()))
        for index, item in enumerate(value[first:] if isinstance(value, list) else (), first):
            yield from self.walk(item, wanted, _below(at, index), levels)

    def first_items(self, value: Any, wanted: Any, _: Schema, at: str, levels: int) -> Iterator[_Misfit]:
        for index, (item, part) in enumerate(
            zip(value if isinstance(value, list) else (), wanted, strict=False)
        ):
            yield from self.walk(item, part, _below(at, index), levels)

    def contains(self, value: Any, wanted: Any, schema: Schema, at: str, levels: int) -> Iterator[_Misfit]:
        if not isinstance(value, list):
            return
        count = sum(self.fits(item, wanted, levels) for item in value)
        least, most = schema.get("minContains", 1), schema.get("maxContains", len(value))
        if not least <= count <= most:
            limit = f"at least {least}" if count < least else f"at most {most}"
            yield _Misfit(at, f"must have {limit} entries of a certain form, and has {count}")


_Part = Callable[[_Judge, Any, Any, Schema, str, int], Iterator[_Misfit]]
_PARTS: Final[Mapping[str, _Part]] = {
    "$ref": _Judge.ref,
    "allOf": _Judge.all_of,
    "anyOf": _Judge.any_of,
    "oneOf": _Judge.one_of,
    "not": _Judge.not_,
    "if": _Judge.if_,
    "properties": _Judge.properties,
    "additionalProperties": _Judge.others,
    "propertyNames": _Judge.names,
    "items": _Judge.items,
    "prefixItems": _Judge.first_items,
    "contains": _Judge.contains,
}


# --- keywords about the value itself ------------------------------------------------------------------
def _is(kind: str, value: Any) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    whole = not isinstance(value, float) or value.is_integer()
    return isinstance(value, _TYPES[kind][1]) and (kind != "integer" or whole)


def _type(value: Any, wanted: Any, _: Schema, __: _Judge) -> Iterator[str]:
    kinds = [wanted] if isinstance(wanted, str) else wanted
    if not any(_is(kind, value) for kind in kinds):
        yield f"must be {' or '.join(_TYPES[kind][0] for kind in kinds)}, not {shown(value)}"


def _enum(value: Any, wanted: Any, _: Schema, __: _Judge) -> Iterator[str]:
    if _key(value) not in {_key(one) for one in wanted}:
        yield f"must be one of {_several(wanted)}, not {shown(value)}"


def _const(value: Any, wanted: Any, _: Schema, __: _Judge) -> Iterator[str]:
    if _key(value) != _key(wanted):
        yield f"must be {shown(wanted)}, not {shown(value)}"


def _key(value: Any) -> object:
    """Return something that two values share where JSON takes them for equal: 1 and 1.0, and not true."""
    if isinstance(value, dict):
        return frozenset((name, _key(one)) for name, one in value.items())
    if isinstance(value, list):
        return tuple(map(_key, value))
    return isinstance(value, bool), value


def _compared(fails: Callable[[Any, Any], bool], words: str) -> Callable[..., Iterator[str]]:
    def check(value: Any, wanted: Any, _: Schema, __: _Judge) -> Iterator[str]:
        if isinstance(value, int | float) and not isinstance(value, bool) and fails(value, wanted):
            yield f"must be {words} {shown(wanted)}, not {shown(value)}"

    return check


def _no_multiple(value: Any, of: Any) -> bool:
    try:
        return bool(value % of if isinstance(value, int) and isinstance(of, int) else (value / of) % 1)
    except OverflowError:
        return True


def _sized(
    kind: type[str | list[Any] | dict[str, Any]], most: bool, what: str
) -> Callable[..., Iterator[str]]:
    def check(value: Any, wanted: Any, _: Schema, __: _Judge) -> Iterator[str]:
        if isinstance(value, kind) and (len(value) > wanted if most else len(value) < wanted):
            limit = f"at {'most' if most else 'least'} {wanted:g}"
            yield f"must have {limit} {what if wanted != 1 else _ONE[what]}, and has {len(value):,}"

    return check


_ONE: Final = {"characters": "character", "entries": "entry", "keys": "key"}


def _pattern(value: Any, wanted: Any, _: Schema, judge: _Judge) -> Iterator[str]:
    if isinstance(value, str):
        pattern = pattern_of(wanted)
        judge.spend(len(value) * pattern.size >> 6)
        if not pattern.occurs_in(value):
            yield f"must match {wanted}, and {shown(value)} does not"


def _unique(value: Any, wanted: Any, _: Schema, judge: _Judge) -> Iterator[str]:
    if wanted is True and isinstance(value, list):
        judge.spend(len(value))
        seen: dict[object, int] = {}
        for index, one in enumerate(value):
            if (first := seen.setdefault(_key(one), index)) != index:
                yield f"must have no entry twice, and entries {first} and {index} are the same: {shown(one)}"
                return


def _required(value: Any, wanted: Any, _: Schema, __: _Judge) -> Iterator[str]:
    missing = [name for name in wanted if name not in value] if isinstance(value, dict) else []
    if missing:
        yield f"needs the {_plural('key', missing)} {_several(missing)}"


def _depending(value: Any, wanted: Any, _: Schema, __: _Judge) -> Iterator[str]:
    for name, others in wanted.items() if isinstance(value, dict) else ():
        missing = [other for other in others if other not in value] if name in value else []
        if missing:
            yield f"needs the {_plural('key', missing)} {_several(missing)} beside {shown(name)}"


_SIMPLE: Final[Mapping[str, Callable[..., Iterator[str]]]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _compared(lambda value, limit: value < limit, "at least"),
    "maximum": _compared(lambda value, limit: value > limit, "at most"),
    "exclusiveMinimum": _compared(lambda value, limit: value <= limit, "above"),
    "exclusiveMaximum": _compared(lambda value, limit: value >= limit, "below"),
    "multipleOf": _compared(_no_multiple, "a multiple of"),
    "minLength": _sized(str, False, "characters"),
    "maxLength": _sized(str, True, "characters"),
    "minItems": _sized(list, False, "entries"),
    "maxItems": _sized(list, True, "entries"),
    "minProperties": _sized(dict, False, "keys"),
    "maxProperties": _sized(dict, True, "keys"),
    "pattern": _pattern,
    "uniqueItems": _unique,
    "required": _required,
    "dependentRequired": _depending,
}


def _below(at: str, part: str | int) -> str:
    return f"{at}/{str(part).replace('~', '~0').replace('/', '~1')[:MOST_SHOWN]}"


def _plural(word: str, several: list[Any]) -> str:
    return word if len(several) == 1 else f"{word}s"


def _several(values: Any) -> str:
    """Return a few values, separated by commas."""
    first = [shown(one) for one in islice(values, 12)]
    more = len(values) - len(first)
    return ", ".join((*first, f"… {more:,} more") if more > 0 else first)


# --- whether a schema can be used ---------------------------------------------------------------------
def _referred(whole: Schema, to: str) -> Any:
    """Return the part of a schema that a reference leads to. Raises KeyError."""
    if to == "#":
        return whole
    head, _, name = to.rpartition("/")
    if head != "#/$defs":
        raise KeyError(to)
    return whole["$defs"][name]


def _flaws(schema: Any, whole: Schema, at: str, levels: int) -> Iterator[str]:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict) or levels <= 0:
        deep = "is nested too deeply"
        yield f"{at or '/'}: {deep if levels <= 0 else 'a schema is an object, true or false'}"
        return
    for keyword, said in schema.items():
        place = _below(at, keyword)
        if (wrong := _flaw(keyword, said, whole)) is not None:
            yield f"{place}: {wrong}"
            continue
        parts: Any = ()
        if keyword in _NAMED:
            parts = said.items()
        elif keyword in _LISTED:
            parts = enumerate(said)
        elif keyword in _SINGLE:
            yield from _flaws(said, whole, place, levels - 1)
        for name, part in parts:
            yield from _flaws(part, whole, _below(place, name), levels - 1)


def _flaw(keyword: str, said: Any, whole: Schema) -> str | None:
    """Return what is wrong with one keyword, apart from the schemas in it."""
    if keyword in _NOTES or keyword in _SINGLE:
        return None
    if keyword in _NAMED:
        return None if isinstance(said, dict) else "must be an object of schemas"
    if keyword in _LISTED:
        return None if isinstance(said, list) and said else "must be a list of schemas"
    if keyword in _COUNTS:
        return None if _is("integer", said) and said >= 0 else "must be a whole number"
    if keyword in _NUMBERS:
        low = keyword == "multipleOf" and _is("number", said) and said <= 0
        return None if _is("number", said) and not low else "must be a number, of multipleOf one above 0"
    check = _FLAWS.get(keyword)
    return "this keyword is not known here" if check is None else check(said, whole)


def _texts(said: Any) -> bool:
    return isinstance(said, list) and all(isinstance(one, str) for one in said)


def _type_flaw(said: Any, _: Schema) -> str | None:
    kinds = [said] if isinstance(said, str) else said
    known = _texts(kinds) and kinds and all(kind in _TYPES for kind in kinds)
    return None if known else f"must be one or several of {', '.join(_TYPES)}"


def _pattern_flaw(said: Any, _: Schema) -> str | None:
    try:
        pattern_of(said) if isinstance(said, str) else pattern_of("(")
    except ValueError as error:
        return f"cannot be read as a regular expression: {error}"
    return None


def _ref_flaw(said: Any, whole: Schema) -> str | None:
    try:
        _referred(whole, said if isinstance(said, str) else "")
    except (KeyError, TypeError):
        return f"{shown(said)} is neither # nor the name of a schema here, as in #/$defs/name"
    return None


_FLAWS: Final[Mapping[str, Callable[[Any, Schema], str | None]]] = {
    "type": _type_flaw,
    "enum": lambda said, _: None if isinstance(said, list) and said else "must be a list of values",
    "const": lambda *_: None,
    "pattern": _pattern_flaw,
    "uniqueItems": lambda said, _: None if isinstance(said, bool) else "must be true or false",
    "required": lambda said, _: None if _texts(said) else "must be a list of names",
    "dependentRequired": lambda said, _: (
        None
        if isinstance(said, dict) and all(map(_texts, said.values()))
        else "must be an object of lists of names"
    ),
    "$ref": _ref_flaw,
}
