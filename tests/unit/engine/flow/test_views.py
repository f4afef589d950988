"""What people see of a flow: what it asks and waits for, its nodes, the ways back that were taken."""

from __future__ import annotations

from msgspec.structs import replace
from tests.support.flow_screens import ID, PLAYED, stored

from handoffd.engine.flow.events import Answered, CapReached, FlowPaused, Revised, TaskEnded
from handoffd.engine.flow.views import (
    answering,
    feedback_of,
    next_command,
    nodes_of,
    questions_of,
    state_of,
    waits_in_words,
    ways_back,
)


def test_a_question_has_a_command_for_each_choice() -> None:
    """And the choice that is taken without an answer, and the visit that asks."""
    one = stored()
    (asked,) = questions_of(one.flow, one.plan, "en")

    assert ("publish", 2, "Publish the draft?", "keep") == (
        asked.node, asked.visit, asked.text, asked.default
    )  # fmt: skip
    assert [f"handoffd flow answer {ID} publish {word}" for word in ("go", "again", "keep")] == [
        choice.command for choice in asked.choices
    ]
    assert asked.deadline is not None
    assert "handoffd flow answer 'a b' stop" == answering("a b", "", "stop")


def test_a_limit_is_asked_about_before_all_else() -> None:
    """Of the whole flow: its question has no node."""
    one = stored(*PLAYED, CapReached(what="usd", words="it has cost $5.01"))
    first, second = questions_of(one.flow, one.plan, "en")

    assert ("", "it has cost $5.01", True) == (first.node, first.why, first.hold)
    assert "publish" == second.node
    assert "your decision: it has cost $5.01; your answer: publish; work on links" == waits_in_words(one.flow)


def test_the_state_is_one_word_and_says_what_to_type() -> None:
    """Nothing while agents are at work, and after the end."""
    working = stored(PLAYED[0])
    waiting, paused = stored(), stored(*PLAYED, FlowPaused(by="mei"))
    over = stored(*PLAYED, TaskEnded(node="links", visit=1, status="pass"), _said("go"))

    assert [("working", None), ("waiting", f"handoffd flow show {ID}")] == [
        (state_of(one.flow), next_command(one.flow)) for one in (working, waiting)
    ]
    assert ("paused", f"handoffd flow resume {ID}") == (state_of(paused.flow), next_command(paused.flow))
    assert ("ended", None, None) == (state_of(over.flow), next_command(over.flow), waits_in_words(over.flow))
    assert () == questions_of(over.flow, over.plan, "en")


def _said(choice: str) -> Answered:
    return Answered(node="publish", visit=2, choice=choice, by="mei")


def test_what_works_waits_in_its_own_words() -> None:
    """A usage limit, a slot."""
    flow = stored(PLAYED[0]).flow
    links = replace(flow.nodes["links"], waits="a slot")

    told = waits_in_words(replace(flow, nodes={**flow.nodes, "links": links}))
    assert "links: a slot; work on draft" == told


def test_nodes_are_in_the_order_of_the_plan_with_the_files_of_what_was_accepted() -> None:
    """Below the root of the project."""
    one = stored()
    draft, links, publish = nodes_of(one.flow, one.plan)

    assert ("draft", "accepted", 2, "ready") == (draft.node, draft.state, draft.visit, draft.outcome)
    assert (f".ai/flows/{ID}/board/draft/2/draft.md",) == draft.files
    assert ["agent", "question"] == [links.kind, publish.kind]


def test_a_way_back_is_counted_and_feedback_waits_until_it_is_told() -> None:
    """One that was never taken is not listed."""
    one = stored()
    (way,) = ways_back(one.flow, one.plan)
    assert ("publish", "again", "draft", 1, 2) == (way.node, way.outcome, way.to, way.used, way.at_most)

    early = stored(PLAYED[0], Revised(node="draft", text="Shorter", by="mei"))
    assert () == ways_back(early.flow, early.plan)
    assert [] == [one for one in feedback_of(stored().flow) if one.text]
