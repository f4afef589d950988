"""Whether a message tells to work: it begins with what shall be done, or goes on to it behind a sign.

Nothing else starts a task. `take a break`, `到此為止` and `dark mode` begin with no verb of work, so the
person is asked: that costs a line, an unwanted agent costs its work. In Chinese the thing often comes
before the verb (`標題改大一點`), so there it counts further on, too, unless the verb is forbidden, put off
or another person's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from handoffd.protocol.questions import NO_NOUN, VERBS, VERBS_IN_CHINESE

_PREFACE: Final = re.compile(
    r"(?:(?:(?:can|could|will|would) you|(?:(?:i|we)(?:'d| would)? (?:want|need|like)|you (?:should|must)"
    r"|(?:you|we) (?:have|need|ought)|we (?:should|must)|i(?:'d| would) like)(?: you| us)?(?: to)?"
    r"|please|pls|plz|kindly|now|then|ok(?:ay)?|let's|let us|go ahead and|go and|help(?: me| us)?(?: to)?"
    r"|try to|feel free to|be so kind as to|hey|hi|hello|also|and|so|but|just|next|first"
    r"|finally|instead|rather|quickly|actually|well|us-\d+|\d{1,3}(?=[.)])|don't forget to"
    r"|請(?!問)|麻煩你?|拜託你?|可以|能|再|那就?|好的?|也|先|接下來|接著|然後|順便|另外|最後|現在|直接|快"
    r"|(?:我們?|你)?(?:想要?|需要|要|希望)(?:你|請你)?|你(?=[幫來去先再])|幫我們?|幫忙|別忘了|記得)(?![a-z])[\s,:.)]*)*"
)
_MORE_VERBS: Final = (
    r"(?:adapt|align|animate|append|apply|archive|attach|automate|batch|bring back|bundle|cache|calculate"
    r"|capitali[sz]e|center|change|collect|combine|compile|complete|compress|compute|connect|copy|count"
    r"|crop|decouple|define|describe|detect|display|duplicate|embed|encrypt|escape|exclude|expand|expose"
    r"|export|factor|fetch|fill|find|finish|flatten|get rid of|give|group|hash|highlight|host|import"
    r"|include|inline|insert|integrate|isolate|keep(?! \w+ing)|limit|link|list|localize|lock|log|map"
    r"|mark|match|measure|minify|mock|model|modify|mount|name|notify users|omit|open-source|organi[sz]e"
    r"|package|paginate|pin|plot|prefix|prepare|preserve|print|process|propagate|protect|provide|publish"
    r"|query|rebuild|recalculate|record|redesign|redirect|redo|regenerate|register|reject|render|reorder"
    r"|rephrase|report|require|rerun|research|reset|resize|restore|restrict|restyle|retry|return"
    r"|reuse|rework|rotate|round|route|run|sanitize|scale|scan|schedule|send|serve|shorten|show|shrink"
    r"|sign|skip|stream|strip|study|style|subscribe|substitute|summari[sz]e|surface|swap|switch|sync"
    r"|tag|test|throttle|trace|track|transform|trim|tune|type|unify|unit-test|unpin|upload"
    r"|vendor|view|warn|wrap|take care of|double-check|[a-z]+i[sz]e"
    r"|let(?= (?:the|an?|all|each|every|only) |(?! us ) \w+s )(?!(?: the| all)? (?:agents?|executors?)))"
)
_ENGLISH: Final = re.compile(
    rf"(?:{VERBS}|{_MORE_VERBS}){NO_NOUN}(?=\s*\S|:)|(?:don't|do not) forget (?:the|an?)\b"
    r"|(?!.*\b(?:agents?|executors?|cc|claude|you|us-\d+|work|everything|it)\b)(?:"
    r"(?:stop|keep|block)\s+\S+(?:\s+\S+){0,5}\s+from\s+\w+ing\b"
    r"|(?:stop|pause|cancel|kill|start|close|open|end)\s.{1,60}\s(?:on|upon|at|after)\s+(?:an?\s+|the\s+)?"
    r"(?:hover|exit|log-?(?:in|out)|click|shutdown|startup|load|submit|errors?|failure|blur|focus|scroll"
    r"|success|timeout)\b)"
)

_THING: Final = r"(?:it|this|that|them|these|those|everything|anything|things?|all|work)"
_ENDED: Final = rf"{_THING}\s*(?:$|[,.!;])"
_AIMLESS: Final = re.compile(
    r"\w+(?:\s+(?:rid of|back))?\s+(?:nothing|none|no\b(?! longer)|yourself|me\b|us(?![\w-])|your\b|calm"
    rf"|quiet|mum|peace|a (?:break|rest|pause|nap)|for (?:now|today|tonight|good|the day)"
    rf"|(?:up|on|out|off|away|aside|along|down)\s*(?:{_ENDED}|$|[,.!;])"
    rf"|{_THING}\s+(?:be|go|alone|stop|rest|sleep|wait|off|out|up|down|aside|away|on hold"
    r"|as (?:it|they|is|are)"
    r"|for (?:now|today|later)|a (?:rest|break)|then)\b)"
    r"|(?:turn|switch|shut)\s+(?:off|down)\s+(?:the\s+|all\s+|every\s+)*(?:agents?|executors?|daemon|projects?)\b"
    r"|save\s+.{1,40}\sfor (?:later|another|some|tomorrow)\b"
    rf"|(?:drop|leave|let|make|keep|save|turn|set|put|end|finish|wrap|hide|switch|give|handle|do)\s+{_ENDED}"
    r"|(?:check|talk|speak|review|test|sync|verify)\s+(?:it\s+)?(?:with|back|in)\b"
    r"|(?:put|set|leave|keep)\s+.{1,40}\s(?:on hold|aside|alone)\b"
    r"|\w+\s+(?:works?|worked|failed|passed|succeeded|broke|crashed|done|ready|needed|pending|merged|landed"
    r"|complete|completed|finished)\s*(?:$|[,.!;]|\b(?:now|again|already|great|well|fine|here)\b)"
    r"|(?:drop|leave|keep)\s+(?:the\s+)?(?:story|task|matter|subject|idea|tools?|pen)\s*(?:$|[,.!;])"
)
"""Verbs of work with something beside it that is no work: `drop it`, `put everything on hold`."""
_HELD: Final = re.compile(
    r"(?:make|be|see to it|ensure|see)\s*(?:sure|certain)?\s*(?:that\s+)?"
    r"(?:nothing|nobody|no ?one|none|no (?:agents?|executors?|story|stories|tasks?|work|runs?)"
    r"|(?:the |all |every )*(?:agents?|executors?|cc|claude))\b.*\b(?:starts?|started|runs?|running|begins?"
    r"|begun|works?|working|happens?|changed?|changes|touche[sd]|touch|stops?|stopped|paused?|rests?)\b"
)
_DISPOSED: Final = re.compile(
    r"(?!(?:fix|refactor|document|improve|polish|review|check|audit|verify|debug|test|investigate|inspect"
    r"|analy[sz]e|examine|assess|evaluate|extend|update|rewrite|simplify|clean|correct|adjust|repair"
    r"|optimi[sz]e|profile|benchmark|diagnose|harden|secure|rework|study|summari[sz]e|describe)\b)"
    r"[a-z-]+(?:\s+(?:sure|certain|out|up))?(?:\s+(?:that|the|all|of|story|user|my|our))*\s+us-\d+(?!'s|[\w-])"
    r"|(?:確[保定認]|把|將|刪除?掉?|移除|拿掉|砍掉?|改|換|放|收|關|讓).{0,6}us-\d+(?!\s*的)"
    r"|us-\d+\s*(?:也|都|要|先|就|可以)*(?:刪|拿|移|砍|收|關|停|放|改(?:到|天)|延|換)"
)
"""What is done with a story as a whole, and not with its code: `drop US-007`."""
_PUT_OFF: Final = re.compile(
    r"(?<!\bfor)(?<!\buntil)(?<!\bof)(?<!\bby)(?<!\bfrom)(?<!\bto)(?<!\bdue)"
    r"[\s,]+(?:but\s+)?(?:not (?:yet|now|today)|tomorrow|later(?: on)?|tonight|next (?:week|month|time)"
    r"|some (?:day|other time)|(?:an)?other (?:day|time)|on (?:mon|tues|wednes|thurs|fri|satur|sun)day"
    r"|when i(?:'m| am) back)[\s.!]*$|^.{0,12}(?:明[天早晚日]|後天|改天|下[週周次]|晚一?點)(?!的|到期)"
    r"|(?:之後|以後|稍後|晚一?點)再|(?:明天|改天|下[週周次]|晚點|以後)(?:再)?[做說弄改修]?[吧喔]*$"
)

_CHINESE: Final = re.compile(
    rf"(?:{VERBS_IN_CHINESE}|隱藏|顯示|限制|壓縮|對|當|給|測試|檢查|分析|評估|除錯|審查|寫|找|查"
    r"|匯[出入]|防止|清空|完善|美化|部署|加快|替換|引入|排序|過濾|快取|緩存|記錄|拿掉|套用|縮|放大|改)"
)
_FORBIDDEN: Final = re.compile(
    r"(?:不(?:要|准|許|得|可以?|能|必|用|會|想)?|別|勿|莫|沒(?:有|人)?|未|停(?:止|掉|下)?|暫停|中止|終止|放棄|取消"
    r"|禁止|避免|免|少|.再|懶得|來不及|忘了)(?:再|先|一直|繼續|自動|所有|一切|正在|任何|去|給我|亂|隨便|這樣|全部|任意|讓|把|被|\s)*$"
)
_OF_OTHERS: Final = re.compile(
    r"^(?:(?:我|我們|他們?|她們?|大家|同事|老闆|主管|客戶|有人|沒有?人|誰|[a-z]+|.{0,4}(?:經理|工程師|團隊))\s*"
    r"(?:自己|已經?|也|就|都|先|現在|今晚|馬上|還)*(?:來|去|會|在|正在|可以|能|剛|負責|打算|準備|有|負責)"
    r"|(?:交給|給|叫|讓|請|找)\s*(?:[a-z]+|[他她]們?|同事|老闆|主管|大家)\s*(?:來|去)?(?:做|修|改|處理|看|寫|弄|負責|決定|檢查)"
    r"|你.{0,8}[了過]|等(?=[我他她你大]|一[下會]|到|\s*[a-z]))"
)
_PAST: Final = re.compile(
    r".{0,3}?(?:了|過|完|好了|壞|錯了|不了|得|多了|不完|不動|到一半)[吧啦喔呢\s]*(?:$|[,.!;])|.{0,2}中$|到[這此]|.?(?:失敗|卡住|成功|中斷)[了吧啦喔]*$"
)
_AT_REST: Final = re.compile(
    r"(?:把|將|讓|給).{0,12}(?:停|關掉$|放著|放下|擱|休息|睡|靜一?靜|等|收起來|想(?:想|一下)|緩|喘口氣)|做人|做夢|做主|補眠"
    r"|加油|加班|改天|改日|處理中|換你|換我|解散|整合中|改變主意|拆夥|對(?:不起|了|啊|的$)|當然|當我|給我.{0,4}$|寫意"
)
_SPLIT: Final = re.compile(
    r"[,;.!:\n]+\s*|\s(?:but|instead|rather|and then|so|[—–-]+)\s+|但是?|而是|再(?=幫)"
)
_CLAUSES: Final = 200
_LONG: Final = 200
"""Characters of a clause that are looked at."""


def tells_to_work(text: str) -> bool:
    """Tell whether a folded, trimmed message, or a clause of it, begins with what shall be done."""
    if _PUT_OFF.search(text[-_LONG:]) is not None:
        return False
    return any(_is_work(clause, later=at > 0) for at, clause in enumerate(_clauses(text)))


def disposes_of_story(text: str) -> bool:
    """Tell whether a folded message wants something done with a story itself: drop it, put it off."""
    return any(_is_of_story(clause) for clause in _clauses(text))


def _clauses(text: str) -> Iterator[str]:
    """Yield what a message says, sign by sign; where a preface is set off by a sign, without it."""
    yield text[:_LONG]
    signs = zip(_SPLIT.finditer(text), range(_CLAUSES), strict=False)
    for sign, _ in signs:
        yield text[sign.end() : sign.end() + _LONG]


def _said(clause: str) -> str:
    preface = _PREFACE.match(clause)
    return clause if preface is None else clause[preface.end() :].lstrip(" \"'*-#>[]()")


def _is_of_story(clause: str) -> bool:
    return any(_DISPOSED.match(part) is not None for part in (clause, _said(clause)))


def _is_work(clause: str, *, later: bool) -> bool:
    said = _said(clause.lstrip(" \"'*-#>[]()"))
    if _ENGLISH.match(said) is not None:
        return not (_AIMLESS.match(said) or _HELD.match(said) or _is_of_story(clause))
    first = re.split(r"[,;.!\n]", said, maxsplit=1)[0]
    found = _CHINESE.search(first)
    if found is None or _OF_OTHERS.match(first) or _is_of_story(clause) or _AT_REST.search(first):
        return False
    before, behind = first[: found.start()], first[found.end() :]
    alone = not (later or before or behind)
    return not alone and _FORBIDDEN.search(before) is None and _PAST.match(behind) is None
