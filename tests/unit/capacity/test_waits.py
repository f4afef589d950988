"""What people read about the line: places, what is full, who is in the way, and the whole table."""

from __future__ import annotations

import pytest
from tests.support.house import bid

from handoffd.capacity.runqueue import Bid, RunQueue, entry_of, foreseen, limits_in
from handoffd.capacity.slots import Line, ordinal
from handoffd.engine.track import TrackKey
from handoffd.settings.model import SchedulingSettings

SCHEDULING = SchedulingSettings.model_validate(
    {
        "per_executor": {"claude": 2, "aider": 1},
        "per_account": {"work": 1},
        "per_project": 1,
        "groups": {"web": {"slots": 1, "projects": ["/web/*"], "priority": 1}},
    }
)


def line(total: int, running: list[Bid], waiting: list[Bid], most: int = 100) -> Line:
    """Return how these stand."""
    limits = limits_in(total, SCHEDULING)
    queue = RunQueue(limits)
    for one in running:
        queue.occupy(entry_of(one, limits, SCHEDULING))
    for number, one in enumerate(waiting):
        queue.ask(entry_of(one, limits, SCHEDULING), float(number))
    since = {one.key: float(number) for number, one in enumerate(waiting)}
    return Line(queue, since, foreseen(queue, 100.0, most))


@pytest.mark.parametrize(
    ("number", "expected"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (10, "10th"), (11, "11th"), (12, "12th"), (13, "13th"),
     (20, "20th"), (21, "21st"), (101, "101st"), (111, "111th"), (112, "112th"), (1002, "1,002nd")],
)  # fmt: skip
def test_ordinals(number: int, expected: str) -> None:
    """As people write them."""
    assert expected == ordinal(number)


@pytest.mark.parametrize(
    ("running", "waiting", "expected"),
    [
        ([bid("/a", "codex")], bid("/b", "codex"), "1st for a slot (1 of 1 in use: a)"),
        ([bid("/a"), bid("/b")], bid("/c"), "1st for a claude slot (2 of 2 in use: a, b)"),
        ([bid("/a", "aider")], bid("/b", "aider"), "1st for an aider slot (1 of 1 in use: a)"),
        (
            [bid("/a", account="work")],
            bid("/b", account="work"),
            "1st for a slot of account work (1 of 1 in use: a)",
        ),
        ([bid("/web/a")], bid("/web/b"), "1st in group web (1 of 1 in use: a)"),
        ([bid("/a")], bid("/a", key=TrackKey("/a", "2")), "1st in its project (1 of 1 in use: a)"),
    ],
)
def test_what_is_full_is_named(running: list[Bid], waiting: Bid, expected: str) -> None:
    """With who is within it."""
    total = 1 if "for a slot (" in expected else 9
    assert expected == line(total, running, [waiting]).words(waiting.key, None)


def test_of_many_some_are_named() -> None:
    """More would be read by nobody."""
    waiting = bid("/z", "codex")
    words = line(2, [bid(f"/{name}", "codex") for name in "abcd"], [waiting]).words(waiting.key, None)
    assert "1st for a slot (4 of 2 in use: a, b, c, …)" == words


def test_places_are_who_is_served_when() -> None:
    """Not who asked when: one that waits for another executor may be let in before."""
    waiting = [bid("/c"), bid("/d"), bid("/e", "codex")]
    found = line(3, [bid("/a", "codex"), bid("/b"), bid("/x")], waiting)
    assert [2, 3, 1] == [found.place(one.key) for one in waiting]
    assert "2nd for a claude slot (2 of 2 in use: b, x)" == found.words(waiting[0].key, None)
    assert "1st for a slot (3 of 3 in use: a, b, x)" == found.words(waiting[2].key, None)


def test_far_back_nobody_counts() -> None:
    """It is said how far that is."""
    waiting = [bid(f"/{number}") for number in range(5)]
    found = line(1, [bid("/a")], waiting, most=3)
    assert None is found.place(waiting[4].key)
    assert "4th or later for a slot (1 of 1 in use: a)" == found.words(waiting[4].key, None)


def test_who_has_room_waits_for_the_machine() -> None:
    """The first is told just that; the others also where they stand."""
    waiting = [bid("/a"), bid("/b"), bid("/c")]
    found, why = line(9, [], waiting), "memory: 12 MiB free, 512 wanted"
    assert [why, f"{why}; 2nd in line"] == [found.words(one.key, why) for one in waiting[:2]]
    assert "1st in line" == found.words(waiting[0].key, None)
    assert None is found.words(TrackKey("/nobody"), why)


def test_the_whole_table() -> None:
    """All together, every limit, what runs without one; and everybody who waits, the next one first."""
    waiting = [bid("/c"), bid("/web/d"), bid("/e", "codex", priority=2)]
    view = line(2, [bid("/a"), bid("/b", "gemini")], waiting).view(10.0, "load: high")
    limits = {
        f"{one.kind} {one.name}".strip(): (one.limit, one.in_use, one.waiting, one.holders)
        for one in view.limits
    }
    assert {
        "all": (2, 2, 3, ("a", "b")),
        "executor claude": (2, 1, 2, ("a",)),
        "executor aider": (1, 0, 0, ()),
        "account work": (1, 0, 0, ()),
        "group web": (1, 0, 1, ()),
        "account claude": (None, 1, 2, ("a",)),
        "account gemini": (None, 1, 0, ("b",)),
        "executor gemini": (None, 1, 0, ("b",)),
    } == limits
    assert "load: high" == view.closed
    assert [("c", 0, None, 1, 10.0), ("d", 1, "web", 2, 9.0), ("e", 2, None, 3, 8.0)] == [
        (one.what, one.priority, one.group, one.place, one.waited_s) for one in view.waiting
    ]
    assert "1st for a slot (2 of 2 in use: a, b)" == view.waiting[0].why


def test_full_projects_are_in_the_table() -> None:
    """Where one of their tracks waits."""
    view = line(9, [bid("/a"), bid("/b")], [bid("/a", key=TrackKey("/a", "2"))]).view(0.0, None)
    assert [("/a", 1)] == [(one.name, one.limit) for one in view.limits if one.kind == "project"]
