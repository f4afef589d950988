"""The order of a backlog, what may start, and stories that would wait for each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.playbook import state_at, track_at

from handoffd.engine.routing import (
    Blocker,
    before,
    behind,
    blockers,
    circle,
    entry_of,
    waits_in_words,
    without,
)
from handoffd.engine.track import Ledger, Parked, Queued, startable, unmet

NAMES = [f"US-{number}" for number in range(6)]
ENTRIES = st.builds(
    Queued, story=st.sampled_from(NAMES), priority=st.integers(-2, 2),
    blocked_by=st.lists(st.sampled_from(NAMES), max_size=2).map(tuple),
)  # fmt: skip


def filled(entries: list[Queued]) -> tuple[Queued, ...]:
    """Return the backlog that these make, one after another."""
    backlog: tuple[Queued, ...] = ()
    for entry in entries:
        backlog = behind(backlog, entry)
    return backlog


def stories(backlog: tuple[Queued, ...]) -> list[str]:
    """Return the stories in order."""
    return [entry.story for entry in backlog]


def test_the_more_urgent_go_first_and_equals_as_they_came() -> None:
    """A story that is asked for again has one place, by its priority."""
    backlog = filled([Queued(story="a"), Queued(story="b", priority=1), Queued(story="c")])
    assert ["b", "a", "c"] == stories(backlog)
    assert ["b", "c", "a"] == stories(behind(backlog, Queued(story="a")))
    assert ["c", "b", "a"] == stories(behind(backlog, Queued(story="c", priority=2)))


@given(st.lists(ENTRIES, max_size=12))
def test_a_backlog_is_in_order_whatever_came(entries: list[Queued]) -> None:
    """By priority; each story once, as it was asked for last; none overtakes an equal."""
    backlog = filled(entries)
    last = {entry.story: (place, entry) for place, entry in enumerate(entries)}

    assert sorted(last) == sorted(stories(backlog))
    wanted = sorted(last.values(), key=lambda one: (-one[1].priority, one[0]))
    assert [entry for _, entry in wanted] == list(backlog)


@given(st.lists(ENTRIES, max_size=8), st.sets(st.sampled_from(NAMES)))
def test_the_first_story_that_waits_for_no_other_starts_next(entries: list[Queued], done: set[str]) -> None:
    """All before it wait; when there is none, all do."""
    ledger = Ledger(backlog=filled(entries), stories_done=tuple(done))
    upcoming = startable(ledger)
    ahead = ledger.backlog if upcoming is None else ledger.backlog[: ledger.backlog.index(upcoming)]

    assert all(unmet(entry, ledger) for entry in ahead)
    assert upcoming is None or set(upcoming.blocked_by) <= done


@given(st.lists(ENTRIES, max_size=8))
def test_a_backlog_without_a_circle_comes_to_its_end(entries: list[Queued]) -> None:
    """One after another is done, but for stories that wait for unknown ones; and with a circle, some stay."""
    ledger = Ledger(backlog=filled(entries))
    found = circle(track_at("done", ledger=ledger, story="C-1"), ledger.backlog)
    known = set(stories(ledger.backlog))
    while (upcoming := startable(ledger)) is not None:
        left, done = without(ledger.backlog, [upcoming.story]), (*ledger.stories_done, upcoming.story)
        ledger = Ledger(backlog=left, stories_done=done)
    if found is not None:
        assert found[0] == found[-1]
        assert set(found) <= set(stories(ledger.backlog))
    else:
        waiting = ledger.backlog
        while gone := [one for one in waiting if set(unmet(one, ledger)) - set(stories(waiting))]:
            waiting = without(waiting, stories(tuple(gone)))
        assert () == waiting, known


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_place_is_counted_without_the_one_that_is_moved(index: int) -> None:
    """First, in between, last."""
    backlog = filled([Queued(story=name) for name in "abc"])
    assert index == stories(before(backlog, Queued(story="b"), index)).index("b")


def test_what_is_known_of_the_stories_that_one_waits_for() -> None:
    """In flight, in the backlog, set aside, or unknown; a story that is done is not waited for."""
    entry = Queued(story="US-9", blocked_by=("US-0", "US-1", "US-2", "US-3", "US-4"))
    parked = Parked(state=state_at("impl", story="US-3"), ledger=Ledger(), give_back=False)
    ledger = Ledger(backlog=(Queued(story="US-2"), entry), parked=(parked,), stories_done=("US-0",))
    track = track_at("impl", ledger=ledger)

    assert (
        Blocker(story="US-1", kind="in_flight"), Blocker(story="US-2", kind="queued"),
        Blocker(story="US-3", kind="set_aside"), Blocker(story="US-4", kind="unknown"),
    ) == blockers(track, entry)  # fmt: skip
    words = str(waits_in_words(track, entry))
    assert words.startswith("waits for US-1 (in flight) and US-2 (in the backlog) and US-3 (set aside)")
    assert "US-4 (never started, and not in the backlog)" in words
    assert waits_in_words(track, Queued(story="US-2", blocked_by=("US-0",))) is None


def test_an_aborted_story_is_not_in_flight() -> None:
    """A story that waits for it waits until a person begins it again."""
    track = track_at("impl", ledger=Ledger(closed=True))
    assert "unknown" == blockers(track, Queued(story="US-2", blocked_by=("US-1",)))[0].kind


def test_the_story_in_flight_and_those_set_aside_are_part_of_a_circle() -> None:
    """They would never be done either."""
    blocked = track_at("bdd", blocked_by=("US-2",))
    assert ("US-2", "US-1", "US-2") == circle(blocked, [Queued(story="US-2", blocked_by=("US-1",))])
    waits = state_at("impl", story="US-3", blocked_by=("US-2",))
    parked = Parked(state=waits, ledger=Ledger(), give_back=False)
    aside = track_at("bdd", ledger=Ledger(parked=(parked,)))
    assert ("US-2", "US-3", "US-2") == circle(aside, [Queued(story="US-2", blocked_by=("US-3",))])


def test_a_story_that_is_done_closes_no_circle() -> None:
    """It has been waited for."""
    track = track_at("done", ledger=Ledger(stories_done=("US-1",)), blocked_by=("US-2",))
    assert circle(track, [Queued(story="US-2", blocked_by=("US-1",))]) is None


def test_an_entry_is_found_by_its_story() -> None:
    """Or there is none."""
    entry = Queued(story="US-2")
    assert entry is entry_of(Ledger(backlog=(entry,)), "US-2")
    assert entry_of(Ledger(backlog=(entry,)), "US-3") is None
