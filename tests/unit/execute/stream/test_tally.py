"""Adding up usage."""

from __future__ import annotations

import sys

from handoffd.engine.run import Usage
from handoffd.execute.stream.line import Stated
from handoffd.execute.stream.reader import OPEN_KEYS, Tally


def more(tokens: int, key: str | None = None) -> Stated:
    """Return a line that tells of more tokens."""
    return Stated(mode="add", usage=Usage(input_tokens=tokens), key=key)


def test_what_is_added_is_summed_and_a_total_replaces_it() -> None:
    """What follows a total is added to it."""
    tally = Tally()
    tally.take(more(5))
    tally.take(more(7))
    assert 12 == tally.usage.input_tokens

    tally.take(Stated(mode="total", usage=Usage(input_tokens=11, cost_usd=0.5, priced="provider")))
    tally.take(more(1))
    assert Usage(input_tokens=12, cost_usd=0.5, priced="provider") == tally.usage


def test_lines_of_one_message_are_counted_once() -> None:
    """The last one; also when messages of several agents are mixed."""
    tally = Tally()
    for stated in (more(1, "a"), more(10, "b"), more(3, "a"), more(20, "b")):
        tally.take(stated)

    assert 23 == tally.usage.input_tokens


def test_messages_without_end_take_no_memory() -> None:
    """The oldest are settled, and stay counted."""
    tally = Tally()
    for number in range(10 * OPEN_KEYS):
        tally.take(more(1, f"m-{number}"))

    assert 10 * OPEN_KEYS == tally.usage.input_tokens
    assert sys.getsizeof(tally._open) < 10_000


def test_what_earlier_runs_of_a_session_used_is_not_counted_again() -> None:
    """Where the agent's own numbers are of the whole session; never less than nothing."""
    before = Usage(input_tokens=100, output_tokens=50, cost_usd=1.0)
    tally = Tally(before)

    session = Usage(input_tokens=130, output_tokens=40, cost_usd=1.5, priced="provider")
    tally.take(Stated(mode="total", usage=session, counts="session"))
    assert Usage(input_tokens=30, cost_usd=0.5, priced="provider") == tally.usage

    tally.take(Stated(mode="total", usage=session, counts="run"))
    assert session == tally.usage
