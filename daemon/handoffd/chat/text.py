"""Messages as people type them, made comparable: what looks the same shall match the same.

Phones and input methods put in full-width signs, ideographic blanks, zero-width characters and either
form of a Chinese character. `cleaned` removes invisible characters and is stored; `folded` is for
comparing only and has the same length, so that a place found in it is a place in the message.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator
from functools import cached_property
from typing import Final

MAX_CHARACTERS: Final = 64 * 1024
"""Longer messages are cut here: they are not commands, and too long for a note."""

_SIMPLIFIED: Final = (
    "状态进测试骤过开项专审诊处问题继续终弃暂这里备笔记没吗么为样谁几还报历执启动验证实写现结码扫类检侦让帮请烦谢说"
    "显数构围范时复补删优调换设计导译将级给诉总会别后们发场约释关闭并认满绪够缓东边带对错无产点虑议标预节并驳"
    "话决线则条许办绝销应确骗"
)
_TRADITIONAL: Final = (
    "狀態進測試驟過開項專審診處問題繼續終棄暫這裡備筆記沒嗎麼為樣誰幾還報歷執啟動驗證實寫現結碼掃類檢偵讓幫請煩謝說"
    "顯數構圍範時復補刪優調換設計導譯將級給訴總會別後們發場約釋關閉並認滿緒夠緩東邊帶對錯無產點慮議標預節並駁"
    "話決線則條許辦絕銷應確騙"
)
_FORMS: Final = dict(zip(_SIMPLIFIED, _TRADITIONAL, strict=True)) | {"裏": "裡", "麽": "麼", "爲": "為"}
_SIGNS: Final = {"、": ",", "。": ".", "「": '"', "」": '"', "“": '"', "”": '"', "‘": "'", "’": "'"}


class LazyPattern:
    """A regular expression that is compiled when a message is first compared with it.

    A daemon without a chat compiles none of the hundred patterns of this package, which would take a fifth
    of its start.
    """

    def __init__(self, pattern: str, flags: re.RegexFlag = re.NOFLAG) -> None:
        self.pattern = pattern
        self._flags = flags

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern, self._flags)

    def match(self, text: str, start: int = 0) -> re.Match[str] | None:
        """Return the match that begins at `start`."""
        return self._compiled.match(text, start)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """Return the match with all of `text`."""
        return self._compiled.fullmatch(text)

    def search(self, text: str, start: int = 0, end: int = sys.maxsize) -> re.Match[str] | None:
        """Return the first match in `text` between two places."""
        return self._compiled.search(text, start, end)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """Yield each match in `text`."""
        return self._compiled.finditer(text)

    def sub(self, replacement: str, text: str, count: int = 0) -> str:
        """Return `text` with `replacement` in place of at most `count` matches; of all if it is 0."""
        return self._compiled.sub(replacement, text, count=count)


_COURTESY_FIRST: Final = LazyPattern(
    r"(?:(?:(?:please|pls|plz|kindly)(?![a-z])|請(?!問)|麻煩你?|拜託你?|勞駕|請問(?=.))[\s,:!]*)+"
)
_COURTESY_LAST: Final = LazyPattern(
    r"(?:[\s,.!~]*(?:(?<![a-z])(?:please|pls|plz|thanks?|thank you|thx|ty|many thanks)"
    r"|謝謝你?|感謝|多謝|拜託))+[\s,.!~]*$"
)
_COURTESY_CHARACTERS: Final = 80
"""So far from its end courtesies of a message are looked for."""


def cleaned(text: str) -> str:
    """Return a message without what cannot be seen, and without blanks around it."""
    return "".join(_visible(sign) for sign in text[:MAX_CHARACTERS]).strip()


def folded(text: str) -> str:
    """Return a text for comparing, as long as it was: narrow signs, small letters, one form of each sign."""
    return "".join(_folded(sign) for sign in text)


def evened(message: str) -> str:
    """Return a message with single blanks between its words; one of several lines stays as it is."""
    return message if "\n" in message else re.sub(r"\s+", " ", message)


def bare(text: str) -> str:
    """Return a folded, trimmed message without the courtesies around it; empty if it is nothing else."""
    first = _COURTESY_FIRST.match(text)
    rest = text if first is None else trimmed(text[first.end() :])
    last = _COURTESY_LAST.search(rest, max(0, len(rest) - _COURTESY_CHARACTERS))
    return rest if last is None else trimmed(rest[: last.start()])


def plainly(message: str) -> str:
    """Return a message as it is written, without courtesies; whole, if it is nothing else."""
    text = folded(message)
    first = _COURTESY_FIRST.match(text)
    start = first.end() if first is not None else 0
    last = _COURTESY_LAST.search(text, max(start, len(text) - _COURTESY_CHARACTERS))
    rest = message[start : last.start() if last is not None else None]
    return rest if any(sign.isalnum() for sign in rest) else message


def narrow(text: str) -> str:
    """Return a text in narrow signs, its letters as they are."""
    return unicodedata.normalize("NFKC", text)


def is_chinese(text: str) -> bool:
    """Return whether the user writes Chinese: one ideograph is enough."""
    return any("\u4e00" <= sign <= "\u9fff" for sign in text)


def trimmed(text: str) -> str:
    """Return a folded message without the signs, quotes and emoji around what it says."""
    start, end = 0, len(text)
    while end > start and _is_ornament(text[end - 1]):
        end -= 1
    while start < end and _is_ornament(text[start]):
        start += 1
    return text[start:end]


def _visible(sign: str) -> str:
    if sign in "\n\t":
        return sign
    category = unicodedata.category(sign)
    if category == "Cs":
        return "\ufffd"  # half of a character cannot be stored; its place stays to be seen
    return "" if category in {"Cf", "Cc"} else sign


def _folded(sign: str) -> str:
    if sign == "\n":
        return sign
    narrow = unicodedata.normalize("NFKC", sign)
    small = (narrow if len(narrow) == 1 else sign).lower()
    one = small if len(small) == 1 else sign
    return " " if one.isspace() else _SIGNS.get(one) or _FORMS.get(one, one)


def _is_ornament(sign: str) -> bool:
    """Tell whether a sign says nothing by itself. A question mark says a lot."""
    if sign == "?":
        return False
    return (
        sign.isspace()
        or unicodedata.category(sign) in {"So", "Sk", "Mn", "Po", "Pi", "Pf", "Cn"}
        or sign in "~-="
    )
