"""What has happened in a flow, event by event."""

from __future__ import annotations

import json

from tests.support.commands import Commands
from tests.support.controlled import Controlled
from tests.support.flow_screens import ID, PLAYED, ROOT, records

from handoffd.cli.flows.messages import told
from handoffd.engine.flow.events import Answered, FlowEvent, TaskEnded

END = (
    TaskEnded(node="links", visit=1, status="pass"),
    Answered(node="publish", visit=2, choice="go", by="mei"),
)


def keep(control: Controlled, *events: FlowEvent) -> None:
    """Have a flow happen."""
    for one in records(*events):
        control.run(control.journal.commit_flow, one)


def test_events_are_told_in_words_with_reasons_and_what_follows(
    control: Controlled, handoffd: Commands
) -> None:
    """Oldest first."""
    keep(control)
    said = handoffd("flow", "messages", ID)

    assert 0 == said.code
    assert said.lines[0].endswith("the flow was started with topic = 'shops', by mei")
    assert "    publish: again, said mei: Name the authors.; draft: opened again" in said.lines
    assert "    an agent (writer) works on draft, visit 2" in said.lines


def test_json_is_one_event_a_line_and_following_ends_with_the_flow(
    control: Controlled, handoffd: Commands
) -> None:
    """Nothing comes after that."""
    keep(control, *PLAYED, *END)
    said = handoffd("flow", "messages", ID, "--json", "--follow")

    events = [json.loads(line) for line in said.lines]
    assert ["flow_started", "answered"] == [events[0]["kind"], events[-1]["kind"]]
    assert len(PLAYED) + len(END) == len(events)


def test_an_event_of_a_task_names_its_step_and_opening() -> None:
    """A gap has a line, too."""
    event = {
        "type": "event", "track": f"flow:{ID}.3", "at": "2026-01-31T22:15:00Z", "seq": 7, "what": "it began",
        "next": "nothing", "why": "", "before": None, "after": {"step": "draft", "status": "pending"},
        "project": ROOT,
    }  # fmt: skip
    (line,) = told(event)
    assert line.endswith("7  draft (3): it began")
    assert ["-- events are missing: older ones are not kept --"] == told(
        {"type": "gap", "why": "older ones are not kept"}
    )
