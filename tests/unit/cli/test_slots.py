"""`handoffd slots`."""

from __future__ import annotations

from typing import Any

from tests.support.commands import Commands
from tests.support.controlled import Controlled

from handoffd.engine.views import SlotLimitView, SlotsView, SlotWaitView


def wait(place: int = 1, **more: Any) -> SlotWaitView:
    """Return somebody who waits."""
    values: dict[str, Any] = {
        "project": "/srv/blog", "track": "main", "what": "blog US-2 bdd", "executor": "claude",
        "account": "claude", "group": None, "priority": 0, "place": place, "waited_s": 42.0,
        "why": "1st for a claude slot (2 of 2 in use: shop US-1 impl, \x1b[31m)",
    }  # fmt: skip
    return SlotWaitView(**values | more)


LIMITS = (
    SlotLimitView(kind="all", name="", limit=4, in_use=2, waiting=1, holders=("shop US-1 impl", "b")),
    SlotLimitView(kind="account", name="work", limit=None, in_use=0, waiting=0, holders=()),
)


def cells(line: str) -> list[str]:
    """Return the columns of a line."""
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_limits_and_who_waits(control: Controlled, handoffd: Commands) -> None:
    """A line for each; an agent's words do not drive the terminal."""
    control.supervision.line = SlotsView(
        closed="memory: 1 MiB free, 512 wanted",
        limits=LIMITS,
        waiting=(wait(), wait(2, waited_s=7200.0), wait(3, waited_s=120.0)),
        waiting_in_all=3,
    )
    lines = [cells(line) for line in handoffd("slots").lines]
    why = "1st for a claude slot (2 of 2 in use: shop US-1 impl, \\x1b[…"
    assert [
        ["SLOTS", "LIMIT", "IN USE", "WAITING", "RUNNING"],
        ["all", "4", "2", "1", "shop US-1 impl, b"],
        ["account work", "–", "0", "0", "–"],
        [],
        ["the daemon starts nothing for now: memory: 1 MiB free, 512 wanted"],
        [],
        ["NEXT", "TRACK", "PRIORITY", "SINCE", "WHY"],
        ["1", "blog US-2 bdd", "0", "42 s", why],
        ["2", "blog US-2 bdd", "0", "2 h", why],
        ["3", "blog US-2 bdd", "0", "2 min", why],
    ] == lines


def test_of_many_that_wait_the_first_are_shown(control: Controlled, handoffd: Commands) -> None:
    """And how many there are; JSON has more of them."""
    waiting = tuple(wait(number) for number in range(1, 31))
    control.supervision.line = SlotsView(closed=None, limits=LIMITS, waiting=waiting, waiting_in_all=1030)
    lines = handoffd("slots").lines
    assert "and 1,010 more; for one of them: handoffd status PROJECT" == lines[-1]
    assert "20" == cells(lines[-2])[0]
    answer = handoffd("slots", "--json").json
    assert (True, 30, "blog US-2 bdd") == (
        answer["daemon"],
        len(answer["waiting"]),
        answer["waiting"][0]["what"],
    )


def test_without_a_daemon_nobody_runs_or_waits(handoffd: Commands) -> None:
    """The limits are told all the same."""
    said = handoffd("slots")
    assert ["all", "4", "0", "0", "–"] == cells(said.lines[1])
    assert "No daemon runs" in said.lines[-1]
