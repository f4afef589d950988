"""The report of hand-made nights: what it lists, and what it leaves out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.supervision import project_view, track_view, whereabouts
from tests.unit.journal.making import KEY, NOW
from tests.unit.report.nights import HOUR, checked, claim, ended, happened, night, ran

from handoffd.engine.track import EXTERNAL, TrackKey
from handoffd.engine.views import ProjectView, ScheduleView
from handoffd.journal.history import Counts
from handoffd.journal.records import LeftOut
from handoffd.report.building import Asked, Fleet, asked_since, build, stories_of, with_places, with_titles
from handoffd.report.rendering import as_text
from handoffd.report.values import MOST_LISTED, CapUse, Report

ROOT = KEY.project
AT = NOW + 3 * HOUR
DONE = {"step": "done", "status": "pass", "waits_for": None}


def built(*views: ProjectView, schedules: tuple[ScheduleView, ...] = (), **parts: Any) -> Report:
    """Return the report of a night over these projects; without any, over one with nothing in flight."""
    fleet = Fleet(views=views or (idle(),), schedules=schedules, caps=(), alive=True)
    return build(night(**parts), fleet, Asked(project=None, at=AT))


def idle(**more: Any) -> ProjectView:
    """Return a project whose story is done."""
    values = {**DONE, "next_command": f"handoffd start {ROOT} STORY"}
    return project_view(ROOT, track_view(**values | more), called="corner")


# --- what came to its end ----------------------------------------------------------------------------
def test_each_story_is_listed_with_its_last_end() -> None:
    """A landing follows the end of the pipeline; a discarded or aborted story is a person's own doing."""
    report = built(
        idle(story="US-2", branch="handoffd/US-2"),
        ends=(
            ended("done", seq=1), ended("landed", seq=3, onto="main", commit="c0" * 20),
            ended("done", seq=4, story="US-2"), ended("aborted", seq=5, story="US-3"),
            ended("discarded", seq=6, story="US-4"),
        ),
    )  # fmt: skip
    assert [("US-2", "done", "handoffd/US-2"), ("US-1", "landed", None)] == [
        (one.story, one.outcome, one.branch) for one in report.landed
    ]
    landed = report.landed[1]
    assert ("corner", "main", "c0" * 20) == (landed.name, landed.onto, landed.commit)


def test_a_story_that_could_not_be_landed_is_not_listed_as_done() -> None:
    """It is at work again, or waits at its gate."""
    again = project_view(ROOT, track_view(story="US-1", step="acceptance"), called="corner")
    assert () == built(again, ends=(ended("done"),)).landed


def test_what_a_person_has_aborted_or_discarded_is_listed_with_the_way_back() -> None:
    """Unless it was asked for again. The branch of one that has landed is only tidied up."""
    kept = "refs/handoffd/US-4/discarded-20260131T231500Z"
    ends = (
        ended("done", seq=1, story="US-4"), ended("discarded", seq=2, story="US-4", kept=kept, by="mei"),
        ended("aborted", seq=3, by="mei"), ended("aborted", seq=4, story="US-5"),
        ended("aborted", seq=5, story="US-6"), ended("landed", seq=6, story="US-7", onto="main"),
        ended("discarded", seq=7, story="US-7", kept=kept),
    )  # fmt: skip
    tracks = (
        track_view(story="US-5", step="impl", status="pending", backlog=("US-6",)),
        track_view(track="US-1", story="US-1", aborted=True),
    )
    told = built(project_view(ROOT, *tracks, called="corner"), ends=ends)

    assert ["US-7"] == [one.story for one in told.landed]
    aborted, discarded = told.dropped
    assert ("US-1", "aborted", "mei", None) == (aborted.story, aborted.outcome, aborted.by, aborted.branch)
    assert ("handoffd start corner US-1", None) == (aborted.command, aborted.instead)
    assert ("US-4", "discarded", kept) == (discarded.story, discarded.outcome, discarded.kept)
    assert f"git -C {ROOT} branch handoffd/US-4 {kept}" == discarded.command

    where = whereabouts(ROOT, branch="handoffd/US-1", says="6 commits")
    aborted, discarded = with_places(told, {(ROOT, "US-1"): where, (ROOT, "US-4"): where}).dropped
    assert ("handoffd/US-1", "6 commits", "handoffd discard corner US-1") == (
        aborted.branch, aborted.says, aborted.instead,
    )  # fmt: skip
    assert discarded.branch is None


def test_a_story_that_is_done_in_the_folder_has_the_command_that_shows_it() -> None:
    """One on a branch waits with that, or is landed."""
    told = built(
        ends=(ended("done"), ended("done", story="US-2", seq=3), ended("landed", story="US-3", seq=4))
    )
    assert [(ROOT, "US-1"), (ROOT, "US-2")] == told.unplaced
    look = f"git -C {ROOT} status"
    here = whereabouts(ROOT, branch=None, would="folder", says="in the project's folder", command=look)
    first = with_places(told, {(ROOT, "US-1"): here}).landed[0]
    assert ("US-1", "in the project's folder", look) == (first.story, first.says, first.command)
    text = as_text(with_places(told, {(ROOT, "US-1"): here}))
    assert "done, in its folder, not committed" in text
    assert look in text


def test_every_project_with_an_event_or_a_wait_has_news() -> None:
    """Whether or not a list has it."""
    assert 0 == built().projects
    events = (happened("agent"), happened("agent", seq=2, key=TrackKey("/srv/blog")))
    assert 3 == built(project_view("/srv/site", track_view()), events=events).projects


def test_a_project_that_is_gone_is_called_like_its_folder() -> None:
    """It has no name any more."""
    (one,) = built(project_view("/srv/other"), ends=(ended("done"),)).landed
    assert "shop" == one.name


def test_a_listed_story_has_its_title() -> None:
    """By root and story; each is asked for once."""
    report = built(project_view(ROOT, track_view()), ends=(ended("done", story="US-002"), ended("done")))
    assert [(ROOT, "US-001"), (ROOT, "US-002"), (ROOT, "US-1")] == sorted(stories_of(report))

    told = with_titles(report, {(ROOT, "US-001"): "Dark mode", (ROOT, "US-002"): "Refunds"})

    assert "Dark mode" == told.waiting[0].title
    assert {"US-002": "Refunds", "US-1": None} == {one.story: one.title for one in told.landed}


# --- what needs a person -----------------------------------------------------------------------------
def test_what_needs_a_person_has_its_command_by_name() -> None:
    """A review has its screen. The one that has waited longest comes first."""
    gate = track_view(next_command=f"handoffd approve {ROOT} --story US-001", completed_at=NOW)
    again = track_view(completed_at=NOW - HOUR, gate=False, next_command="handoffd retry /srv/blog")
    held = project_view("/srv/blog", again)
    report = built(project_view(ROOT, gate, called="corner"), held)
    assert ["handoffd retry blog", "handoffd gate corner"] == [one.command for one in report.waiting]
    assert ("review", "a person's decision", NOW) == (
        report.waiting[1].step, report.waiting[1].why, report.waiting[1].since,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("track", "waits"),
    [
        ({"status": "running"}, False),
        ({"story": None, "status": "pending"}, False),
        ({"status": "pending", "gate": False, "next_command": None, "waits_for": "a slot"}, False),
        ({"step": "done", "status": "pass", "next_command": f"handoffd continue {ROOT}"}, False),
        ({"step": "done", "status": "pass", "to_land": True}, True),
        ({"waits_for": "paused by mei", "needs_you": False}, False),
        ({"waits_for": "aborted by mei", "needs_you": False}, False),
        ({"status": "timeout", "step": "impl"}, True),
    ],
)
def test_only_a_story_that_a_person_must_decide_on_waits(track: dict[str, Any], waits: bool) -> None:
    """A done story waits for its landing only; what status says of it decides."""
    report = built(project_view(ROOT, track_view(**track)))
    assert waits == bool(report.waiting)


def test_what_a_person_has_paused_is_listed_apart_with_the_resume() -> None:
    """It needs no one, and is not forgotten; a project with a backlog only waits for it, too."""
    resume = f"handoffd resume {ROOT}"
    own = {"paused_by": "mei", "needs_you": False, "gate": False, "next_command": resume}
    paused = track_view(**own, step="impl", status="pending", completed_at=NOW - HOUR)
    queued = track_view(**own, **DONE, backlog=("US-2",))
    view = project_view(ROOT, paused, called="corner")
    fleet = Fleet(views=(view,), schedules=(), caps=(), alive=True, since={KEY: NOW})

    told = build(night(), fleet, Asked(project=None, at=AT))

    assert ([KEY], ()) == (asked_since([view])[1], told.waiting)
    assert [("US-001", "impl", "paused by mei", NOW, "handoffd resume corner", None)] == [
        (one.story, one.step, one.why, one.since, one.command, one.instead) for one in told.paused
    ]
    assert 1 == len(built(project_view(ROOT, queued)).paused)
    left = project_view(ROOT, track_view(story="US-2", needs_you=False, unlanded=("US-1",)), called="corner")
    assert [("US-1", "handoffd land corner --story US-1", "handoffd discard corner US-1")] == [
        (one.story, one.command, one.instead) for one in built(left).waiting
    ]
    aside = project_view(ROOT, track_view(story="US-077", parked=("US-001",)), called="corner")
    assert [("US-001", "set aside", "handoffd start corner US-001 --queue")] == [
        (one.story, one.why, one.command) for one in built(aside).paused
    ]
    for over in ({"aborted": True}, {"needs_you": True}, {"step": "done"}):
        assert () == built(project_view(ROOT, replace(paused, **over))).paused


def test_since_when_a_story_waits_is_known_of_an_approval_that_was_taken_back() -> None:
    """Its view has no end of an attempt; the journal knows it."""
    view = project_view(ROOT, track_view())
    assert ([KEY], []) == asked_since([view])
    fleet = Fleet(views=(view,), schedules=(), caps=(), alive=True, since={KEY: NOW})
    assert NOW == build(night(), fleet, Asked(project=None, at=AT)).waiting[0].since


def test_a_story_to_land_says_what_that_would_do_and_how_to_throw_it_away() -> None:
    """A command that is not ours keeps the path."""
    merge = f"git -C {ROOT} merge handoffd/US-001"
    where = whereabouts(ROOT, says="2 commits; landing on main would conflict in a.py", command=merge)
    ended = track_view(step="done", status="pass", to_land=True, next_command=merge, whereabouts=where)

    (waiting,) = built(project_view(ROOT, ended, called="corner")).waiting

    assert "done, 2 commits; landing on main would conflict in a.py" == waiting.why
    assert (merge, "handoffd discard corner US-001") == (waiting.command, waiting.instead)


def test_a_failed_step_has_its_log_before_the_next_attempt() -> None:
    """Another attempt costs as much as the last one."""
    retry, log = f"handoffd retry {ROOT}", f"handoffd log {ROOT}"
    failed = track_view(step="impl", gate=False, next_command=retry, look_command=log)

    (waiting,) = built(project_view(ROOT, failed, called="corner")).waiting

    assert ("handoffd log corner", "handoffd retry corner") == (waiting.command, waiting.instead)


def test_a_story_done_by_hand_is_not_listed() -> None:
    """A person who works by hand knows; its gate is listed."""
    by_hand = track_view(status="pending", step="bdd", gate=False, needs_you=False)
    assert () == built(project_view(ROOT, by_hand, level=1)).waiting
    assert 1 == len(built(project_view(ROOT, track_view(), level=1)).waiting)


def test_a_broken_project_and_held_edits_wait() -> None:
    """Each with its own command; a broken one hides the rest."""
    broken = project_view(ROOT, track_view(), condition="locked", detail="pid 7 has it", since=NOW)
    (one,) = built(broken).waiting
    assert ("pid 7 has it", None, NOW) == (one.why, one.story, one.since)
    trust, gate = built(project_view(ROOT, track_view(completed_at=NOW), held=("test.command",))).waiting[
        ::-1
    ]
    assert ("handoffd trust shop", "US-001") == (trust.command, gate.story)


# --- what failed -------------------------------------------------------------------------------------
def test_a_step_that_failed_is_one_line() -> None:
    """By the verdict on its last failed attempt; what did not pass comes first."""
    report = built(
        runs=(
            ran("d1", result="failing", why="1 test fails"), ran("d2", result="timeout", why="no hand-off"),
            ran("d3"), ran("d4", step="verify", result="failing", why="lint"),
            ran("d5", step="bdd", result="interrupted"),
        )
    )  # fmt: skip
    assert [("verify", 1, "lint", False), ("impl", 2, "no hand-off", True)] == [
        (one.step, one.attempts, one.why, one.passed) for one in report.failed
    ]


def test_a_failure_has_the_words_of_the_agent_that_gave_up() -> None:
    """Its reason and its words; the journal has only that it failed."""
    gave_up = ran(result="failing", why="failing claimed")
    words = claim("failing", reason="scope_warning", summary="The story is two.")

    (one,) = built(runs=(gave_up,), events=(words,)).failed

    assert "the agent: scope_warning, The story is two." == one.why


@pytest.mark.parametrize("outcome", ["crash", "lost", "no_handoff", "memory_limit"])
def test_an_attempt_that_ended_without_a_verdict_has_failed(outcome: str) -> None:
    """As on the screen of a gate; what a limit or a person has ended, or has to answer, has not."""
    runs = (
        ran("d1", result="interrupted", outcome=outcome, why="how it ended"),
        ran("d2", result="interrupted", outcome="limit", why="5 hours"),
        ran("d3", result="interrupted", why="the daemon stops"), ran("d4", result="needs_human"), ran("d5"),
    )  # fmt: skip
    (one,) = built(runs=runs).failed
    assert (1, "how it ended", True) == (one.attempts, one.why, one.passed)


def test_what_failed_after_the_night_is_not_its_own() -> None:
    """A report of an earlier time stays what it was."""
    late = ran("d2", ended=NOW + 3 * HOUR, result="failing", why="pass claimed, but 1 test fails")
    events = (claim(tests=Counts(5)), checked(Counts(3, 2)))
    report = built(events=events, runs=(replace(late, id="d1"), ran("d3")))
    assert ((), (), 1) == (report.failed, report.false, report.cost.running)


def test_a_false_claim_is_listed_with_its_attempt() -> None:
    """And with the measurement."""
    events = (claim(tests=Counts(5)), checked(Counts(3, 2)))
    (one,) = built(events=events, runs=(ran(result="failing", why="2 tests fail"),)).false
    assert ("corner", "US-1", "impl", 1, "d1") == (one.name, one.story, one.step, one.attempt, one.run)
    assert ("tests", "5 pass, 0 fail", "3 pass, 2 fail") == (one.about, one.claimed, one.measured)


def test_a_story_that_ended_all_the_same_has_passed() -> None:
    """A person may have skipped the step."""
    (one,) = built(runs=(ran(result="failing"),), ends=(ended("done"),)).failed
    assert one.passed


# --- cost, and what is missing -----------------------------------------------------------------------
def test_the_cost_is_of_the_runs_that_ended_in_the_night() -> None:
    """What is not known is counted apart; a person's own attempts cost nothing here."""
    runs = (
        ran("d1"), ran("d2", tokens=None, cost_usd=None), ran("d3", cost_usd=None),
        ran("d4", ended=None), ran("d5", ended=NOW + 2 * HOUR), ran("d6", executor=EXTERNAL),
    )  # fmt: skip
    cost = built(runs=runs).cost
    assert (3, 1, 1, 200, 0.5, 2) == (
        cost.runs, cost.unmeasured, cost.unpriced, cost.tokens, cost.usd, cost.running,
    )  # fmt: skip


def test_the_shared_caps_are_shown_beside_it() -> None:
    """As they were asked for."""
    cap = CapUse(scope="day", unit="usd", spent=4.0, cap=20.0)
    fleet = Fleet(views=(), schedules=(), caps=(cap,), alive=True)
    assert (cap,) == build(night(), fleet, Asked(project=None, at=AT)).cost.caps


def test_events_that_are_not_kept_are_mentioned() -> None:
    """If their numbers are between two events of the night."""
    events = (happened("slot", seq=5), happened("slot", seq=9))

    def missing(after: int, following: int) -> str | None:
        asked = Asked(project=None, at=AT, left_out=(LeftOut(after, following, "a backup was restored"),))
        fleet = Fleet(views=(), schedules=(), caps=(), alive=True)
        return build(night(events=events), fleet, asked).incomplete

    assert "a backup was restored" == missing(5, 9)
    assert missing(1, 5) is None
    assert built().incomplete is None


# --- what goes on ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("track", "coming"),
    [
        ({"status": "running", "step": "impl"}, ("US-001", "impl", None)),
        (
            {"status": "pending", "step": "impl", "next_command": None, "waits_for": "claude's usage limit"},
            ("US-001", "impl", "claude's usage limit"),
        ),
        ({"status": "needs_human"}, None),
        ({"status": "pending", "next_command": f"handoffd resume {ROOT}"}, None),
        ({**DONE, "next_story": "US-002", "next_by_itself": True}, ("US-002", None, None)),
        ({**DONE, "next_story": "US-002"}, None),
    ],
)
def test_what_waits_for_no_person_goes_on(
    track: dict[str, Any], coming: tuple[str, str | None, str | None] | None
) -> None:
    """The story in flight, or the next one if it starts by itself."""
    report = built(project_view(ROOT, track_view(**track)))
    assert ([coming] if coming else []) == [(one.story, one.step, one.waits_for) for one in report.next]


def test_the_backlog_follows_where_it_starts_by_itself() -> None:
    """In its order, without the story that is next anyway."""
    track = track_view(
        step="done", status="pass", next_story="US-002", next_by_itself=True, backlog=("US-002", "US-003")
    )
    (one,) = built(project_view(ROOT, track, auto_continue=True)).next
    assert ("US-002", ("US-003",)) == (one.story, one.then)
    running = track_view(status="running", backlog=("US-002",))
    (one,) = built(project_view(ROOT, running)).next
    assert () == one.then


def test_schedules_of_the_next_day_are_known(schedule: ScheduleView) -> None:
    """The soonest first; what is due later is left out."""
    at = [AT + timedelta(hours=hours) for hours in (30, 9, 3)]
    report = built(schedules=tuple(replace(schedule, next_at=one) for one in at))
    assert [at[2], at[1]] == [one.at for one in report.next]
    assert {("corner", "REVIEW-7")} == {(one.name, one.story) for one in report.next}


@pytest.fixture
def schedule() -> ScheduleView:
    """A schedule of the project."""
    values: dict[str, Any] = dict.fromkeys(ScheduleView.__struct_fields__)
    values |= {"project": ROOT, "schedule": "nightly", "story": "REVIEW-7", "own": False, "cron": "0 3 * * *"}
    return ScheduleView(**values)


# --- how much ----------------------------------------------------------------------------------------
def test_long_lists_are_cut_and_counted() -> None:
    """A report is read, and travels."""
    ends = tuple(ended("done", seq=number, story=f"US-{number}") for number in range(MOST_LISTED + 3))
    report = built(ends=ends)
    assert (MOST_LISTED, 3) == (len(report.landed), report.more.landed)


def test_a_night_without_any_event_is_quiet() -> None:
    """Though a story may wait for a person since before."""
    assert built(project_view(ROOT, track_view())).is_quiet
    assert not built(events=(happened("slot"),)).is_quiet
