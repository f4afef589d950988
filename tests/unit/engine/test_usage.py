"""Sums of usage: nothing is counted twice, and what is not known is not taken for nothing."""

from __future__ import annotations

import pytest

from handoffd.engine.run import TOKEN_KINDS, Footprint, Usage, footprint_in_words, size_in_words
from handoffd.engine.wording import counted, usage_in_words


def test_a_sum_adds_every_count() -> None:
    """Each kind of token by itself."""
    one = Usage(input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_write_tokens=4)
    two = Usage(input_tokens=10, output_tokens=20, cache_read_tokens=30, cache_write_tokens=40)
    expected = Usage(input_tokens=11, output_tokens=22, cache_read_tokens=33, cache_write_tokens=44)
    assert expected == one + two
    assert expected.tokens == 110


def test_an_unknown_cost_is_not_a_cost_of_nothing() -> None:
    """A sum tells what is known; of nothing known it tells nothing."""
    known = Usage(cost_usd=0.25, priced="provider")
    assert (Usage() + Usage()).cost_usd is None
    assert (known + Usage()).cost_usd == 0.25
    assert (Usage() + known).priced == "provider"


def test_a_sum_says_that_its_costs_come_from_several_places() -> None:
    """A reckoned cost is less sure than a reported one."""
    both = Usage(cost_usd=0.25, priced="provider") + Usage(cost_usd=0.5, priced="table")
    assert (both.cost_usd, both.priced) == (0.75, "mixed")


def test_what_came_to_a_sum_is_found_again() -> None:
    """Of each kind, and of a cost that was not known before."""
    before = Usage(input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_write_tokens=4)
    more = Usage(
        input_tokens=10, output_tokens=20, cache_read_tokens=30, cache_write_tokens=40,
        cost_usd=0.25, priced="table",
    )  # fmt: skip
    assert more == (before + more) - before
    assert more == (more + more) - more
    assert Usage() == before - before


@pytest.mark.parametrize(
    ("tokens", "cost", "words"),
    [
        (None, None, ""),
        (0, None, ""),
        (1, None, "1 token"),
        (999, 0.0, "999 tokens, $0.00"),
        (12_449, 0.214, "12.4k tokens, $0.21"),
        (999_949, None, "999.9k tokens"),
        (999_950, None, "1.0M tokens"),
        (None, 3.0, "$3.00"),
    ],
)
def test_usage_is_told_in_few_characters(tokens: int | None, cost: float | None, words: str) -> None:
    """As far as it is known."""
    assert words == usage_in_words(tokens, cost)


def test_all_kinds_of_tokens_are_named() -> None:
    """Whoever reads stored usage adds these up."""
    usage = Usage(input_tokens=1, output_tokens=2, cache_read_tokens=4, cache_write_tokens=8)
    assert usage.tokens == sum(getattr(usage, kind) for kind in TOKEN_KINDS)


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 MiB"), (812 << 20, "812 MiB"), (1536 << 20, "1.5 GiB"), (64 << 30, "64 GiB")]
)
def test_a_size_is_told_in_few_characters(count: int, words: str) -> None:
    """As people write it."""
    assert words == size_in_words(count)


@pytest.mark.parametrize(
    ("count", "nouns", "words"),
    [
        (0, ("project",), "0 projects"),
        (1, ("project",), "1 project"),
        (1_200_000, ("token",), "1200000 tokens"),
        (1.0, ("day",), "1 day"),
        (0.5, ("day",), "0.5 days"),
        (1, ("story waits", "stories wait"), "1 story waits"),
        (2, ("story waits", "stories wait"), "2 stories wait"),
    ],
)
def test_what_is_counted_is_told_in_its_number(count: float, nouns: tuple[str, ...], words: str) -> None:
    """With what agrees with it."""
    assert words == counted(count, *nouns)


def test_what_a_run_took_is_told_as_far_as_it_is_known() -> None:
    """A kernel may count the one and not the other."""
    assert "812 MiB, 41 tasks" == footprint_in_words(812 << 20, 41)
    assert "1 task" == footprint_in_words(None, 1)
    assert "" == footprint_in_words(None, None)


def test_limits_that_were_not_met_are_no_news() -> None:
    """The setting is named without its value where that is not known."""
    assert "" == Footprint(memory_max=1, tasks_max=2).limits_met
    told = "the kernel ended a process of it at its memory limit (execute.memory_max)"
    assert told == Footprint(memory_kills=1).limits_met
