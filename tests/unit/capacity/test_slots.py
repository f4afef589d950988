"""Slots: admission and waking, a machine that admits no track, and limits that change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from tests.support.eventually import eventually
from tests.support.house import MovableClock, bid

from handoffd.capacity.admission import LOOK_S, Facts
from handoffd.capacity.slots import FORESEEN, FRESH_S, Slots
from handoffd.engine.track import TrackKey
from handoffd.settings.model import SchedulingSettings


def key_of(name: str) -> TrackKey:
    """Return the main track of a project."""
    return TrackKey("/" + name)


def scheduling(**values: Any) -> SchedulingSettings:
    """Return settings without a memory limit, unless `values` has one."""
    return SchedulingSettings.model_validate({"min_free_memory_mb": 0} | values)


@dataclass
class Machine:
    """A machine whose memory the test sets."""

    free_mb: int = 10_000
    load: float = 0.0
    looks: int = 0

    def facts(self) -> Facts:
        """Return its facts, and count the reads."""
        self.looks += 1
        return Facts(free_mb=self.free_mb, load_per_core=self.load)


@dataclass
class Counter:
    """Slots of a machine, the woken projects, and the clock."""

    total: int = 1
    settings: SchedulingSettings = field(default_factory=scheduling)
    machine: Machine = field(default_factory=Machine)
    clock: MovableClock = field(default_factory=MovableClock)
    woken: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.slots = Slots(self.total, self.settings, self.clock, self.machine.facts)

    def ask(self, *names: str, waited_s: float = 0, **more: Any) -> list[bool]:
        """Let projects ask, one after the other; return which got a slot at once."""
        return [
            self.slots.ask(bid(f"/{name}", **more), lambda name=name: self.woken.append(name), waited_s)  # type: ignore[misc]
            for name in names
        ]

    def end(self, name: str) -> None:
        """Release the slot or the place of a project."""
        self.slots.release(key_of(name))

    def place(self, name: str) -> int | None:
        """Return the place of a project."""
        return self.slots.place(key_of(name))

    def words(self, name: str) -> str | None:
        """Return what a project waits for."""
        return self.slots.words(key_of(name))

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Run the periodic checks meanwhile."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.slots.run)
            yield
            tasks.cancel_scope.cancel()


def test_a_freed_slot_goes_to_the_longest_waiting_track() -> None:
    """It is assigned before the track is woken, so that no other can take it; its holder may ask again."""
    desk = Counter()
    assert [True, False, False, True] == desk.ask("a", "b", "c", "a")
    assert ((1, 1), [None, 1, 2]) == ((desk.slots.in_use, desk.slots.total), list(map(desk.place, "abc")))
    assert [False, True, True] == [desk.slots.waits(key_of(name)) for name in "abc"]

    desk.end("a")

    assert ["b"] == desk.woken
    assert [False, True, False] == [desk.slots.holds(key_of(name)) for name in "abc"]
    assert 1 == desk.place("c")


def test_an_adopted_executor_counts_beyond_the_limit() -> None:
    """No other starts until there is room again, and no newcomer overtakes a waiting track."""
    desk = Counter()
    desk.slots.occupy(bid("/a"))
    desk.slots.occupy(bid("/b"))
    desk.ask("c")

    desk.end("a")
    assert (1, [], [False]) == (desk.slots.in_use, desk.woken, desk.ask("a"))
    assert [2, 1] == [desk.place("a"), desk.place("c")]
    desk.end("b")
    assert (1, ["c"]) == (desk.slots.in_use, desk.woken)


def test_a_track_that_gives_up_is_not_woken() -> None:
    """It was paused, and would not use the slot."""
    desk = Counter()
    desk.ask("a", "b")

    for name in ("b", "a", "unknown"):
        desk.end(name)

    assert ([], 0) == (desk.woken, desk.slots.in_use)


def test_a_waiting_track_that_is_found_running_stops_waiting() -> None:
    """It is not woken."""
    desk, key = Counter(), key_of("b")
    desk.ask("a", "b")
    desk.slots.occupy(bid("/b"))
    desk.end("a")
    assert (False, True, []) == (desk.slots.waits(key), desk.slots.holds(key), desk.woken)


def test_a_full_executor_does_not_block_another() -> None:
    """Each has its own limit."""
    desk = Counter(3, scheduling(per_executor={"claude": 1}))
    assert [True, False, False] == desk.ask("a", "b", "c")
    assert [True, True] == desk.ask("d", "e", executor="codex")
    assert "2nd for a claude slot (1 of 1 in use: a)" == desk.words("c")
    desk.end("d")
    assert [] == desk.woken
    desk.end("a")
    assert ["b"] == desk.woken


def test_waiting_time_survives_a_restart() -> None:
    """A restart moves no track to the end."""
    desk = Counter()
    desk.ask("a", "b")
    desk.ask("c", waited_s=3600)
    assert [2, 1] == [desk.place("b"), desk.place("c")]
    desk.ask("d", waited_s=-3600)
    assert 3 == desk.place("d")


def test_changed_limits_apply_at_once() -> None:
    """Raised ones admit waiting tracks, lowered ones end none; groups may change, turns stay."""
    desk = Counter(1)
    desk.ask("a", "b", "c", "d")

    desk.slots.configure(3, scheduling(groups={"web": {"slots": 1, "projects": ["/b", "/c"]}}))
    assert (["b", "d"], 3) == (desk.woken, desk.slots.in_use)
    assert "1st for a slot (3 of 3 in use: a, b, d)" != desk.words("c")
    assert "1st in group web (1 of 1 in use: b)" == desk.words("c")

    desk.slots.configure(1, scheduling())
    assert (3, 1) == (desk.slots.in_use, desk.slots.total)
    desk.end("a")
    desk.end("b")
    assert ["b", "d"] == desk.woken
    desk.end("d")
    assert ["b", "d", "c"] == desk.woken


ALL_OF_THEM, ONE = {"projects": ["/*"]}, {"priority": 1, "projects": ["/c"]}


@pytest.mark.parametrize("before", [{}, {"all": ALL_OF_THEM, "one": ONE}])
def test_changed_priorities_apply_to_waiting_tracks(before: dict[str, Any]) -> None:
    """The current settings count, and of several groups the first that matches a project."""
    desk = Counter(1, scheduling(groups=before))
    desk.ask("a", "b", "c")
    assert [1, 2] == [desk.place("b"), desk.place("c")]

    desk.slots.configure(1, scheduling(groups={"one": ONE, "all": ALL_OF_THEM}))

    assert [2, 1] == [desk.place("b"), desk.place("c")]


def test_without_memory_no_track_is_admitted() -> None:
    """Only priority changes the order; an end causes another look."""
    desk = Counter(9, scheduling(min_free_memory_mb=500, memory_per_agent_mb=0))
    desk.machine.free_mb = 499
    assert [False, False] == desk.ask("a", "b")
    reason = "memory: 499 MiB free, 500 wanted"
    assert [reason, f"{reason}; 2nd in line"] == [desk.words("a"), desk.words("b")]
    assert [False] == desk.ask("c", priority=1)
    assert (reason, reason) == (desk.words("c"), desk.slots.view().closed)

    desk.machine.free_mb = 500
    desk.clock.ahead_s += FRESH_S
    assert [True] == desk.ask("d")
    assert ["c", "a", "b"] == desk.woken


def test_a_burst_of_starts_reserves_memory() -> None:
    """Although the machine reports the same amount for all of them."""
    desk = Counter(9, scheduling(min_free_memory_mb=500, memory_per_agent_mb=300))
    desk.machine.free_mb = 1100
    assert [True, True, True, False] == desk.ask("a", "b", "c", "d")
    words = desk.words("d") or ""
    assert words.startswith("memory: 1,100 MiB free, ")


def test_the_machine_is_read_only_when_a_track_could_be_admitted() -> None:
    """And once for many that ask at the same moment."""
    desk = Counter(2, scheduling(min_free_memory_mb=1))
    desk.ask("a", "b", "c", "d")
    assert 1 == desk.machine.looks
    desk.clock.ahead_s += FRESH_S
    desk.ask("e", "f")
    assert 1 == desk.machine.looks
    desk.end("a")
    assert 2 == desk.machine.looks
    Counter(machine=desk.machine).ask("a")
    assert 2 == desk.machine.looks


@pytest.mark.parametrize("changed", [False, True], ids=["memory", "settings"])
async def test_tracks_that_wait_for_memory_go_on_by_themselves(changed: bool) -> None:
    """Without the end of another: when there is more memory, or the settings ask for less."""
    wanted = {"min_free_memory_mb": 500, "memory_per_agent_mb": 0}
    desk = Counter(9, scheduling(**wanted))
    desk.machine.free_mb = 1
    desk.ask("a", "b")
    assert [] == desk.woken
    if changed:
        desk.slots.configure(9, scheduling(**wanted | {"min_free_memory_mb": 1}))
    else:
        desk.machine.free_mb = 1000
        desk.clock.ahead_s += LOOK_S
        async with desk.watched():
            await eventually(lambda: desk.woken)
    assert ["a", "b"] == desk.woken


async def test_starts_are_staggered() -> None:
    """One after the other, each woken at its time."""
    desk = Counter(9, scheduling(stagger_s=30))
    async with desk.watched():
        assert [True, False, False] == desk.ask("a", "b", "c")
        assert "next start in 30 s (stagger)" == desk.words("b")
        assert "next start in 30 s (stagger); 2nd in line" == desk.words("c")
        await anyio.wait_all_tasks_blocked()
        desk.clock.ahead_s += 30
        desk.slots.configure(9, scheduling(stagger_s=20))  # the new settings cause a look
        assert ["b"] == desk.woken
        desk.clock.ahead_s += 19
        desk.slots.configure(9, scheduling(stagger_s=19.5))
        await eventually(lambda: desk.woken == ["b", "c"])


async def test_the_machine_is_not_polled_without_a_queue() -> None:
    """Even if it admitted no track before."""
    desk = Counter(9, scheduling(min_free_memory_mb=500))
    desk.machine.free_mb = 1
    desk.ask("a")
    desk.clock.ahead_s += LOOK_S
    async with desk.watched():
        await eventually(lambda: desk.machine.looks > 1)
        desk.end("a")
        await eventually(lambda: desk.slots._look_at is None)
        assert desk.slots.shortage() is None


def test_an_important_track_keeps_its_slot_between_attempts() -> None:
    """If no waiting track is before it."""
    desk = Counter(settings=scheduling(head_start_min=10))
    desk.ask("a", priority=1)
    desk.ask("b")
    desk.slots.ended(key_of("a"))
    assert (1, []) == (desk.slots.in_use, desk.woken)
    assert [True] == desk.ask("a", priority=1)
    desk.slots.ended(key_of("a"))
    desk.slots.ended(key_of("a"))
    desk.end("a")
    assert ["b"] == desk.woken


def test_an_important_track_is_admitted_for_each_attempt() -> None:
    """A kept slot does not replace the admission."""
    desk = Counter(settings=scheduling(stagger_s=30))
    desk.ask("a", priority=1)
    desk.slots.ended(key_of("a"))
    assert [False] == desk.ask("a", priority=1)
    assert ("next start in 30 s (stagger)", 0) == (desk.words("a"), desk.slots.in_use)


def test_equal_tracks_take_turns_after_each_attempt() -> None:
    """Also with a track that has waited for longer than a head start."""
    desk = Counter(settings=scheduling(head_start_min=10))
    desk.ask("a", "b")
    desk.slots.ended(key_of("a"))
    assert (["b"], [False]) == (desk.woken, desk.ask("a"))

    desk.slots.ended(key_of("b"))
    assert ["b", "a"] == desk.woken
    desk.ask("c")
    desk.slots.occupy(bid("/a", priority=1))
    desk.clock.ahead_s += 601
    desk.slots.ended(key_of("a"))
    assert ["b", "a", "c"] == desk.woken


def test_without_a_queue_the_next_attempt_follows_at_once() -> None:
    """It may want another executor, which others use."""
    desk = Counter(2, scheduling(per_executor={"claude": 1}))
    desk.ask("a", executor="codex")
    desk.slots.ended(key_of("a"))
    assert [True] == desk.ask("a")
    desk.ask("b")
    desk.ask("c", executor="codex")
    desk.slots.ended(key_of("c"))
    assert [False] == desk.ask("c")
    assert [1, 2] == [desk.place("b"), desk.place("c")]
    desk.slots.ended(key_of("unknown"))


def test_the_duration_of_a_shortage_is_known() -> None:
    """Memory and load count together; waiting for a turn does not count."""
    desk = Counter(1, scheduling(min_free_memory_mb=500, memory_per_agent_mb=0, max_load_per_core=2))
    desk.ask("a", "b")
    assert desk.slots.shortage() is None
    desk.machine.free_mb = 1
    desk.clock.ahead_s += 100
    desk.end("a")
    assert [] == desk.woken
    for seconds, kind in ((60, "load"), (120, "memory"), (180, "load")):
        desk.clock.ahead_s += 60
        desk.machine.free_mb, desk.machine.load = (1, 0) if kind == "memory" else (1000, 9)
        desk.ask("c")
        shortage = desk.slots.shortage()
        assert shortage is not None
        assert (kind, seconds) == (shortage[0], round(shortage[1]))
    desk.clock.ahead_s += 60
    desk.machine.load = 0
    desk.ask("c")
    assert (["b"], None) == (desk.woken, desk.slots.shortage())


def test_far_places_are_not_counted() -> None:
    """It would take too long; later tracks are behind the counted ones."""
    desk = Counter()
    desk.ask(*(f"{number}" for number in range(FORESEEN + 10)))
    assert [1, FORESEEN, None] == [desk.place(f"{number}") for number in (1, FORESEEN, FORESEEN + 1)]
    desk.slots._line_until += 3600
    desk.end("0")
    assert [None, 2, 3] == [desk.place(f"{number}") for number in (1, 2, 3)]
    view = desk.slots.view()
    assert FORESEEN + 8 == view.waiting_in_all
    assert len(view.waiting) < FORESEEN + 1
    assert "501st or later for a slot (1 of 1 in use: 0)" == desk.words(f"{FORESEEN + 9}")
    desk.slots._line_until = 0
    assert 1 == desk.place("2")
    assert "501st or later for a slot (1 of 1 in use: 1)" == desk.words(f"{FORESEEN + 9}")


def test_running_tracks_are_counted_per_limited_pool() -> None:
    """Also 0; names of unlimited pools may come from projects and are left out."""
    desk = Counter(5, scheduling(per_executor={"claude": 2}, groups={"night": {"slots": 1}}))
    desk.ask("a", "b", "c", executor="claude", account="work")
    desk.ask("d", executor="codex", account="work")

    limits = {("executor", "claude"): 2, ("group", "night"): 1}
    assert limits == desk.slots.limits
    assert {("executor", "claude"): 2, ("group", "night"): 0} == desk.slots.in_pools()


def test_the_table_of_slots() -> None:
    """Limits, running tracks, and the queue with waiting times."""
    desk = Counter(1)
    desk.ask("a", "b")
    desk.clock.ahead_s += 60
    desk.ask("b", priority=2)
    view = desk.slots.view()
    assert (1, 1, ("a",)) == (view.limits[0].limit, view.limits[0].in_use, view.limits[0].holders)
    [waiting] = view.waiting
    assert ("b", 2, 1) == (waiting.what, waiting.priority, waiting.place)
    assert 60 <= waiting.waited_s < 100
