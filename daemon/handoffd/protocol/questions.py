"""Whether a message asks something: then it is answered, and nothing is ever started because of it.

Three degrees. What has a question mark or a question word asks, whatever else it says. What only names
something that can be asked about (status, tests, 進度) asks when it says nothing more, or tells to
show it. And what names one in passing is taken for a question, too, unless it begins with a word for
work: an answer too many costs nothing, a task too many does.
"""

from __future__ import annotations

import re
from typing import Final, Literal

Asks = Literal["clearly", "perhaps"]
"""`perhaps`: something is named that can be asked about, in a message that says more than that."""

Topic = Literal["status", "tests", "steps", "blocked"]

_ALWAYS: Final = re.compile(
    r"\?|\b(?:what|whats|why|how|hows|whether|wonder)\b"
    r"|什麼|甚麼|啥|為何|怎|如何|哪|誰|嗎|呢|是否|是不是|有沒有|會不會|能不能|可不可以|要不要"
    r"|能否|可否|何時|何處"
    r"|多少|多久|第幾|幾點|幾分|幾成|[還有剩了]幾|沒有$|了沒$|好沒$|完沒$|幹嘛|干嘛"
)
_RELATIVE: Final = re.compile(r"\b(?:when|where|which|who|whose|whom)\b")
"""Ask, but not in an instruction: `fix the page where one logs in`."""
_OPENING: Final = re.compile(
    r"(?:^|[.!;,:\n]\s*|\b(?:and|but|so|then)\s+)(?:"
    r"(?:when|where|which|who|whose)\b"
    r"|(?:is|are|am|was|were|does|did|has|had|isn't|aren't|doesn't|didn't|hasn't|should|shall|may)\b"
    r"|(?:do|have|don't|haven't) (?:you|we|they|i|it|all|any|the tests)\b"
    r"|(?:can|could|will|would) (?!you\b)"
    r"|any (?:news|progress|update)|let me (?:know|see)|tell me|show me)"
    r"|^(?:請|麻煩|幫我)?(?:給我看|讓我看|告訴我)"
)
_POLITE: Final = re.compile(
    r"^(?:(?:can|could|will|would) you|please|pls|kindly|請|麻煩|拜託|幫我|幫忙|幫)[\s,]*"
)
_CAN_YOU: Final = re.compile(r"^(?:can|could|will|would) you\b")

_WORK: Final = re.compile(
    r"(?:fix|add|write|implement|make|create|build|refactor|rename|remove|delete|drop|update"
    r"|upgrade|bump|change"
    r"|improve|move|replace|rewrite|clean|simplify|extract|split|merge|optimi[sz]e|document"
    r"|translate|support|handle"
    r"|convert|migrate|introduce|install|set|use|cover|generate|design|develop|do|put|turn|let"
    r"|ensure|correct|adjust"
    r"|extend|format|lint|revert|repair|speed|reduce|increase|raise|lower|wire|port|allow"
    r"|enable|disable|hide|prevent|store|save|load|parse|validate|deploy|configure|sort"
    r"|filter)\b"
    r"|修|改|加|新增|增加|寫|撰寫|實作|實現|重構|刪|移除|移到|更新|建立|做|優化|補|調整|把|將"
    r"|換|整理|升級|設計|支援|支持|處理"
    r"|解決|清理|導入|整合|完成|開發|翻譯|抽出|合併|拆|讓|產生|設定|安裝|轉換"
)
_LOOKING: Final = re.compile(
    r"(?:show|check|tell|give|report|look|view|see|display|summari[sz]e|get|open|print)\b"
    r"|看|查|告訴|顯示|報告|回報|給我|說明|說說|總結|摘要|打開|我想知道|想知道"
)
_TOPICS: Final = re.compile(
    r"\b(?:status|state|progress|steps?|tests?|testing|blocked|stuck|blockers?|left|remaining|history|summary"
    r"|report|current|currently|results?|open project)\b"
    r"|狀態|狀況|進度|測試|步驟|卡住|卡關|目前|現況|歷史|上次|摘要|總結|報告|剩下|還有|看一下"
    r"|看看|查一下|打開|結果"
)
_FILLERS: Final = re.compile(
    r"\b(?:the|of|on|for|in|to|with|my|our|a|an|and|all|me|us|it|is|this|that|now|latest|last"
    r"|just|quick|please|i"
    r"|we|want|need|know|show|check|tell|give|get|see|view|report|story|project|update|overall|so|far"
    r"|unit|failing|failed|passing|us-\d+|time|session|today)\b"
    r"|現在|專案|項目|故事|的|了|請|給|我|想|知道|查詢|查|看|一下|顯示|回報|告訴|情況|最新"
    r"|一直|整體|跑|今天|全部|這個|要|還|說|到"
    r"|us-\d+|[\s,.:!'\"()-]"
)
_BLOCKED: Final = re.compile(
    r"\b(?:why|blocked|stuck|blockers?|stopped|waiting|waits?)\b|卡|為什麼|為何|擋|停住|等什麼|在等"
)
_TESTS: Final = re.compile(r"\b(?:tests?|testing|green|red|passing|failing)\b|測試")
_STEPS: Final = re.compile(
    r"\b(?:left|remaining|steps?|next|how (?:far|long|much))\b|步驟|剩|還有|下一步|哪一步|多久|第幾"
)


def asks(text: str) -> Asks | None:
    """Return how far a folded, trimmed message asks; None: it does not."""
    if _ALWAYS.search(text):
        return "clearly"
    command = _POLITE.sub("", text, count=1)
    works = _WORK.match(command) is not None
    if not works and (_RELATIVE.search(text) or _CAN_YOU.match(text)):
        return "clearly"
    if _OPENING.search(text):
        return "clearly"
    if works or not _TOPICS.search(text):
        return None
    looks = _LOOKING.match(command) is not None
    return "clearly" if looks or _says_nothing_more(command) else "perhaps"


def topic(text: str) -> Topic:
    """Return what a folded question is about; the status, unless it names something else."""
    if _BLOCKED.search(text):
        return "blocked"
    if _TESTS.search(text):
        return "tests"
    return "steps" if _STEPS.search(text) else "status"


def begins_with_work(text: str) -> bool:
    """Tell whether a folded message is an instruction, by its first word."""
    return _WORK.match(_POLITE.sub("", text, count=1)) is not None


def _says_nothing_more(text: str) -> bool:
    return not _FILLERS.sub("", _TOPICS.sub("", text)).strip()
