"""Which notice goes to a sink next, and when: decided without a clock, a sink or chance."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from handoffd.engine.notice import Waiting
from handoffd.notify.retry_policy import (
    ORDERED_TRIES,
    Pauses,
    Queue,
    Send,
    Wait,
    joined,
    next_step,
    not_taken,
    taken,
    without,
)

PAUSES = Pauses(first_s=5, longest_s=900)
SHOP, BLOG = ("/srv/shop", "main"), ("/srv/blog", "main")


def queue(*lanes: tuple[str, str], **more: float) -> Queue:
    """Return a queue of notices 1, 2, … in these lanes."""
    return Queue(waiting=tuple(Waiting(number=n, lane=lane) for n, lane in enumerate(lanes, 1)), **more)  # type: ignore[arg-type]


def numbers(of: Queue) -> list[int]:
    """Return the numbers of the queued notices."""
    return [one.number for one in of.waiting]


@dataclass
class Play:
    """A sink that gets notices as `next_step` decides, in simulated time."""

    queue: Queue
    now_s: float = 1000.0
    dead: bool = False
    refuses: set[int] = field(default_factory=set)
    tried: list[tuple[float, int]] = field(default_factory=list)
    got: list[int] = field(default_factory=list)

    def run(self, until_s: float) -> Play:
        """Continue until a time, or until the queue is empty."""
        while self.now_s <= until_s:
            match next_step(self.queue, self.now_s):
                case Send(number):
                    self._send(number)
                case Wait(None):
                    break
                case Wait(wake_s):
                    assert wake_s is not None
                    assert wake_s > self.now_s
                    self.now_s = min(wake_s, until_s)
                    if wake_s > until_s:
                        break
        return self

    def _send(self, number: int) -> None:
        self.tried.append((self.now_s, number))
        if self.dead or number in self.refuses:
            self.queue = not_taken(self.queue, number, self.now_s, PAUSES, 0)
        else:
            self.got.append(number)
            self.queue = taken(self.queue, number, self.now_s, PAUSES, 0)


# --- pauses ---------------------------------------------------------------------------------------
def test_pauses_double_up_to_the_longest() -> None:
    """5 s, 10 s, … 15 min."""
    assert [5, 10, 20, 40, 80, 160, 320, 640, 900, 900] == [PAUSES.after(n, 0) for n in range(1, 11)]


@given(failures=st.integers(1, 10_000), jitter=st.floats(0, 1))
def test_chance_takes_up_to_a_quarter_off(failures: int, jitter: float) -> None:
    """After any number of failures the pause is bounded on both sides."""
    assert 0.75 * PAUSES.after(failures, 0) <= PAUSES.after(failures, jitter) <= PAUSES.after(failures, 0)
    assert 3.75 <= PAUSES.after(failures, jitter) <= 900


# --- one step, exhaustively -----------------------------------------------------------------------
def test_nothing_to_do_when_nothing_waits() -> None:
    """Also after failures."""
    for failures, rest_until_s in product((0, 3), (0.0, 2000.0)):
        assert Wait(None) == next_step(Queue(failures=failures, rest_until_s=rest_until_s), 1000)


STATES = [
    Waiting(number=0, lane=lane, tries=tries, due_s=due_s)
    for lane, tries, due_s in product((SHOP, BLOG), (0, 1, ORDERED_TRIES), (0.0, 1500.0))
]
"""All states of one notice that make a difference, at 1000 s."""


@pytest.mark.parametrize("failures", [0, 1])
def test_every_queue_of_three_is_treated_by_the_rules(failures: int) -> None:
    """No notice is sent before its time or past an earlier one of its track, and none is left when due."""
    for states in product(STATES, repeat=3):
        waiting = tuple(replace(one, number=n) for n, one in enumerate(states, 1))
        free = [
            one
            for one in waiting
            if not any(
                e.lane == one.lane and e.number < one.number and e.tries < ORDERED_TRIES for e in waiting
            )
        ]
        due = [one for one in free if one.due_s <= 1000]
        step = next_step(Queue(waiting=waiting, failures=failures, rest_until_s=900), 1000)
        if not due:
            assert Wait(1500) == step
        elif failures:
            fewest = min(one.tries for one in due)
            assert Send(next(one.number for one in due if one.tries == fewest)) == step
        else:
            assert Send(due[0].number) == step
        resting = Queue(waiting=waiting, failures=failures, rest_until_s=1200)
        assert Wait(1200) == next_step(resting, 1000)


# --- after a try ----------------------------------------------------------------------------------
def test_a_failure_makes_the_sink_rest_longer_each_time() -> None:
    """Only the notice that was tried counts as failed."""
    failed = queue(SHOP, BLOG)
    for failures, pause_s in ((1, 5), (2, 10), (3, 20)):
        failed = not_taken(failed, 1, 1000, PAUSES, 0)
        assert (failures, 1000 + pause_s) == (failed.failures, failed.rest_until_s)
    assert [(3, True), (0, False)] == [(one.tries, one.failed) for one in failed.waiting]


def test_a_success_ends_the_rest_and_removes_the_notice() -> None:
    """One that failed once is due at once: it was probably the sink."""
    recovered = taken(not_taken(queue(SHOP, BLOG), 1, 1000, PAUSES, 0), 2, 1005, PAUSES, 0)

    assert (0, 0.0, [1]) == (recovered.failures, recovered.rest_until_s, numbers(recovered))
    assert Send(1) == next_step(recovered, 1005)


def test_queues_grow_at_the_end_and_shrink_anywhere() -> None:
    """Numbers only rise."""
    assert [1, 2, 3] == numbers(joined(queue(SHOP, SHOP), (Waiting(number=3, lane=BLOG),)))
    assert [2] == numbers(without(queue(SHOP, SHOP, BLOG), frozenset({1, 3, 9})))
    with pytest.raises(AssertionError):
        joined(queue(SHOP, SHOP), (Waiting(number=2, lane=BLOG),))


def test_a_dead_sink_gets_one_try_for_each_pause() -> None:
    """For one queued notice or a hundred, over a whole day."""
    one, many = Play(queue(SHOP), dead=True), Play(queue(*[SHOP, BLOG] * 50), dead=True)
    day_s = 24 * 3600
    one.run(1000 + day_s)
    many.run(1000 + day_s)

    assert [at for at, _ in one.tried] == [at for at, _ in many.tried]
    assert len(one.tried) < 110
    assert all(5 <= later - at <= 900 for (at, _), (later, _) in pairwise(one.tried))


def test_after_a_short_outage_everything_arrives_in_order() -> None:
    """Of one track the failed notice goes first."""
    play = Play(queue(SHOP, SHOP, SHOP), dead=True).run(1030)
    play.dead = False
    play.run(3000)

    assert [1, 2, 3] == play.got


def test_after_a_long_outage_only_the_one_that_was_tried_may_overtake() -> None:
    """The others follow in their order, at once."""
    play = Play(queue(*[SHOP] * 6), dead=True).run(1000 + 3600)
    play.dead = False
    play.run(play.now_s + 1000)

    first, *rest = play.got
    assert sorted(rest) == rest
    assert {1, 2, 3, 4, 5, 6} == {first, *rest}
    assert 1 == len({at for at, _ in play.tried[-6:]})


def test_a_notice_that_a_working_sink_does_not_take_costs_the_others_little() -> None:
    """It is tried ever less often, and after five tries later ones of its track overtake it."""
    play = Play(queue(SHOP, BLOG, SHOP), refuses={1})
    for number in range(4, 400):
        play.queue = joined(play.queue, (Waiting(number=number, lane=BLOG),))
        play.run(play.now_s + 60)

    assert {3} <= set(play.got)
    assert [number for number in play.got if number != 3] == [2, *range(4, 400)]
    assert 10 < len([number for _, number in play.tried if number == 1]) < 60


def test_a_refused_notice_does_not_block_its_track_for_ever() -> None:
    """Without other notices the next one is sent after five tries."""
    play = Play(queue(SHOP, SHOP, SHOP), refuses={1}).run(1000 + 1000)

    assert [2, 3] == play.got


def test_after_a_restart_every_notice_is_due() -> None:
    """Also after many tries."""
    old = Queue(waiting=tuple(Waiting(number=n, lane=SHOP, tries=40) for n in (1, 2, 3)))

    assert [1, 2, 3] == Play(old, now_s=0.0).run(1).got


@given(
    lanes=st.lists(st.sampled_from([SHOP, BLOG]), min_size=1, max_size=8),
    dead_s=st.lists(st.tuples(st.booleans(), st.floats(1, 4000)), max_size=6),
    refuses=st.sets(st.integers(1, 8), max_size=2),
)
def test_every_notice_that_the_sink_takes_is_delivered_once(
    lanes: list[tuple[str, str]], dead_s: list[tuple[bool, float]], refuses: set[int]
) -> None:
    """The sink may fail and recover meanwhile."""
    play = Play(queue(*lanes), refuses=refuses)
    for dead, for_s in dead_s:
        play.dead = dead
        play.run(play.now_s + for_s)
    play.dead = False
    play.run(play.now_s + 24 * 3600)

    assert sorted(play.got) == [n for n in range(1, len(lanes) + 1) if n not in refuses]
