"""Stories side by side, as values: which one gets a track of its own, how that begins and ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.playbook import Playbook, dispatched, state_at, track_at

from handoffd.engine.beside import Room, Standing, next_beside, on_desk, standing_of
from handoffd.engine.decision import Accepted, Refusal, Situation
from handoffd.engine.dispatching import wants_turn
from handoffd.engine.events import (
    Continued,
    Landed,
    LandingRefused,
    Paused,
    Reopened,
    Resumed,
    Started,
    StoryClosed,
    StoryOpened,
    TrackClosed,
    TrackOpened,
)
from handoffd.engine.routing import give_back, waits_in_words
from handoffd.engine.run import Cap, Finding, Scope, Usage
from handoffd.engine.track import BacklogPause, HeldEdit, Ledger, Parked, Queued, Track, Workspace, text_of
from handoffd.protocol.state import Status
from handoffd.protocol.story_text import StoryText

THREE_AT_ONCE = Room(parallel=3, waiting=5)
CAPPED = Finding(scope="story", unit="usd", cap=1.0, spent=1.0)
BRANCH = Workspace(folder="/c", kind="clone", branch="handoffd/US-1", base="0")


def at_impl(*backlog: Queued, **ledger: object) -> Track:
    """Return a track `main` that works on US-1, with a backlog."""
    values = {"automatic": True, "backlog": backlog, **ledger}
    return track_at("impl", ledger=Ledger(**values))  # type: ignore[arg-type]


def chosen(desk: Track, *others: Standing, room: Room = THREE_AT_ONCE, own: Standing = "works") -> str | None:
    """Return the story that gets a track of its own."""
    entry = next_beside(desk, (own, *others), room, auto_continue=True)
    return None if entry is None else entry.story


def test_a_schedule_starts_no_story_while_its_last_one_has_a_track_of_its_own() -> None:
    """Of each schedule, one story is enough at a time; another schedule's may begin."""
    desk = at_impl(beside=(Queued(story="NIGHT-1", schedule="nightly"),))
    again = Started(story="NIGHT-2", schedule="nightly", queue=True)
    Playbook(desk).refused(again, "STORY_IN_PROGRESS")
    Playbook(desk).given(replace(again, schedule="weekly")).expect(result="accepted")


# --- a story that could not be landed -------------------------------------------------------------------
def unlanded(*backlog: Queued, **ledger: object) -> Track:
    """Return a track `main` whose story is done, and a person has to land it."""
    values = {"automatic": True, "workspace": BRANCH, "unlanded": "a.py", "backlog": backlog, **ledger}
    return track_at("done", Status.PASS, ledger=Ledger(**values))  # type: ignore[arg-type]


def test_a_story_that_could_not_be_landed_keeps_its_track() -> None:
    """The next one gets its own, and a person can take the first up again; landed, it makes room."""
    desk = unlanded(Queued(story="US-2"))
    assert not wants_turn(desk, auto_continue=True, beside=True)
    assert wants_turn(desk, auto_continue=True), "there is no other track"
    assert "US-2" == chosen(desk, own=standing_of(desk))
    Playbook(desk).given(Reopened(step="impl", note="Merge main.")).expect(story="US-1", step="impl")
    event = Landed(story="US-1", onto="main", commit="0", how="merge")
    assert wants_turn(Playbook(desk).given(event).track, auto_continue=True, beside=True)


def test_what_was_set_aside_for_it_goes_on_all_the_same() -> None:
    """It has no other track than this one."""
    aside = Parked(state=state_at("impl", story="US-0"), ledger=Ledger(), give_back=True)
    assert wants_turn(unlanded(parked=(aside,)), beside=True)
    back = Playbook(unlanded(parked=(aside,))).given(Started(story="US-0", beside=True, keeps_unlanded=True))
    back.expect(story="US-0", step="impl")


@pytest.mark.parametrize("how", [{"beside": True}, {"schedule": "nightly"}])
def test_a_start_queues_behind_a_story_that_could_not_be_landed(how: dict[str, Any]) -> None:
    """Where it begins by itself in a track of its own."""
    play = Playbook(unlanded()).given(Started(story="US-2", keeps_unlanded=True, **how))
    play.expect(story="US-1", step="done", result="accepted")
    assert ["US-2"] == [one.story for one in play.ledger.backlog]


@pytest.mark.parametrize(
    "event", [Started(story="US-2", keeps_unlanded=True), Continued(keeps_unlanded=True)]
)
def test_a_person_lands_it_first_where_nothing_else_begins_by_itself(event: Started | Continued) -> None:
    """The refusal names the command; --force takes the place, as a start of an older release did."""
    play = Playbook(unlanded(Queued(story="US-2"))).refused(event, "STORY_IN_PROGRESS")
    assert isinstance(play.decision.result, Refusal)
    assert "US-1 could not be landed: a.py" == play.decision.result.message
    assert "handoffd land {project} --story US-1" == play.decision.result.next_command
    for taken in (Started(story="US-2", keeps_unlanded=True, force=True), Started(story="US-2")):
        Playbook(unlanded()).given(taken).expect(story="US-2", step="bdd")


# --- a story that the daemon lands just now -------------------------------------------------------------
def landing(*backlog: Queued, **ledger: object) -> Track:
    """Return a track `main` whose story is done and is being landed."""
    values = {"automatic": True, "workspace": BRANCH, "backlog": backlog, **ledger}
    return track_at("done", Status.PASS, ledger=Ledger(**values))  # type: ignore[arg-type]


def test_a_story_keeps_its_track_until_it_has_landed() -> None:
    """It may come back from there to be resolved.

    Neither a schedule nor what was set aside takes its place.
    """
    aside = Parked(state=state_at("impl", story="US-0"), ledger=Ledger(), give_back=True)
    for desk in (landing(Queued(story="US-2", schedule="nightly")), landing(parked=(aside,))):
        assert not wants_turn(desk, beside=True, landing=True)
        assert wants_turn(desk, beside=True), "it has landed"
        assert wants_turn(desk, landing=True), "there is no other track"


@pytest.mark.parametrize(
    "event",
    [
        Started(story="US-2", keeps_unlanded=True, awaits_landing=True),
        Continued(keeps_unlanded=True, awaits_landing=True),
    ],
)
def test_a_start_waits_for_the_landing(event: Started | Continued) -> None:
    """Then it begins by itself, whether or not the project goes on by itself, and beside a refused one."""
    backlog = (Queued(story="US-2"),) if isinstance(event, Continued) else ()
    play = Playbook(landing(*backlog)).given(event).expect(story="US-1", step="done", result="accepted")
    assert "US-2 starts when US-1 has landed" in play.decision.why
    assert not wants_turn(play.track, beside=True, landing=True)
    landed = Playbook(play.track).given(Landed(story="US-1", onto="main", commit="0", how="merge"))
    assert wants_turn(landed.track, beside=True)
    landed.turn().expect(story="US-2", step="bdd")
    refused = Playbook(play.track).given(LandingRefused(story="US-1", why="a.py", stays=True)).track
    entry = next_beside(refused, (standing_of(refused),), THREE_AT_ONCE, auto_continue=False)
    assert entry is not None
    assert "US-2" == entry.story


def test_a_forced_start_takes_the_place_of_a_landing() -> None:
    """That is a person's choice."""
    for story in ("US-2", "US-1"):
        event = Started(story=story, force=True, keeps_unlanded=True, awaits_landing=True)
        Playbook(landing()).given(event).expect(story=story, step="bdd")


def test_a_story_behind_another_one_stays_to_be_landed_when_that_was_refused() -> None:
    """An older release forgot it."""
    desk, refused = at_impl(to_land=("US-0",)), LandingRefused(story="US-0", why="a.py")
    for track in (desk, dispatched("impl").with_ledger(to_land=("US-0",))):
        play = Playbook(track).given(replace(refused, stays=True)).expect(result="accepted", story="US-1")
        assert ("US-0",) == play.ledger.to_land
        assert ["US-0"] == [notice.story for notice in play.notices]
    Playbook(desk).refused(refused, "STALE_FACT")
    over = landing(to_land=("US-0",))
    assert () == Playbook(over).given(refused).ledger.to_land


# --- the standing of a track ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("track", "standing"),
    [
        (Track(), "free"),
        (track_at("bdd", story=None), "free"),
        (track_at("done", Status.PASS), "free"),
        (track_at("done", Status.PASS, ledger=Ledger(workspace=BRANCH, landed=True)), "free"),
        (track_at("done", Status.PASS, ledger=Ledger(workspace=BRANCH)), "over"),
        (track_at("done", Status.PASS, ledger=Ledger(workspace=BRANCH, unlanded="?")), "waits"),
        (track_at("impl", ledger=Ledger(closed=True)), "free"),
        (dispatched("impl"), "works"),
        (track_at("impl"), "works"),
        (track_at("impl", Status.FAILING), "works"),
        (track_at("review", Status.NEEDS_HUMAN), "waits"),
        (track_at("impl", Status.TIMEOUT), "waits"),
        (track_at("impl", ledger=Ledger(paused_by="mei")), "waits"),
        (track_at("impl", ledger=Ledger(capped=CAPPED)), "waits"),
        (track_at("impl", ledger=Ledger(held_edit=HeldEdit(state=state_at(), why="?"))), "waits"),
    ],
)
def test_the_standing_of_a_track(track: Track, standing: Standing) -> None:
    """What runs works, also where it is paused; a story in a clone is not over before it is landed."""
    assert standing == standing_of(track)


def test_a_track_that_something_holds_up_waits() -> None:
    """But not one whose attempt runs."""
    assert "waits" == standing_of(track_at("impl"), held_up=True)
    assert "works" == standing_of(dispatched("impl"), held_up=True)


# --- the state that a person sees first -----------------------------------------------------------------
def at_moment(minute: int, step: str = "impl", status: Status = Status.RUNNING, **ledger: Any) -> Track:
    """Return a track whose attempt began at a minute, and ended a minute later if it has."""
    began = datetime(2026, 1, 1, 0, minute, tzinfo=UTC)
    ended = None if status is Status.RUNNING else began + timedelta(minutes=1)
    return track_at(step, status, dispatched_at=began, completed_at=ended, ledger=Ledger(**ledger))


ASKS = Status.NEEDS_HUMAN


@pytest.mark.parametrize(
    ("tracks", "shown"),
    [
        ((track_at("bdd"), track_at("bdd")), "main"),
        ((at_moment(1), at_moment(2), at_moment(0)), "b"),
        ((at_moment(9), at_moment(2, "review", ASKS), at_moment(1, "review", ASKS)), "c"),
        ((at_moment(1), at_moment(2, status=Status.TIMEOUT), at_moment(3)), "b"),
        ((at_moment(1), at_moment(2), at_moment(0, held_edit=HeldEdit(state=state_at(), why="?"))), "c"),
        ((at_moment(1), at_moment(0, "done", Status.PASS, workspace=BRANCH, unlanded="?")), "b"),
        (
            (at_moment(3), at_moment(0, "review", ASKS, closed=True), at_moment(1, "done", Status.PASS)),
            "main",
        ),
        ((Track(), at_moment(1)), "b"),
        ((track_at("review", ASKS), at_moment(1, "review", ASKS)), "b"),
    ],
)
def test_the_desk_shows_who_waits_longest_else_what_began_last(tracks: tuple[Track, ...], shown: str) -> None:
    """For a person: at a gate, after a failure, with an edit or a landing to decide on; not aborted."""
    assert shown == on_desk(dict(zip(("main", "b", "c"), tracks, strict=False)))


# --- which story is next --------------------------------------------------------------------------------
def test_the_first_that_can_start_is_next_while_there_is_room() -> None:
    """In the order of the backlog; `main` counts, too."""
    desk = at_impl(Queued(story="US-2", blocked_by=("US-1",)), Queued(story="US-3"), Queued(story="US-4"))
    assert "US-3" == chosen(desk)
    assert "US-3" == chosen(desk, "works")
    assert chosen(desk, "works", "works") is None
    assert "US-3" == chosen(desk, "works", "waits", "over")


def test_a_story_that_waits_makes_room_for_the_next_one() -> None:
    """Also with one at a time; but a limited number may wait."""
    desk, one = at_impl(Queued(story="US-2")), Room(parallel=1, waiting=2)
    assert chosen(desk, room=one) is None
    assert "US-2" == chosen(desk, room=one, own="waits")
    assert "US-2" == chosen(desk, "waits", room=one, own="waits")
    assert chosen(desk, "waits", "waits", room=one, own="waits") is None


@pytest.mark.parametrize("own", ["free", "over"])
def test_a_project_without_a_story_in_flight_takes_the_next_one_itself(own: Standing) -> None:
    """As it has always done."""
    assert chosen(at_impl(Queued(story="US-2")), own=own) is None


@pytest.mark.parametrize("ledger", [{"automatic": False}, {"paused_by": "mei"}])
def test_nothing_is_begun_where_people_dispatch_or_have_paused_the_project(ledger: dict[str, object]) -> None:
    """Level 1, a pause of all stories."""
    assert chosen(at_impl(Queued(story="US-2"), **ledger)) is None


EDIT = HeldEdit(state=state_at("verify"), why="?")


@pytest.mark.parametrize(
    "ledger",
    [
        {"paused_by": "mei", "backlog_pause": BacklogPause(by=None)},
        {"closed": True},
        {"held_edit": EDIT},
    ],
)
@pytest.mark.parametrize("own", ["free", "over", "waits"])
def test_what_keeps_the_first_story_keeps_no_other(ledger: dict[str, object], own: Standing) -> None:
    """Paused alone, aborted, edited: the backlog goes on beside it, also with one story at a time."""
    assert "US-2" == chosen(
        at_impl(Queued(story="US-2"), **ledger), own=own, room=Room(parallel=1, waiting=1)
    )


def test_a_pause_of_one_story_is_not_the_backlogs() -> None:
    """Nor is its end; a pause of the project is, until all of it is resumed."""
    both = Playbook(at_impl(Queued(story="US-2")))
    assert "US-2" == chosen(both.given(Paused(by="mei", alone=True)).track, own="waits")
    both.refused(Paused(by="lin", alone=True), "ALREADY_PAUSED")
    assert chosen(both.given(Paused(by="lin")).track, own="waits") is None
    resumed = both.given(Resumed(alone=True))
    assert (None, "lin") == (resumed.ledger.paused_by, resumed.ledger.project_paused_by)
    assert chosen(resumed.track) is None
    assert "US-2" == chosen(resumed.given(Resumed()).track)


def test_a_story_that_is_paused_alone_stays_paused_while_it_is_set_aside() -> None:
    """What takes its place is not paused with it."""
    play = Playbook(at_impl()).given(Paused(by="mei", alone=True))
    play.given(Started(story="FIX", task_type="custom", instruction="repair it"))
    assert (None, None) == (play.ledger.paused_by, play.ledger.project_paused_by)
    back = give_back(Situation(track=play.track, rules=play.rules, now=play.now), play.ledger.parked[0])
    assert ("mei", None) == (back.ledger.paused_by, back.ledger.project_paused_by)


def test_no_story_is_begun_beside_the_bootstrap_of_a_project() -> None:
    """Its papers are one story's work, and the others build on them."""
    new = Queued(story="US-2", bootstrapped=False)
    assert chosen(at_impl(new)) is None
    assert "US-2" == chosen(at_impl(new, stories_done=("US-0",)))


@given(
    st.lists(st.sampled_from(["free", "works", "waits", "over"]), max_size=8),
    st.integers(1, 4),
    st.integers(0, 4),
)
def test_no_more_are_at_work_or_wait_than_there_is_room_for(
    others: list[Standing], parallel: int, waiting: int
) -> None:
    """Whatever the other tracks do; what is over takes no room."""
    found = chosen(at_impl(Queued(story="US-2")), *others, room=Room(parallel=parallel, waiting=waiting))
    room = 1 + others.count("works") < parallel and others.count("waits") <= waiting
    assert room is (found is not None)


# --- what the track with the backlog remembers ----------------------------------------------------------
def opened(*backlog: Queued) -> Playbook:
    """Return a project that works on US-1, and from whose backlog US-2 got a track of its own."""
    return Playbook(at_impl(*backlog)).given(StoryOpened(story="US-2", parallel=3))


def test_a_story_leaves_the_backlog_for_its_own_track() -> None:
    """And is known as in flight: to a story that waits for it, and to a person who asks for it again."""
    later = Queued(story="US-3", blocked_by=("US-2",))
    play = opened(Queued(story="US-2", priority=7), later)
    assert ((later,), ("US-2",)) == (play.ledger.backlog, tuple(one.story for one in play.ledger.beside))
    assert "waits for US-2 (in flight)" == waits_in_words(play.track, later)
    for force in (False, True):
        again = play.given(Started(story="US-2", queue=True, force=force)).decision.result
        assert isinstance(again, Refusal)
        assert ("ALREADY_RUNNING", "US-2 is in flight in a track of its own") == (again.code, again.message)


@pytest.mark.parametrize("entry", [None, Queued(story="US-2", blocked_by=("US-9",))])
def test_a_story_that_cannot_start_by_now_gets_no_track(entry: Queued | None) -> None:
    """A person took it out meanwhile, or had it wait for another one."""
    play = opened(*([] if entry is None else [entry]))
    assert isinstance(play.decision.result, Refusal)
    assert () == play.ledger.beside


def test_when_its_track_has_ended_a_story_is_done_or_given_up() -> None:
    """What it has used stays with the project; a second word about it changes nothing."""
    for done in (True, False):
        play = opened(Queued(story="US-2"))
        closed = StoryClosed(story="US-2", done=done, spent=Usage(input_tokens=5))
        play.given(closed)
        assert ((), done, 5) == (
            play.ledger.beside, "US-2" in play.ledger.stories_done, play.ledger.spent.input_tokens,
        )  # fmt: skip
        assert isinstance(play.given(closed).decision.result, Refusal)
        assert 5 == play.ledger.spent.input_tokens


def test_a_story_that_is_set_aside_does_not_take_those_beside_it_along() -> None:
    """They belong to the project, whatever `main` works on."""
    play = opened(Queued(story="US-2"))
    play.given(Started(story="FIX", task_type="custom", instruction="repair it"))
    assert ("FIX", ["US-2"]) == (play.state.story, [one.story for one in play.ledger.beside])
    assert () == play.ledger.parked[0].ledger.beside


def test_a_start_while_another_story_is_in_flight_is_queued_where_there_are_clones() -> None:
    """It says that the story starts beside it; in the project's own folder it is refused as ever."""
    play = Playbook(at_impl()).given(Started(story="US-2", beside=True))
    assert isinstance(play.decision.result, Accepted)
    assert "US-2 starts beside US-1 when there is room" in play.decision.result.message
    assert ["US-2"] == [entry.story for entry in play.ledger.backlog]
    assert isinstance(Playbook(at_impl()).given(Started(story="US-2")).decision.result, Refusal)


@pytest.mark.parametrize("auto_continue", [False, True])
def test_a_story_that_a_person_starts_beside_another_one_begins_in_any_case(*, auto_continue: bool) -> None:
    """A schedule's and a queued one wait for what the settings say; nothing is set aside for it."""
    play = Playbook(at_impl()).given(Started(story="US-2", then=("US-3",), beside=True, at_once=True))
    assert ((), [True, True]) == (play.ledger.parked, [entry.asked for entry in play.ledger.backlog])
    upcoming = next_beside(play.track, ("works",), THREE_AT_ONCE, auto_continue=auto_continue)
    assert upcoming is not None
    assert "US-2" == upcoming.story
    forced = Playbook(at_impl()).given(Started(story="US-2", force=True, beside=True, at_once=True))
    assert ["US-1"] == [one.state.story for one in forced.ledger.parked]


def test_a_story_that_was_set_aside_goes_on_in_its_own_place() -> None:
    """In a new track it would begin anew."""
    play = Playbook(at_impl()).given(Started(story="US-2", force=True, beside=True, at_once=True))
    play.given(Started(story="US-1", beside=True, at_once=True))
    assert isinstance(play.decision.result, Accepted)
    assert "US-1 waits behind US-2" in play.decision.result.message
    assert "starts by itself when that is done" in play.decision.result.caller_instruction
    assert next_beside(play.track, ("works",), THREE_AT_ONCE, auto_continue=True) is None


def test_a_start_in_a_paused_project_names_the_pause() -> None:
    """As nothing begins before that is over."""
    play = Playbook(at_impl()).given(Paused(by="mei"))
    play.given(Started(story="US-2", beside=True, at_once=True))
    assert isinstance(play.decision.result, Accepted)
    assert "once the project is resumed, which mei has paused" in play.decision.result.message


# --- a story's own track --------------------------------------------------------------------------------
def test_a_track_begins_with_its_story_and_ends_with_nothing() -> None:
    """As it was in the backlog, with its text; at level 2, past the bootstrap."""
    entry = Queued(story="US-2", priority=3, executor=("codex",), complexity="L", instruction="mind the gap")
    text = StoryText(title="Gap", text="Mind it.")
    granted: dict[Scope, Cap] = {"project": Cap(usd=9.0)}
    play = Playbook().given(TrackOpened(project="shop", entry=entry, described=text, granted=granted))
    play.expect(story="US-2", step="bdd", status=Status.PENDING, human_note="mind the gap")
    ledger = play.ledger
    assert (True, ("codex",), "L", granted) == (
        ledger.automatic, ledger.executor, ledger.complexity, ledger.granted,
    )  # fmt: skip
    assert text == text_of(ledger, "US-2")
    play.given(TrackClosed(why="its story is landed"))
    assert Track() == play.track


def test_a_track_does_not_end_while_its_executor_runs() -> None:
    """The end of that must be recorded somewhere."""
    assert isinstance(Playbook(dispatched("impl")).given(TrackClosed(why="?")).decision.result, Refusal)


# --- the landing of a story that is done ----------------------------------------------------------------
DONE_IN_CLONE = Ledger(automatic=True, workspace=BRANCH)


@pytest.mark.parametrize(
    ("event", "landed", "said"),
    [
        (Landed(story="US-1", onto="main", commit="c0"), True, "US-1 is on main now, at c0"),
        (
            Landed(story="US-1", onto="main", commit="c0", untested=True), True,
            "US-1 is on main now, at c0, untested",
        ),
        (
            Landed(story="US-1", onto="main", commit="c0", up_to="impl"), False,
            "US-1 is on main now up to impl, at c0",
        ),
        (
            Landed(story="US-1", onto="handoffd/US-1", commit="c0", how="branch"), True,
            "US-1 is on its branch handoffd/US-1, at c0",
        ),
        (
            Landed(story="US-1", onto="main", commit="c0", how="command", told="pull/12"), True,
            "US-1 was given to stories.land_command, for main: pull/12",
        ),
    ],
)  # fmt: skip
def test_a_story_has_landed_unless_a_part_of_it_is_left(event: Landed, landed: bool, said: str) -> None:
    """And the history says where it is."""
    play = Playbook(track_at("done", Status.PASS, ledger=DONE_IN_CLONE)).given(event)
    assert landed == play.ledger.landed
    assert isinstance(play.decision.result, Accepted)
    assert said == play.decision.result.message
