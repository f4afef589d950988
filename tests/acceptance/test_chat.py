"""Whole stories by chat, in both languages: every line that a person reads, and what it led to."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.agents import GATED, carry_out
from tests.support.daemon import REPOSITORY, Daemon, prompts, sample
from tests.support.eventually import eventually_sync

from handoffd.chat.replies import news
from handoffd.chat.wording import wording

Json = dict[str, Any]

REVIEWED = ("docs/bdd/US-001.md", "docs/deltas/US-001.md", "docs/api/openapi.yaml", "PROJECT_CONTEXT.md")
GATE_EN = (
    "Type `approve`, or `reject REASON: what should change`"
    " (reasons: clarification, constitution, scope, nfr)"
)
GATE_ZH = "請輸入「核准」，或「退回 原因：要改什麼」（原因：不清楚、架構、範圍、效能）"
START_EN = "Type `start` and a story's id, as in `start US-001`, or describe the task"
START_ZH = "請輸入「開始 US-001」（換成故事編號），或直接說要做什麼"


class Chat:
    """A chat about one project. `lines` of an answer are what the person reads."""

    def __init__(self, daemon: Daemon, project: Path) -> None:
        self._daemon = daemon
        self._project = project

    def ask(self, text: str) -> Json:
        """Return the whole answer to a message."""
        body = {"project": str(self._project), "text": text, "by": "pat"}
        answer = self._daemon.post("/v1/messages", body)
        assert "message" == answer["type"], answer
        return answer

    def say(self, text: str) -> tuple[str, list[str]]:
        """Return the result of a message, and the lines that the person reads."""
        answer = self.ask(text)
        return answer["action"], answer["report"].splitlines()


def told(daemon: Daemon, project: Path, language: Any) -> list[str]:
    """Return the news about a project so far."""
    return [text for _, text in news(wording(language), daemon.events(project))]


def test_a_story_at_level_2_in_english(daemon: Daemon, tmp_path: Path) -> None:
    """Started, asked about, noted, approved and done without one command."""
    project = sample(tmp_path)
    chat = Chat(daemon, project)
    assert ("query", ["no story was ever started here", START_EN]) == chat.say("what's the status?")
    daemon.verb("init", project)
    daemon.verb("level", project, level="2")

    assert ("started", ["US-001 has started, at scenarios"]) == chat.say("Start story US-001, please")
    daemon.wait_at(project, "review", "needs_human")

    waits = "US-001: the review waits for your decision"
    action, lines = chat.say("status")
    assert ("query", waits, GATE_EN) == (action, lines[0], lines[-1])
    assert all(file in lines[1] for file in REVIEWED), lines
    action, lines = chat.say("what's left?")
    assert "Still to come: test scaffold → implementation → verification → memory update" == lines[2]
    action, lines = chat.say("Sums shall be in whole cents")
    assert ("noted", "kept as a note for the next step; it decides nothing", waits) == (action, *lines[:2])
    action, lines = chat.say("approve it if the sums are right")
    assert ("noted", GATE_EN) == (action, lines[-1])
    action, lines = chat.say("continue")
    assert ("needs_human", waits, GATE_EN) == (action, lines[0], lines[-1])
    action, lines = chat.say("approve US-002")
    assert ("error", "That did not work: the current story is US-001, not US-002") == (action, lines[0])
    assert "Understood: approve" == lines[1]
    assert ("review", "needs_human") == ((track := daemon.track(project))["step"], track["status"])

    assert ("approved", ["review approved ✓"]) == chat.say("Approve: mind the rounding")
    daemon.wait_at(project, "done", "pass")

    [scaffold, *_] = prompts(project, "scaffold")
    for note in ("Sums shall be in whole cents", "approve it if the sums are right", "mind the rounding"):
        assert note in scaffold
    assert ("query", ["US-001 is done ✓", START_EN]) == chat.say("how is it going")
    action, lines = chat.say("approve")
    assert ("error", START_EN) == (action, lines[-1])
    assert "US-001 implementation done ✓ all tests pass (11/11), on to verification" in told(
        daemon, project, "en"
    )


def test_a_story_at_level_2_in_chinese(daemon: Daemon, tmp_path: Path) -> None:
    """The same in Traditional Chinese; a rejection goes back, and comes again."""
    project = sample(tmp_path)
    chat = Chat(daemon, project)
    assert ("query", ["這裡還沒開始過任何故事", START_ZH]) == chat.say("目前狀態如何")
    daemon.verb("init", project)
    daemon.verb("level", project, level="2")

    assert ("started", ["US-001 開始進行，目前在情境"]) == chat.say("開始 US-001")
    queued = ("queued", ["US-002 已排隊；手上的故事完成後請輸入「繼續」"])
    assert queued == chat.say("開始 US-002")
    daemon.wait_at(project, "review", "needs_human")

    action, lines = chat.say("進度怎麼樣了？")
    assert ("query", "US-001 審查等你決定", GATE_ZH) == (action, lines[0], lines[-1])
    assert lines[1].startswith("請看：docs/bdd/US-001.md、")
    action, lines = chat.say("退款的情境要寫清楚")
    assert ("noted", "已記下，會放進下一步的提示詞；這不算決定") == (action, lines[0])
    assert "還剩：測試骨架 → 實作 → 驗證 → 記憶更新" in chat.say("還剩什麼")[1]
    assert ("rejected", "審查已退回：超出範圍") == (
        (said := chat.say("退回 範圍：先不做退款"))[0],
        said[1][0],
    )
    eventually_sync(lambda: len(prompts(project, "sdd-delta")) == 2)
    daemon.wait_at(project, "review", "needs_human")
    for note in ("退款的情境要寫清楚", "先不做退款"):
        assert note in prompts(project, "sdd-delta")[1]

    assert ("paused", ["已暫停；沒有在跑的，也不會開始新的", "請輸入「繼續」"]) == chat.say("今天先到這裡")
    action, lines = chat.say("這樣可以")
    assert ("noted", GATE_ZH) == (action, lines[-1])
    assert "approved" == chat.say("核准")[0]
    assert ("resumed", "US-001 繼續，目前在審查") == ((said := chat.say("繼續"))[0], said[1][0])
    daemon.wait_at(project, "done", "pass")

    assert ("query", ["US-001 全部完成 ✓", "排隊中：US-002", "請輸入「繼續」"]) == chat.say("狀態")
    heard = told(daemon, project, "zh-TW")
    assert "US-001 從審查退回規格差異" in heard
    assert "US-001 契約完成 ✓ 審查等你決定" in heard
    assert "US-001 實作完成 ✓ 測試全過（11/11），進入驗證" in heard
    assert ("reopened", "US-001 已從實作重開") == ((said := chat.say("重開 實作：補上退款"))[0], said[1][0])
    eventually_sync(lambda: "補上退款" in prompts(project, "impl")[-1])


@pytest.mark.parametrize(
    ("start", "go_on", "approve", "first", "heard", "done"),
    [
        (
            "start US-001",
            "continue",
            "LGTM",
            "US-001 scenarios, attempt 1: here is its prompt\n",
            "US-001 scenarios done ✓ on to design delta",
            "US-001 is done ✓",
        ),
        (
            "讓 CC 做 US-001",
            "繼續",
            "通過",
            "US-001 情境第 1 次：提示詞在這裡\n",
            "US-001 情境完成 ✓ 進入規格差異",
            "US-001 全部完成 ✓",
        ),
    ],
    ids=["en", "zh-TW"],
)
def test_a_story_at_level_1(
    daemon: Daemon, tmp_path: Path, start: str, go_on: str, approve: str, first: str, heard: str, done: str
) -> None:
    """The prompts are handed to the chat, whose agent does the work; `continue` hears what it left."""
    project = sample(tmp_path)
    chat = Chat(daemon, project)

    answer = chat.ask(start)
    assert answer["report"].startswith(first)
    assert ("dispatched", "bdd", 1, "sdd-delta", 2) == (
        answer["action"], *(answer["result"][key] for key in ("step", "attempt", "next_step", "fw_lv")),
    )  # fmt: skip
    assert "already_running" == chat.say(go_on)[0]
    assert 1 == daemon.view(project)["level"]

    lines: list[str] = []
    steps = ["bdd"]
    while answer["action"] != "done":
        assert len(steps) < 20, steps
        if answer["action"] == "dispatched":
            assert answer["result"]["caller_instruction"]
            carry_out(answer["result"]["prompt"], project)
            answer = _once_heard(chat, go_on)
        elif answer["action"] == "needs_human":
            assert "noted" == chat.say("Mind the rounding.")[0]
            assert "approved" == chat.say(approve)[0]
            answer = chat.ask(go_on)
        lines += answer["report"].splitlines()
        steps.append(answer["result"].get("step") or "done")

    assert [
        "bdd",
        "sdd-delta",
        "contract",
        "review",
        "scaffold",
        "impl",
        "verify",
        "update-memory",
        "done",
    ] == steps
    assert done in lines
    assert heard in told(daemon, project, "en" if go_on == "continue" else "zh-TW")


def _once_heard(chat: Chat, go_on: str) -> Json:
    """Return the answer to `continue` once the daemon has judged the hand-off that is there."""
    answers: list[Json] = []

    def heard() -> bool:
        answers.append(chat.ask(go_on))
        assert answers[-1]["action"] in {"already_running", "dispatched", "needs_human", "done"}, answers[-1]
        return bool(answers[-1]["action"] != "already_running")

    eventually_sync(heard)
    return answers[-1]


def test_one_chat_about_several_projects(daemon: Daemon, tmp_path: Path) -> None:
    """A message may name its project; one that does not is asked back, and changes nothing."""
    for name in ("north", "south"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "package.json").write_text(f'{{"name": "{name}"}}')
        daemon.verb("init", tmp_path / name)

    def say(text: str) -> Json:
        return daemon.post("/v1/messages", {"text": text, "by": "pat"})

    assert str(tmp_path / "north") == say("north: status")["project"]
    assert str(tmp_path / "south") == say("south 的進度")["project"]
    asked = say("approve")
    assert ("error", "PROJECT_MISSING", None) == (asked["action"], asked["result"]["code"], asked["project"])
    assert re.search(r"which project\? There are: .*north", asked["report"])
    assert "started" != say("pause in north")["action"]
    assert "pat" == daemon.get("/v1/status", project=str(tmp_path / "north"))["projects"][0]["paused_by"]
    assert {"north", "south"} <= {one["name"] for one in say("所有專案")["result"]["projects"]}


def test_an_agent_cannot_approve_by_writing_into_the_chat(daemon: Daemon, tmp_path: Path) -> None:
    """A message from a process of an executor is refused like the verb; the answer names the verb."""
    project = sample(tmp_path, rules=GATED)
    chat = Chat(daemon, project)
    daemon.to_review(project)

    said = subprocess.run(
        [sys.executable, "-m", "handoffd", "auto", str(project), "approve"],
        env={**os.environ, "HANDOFFD_RUN": "r1", "PYTHONPATH": str(REPOSITORY / "daemon"),
             "HANDOFFD_STATE_DIR": str(daemon.state_dir), "HANDOFFD_RUNTIME_DIR": str(daemon.runtime_dir)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert (1, "") == (said.returncode, said.stdout), said
    assert "Understood: approve" in said.stderr
    assert "for people" in said.stderr
    assert ("review", "needs_human") == ((track := daemon.track(project))["step"], track["status"])
    assert "approved" == chat.say("approve")[0]
