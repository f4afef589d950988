"""Text of others, made fit to stand in a prompt.

What people, agents and tools wrote must not be able to pass for a part of the prompt itself: a text of
several lines is quoted line by line, so no line of it can begin a section; a name is one line of
code; an identifier is reduced to the letters identifiers are made of. Invisible characters become
visible, and what is too long is cut, always in the same place and never without saying so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from handoffd.protocol.rules import Language

_NEWLINE = re.compile(r"\r\n|[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])")
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    r"\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e01ef]"
)
_NO_IDENTIFIER = re.compile(r"[^A-Za-z0-9._-]")
_BACKTICKS = re.compile(r"`+")

_MORE_ITEMS: dict[Language, str] = {"en": "… {} more", "zh-TW": "……另有 {} 項"}
_MORE_TEXT: dict[Language, str] = {"en": "[… {} more characters]", "zh-TW": "［……另有 {} 個字元］"}


def identifier(text: str, *, limit: int = 80) -> str:
    """Return `text` with everything that has no place in an identifier replaced by `_`."""
    return _NO_IDENTIFIER.sub("_", text[:limit])


def line(text: str, *, limit: int = 120) -> str:
    """Return `text` as one line of at most `limit` characters."""
    flat = " ".join(_visible(_NEWLINE.sub("\n", text[: 4 * limit])).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def code(text: str, *, limit: int = 300) -> str:
    """Return `text` as a code span of one line; line ends in it show as `\\n`."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    plain = _visible(_NEWLINE.sub("\n", cut).replace("\n", "\\n").replace("\t", "\\t"))
    longest = max((len(run) for run in _BACKTICKS.findall(plain)), default=0)
    if not longest:
        return f"`{plain}`" if plain.strip() else "` `"
    fence = "`" * (longest + 1)
    return f"{fence} {plain} {fence}"


def quoted(
    text: str, *, limit: int, language: Language, keep: Literal["head", "tail"] = "head"
) -> str | None:
    """Return `text` as quoted lines of at most about `limit` bytes together; None if it is blank.

    Of a longer text its head or tail is kept, and a line outside the quotation says how much is missing.
    """
    near = text[: 4 * limit] if keep == "head" else text[-4 * limit :]  # no need to clean what is cut anyway
    clean = _visible(_NEWLINE.sub("\n", _TERMINAL.sub("", near))).strip("\n")
    if not clean.strip():
        return None
    lines = clean.split("\n")
    kept = _head(lines, limit) if keep == "head" else _tail(lines, limit)
    quotation = [f"> {item}".rstrip() for item in kept]
    missing = len(clean) - len("\n".join(kept)) + len(text) - len(near)
    if missing:
        note = _MORE_TEXT[language].format(missing)
        quotation = [*quotation, "", note] if keep == "head" else [note, "", *quotation]
    return "\n".join(quotation)


def listed(items: Iterable[str], *, limit: int, language: Language, most: int = 200) -> tuple[str, ...]:
    """Return `items` as code spans of at most `limit` bytes together; the last one counts the rest."""
    everything = tuple(items)
    shown: list[str] = []
    for item in everything[:most]:
        span = code(item)
        limit -= len(span.encode())
        if limit < 0:
            break
        shown.append(span)
    if len(shown) < len(everything):
        shown.append(_MORE_ITEMS[language].format(len(everything) - len(shown)))
    return tuple(shown)


def _visible(text: str) -> str:
    return _INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _head(lines: list[str], limit: int) -> list[str]:
    kept: list[str] = []
    for item in lines:
        room = limit - 3
        data = item.encode()
        limit -= len(data) + 3
        if limit < 0:
            return [*kept, data[: max(room, 0)].decode(errors="ignore")] if room > 0 else kept
        kept.append(item)
    return kept


def _tail(lines: list[str], limit: int) -> list[str]:
    mirrored = _head([item[::-1] for item in reversed(lines)], limit)
    return [item[::-1] for item in reversed(mirrored)]
