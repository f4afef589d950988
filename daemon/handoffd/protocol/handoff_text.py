"""The two hand-off files as pieces: front matter or none, and key-value pairs with their lines.

Agents write these files, so the form is taken generously (byte order marks, CRLF, blank lines or a
code fence before the front matter, control characters) and only the form: what the values mean is
`reading.py`'s business.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from handoffd.errors import InvalidFile, Problem
from handoffd.protocol.handoff import HANDOFF_FILE, MAX_FILE_BYTES, RESULT_FILE
from handoffd.protocol.yamltext import MAX_BYTES, YamlText, load

_NOT_IN_YAML = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
"""Every other character is. `re` needs ten times as long, 7 ms, for the reverse: a class that names those."""
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_PAIR = re.compile(r"""[\s*{-]*["']?([A-Za-z][A-Za-z _-]{0,40}?)["'*]{0,4}\s*[:=](?:\s(.*)|(["'\w\[].*)?)$""")
_COMMENT = re.compile(r"(?<!\s)\s+#.*$")  # the look-behind keeps long blanks from costing their square


class Fields(Struct, frozen=True):
    """Keys as they were written, with values (strings, lists, mappings, None) and lines from 1."""

    values: Mapping[str, Any]
    lines: Mapping[str, int]


class Pieces(Struct, frozen=True):
    """One file in pieces. `fields` is None where there is no front matter: then `body` is all there is."""

    fields: Fields | None
    body: str
    warnings: tuple[str, ...] = ()


def is_blank(content: bytes) -> bool:
    """Tell whether a file says nothing: white space, or the zeros that a power cut leaves."""
    return not content.strip(b"\0 \t\r\n\v\f" + codecs.BOM_UTF8)


def handoff_pieces(content: bytes) -> Pieces:
    """Return HANDOFF.md in pieces. Raises InvalidFile if its front matter is unclosed or unreadable."""
    text, warnings = _text(content, HANDOFF_FILE)
    lines = text.split("\n")
    opening, closers = _opening(lines)
    if opening is None:
        return Pieces(None, text, warnings)
    closing = next((at for at in range(opening + 1, len(lines)) if lines[at].rstrip() in closers), None)
    if closing is None:
        raise _invalid(HANDOFF_FILE, "the front matter is opened here and never closed", line=opening + 1)
    inside = "\n".join(lines[opening + 1 : closing])
    first = opening + 2
    document = load(inside, HANDOFF_FILE, first_line=first, resolve=False)
    body = "\n".join(lines[closing + 1 :])
    if document.data is None:
        return Pieces(None, body, warnings)
    if any(line.strip() for line in lines[:opening]) or "```" in closers:
        warnings += (f"{HANDOFF_FILE}: the front matter is inside a code fence",)
    return Pieces(_mapping(document, HANDOFF_FILE, opening + 1), body, warnings)


def result_pieces(content: bytes) -> Pieces:
    """Return executor-result in pieces; lines that are no `key: value` are left out, with a warning.

    Raises InvalidFile when it is too large, or begins as JSON and is none.
    """
    text, warnings = _text(content, RESULT_FILE, limit=MAX_BYTES)
    if text.lstrip().startswith("{"):
        document = load(text, RESULT_FILE, resolve=False)
        return Pieces(_mapping(document, RESULT_FILE, 1), text, warnings)
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    others: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith(("#", "---", "```")):
            continue
        pair = _PAIR.match(stripped)
        if pair is None:
            others.append(f"{RESULT_FILE}:{number}: not a `key: value` line: {stripped[:80]!r}")
        else:
            values[pair[1]] = _value(pair[1], pair[2] or pair[3] or "")
            lines[pair[1]] = number
    return Pieces(Fields(values, lines), text, (*warnings, *others[:20]))


def _text(content: bytes, file: str, *, limit: int = MAX_FILE_BYTES) -> tuple[str, tuple[str, ...]]:
    """Return the text with LF line ends and nothing that YAML refuses, and what had to be replaced."""
    if len(content) > limit:
        raise _invalid(file, f"is larger than {limit // 1024} KiB")
    encoding = "utf-16" if content.startswith(_UTF16) else "utf-8-sig"
    decoded = content.decode(encoding, "replace")
    text = _NOT_IN_YAML.sub("\ufffd", decoded.replace("\r\n", "\n").replace("\r", "\n").replace("\ufeff", ""))
    if "\ufffd" in text:
        return text, (f"{file}: bytes that are not UTF-8 were replaced by U+FFFD",)
    return text, ()


def _opening(lines: list[str]) -> tuple[int | None, frozenset[str]]:
    """Return the index of the line that opens a front matter, and the lines that would close it."""
    filled = (at for at, line in enumerate(lines) if line.strip())
    first = next(filled, None)
    if first is None:
        return None, frozenset()
    word = lines[first].strip()
    if word == "---":
        return first, frozenset({"---", "..."} | {lines[first].rstrip()})
    if not word.startswith("```"):
        return None, frozenset()
    second = next(filled, None)
    if second is not None and lines[second].strip() == "---":
        return second, frozenset({"---", "..."} | {lines[second].rstrip()})
    return (first, frozenset({"```", "---"})) if word[3:].strip() in {"yaml", "yml"} else (None, frozenset())


def _mapping(document: YamlText, file: str, line: int) -> Fields:
    if not isinstance(document.data, dict):
        raise _invalid(file, "must hold `key: value` lines here", line=line)
    return Fields(document.data, document.lines)


def _value(key: str, text: str) -> str:
    """Return a value without quotes; a comment after a status or reason is none of it."""
    value = text.strip()
    bare = value.rstrip(",} ")
    if len(bare) > 1 and bare[0] in {'"', "'"} and bare[-1] == bare[0]:
        return bare[1:-1]
    return _COMMENT.sub("", value) if key.lower() in {"status", "reason"} else value


def _invalid(file: str, message: str, *, line: int | None = None) -> InvalidFile:
    return InvalidFile((Problem(file=file, line=line, message=message),))
