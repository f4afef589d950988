"""Whether a message asks something: then it is answered, and nothing is ever started because of it.

An order comes before: a message that begins with a verb of work (`debug why …`) is not a question, whatever
question words it holds, unless it ends with a question mark. Of the others there are three degrees. What
has a question mark or a question word asks, whatever else it says. What only names something that can be
asked about (status, tests, 進度) asks when it says nothing more, or tells to show it. And what names one in
passing is taken for a question, too, unless it tells to do something: an answer too many costs nothing, a
task too many does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

from handoffd.chat.text import LazyPattern, bare

Asks = Literal["clearly", "perhaps"]
"""`perhaps`: something is named that can be asked about, in a message that says more than that."""

Topic = Literal[
    "status", "tests", "steps", "blocked", "left", "done", "purpose", "rules", "last", "history",
    "gate", "report", "tonight",
]  # fmt: skip

_MARK: Final = LazyPattern(r"\?(?!\w[\w.-]*=)|(?:嗎|呢|沒有|了沒|好沒|完沒|好不好|可不可以|對不對)[\s.!~]*$")
"""A question mark, but for one inside an address (`/users?id=3`), and the particles that stand for one."""
_WORDS: Final = LazyPattern(
    r"\b(?:what|whats|why|how|hows|whether|wonder)\b"
    r"|什麼|甚麼|啥|為何|怎|如何|哪|誰|嗎|呢|是否|是不是|有沒有|會不會|能不能|可不可以|要不要"
    r"|能否|可否|何時|何處"
    r"|多少|多久|第幾|幾點|幾分|幾成|[還有剩了]幾|沒有$|了沒$|好沒$|完沒$|幹嘛|干嘛"
)
_RELATIVE: Final = LazyPattern(r"\b(?:when|where|which|who|whose|whom)\b")
"""Ask, but not in an instruction: `fix the page where one logs in`."""
_OPENING: Final = LazyPattern(
    r"(?:^|[.!;,:\n]\s*|\b(?:and|but|so|then)\s+)(?:"
    r"(?:when|where|which|who|whose)\b"
    r"|(?:is|are|am|was|were|does|did|has|had|isn't|aren't|doesn't|didn't|hasn't|should|shall|may)\b"
    r"|(?:do|have|don't|haven't) (?:you|we|they|i|it|all|any|the tests)\b"
    r"|(?:can|could|will|would) (?!you\b)"
    r"|any (?:news|progress|update)|let me (?:know|see)|tell me|show me)"
    r"|^(?:請|麻煩|幫我)?(?:給我看|讓我看|告訴我)"
)
_POLITE: Final = LazyPattern(
    r"^(?:(?:(?:can|could|will|would) you|please|pls|plz|kindly|now|then|ok(?:ay)?|let's"
    r"|請(?!問)|麻煩|拜託|再?幫我|再?幫忙|再?幫|再|好的?|那就?)[\s,:!]*)+"
)
_CAN_YOU: Final = LazyPattern(r"^(?:can|could|will|would) you\b")

_VERBS: Final = (
    r"(?:fix|add|write|implement|make|create|build|refactor|rename|remove|delete|drop|update"
    r"|upgrade|bump|change"
    r"|improve|move|replace|rewrite|clean|simplify|extract|split|merge|optimi[sz]e|document"
    r"|translate|support|handle"
    r"|convert|migrate|introduce|install|set|use|cover|generate|design|develop|put|turn"
    r"|ensure|correct|adjust"
    r"|extend|format|lint|revert|repair|speed|reduce|increase|raise|lower|wire|port|allow"
    r"|enable|disable|hide|prevent|store|save|load|parse|validate|deploy|configure|sort"
    r"|filter|debug|evaluate|profile|review|check|audit|resolve|analy[sz]e|investigate|inspect|assess|examine"
    r"|diagnose|benchmark|verify|standardi[sz]e|normali[sz]e|saniti[sz]e|lazy-load|reorgani[sz]e|restructure"
    r"|deprecate|tidy|polish|patch|harden|secure|scaffold|bootstrap|prototype)"
)
_NO_NOUN: Final = (
    r"(?!\s+on\b|\s*(?:'s|'re)\b|\s+(?:is|are|was|were|has|have|had|does|did|do|can|could|will|would|should"
    r"|(?:status|state|progress|results?|history)\s*(?:$|[,.!]))\b)(?![\w'-])"
)
"""What follows a verb of work, and not a noun of the same form: `build status`, `the update is late`."""
_VERBS_IN_CHINESE: Final = (
    r"(?:修|改|加|新增|增加|寫|撰寫|實作|實現|重構|刪|移除|移到|更新|建立|做|優化|補|調整|把|將"
    r"|換|整理|升級|設計|支援|支持|處理"
    r"|解決|清理|導入|整合|完成|開發|翻譯|抽出|合併|拆|讓|產生|設定|安裝|轉換)"
)
_TOLD_IN_CHINESE: Final = LazyPattern(
    r"^(?:(?:請(?!問)|麻煩|拜託|再?幫我|再?幫忙)[\s,]*)+(?:除錯|偵錯|調試|評估|分析|審查|檢查|檢視|診斷|"
    + _VERBS_IN_CHINESE.removeprefix("(?:")
    + r"(?!了|過|到|完|好了|什麼|甚麼|哪|多少|幾|得)|^(?:把|將(?!於|會|在))"
)
"""Chinese verbs are nouns, too (`重構到哪了`): they outrank question words only in a request."""
_WORK: Final = LazyPattern(rf"(?:{_VERBS}|do|let){_NO_NOUN}|{_VERBS_IN_CHINESE}")
_ORDER: Final = LazyPattern(_VERBS + _NO_NOUN)
_BARE_VERB: Final = LazyPattern(rf"(?:{_VERBS}|{_VERBS_IN_CHINESE}(?:正|改|好|上|入|一下)?)[\s.!~]*")
_LATER_ORDER: Final = LazyPattern(
    rf"[,;.!\n]\s*(?:(?:please|pls|then|so|and|請|麻煩|幫我|再|就)[\s,]*)*(?:{_ORDER.pattern}"
    rf"|{_VERBS_IN_CHINESE})"
)
_LOOKING: Final = LazyPattern(
    r"(?:show|check|review|verify|tell|give|report|look|view|see|display|summari[sz]e|get|print)\b"
    r"|看|查|告訴|顯示|報告|回報|給我|說明|說說|總結|摘要|我想知道|想知道"
)
_NAMED: Final = LazyPattern(
    r"\b(?:status|state|progress|steps?|tests?|testing|blocked|stuck|blockers?|left|remaining|history|summary"
    r"|report|current|currently|results?)\b"
    r"|狀態|狀況|進度|測試|步驟|卡住|卡關|目前|現況|歷史|上次|摘要|總結|報告|剩下|還有|看一下"
    r"|看看|查一下|結果"
)
_FILLERS: Final = LazyPattern(
    r"\b(?:the|of|on|for|in|to|with|my|our|a|an|and|all|me|us|it|is|this|that|now|latest|last"
    r"|just|quick|please|i|review|verify"
    r"|we|want|need|know|show|check|tell|give|get|see|view|report|story|project|update|overall|so|far"
    r"|unit|failing|failed|passing|us-\d+|time|session|today)\b"
    r"|現在|專案|項目|故事|的|了|請|給|我|想|知道|查詢|查|看|一下|顯示|回報|告訴|情況|最新"
    r"|一直|整體|跑|今天|全部|這個|要|還|說|到"
    r"|us-\d+|[\s,.:!'\"()-]"
)
_BY_ITSELF: Final = LazyPattern(
    r"\b(?:rules?|constraints?|constitution|purpose|last (?:time|session)|hand-?offs?|todos?|to-?do list"
    r"|backlog)\b"
    r"|規則|規範|憲法|限制|原則|目的|用途|交接|待辦"
)
"""What asks only as a message of its own: words that work is about, too."""
_SHOW: Final = (
    r"(?:(?:please|show|see|view|open|print|display|check|read|tell|give|get|look|at|i|want|to|let|me|us|a|an"
    r"|the|my|our|its|all|any|current|latest|pending|waiting)(?![a-z0-9'])"
    r"|請|麻煩|幫|給|讓|我|想|要|看|一下|查|顯示|打開|開啟|開|列出|目前|現在|所有|全部|us-\d+|的|\s)"
)
"""No two of them begin alike: a long row of them takes no time."""
_OF: Final = (
    r"(?:\s+(?:of|for|in|at|from)\s+(?:(?:this|the|my|our)\s+)?(?:project|story|it|us-\d+|(?:story )?us-\d+"
    r"|(?:project\s+)?(?P<project>(?!(?:this|the|my|our|a|an|each|every|all)\b)[a-z0-9_][a-z0-9_.~/-]*))"
    r"|\s+us-\d+)?"
)
"""Whose: the answer says of another name that no project has it."""
_PART: Final = r"(?:\s*(?:screen|brief|details?|summary|now|please|畫面|內容|摘要|細節|現在))*[\s.!]*"
_NIGHT: Final = (
    r"(?:(?:last |the |this )?(?:night|morning|day)(?:'?s)?\s+|today'?s\s+|nightly\s+"
    r"|(?:昨晚|昨夜|早上|今早|今天)的?)"
)
_LAST_NIGHT: Final = r"(?:\s+(?:of|for|from)\s+(?:last night|the night|tonight|today|this morning))?"
_SCREENS: Final[tuple[tuple[Topic, LazyPattern], ...]] = (
    ("gate", LazyPattern(rf"{_SHOW}*(?:gates?|關卡){_OF}{_PART}")),
    ("gate", LazyPattern(rf"{_SHOW}+(?:reviews?|審查|驗收){_OF}{_PART}")),  # alone it asks for a session
    ("gate", LazyPattern(rf"{_SHOW}*(?:diffs?|差異){_OF}{_PART}")),
    ("gate", LazyPattern(rf"{_SHOW}+(?:changes|changed files|變更|改動){_OF}{_PART}")),
    ("gate", LazyPattern(rf"{_SHOW}*(?:reviews|(?:審查|驗收)的?(?:內容|畫面|摘要|細節)){_PART}")),
    ("report", LazyPattern(rf"{_SHOW}*{_NIGHT}?report{_LAST_NIGHT}{_OF}{_PART}")),
    ("report", LazyPattern(rf"{_SHOW}*(?:{_NIGHT}?(?:報告|報表)|晨報|早報|日報){_PART}")),
    ("tonight", LazyPattern(
        rf"{_SHOW}*(?:(?:plans?|forecast|schedule)\s+(?:for|of)\s+)?(?:tonight|the coming night)"
        rf"(?:'s (?:plan|forecast|work))?{_OF}{_PART}"
    )),
    ("tonight", LazyPattern(rf"{_SHOW}*(?:今晚|今夜)的?(?:計畫|計劃|預計|安排|工作)?{_PART}")),
)  # fmt: skip
"""Messages that name a screen of the command line, and say nothing else."""
_COMMANDS: Final = frozenset({
    "apply", "auto", "budget", "check-prereqs", "claims", "completion", "config", "confirm", "custom",
    "demo", "doctor", "events", "executors", "gc", "hook", "hooks", "init", "journal", "level", "limits",
    "list-projects", "log", "mcp", "metrics", "notices", "notify", "peek", "query", "rehearse", "reload",
    "rollback", "runs", "scan", "schedule", "service", "skill", "slots", "snapshots", "token", "trust",
    "usage",
})  # fmt: skip
"""The commands of the command line that a chat has no words for."""
_CALLED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("setting", "settings", "configuration", "設定", "配置"), "config"),
    **dict.fromkeys(("event", "news", "事件"), "events"),
    **dict.fromkeys(("logs", "日誌"), "log"),
    **dict.fromkeys(("notice", "notification", "notifications", "通知"), "notices"),
    **dict.fromkeys(("cost", "costs", "tokens", "spending", "用量", "費用", "花費", "成本"), "usage"),
    **dict.fromkeys(("version", "版本"), "--version"),
}
_SHOWN: Final = LazyPattern(
    r"^(?:(?:show|print|list|view|see|get|check|read|look at|the|me|my|our|all|latest|handoffd)\s+"
    r"|看|查看?|顯示|列出|目前的?|\s)+"
    r"|[\s.!~]+$"
)
_LONGEST_LOOK: Final = 120
_LOOKED_AT: Final = 1000
"""Characters of a question that say what it is about."""
_ABOUT: Final[Mapping[Topic, LazyPattern]] = {
    "gate": LazyPattern(
        r"^(?!.*\bwhy\b).*(?:\bgates?\b|\b(?:what|which|is|are|any)\b.*\breviews?\b)|^(?!.*為).*關卡"
    ),
    "blocked": LazyPattern(
        r"\b(?:why|blocked|stuck|blockers?|stopped|waiting|waits?)\b|卡|為什麼|為何|擋|停住|等什麼|在等"
    ),
    "tests": LazyPattern(r"\b(?:tests?|testing|green|red|passing|failing|lint)\b|測試"),
    "report": LazyPattern(r"\bovernight\b|\blast night\b|\bthe report\b|昨晚|昨夜|晨報|早報|報告說"),
    "tonight": LazyPattern(r"\btonight\b|\bcoming night\b|今晚|今夜"),
    "rules": LazyPattern(
        r"\b(?:rules?|constraints?|constitution|guidelines?|conventions?)\b|規則|規範|憲法|限制|原則|約束"
        r"|慣例"
    ),
    "last": LazyPattern(
        r"\blast (?:time|session|run|hand-?off)\b|\bprevious(?:ly)?\b|\bleave off\b|\bleft off\b"
        r"|\bhand-?offs?\b|上次|上一次|前次|上回|交接"
    ),
    "history": LazyPattern(r"\bhistory\b|\blog of\b|歷史|紀錄|記錄|歷程"),
    "purpose": LazyPattern(
        r"\bpurpose\b|\btech(?:nology|nologies)?(?: stack)?\b|\bstack\b|\babout\b.*\bproject\b"
        r"|\bproject (?:about|for)\b"
        r"|\bwhat(?:'s| is| does) (?:this|the|that|my|our)(?: project| repo(?:sitory)?| codebase| app)?"
        r"(?: do)?\s*\??$"
        r"|目的|用途|(?:是|在)(?:做|幹)(?:什麼|甚麼|啥)(?:的|用的)?[\s?]*$|是(?:什麼|甚麼"
        r"|啥)(?:樣的)?(?:專案|項目)"
        r"|(?:專案|項目)是(?:什麼|甚麼|啥)|技術(?:棧|選型|架構)?|介紹"
    ),
    "done": LazyPattern(
        r"\b(?:what|which)\b.*\b(?:done|finished|completed?|accomplished)\b"
        r"|(?:做|完成)(?:了|過|好了?)(?:什麼|甚麼|哪些|啥)|(?:什麼|哪些).*(?:做|完成)(?:了|好了?)|已完成"
        r"|做完(?:了)?(?:什麼|哪些)"
    ),
    "left": LazyPattern(
        r"\b(?:left|remaining|remains)\b|\b(?:what(?:'s| is|s)|which) (?:(?:is|the|story|item|task)\s+)*"
        r"next\b|\bnext (?:story|item|task)\b|\bto-?do\b|\bbacklog\b|\bcan (?:i|we|be) do"
        r"|還有(?!幾|多)|剩(?!.?(?:幾|多))|下一個|待辦|可以做"
    ),
    "steps": LazyPattern(
        r"\b(?:steps?|next|how (?:far|long|much))\b|步驟|剩|還有|下一步|哪一步|多久|第幾|幾步"
    ),
}  # fmt: skip
"""What a question is about, in the order in which its words are looked for; the status, if by none."""


def asks(whole: str) -> Asks | None:
    """Return how far a folded, trimmed message asks; None: it does not."""
    text = bare(whole) or whole
    if has_mark(whole) or screen(text) is not None:
        return "clearly"
    command = _POLITE.sub("", text, count=1)
    looks = _LOOKING.match(command) is not None
    if _is_told(whole, command) and not (looks and _says_nothing_more(command)):
        return None
    if _WORDS.search(text):
        return "clearly"
    works = _WORK.match(command) is not None and not looks
    if not works and (_RELATIVE.search(text) or _CAN_YOU.match(text)):
        return "clearly"
    if _OPENING.search(text):
        return "clearly"
    if works:
        return None
    alone = _says_nothing_more(command)
    if alone or (_NAMED.search(text) and looks):
        return "clearly"
    return "perhaps" if _NAMED.search(text) and not _tells_later(text) else None


def has_mark(text: str) -> bool:
    """Tell whether a folded message has a question mark, or a particle in its place."""
    return _MARK.search(bare(text) or text) is not None


def screen(text: str) -> Topic | None:
    """Return the screen that a folded message asks for, saying no more; None: it asks for another thing."""
    found = _screen(text)
    return None if found is None else found[0]


def project_of_screen(text: str) -> str | None:
    """Return the name behind the screen that a folded message asks for: `show the gate of shop`."""
    found = _screen(text)
    return None if found is None else found[1].groupdict().get("project")


def _screen(text: str) -> tuple[Topic, re.Match[str]] | None:
    if len(text) > _LONGEST_LOOK:
        return None
    matches = ((name, pattern.fullmatch(text)) for name, pattern in _SCREENS)
    return next(((name, match) for name, match in matches if match is not None), None)


def topic(text: str) -> Topic:
    """Return what a folded question is about; the status, unless it names something else."""
    if (shown := screen(text)) is not None:
        return shown
    beginning = text[:_LOOKED_AT]
    return next((name for name, pattern in _ABOUT.items() if pattern.search(beginning)), "status")


def begins_with_work(text: str) -> bool:
    """Tell whether a folded message is an instruction, by its first word."""
    command = _POLITE.sub("", bare(text), count=1)
    return _WORK.match(command) is not None or _is_told(text, command)


def names_no_object(text: str) -> bool:
    """Tell whether a folded message is a verb of work, and not a word more."""
    return _BARE_VERB.fullmatch(_POLITE.sub("", text, count=1)) is not None


def names_command(text: str) -> str | None:
    """Return the command of the command line that is all a folded message says; None if it says more."""
    word = _SHOWN.sub("", _POLITE.sub("", text[:_LOOKED_AT], count=1))
    return word if word in _COMMANDS else _CALLED.get(word)


def _is_told(text: str, command: str) -> bool:
    return _ORDER.match(command) is not None or _TOLD_IN_CHINESE.match(text) is not None


def _tells_later(text: str) -> bool:
    """Tell whether a message says what is wrong first, and then what to do: `the tests are red, fix them`."""
    later = _LATER_ORDER.search(text)
    return later is not None and not _says_nothing_more(text[: later.start()])


def _says_nothing_more(text: str) -> bool:
    """Tell whether a message names what can be asked about, and says nothing beside that."""
    if not (_NAMED.search(text) or _BY_ITSELF.search(text)):
        return False
    rest = _BY_ITSELF.sub("", _NAMED.sub("", text))
    return not _FILLERS.sub("", rest).strip()
