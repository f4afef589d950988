"""Messages that hold back instead of ordering: a stop, a wait, a negation, a remark about an agent, a
proviso.

Restraints are looked for before anything else, because the words behind them are often an order:
`don't start US-007`, `不要用 CC`. A stop is one only with an object that the person can mean (`stop the
agent`, but not `stop logging passwords`). A negation or a wait counts where it begins the message or
forbids the agent, and not if an order follows it (`don't commit, fix the login`).

A proviso in the note of a decision takes it back: `approve: not yet, wait for Bob` opens no gate. What
looks like one right at a note's beginning is one, whatever follows. Further on, only words count that can
hardly be about the work itself. A second question costs a line; an unwanted agent, or an approval that
the user did not give, costs the story.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from handoffd.chat.questions import begins_with_work, has_mark
from handoffd.chat.text import LazyPattern

# --- what holds back ----------------------------------------------------------------------------------
Restraint = Literal["stop", "wait"]

CC: Final = r"(?<![a-z0-9_@./=-])(?:cc|claude[\s_-]?code)(?![a-z0-9_='@]|-[a-z]|\.[a-z])"

_AGENT: Final = rf"(?:{CC}|\bclaude\b|(?<![a-z])(?:sub-?)?agents?(?![a-z-])|\bexecutors?\b|代理)"


_BEFORE: Final = (
    r"(?:(?:please|pls|plz|no|nope|nah|oh|hey|hi|ok|okay|now|just|well|actually|and|but|so|then|sorry|also"
    r"|you all|everybody|everyone|let's|let us|time to|i said|wait|us-\d+|(?:can|could|would) you"
    r"|(?:i (?:want|need|told|asked)|i'd like)(?: you)?(?: to)?|(?:you|we) (?:should|must|have to|need to"
    r"|better)|喔|哦|欸|嗯|好的?|那就?|請|拜託|你|快|麻煩|等一下|等等|不對)(?![a-z])[\s,:!.]*)*"
)

_END: Final = r"(?:\s*(?:please|pls|thanks|吧|了|啦|喔|哦|一下|謝謝))*\s*(?:$|[.!;\n~]|,(?!.*\?))"


_STOPPED: Final = (
    rf"(?:\s+(?:{_AGENT}|(?:everything|anything|all|it|this|that|them|these|those|the|my|our|your|of|on|every"
    r"|current|running|working|doing|building|coding|work|runs?|tasks?|jobs?|process(?:es)?|story|stories"
    r"|project|here|there|right|now|immediately|instantly|at once|asap|please|us-\d+"
    r"|what(?:ever)? you(?:'re| are)|(?:for|until) (?:now|today|tonight|tomorrow|a (?:moment|minute|while)"
    r"|good|the moment)|(?:after|when|once) (?:this|that|it|the)(?: (?:current|running))?(?: (?:step|story"
    r"|task|run))?(?: (?:is|has) (?:done|finished|ended))?)\b))*"
)

_STOP: Final = r"(?:stop|halt|pause|kill|terminate|freeze|suspend|interrupt|quit|hold)(?![\w-])"

_STOPS: Final = rf"{_STOP}(?:[\s,!.]+{_STOP})*"

_CANCEL: Final = rf"(?:cancel|abort|end)\s+(?=(?:all|everything|the|my|this|that|every|{_AGENT})\b)"

_WHOM: Final = rf"(?:the\s+|all\s+|every\s+|my\s+)*(?:{_AGENT}|everything|it|them)"

_CEASED: Final = r"(?:不要|別|勿)再?(?:跑|做|動|弄|搞|改|寫|執行|工作)(?:下去)?了"

_STOP_ZH: Final = rf"(?:停+(?:止|下來?|掉|手|工)?(?:一下)?|暫停|中斷|{_CEASED})"

_CANCEL_ZH: Final = r"(?:取消|中止|終止|放棄|關掉|關閉|砍掉|殺掉)"


_ABOUT_ZH: Final = (
    rf"(?:{_AGENT}|全部|全都|通通|都|所有|一切|可以|先|馬上|立刻|立即|趕快|趕緊|現在|目前|正在|給我|叫|讓"
    rf"|把|要|跑|執行"
    r"|工作|任務|專案|項目|故事|動作|東西|這個?|那個?|它|的|掉|us-\d+|(?:做|跑)完[^,.]{0,6}[就再後]|\s)"
)


_IS_STOP: Final = LazyPattern(
    rf"^{_BEFORE}(?:{_STOPS}{_STOPPED}|{_CANCEL}(?:the\s+|my\s+|this\s+|that\s+)?(?={_AGENT}|all\b"
    rf"|every)\S+(?:\s?code)?{_STOPPED}|(?:(?:make|tell|have|ask|get|let)\s+)?{_WHOM}[\s,:]*(?:(?:must"
    rf"|should|has to|to|please)\s+)*{_STOP}{_STOPPED}|{_ABOUT_ZH}*{_STOP_ZH}{_ABOUT_ZH}*|(?=.*(?:{_AGENT}"
    rf"|全部|全都|通通|所有|一切)){_ABOUT_ZH}*{_CANCEL_ZH}{_ABOUT_ZH}*){_END}",
    re.DOTALL,
)


_OF_SEVERAL: Final = LazyPattern(
    rf"^{_BEFORE}(?:(?:{_STOP}|{_CANCEL})(?:\s*(?:all|every|the|my|our|other|both|of))*\s*(?:projects"
    rf"|daemon|handoffd){_END}|{_STOP_ZH}(?:所有|全部|每個)的?(?:專案|項目)|(?:所有|全部|每個)的?(?:專案"
    rf"|項目)都?(?:先|給我)?{_STOP_ZH})"
)
"""A stop of more than the project at hand: it is not done by halves."""

_NOT: Final = r"(?:do not|don't|dont|never|let(?:'s| us) not)(?![\w-])"


_ACTS: Final = (
    rf"(?:start|begin|run|do|continue|proceed|go|work|touch|change|edit|commit|push|merge|deploy|approve"
    rf"|reject|skip|retry|stop|wait|move|try|bother|worry|anything|(?:use|let|have|ask|tell)\s+{_AGENT})"
)


_NOT_ZH: Final = (
    r"(?:先|暫時|暫且|現在|今天|目前|還|千萬|絕對)*(?:不要|別(?![的名人處墅號針稱])|勿|莫|不准|不許"
    r"|不得)(?!忘)"
)


_NOT_NEEDED_ZH: Final = (
    rf"(?:先|暫時|現在|今天|還|也)*(?:不用|不必|不需要?|不想|先不)(?:再|先|急著)*\s*(?={_AGENT}|us-"
    rf"|[了做跑開繼執動管急用]|$|[,.!])"
)


_ACTS_ZH: Final = (
    rf"(?:再|先)*\s*(?:{_AGENT}|us-|[做跑動碰改推開急管]|繼續|執行|提交|合併|部署|核准|工作|啟動|$|[,.!])"
)


_DOING: Final = (
    r"(?:chang|commit|creat|delet|dispatch|do|edit|install|mak|merg|mess|modify|mov|overwrit|push|refactor"
    r"|remov|renam|rewrit|spend|touch|try|wast|work|writ)(?:t|g)?ing"
)
"""What an agent does, and a product hardly ever: `stop deleting files`, not `stop logging passwords`."""


_WAITS: Final = (
    r"(?:wait(?:ing)?(?=\s*(?:$|[,.;:!])|\s+(?:for|until|till|a|an|one|on|with|please|now|up|here|and|i|we"
    r"|let)\b)|wait \d+ ?[a-z]+$|put (?:\S+ ){1,4}on hold$|hold (?:on|off|it|up|everything|that)\b"
    r"|hang (?:on|tight)\b|stand ?by$|slow down$|back off$|calm down$|not (?:yet|now|today|tonight|so fast"
    r"|ready)\b|no (?:more|need|way|longer|rush)\b"
    rf"|no {_AGENT}|nothing(?: (?:for now|now|yet|today|else|more))?$|do nothing\b|(?:maybe )?later(?:$"
    rf"|[,.!])"
    r"|(?:maybe )?tomorrow(?:$|[,.!])|(?:some other|another|next) time$|never ?mind\b|scratch (?:that|it)$"
    r"|forget (?:it|that|this|about|us-\d)(?![\w-])|ignore (?:it|that|this|me)$|leave (?:it|this|that|them"
    r"|everything)(?: be| alone)?$|(?:that's |that is )?enough$|(?:give me |just )?(?:a|one) (?:moment"
    r"|minute|min|second|sec|while)$|let me think|(?:i|we) (?:don't|do not) (?:want|need)\b"
    r"|i changed my mind|oops$|sorry$|my bad$"
    rf"|not$|not (?:to )?{_ACTS}\b|(?:you|we|it|us-\d+) (?:should|must|shall|may)(?:n't| not) {_ACTS}\b"
    r"|先(?:等|放著|擱著|緩(?!存))|等(?:一下|等|一等|會(?!員)|我|他|她|你|到|明天|\s*bob|\s*cc|$)|稍(?:等|候)"
    r"|且慢|慢(?:著|點|一點)|暫緩|緩一緩|再(?:等|說(?!明)|想想|看看)|晚一?點(?:再|$|[,.!])|稍後(?:再|$|[,.!])"
    r"|(?:改天|明天|下次|以後)(?:再|$|[,.!])|算了|作罷|免了|不(?:了|做了|跑了|弄了)$|夠了|當我沒[說問]"
    r"|沒事了?(?:$|[,.!])|沒關係|我(?:再)?想(?:想|一下)|(?:就|先)?到(?:此|這)[裡邊]?(?:為止|就好)"
    rf"|(?:stop|quit) {_DOING}\b|(?:take|have) (?:a|some|your) (?:break|rest|pause|nap|day off)\b"
    rf"|讓我(?:再)?想|我(?:改變主意|後悔)|什麼都(?:別|不要|不用)|忘了(?:它|吧)|(?:make|let"
    rf"|have) {_AGENT} (?:wait|rest|sleep)|休息(?:一下)?$|rest$|(?:收回|撤回)$)"
)


_IS_WAIT: Final = LazyPattern(
    rf"^{_BEFORE}(?:{_NOT}(?!\s+(?:forget|know|understand|see|remember|you|we|they|i)\b)|{_NOT_ZH}"
    rf"|{_NOT_NEEDED_ZH}|{_WAITS})"
)


_ENDS_IN_WAIT: Final = LazyPattern(
    r"先(?:不要|別|不)再?(?:做|動|跑|開始|改|碰|管|處理|執行|弄)?[它了喔吧]*$|\b(?:can|should|must|has to"
    r"|have to) wait$|\bon hold$"
)


_TOLD_TO_WAIT: Final = LazyPattern(
    rf"^{_BEFORE}(?:(?:{_NOT}|(?:should|must|shall|may|can|will|do|does)(?:\s?not|n't))(?:\s*$|\s*[,.!]"
    rf"|\s+{_ACTS}(?![\w-]))|{_NOT_ZH}{_ACTS_ZH}|{_NOT_NEEDED_ZH}|{_WAITS})"
)


_FORBIDS_AGENT: Final = LazyPattern(
    r"\b(?:do not|don't|dont|never|not|without|no|stop)\s+(?:(?:want|need|use|using|let|letting|have|ask"
    r"|tell|get|run|start|call"
    rf"|involve|to|the)\s+)*{CC}|(?:不要|別|勿|不用|不必|不需要?|不想要?|不准|不可以?|停止)(?:再"
    rf"|先)*\s*(?:用|使用|讓|叫|請|找|派|透過|交給|給|跑)?\s*{CC}"
)


_SAID_OF_AGENT: Final = LazyPattern(
    rf"(?:^|[\s,.;:!(]){CC}(?:[\s,]*you(?:'(?=re\b)|(?=\s)))?\s*(?:(?:run|agent|session|process|job)\s+)?(?:"
    r"(?:(?:always|never|just|still|already|really) )?(?:is|are|re|was|were|has|had|not|isn't|wasn't|hasn't"
    r"|seems?|seemed|looks|looked|keeps|kept|takes|took|broke|breaks|made|makes|failed|fails|crashed"
    r"|crashes|hangs|hung|forgot|forgets|said|says|stopped|finished|did|didn't|does|doesn't|won't|can't"
    r"|cannot|went|got|gets|rocks|sucks|works|worked|costs)\b(?! to\b)|(?:真的|還是?|也|實在|好像"
    r"|似乎)*(?:太|很(?!多)|超(?![時過連級市])|好(?!好)|真|慢(?![的速])|笨|爛|已經|又|一直|還在"
    r"|剛[剛才做弄把]|做得|沒(?:有?(?:做|跑|反應|用)|在)|(?:壞|壞掉|當機|當掉|掛|掛掉|卡住|錯|弄壞|搞砸"
    r"|失敗|出錯|[做寫改][完好錯壞])了|快(?:一?點|了)|把.{1,40}[壞砸錯亂]了))"
)


_PRAISE: Final = (
    r"(?:many thanks|thanks?(?: you)?|thx|cheers|kudos|bravo|(?:good|great|nice) (?:job|work)|well done"
    r"|love|i (?:like|hate)|謝謝你?|感謝|多謝|辛苦了?|做得好|很?棒|真棒|太棒了?|厲害|sorry|hello|poor|bad"
    r"|stupid)"
)


_THANKED: Final = LazyPattern(
    rf"^{_PRAISE}(?:[\s,!]|to|for|so much|a lot|the|my|your|你|的)*{_AGENT}"
    rf"|^(?:hey\s+)?{_AGENT}[\s,:!]*{_PRAISE}"
)


_NO_ORDER: Final = LazyPattern(
    r"^(?:i|we)(?:'ve| have| had)?(?: (?:already|just|also|now|finally))* (?:fixed|added|changed|removed"
    r"|deleted|merged|pushed|committed|deployed|refactored|updated|upgraded|implemented|renamed|moved"
    r"|reverted|resolved|solved|finished|completed|tested|checked|reviewed|wrote|written|did|done|made"
    r"|built|read|tried|started|installed|created|stopped)\b|^(?:i think )?(?:the )?(?:cc|claude code)'s\b"
    r"|^undo(?: it| this| that| everything)?$|^(?:i'll|i will|let me) (?:do|fix|handle|take) (?:it|this"
    r"|that)$|^(?:i'll|i will|let me) (?:\w+ ){1,6}myself$|^i'm on it$|^(?:it|that|this|nothing|everything"
    r"|all)(?:'s| is| now)* (?:works?|done|fixed|fine|broken|good|ok)(?: now| again)*$|^(?:all "
    r"|it's )?(?:fixed|done|finished)(?: it| that| now)*$|^(?:i )?(?:don't|do not) know$"
    r"|^(?:i'm )?not (?:sure|needed)$|^no idea$|^(?:shut up|go away|see you \w+|leave it to me)$"
    r"|^(?:我(?:自己)?來|我自己(?:來|做)|讓我來|不(?:知道|確定|清楚)|考慮一下|(?:明天|待會)見|掰掰|(?:完成"
    r"|修好|做完|可以|弄好|搞定|好|沒問題|沒有)了?)$|^我們?(?:已經?|剛剛?|都|也|自己|有"
    r"|\s)*(?:把.{1,40})?(?:修|改|加|寫|做|看|測試?|檢查|合併|提交|推|部署|處理|解決"
    r"|完成)[^,.;!]{0,20}(?:了|過)[^,.;!]{0,20}$"
)


_TAKEN_BACK: Final = LazyPattern(
    r"[\s,.]*(?:no|not (?:yet|now)|(?:just )?kidding|never ?mind|later|if|when|after|unless|once|until)\b"
    r"|[\s,.]*(?:不[,對是]|還沒|先不)"
)

_CLAUSE: Final = LazyPattern(r"[,;.!:\n]\s*|\s(?:but|instead|rather)\s+|但是?|而是")


_SOFTLY: Final = LazyPattern(
    r"^(?:(?:first|just|only|instead|rather|but|so|and|先|只要?|但是?|而是)[\s,]*)+|\s+first[\s.!]*$"
)

_ASKED_FOR_TIME: Final = LazyPattern(r"讓[我他她你]|換[我他她你]|us-\d")

_LOOKED_AT: Final = 300

_CLAUSES: Final = 8


def restraint(text: str, *, told: bool = False) -> Restraint | None:
    """Return how a folded, trimmed message holds back; None: it does not.

    `told`: the message has an address, which is cut off. There a negation counts only if it forbids to
    go on; another one (`CC, don't log passwords`) is part of an order.
    """
    text = text[:_LOOKED_AT]
    if _OF_SEVERAL.match(text) and not has_mark(text):
        return "wait"
    if (stop := _IS_STOP.match(text)) is not None and _stops(text, stop):
        return "wait" if _orders_later(text) or _TAKEN_BACK.match(text, stop.end()) else "stop"
    if has_mark(text):
        return None
    waits = (_TOLD_TO_WAIT if told else _IS_WAIT).match(text)
    return "wait" if forbids_agent(text) or (waits is not None and not _orders_later(text)) else None


def forbids_agent(text: str) -> bool:
    """Tell whether a folded message forbids to have an agent do it, and not only speaks of such a thing."""
    match = _FORBIDS_AGENT.search(text, 0, _LOOKED_AT)
    if match is None:
        return False
    before = text[: match.start()].rstrip()
    return not before or before[-1] in ",;.!:\n" or not begins_with_work(text)


def remarks_on_agent(text: str) -> bool:
    """Tell whether a folded message only says something of CC: thanks, praise, a complaint, what it did."""
    said = _SAID_OF_AGENT.search(text, 0, _LOOKED_AT) or _THANKED.match(text)
    return said is not None and not begins_with_work(text) and not _orders_later(text)


def leaves_nothing_to_do(text: str) -> bool:
    """Tell whether a folded message only says how things are: what was done, or that something can wait."""
    if _ENDS_IN_WAIT.search(text) is not None and not begins_with_work(text):
        return True
    return _NO_ORDER.match(text) is not None and not _orders_later(text)


def _stops(text: str, stop: re.Match[str]) -> bool:
    """Tell whether a stop stays one beside a question: `stop! what is it doing?` does, `stop?` does not."""
    return not has_mark(text) or stop.group()[-1:] in "!.\n"


def _orders_later(text: str) -> bool:
    """Tell whether an order follows what holds back, behind a sign."""
    tails = (text[sign.end() :] for sign, _ in zip(_CLAUSE.finditer(text), range(_CLAUSES), strict=False))
    return any(_is_order(_SOFTLY.sub("", tail)) for tail in tails)


def _is_order(tail: str) -> bool:
    if _ASKED_FOR_TIME.search(tail) or not begins_with_work(tail) or _IS_WAIT.match(tail):
        return False
    return not takes_back(tail)


# --- what takes a decision back -----------------------------------------------------------------------
_REFUSING_SIGNS: Final = frozenset("👎❌✖❎🚫🛑⛔✋🤚🙅⏸⏳⌛")


_CHEERS: Final = (
    r"(?:(?:it |this |that |all )?(?:looks?|is|'s)? ?(?:good|great|fine|perfect|excellent"
    r"|nice)(?: (?:job|work))?"
    r"|well done|thanks|thank you|not bad|lgtm"
    r"|no (?:further )?(?:problems?|issues?|objections?|comments?|complaints?|concerns?|worries|remarks"
    r"|questions?))(?: (?:to|from|by|for|with) (?:me|us|it|this))?(?![a-z0-9])"
    r"|看起來|很好|做得好|不錯|沒有?(?:問題|意見)|辛苦了?|謝謝|感謝|很|好的?"
)


_LEADING: Final = (
    r"(?:and|but|though|although|however|because|since|so|then|now|also|still|just|only|please|pls|well|oh|ah"
    r"|uh|um|hm+|er|ok|okay|yes|yeah|hey|sorry|actually|really|rather|better|i mean|i think|i guess|i'd say"
    r"|(?:i|we|you|it|this|that|they|he|she|there)(?:'(?:d|s|m|re|ll|ve))?|let(?:'s| us| me)?|would"
    r"|should|could"
    r"|must|have to|need to|needs to|want to|want|is|are|was|were|am|be|do|does|did|can|will|may"
    r"|might|ought to"
    r"|note)(?![a-z0-9'])"
    r"|但是?|可是|不過|只是|然而|而且|並且?|而|因為|請|麻煩|拜託|其實|最好|我們?|你們?|他們?|它|這個?|大家|應該|可"
    r"|是"
    r"|那就?|就|也|都|想|喔|哦|啊|嗯|欸|呃|抱歉|對不起"
)


_FIRST_WORDS: Final = (
    r"not|no|nope|nah|never|none|neither|dont|cannot|cant|wont|[a-z]+n't|wait(?:ing)?|hold(?:ing)?"
    r"|hang on|yet"
    r"|later|after(?:wards?)?|until|till|til|unless|if|iff|first|except|excluding|once|when|whenever"
    r"|before|or"
    r"|as soon as|(?:as|so) long as|provided|providing|assuming|supposing|pending|subject to|on condition"
    r"|conditional(?:ly)?|in principle|in case|tomorrow|tonight|soon|eventually|next (?:week|time"
    r"|month|sprint)"
    r"|maybe|perhaps|possibly|probably|never ?mind|forget (?:it|that)|scratch (?:it|that)"
    r"|(?:just )?kidding|jk"
    r"|think|unsure|need (?:more )?time|(?:on )?(?:mon|tues|wednes|thurs|fri|satur|sun)day"
    r"|in (?:an?|\d+) (?:minutes?|hours?|days?|weeks?)"
    r"|oops|reject(?:ed)?|postpone|delay|defer|unfortunately|too (?:early|soon)|premature(?:ly)?|by mistake"
    r"|one (?:moment|second|sec|minute)|a (?:moment|second|sec|minute)|give me|with (?:a "
    r"|some )?(?:conditions?"
    r"|reservations?|caveats?)"
    r"|(?:stop|cancel|undo|revert|retract|withdraw|abort|pause|wrong)(?: (?:it|this"
    r"|that))?(?=\s*(?:$|[,.;:!]))"
)


_FIRST_SIGNS: Final = (
    r"不(?!過|錯)|別|勿|莫|先|等|還(?:不|沒|未|要|得|需|在)|尚|暫|未|沒|無法|除非|如果|若|要是|假如|假設|倘|萬一|只要"
    r"|只有"
    r"|除了|前提|條件|待|稍|晚|之後|以後|過[一兩二幾]|明[天日早晚]|下[次週周]|下個|改天|隔天|再(?:等|說|議|想|考慮|討論)|慢|且慢"
    r"|停"
    r"|取消|收回|撤回|撤銷|算了|駁回|退回|拒絕|開玩笑|騙|才怪|或|還是|也許|可能|可惜"
)


_AT_FIRST: Final = LazyPattern(
    rf"[\W_]*+(?:(?:{_CHEERS}|{_LEADING})[\W_]*+)*+"
    rf"(?:(?:{_FIRST_WORDS})(?![a-z0-9])|{_FIRST_SIGNS})"
)


_ACT: Final = (
    r"(?:approv\w*|merge|proceed|continue|go (?:on|ahead)|start|begin|ship|deploy|release|commit"
    r"|push|skip|retry"
    r"|reopen|pass)"
)

_ACT_IN_CHINESE: Final = r"(?:核准|批准|通過|決定|合併|繼續|開始|提交|部署|上線|發佈|發布|跳過|重試|重開)"


_ANYWHERE: Final = LazyPattern(
    r"\bnot (?:yet|now|ready|today|so fast|approv\w+)\b|\byet\b|\bhold (?:on|off|it)\b|\bhang on\b"
    r"|\bnever ?mind\b"
    r"|\b(?:[a-z]+n't|not|dont|never|cannot)(?: \w+){0,2} " + _ACT + r"\b"
    r"|\bwait (?:for|until|till|a|on)\b|\b(?:to|should|must|let's|please|rather) wait\b|\bjust kidding\b"
    r"|\b(?:but|only) (?:if|once|after|unless|until|later|wait|hold|with|when)\b|\bfirst\s*(?:$|[,.;!)])"
    r"|(?:[,.;:!\n(—–]|\s-+)\s*(?:and |but |or )?(?:wait|hold|unless|until|if|later|tomorrow|except|once"
    r"|no|after|stop)\b(?!-)"
    r"|還(?:沒|未|不(?:要|行|能|可))|尚未|先(?:等|不|別|勿|讓|看|確認|檢查|測|問|跟|給|請)|暫(?:緩|停|不|時不"
    r"|且)"
    r"|等(?:等|一下|一等|待|到|\s*[a-z]|我|他|她|你|大家|老闆|主管|測試|確認|通知)|除非|的話|前提是|條件是|晚點|稍[後等]|且慢"
    r"|慢著"
    r"|再看看|想(?:想|一下|一想)|要?考慮(?:一下|看看)|星期[一二三四五六日]|[週周][一二三四五六日末]"
    r"|開玩笑|再(?:說|等|議|考慮|討論)|再\s*" + _ACT_IN_CHINESE + r"|(?:不要?|別|勿|不可以?|不能)\s*"
    + _ACT_IN_CHINESE + r"|(?:完|好|過|了|後)\s*[再才]|才(?:能|可以?|算|行|" + _ACT_IN_CHINESE + ")"
    r"|[,.;:!\n(—–]\s*(?:但是?|可是|不過)?(?:如果|若|要是|假如|只要|等|之後|明天)|^但.*再"
)  # fmt: skip


_TURNED: Final = LazyPattern(
    rf"[\W_]*+(?:(?:{_LEADING})[\W_]*+)*+(?:(?:not (?:yet|now|really)|wait (?:for|until|till|a)"
    rf"|hold (?:on|off|it)"
    r"|hang on|unless|until|never ?mind|forget (?:it|that)|(?:just )?kidding|jk|only (?:if|when|once|after)"
    r"|(?:do not|don't|dont|not|never) (?:reject|send)|(?:no|nope)\W+(?:wait|approved?|lgtm))(?![a-z0-9])"
    r"|(?:no|nope|not|yet|wait|later|tomorrow|maybe|perhaps|approved?|lgtm)\s*(?:$|[,.;:!])"
    r"|先(?:等|(?:不要?|別)(?:退|\W*$))|等(?:等|一下|\s*[a-z]|我|他|她|你)|再(?:等|說|想|議)|還(?:不要?|沒)(?:退"
    r"|\W*$)"
    r"|(?:不要?|別|勿)(?:退回|駁回|\W*$)|除非|暫緩|且慢|算了|取消|收回|開玩笑|晚點|稍[後等]|核准|通過\W*$"
    r"|才怪)"
)


_CONDITION: Final = LazyPattern(
    rf"[\W_]*+(?:(?:{_LEADING})[\W_]*+)*+(?:(?:if|once|when|after|as soon as)\b|如果|若|要是|等)"
)


def takes_back(note: str) -> bool:
    """Tell whether the folded note of an approval, or of what acts like one, leaves nothing decided."""
    return _AT_FIRST.match(note) is not None or _ANYWHERE.search(note) is not None


def turns_round(note: str, *, loose: bool) -> bool:
    """Tell whether the folded note of a rejection says that it is none, or none yet.

    People often name a fault with a negation (`reject: no tests`), so fewer words count than in an
    approval. `loose`: the note is set off by a word or a comma only; then a condition counts, too.
    """
    return _TURNED.match(note) is not None or (loose and _CONDITION.match(note) is not None)


def has_refusing_sign(text: str) -> bool:
    """Tell whether a text has an emoji that says no, or stop: beside a word of consent it is a proviso."""
    return not _REFUSING_SIGNS.isdisjoint(text)
