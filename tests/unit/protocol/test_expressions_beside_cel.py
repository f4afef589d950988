"""Expressions beside cel-python, a whole CEL: the same value, or an error of both.

Not compared is what cel-python takes otherwise than the specification: `has(m.gone.x)`, an error, and an
error inside `exists_one`, `map` or `filter` beside a part that decides.
"""

from __future__ import annotations

import math
import operator
import re
from typing import Any, Final

import pytest
from celpy import Environment, celtypes
from celpy.adapter import json_to_cel
from celpy.evaluation import CELEvalError
from hypothesis import given, settings
from hypothesis import strategies as st

from handoffd.protocol.expressions import Broken, Kind, compiled, evaluate

NAMES: Final[dict[str, Kind]] = {
    "n": "number",
    "t": "text",
    "b": "boolean",
    "l": "list",
    "w": "list",
    "m": "any",
}
GRAMMAR: Final[dict[str, list[str]]] = {
    "number": [
        "n", "0.0", "1.0", "2.5", "1e3", "m.one", "m.gone", "l[0]", "l[7]", "m['one']", "{number} + {number}",
        "{number} - {number}", "{number} * {number}", "{number} / {number}", "-({number})", "({number})",
        "«size({list})»", "«size({text})»", "«size({words})»", "«size(m)»", "«w.size()»", "{list}[1]",
        "({boolean} ? {number} : {number})", "double({number})", "m.inner.x",
    ],
    "text": [
        "t", "''", "'aé'", "\"b\\n\"", "r'\\d'", "m.word", "m.nothing", "w[0]", "{text} + {text}", "({text})",
        "({boolean} ? {text} : {text})", "string({text})", "{words}[0]",
    ],
    "boolean": [
        "b", "true", "false", "m.flag", "!({boolean})", "({boolean})", "{boolean} && {boolean}",
        "{boolean} || {boolean}", "({boolean} && {boolean} || {boolean})", "({number}) == ({number})",
        "({text}) != ({text})", "({list}) == ({list})", "({boolean}) == ({boolean})",
        "({number}) < ({number})", "({number}) >= ({number})", "b == m.flag", "({text}) <= ({text})",
        "({text}) > ({text})", "({number}) in {list}", "({text}) in {words}", "({text}) in m",
        "has(m.one)", "has(m.gone)", "has(m.inner.x)",
        "({text}).startsWith({text})", "({text}).endsWith({text})", "({text}).contains({text})",
        "({text}).matches('^[a-q]+$')", "({list}).all(x, x > {number})", "({list}).exists(x, x == {number})",
        "({words}).exists_one(x, x == t)", "({list}).all(x, {boolean})", "({list}).exists(x, {boolean})",
        "({boolean} ? {boolean} : {boolean})",
    ],
    "list": [
        "l", "[]", "[{number}]", "[{number}, {number}]", "m.list", "({list} + {list})",
        "({list}).map(x, x + n)", "({list}).filter(x, x <= n)", "({boolean} ? {list} : {list})",
    ],
    "words": ["w", "['a', {text}]", "({words} + {words})", "({words}).map(x, x + t)"],
}  # fmt: skip
"""What each kind may be written as. What is in «» is a whole number in CEL."""


@st.composite
def written(draw: st.DrawFn, kind: str, levels: int = 3) -> str:
    """Texts of one kind; at the last level only names and literals."""
    ways = [way for way in GRAMMAR[kind] if levels or "{" not in way]
    way = draw(st.sampled_from(ways))
    return re.sub(r"\{(\w+)\}", lambda part: draw(written(part[1], levels - 1)), way)


def numbers() -> st.SearchStrategy[float]:
    """Numbers that are often equal."""
    return st.sampled_from([0.0, 1.0, -2.0, 2.5, 1e300]) | st.floats(-1e6, 1e6)


VALUES: Final = st.fixed_dictionaries(
    {
        "n": numbers(),
        "t": st.sampled_from(["", "a", "aé", "😀"]),
        "b": st.booleans(),
        "l": st.lists(numbers(), max_size=3),
        "w": st.lists(st.sampled_from(["a", "b", ""]), max_size=3),
        "m": st.fixed_dictionaries(
            {
                "one": numbers(),
                "word": st.sampled_from(["a", "ab"]),
                "flag": st.booleans(),
                "list": st.lists(numbers(), max_size=2),
                "inner": st.sampled_from([{}, {"x": 1.0}]),
            }
        ),
    }
)
ENVIRONMENT: Final = Environment()


def by_celpy(text: str, values: dict[str, Any]) -> object:
    """Return the value by cel-python. Raises CELEvalError.

    Division by zero, infinity and NaN are errors of ours by intent, so they are made errors of both.
    """

    def checked(compute: Any) -> Any:
        def computed(left: Any, right: Any) -> Any:
            for side in (left, right):
                if isinstance(side, CELEvalError):
                    return side
            value = compute(left, right)
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError("not finite")
            return celtypes.StringType(value) if isinstance(value, str) else value

        return computed

    signs = {"_/_": operator.truediv, "_*_": operator.mul, "_+_": operator.add, "_-_": operator.sub}
    functions = {sign: checked(compute) for sign, compute in signs.items()}
    program = ENVIRONMENT.program(ENVIRONMENT.compile(text), functions)
    return plain(program.evaluate({name: json_to_cel(value) for name, value in values.items()}))


def plain(value: Any) -> object:
    """Return a value of cel-python as plain data."""
    if isinstance(value, celtypes.BoolType):
        return bool(value)
    if isinstance(value, list):
        return [plain(one) for one in value]
    return float(value) if isinstance(value, float) else str(value)


KINDS: Final[dict[str, Kind]] = {
    "number": "number",
    "text": "text",
    "boolean": "boolean",
    "list": "list",
    "words": "list",
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(data=st.data())
def test_a_value_is_what_cel_python_says(kind: str, data: st.DataObject) -> None:
    """And where that has none, ours is broken."""
    text, values = data.draw(written(kind)), data.draw(VALUES)
    expression = compiled(re.sub("[«»]", "", text), KINDS[kind], NAMES)
    try:
        expected = by_celpy(text.replace("«", "double(").replace("»", ")"), values)
    except (CELEvalError, IndexError):  # cel-python fails to print an empty list in the text of an error
        with pytest.raises(Broken):
            evaluate(expression, values)
        return

    assert expected == evaluate(expression, values)
