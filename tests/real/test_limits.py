"""Usage limits of the real programs: waited for over a restart, or handed to the next one."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from tests.real.agents import AGENTS
from tests.real.conftest import Told
from tests.real.driving import driven
from tests.real.provider.turns import Answer, Asked
from tests.real.rehearsed import Rehearsed
from tests.real.scripts import acting, limited, refusing
from tests.support.eventually import eventually_sync

SUBSCRIPTION = {"ANTHROPIC_API_KEY": None, "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-dummy"}
SOON_S = 60.0


def test_a_limit_is_waited_for_over_a_restart_of_the_daemon(tools: Path, tmp_path: Path, told: Told) -> None:
    """The time is claude's own; no attempt is spent, and no person has to act."""
    told("claude", "a subscription's limit: waited for over kill -9 of the daemon, no attempt spent")
    claude = AGENTS["claude"]
    with driven(claude, tools, tmp_path, login=SUBSCRIPTION) as house:
        house.behave(limited(in_s=SOON_S))
        house.start()
        house.daemon.wait_for(house.project, lambda track: "usage limit" in (track["waits_for"] or ""))
        house.daemon.kill()
        house.behave(acting(claude, house.project, Rehearsed(house.project)))
        house.daemon.start()

        house.reaches("review", "needs_human")

        first, *others = house.daemon.runs(house.project)
        assert ("bdd", "limit", "limit") == (first["step"], first["exit"]["end"], first["result"])
        told_at, began_at = map(datetime.fromisoformat, (first["exit"]["retry_at"], others[0]["started_at"]))
        assert told_at <= began_at
        assert [("bdd", 1), ("sdd-delta", 1), ("contract", 1)] == [
            (run["step"], run["attempt"]) for run in others
        ]


def test_the_next_executor_takes_over_from_one_at_its_limit(tools: Path, tmp_path: Path, told: Told) -> None:
    """codex does what claude cannot just now, from the same attempt on."""
    told("claude", "at its limit: codex takes over")
    claude, codex = AGENTS["claude"], AGENTS["codex"]
    with driven(claude, tools, tmp_path, fallback=codex, login=SUBSCRIPTION) as house:
        refused = limited(in_s=7200)
        work = acting(codex, house.project, Rehearsed(house.project))

        def answer(asked: Asked) -> Answer:
            return refused(asked) if asked.dialect == "anthropic" else work(asked)

        house.behave(answer)
        house.start()
        house.reaches("review", "needs_human")

        ran = [(run["executor"], run["step"], run["attempt"]) for run in house.daemon.runs(house.project)]
        assert [("claude", "bdd", 1), ("codex", "bdd", 1), ("codex", "sdd-delta", 1)] == ran[:3]


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "opencode"])
def test_a_refusal_in_unknown_words_costs_no_attempt(
    name: str, tools: Path, tmp_path: Path, told: Told
) -> None:
    """It is waited for, twice as long and longer each time; once the provider answers, the story goes on."""
    told(name, "a 403 in unknown words: no attempt spent, ever longer pauses")
    agent = AGENTS[name]
    with driven(agent, tools, tmp_path) as house:
        house.behave(refusing("forbidden"))
        house.start()
        pauses, account = [], ""
        for times in (1, 2):
            house.daemon.wait_for(
                house.project,
                lambda track: (
                    [True] * times == [bool(run["exit"]) for run in house.daemon.runs(house.project)]  # noqa: B023
                    and "refusing provider, until" in (track["waits_for"] or "")
                ),
            )
            run = house.daemon.runs(house.project)[-1]
            assert ("bdd", 1, "refused") == (run["step"], run["attempt"], run["exit"]["end"]), run
            [limit] = house.daemon.get("/v1/limits")["limits"]
            ended, again = map(datetime.fromisoformat, (run["ended_at"], limit["until"]))
            account = limit["account"]
            pauses.append((again - ended).total_seconds())
        assert 25 < pauses[0] < 90 < pauses[1]
        eventually_sync(lambda: ["warning"] == [one["kind"] for one in house.daemon.told(house.project)])

        house.behave(acting(agent, house.project, Rehearsed(house.project)))
        assert "lifted" == house.daemon.post("/v1/limits/lift", {"account": account})["type"]
        house.reaches("review", "needs_human")
        assert [1] * 5 == [run["attempt"] for run in house.daemon.runs(house.project)]
