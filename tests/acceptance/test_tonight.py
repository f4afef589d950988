"""The plan of a night by a real daemon, held against its journal.

The checker reads the database with SQL and counts for itself: it shares no code with the planner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import median

import pytest
from tests.support.agents import project_at, shell_agent
from tests.support.commands import typed
from tests.support.daemon import Daemon, Json, running, sample
from tests.support.house import HAND_OVER

PAID = f"""\
cat > /dev/null
{HAND_OVER}printf '{{"type": "result", "is_error": false, "result": "done", "total_cost_usd": 0.5,\
 "usage": {{"input_tokens": 300, "output_tokens": 200}}}}\\n'
"""
"""Costs half a dollar a run, and 500 tokens, and reports both as claude does."""

RULES = "steps: {bdd: {next_on_pass: contract}, contract: {next_on_pass: done}}\n"
SLOW = "cat > /dev/null\nsleep 600\n"
PAST = ("US-001", "US-002", "US-003")


class Evening:
    """Two projects with a past, stories that wait, and a daemon of which a budget is nearly used up."""

    def __init__(self, daemon: Daemon, shop: Path, gated: Path) -> None:
        self.daemon = daemon
        self.shop = str(shop)
        self.gated = str(gated)

    def tonight(self, *words: str) -> Json:
        """Return the plan as a program gets it."""
        said = typed(self.daemon, "tonight", "--json", *words)
        assert 0 == said.code, said.err
        found: Json = said.json
        return found


def is_done(story: str, track: Json) -> bool:
    """Return whether a story is done."""
    return (track["story"], track["step"]) == (story, "done")


@pytest.fixture(scope="module")
def evening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evening]:
    """Have two projects do stories, and others wait: three for a command, one at a review."""
    base = tmp_path_factory.mktemp("evening")
    shop = project_at(base / "shop", RULES, "executor: paid\n")
    gated = sample(base / "gated")
    settings: Json = {
        "executor": "rehearsal-stream",
        "executors": {"paid": shell_agent(base, PAID, extends="claude")},
        "execute": {"slots": 2},
        "caps": {"daemon_usd": 4.8},
    }
    with running(base, settings) as daemon:
        daemon.begin(gated)
        for number, story in enumerate(PAST):
            daemon.begin(shop, story) if not number else typed(daemon, "start", str(shop), story)
            daemon.wait_for(shop, partial(is_done, story))
        daemon.wait_at(gated, "review", "needs_human")
        typed(daemon, "pause", str(shop))
        for story in ("US-011", "US-012", "US-013"):
            typed(daemon, "start", str(shop), story, "--queue")
        typed(daemon, "start", str(gated), "US-007", "--queue")
        yield Evening(daemon, shop, gated)


def test_a_paused_project_does_nothing_and_says_what_to_type(evening: Evening) -> None:
    """Each story that waits is in the plan, in the order of the backlog."""
    night = evening.tonight(evening.shop)
    (body,) = evening.daemon.rows(
        "SELECT body FROM tracks WHERE project = ? AND track = 'main'", evening.shop
    )[0]
    order = [name for name in ("US-011", "US-012", "US-013") if name in body]
    assert order == [one["story"] for one in night["stories"] if one["story"] not in PAST]
    assert 0 == night["expected"]["steps"]
    (stop,) = [one for one in night["stops"] if one["kind"] == "paused"]
    assert f"handoffd resume {stop['name']}" == stop["command"]


def test_a_story_at_a_review_stops_before_its_first_line_of_code(evening: Evening) -> None:
    """As the step table has it; the next one waits for that and for a command."""
    night = evening.tonight(evening.gated)
    steps = [
        step
        for (step,) in evening.daemon.rows("SELECT step FROM dispatches WHERE project = ?", evening.gated)
    ]
    assert not {"scaffold", "impl", "verify"} & set(steps)
    assert (False, 1, 2) == (night["gated"], night["before_code"], night["ahead"])
    kinds = {one["kind"]: one for one in night["stops"]}
    assert {"gate", "auto_continue"} == kinds.keys()
    assert (True, "review") == (kinds["gate"]["before_code"], kinds["gate"]["step"])
    assert kinds["gate"]["command"].startswith("handoffd gate ")
    assert kinds["auto_continue"]["command"].endswith(" on")


def test_the_numbers_are_the_medians_of_the_past(evening: Evening) -> None:
    """Until a cap on all projects stops it, said with the story that it stops."""
    rows = evening.daemon.rows(
        """SELECT step, story, ended_at, started_at, cost_usd, input_tokens + output_tokens
        + cache_read_tokens + cache_write_tokens FROM dispatches WHERE project = ? ORDER BY seq""",
        evening.shop,
    )
    took: defaultdict[str, list[tuple[float, float, int]]] = defaultdict(list)
    for step, _, ended, started, usd, tokens in rows:
        seconds = (datetime.fromisoformat(ended) - datetime.fromisoformat(started)).total_seconds()
        took[step].append((seconds, usd, tokens))
    assert {"bdd": 3, "contract": 3} == {step: len(found) for step, found in took.items()}
    typed(evening.daemon, "backlog", "auto", evening.shop, "on")
    spent = evening.daemon.rows("SELECT sum(cost_usd) FROM dispatches")[0][0]
    assert 3.0 == spent

    # A pause ends only for the plan: a resumed project would spend before it is asked.
    paused = evening.tonight(evening.shop)
    assert [("daemon", 3.0, 4.8)] == [(one["scope"], one["spent"], one["cap"]) for one in paused["caps"]]
    evening.daemon.configure(
        {
            "executor": "rehearsal-stream", "execute": {"slots": 2}, "caps": {"daemon_usd": 4.8},
            "executors": {"paid": shell_agent(evening.daemon.base, SLOW, extends="claude")},
        }
    )  # fmt: skip
    assert 0 == typed(evening.daemon, "reload").code
    assert 0 == typed(evening.daemon, "resume", evening.shop).code
    evening.daemon.wait_at(Path(evening.shop), "bdd", "running")

    night = evening.tonight(evening.shop)
    told = {one["story"]: one for one in night["stories"]}
    for step in (step for story in told.values() for step in story["steps"]):
        seconds, usd, tokens = (median(numbers) for numbers in zip(*took[step["step"]], strict=True))
        length = datetime.fromisoformat(step["ends_at"]) - datetime.fromisoformat(step["starts_at"])
        assert (usd, tokens, "past") == (step["cost_usd"], step["tokens"], step["basis"])
        assert length.total_seconds() == pytest.approx(max(seconds, 1.0), abs=10)
    steps = sum(len(one["steps"]) for one in told.values())
    assert (4, 2.0, 2000) == (steps, night["expected"]["cost_usd"], night["expected"]["tokens"])
    (cap,) = night["caps"]
    assert (5.0, "US-013") == (cap["expected"], cap["stops"].split()[-1])
    assert ["done", "done", "stops"] == [told[story]["outcome"] for story in ("US-011", "US-012", "US-013")]
    fits_one_screen(evening)


def fits_one_screen(evening: Evening) -> None:
    """Assert what a person reads: 80 columns, but for commands; the report of the morning has it in short."""
    said = typed(evening.daemon, "tonight")
    assert 0 == said.code, said.err
    lines = said.out.splitlines()
    assert [] == [line for line in lines if len(line) > 80 and not line.startswith("      handoffd ")]
    assert {"What stops it", "Stories", "Expected", "Budgets (1)"} <= {
        line.partition(" (")[0] if line.startswith(("Stories", "What")) else line for line in lines
    }
    assert "The coming night" in typed(evening.daemon, "report").out.splitlines()


def test_without_a_daemon_the_plan_says_that_nothing_happens(evening: Evening) -> None:
    """It is made of the journal all the same."""
    evening.daemon.terminate()
    night = evening.tonight(evening.gated)
    assert (False, 1) == (night["daemon"], night["before_code"])
    assert "No daemon runs" in typed(evening.daemon, "tonight").out
