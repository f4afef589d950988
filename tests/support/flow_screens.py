"""A flow that asks a person, for tests of what people see of one, and for the manual."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

from handoffd.api.flows import FlowAnswer, in_full, in_short
from handoffd.cli.flows.telling import shown
from handoffd.engine.flow.decide import decide_flow
from handoffd.engine.flow.events import Answered, FlowEvent, FlowStarted, TaskEnded
from handoffd.engine.flow.flow import Flow, Produced
from handoffd.engine.flow.views import WorkView
from handoffd.journal.records import FlowRecord, FlowUsage, StoredFlow
from handoffd.protocol.pipelines.loading import load_plan
from handoffd.protocol.state import plain

T0 = datetime.fromisoformat("2026-01-31T22:15:00+00:00")
ROOT, ID = "/srv/shop", "release-notes-7k2q"
PIPELINE = """\
language: 1
pipeline: release-notes
params: {topic: {type: string}}
roles: {writer: {}, checker: {}}
limits: {usd: 5}
tasks:
  draft:
    agent: writer
    out: {draft: draft.md}
    outcomes: {ready: ok}
  links:
    agent: checker
    isolation: read
    outcomes: {pass: ok}
  publish:
    needs: [draft]
    ask: Publish the draft?
    timeout: 12h
    default: keep
    outcomes: {go: ok, again: {back_to: draft, at_most: 2}, keep: {end: cancelled}}
"""
DRAFT = Produced(name="draft", sha256="d" * 64, bytes=900, path="draft.md")


def written(visit: int) -> TaskEnded:
    """Return that the draft is there."""
    return TaskEnded(
        node="draft", visit=visit, status="pass", outcome="ready", artifacts=(DRAFT,), summary="Written."
    )


PLAYED: tuple[FlowEvent, ...] = (
    FlowStarted(params={"topic": "shops"}, by="mei"),
    written(1),
    Answered(node="publish", visit=1, choice="again", text="Name the authors.", by="mei"),
    written(2),
)


def records(*events: FlowEvent, name: str = ID) -> list[FlowRecord]:
    """Return what the journal keeps of these events, one a minute."""
    plan = load_plan(PIPELINE, "release-notes.yaml").plan
    flow, found = Flow(id=name), []
    for number, event in enumerate(events or PLAYED):
        at = T0 + timedelta(minutes=number)
        decision = decide_flow(flow, event, plan, at)
        assert decision.refused is None, decision.refused
        record = FlowRecord(
            project=ROOT, id=name, at=at, event=event, before=flow, after=decision.flow,
            orders=decision.orders, reasons=decision.reasons, past=decision.past, story="GH-7",
            why="; ".join(f"{one.node}: {one.text}" for one in decision.reasons),
            plan=plan if number == 0 else None,
        )  # fmt: skip
        found.append(record)
        flow = decision.flow
    return found


def stored(*events: FlowEvent, name: str = ID) -> StoredFlow:
    """Return a flow after these events."""
    first, *others = records(*events, name=name)
    last = others[-1] if others else first
    assert first.plan is not None
    return StoredFlow(
        key=last.key, flow=last.after, plan=first.plan, seq=9, at=last.at, story="GH-7", started_at=T0
    )


def answer(*events: FlowEvent) -> FlowAnswer:
    """Return all about it: an agent still looks at the links."""
    one, used = stored(*events), FlowUsage(cost_usd=0.42, tokens=18_400, worked_s=180.0)
    busy = {one.flow.nodes[name].number for name in one.flow.busy}
    run = WorkView(
        run="20260131T221500-0a1b2c3d", attempt=1, attempts=1, executor="claude", phase="executing"
    )
    short = in_short(one, (0.42, 18_400), {ROOT: "shop"}, "en")
    return in_full(one, short, used, dict.fromkeys(busy, run), daemon=True, at=T0 + timedelta(minutes=9))


def answer_json(*events: FlowEvent) -> dict[str, Any]:
    """Return the same as programs get it."""
    found: dict[str, Any] = plain(answer(*events))
    return found


def flow_screen() -> str:
    """Return what `handoffd flow show` prints of it, by the clock of UTC."""
    with patch.dict(os.environ, {"TZ": "UTC"}):
        time.tzset()
        lines = shown(answer_json())
    time.tzset()
    text = "\n".join(line.rstrip() for line in lines)
    return f"```\n{text}\n```"
