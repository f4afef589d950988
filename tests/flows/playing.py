"""One flow, played to its end with every kind of event, also late and twice, under a watcher."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random

from msgspec import json
from msgspec.structs import replace
from tests.flows.watcher import Violated, Watcher

from handoffd.engine.flow.decide import decide_flow
from handoffd.engine.flow.events import (
    AskTimedOut,
    CapReached,
    ClaimsChanged,
    FlowAborted,
    FlowEvent,
    FlowPaused,
    FlowResumed,
    LimitsRaised,
    Revised,
    TaskWaits,
    TaskWentOn,
)
from handoffd.engine.flow.flow import Flow
from handoffd.forecast.flows import EPOCH, Oracle, World
from handoffd.protocol.plan import Plan

MOST = 20_000
PERSONS = 25
"""How many times the person interferes, at most, so that every flow comes to its end."""


class Ended:
    """How a watched flow went."""

    def __init__(self, flow: Flow, events: int, revised: bool) -> None:
        self.flow = flow
        self.events = events
        self.revised = revised


def watched(plan: Plan, chance: Random, oracle: Oracle = "chance", *, hostile: bool = True) -> Ended:
    """Play a flow to its end. Raises Violated, with the last events."""
    game = _Game(plan, chance, oracle, hostile)
    try:
        return game.play()
    except Violated as violated:
        raise Violated(f"{violated}\nafter: {game.last(12)}") from None


class _Game:
    def __init__(self, plan: Plan, chance: Random, oracle: Oracle, hostile: bool) -> None:
        self._plan, self._chance, self._hostile = plan, chance, hostile
        self._world = World(plan, chance, oracle)
        self._watcher = Watcher(plan)
        self._flow = Flow(id="watched")
        self._events: list[FlowEvent] = []
        self._persons = 0
        self._revised = False

    def last(self, count: int) -> str:
        """Return the last events in words."""
        return " · ".join(str(json.encode(event).decode()) for event in self._events[-count:])

    def play(self) -> Ended:
        """Return the flow at its end."""
        self._give(self._world.started())
        while self._flow.ended is None:
            if len(self._events) > MOST:
                raise Violated(f"it does not end in {MOST} events")
            if self._hostile:
                self._interfere()
            event = self._following()
            if event is not None:
                self._give(event)
        if self._hostile and self._events:
            self._give(self._chance.choice(self._events))  # what comes after the end changes nothing
        return Ended(self._flow, len(self._events), self._revised)

    def _following(self) -> FlowEvent | None:
        if self._flow.ended is not None:
            return None
        event = self._world.answer(self._flow, self._plan, self._now())
        if event is not None:
            return event
        if self._flow.paused_by is not None:
            return FlowResumed(by="anna")
        if self._flow.taken:
            return ClaimsChanged(taken=())
        raise Violated("it does not go on")

    def _now(self) -> datetime:
        return EPOCH + timedelta(seconds=len(self._events))

    def _give(self, event: FlowEvent) -> None:
        before = self._flow
        decision = decide_flow(before, event, self._plan, self._now())
        again = decide_flow(before, event, self._plan, self._now())
        if decision != again:
            raise Violated("the same event was decided in two ways")
        self._events.append(event)
        self._watcher.see(event, before, decision)
        self._flow = decision.flow
        if len(self._events) % 16 == 0:
            self._flow = json.decode(json.encode(self._flow), type=Flow)
            if self._flow != decision.flow:
                raise Violated("the flow does not come back from its text")
        if (
            self._hostile
            and decision.refused is None
            and event.kind.endswith(("_ended", "answered", "_read"))
        ):
            self._twice(event)

    def _twice(self, event: FlowEvent) -> None:
        decision = decide_flow(self._flow, event, self._plan, self._now())
        if decision.refused is None or decision.flow != self._flow:
            raise Violated(f"{event.kind} was applied twice")

    def _interfere(self) -> None:
        """Let a person or the world do something unexpected, now and then."""
        chance, flow = self._chance, self._flow
        if self._persons >= PERSONS or chance.random() > 0.12:
            return
        self._persons += 1
        node = flow.nodes[chance.choice(sorted(flow.nodes))] if flow.nodes else None
        event: FlowEvent
        match chance.choice(
            ("late", "pause", "claims", "waits", "went", "revise", "abort", "cap", "timeout", "raise")
        ):
            case "late" if self._events:
                event = chance.choice(self._events)
                if not hasattr(event, "visit"):
                    return
                event = replace(event, visit=event.visit + chance.choice((-1, 1)))  # type: ignore[union-attr]
            case "pause":
                event = FlowPaused(by="anna") if flow.paused_by is None else FlowResumed(by="anna")
            case "claims":
                event = ClaimsChanged(taken=chance.choice(((), ("src/a/x.py",), ("name:x", "docs/"))))
            case "waits" if node is not None:
                event = TaskWaits(node=node.id, visit=node.visit, why="a usage limit")
            case "went" if node is not None:
                event = TaskWentOn(node=node.id, visit=node.visit)
            case "revise" if node is not None:
                self._revised = True
                event = Revised(node=node.id, text="again", by="anna")
            case "abort" if chance.random() < 0.1:
                event = FlowAborted(by="anna")
            case "cap" if chance.random() < 0.1:
                event = CapReached(what="usd", words="5 USD are spent")
            case "raise":
                event = LimitsRaised(usd=100.0, parallel=6, by="anna")
            case "timeout" if node is not None:
                event = AskTimedOut(node=node.id, visit=node.visit)
            case _:
                return
        self._give(event)
