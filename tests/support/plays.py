"""One small story, played through the real engine: where the examples in the docs come from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from handoffd.engine.decide import decide
from handoffd.engine.decision import Result
from handoffd.engine.events import (
    Advanced,
    Approved,
    DeadlinePassed,
    Event,
    ExecutorExited,
    ExecutorStarted,
    Initialised,
    Paused,
    Resumed,
    Retried,
    Started,
)
from handoffd.engine.run import Exit
from handoffd.engine.track import Track
from handoffd.inspection.own_files import shipped_layers
from handoffd.protocol.handoff import Absent, Found, Handoff, Reading
from handoffd.protocol.rulebook import build_rulebook
from handoffd.protocol.rules import RuleBook
from handoffd.protocol.state import Status

BEGIN = datetime(2026, 1, 31, 22, 15, 9, tzinfo=UTC)


@dataclass
class Play:
    """A track and its clock; each event takes a minute."""

    rules: RuleBook = field(default_factory=lambda: build_rulebook(shipped_layers(None)))
    track: Track = field(default_factory=Track)
    now: datetime = BEGIN
    dispatches: int = 0

    def give(self, event: Event) -> Result:
        """Decide on an event and return what the engine says."""
        decision = decide(self.track, event, self.rules, self.now)
        self.track = decision.track
        self.now += timedelta(minutes=1)
        return decision.result

    def turn(self) -> Result:
        """Let the track take its turn."""
        self.dispatches += 1
        return self.give(
            Advanced(dispatch=f"{self.now:%Y%m%dT%H%M%S}-4f9a1c{self.dispatches:02}", executor="claude")
        )

    def start(self) -> str:
        """Let the executor of the dispatch in flight run, and return the dispatch's id."""
        dispatch = self.track.ledger.dispatch
        assert dispatch is not None
        self.give(ExecutorStarted(dispatch=dispatch.id, pid=4711))
        return dispatch.id

    def finish(self, reading: Reading, exit_: Exit | None = None) -> Result:
        """Let the executor of the dispatch in flight run and end."""
        return self.give(ExecutorExited(dispatch=self.start(), exit=exit_ or Exit(code=0), reading=reading))

    def to_the_end(self) -> Result:
        """Pass every step from here on; no step's claim is checked."""
        bare = {name: rule.model_copy(update={"tests": None}) for name, rule in self.rules.steps.items()}
        self.rules = self.rules.model_copy(update={"steps": bare})
        result = self.turn()
        while result.type == "dispatched":
            self.finish(_PASS)
            result = self.turn()
        return result


_PASS = Found(handoff=Handoff(status=Status.PASS), source="front-matter")


def examples() -> Iterator[Result]:
    """Yield one result of each type, in the order in which a story meets them."""
    play = Play()
    play.give(Initialised(project="shop"))
    yield play.give(Started(story="US-001"))
    yield play.turn()
    yield play.turn()
    run = play.start()
    play.give(DeadlinePassed(dispatch=run, elapsed_min=5.2))
    late = Exit(signal=9, by="deadline", seconds=312.0)
    yield play.give(ExecutorExited(dispatch=run, exit=late, reading=Absent()))
    play.give(Retried())
    play.give(Paused(by="pat"))
    yield play.turn()
    play.give(Resumed())
    yield play.give(Approved())
    yield play.to_the_end()
    play.give(Approved(note="Mind the rounding."))
    yield play.to_the_end()
