"""Who runs, counted by pool. (What follows for those who wait: `test_runqueue`.)"""

from __future__ import annotations

from tests.support.house import bid

from handoffd.capacity.runqueue import ALL, Entry, Held, Limits, Occupancy, Pool
from handoffd.engine.track import TrackKey

CLAUDE = Pool("executor", "claude")
A, B, C = (Entry(bid=bid(name), pools=(CLAUDE,)) for name in "abc")


def occupied(*entries: Entry, per_project: int | None = None) -> Occupancy:
    """Return how it is when these run."""
    found = Occupancy(Limits(total=3, pools={CLAUDE: 2}, per_project=per_project))
    for since, entry in enumerate(entries):
        found.hold(entry, float(since))
    return found


def test_what_runs_is_counted_in_each_of_its_pools() -> None:
    """And no longer when it does not; who is not there takes nothing away."""
    running = occupied(A, B)
    project = Pool("project", "a")
    assert [2, 2, 1] == [running.used(pool) for pool in (ALL, CLAUDE, project)]
    assert (True, False) == (running.drop(A.key), running.drop(A.key))
    assert [1, 1, 0] == [running.used(pool) for pool in (ALL, CLAUDE, project)]
    assert (1, False, True) == (len(running), A.key in running, B.key in running)
    assert (None, Held(B, 1.0)) == (running.get(A.key), running.get(B.key))


def test_the_oldest_is_the_one_that_was_let_in_first() -> None:
    """Whoever has gone meanwhile."""
    running = occupied(A, B, C)
    assert ((A, B, C), A.key) == (running.entries, running.oldest)
    running.drop(A.key)
    assert B.key == running.oldest
    assert None is occupied().oldest


def test_room_is_what_no_limit_takes() -> None:
    """Of the pools, and of a project where that has a limit of its own."""
    running = occupied(A, per_project=1)
    assert (True, True, False) == (
        running.has_room((CLAUDE,)), running.has_room_for("b"), running.has_room_for("a")
    )  # fmt: skip
    running.hold(B, 0)
    assert (False, True) == (running.has_room((CLAUDE,)), running.has_room(()))
    assert occupied(A).has_room_for("a")


def test_the_narrowest_full_pool_is_told() -> None:
    """The project's before the executor's, that before all's."""
    other = Entry(bid=bid("d", "codex"))
    assert (None, CLAUDE, None) == (
        occupied(A).full(B), occupied(A, B).full(C), occupied(A, B).full(other)
    )  # fmt: skip
    assert ALL == occupied(A, B, C).full(other)
    twice = Entry(bid=bid("a", key=TrackKey("a", "2")))
    assert Pool("project", "a") == occupied(A, B, per_project=1).full(twice)


def test_a_copy_goes_its_own_way() -> None:
    """What is tried out on it changes nothing."""
    running = occupied(A)
    twin = running.copy()
    twin.drop(A.key)
    twin.hold(B, 0)
    assert ((A,), (B,), 1) == (running.entries, twin.entries, running.used(CLAUDE))
