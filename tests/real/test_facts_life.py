"""What a CLI shows while it waits for its model: a slow answer is life, pings are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.real.agents import AGENTS
from tests.real.conftest import Told
from tests.real.driving import Driven, driven
from tests.real.provider.turns import Answer, Asked, Model, Slow, Turn
from tests.support.eventually import eventually_sync

NAMES = ["claude", "codex", "gemini", "opencode"]
LIMIT_S, POLL_S = 18, 2
QUICK = {"execute": {"stall_min": LIMIT_S / 60}, "schedule": {"poll_s": POLL_S}}
WORDS = "An answer that takes time."
LONG_S = 400


def slowly(pause_s: float, ping_s: float | None = None) -> Model:
    """Return a model that takes its time over an answer, though not over a title."""

    def answer(asked: Asked) -> Answer:
        return Slow(WORDS, pause_s, ping_s) if asked.tools else Turn("A title")

    return answer


def stalled(house: Driven) -> bool:
    """Tell whether the daemon has ended the agent for its silence."""
    return any(event["kind"] == "executor_stalled" for event in house.daemon.events(house.project))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ping_s", [None, 0.5], ids=["silent", "pinged"])
def test_a_cli_without_an_answer_stands_still(
    name: str, ping_s: float | None, tools: Path, tmp_path: Path, told: Told
) -> None:
    """Also one that works at each ping, and one that tidies its database."""
    told(name, f"no answer, {'two pings a second' if ping_s else 'no pings'}: it is idle")
    with driven(AGENTS[name], tools, tmp_path, settings=QUICK) as house:
        house.behave(slowly(3600, ping_s))
        house.start()
        eventually_sync(lambda: stalled(house), within_s=LONG_S)


@pytest.mark.parametrize("name", NAMES)
def test_a_slow_answer_is_waited_for(name: str, tools: Path, tmp_path: Path, told: Told) -> None:
    """It takes longer in all than silence may last, with a word every third of that."""
    told(name, "a slow answer: it lives")
    with driven(AGENTS[name], tools, tmp_path, settings=QUICK) as house:
        house.behave(slowly(LIMIT_S / 3))
        house.start()
        eventually_sync(lambda: house.daemon.runs(house.project)[:1] and ended(house), within_s=LONG_S)
        assert not stalled(house)


def ended(house: Driven) -> bool:
    """Tell whether the first run is over."""
    return house.daemon.runs(house.project)[0]["result"] is not None
