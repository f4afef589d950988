"""Conditions and numbers of a pipeline: a subset of CEL, read at load and evaluated by value.

The syntax and the meaning are CEL's (cel.dev), and `tests/conformance` holds both to its cases. Not in the
subset: whole numbers (every number is a double, and `%` is of doubles), bytes, time, messages, types as
values, maps with other keys than texts, `map` with three arguments, optionals and extensions. Added: dotted
names that are declared, of which the longest wins, `weighted` and the functions of `kit`. Division by zero,
infinity and NaN are errors. An expression is a tree of closures: it has no loop but over elements, and
each evaluation is bounded in steps, in depth and in the size of its result.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeVar

from msgspec import Struct

from handoffd.protocol.expression_values import (
    FUNCTIONS,
    MOST_STEPS,
    STEPS,
    Failed,
    Function,
    Run,
    Spent,
    Values,
    call,
    choice,
    comprehension,
    given,
    junction,
    mapped,
    presence,
    selection,
    short,
    taken,
    unfit,
    variable,
    weighing,
)

_Read = TypeVar("_Read")
Kind = Literal["number", "text", "boolean", "list", "any"]
"""What a name or a result is. Every number is a double; `any` is what came out of a JSON file."""
RESERVED: Final[frozenset[str]] = frozenset(
    {
        *("in", "as", "loop", "package", "import", "const", "function", "namespace", "return", "var", "void"),
        *("type", "int", "list", "map", "dyn", "double", "null", "true", "false", "break", "continue"),
        *("else", "for", "if", "let", "while"),
    }
)
"""CEL's own words, which nothing in a pipeline can be named by."""
LONGEST: Final = 2_000
"""Characters of an expression."""
DEEPEST: Final = 32
"""Levels of brackets and of operators in each other."""
REMEMBERED: Final = 4_096
"""Expressions that are kept as closures."""


class Fault(Struct, frozen=True):
    """One thing that is wrong with an expression; columns count characters of its whole text, from 1."""

    message: str
    column: int = 1
    meant: str | None = None
    allowed: tuple[str, ...] = ()


class Unsound(Exception):
    """An expression cannot be used, for each of these faults."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(sorted(dict.fromkeys(faults), key=lambda fault: fault.column))
        super().__init__("; ".join(f"column {fault.column}: {fault.message}" for fault in self.faults))


class Broken(Exception):
    """An expression has no value of its kind for what it read: its text, and why."""

    def __init__(self, text: str, words: str, read: str = "") -> None:
        self.text, self.words = text, words
        super().__init__(f"{text!r} has no value: {words}" + (f" (it read {read})" if read else ""))


class Expression(Struct, frozen=True):
    """A text that was found sound, the kind of its value, and the declared names that it reads."""

    text: str
    result: Kind
    names: tuple[tuple[str, Kind], ...] = ()


def compiled(
    text: str, result: Kind, names: Mapping[str, Kind], *, elements: Mapping[str, Collection[str]] = {}
) -> Expression:
    """Return the expression if it is sound.

    It may read `names`, dotted ones, too; the longest one wins. `elements` has, by the name of a list, the
    keys that its elements have. Raises Unsound.
    """
    reader = _Reader(text, names, elements)
    kind = reader.whole().kind
    if not reader.faults and kind not in {result, "any"} and result != "any":
        reader.faults.append(Fault(f"a {result} is needed here, and this is a {kind}"))
    if reader.faults:
        raise Unsound(reader.faults)
    return Expression(text, result, tuple(reader.read.items()))


def evaluate(expression: Expression, values: Mapping[str, object]) -> object:
    """Return the value as plain JSON data, of the kind that was declared.

    Names without a value may be read where CEL needs no value, such as behind `&&`. Raises Broken.
    """
    try:
        run = _closure(expression)
        data: Values = {STEPS: MOST_STEPS}
        for name, kind in expression.names:
            if name in values:
                data[name] = given(name, kind, values[name])
        return taken(run(data), expression.result)
    except Unsound as error:
        raise Broken(expression.text, str(error)) from None
    except (Failed, Spent) as error:
        read = [f"{name} = {short(values[name])}" for name, _ in expression.names if name in values]
        raise Broken(expression.text, str(error), ", ".join(read)) from None


@lru_cache(maxsize=REMEMBERED)
def _closure(expression: Expression) -> Run:
    reader = _Reader(expression.text, dict(expression.names), {})
    run = reader.whole().run
    if reader.faults:
        raise Unsound(reader.faults)
    return run


# --- tokens -------------------------------------------------------------------------------------------
class _Token(NamedTuple):
    """A piece of an expression, and its column from 1."""

    kind: str
    text: str
    column: int


_ESCAPE: Final = r"""\\(?:[abfnrtv"'\\?`]|[0-3][0-7]{2}|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"""
_TOKEN: Final = re.compile(
    rf"""
    (?P<space> [\t\n\f\r ]+ | //[^\n]* )
    | (?P<bytes> [bB][rR]?["'] )
    | (?P<raw> [rR](?: \"\"\"(?s:.)*?\"\"\" | '''(?s:.)*?''' | "[^"\n\r]*" | '[^'\n\r]*' ) )
    | (?P<text> \"\"\"(?:{_ESCAPE}|[^\\])*?\"\"\" | '''(?:{_ESCAPE}|[^\\])*?'''
        | "(?:{_ESCAPE}|[^\\"\n\r])*" | '(?:{_ESCAPE}|[^\\'\n\r])*' )
    | (?P<name> [A-Za-z_][A-Za-z0-9_]* )
    | (?P<unsigned> (?:0x[0-9a-fA-F]+|[0-9]+)[uU] )
    | (?P<number> [0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ )
    | (?P<whole> 0x[0-9a-fA-F]+ | [0-9]+ )
    | (?P<sign> && | \|\| | [=!<>]= | [-+*/%<>!?:.,()\[\]{{}}] )
    """,
    re.VERBOSE,
)
_MEANING: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_STRANGE: Final = {
    "bytes": "there are no bytes in an expression, only text",
    "unsigned": "there are no unsigned numbers in an expression: leave out the 'u'",
    "quote": "this text has no end, or an escape that CEL does not have",
}
_INSTEAD: Final = {"and": "&&", "or": "||", "not": "!", "None": "null", "=": "==", "&": "&&", "|": "||"}


def _tokens_of(text: str) -> list[_Token]:
    """Return the tokens of an expression, one for its end as well. Raises Unsound."""
    found, at = [], 0
    if len(text) > LONGEST:
        raise Unsound([Fault(f"the expression is longer than {LONGEST:,} characters", LONGEST + 1)])
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup in _STRANGE:
            kind = "quote" if re.match("[rR]?[\"']", text[at : at + 2]) else match and match.lastgroup
            sign = text[at] if text[at].isprintable() else f"\\u{ord(text[at]):04x}"
            words = _STRANGE.get(kind or "", f"the character '{sign}' means nothing here")
            raise Unsound([Fault(words, at + 1, _INSTEAD.get(text[at]))])
        if match.lastgroup != "space":
            found.append(_Token(match.lastgroup or "", match[0], at + 1))
        at = match.end()
    if not found:
        raise Unsound([Fault("the expression is empty")])
    return [*found, _Token("end", "", len(text))]


def _text_of(token: _Token) -> str:
    """Return what a string literal says. Raises Unsound."""
    body = token.text[token.kind == "raw" :]
    quotes = 3 if len(body) >= 6 and body[:3] == body[0] * 3 else 1
    body = body[quotes:-quotes]
    if quotes == 3:
        body = body.replace("\r\n", "\n").replace("\r", "\n")
    if token.kind == "text":
        body = re.sub(_ESCAPE, lambda escape: _unescaped(escape[0][1:], token.column), body)
    if any("\ud800" <= sign <= "\udfff" for sign in body):
        raise Unsound([Fault("this text has half of a character", token.column)])
    return body


def _unescaped(escape: str, column: int) -> str:
    if escape[0] not in "xXuU01234567":
        return _MEANING.get(escape, escape)
    point = int(escape, 8) if escape[0].isdigit() else int(escape[1:], 16)
    if point > 0x10FFFF:
        raise Unsound([Fault(f"there is no character '\\{escape}'", column)])
    return chr(point)


def _number_of(text: str) -> float:
    try:
        return float(int(text, 16)) if text.startswith("0x") else float(text)
    except OverflowError:
        return math.inf


# --- from tokens to closures --------------------------------------------------------------------------
_MACROS: Final = frozenset({"all", "exists", "exists_one", "map", "filter"})
_METHODS: Final = _MACROS | {"startsWith", "endsWith", "contains", "matches", "size"}
_GLOBAL: Final = frozenset(
    {name for name in FUNCTIONS if name.startswith("kit.")}
    | {"size", "double", "int", "string", "has", "weighted"}
)
_LITERALS: Final[Mapping[str, tuple[object, str]]] = {
    "true": (True, "boolean"), "false": (False, "boolean"), "null": (None, "null"),
}  # fmt: skip
_LEVELS: Final = {
    sign: level
    for level, signs in enumerate(("||", "&&", "< <= > >= == != in", "+ -", "* / %"))
    for sign in signs.split()
}
_FLAT: Final = 2
"""Levels whose operators may be in a long chain."""
_WRITTEN_OUT: Final = "the fields and weights are written out: weighted(fields, {'name': 0.4})"
_TOO_DEEP: Final = f"the expression is nested deeper than {DEEPEST} levels; name a part of it in 'compute'"


class _Node(NamedTuple):
    """A part of an expression: its closure, and what is known about its value."""

    run: Run
    kind: str
    column: int
    depth: int = 1
    elements: str | None = None
    """The declared list whose elements this list has."""
    element: str | None = None
    """The declared list that this is an element of."""
    field: tuple[_Node, str] | None = None
    """What this is selected from, and the key."""
    text: str | None = None
    """What this literal says."""


class _Reader:
    """Reads an expression by recursive descent; notes the names that it reads, and its faults."""

    def __init__(self, text: str, names: Mapping[str, Kind], elements: Mapping[str, Collection[str]]) -> None:
        self._tokens, self._at, self._level = _tokens_of(text), 0, 0
        self._names, self._elements = names, elements
        self._bound: list[_Token] = []
        self._sources: dict[_Token, str | None] = {}
        self.read: dict[str, Kind] = {}
        self.faults: list[Fault] = []

    def whole(self) -> _Node:
        """Return the whole expression. Raises Unsound where it cannot be read further."""
        node = self._expression()
        return node if self._token.kind == "end" else self._unexpected()

    @property
    def _token(self) -> _Token:
        return self._tokens[self._at]

    def _next(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _ahead(self, *kinds: str) -> bool:
        """Return whether the next tokens have these texts or kinds."""
        ahead = self._tokens[self._at : self._at + len(kinds)]
        return len(ahead) == len(kinds) and all(map(tuple.__contains__, ahead, kinds))

    def _take(self, text: str) -> bool:
        found = self._token.text == text
        self._at += found
        return found

    def _need(self, text: str, opened: _Token | None = None) -> None:
        if opened is not None and self._token.kind == "end":
            self._stop(opened.column, f"this '{opened.text}' is never closed")
        if not self._take(text):
            self._unexpected()

    def _fault(self, column: int, words: str, meant: str | None = None, allowed: Iterable[str] = ()) -> None:
        self.faults.append(Fault(words, column, meant, tuple(sorted(allowed))))

    def _stop(self, column: int, message: str, meant: str | None = None) -> NoReturn:
        raise Unsound([*self.faults, Fault(message, column, meant)])

    def _unexpected(self) -> NoReturn:
        _, text, column = self._token
        words = {
            "": "the expression ends too early",
            "{": "there are no messages in an expression",
            "in": "'in' is written between a value and a list: mode in ['a', 'b']",
        }
        missing = f"there is no '{text}' here" if text in _INSTEAD else f"'{text}' is not expected here"
        self._stop(column, words.get(text, missing), _INSTEAD.get(text))

    def _made(self, run: Run, kind: str | None, column: int, parts: Iterable[_Node], **more: Any) -> _Node:
        depth = 1 + max((part.depth for part in parts), default=0)
        if depth > DEEPEST:
            self._stop(column, _TOO_DEEP)
        return _Node(run, kind or "any", column, depth, **more)

    def _applied(self, function: Function, name: str, column: int, *parts: _Node, **more: Any) -> _Node:
        """Return a function of parts; note a fault if it does not take their kinds."""
        kinds = [part.kind for part in parts]
        if (gives := function.gives(kinds)) is None:
            self._fault(column, unfit(name, *kinds))
        run = call(name, function, [part.run for part in parts])
        return self._made(run, gives, parts[0].column, parts, **more)

    def _needs(self, node: _Node, name: str, *kinds: str) -> None:
        if node.kind not in {"any", *kinds}:
            self._fault(node.column, unfit(name, node.kind))

    def _expression(self) -> _Node:
        self._level += 1
        if self._level > DEEPEST + 1:
            self._stop(self._token.column, _TOO_DEEP)
        node, column = self._binary(0), self._token.column
        if self._take("?"):
            then = self._binary(0)
            self._need(":")
            node = self._choice(column, node, then, self._expression())
        self._level -= 1
        return node

    def _choice(self, column: int, condition: _Node, then: _Node, other: _Node) -> _Node:
        self._needs(condition, "? :", "boolean")
        if FUNCTIONS["=="].gives((then.kind, other.kind)) is None:
            self._fault(column, unfit("? :", then.kind, other.kind))

        run = choice(condition.run, then.run, other.run)
        kind = then.kind if then.kind == other.kind else "any"
        return self._made(run, kind, condition.column, (condition, then, other))

    def _binary(self, lowest: int) -> _Node:
        node = self._unary()
        while (level := _LEVELS.get(self._token.text, -1)) >= lowest:
            sign = self._next()
            if level < _FLAT:
                node = self._joined(sign, level, node)
            else:
                right = self._binary(level + 1)
                node = self._applied(FUNCTIONS[sign.text], sign.text, sign.column, node, right)
        return node

    def _joined(self, sign: _Token, level: int, first: _Node) -> _Node:
        """Return a chain of `&&` or `||`, as deep as its deepest part."""
        parts, text, at = [first], sign.text, sign
        while True:
            parts.append(self._binary(level + 1))
            kinds = [part.kind for part in parts[-2:]]
            if FUNCTIONS[text].gives(kinds) is None:
                self._fault(at.column, unfit(text, *kinds))
            if self._token.text != text:
                break
            at = self._next()
        runs = [part.run for part in parts]
        return self._made(lambda values: junction(text, runs, values), "boolean", first.column, parts)

    def _unary(self) -> _Node:
        signs = []
        while self._token.text in {"-", "!"}:
            signs.append(self._next())
        node = self._member()
        for _, sign, column in reversed(signs):
            node = self._applied(FUNCTIONS[f"{sign}_"], sign, column, node)
        return node

    def _member(self) -> _Node:
        node = self._primary()
        while self._token.text in {".", "["}:
            sign = self._next()
            if sign.text == "[":
                index = self._expression()
                self._need("]", sign)
                parts, source = (node, index), node.elements
                node = self._applied(FUNCTIONS["[ ]"], "[ ]", sign.column, *parts, element=source)
            elif self._ahead("name", "("):
                name = self._next()
                node = self._called(name.text, name.column, self._next(), node)
            elif self._ahead("name"):
                node = self._selected(node, self._next())
            else:
                self._unexpected()
        return node

    def _selected(self, node: _Node, key: _Token) -> _Node:
        before = self._tokens[self._at - 3]
        self._key(node.element, key.text, before.column if before.kind == "name" else key.column)
        function = selection(key.text)
        return self._applied(function, f".{key.text}", key.column, node, field=(node, key.text))

    def _key(self, source: str | None, key: str, column: int) -> None:
        """Note a fault if a key is known to be missing in the elements of a list."""
        if source is not None and key not in (keys := self._elements[source]):
            self._fault(column, f"elements of '{source}' have no '{key}'", _near(key, keys), keys)

    def _primary(self) -> _Node:
        kind, text, column = token = self._token
        if kind == "name" and text != "in":
            return self._name(self._next())
        if kind in {"text", "raw"}:
            return self._literal(_text_of(self._next()), "text", column)
        if kind in {"number", "whole"}:
            if math.isinf(number := _number_of(self._next().text)):
                self._fault(column, "this number is too large")
            return self._literal(number, "number", column)
        if text not in {"(", "[", "{"}:
            self._unexpected()
        self._at += 1
        if text == "(":
            node = self._expression()
            self._need(")", token)
            return node
        return self._list(token) if text == "[" else self._map(token)

    def _literal(self, value: object, kind: str, column: int) -> _Node:
        return _Node(lambda _: value, kind, column, text=value if isinstance(value, str) else None)

    def _several(self, opened: _Token, closing: str, read: Callable[[], _Read]) -> list[_Read]:
        """Return what is between brackets, with commas between."""
        found: list[_Read] = []
        while not self._take(closing):
            if found:
                self._need(closing if self._token.text != "," else ",", opened)
                if self._tokens[self._at - 1].text != "," or (closing != ")" and self._take(closing)):
                    break
            found.append(read())
        return found

    def _list(self, opened: _Token) -> _Node:
        parts = self._several(opened, "]", self._expression)
        runs = [part.run for part in parts]
        return self._made(lambda values: [run(values) for run in runs], "list", opened.column, parts)

    def _map(self, opened: _Token) -> _Node:
        pairs = self._several(opened, "}", self._pair)

        run = mapped([(key.run, value.run) for key, value in pairs])
        return self._made(run, "map", opened.column, [node for pair in pairs for node in pair])

    def _pair(self) -> tuple[_Node, _Node]:
        key = self._expression()
        if key.kind not in {"any", "text"}:
            self._fault(key.column, "the keys of a map are texts")
        self._need(":")
        return key, self._expression()

    def _name(self, first: _Token) -> _Node:
        _, text, column = first
        if text in _LITERALS:
            return self._literal(*_LITERALS[text], column)
        if text == "kit" and self._ahead(".", "name", "("):
            text += f".{self._tokens[self._at + 1].text}"
            self._at += 2
        if self._ahead("("):
            return self._called(text, column, self._next())
        for one in reversed(self._bound):
            if one.text == text:
                run = variable(f"{text} {one.column}", text)
                return _Node(run, "any", column, element=self._sources[one])
        return self._declared(first)

    def _declared(self, first: _Token) -> _Node:
        parts, at = [first.text], self._at
        while self._ahead(".", "name") and not self._ahead(".", "name", "("):
            self._at += 2
            parts.append(self._tokens[self._at - 1].text)
        heads = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
        name = next((head for head in reversed(heads) if head in self._names), None)
        if name is None or (name != heads[-1] and self._names[name] != "any"):
            self._no_such(heads[-1], first.column)
            return self._literal(None, "any", first.column)
        self._at = at + 2 * heads.index(name)
        return self._reading(name, first.column)

    def _reading(self, name: str, column: int) -> _Node:
        kind = self.read.setdefault(name, self._names[name])
        elements = name if name in self._elements else None
        return _Node(variable(name, name), kind, column, elements=elements)

    def _no_such(self, name: str, column: int) -> None:
        if name == "fields" and any(other.startswith("fields.") for other in self._names):
            self._fault(column, "'fields' alone is only the first argument of weighted(fields, {…})")
            return
        head = f"{name.rpartition('.')[0]}."
        allowed = [other for other in self._names if other.startswith(head)]
        words = f"'{name}' is a word of CEL and no name" if name in RESERVED else f"there is no '{name}' here"
        self._fault(column, words, _INSTEAD.get(name) or _near(name, self._names), allowed or self._names)

    def _called(self, name: str, column: int, opened: _Token, *own: _Node) -> _Node:
        """Read the rest of a call; `own`: what a method is called of."""
        if own and name in _MACROS:
            return self._macro(own[0], name, column, opened)
        if name == "weighted" and not own:
            return self._weighted(column, opened)
        parts = [*own, *self._several(opened, ")", self._expression)]
        if name not in (known := _METHODS if own else _GLOBAL):
            words = f"nothing here has a function '.{name}()'" if own else f"there is no function '{name}'"
            self._fault(column, words, _near(name, known), known)
            return self._literal(None, "any", column)
        if name == "has":
            return self._has(column, parts)
        if (count := FUNCTIONS[name].count - len(own)) != len(parts) - len(own):
            words = f"{name}() takes {count} value{'s'[: count != 1]}, and is given {len(parts) - len(own)}"
            self._fault(column, words)
            return self._literal(None, "any", column)
        if parts[-1].text is not None:
            self._key(parts[0].elements, parts[-1].text, parts[-1].column)
        return self._applied(FUNCTIONS[name], name, column, *parts)

    def _has(self, column: int, parts: list[_Node]) -> _Node:
        if len(parts) != 1 or parts[0].field is None:
            self._stop(column, "has() asks for a key of a value, has(item.x), not for a declared name")
        whole, key = parts[0].field
        return self._applied(presence(key), "has", column, whole)

    def _weighted(self, column: int, opened: _Token) -> _Node:
        if not self._ahead("fields", ",", "{"):
            self._stop(column, _WRITTEN_OUT)
        self._at += 3
        pairs = self._several(self._tokens[self._at - 1], "}", self._pair)
        self._need(")", opened)
        weights = {self._weighed(key): weight for key, weight in pairs}
        for weight in weights.values():
            self._needs(weight, "weighted", "number")

        run = weighing({name: weight.run for name, weight in weights.items()})
        return self._made(run, "number", column, weights.values())

    def _weighed(self, key: _Node) -> str:
        """Return the name of a field that has a weight; note a fault if there is no such field."""
        kinds = {name[7:]: kind for name, kind in self._names.items() if name.startswith("fields.")}
        known = [name for name, kind in kinds.items() if kind in {"number", "any"} and "." not in name]
        if key.text is None:
            self._fault(key.column, "a weight has the name of a field: {'name': 0.4}", None, known)
        elif key.text not in known:
            words = f"there is no field '{key.text}' that is a number"
            self._fault(key.column, words, _near(key.text, known), known)
        else:
            self._reading(f"fields.{key.text}", key.column)
        return f"fields.{key.text}"

    def _macro(self, source: _Node, name: str, column: int, opened: _Token) -> _Node:
        one = self._token
        if not self._ahead("name", ","):
            words = f"{name}() takes a name for an element, then what is asked of it: {name}(x, …)"
            self._stop(column, words)
        self._at += 2
        self._sources[one] = source.elements
        self._bound.append(one)
        body = self._expression()
        self._bound.pop()
        if self._token.text == ",":
            self._stop(column, f"{name}() takes a name and a value", "filter(x, …).map(x, …)")
        self._need(")", opened)
        if source.kind not in {"any", "list", "map"}:
            self._fault(column, unfit(name, source.kind))
        if name != "map":
            self._needs(body, name, "boolean")
        run = comprehension(name, source.run, f"{one.text} {one.column}", body.run)
        kind = "list" if name in {"map", "filter"} else "boolean"
        elements = source.elements if name == "filter" else None
        return self._made(run, kind, source.column, (source, body), elements=elements)


def _near(name: str, names: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, sorted(names), n=1)), None)
