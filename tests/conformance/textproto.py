"""A reader of protobuf's text format, as far as the cases of cel-spec use it.

No package that the tests have reads the format without the compiled messages, and the cases need only names,
scalars and blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

Block = Mapping[str, list["Block | str"]]
"""The values of each field, in their order. Numbers and words are texts, as they are written."""

_TOKEN: Final = re.compile(
    r"""\s+ | \#[^\n]* | (?P<text>"(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*')
    | (?P<word>\[[\w./]+\] | [-+\w.]+) | (?P<sign>[{}<>:,;\[\]])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(
    r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_MEANING: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def read(text: str) -> Block:
    """Return the message in a text. Raises ValueError."""
    block, end = _block(list(_tokens(text)), 0)
    if end is not None:
        raise ValueError("a bracket closes nothing")
    return block


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"unexpected {text[at : at + 20]!r}")
        if match.lastgroup:
            yield match.lastgroup, match[0]
        at = match.end()


def _block(tokens: list[tuple[str, str]], at: int) -> tuple[Block, int | None]:
    """Return a message, and the place after the bracket that ends it, None at the end of the text."""
    fields: dict[str, list[Block | str]] = {}
    while at < len(tokens):
        kind, name = tokens[at]
        at += 1
        if name in {"}", ">"} and kind == "sign":
            return fields, at
        if kind == "sign":
            continue
        values, at = _values(tokens, at + (tokens[at][1] == ":"))
        fields.setdefault(name, []).extend(values)
    return fields, None


def _values(tokens: list[tuple[str, str]], at: int) -> tuple[list[Block | str], int]:
    if tokens[at] == ("sign", "["):
        values: list[Block | str] = []
        at += 1
        while tokens[at] != ("sign", "]"):
            more, at = _values(tokens, at)
            values += more
            at += tokens[at] == ("sign", ",")
        return values, at + 1
    if tokens[at][0] == "sign":
        block, end = _block(tokens, at + 1)
        if end is None:
            raise ValueError("a bracket is never closed")
        return [block], end
    if tokens[at][0] == "word":
        return [tokens[at][1]], at + 1
    parts = []
    while at < len(tokens) and tokens[at][0] == "text":
        parts.append(_said(tokens[at][1][1:-1]))
        at += 1
    return ["".join(parts)], at


def _said(body: str) -> str:
    """Return the text of a literal, whose octal and hexadecimal escapes are bytes."""
    raw = _ESCAPE.sub(_escaped, body).encode("utf-8", "surrogateescape")
    return raw.decode("utf-8", "replace")


def _escaped(match: re.Match[str]) -> str:
    octal, hexadecimal, short, long, sign = match.groups()
    if octal or hexadecimal:
        return bytes([int(octal, 8) & 255 if octal else int(hexadecimal, 16)]).decode(
            "utf-8", "surrogateescape"
        )
    if short or long:
        return chr(int(short or long, 16))
    return _MEANING.get(sign, sign)
