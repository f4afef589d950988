"""The table of chat messages: the code has understood each example before the table shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from tests.support.markdown import table

from handoffd.chat.intents import Kind, classify

KINDS: Sequence[Kind] = get_args(Kind)
DISPATCHING: frozenset[Kind] = frozenset(
    {"start_story", "start_custom", "continue", "retry", "skip", "reopen"}
)
"""What can make an executor start."""

_SHOWN: Mapping[Kind, tuple[str, str, str]] = {
    "start_story": (
        "start US-007 / start story checkout with agent teams / let CC do US-007",
        "開始 US-007 / 開新 story US-007，平行 / 用 CC 做 US-007",
        "`started` at level 2; at level 1 `dispatched`, with its prompt; `queued` behind a story in flight",
    ),
    "start_custom": (
        "CC, add an export / use Claude Code to fix the login / fix the failing tests / debug why it fails",
        "讓 CC 修正登入 / 用 CC 新增匯出功能 / 修正登入頁面的錯誤",
        "starts a custom task and sets the story in flight aside; while that runs, the task is `queued`",
    ),
    "query": (
        "status / what's left? / backlog / are the tests green / why is it blocked / gate / show the review"
        " / show the diff / report / tonight / open project shop",
        "狀態 / 進度怎麼樣了 / 測試過了嗎 / 為什麼卡住 / 還剩什麼 / 關卡 / 顯示審查 / 看差異 / 報告 / 今晚"
        " / 開啟專案 shop / 回到 shop",
        "answers: `query`",
    ),
    "approve": (
        "approve / LGTM / approve US-005 / approve: mind the rounding",
        "核准 / 通過 / 核准 US-005 / 核准：注意四捨五入",
        "passes the human step: `approved`",
    ),
    "reject": (
        "reject / reject scope: too big / reject: the totals are wrong",
        "退回 / 不行，架構違反：資料層不可直接呼叫 / 退回 範圍太大",
        "sends it back by the named reason, else `needs_clarification`: `rejected`",
    ),
    "continue": (
        "continue / next step / resume",
        "繼續 / 下一步",
        "level 1: reads the hand-off, takes the next prompt; level 2: lifts a pause",
    ),
    "retry": ("retry / try again", "重試 / 再試一次", "tries the step again: `retried`"),
    "skip": ("skip / skip this step", "跳過 / 略過", "passes the step without evidence: `skipped`"),
    "abort": ("abort / cancel the story", "中止 / 取消", "ends the executor and the story: `aborted`"),
    "pause": (
        "pause / stop for today / stop everything / stop CC / pause project shop",
        "暫停 / 今天先到這裡 / 收工 / 全部停止 / 不要再跑了",
        "dispatches nothing more: `paused`",
    ),
    "reopen": (
        "reopen impl / reopen verify: totals are wrong",
        "重開 實作 / 重開 bdd：補上退款情境",
        "takes up a finished story: `reopened`",
    ),
    "note": ("note: prices are net", "備註：金額用整數", "goes into the next prompt: `noted`"),
    "init": (
        "create project shop / init project / set up the shop project",
        "建立 shop 專案 / 初始化專案",
        "prepares the named folder, and starts nothing: `initialised`",
    ),
    "list": ("list projects / which projects are there?", "所有專案 / 有哪些專案？", "`listed`"),
    "detect": (
        "framework / detect the framework / is this project using the framework?",
        "有沒有用框架？ / 偵測框架",
        "the framework's files: `detected`",
    ),
    "review": ("review / security scan", "審查 / 安全掃描", "the prompt of a review session: `review`"),
    "triage": ("triage / triage issues", "分診 / 處理 issues", "the prompt that sorts open issues: `triage`"),
    "unclear": (
        "ok / thanks / approve if the tests pass / don't approve / don't start US-007 / wait / CC / thanks CC"
        " / agents / usage / undo / land US-007 / discard US-007",
        "好 / 謝謝 / 不要核准 / 通過測試流程太慢 / 算了 / 等一下 / 不要用 CC / 謝謝 CC / 撤銷核准"
        " / 合併 US-007",
        "does nothing, and says what to type: `unclear`; at a human step a note, unless it names a command",
    ),
}


def intents() -> str:
    """Return every intent with messages that mean it, and what follows."""
    assert set(KINDS) == set(_SHOWN), set(KINDS) ^ set(_SHOWN)
    rows = [
        (f"`{kind}`", _quoted(kind, english), _quoted(kind, chinese), then)
        for kind, (english, chinese, then) in _SHOWN.items()
    ]
    return table(("Intent", "English", "Chinese", "What follows"), rows)


def _quoted(kind: Kind, examples: str) -> str:
    for text in examples.split(" / "):
        assert classify(text).kind == kind, (text, classify(text))
    return " · ".join(examples.split(" / "))
