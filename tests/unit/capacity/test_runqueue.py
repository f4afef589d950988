"""The run queue: turns, head starts, limits; every track is admitted in the end."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.house import bid

from handoffd.capacity.runqueue import ALL, Entry, Held, Limits, Occupancy, Pool, RunQueue, foreseen
from handoffd.engine.track import TrackKey

CLAUDE, CODEX, WEB = Pool("executor", "claude"), Pool("executor", "codex"), Pool("group", "web")
LATER = 1000.0


def entry(project: str, *pools: Pool, track: str = "main", priority: int = 0) -> Entry:
    """Return the entry of a track in these limited pools."""
    executor = next((pool.name for pool in pools if pool.kind == "executor"), "other")
    key = TrackKey(project, track)
    group = next((pool.name for pool in pools if pool.kind == "group"), None)
    return Entry(bid=bid(project, executor, key=key), pools=pools, priority=priority, group=group)


def queue_of(
    *waiting: Entry, total: int = 1, per_project: int | None = None, head_start_s: float = 0, **limits: int
) -> RunQueue:
    """Return a queue in which these asked one after the other; `limits` of executors, by name."""
    pools = {Pool("executor", name): limit for name, limit in limits.items()} | {WEB: 1}
    queue = RunQueue(Limits(total=total, pools=pools, per_project=per_project), head_start_s)
    for number, one in enumerate(waiting):
        queue.ask(one, float(number))
    return queue


def served(queue: RunQueue, now: float = LATER) -> list[str]:
    """Return the admitted projects until there is no room."""
    found = []
    while (key := queue.grant(now)) is not None:
        found.append(key.project)
    return found


def served_in_turn(queue: RunQueue, again: Iterable[Entry] = (), most: int = 20) -> str:
    """Return the admitted projects, each ending before the next; those in `again` ask again then."""
    found, asks = "", {one.key: one for one in again}
    while len(found) < most and (key := queue.grant(LATER + len(found))) is not None:
        found += key.project
        queue.release(key)
        if key in asks:
            queue.ask(asks[key], LATER + len(found))
    return found


def test_projects_take_turns() -> None:
    """Many tracks of one project get no more than one of another; asking again means the end of the queue."""
    many = [entry("a", track=str(number)) for number in range(3)]
    assert "abcaa" == served_in_turn(queue_of(*many, entry("b"), entry("c")))
    assert "abcabcabca" == served_in_turn(queue_of(*map(entry, "abc")), map(entry, "abc"), most=10)


def test_a_project_has_one_turn_however_many_executors_it_uses() -> None:
    """Even if its tracks wait in several queues."""
    own = [entry("a", pool, track=pool.name) for pool in (CLAUDE, CODEX)]
    assert "abca" == served_in_turn(queue_of(*own, entry("b", CODEX), entry("c"), claude=9, codex=9))


def test_a_track_blocked_by_a_limit_keeps_its_turn() -> None:
    """Others pass it while it cannot run; then it is the next."""
    queue = queue_of(entry("a", CLAUDE), entry("b"), entry("c", CLAUDE), entry("d"), total=3, claude=1)
    queue.occupy(entry("x", CLAUDE))
    assert ["b", "d"] == served(queue)
    queue.release(TrackKey("x"))
    assert ["a"] == served(queue)
    queue.release(TrackKey("b"))
    assert [] == served(queue)
    queue.release(TrackKey("a"))
    assert ["c"] == served(queue)


def test_a_blocked_track_keeps_its_turn_beside_its_projects_others() -> None:
    """They are admitted meanwhile, and it is still before later ones."""
    tracks = (entry("a", CLAUDE), entry("a", CODEX, track="2"), entry("b", CLAUDE))
    queue = queue_of(*tracks, total=2, claude=1, codex=1)
    queue.occupy(entry("x", CLAUDE))
    assert ["a"] == served(queue)
    assert TrackKey("a", "2") in queue.running
    queue.release(TrackKey("x"))
    assert ["a"] == served(queue)


def test_a_project_at_its_own_limit_waits_for_itself() -> None:
    """Until one of its tracks ends; it keeps its turn."""
    tracks = [entry("a", track=str(number)) for number in range(3)]
    queue = queue_of(*tracks, entry("b"), entry("c"), total=4, per_project=1)
    assert ["a", "b", "c"] == served(queue)
    assert Pool("project", "a") == queue.running.full(tracks[1])
    queue.release(TrackKey("b"))
    assert [] == served(queue)
    queue.release(TrackKey("a", "0"))
    assert ["a"] == served(queue)
    queue.release(TrackKey("a", "2"))
    assert [] == served(queue)
    queue.release(TrackKey("a", "1"))
    assert 0 == queue.waiting


def test_priority_is_a_head_start() -> None:
    """A point is worth some seconds in the queue: a longer wait beats it."""
    waiting = (entry("a"), entry("b", priority=1), entry("c", priority=2), entry("d", priority=-1))
    assert "cbad" == served_in_turn(queue_of(*waiting, head_start_s=60))
    queue = queue_of(entry("a"), head_start_s=60)
    queue.ask(entry("b", priority=1), 59.0)
    queue.ask(entry("c", priority=1), 61.0)
    assert "bac" == served_in_turn(queue)


def test_important_tracks_do_not_starve_the_others() -> None:
    """However many of them come: after the head start a waiting track is admitted."""
    queue = queue_of(entry("a"), head_start_s=10)
    found = ""
    for now in range(1, 40):
        queue.ask(entry(f"{now % 10}", priority=3), float(now))
        key = queue.grant(float(now))
        assert key is not None
        found += key.project
        queue.release(key)
        if key.project == "a":
            break
        queue.ask(entry(f"{(now + 5) % 10}", priority=3), float(now))
    assert "a" == found[-1]
    assert 20 < len(found) < 40


def test_asking_again_keeps_the_turn() -> None:
    """Also for another executor, or with another priority."""
    queue = queue_of(entry("a", CLAUDE), entry("b", CLAUDE), entry("c", CODEX), claude=1, codex=1)
    queue.ask(entry("a", CLAUDE), LATER)
    queue.ask(entry("b", CODEX), LATER)
    assert [CODEX] == [pool for one, _ in queue.in_order() if one.key.project == "b" for pool in one.pools]
    assert "abc" == served_in_turn(queue)


def test_ten_thousand_tracks_leave_nothing_behind() -> None:
    """They come, ask again, leave and are admitted; the heaps hold no leftovers."""
    queue = queue_of(total=4, claude=2)
    waiting = [entry(f"{number}", *((CLAUDE,) if number % 2 else ())) for number in range(10_000)]
    for _ in range(3):
        for number, one in enumerate(waiting):
            queue.ask(one, float(number))
        for one in waiting[::3]:
            queue.release(one.key)
    assert 1000 == len(foreseen(queue, LATER, 1000))
    count = 0
    while (key := queue.grant(LATER)) is not None:
        count += 1
        queue.release(key)
    assert 10_000 - len(waiting[::3]) == count
    assert (0, 0) == (queue.waiting, sum(map(len, queue._heaps.values())))


# --- random sequences -----------------------------------------------------------------------------

PROJECTS, TRACKS = "abcde", ("1", "2")
LIMITED = strategies.sampled_from([(), (CLAUDE,), (CODEX,), (CLAUDE, WEB), (CODEX, WEB)])


class Coming(RuleBasedStateMachine):
    """Tracks come, run, end and change their wishes; a plain model checks the queue."""

    @initialize(
        total=strategies.integers(1, 4),
        per_project=strategies.sampled_from([None, 1]),
        claude=strategies.integers(1, 2),
        head_start_s=strategies.sampled_from([0.0, 5.0]),
    )
    def begin(self, total: int, per_project: int | None, claude: int, head_start_s: float) -> None:
        """Choose the limits."""
        self.limits = Limits(total=total, pools={CLAUDE: claude, CODEX: 1, WEB: 1}, per_project=per_project)
        self.queue = RunQueue(self.limits, head_start_s)
        self.running: dict[TrackKey, Entry] = {}
        self.waiting: dict[TrackKey, Entry] = {}
        self.adopted = 0
        self.now = 0.0

    def keys(self) -> list[TrackKey]:
        """Return all possible tracks."""
        return [TrackKey(project, track) for project in PROJECTS for track in TRACKS]

    @rule(
        which=strategies.integers(0, 9),
        pools=LIMITED,
        priority=strategies.integers(-1, 1),
        waits=strategies.sampled_from([0.0, 1.0]),
    )
    def ask(self, which: int, pools: tuple[Pool, ...], priority: int, waits: float) -> None:
        """A track asks, or asks again."""
        self.now += waits
        key = self.keys()[which]
        one = entry(key.project, *pools, track=key.track, priority=priority)
        self.queue.ask(one, self.now)
        if key not in self.running or self.running[key].pools != pools:
            self.running.pop(key, None)
            self.waiting[key] = one

    @rule(which=strategies.integers(0, 9), pools=LIMITED)
    def occupy(self, which: int, pools: tuple[Pool, ...]) -> None:
        """A running track is found."""
        key = self.keys()[which]
        one = entry(key.project, *pools, track=key.track)
        self.queue.occupy(one)
        self.waiting.pop(key, None)
        self.running[key] = one
        self.adopted += 1

    @rule(which=strategies.integers(0, 9))
    def leave(self, which: int) -> None:
        """A track ends, or stops waiting."""
        key = self.keys()[which]
        self.queue.release(key)
        self.running.pop(key, None)
        self.waiting.pop(key, None)

    @rule()
    def grant(self) -> None:
        """The next track is admitted: it fits, and no track of its queue is before it."""
        expected = self.queue.next()
        fitting = [one for one in self.waiting.values() if self.fits(one)]
        key = self.queue.grant(self.now)
        assert expected == key
        assert (key is None) == (not fitting)
        if key is not None:
            assert key in {one.key for one in fitting}
            self.running[key] = self.waiting.pop(key)

    @rule(which=strategies.integers(0, 9))
    def end_and_ask_again(self, which: int) -> None:
        """A track ends and goes on at once: it keeps its slot unless a waiting track is before it."""
        key = self.keys()[which]
        kept = self.queue.keeps(key, self.now)
        if key in self.running:
            one = self.running.pop(key)
            trial = self.queue.copy()
            trial.release(key)
            trial.ask(one, self.now)
            first = trial.next()
            if kept:
                assert first is None or first.project == key.project
                self.running[key] = one
            else:
                assert first != key
                assert first is not None or trial.running.full(one) is not None
        else:
            assert not kept

    @precondition(lambda self: len(self.waiting) > 1)
    @rule()
    def foresee(self) -> None:
        """The foreseen order comes true if running tracks end in the order of their start."""
        places = foreseen(self.queue, self.now, 100)
        ahead, found = self.queue.copy(), list[TrackKey]()
        while ahead.waiting:
            key = ahead.grant(self.now)
            if key is not None:
                found.append(key)
            else:
                oldest = ahead.running.oldest
                assert oldest is not None
                ahead.release(oldest)
        assert {key: place for place, key in enumerate(found, 1)} == places
        assert set(self.waiting) == set(places)

    def fits(self, one: Entry) -> bool:
        """Return whether there is room for a track, by the plain model."""
        running = self.running.values()
        if len(running) >= self.limits.total:
            return False
        mine = sum(other.key.project == one.key.project for other in running)
        if self.limits.per_project is not None and mine >= self.limits.per_project:
            return False
        return all(
            sum(pool in other.pools for other in running) < self.limits.pools[pool] for pool in one.pools
        )

    @invariant()
    def is_counted(self) -> None:
        """Every track is where the model has it."""
        if not hasattr(self, "queue"):
            return
        assert set(self.running) == {one.key for one in self.queue.running.entries}
        assert self.waiting == {one.key: one for one, _ in self.queue.in_order()}
        for pool in self.limits.pools:
            assert sum(pool in one.pools for one in self.running.values()) == self.queue.running.used(pool)
        assert [one for one in self.waiting.values() if self.fits(one)] == [
            one for one in self.waiting.values() if self.queue.running.full(one) is None
        ]


TestRandomSequences = Coming.TestCase
TestRandomSequences.settings = settings(max_examples=80, stateful_step_count=40)


class Turns(RuleBasedStateMachine):
    """An endless crowd of one class: each waiting project is admitted before any other is admitted twice."""

    @initialize(
        total=strategies.integers(1, 3),
        crowd=strategies.lists(strategies.sampled_from(PROJECTS), min_size=3, max_size=10),
    )
    def begin(self, total: int, crowd: list[str]) -> None:
        """Queue a crowd."""
        self.queue = RunQueue(Limits(total=total, pools={CLAUDE: 9, CODEX: 9, WEB: 9}))
        self.now = 0.0
        self.number = 0
        self.passed: dict[str, list[str]] = {}
        """For each waiting project: the projects admitted since it began to wait, or since its last turn."""
        for project in crowd:
            self.come(project, ())

    @rule(project=strategies.sampled_from(PROJECTS), pools=LIMITED)
    def come(self, project: str, pools: tuple[Pool, ...]) -> None:
        """One more track of a project asks."""
        self.number += 1
        self.now += 0.5
        self.queue.ask(entry(project, *pools, track=str(self.number)), self.now)
        self.passed.setdefault(project, [])

    @rule()
    def turn(self) -> None:
        """One track ends, one is admitted."""
        self.now += 1
        if (oldest := self.queue.running.oldest) is not None:
            self.queue.release(oldest)
        while (key := self.queue.grant(self.now)) is not None:
            still = {one.key.project for one, _ in self.queue.in_order()}
            self.passed = {
                project: [] if project == key.project else [*passed, key.project]
                for project, passed in self.passed.items()
                if project in still
            }

    @invariant()
    def no_project_is_passed_twice(self) -> None:
        """So with n waiting projects each is admitted within n."""
        for project, passed in getattr(self, "passed", {}).items():
            assert len(set(passed)) == len(passed), f"{project} was passed by {passed}"


TestTurns = Turns.TestCase
TestTurns.settings = settings(max_examples=80, stateful_step_count=40)


@pytest.mark.parametrize("busy", [CLAUDE, CODEX])
def test_a_scarce_executor_takes_turns_too(busy: Pool) -> None:
    """Each project that wants it is admitted once before any is admitted twice."""
    wanted = [entry(name, busy) for name in "abcd"]
    others = [entry(name) for name in "efgh"]
    queue = queue_of(*wanted, *others, total=3, claude=1, codex=1)
    found, asks = "", {one.key: one for one in (*wanted, *others)}
    for now in range(40):
        while (key := queue.grant(LATER + now)) is not None:
            found += key.project
        oldest = queue.running.oldest
        assert oldest is not None
        queue.release(oldest)
        queue.ask(asks[oldest], LATER + now)
    assert "abcdabcd" == "".join(name for name in found if name in "abcd")[:8]
    assert "efghefgh" == "".join(name for name in found if name in "efgh")[:8]


# --- running tracks, counted by pool --------------------------------------------------------------
CLAUDE = Pool("executor", "claude")
A, B, C = (Entry(bid=bid(name), pools=(CLAUDE,)) for name in "abc")


def occupied(*entries: Entry, per_project: int | None = None) -> Occupancy:
    """Return the occupancy while these run."""
    found = Occupancy(Limits(total=3, pools={CLAUDE: 2}, per_project=per_project))
    for since, entry in enumerate(entries):
        found.hold(entry, float(since))
    return found


def test_a_running_track_counts_in_all_its_pools() -> None:
    """Until it ends; dropping an unknown one changes nothing."""
    running = occupied(A, B)
    project = Pool("project", "a")
    assert [2, 2, 1] == [running.used(pool) for pool in (ALL, CLAUDE, project)]
    assert (True, False) == (running.drop(A.key), running.drop(A.key))
    assert [1, 1, 0] == [running.used(pool) for pool in (ALL, CLAUDE, project)]
    assert (1, False, True) == (len(running), A.key in running, B.key in running)
    assert (None, Held(B, 1.0)) == (running.get(A.key), running.get(B.key))


def test_the_oldest_track_was_admitted_first() -> None:
    """Among those that still run."""
    running = occupied(A, B, C)
    assert ((A, B, C), A.key) == (running.entries, running.oldest)
    running.drop(A.key)
    assert B.key == running.oldest
    assert None is occupied().oldest


def test_the_narrowest_full_pool_is_the_reason() -> None:
    """The project before the executor, and that before all."""
    other = Entry(bid=bid("d", "codex"))
    assert (None, CLAUDE, None) == (
        occupied(A).full(B), occupied(A, B).full(C), occupied(A, B).full(other)
    )  # fmt: skip
    assert ALL == occupied(A, B, C).full(other)
    twice = Entry(bid=bid("a", key=TrackKey("a", "2")))
    assert Pool("project", "a") == occupied(A, B, per_project=1).full(twice)
    queue = queue_of(total=2, claude=1)
    for name, pool in (("x", CLAUDE), ("y", WEB)):
        queue.occupy(entry(name, pool))
    assert WEB == queue.running.full(entry("b", CLAUDE, WEB))
