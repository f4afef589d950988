"""Classes of ends: public words, kept in journals, and a bounded policy for each."""

from __future__ import annotations

import pytest

from handoffd.engine.run import FREE_REPEATS, POLICIES, AnyEnd, End, OwnEnd, Policy, Then


def test_the_words_are_those_that_journals_hold() -> None:
    """A class may be added; one that is there keeps its word."""
    assert {end.value for end in End} >= {
        "clean", "failed", "missing_binary", "logged_out", "bad_call", "crash", "out_of_memory", "limit",
        "overload", "session_gone",
    }  # fmt: skip


def test_each_class_has_one_policy_and_a_word_of_its_own() -> None:
    """Whatever ends, it is said what follows; the words are rows of one table."""
    assert [*End, *OwnEnd] == list(POLICIES)
    assert len(POLICIES) == len({end.value for end in POLICIES})


@pytest.mark.parametrize("policy", POLICIES.values(), ids=[end.value for end in POLICIES])
def test_free_repetitions_are_bounded(policy: Policy) -> None:
    """By the limit that holds for all of them in a row."""
    assert 0 <= policy.free <= FREE_REPEATS


@pytest.mark.parametrize(("end", "policy"), POLICIES.items(), ids=[end.value for end in POLICIES])
def test_a_pause_and_only_a_pause_has_a_remedy(end: AnyEnd, policy: Policy) -> None:
    """A person who finds a paused project needs to know what is wrong, and a command."""
    assert (policy.then is Then.PAUSE) == bool(policy.fault) == bool(policy.remedy), end
    assert not policy.remedy or policy.remedy.startswith("handoffd ")
