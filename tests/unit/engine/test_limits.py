"""Usage limits of accounts, and caps: which are near, which are reached, and in which words."""

from __future__ import annotations

from datetime import timedelta
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.playbook import T0

from handoffd.engine.limits import (
    WARN_AT,
    findings,
    granted_past,
    limit_of,
    named,
    still_in_force,
    tighter,
    widened,
    without,
)
from handoffd.engine.run import NO_CAP, SCOPES, UNITS, Cap, Finding, Scope, Unit, Usage, amount, dollars
from handoffd.engine.track import Limit

CAPS = st.builds(Cap, usd=st.none() | st.floats(0.01, 1e6), tokens=st.none() | st.integers(1, 10**9))
SPENT = st.builds(
    Usage, input_tokens=st.integers(0, 10**9), cost_usd=st.none() | st.floats(0, 1e6), priced=st.just("table")
)


def limit(account: str) -> Limit:
    """Return a limit of an account for five minutes."""
    return Limit(account=account, executor=account, kind="limit", since=T0, until=T0 + timedelta(minutes=5))


# --- accounts -------------------------------------------------------------------------------------
def test_limits_are_found_and_dropped_by_account() -> None:
    """One executor's limit is not the other's."""
    both = (limit("claude"), limit("codex"))
    assert limit("codex") == limit_of(both, "codex")
    assert limit_of(both, "gemini") is None
    assert (limit("codex"),) == without(both, "claude")


def test_a_limit_and_an_overload_are_two_things() -> None:
    """The one is about what was paid for, the other is the provider's."""
    assert "claude's usage limit" == named("claude", "limit")
    assert "claude's overloaded provider" == named("claude", "overload")
    assert "claude's refusing provider" == named("claude", "refusal")


# --- caps -----------------------------------------------------------------------------------------
def test_every_scope_and_unit_is_checked() -> None:
    """Also one that is added."""
    assert SCOPES == get_args(Scope)
    assert UNITS == get_args(Unit)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize(
    ("spent", "level"), [(3.19, None), (3.2, "near"), (3.99, "near"), (4.0, "over"), (9.0, "over")]
)
def test_dollars_warn_at_four_fifths_and_end_at_all(scope: Scope, spent: float, level: str | None) -> None:
    """A cap is reached by what equals it."""
    found = findings({scope: Usage(cost_usd=spent, priced="provider")}, {scope: Cap(usd=4)})
    assert level == (("over" if found[0].over else "near") if found else None)


@pytest.mark.parametrize(("spent", "level"), [(7_999, None), (8_000, "near"), (10_000, "over")])
def test_tokens_count_all_four_kinds(spent: int, level: str | None) -> None:
    """What a cache had is paid for, too."""
    usage = Usage(input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_write_tokens=spent - 6)
    found = findings({"day": usage}, {"day": Cap(tokens=10_000)})
    assert level == (("over" if found[0].over else "near") if found else None)


def test_an_unknown_cost_reaches_no_cap_in_dollars_but_its_tokens_count() -> None:
    """That is why there are caps in tokens."""
    usage = Usage(input_tokens=500)
    caps: dict[Scope, Cap] = {"story": Cap(usd=0.01, tokens=500)}
    assert ["tokens"] == [finding.unit for finding in findings({"story": usage}, caps)]


def test_without_caps_nothing_is_found() -> None:
    """Whatever was spent, and wherever."""
    usage = Usage(input_tokens=10**12, cost_usd=10**9, priced="provider")
    assert () == findings(dict.fromkeys(SCOPES, usage), {})
    assert () == findings(dict.fromkeys(SCOPES, usage), dict.fromkeys(SCOPES, NO_CAP))


@given(
    spent=st.dictionaries(st.sampled_from(SCOPES), SPENT), caps=st.dictionaries(st.sampled_from(SCOPES), CAPS)
)
def test_what_is_found_is_near_or_over_and_ordered_by_scope(
    spent: dict[Scope, Usage], caps: dict[Scope, Cap]
) -> None:
    """The narrowest comes first: it is what a person can do most about."""
    found = findings(spent, caps)
    assert [finding.scope for finding in found] == sorted((f.scope for f in found), key=SCOPES.index)
    for finding in found:
        assert finding.spent >= WARN_AT * finding.cap
        assert finding.over == (finding.spent >= finding.cap)
        assert getattr(caps[finding.scope], finding.unit) == finding.cap


@given(one=CAPS, other=CAPS, usage=SPENT)
def test_the_tighter_of_two_caps_keeps_to_both(one: Cap, other: Cap, usage: Usage) -> None:
    """A project's own settings can only lower what the daemon's allow."""

    def units(cap: Cap) -> set[str]:
        return {finding.unit for finding in findings({"story": usage}, {"story": cap})}

    assert units(tighter(one, other)) == units(one) | units(other)


def test_a_grant_widens_a_cap_and_makes_none() -> None:
    """It changes a limit, is not a limit of its own, and never lowers one."""
    assert Cap(usd=8, tokens=100) == widened(Cap(usd=4, tokens=100), Cap(usd=8))
    assert Cap(usd=4) == widened(Cap(usd=4), Cap(usd=2))
    assert NO_CAP == widened(NO_CAP, Cap(usd=8, tokens=9))


def test_a_finding_says_whose_budget_it_is_and_how_much_is_gone() -> None:
    """In the words of `status` and of notices."""
    finding = Finding(scope="story", unit="usd", spent=4.1, cap=4)
    assert "the story's budget: $4.10 of $4.00 spent" == finding.text
    assert "the story's budget of $4.00 is used up" == finding.used_up
    tokens = Finding(scope="day", unit="tokens", spent=12_400, cap=12_000)
    assert "the day's budget: 12,400 tokens of 12,000 tokens spent" == tokens.text


def test_amounts_are_written_as_people_write_them() -> None:
    """Less than a cent is not nothing."""
    assert ["$0.00", "$0.0042", "$0.01", "$1234.50"] == [dollars(n) for n in (0, 0.0042, 0.01, 1234.5)]
    assert "1,234,567 tokens" == amount(1_234_567, "tokens")


@pytest.mark.parametrize(
    ("cap", "in_force", "past"),
    [
        (Cap(usd=3.9), True, False), (Cap(usd=4), True, False), (Cap(usd=4.1), False, True),
        (NO_CAP, False, False), (Cap(tokens=10**9), False, False),
    ],
)  # fmt: skip
def test_a_reached_cap_is_lifted_by_a_wider_one_of_its_unit(cap: Cap, in_force: bool, past: bool) -> None:
    """In the settings none at all is wider, too; a grant of something else is nothing."""
    reached = Finding(scope="attempt", unit="usd", spent=9, cap=4)
    assert (in_force, past) == (still_in_force(reached, cap), granted_past(reached, cap))
