"""JSON from strangers: strict, bounded, with lines."""

from __future__ import annotations

import pytest

from handoffd.errors import InvalidFile
from handoffd.protocol.state import MAX_BYTES, load_object


def test_every_value_has_its_line() -> None:
    """Keys in objects and items of lists are found, whatever strings hold."""
    text = '{\n "a": "}{ \\" [,",\n "b": {"c": [1,\n 2, {"d":\n 3}]},\n "a:b": 4}'

    raw = load_object(text, "f.json")

    lines = {
        ("a",): 2, ("b", "c"): 3, ("b", "c", 1): 4, ("b", "c", 2): 4, ("b", "c", 2, "d"): 5, ("a:b",): 6,
    }  # fmt: skip
    assert lines == raw.lines_of({*lines, ("c",)})


def test_a_byte_order_mark_is_not_an_error() -> None:
    """Some editors leave one."""
    assert {"a": 1} == load_object(b'\xef\xbb\xbf{"a": 1}', "f.json").data


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "is empty"),
        (" \n", 2, "is empty"),
        ('{"a": 1,\n}', 2, "not valid JSON"),
        ('{"a": 1', 1, "not valid JSON"),
        ("[1]", 1, "must be a JSON object"),
        ('{"a": 1,\n"a": 2}', 2, "given twice"),
        ('{"a": {"b": 1, "b": 2}}', 1, "given twice"),
        ('{"a": NaN}', None, "cannot be kept"),
        ('{"a": -Infinity}', None, "cannot be kept"),
        ('{"a": 1e999}', None, "cannot be kept"),
        ('{"a": ' + "9" * 5000 + "}", None, "cannot be kept"),
        ('{"a": "\\ud800"}', None, "surrogate"),
        ('{"\\udfff": 1}', None, "surrogate"),
        ('{"a":' * 51 + "1" + "}" * 51, None, "nested"),
        ('{"a":' + "[" * 100_000, None, "nested"),
        (b'{"a":\n "\xff"}', 2, "not UTF-8"),
        (" " * (MAX_BYTES + 1), None, "larger than 1024 KiB"),
    ],
)
def test_json_that_is_refused(text: str | bytes, line: int | None, message: str) -> None:
    """Each refusal is one problem that says where and why."""
    with pytest.raises(InvalidFile) as caught:
        load_object(text, "f.json")

    (problem,) = caught.value.problems
    assert message in problem.message
    assert line == problem.line
