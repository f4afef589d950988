"""What one decision costs: `decide` over the events of a story, in processor time.

The story goes through the shipped step table, with a failure, a rejection and a pause on its way: its events
are those that a journal holds of it. Processor time, because a decision waits for nothing: the wall clock of
a busy machine would measure the others.
"""

from __future__ import annotations

import time
from datetime import datetime

from tests.benchmarks.measures import Summary, summary
from tests.benchmarks.rows import Row
from tests.support.playbook import Playbook, green, red

from handoffd.engine.decide import decide
from handoffd.engine.events import Approved, Event, Initialised, Noted, Paused, Rejected, Resumed
from handoffd.engine.track import Track
from handoffd.protocol.state import Reason

GOAL_US = 100.0


class _Recorder(Playbook):
    """Keeps what was decided on."""

    def __init__(self) -> None:
        super().__init__()
        self.decided: list[tuple[Track, Event, datetime]] = []

    def given(self, event: Event, *, after_min: float = 0) -> Playbook:
        """Decide, and keep what that was with."""
        before = self.track
        super().given(event, after_min=after_min)
        self.decided.append((before, event, self.now))
        return self


def _story() -> _Recorder:
    play = _Recorder()
    play.given(Initialised(project="shop")).started()
    for _ in ("bdd", "sdd-delta", "contract"):
        play.turn().step_passes(files_changed=("docs/bdd/US-1.md", "docs/sdd.md"))
    play.turn().given(Noted(text="Mind the prices.", by="me"))
    play.given(Rejected(reason=Reason.NEEDS_CLARIFICATION, note="Which currency?", by="me"))
    for _ in ("bdd", "sdd-delta", "contract"):
        play.turn().step_passes()
    play.turn().given(Approved(note="Go on.", by="me"))
    play.turn().step_passes(tests=red("tests/test_shop.py::test_price"))
    play.turn().given(Paused(by="me")).given(Resumed(by="me")).hands_over().checked(tests=red("t.py::old"))
    play.turn().step_passes(tests=green(12))
    play.turn().step_passes(tests=green(12))
    play.turn().step_passes().turn()
    return play


def measure(rounds: int) -> dict[str, Summary]:
    """Return how long a decision takes, by the kind of its event and of `all` of them, in milliseconds."""
    play = _story()
    times: dict[str, list[float]] = {"all": []}
    for _ in range(rounds):
        for track, event, now in play.decided:
            began = time.thread_time_ns()
            decide(track, event, play.rules, now)
            spent = (time.thread_time_ns() - began) / 1e9
            times.setdefault(event.kind, []).append(spent)
            times["all"].append(spent)
    return {kind: summary(spent) for kind, spent in times.items()}


def rows(rounds: int = 300) -> list[Row]:
    """Return what a decision costs."""
    found = measure(rounds)
    of_all = found.pop("all")
    dearest = max(found, key=lambda kind: found[kind].p50)
    return [
        Row(what="one decision, p50", value=of_all.p50 * 1000, unit="us", at_most=GOAL_US),
        Row(what="one decision, p99", value=of_all.p99 * 1000, unit="us"),
        Row(what=f"the dearest kind ({dearest}), p50", value=found[dearest].p50 * 1000, unit="us",
            at_most=GOAL_US),
    ]  # fmt: skip
