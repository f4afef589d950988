"""Flows in words: lists, the tree of one, the reasons; each with the next command."""

from __future__ import annotations

from typing import Any

import click
from msgspec.structs import asdict, replace
from tests.support.flow_screens import ID, PLAYED, answer, answer_json

from handoffd.api.flows import FlowExplained, FlowReason
from handoffd.cli.flows.telling import explained, given, listed, shown
from handoffd.engine.flow.events import CapReached
from handoffd.protocol.state import plain


def _lines(lines: list[str]) -> list[str]:
    return [click.unstyle(line) for line in lines]


def test_a_list_has_the_questions_below_it_with_every_choice_as_a_command() -> None:
    """A tired person copies one of them."""
    lines = _lines(listed({"daemon": True, "flows": [answer_json()]}))

    assert "your answer: publish; work on links" in lines[1]
    assert f"{ID}, publish: Publish the draft?" == lines[3]
    assert f"  keep: handoffd flow answer {ID} publish keep" in lines
    assert lines[-1].endswith(", it is keep")


def test_where_no_flow_is_open_it_says_how_one_begins() -> None:
    """The next command, as everywhere."""
    assert ["No flow is open.", "  next: handoffd pipeline list"] == listed({"daemon": True, "flows": []})[:2]
    assert "There is no flow." == listed({"daemon": True, "flows": []}, every=True)[0]


def test_one_flow_has_its_tree_files_ways_back_limits_and_questions() -> None:
    """What works has the command that shows its output."""
    lines = _lines(shown(answer_json()))

    assert f"{ID} (GH-7) in shop: waiting" == lines[0]
    (links,) = [line for line in lines if line.startswith("links ")]
    assert "by claude, handoffd log --run 20260131T221500-0a1b2c3d" in links
    assert f"  board: .ai/flows/{ID}/board/draft/2/draft.md" in lines
    assert "publish again → draft: 1 of 2" in lines
    assert any(
        line.startswith("Limits: 5 of 2000 starts, 0 of 200 items, 1 of 4 at once, $0.42 of $5")
        for line in lines
    )


def test_a_limit_that_is_used_up_is_a_question_of_the_whole_flow() -> None:
    """Its answers name no task."""
    lines = _lines(shown(answer_json(*PLAYED, CapReached(what="usd", words="it has cost $5.01"))))

    at = lines.index(f"{ID}, the whole flow: It opens nothing more before you have decided.")
    assert "  why: it has cost $5.01" == lines[at + 1]
    assert any(line.endswith(f"handoffd flow answer {ID} stop") for line in lines)


def test_texts_of_a_project_cannot_steer_the_terminal() -> None:
    """Names, labels and summaries are an agent's, or a stranger's."""
    hostile = replace(answer(), label="\x1b[2J", waits_for="x\x1b[31m")

    assert "\x1b" not in "\n".join(_lines(shown(plain(hostile))))
    assert "\x1b" not in "\n".join(_lines(listed({"daemon": True, "flows": [plain(hostile)]})))


def _explanation(**changes: Any) -> dict[str, Any]:
    whole = answer()
    fields = {name: value for name, value in asdict(whole).items() if name in FlowExplained.__struct_fields__}
    reason = FlowReason(
        seq=9, at=whole.at, kind="answered", node="publish", text="again", expression="rounds < 2", value=True
    )
    told = FlowExplained(
        **{**fields, "flow": whole, "node": None, "visits": (), "reasons": (reason,), **changes}
    )
    return dict(plain(told))


def test_reasons_have_their_event_and_the_value_that_decided() -> None:
    """The last forty; the others are in the JSON."""
    lines = _lines(explained(_explanation()))
    assert any(line.endswith("9  publish: again [rounds < 2 = true]") for line in lines)

    (reason,) = _explanation()["reasons"]
    many = explained({**_explanation(), "reasons": [reason] * 50})
    assert "  (10 earlier reasons left out; --json has all)" in many


def test_a_task_is_explained_by_its_state_and_its_question() -> None:
    """And its ways back."""
    lines = _lines(explained(_explanation(node="publish")))

    assert lines[0].startswith(f"{ID}/publish: asking since ")
    assert lines[0].endswith(", visit 2")
    assert "publish again → draft: 1 of 2" in lines
    assert f"  go: handoffd flow answer {ID} publish go" in lines


def test_after_a_verb_the_next_command_is_there() -> None:
    """What it waits for, or how it has ended."""
    told = {"flow": ID, "message": "done", "waits_for": None, "ended": "cancelled", "next_command": None}
    assert ["done", "  it has ended: cancelled", f"  next: handoffd flow show {ID}"] == given(told)
    waiting = {**told, "waits_for": "your answer: publish", "ended": None}
    assert "  waits for: your answer: publish" == given(waiting)[1]
