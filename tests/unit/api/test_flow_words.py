"""Events of flows in words: every kind of event and of order has its sentence."""

from __future__ import annotations

from typing import get_args

from tests.support.flow_screens import DRAFT, PLAYED, records

from handoffd.api.flow_words import FLOW_FACTS, FLOW_ORDERS, flow_follows
from handoffd.engine.flow.events import (
    CommandEnded,
    FlowEvent,
    ItemsRead,
    LimitsRaised,
    Order,
    TaskEnded,
)
from handoffd.engine.flow.flow import Item
from handoffd.engine.track import kind_of
from handoffd.protocol.state import plain


def _told(event: FlowEvent) -> str:
    return FLOW_FACTS[event.kind](plain(event))


def test_every_kind_has_its_words() -> None:
    """A new event, or order, would have its bare name only."""
    assert {kind_of(one) for one in get_args(FlowEvent)} == FLOW_FACTS.keys()
    assert {kind_of(one) for one in get_args(Order)} == FLOW_ORDERS.keys()


def test_a_start_an_end_and_an_answer_say_what_they_bring() -> None:
    """Parameters, files, words."""
    assert "the flow was started with topic = 'shops'" == _told(PLAYED[0])
    assert "draft ended: pass as ready: Written.; it handed over draft.md" == _told(PLAYED[1])
    assert "publish was answered: again, with the words 'Name the authors.'" == _told(PLAYED[2])
    asks = TaskEnded(node="a", visit=2, status="needs_human", question="Which zone?", artifacts=(DRAFT,))
    assert "a, at visit 2, ended: needs_human; it handed over draft.md; it asks: Which zone?" == _told(asks)


def test_other_facts_are_told_with_their_numbers() -> None:
    """Codes, items, limits."""
    assert "the command of a ended with code 3: red" == _told(
        CommandEnded(node="a", visit=1, exit=3, summary="red")
    )
    assert "a has 2 items: x, y" == _told(ItemsRead(node="a", visit=1, items=(Item(id="x"), Item(id="y"))))
    assert "limits.starts is 9, limits.usd is 2.5" == _told(LimitsRaised(starts=9, usd=2.5))


def test_what_follows_is_what_was_ordered() -> None:
    """Who is started, and what a person is asked."""
    first, second, *_ = records()
    orders = [tuple(plain(order) for order in one.orders) for one in (first, second)]

    assert "an agent (writer) works on draft, an agent (checker) works on links" == flow_follows(orders[0])
    assert "the files of draft are laid out, a person is asked about publish: go, again, keep until " in (
        flow_follows(orders[1])
    )
    assert "nothing" == flow_follows(())
