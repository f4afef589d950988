"""A backlog: what people do with it, its order, and stories that would wait for each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.playbook import Playbook, dispatched, state_at, track_at

from handoffd.engine.decision import Accepted, Finished
from handoffd.engine.events import (
    Aborted,
    AutoContinueChosen,
    BacklogEdited,
    BacklogMoved,
    BacklogRemoved,
    Continued,
    Paused,
    PromptTaken,
    Started,
)
from handoffd.engine.routing import (
    Blocker,
    before,
    behind,
    blockers,
    circle,
    entry_of,
    unasked,
    waits_in_words,
    without,
)
from handoffd.engine.track import HeldEdit, Ledger, Parked, Queued, Track, startable, unmet
from handoffd.protocol.state import Status

THREE = (Queued(story="a", priority=5), Queued(story="b"), Queued(story="c", priority=-5))


def waiting(*entries: Queued, **ledger: object) -> Playbook:
    """Return a project that is done with US-1, behind which `entries` wait."""
    values = {"automatic": True, "backlog": entries, "stories_done": ("US-1",), **ledger}
    return Playbook(track_at("done", Status.PASS, ledger=Ledger(**values)))  # type: ignore[arg-type]


def order(play: Playbook) -> list[tuple[str, int]]:
    """Return the stories of the backlog with their priorities."""
    return [(entry.story, entry.priority) for entry in play.ledger.backlog]


# --- continue -------------------------------------------------------------------------------------
def test_continue_starts_the_first_that_can_start_as_it_was_asked_for() -> None:
    """And leaves the level as it is; the stories that were passed over are in the grounds."""
    entry = Queued(story="US-3", agent_teams=True, executor=("codex",), complexity="L", schedule="nightly")
    play = waiting(Queued(story="US-2", blocked_by=("US-9",)), entry, automatic=False).given(Continued())

    play.expect(story="US-3", step="bdd", status=Status.PENDING, agent_teams=True, orders="write_checklist")
    ledger = play.ledger
    assert (("codex",), "L", "nightly") == (ledger.executor, ledger.complexity, ledger.schedule)
    assert not ledger.automatic
    assert ["US-2"] == [queued.story for queued in ledger.backlog]
    grounds = {ground.rule: ground.value for ground in play.decision.grounds}
    assert "US-2 waits for US-9" in grounds["backlog.passed_over"]


FIRST, NEXT = Queued(story="US-1", bootstrapped=False), (Queued(story="US-2"),)
INTERRUPTED = Parked(state=state_at("impl"), ledger=Ledger(), give_back=True)


@pytest.mark.parametrize(
    ("track", "story", "step"),
    [
        # after an abort: the aborted one is closed
        (track_at("impl", Status.NEEDS_HUMAN, ledger=Ledger(closed=True, backlog=NEXT)), "US-2", "bdd"),
        # in a new project, as it was when the story was asked for
        (track_at("bootstrap", story=None, ledger=Ledger(backlog=(FIRST,))), "US-1", "bootstrap"),
        # a story that a task interrupted comes before a new one
        (track_at("done", Status.PASS, ledger=Ledger(parked=(INTERRUPTED,), backlog=NEXT)), "US-1", "impl"),
    ],
)
def test_continue_starts_the_next_story_at_its_step(track: Track, story: str, step: str) -> None:
    """Nothing is dispatched yet."""
    Playbook(track).given(Continued()).expect(story=story, step=step, status=Status.PENDING)


def test_continue_is_refused_where_it_would_start_nothing() -> None:
    """In flight, paused, blocked with the reason, or nothing waits."""
    Playbook(track_at("impl")).refused(Continued(), "STORY_IN_PROGRESS")
    Playbook(dispatched("impl")).refused(Continued(), "ALREADY_RUNNING")
    waiting(*THREE, paused_by="mei").refused(Continued(), "PAUSED")
    waiting().refused(Continued(), "BACKLOG_EMPTY")
    play = waiting(*(Queued(story=f"US-{n}", blocked_by=("US-9",)) for n in range(2, 7)))
    play.refused(Continued(), "BLOCKED")
    assert "US-2 waits for US-9 (never started, and not in the backlog)" in play.decision.why
    assert "and 2 more" in play.decision.why


# --- move -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("event", "after"),
    [
        (BacklogMoved(story="c"), [("c", 5), ("a", 5), ("b", 0)]),
        (BacklogMoved(story="a", last=True), [("b", 0), ("c", -5), ("a", -5)]),
        (BacklogMoved(story="c", before="b"), [("a", 5), ("c", 0), ("b", 0)]),
        (BacklogMoved(story="a", before="c"), [("b", 0), ("a", 0), ("c", -5)]),
        (BacklogMoved(story="b", before="c"), [("a", 5), ("b", 0), ("c", -5)]),
        (BacklogMoved(story="a"), [("a", 5), ("b", 0), ("c", -5)]),
    ],
)
def test_a_story_is_where_it_was_moved_to(event: BacklogMoved, after: list[tuple[str, int]]) -> None:
    """With the nearest priority that belongs there."""
    assert after == order(waiting(*THREE).given(event))


def test_only_a_story_of_the_backlog_can_be_moved() -> None:
    """The answer names them."""
    play = waiting(*THREE).refused(BacklogMoved(story="d"), "NOT_IN_BACKLOG")
    assert "waiting: a, b, c" in play.decision.why
    play.refused(BacklogMoved(story="a", before="d"), "NOT_IN_BACKLOG")
    play.refused(BacklogMoved(story="a", before="a"), "NOT_IN_BACKLOG")


# --- edit, remove ---------------------------------------------------------------------------------
def test_an_edit_changes_what_was_given_and_no_more() -> None:
    """Another priority is another place."""
    play = waiting(*THREE).given(BacklogEdited(story="c", priority=5, complexity="M"))
    assert [("a", 5), ("c", 5), ("b", 0)] == order(play)
    assert "M" == play.ledger.backlog[1].complexity

    play.given(BacklogEdited(story="c", blocked_by=("a",), executor=("codex",)))
    entry = play.ledger.backlog[1]
    assert (("a",), ("codex",)) == (entry.blocked_by, entry.executor)
    assert ("M", 5) == (entry.complexity, entry.priority)
    play.given(BacklogEdited(story="c", blocked_by=()))
    assert () == play.ledger.backlog[1].blocked_by


def test_an_edit_closes_no_circle() -> None:
    """It is refused with the stories in it."""
    play = waiting(Queued(story="a", blocked_by=("b",)), Queued(story="b"))
    play.refused(BacklogEdited(story="b", blocked_by=("a",)), "BLOCKED_IN_CIRCLE")
    assert "b → a → b" in play.decision.why
    play.refused(BacklogEdited(story="b", blocked_by=("b",)), "BLOCKED_IN_CIRCLE")
    play.refused(BacklogEdited(story="d", priority=1), "NOT_IN_BACKLOG")


def test_stories_are_removed_together_or_not_at_all() -> None:
    """A slip of the finger takes nothing out."""
    play = waiting(*THREE).refused(BacklogRemoved(stories=("a", "d")), "NOT_IN_BACKLOG")
    assert [("b", 0)] == order(play.given(BacklogRemoved(stories=("a", "c"))))


# --- one after another ----------------------------------------------------------------------------
def test_a_person_may_choose_whether_it_goes_on_by_itself() -> None:
    """For all stories from then on, until it is left to the settings again."""
    play = waiting(*THREE).given(AutoContinueChosen(on=True)).given(Continued())
    assert play.ledger.auto_continue is True
    assert isinstance(play.decision.result, Accepted)
    for on in (False, None):
        assert on is play.given(AutoContinueChosen(on=on)).ledger.auto_continue


def test_a_persons_choice_outlives_a_task_in_between() -> None:
    """It is the project's, and no story's."""
    play = Playbook(track_at("impl")).given(Started(story="C-1", task_type="custom"))
    play.given(AutoContinueChosen(on=True)).step_passes().step_passes().turn().turn()
    play.expect(story="US-1", step="impl")
    assert play.ledger.auto_continue is True


def test_the_next_story_starts_at_its_turn() -> None:
    """One after another, the blocked one after what it waits for; then there is none."""
    play = waiting(
        Queued(story="C-2", task_type="custom", blocked_by=("C-3",)),
        Queued(story="C-3", task_type="custom"),
        Queued(story="C-4", blocked_by=("C-9",)),
    )
    for story in ("C-3", "C-2"):
        play.turn(auto_continue=True).expect(story=story, step="custom", status=Status.PENDING)
        assert "auto_continue" in [ground.rule for ground in play.decision.grounds]
        play.step_passes().step_passes().turn(auto_continue=True).expect(result="done", step="done")
        [notice] = play.notices
        assert notice.why is not None
        assert "C-4 waits for C-9 (never started, and not in the backlog)" in notice.why
        assert (story == "C-3") == ("C-2 is next" in notice.why)
        assert (story == "C-3") == (notice.action is None)
    before = play.track
    assert before == play.turn(auto_continue=True).track
    assert ["C-4"] == [queued.story for queued in play.ledger.backlog]


def test_what_a_schedule_queued_starts_without_being_asked_for() -> None:
    """It was due: of several, those that may, before a person's that wait for a `continue`."""
    play = waiting(
        Queued(story="a"),
        Queued(story="NEVER", blocked_by=("US-9",), schedule="a"),
        Queued(story="NIGHT", task_type="custom", schedule="b"),
        Queued(story="TIDY", task_type="custom", schedule="c"),
    ).turn()
    play.expect(story="NIGHT", step="custom", status=Status.PENDING)
    grounds = {ground.rule: ground.value for ground in play.decision.grounds}
    assert "queue" == grounds["schedule.overlap"]
    assert "a waits for a `continue`; NEVER waits for US-9 (" in grounds["backlog.passed_over"]
    [notice] = play.step_passes().step_passes().turn().expect(result="done", step="done").notices
    assert (True, None) == ("TIDY is next" in str(notice.why), notice.action)
    assert play.decision.result.next_command is None
    play.turn().expect(story="TIDY").step_passes().step_passes().turn()
    assert play.track == play.turn().track
    assert ["a", "NEVER"] == [queued.story for queued in play.ledger.backlog]


HELD = HeldEdit(state=state_at("review"), why="STATE.json was edited")


@pytest.mark.parametrize(
    "ledger", [{"automatic": False}, {"paused_by": "mei"}, {"closed": True}, {"held_edit": HELD}]
)
def test_what_a_schedule_queued_waits_where_people_dispatch(ledger: dict[str, object]) -> None:
    """It does not start by itself: the answer names what a `continue` starts."""
    play = waiting(Queued(story="a"), Queued(story="NIGHT", schedule="b"), **ledger).turn()
    assert unasked(play.ledger, auto_continue=True) is None
    play.expect(story="US-1", step="done")


def test_what_was_set_aside_goes_on_when_its_turn_in_the_backlog_comes() -> None:
    """As `start` would have it: what was done of it is not done again."""
    parked = Parked(state=state_at("impl", story="NIGHT"), ledger=Ledger(schedule="b"), give_back=False)
    play = waiting(Queued(story="NIGHT", schedule="b"), parked=(parked,)).turn()

    play.expect(story="NIGHT", step="impl")
    assert ((), ()) == (play.ledger.backlog, play.ledger.parked)
    assert "backlog.next" in [ground.rule for ground in play.decision.grounds]


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (Status.NEEDS_HUMAN, None, ("needs_human", "review of NIGHT waits for a person")),
        (Status.TIMEOUT, "out of time", ("timeout", "out of time")),
    ],
)
def test_a_story_that_waited_when_it_was_set_aside_has_a_notice_again(
    status: Status, error: str | None, expected: tuple[str, str]
) -> None:
    """However it is taken up: the earlier notice is settled by now."""
    waited = state_at("review", status, story="NIGHT", last_error=error)
    parked, entry = (
        Parked(state=waited, ledger=Ledger(), give_back=False),
        Queued(story="NIGHT", schedule="b"),
    )
    idle = track_at("bootstrap", story=None).with_ledger(backlog=(entry,), parked=(parked,))
    aborted = Playbook(track_at("impl", ledger=idle.ledger)).given(Aborted())
    for play in (
        waiting(entry, parked=(parked,)).turn(),
        waiting(replace(entry, schedule=None), parked=(parked,)).given(Continued()),
        waiting(parked=(replace(parked, give_back=True),)).turn(),
        waiting(parked=(parked,)).given(Started(story="NIGHT")),
        Playbook(idle).turn(),
        aborted.given(Continued()),
    ):
        play.expect(story="NIGHT", step="review", status=status)
        [notice] = play.notices
        assert expected == (notice.notice, notice.text)
        assert notice.action is not None


def test_the_end_of_a_story_at_level_1_names_what_a_continue_starts() -> None:
    """A person who took the last prompt need not wait for what a schedule queued."""
    backlog = (Queued(story="US-2"), Queued(story="NIGHT", schedule="b"))
    ledger = Ledger(automatic=False, backlog=backlog)
    play = Playbook(track_at("update-memory", Status.PASS, ledger=ledger)).given(PromptTaken(dispatch="d1"))
    result = play.decision.result
    assert isinstance(result, Finished)
    assert "US-2" == result.next_story
    assert result.caller_instruction.endswith("to start US-2: handoffd continue {project}")
    assert [result.next_command] == [notice.action for notice in play.notices]
    play.given(Continued()).expect(story="US-2")


def test_nothing_starts_by_itself_unless_it_shall() -> None:
    """Not by default, at a pause, while nothing can start, or behind a story that waits for a person."""
    for status in (Status.NEEDS_HUMAN, Status.TIMEOUT):
        track = track_at("impl", status).with_ledger(backlog=NEXT)
        Playbook(track).turn(auto_continue=True).expect(story="US-1")
    for play in (
        waiting(*THREE).turn(),
        waiting(*THREE, paused_by="mei").turn(auto_continue=True),
        waiting(*THREE).given(Paused()).turn(auto_continue=True),
        waiting(Queued(story="US-2", blocked_by=("US-9",))).turn(auto_continue=True),
        waiting(*THREE, closed=True).turn(auto_continue=True),
    ):
        play.expect(story="US-1", step="done")


# --- order and circles -------------------------------------------------------------------------------
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
    assert backlog[1] is entry_of(Ledger(backlog=backlog), "a")
    assert entry_of(Ledger(backlog=backlog), "d") is None
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
    """In flight, in the backlog, set aside, or unknown, as an aborted one; a done story is not waited for."""
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
    aborted = track_at("impl", ledger=Ledger(closed=True))
    assert "unknown" == blockers(aborted, Queued(story="US-2", blocked_by=("US-1",)))[0].kind


def test_the_story_in_flight_and_those_set_aside_are_part_of_a_circle() -> None:
    """They would never be done either; a story that is done closes none."""
    done = track_at("done", ledger=Ledger(stories_done=("US-1",)), blocked_by=("US-2",))
    assert circle(done, [Queued(story="US-2", blocked_by=("US-1",))]) is None
    blocked = track_at("bdd", blocked_by=("US-2",))
    assert ("US-2", "US-1", "US-2") == circle(blocked, [Queued(story="US-2", blocked_by=("US-1",))])
    waits = state_at("impl", story="US-3", blocked_by=("US-2",))
    parked = Parked(state=waits, ledger=Ledger(), give_back=False)
    aside = track_at("bdd", ledger=Ledger(parked=(parked,)))
    assert ("US-2", "US-3", "US-2") == circle(aside, [Queued(story="US-2", blocked_by=("US-3",))])
