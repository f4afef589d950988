"""The project that a message names explicitly, known or not.

`open project A`, `繼續專案 A`, `A 專案加入 …`: next to the word for a project, or to a verb used only of
projects, a word is a name. Such a message is about that project or about none: if no
project has the name, the answer says that it is unknown and starts nothing in another project.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from handoffd.chat.questions import asks
from handoffd.chat.text import LazyPattern

_POLITE: Final = (
    r"^(?:(?:please|pls|plz|ok|okay|now|then|hey|hi|can you|could you|let's"
    r"|請|麻煩|拜託|幫我|幫忙|那就?|好的?|再)(?![a-z])[\s,:!]*)*"
)
_THANKS: Final = (
    r"(?:[\s,.!]*(?:please|pls|thanks?|thank you|thx|now|吧|喔|哦|囉|啦|謝謝|感謝|一下))*[\s.!?~]*$"
)
_NO_NAME: Final = (
    r"(?!(?:the|this|that|my|our|your|its|new|another|all|whole|entire|every|it|up|on|in|at|to|of|and|or"
    r"|for|with"
    r"|source|from|as|no|one|here)(?![\w.-])|us-\d)"
)
_WORD: Final = _NO_NAME + r"[a-z0-9_~/][a-z0-9_.~/-]*"
_NAME: Final = (
    rf"[\"'`@\[]?(?P<name>{_WORD}|(?:{_NO_NAME}(?![這此該我你新整全本的個一])\w[\w.-]{{0,40}}?))[\"'`\]]?"
)
_LATIN: Final = rf"[\"'`@\[]?(?P<name>(?<![a-z0-9_.~/-]){_WORD})[\"'`\]]?"
_PROJECT: Final = r"(?:(?:project|repo(?:sitory)?)\b|專案|項目)"
_MY: Final = r"(?:(?:the|my|our|this|that)\s+|(?:我們?的|這個?|那個?|此|該)\s*)?"
ONLY_OPEN: Final = (
    r"(?:open(?: up)?|switch (?:over |back )?to|(?:go|get|jump) (?:back )?(?:in)?to|(?:go )?back to"
    r"|return to|enter|select|choose"
    r"|開啟|打開|開一下|開(?!新|始)|切換到|切換至|切換|切到|切回|換到|轉到|轉回|進入|進到|跳到|前往|回到"
    r"|選擇|選取|選)"
)
_OPEN: Final = (
    rf"(?:{ONLY_OPEN}|change to|switch|show(?: me)?|pick|load|use(?! (?:the |a )?repo)|view|look at"
    rf"|activate|focus on|work (?:on|in)|move to"
    r"|切|換|轉|進|去|到|回|選定|挑|載入|讀取|使用|用|看看?|查看)"
)
_NO_PART: Final = r"(?!管理|列表|清單|名稱|設定|檔|頁)"
_OPENED: Final = (
    LazyPattern(
        rf"{_POLITE}{_OPEN}\s*(?:(?:an?|another|the other)\s+|另一個|別的)?{_MY}{_PROJECT}(?P<name>){_THANKS}"
    ),
    LazyPattern(rf"{_POLITE}{_OPEN}\s*{_MY}{_PROJECT}{_NO_PART}\s*:?\s*{_NAME}{_THANKS}"),
    LazyPattern(
        rf"{_POLITE}{_OPEN}\s*{_MY}{_NAME}(?:\s+|(?<=[\u4e00-\u9fff])|(?=[\u4e00-\u9fff])){_PROJECT}{_THANKS}"
    ),
    LazyPattern(rf"{_POLITE}{ONLY_OPEN}\s*{_MY}{_LATIN}{_THANKS}"),
    LazyPattern(rf"{_POLITE}{ONLY_OPEN}(?P<name>){_THANKS}"),
)
_MAKE: Final = r"(?:create|init(?:iali[sz]e)?|set up|setup|建立|新建|創建|新增|初始化|開(?=\s*(?:一?個|新)))"
_KIND: Final = r"(?:(?:an?|the|this|my)\s+)?(?:new\s+)?(?:一?個)?(?:新的?)?"
_MADE: Final = (
    LazyPattern(
        rf"{_POLITE}(?:create/)?{_MAKE}\s*(?:我的|我們的|這個?|此)?{_KIND}{_PROJECT}(?P<name>){_THANKS}"
    ),
    LazyPattern(
        rf"{_POLITE}{_MAKE}\s*{_KIND}{_PROJECT}(?:\s*(?:named|called|for|in|at|叫做?|名為"
        rf"|:))?\s*{_LATIN}{_THANKS}"
    ),
    LazyPattern(rf"{_POLITE}{_MAKE}\s*{_KIND}{_LATIN}\s*{_PROJECT}{_THANKS}"),
)
_GO_ON: Final = (
    r"(?:continue|resume|carry on|go on|proceed|dispatch|繼續|恢復|接著做|接續)(?:\s+(?:with|on|in))?\s*"
)
_GOING_ON: Final = (
    LazyPattern(rf"{_POLITE}{_GO_ON}{_MY}{_PROJECT}\s*{_LATIN}{_THANKS}"),
    LazyPattern(rf"{_POLITE}{_GO_ON}{_LATIN}(?:\s*{_PROJECT})?{_THANKS}"),
)
_STOP: Final = r"(?:pause|stop|halt|先?暫停|停止|停掉|先?停)"
_PAUSED: Final = (
    LazyPattern(rf"{_POLITE}{_STOP}\s*{_MY}{_PROJECT}\s*{_LATIN}{_THANKS}"),
    LazyPattern(rf"{_POLITE}{_STOP}\s*{_MY}{_LATIN}\s*{_PROJECT}{_THANKS}"),
)
_ABOUT: Final = (
    LazyPattern(rf"{_POLITE}(?:在|到)?\s*{_LATIN}\s*(?:專案|項目){_NO_PART}(?:的|裡面?|中|上)?[\s:,]*"),
    LazyPattern(rf"{_POLITE}(?:平行|順便)?\s*(?:幫|替)\s*{_LATIN}\s*(?:專案|項目)?\s*(?=做)"),
    LazyPattern(rf"{_POLITE}(?:(?:in|for|on)\s+)?(?:the\s+)?{_PROJECT}\s+{_LATIN}\s*[:,的]\s*"),
)
_TO_MAKE: Final = LazyPattern(rf"(?:建立|新建|創建|初始化)\s*(?:一個)?(?:新的?)?{_LATIN}\s*(?:專案|項目)")
_COMPARED: Final = LazyPattern(r"\bcompar(?:e|ed|ing|ison)\b|\bversus\b|\bvs\b|比較|對比|相比|比一比")
_LOOKED_AT: Final = 300

Named = Literal["opened", "made", "paused", "going_on", "to_make", "about"]
_WHOLE: Final[Mapping[Named, tuple[LazyPattern, ...]]] = {
    "made": _MADE, "opened": _OPENED, "paused": _PAUSED, "going_on": _GOING_ON,
}  # fmt: skip
"""Phrases that make up a whole message."""


class NamedProject(Struct, frozen=True):
    """A name in a folded message, as places in it, and what the message says about that project.

    `opened`: choose it and report its status; `made`: set it up (without a name: an unnamed one);
    `paused`: pause it; `going_on`: continue it; `to_make`: work that makes a project of it; `about`: the
    rest of the message, from `rest_at` on, is about it.
    """

    how: Named
    start: int
    end: int
    rest_at: int = 0

    def name_in(self, message: str) -> str | None:
        """Return the name as it is written in a message that was folded; None without one."""
        return message[self.start : self.end].rstrip(".") or None


def named_project(text: str) -> NamedProject | None:
    """Return the project that a folded, trimmed message names; None where it names none."""
    for how, patterns in _WHOLE.items():
        for pattern in patterns:
            if (match := pattern.match(text)) is not None and (
                how not in {"going_on", "paused"} or asks(text) is None
            ):
                return NamedProject(how, *match.span("name"))
    if (match := _TO_MAKE.search(text, 0, _LOOKED_AT)) is not None:
        return NamedProject("to_make", *match.span("name"))
    for pattern in _ABOUT:
        if (match := pattern.search(text, 0, _LOOKED_AT)) is not None:
            return NamedProject("about", *match.span("name"), rest_at=match.end())
    return None


def compares(text: str) -> bool:
    """Tell whether a folded message puts things side by side."""
    return _COMPARED.search(text) is not None
