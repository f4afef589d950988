"""A front matter as agents are asked to write it, read in a fiftieth of the time that YAML takes.

The loader (`yamltext.py`) is right about everything and takes a millisecond, while the next executor
waits. This reads `key: value` lines and lists of short texts, nothing else, and only where it is
certain to say what the loader would: whatever it does not know by heart is the loader's to read. A
property test holds the two against each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from handoffd.protocol.yamltext import NULLS, YamlText

MAX_CHARACTERS = 6 * 1024
"""Of so much text nothing can pass the loader's limits, which are not looked at here."""

# Printable ASCII but `:` and `#`, which may end a plain text or turn it into something else.
_PLAIN = r"[A-Za-z0-9_./(+][A-Za-z0-9 _./,;+=()\[\]{}'\"<>!?@$%^&*~|\\`-]*"
_QUOTED = r"\"[ !#-\[\]-~]*\"|'[ -&(-~]*'"
_SCALAR = rf"(?P<plain>{_PLAIN})|(?P<quoted>{_QUOTED})"
_ITEM = r" *[A-Za-z0-9_./(+][A-Za-z0-9 _./+=()@-]*"
_INLINE = rf"\[(?P<inline>(?:{_ITEM}(?:,{_ITEM})*)?) *\]"
_PAIR = re.compile(rf"(?P<key>[A-Za-z_][A-Za-z0-9_-]{{0,63}}):(?: +(?:{_SCALAR}|{_INLINE}))? *")
_ENTRY = re.compile(rf"(?P<indent> *)- +(?:{_SCALAR}) *")


def read_flat(text: str, *, first_line: int = 1) -> YamlText | None:
    """Return what `yamltext.load` returns for `text` without resolving; None where that has to be asked."""
    if not text or len(text) > MAX_CHARACTERS:
        return None
    reader = _Reader(first_line)
    for number, line in enumerate(text.split("\n"), start=first_line):
        if line and not reader.take(line, number):
            return None
    return YamlText(reader.values, reader.lines) if reader.values else None


class _Reader:
    """Takes lines, as long as it is certain of them."""

    def __init__(self, first_line: int) -> None:
        self.values: dict[str, str | list[str | None] | None] = {}
        self.lines: dict[str, int] = {"": first_line}
        self._open: str | None = None
        """The key without a value after which a list may begin, or goes on."""
        self._indent: str | None = None
        """That of the list's first entry."""

    def take(self, line: str, number: int) -> bool:
        """Add a line; False for one that may mean something else than it seems to."""
        pair = _PAIR.fullmatch(line)
        if pair is not None:
            return self._add_pair(pair, number)
        entry = _ENTRY.fullmatch(line)
        return entry is not None and self._add_entry(entry, number)

    def _add_pair(self, pair: re.Match[str], number: int) -> bool:
        key, inline = pair["key"], pair["inline"]
        if key in self.values:
            return False
        self.lines[key] = number
        self._open = self._indent = None
        if inline is not None:
            items = list(_inline(inline))
            self.values[key] = items
            self.lines |= {f"{key}.{at}": number for at in range(len(items))}
        elif pair["plain"] is None and pair["quoted"] is None:
            self.values[key], self._open = None, key
        else:
            self.values[key] = _scalar(pair)
        return True

    def _add_entry(self, entry: re.Match[str], number: int) -> bool:
        key = self._open
        if key is None or self._indent not in (None, entry["indent"]):
            return False
        self._indent = entry["indent"]
        items = self.values[key]
        if not isinstance(items, list):
            items = self.values[key] = []
        self.lines[f"{key}.{len(items)}"] = number
        items.append(_scalar(entry))
        return True


def _scalar(found: re.Match[str]) -> str | None:
    quoted: str | None = found["quoted"]
    return _meant(found["plain"]) if quoted is None else quoted[1:-1]


def _inline(text: str) -> Iterator[str | None]:
    for item in text.split(",") if text else ():
        yield _meant(item.lstrip(" "))


def _meant(plain: str) -> str | None:
    text = plain.rstrip(" ")
    return None if text in NULLS else text
