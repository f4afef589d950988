"""The commands that can be given in a message, as people say them in English and Chinese.

A phrase is a pattern for folded text (`text.folded`). It means its command only if it makes up the whole
message, except for courtesies, its object and a note: so `approve the login page's design with Kim` opens
no gate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from handoffd.chat import restraints
from handoffd.chat.text import LazyPattern, folded
from handoffd.protocol.state import Reason, canonical_step, near_reason

Command = Literal[
    "list", "detect", "approve", "reject", "start_story", "review", "triage", "reopen", "continue", "retry",
    "skip", "abort", "pause", "note",
]  # fmt: skip

_BEFORE: Final = (
    r"(?:(?:please|pls|plz|ok|okay|alright|yes|yep|sure|now|then|let's|好的|好|沒問題|請|麻煩|拜託|幫我"
    r"|那就|那|就)(?![a-z])[\s,:!]*)*"
)
_AFTER: Final = (
    r"(?:[\s,.!]*(?:please|pls|plz|thanks|thank you|thx|now|then|for now|吧|喔|哦|囉|啦|了|謝謝"
    r"|感謝|一下))*[\s.!~]*$"
)
_OBJECT: Final = (
    r"(?:\s*(?:(?:the|this|that|it|its|current|project|review|story|step|changes?|attempt"
    r"|issues?|code|work|here)\b"
    r"|這個|這一步|此|該|目前的?|故事|步驟|審查|專案|項目|變更|改動"
    r"|工作))*(?:\s*(?P<story>us-\d+)\b)?(?:\s*(?:story|故事))?"
)

APPROVE: Final = r"(?:i approve|approved?|lgtm|我?(?:核准|批准)|(?:審查)?通過(?!了))"
REJECT: Final = r"(?:i reject|reject(?:ed)?|我?(?:退回|駁回|打回)|不行|不通過|不核准)"
STORY: Final = r"(?P<story>[a-z0-9][a-z0-9._-]{0,79})"
TEAMS: Final = r"(?:agent[\s-]?teams?|(?<!user )\bagents\b|平行|並行|多個?\s*agents?|多代理)"

_WITH_TEAMS: Final = (
    rf"(?:[\s,]*(?:with|using|by|in|用|使用|以)?\s*(?:an?|several|multiple|多個)?\s*{TEAMS}(?:模式"
    rf"|處理|執行)?)?"
)
_STARTING: Final = r"(?:start|begin|kick off|open|開始做?|開新|開|新開|啟動)"
_WORKING: Final = (
    r"(?:do|implement|work on|build|make|run|finish|take|start|begin|開始做?|開新|開|做|實作|執行"
    r"|跑|開發|完成|處理|啟動)"
)
_ANY_STORY: Final = (
    r"(?:\s*(?:a|an|the|another|one more|new|next|一個|新的?|另一個|下一個)(?![a-z]))*"
    r"\s*(?:user story|story|故事|需求)"
)
_ADDING: Final = (
    r"(?:(?:(?:i|we) )?(?:want|need|would like|i'd like)(?: to (?:add|create|start|make|have))?|add|create"
    r"|make|open|set up|give me|(?:我們?)?(?:想要?|要|需要)?(?:新增|增加|加入?|建立|新建|創建|建|寫|來)"
    r"|我們?(?:想要?|要|需要)開?)"
)
_TICKET: Final = r"(?P<story>[a-z][a-z0-9]*-\d+)"

_WORDS: Final[Mapping[Command, tuple[str, ...]]] = {
    "list": (
        r"(?:list|show)(?: me)?(?: (?:all|my|our|the))* projects?|all (?:my |the )?projects|projects",
        r"project list|(?:what|which) projects(?: are there| do (?:i|we) have)?",
        r"(?:列出|顯示|看)?(?:我的|全部|所有)?的?(?:專案|項目)(?:列表|清單)",
        r"列出(?:全部|所有)?的?(?:專案|項目)?|(?:所有|全部)的?(?:專案|項目)|(?:我們?)?有(?:哪些"
        r"|什麼)(?:專案|項目)",
    ),
    "detect": (
        r"detect(?: the)?(?: framework)?(?: level)?|check(?: for)?(?: the)? framework(?: level)?",
        r"(?:the )?framework(?: level| status)?|adoption(?: level)?",
        r"(?:is|does it use|uses?)?(?: there)?(?: an?| the)? framework(?: used| in use)?",
        r"(?:is|are|does|do|has|have)(?: the| this| my| our| that)?(?: project| repo(?:sitory)?| it| we)?"
        r"(?: already)? (?:us(?:e|es|ing)|on|have|adopt(?:ed|ing)?)(?: an?| the| this| any)?"
        r"(?: agentic coding)? framework(?: here| already| yet| or not)?",
        r"(?:(?:這|那|此|該|本|我們?的)?個?(?:專案|項目)?|這裡)(?:目前|現在)?(?:有沒有|有無|是否有?|有"
        r"|是不是有?)(?:在)?"
        r"(?:用|使用|採用)(?:到|了|著)?\s*(?:這個?|agentic coding)?\s*(?:框架|framework)(?:嗎|呢)?",
        r"(?:偵測|檢測|檢查)\s*(?:框架|framework)|框架|採用程度",
    ),
    "review": (
        r"review(?: session)?|code review|security (?:scan|review)|health check",
        r"審查|(?:程式碼|代碼|專案|安全)審查|安全掃描|健檢|健康檢查",
    ),
    "triage": (r"triage|分診|分類|處理\s*issues?|分類\s*issues?|分診\s*issues?",),
    "continue": (
        r"continue|dispatch|next(?: step)?|proceed|go(?: on| ahead)?|carry on|run|resume|keep going",
        r"繼續(?:執行|做|跑)?|下一(?:步|個)|執行|接著做|接續|恢復|往下做",
    ),
    "retry": (r"retry|try (?:it )?again|once more", r"重試|再試(?:一次|一遍)?|再(?:跑|來|做)一次|重跑|重做"),
    "skip": (r"skip|跳過|略過",),
    "abort": (r"abort|cancel|中止|取消|終止|放棄",),
    "pause": (
        r"pause|stop|hold(?: on)?|stop for (?:today|now|tonight)|call it a day",
        r"(?:that's |that is )?(?:all|it|enough) for (?:today|now)",
        r"今[天晚]就?先?到(?:這裡|這邊|此)(?:為止)?|先?到這裡|先?暫停|先?停(?:下來|止)?|收工|先?休息",
    ),
}
_COMMANDS: Final = {name: f"(?:{'|'.join(words)})" for name, words in _WORDS.items()}

STEPS_IN_CHINESE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("情境", "場景"), "bdd"),
    **dict.fromkeys(("規格差異", "差異", "設計"), "sdd-delta"),
    **dict.fromkeys(("契約", "合約", "介面"), "contract"),
    **dict.fromkeys(("骨架", "測試骨架"), "scaffold"),
    **dict.fromkeys(("實作", "實現"), "impl"),
    **dict.fromkeys(("記憶", "更新記憶"), "update-memory"),
    "審查": "review",
    "驗證": "verify",
    "驗收": "acceptance",
    "提交": "commit",
}


class Said(Struct, frozen=True):
    """A command that a message gives, with its words as places in the message. -1: there is none."""

    command: Command
    story: str | None = None
    step: str | None = None
    note_at: int = -1
    loose: bool = False
    """Whether the message says more that may matter while the story waits for a person."""


_NOTED: Final = (
    r"(?:\s*(?::|;|\n|\s-+\s|—|–)\s*(?P<note>\S.*)"
    r"|(?:\s*[,.!]\s*|\s+(?=(?:but|and|with|note|though|however|because|since)\b)|\s*(?=但"
    r"|不過|記得|請|並|因為|注意))(?P<loose>\S.*))"
)
_PLAIN: Final = {
    name: LazyPattern(f"^{_BEFORE}{words}{_OBJECT}{_AFTER}", re.DOTALL) for name, words in _COMMANDS.items()
}
_APPROVED: Final = LazyPattern(f"^{_BEFORE}{APPROVE}{_OBJECT}(?:{_AFTER}|{_NOTED}$)", re.DOTALL)
_PRAISED: Final = LazyPattern(
    rf"^{_BEFORE}{APPROVE}{_OBJECT}\s*"
    r"(?P<praise>(?:looks? (?:good|great|fine)|good (?:job|work)|well done|great|nice(?: work)?"
    r"|很好|做得好|沒問題|沒有問題|辛苦了?)[\s.!]*)$",
)  # fmt: skip
_REJECTED: Final = LazyPattern(f"^{_BEFORE}{REJECT}{_OBJECT}(?P<rest>.*)$", re.DOTALL)
_REOPEN: Final = LazyPattern(
    rf"^{_BEFORE}(?:re-?open|重開|重新開啟|重新打開)(?:\s*(?P<story>us-\d+)\b)?\s*(?:(?:(?:at"
    rf"|from|to|with|the)\b|回到|到|在|從)\s*)*"
    rf"(?P<step>(?!us-\d)[a-z][a-z0-9_-]*|[\u4e00-\u9fff]{{2,6}}?)(?:\s*(?:step|步驟"
    rf"|開始))?(?:{_AFTER}|(?:{_NOTED}|\s+(?P<rest>\S.*))$)",
    re.DOTALL,
)
_REOPEN_WHERE: Final = LazyPattern(rf"^{_BEFORE}(?:re-?open|重開|重新開啟|重新打開){_OBJECT}{_AFTER}")
_KNOWN_STEPS: Final = frozenset(
    {
        "bdd",
        "sdd-delta",
        "contract",
        "review",
        "scaffold",
        "impl",
        "verify",
        "acceptance",
        "commit",
        "update-memory",
        "custom",
    }
)

_STEP_SAID: Final = (
    r"(?:bdd|sdd[\s_-]?delta|contracts?|review|(?:test )?scaffold|impl(?:ement(?:ation)?)?|verif(?:y|ication)"
    r"|commit|(?:update[\s_-]?)?memory|" + "|".join(sorted(STEPS_IN_CHINESE, key=len, reverse=True)) + ")"
)
_CONTINUED_AT: Final = LazyPattern(
    rf"^(?P<beside>[^?]{{0,80}}?[,.;!]\s*)??{_BEFORE}{_COMMANDS['continue']}\s*(?:with|at|on|to|from|做)?\s*"
    rf"(?:the\s+)?{_STEP_SAID}(?:\s*(?:\+|&|/|,|->|→|and|then|和|與|跟|及|到)\s*(?:the\s+)?{_STEP_SAID})*"
    rf"(?:\s*(?:steps?|步驟))?{_AFTER}"
)
"""Steps that are named there change nothing: one follows the other, each with a prompt of its own."""

_START: Final = (
    LazyPattern(
        rf"^{_BEFORE}(?:(?:new\s+)?story\s+|新?故事\s*)?(?P<story>us-\d+)(?:\s*(?:story"
        rf"|故事))?{_WITH_TEAMS}{_AFTER}"
    ),
    LazyPattern(rf"^{_BEFORE}{_STARTING}{_ANY_STORY}\s*{_TICKET}{_WITH_TEAMS}{_AFTER}"),
    LazyPattern(rf"^{_BEFORE}{_STARTING}\s*(?:the\s+)?{_TICKET}(?:\s*(?:story|故事))?{_WITH_TEAMS}{_AFTER}"),
    LazyPattern(rf"^{_BEFORE}{_STARTING}{_ANY_STORY}\s+(?!with\b|using\b){STORY}{_WITH_TEAMS}{_AFTER}"),
    LazyPattern(
        rf"^{_BEFORE}(?:(?:{_STARTING}|{_ADDING}){_ANY_STORY}|(?:(?:a|the)\s+)?(?:new"
        rf"|another) (?:user )?story"
        rf"|(?:新的?|另一個)\s*(?:story|故事)){_WITH_TEAMS}{_AFTER}"
    ),
    LazyPattern(rf"^{_BEFORE}{_ADDING}{_ANY_STORY}\s*{_TICKET}{_WITH_TEAMS}{_AFTER}"),
    LazyPattern(rf"^{_BEFORE}{_ADDING}{_ANY_STORY}\s*(?::|,|\b(?:about|for|where|in which)\b).*$", re.DOTALL),
    LazyPattern(rf"^{_BEFORE}{_STARTING}{_ANY_STORY}\s+(?P<bad>\S{{1,80}}){_AFTER}"),
)
_DONE_BY: Final = LazyPattern(
    rf"^{_BEFORE}(?:{TEAMS}\s*(?:to\s+)?)?{_WORKING}?(?:\s*(?:the\s+)?(?:story"
    rf"|故事))?\s*{_TICKET}{_WITH_TEAMS}{_AFTER}"
)
_NOTE: Final = LazyPattern(
    rf"^{_BEFORE}(?:note(?: that)?|remark|remember|備[註注]|筆記|註記|記下"
    rf"|提醒)(?![a-z])\s*[:,]?\s*(?P<note>\S.*)$",
    re.DOTALL,
)
_BEGUN: Final = LazyPattern(rf"^{_BEFORE}(?P<which>(?P<approve>{APPROVE})|{REJECT})(?![a-z])")
_NO_TASK: Final = LazyPattern(
    rf"^{_BEFORE}(?:(?:(?:with|using|use|by|in|an?|as|several|multiple|do|it|this|that|work|on|run|start"
    rf"|help|me|some"
    rf"|something|task|job|to|for|please|用|使用|以|多個|來|去|做|處理|跑|執行|開始|工作|任務|模式|幫忙"
    rf"|幫我)(?![a-z])"
    rf"|{TEAMS})[\s,]*)+{_AFTER}"
)
"""A way to work, or that there is work to do, and no word of what."""
_DECISIONS: Final = LazyPattern(
    r"(?P<approve>\b(?:approv(?:e|ed|al)|lgtm)\b|核准|批准|同意|^我?通過)"
    r"|\breject(?:ed)?\b|退回|駁回"
)
_LOOSE_CONSENT: Final = LazyPattern(
    r"(?:\b(?:the )?(?:rest|others?|everything else|remaining)\b|其他|其餘|剩下)(?:的|都|部分)*\s*"
    r"(?:(?:is|are|looks?|seems?)\s+)?(?:ok(?:ay)?|fine|good|great|可以|沒問題|好)(?:了|的)?[\s.!~]*$"
)
"""An answer to a question that happens to contain a consent: neither a decision nor work."""
_BACK: Final = LazyPattern(
    rf"^{_BEFORE}(?:roll ?back|go back|退回到|回到|退到|倒回)(?: to)?\s*(?:the\s+)?"
    r"(?P<step>[a-z_-]+|[\u4e00-\u9fff]+)$"
)
_ALMOST: Final[Mapping[Command, LazyPattern]] = {
    "start_story": LazyPattern(rf"^{_BEFORE}{_STARTING}{_ANY_STORY}(?![a-z])|^\S{{1,12}}\s*us-\d+{_AFTER}"),
    "note": LazyPattern(rf"^{_BEFORE}(?:note|備[註注]|筆記){_AFTER}"),
    **{
        name: LazyPattern(rf"^{_BEFORE}(?:{_COMMANDS[name]}|restart|重啟|重新開始)(?![a-z]).{{0,12}}$")
        for name in ("retry", "skip", "continue")
    },
}
_MINE: Final = (
    r"(?:\s*(?:(?:the|my|our|your|that|this|it|last|everything)(?![a-z])|我的|你的|剛[剛才]的?|上一?個?的?))*"
)
_ITS_STORY: Final = (
    r"(?:\s*(?:(?:the|this|that|it|its|finished|done|aborted|all|everything|story(?:'s)?|stories|branch|work|changes?)(?![a-z])"
    r"|這個|那個|故事|分支|的))*(?:\s*(?P<story>us-\d+)(?![a-z0-9]))?(?:'s)?(?:\s*的?(?:story|branch|故事|分支))?"
)
_ONTO: Final = r"(?:\s*(?:on|onto|into|to|到)\s*(?:main|master|my branch|主線))?"
_AT_TERMINAL: Final[Mapping[str, tuple[LazyPattern, ...]]] = {
    "undo": (
        LazyPattern(rf"^{_BEFORE}(?:undo|復原|撤銷|還原){_MINE}{_ITS_STORY}{_AFTER}"),
        LazyPattern(
            rf"^{_BEFORE}(?:undo|revoke|revert|withdraw|take back|cancel|復原|撤銷|撤回|收回|取消){_MINE}\s*"
            rf"(?:approv(?:e|al)|lgtm|decision|(?:審查的?)?(?:核准|批准|通過|決定))(?:\s+(?:of|for))?{_ITS_STORY}{_AFTER}"
        ),
    ),
    "land": (
        LazyPattern(
            rf"^{_BEFORE}(?:land|落地|併入|合入){_ITS_STORY}{_ONTO}{_AFTER}"
        ),
        LazyPattern(
            rf"^{_BEFORE}(?:merge|合併)\s*(?:the\s+)?(?:(?:story|故事)\s*)?"
            rf"(?:(?P<story>us-\d+)(?:'s branch)?|(?<=story)|(?<=故事)){_ONTO}{_AFTER}"
        ),
    ),
    "discard": (LazyPattern(rf"^{_BEFORE}(?:discard|throw away|丟棄|丟掉|捨棄|扔掉){_ITS_STORY}{_AFTER}"),),
}  # fmt: skip
"""What a person decides in a terminal, with the story before their eyes: a chat names the command."""
_TICKET_STARTED: Final = rf"{_STARTING}(?:{_ANY_STORY})?\s*(?:the\s+)?{_TICKET}{_WITH_TEAMS}"
_HEDGED: Final[Mapping[Command, LazyPattern]] = {
    "start_story": LazyPattern(rf"^{_BEFORE}{_TICKET_STARTED}{_NOTED}$", re.DOTALL),
    "reopen": _REOPEN,
    **{
        name: LazyPattern(rf"^{_BEFORE}{_COMMANDS[name]}{_OBJECT}{_NOTED}$", re.DOTALL)
        for name in ("retry", "skip", "continue", "abort", "pause")
    },
}
"""Commands with a note that may put them off; no work either way."""

_REASONS: Final = (
    (
        "constitution_violation",
        r"constitution(?:[\s_-]violation)?|違反(?:架構|憲法|原則)|架構違反|憲法|違憲|架構",
    ),
    ("scope_warning", r"scope(?:[\s_-]warning)?|too (?:big|large)|範圍(?:太大|警告)?|太大"),
    ("nfr_missing", r"nfr(?:[\s_-]missing)?|非功能(?:需求)?|效能"),
    ("test_timeout", r"(?:test[\s_-])?time[\s-]?(?:out|d out)|超時|逾時"),
    (
        "needs_clarification",
        r"(?:needs?[\s_-])?clarif(?:ication|y)|unclear|(?:需要|請)?(?:說明|釐清)|不清楚|不明確",
    ),
)
_REASON_FIRST: Final = LazyPattern(
    r"^[\s:,(]*(?:" + "|".join(pattern for _, pattern in _REASONS) + r")\)?(?![a-z])"
)


def said(text: str) -> Said | None:
    """Return the command that a folded, trimmed message is as a whole; None when it is none."""
    for find in (_consent, _refusal, _start, _reopening, _continued_at):
        if (found := find(text)) is not None:
            return found
    for name, pattern in _PLAIN.items():
        if (match := pattern.match(text)) is not None:
            return Said(name, story=match["story"])
    match = _NOTE.match(text)
    return None if match is None else Said("note", note_at=match.start("note"))


def work_for_an_agent(text: str) -> Said | None:
    """Return the start of a story that a folded message tells an agent to work on; None for anything else."""
    match = _DONE_BY.match(text)
    return _start(text) if match is None else Said("start_story", story=match["story"])


def at_terminal(text: str) -> tuple[str, str | None] | None:
    """Return the command that a folded message asks for and a chat does not give, and its story if named."""
    for name, patterns in _AT_TERMINAL.items():
        for pattern in patterns:
            if (match := pattern.match(text)) is not None:
                return name, match["story"]
    return None


def near(text: str) -> Command | None:
    """Return the command that a folded message resembles; such a message is never work.

    A decision counts wherever it is mentioned, any other command if the message says little else.
    """
    if (begun := begun_decision(text)) is not None:
        return begun
    if (match := _DECISIONS.search(text)) is not None:
        return "approve" if match["approve"] else "reject"
    if _LOOSE_CONSENT.search(text):
        return "approve"
    back = _BACK.match(text)
    if back is not None and _is_step(back["step"]):
        return "reopen"
    return _hedged(text) or next((name for name, pattern in _ALMOST.items() if pattern.match(text)), None)


def _hedged(text: str) -> Command | None:
    """Return the command that a folded message gives and takes back in one breath."""
    matches = ((name, pattern.match(text)) for name, pattern in _HEDGED.items())
    return next((name for name, match in matches if match is not None and _takes_back(match)), None)


def _takes_back(match: re.Match[str]) -> bool:
    found = match.groupdict()
    parts = [found.get("note"), found.get("loose")]
    if (step := found.get("step")) is not None:
        parts += [step, found.get("rest") if _is_step(step) else None]
    return any(restraints.takes_back(part) for part in parts if part)


def _is_step(word: str) -> bool:
    return word in STEPS_IN_CHINESE or canonical_step(word) in _KNOWN_STEPS


def is_step(word: str) -> bool:
    """Tell whether a folded word names a step of the shipped table."""
    return re.fullmatch(_STEP_SAID, word) is not None or _is_step(word)


def names_no_task(text: str) -> bool:
    """Tell whether a folded message says how to work, or that there is work, and not what shall be done."""
    return _NO_TASK.match(text) is not None


def begun_decision(text: str) -> Command | None:
    """Return the decision that a folded message begins with, whatever follows."""
    match = _BEGUN.match(text)
    return None if match is None else "approve" if match["approve"] else "reject"


def reason_in(text: str) -> tuple[str | None, int]:
    """Return the reason that a folded text gives, and where what follows begins (0: it begins with none)."""
    first = _REASON_FIRST.match(text)
    where = text if first is None else first.group()
    reason = next((name for name, pattern in _REASONS if re.search(pattern, where)), None)
    return reason, 0 if first is None else first.end()


def reason_meant(word: str) -> Reason | None:
    """Return the reason that an answer means as a whole: by its name, or as a chat has it (`scope`)."""
    text = folded(word).strip()
    reason, end = reason_in(text)
    return near_reason(word) or (Reason(reason) if reason and end == len(text) else None)


def wants_team(text: str) -> bool:
    """Tell whether a folded message asks for an agent team."""
    return re.search(TEAMS, text) is not None


def _consent(text: str) -> Said | None:
    match = _APPROVED.match(text)
    if match is None:
        match = _PRAISED.match(text)
        return None if match is None else Said("approve", match["story"], note_at=match.start("praise"))
    at = max(match.start("note"), match.start("loose"))
    if at >= 0 and restraints.takes_back(text[at:]):
        return None  # consent that depends on something is none yet
    return Said("approve", match["story"], note_at=at)


def _refusal(text: str) -> Said | None:
    match = _REJECTED.match(text)
    if match is None:
        return None
    rest, at = match["rest"], match.start("rest")
    if re.match(f"^{_AFTER}", rest):
        return Said("reject", match["story"])
    noted = re.match(f"^{_NOTED}$", rest, re.DOTALL)
    if noted is None:
        return Said("reject", match["story"], note_at=at) if _REASON_FIRST.match(rest) else None
    where = max(noted.start("note"), noted.start("loose"))
    if restraints.turns_round(rest[where:], loose=noted["loose"] is not None):
        return None
    return Said("reject", match["story"], note_at=at + where)


def _start(text: str) -> Said | None:
    for pattern in _START:
        if (match := pattern.match(text)) is not None:
            groups = match.groupdict()
            return Said("start_story", story=groups.get("story") or groups.get("bad"))
    return None


def _continued_at(text: str) -> Said | None:
    match = _CONTINUED_AT.match(text)
    return None if match is None else Said("continue", loose=match["beside"] is not None)


def _reopening(text: str) -> Said | None:
    if (bare := _REOPEN_WHERE.match(text)) is not None:
        return Said("reopen", bare["story"])
    match = _REOPEN.match(text)
    if match is None:
        return None
    at = max(match.start(name) for name in ("note", "loose", "rest"))
    if _takes_back(match) or (not _is_step(match["step"]) and match["note"] is None and at >= 0):
        return None  # `reopen the dialog after a cancel` is work
    return Said("reopen", match["story"], match["step"], note_at=at)
