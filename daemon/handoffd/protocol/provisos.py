"""Whether the note of a decision takes it back: forbids it, puts it off, or hangs a condition on it.

`approve: not yet, wait for Bob` opens no gate. Asking once more costs a line, an approval that nobody gave
costs the story; so what looks like a proviso right at a note's beginning is one, whatever follows. Further
on, only words count that can hardly be about the work itself.
"""

from __future__ import annotations

import re
from typing import Final

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
_AT_FIRST: Final = re.compile(
    rf"[\W_]*+(?:(?:{_CHEERS}|{_LEADING})[\W_]*+)*+"
    rf"(?:(?:{_FIRST_WORDS})(?![a-z0-9])|{_FIRST_SIGNS})"
)

_ACT: Final = (
    r"(?:approv\w*|merge|proceed|continue|go (?:on|ahead)|start|begin|ship|deploy|release|commit"
    r"|push|skip|retry"
    r"|reopen|pass)"
)
_ACT_IN_CHINESE: Final = r"(?:核准|批准|通過|決定|合併|繼續|開始|提交|部署|上線|發佈|發布|跳過|重試|重開)"
_ANYWHERE: Final = re.compile(
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

_TURNED: Final = re.compile(
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
_CONDITION: Final = re.compile(
    rf"[\W_]*+(?:(?:{_LEADING})[\W_]*+)*+(?:(?:if|once|when|after|as soon as)\b|如果|若|要是|等)"
)


def takes_back(note: str) -> bool:
    """Tell whether the folded note of an approval, or of what acts like one, leaves nothing decided."""
    return _AT_FIRST.match(note) is not None or _ANYWHERE.search(note) is not None


def turns_round(note: str, *, loose: bool) -> bool:
    """Tell whether the folded note of a rejection says that it is none, or none yet.

    What is wrong is often said with a negation (`reject: no tests`), so fewer words count than in an
    approval. `loose`: the note is set off by a word or a comma only; then a condition counts, too.
    """
    return _TURNED.match(note) is not None or (loose and _CONDITION.match(note) is not None)


def has_refusing_sign(text: str) -> bool:
    """Tell whether a text has an emoji that says no, or stop: beside a word of consent it is a proviso."""
    return not _REFUSING_SIGNS.isdisjoint(text)
