"""The plan of made-up evenings: what comes of each story, and what stops it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.supervision import track_view, whereabouts
from tests.unit.forecast.evenings import (
    MINUTE,
    MORNING,
    NOW,
    OPEN,
    PAST,
    SHIPPED,
    STEPS,
    at,
    by_story,
    evening,
    planned,
    project,
)

from handoffd.capacity.accounts import AccountView
from handoffd.engine.run import Cap, Finding, Usage
from handoffd.engine.track import Dispatch, Facts, HeldEdit, Ledger, Parked, Phase, Queued, Track, Workspace
from handoffd.engine.views import ProjectView, ScheduleView
from handoffd.engine.wording import repair_command
from handoffd.forecast.plan import MOST_LISTED, Stop, Tonight
from handoffd.forecast.planning import plan
from handoffd.forecast.simulation import MOST_STEPS
from handoffd.forecast.snapshot import Estimate, ProjectNow
from handoffd.inspection.own_files import shipped_layers
from handoffd.protocol.rule_merge import Layer
from handoffd.protocol.rulebook import build_rulebook
from handoffd.protocol.rules import RuleBook
from handoffd.protocol.state import Status
from handoffd.settings.model import CapSettings, SchedulingSettings
from handoffd.settings.notify import QuietSettings

CLONES: dict[str, Any] = {"workspace": {"kind": "clone"}, "stories": {"parallel": 2, "land": "auto"}}


def only(night: Tonight) -> Stop:
    """Return the only entry of what stops a night."""
    (stop,) = night.stops
    return stop


def schedule(**more: Any) -> ScheduleView:
    """Return a schedule that starts US-9 at midnight."""
    values: dict[str, Any] = dict.fromkeys(ScheduleView.__struct_fields__)
    values |= {
        "project": "/srv/shop", "schedule": "nightly", "own": False, "cron": "0 0 * * *", "timezone": "UTC",
        "story": "US-9", "overlap": "skip", "catch_up": "none", "next_at": NOW + timedelta(hours=2),
    }  # fmt: skip
    return ScheduleView(**values | more)


def limit(**more: Any) -> AccountView:
    """Return an account that is limited until one in the morning."""
    values: dict[str, Any] = {
        "account": "claude", "kind": "limit", "since": NOW, "until": NOW + timedelta(hours=3),
        "why": "5 hours", "executors": ("claude",), "tried_by": None, "waiting": 1,
    }  # fmt: skip
    return AccountView(**values | more)


# --- what comes of a story ----------------------------------------------------------------------------
def test_a_story_in_flight_takes_its_steps_and_the_backlog_follows() -> None:
    """One after another, in the order of the backlog, each step as long as it took before."""
    night = planned(project("US-2", state=at("verify")))
    first, second = night.stories

    assert ("US-1", "done", NOW + 20 * MINUTE) == (first.story, first.outcome, first.ends_at)
    assert ("verify", "update-memory") == tuple(step.step for step in first.steps)
    assert ("US-2", "done", STEPS) == (second.story, second.outcome, tuple(one.step for one in second.steps))
    assert first.ends_at == second.steps[0].starts_at
    assert () == night.stops


def test_a_step_that_runs_ends_when_its_time_is_over() -> None:
    """What it has behind it is not waited for again, and it holds its slot."""
    flight = Dispatch(
        id="d1",
        story="US-1",
        step="verify",
        attempt=1,
        executor="claude",
        decided_at=NOW,
        phase=Phase.EXECUTING,
    )
    running = at("verify", status=Status.RUNNING, dispatched_at=NOW - 4 * MINUTE)
    night = planned(project(state=running, dispatch=flight), project("US-7", root="/srv/blog"), slots=1)
    story = by_story(night)["US-1"]
    assert (NOW - 4 * MINUTE, NOW + 6 * MINUTE) == (story.steps[0].starts_at, story.steps[0].ends_at)
    assert NOW + 6 * MINUTE <= by_story(night)["US-7"].steps[0].starts_at


def test_a_step_that_has_passed_is_not_taken_again() -> None:
    """Its turn only moves the story on."""
    night = planned(project(state=at("impl", status=Status.PASS)))
    assert ["verify", "update-memory"] == [step.step for step in night.stories[0].steps]


def test_what_is_not_over_by_morning_goes_on_or_is_not_begun() -> None:
    """The plan ends at the time that was asked for."""
    night = planned(project("US-1", "US-2", "US-3"), until=NOW + 90 * MINUTE)
    assert {"done": 1, "goes_on": 1, "waits": 1, "stops": 0} == night.outcomes
    assert "its turn does not come in that time" == by_story(night)["US-3"].why


def test_more_urgent_stories_and_blockers_come_first() -> None:
    """The backlog's own order, but for stories that wait for another one."""
    late = Queued(story="US-1", blocked_by=("US-3",))
    night = planned(project(late, "US-2", "US-3"))
    assert ["US-2", "US-3", "US-1"] == [one.story for one in night.stories]
    assert by_story(night)["US-3"].ends_at == by_story(night)["US-1"].steps[0].starts_at
    assert ("US-3",) == by_story(night)["US-1"].blocked_by


def test_stories_in_clones_go_side_by_side() -> None:
    """As many as the settings let work at once; one that waits for another begins when that is landed."""
    after = Queued(story="US-3", blocked_by=("US-2",))
    night = planned(project("US-1", "US-2", after, "US-4", settings=CLONES, stories_done=("US-0",)))
    found = by_story(night)
    assert NOW == found["US-1"].steps[0].starts_at == found["US-2"].steps[0].starts_at
    assert 2 == night.slots.most
    assert found["US-2"].ends_at is not None
    assert found["US-2"].ends_at <= found["US-3"].steps[0].starts_at


def test_a_clone_that_a_person_lands_keeps_what_waits_for_it() -> None:
    """Its story is done, and not in the project yet."""
    settings = {**CLONES, "stories": {"parallel": 2, "land": "ask"}}
    after = Queued(story="US-3", blocked_by=("US-2",))
    night = planned(project("US-1", "US-2", after, settings=settings, stories_done=("US-0",)))
    assert "done" == by_story(night)["US-2"].outcome
    assert "waits" == by_story(night)["US-3"].outcome
    (land,) = [one for one in night.stops if one.kind == "land"]
    assert "handoffd land shop --story US-2" == land.command


def test_a_story_that_could_not_be_landed_waits_for_a_person_beside_the_next_one() -> None:
    """No other story takes its track; one that waits is as many as may, here."""
    state = at("done", status=Status.PASS, completed_at=NOW)
    branch = Workspace(folder="/c", kind="clone", branch="handoffd/US-1", base="0")
    for waiting, outcome in ((1, "done"), (0, "waits")):
        settings = {**CLONES, "stories": {"parallel": 1, "land": "auto", "waiting": waiting}}
        now = project(
            "US-2", state=state, settings=settings, workspace=branch, unlanded="a.py", stories_done=("US-0",)
        )
        assert outcome == by_story(planned(now))["US-2"].outcome


def test_a_story_that_was_set_aside_is_taken_up_again() -> None:
    """By a custom task, behind that."""
    aside = Parked(state=at("impl", "US-1"), ledger=Ledger(), give_back=True)
    custom = at("custom", "CUSTOM-1", task_type="custom")
    night = planned(project(state=custom, parked=(aside,)))
    assert [("CUSTOM-1", "custom"), ("US-1", "impl")] == [
        (one.story, one.steps[0].step) for one in night.stories
    ]


# --- what stops it ------------------------------------------------------------------------------------
def test_every_story_stops_at_the_review_before_its_first_line_of_code() -> None:
    """That follows from the step table: no step with tests is behind the review."""
    night = planned(project("US-1", rules=SHIPPED), project("US-7", root="/srv/blog", rules=SHIPPED))
    assert (True, 2, 2) == (night.gated, night.before_code, night.ahead)
    assert {
        ("review", True, "gate", "handoffd init shop --gates after"),
        ("review", True, "gate", "handoffd init blog --gates after"),
    } == {(one.step, one.before_code, one.kind, one.command) for one in night.stops if one.kind == "gate"}
    assert ("bdd", "sdd-delta", "contract") == tuple(one.step for one in by_story(night)["US-1"].steps)
    assert "review" == by_story(night)["US-1"].stops_at


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda: project(state=at("impl"), root="/srv/blog", paused_by="mei"), id="paused"),
        pytest.param(lambda: project("US-7", root="/srv/blog", continues=False), id="not begun"),
        pytest.param(lambda: project("US-7", root="/srv/blog", rules=AFTER), id="decided after the code"),
        pytest.param(lambda: project("US-7", root="/srv/blog"), id="done by morning"),
    ],
)
def test_not_every_story_stops_before_its_code(other: Callable[[], ProjectNow]) -> None:
    """One does; what comes of the other one is something else."""
    night = planned(project("US-1", rules=SHIPPED), other())
    assert (False, 1, 2) == (night.gated, night.before_code, night.ahead)


def test_a_story_that_is_over_does_not_count() -> None:
    """Only its landing is left."""
    over = at("done", "US-2", status=Status.PASS, completed_at=NOW)
    landing = {"US-2": Track(state=over, ledger=Ledger(automatic=True))}
    night = planned(project("US-1", rules=SHIPPED, settings=CLONES, beside=landing))
    assert (True, 1, 1) == (night.gated, night.before_code, night.ahead)


AFTER: RuleBook = build_rulebook(
    [
        *shipped_layers(None),
        Layer(
            "rules",
            "steps: {contract: {next_on_pass: scaffold}, verify: {next_on_pass: acceptance},"
            " acceptance: {next_on_pass: update-memory, next_on_fail: impl, requires_human: true}}",
        ),
    ]
)


def test_a_gate_behind_the_code_stops_it_later() -> None:
    """By then there is code to decide about."""
    night = planned(project("US-1", rules=AFTER))
    assert not night.gated
    stop = only(night)
    assert ("acceptance", False, True) == (stop.step, stop.before_code, stop.may_wait)
    assert "handoffd rules show shop" == stop.command
    assert "verify" == night.stories[0].steps[-1].step


def test_a_gate_that_waits_already_is_decided_now() -> None:
    """The others are counted with their own commands."""
    view = {"tracks": (track_view(gate=True, look_command="handoffd gate /srv/shop"),)}
    held = project(rules=SHIPPED, state=at("review", status=Status.NEEDS_HUMAN))
    waiting = replace(held, view=replace(held.view, **view))
    night = planned(waiting)
    assert night.gated
    assert ("handoffd gate shop", None, 1) == (only(night).command, only(night).at, only(night).count)


@pytest.mark.parametrize(
    ("parts", "kind", "command"),
    [
        ({"continues": False}, "auto_continue", "handoffd backlog auto shop on"),
        ({"automatic": False}, "level", "handoffd level shop 2"),
        ({"paused_by": "mei"}, "paused", "handoffd resume shop"),
        ({"closed": True}, "person", "handoffd continue shop"),
        (
            {"view": {"condition": "invalid_state", "detail": "line 3"}},
            "condition",
            "${EDITOR:-vi} /srv/shop/.ai/STATE.json",
        ),
    ],
)
def test_what_keeps_a_backlog_is_named_with_the_command(
    parts: dict[str, Any], kind: str, command: str
) -> None:
    """One entry for all of its stories."""
    night = planned(project("US-1", "US-2", **parts))
    assert (kind, command, 2) == (only(night).kind, only(night).command, only(night).count)
    assert {"waits": 2, "done": 0, "goes_on": 0, "stops": 0} == night.outcomes


@pytest.mark.parametrize(
    ("state", "ledger", "kind"),
    [
        (at("impl", status=Status.NEEDS_HUMAN), {}, "person"),
        (at("impl", status=Status.TIMEOUT), {}, "person"),
        (at("impl"), {"paused_by": "mei"}, "paused"),
        (at("impl"), {"automatic": False}, "level"),
        (at("impl"), {"held_edit": HeldEdit(state=at("verify"), why="edited past review")}, "held"),
        (at("impl", status=Status.RUNNING), {}, "by_hand"),
    ],
)
def test_what_holds_a_story_in_flight_is_named(state: Any, ledger: dict[str, Any], kind: str) -> None:
    """With the words and the command of its status."""
    held = project(state=state, **ledger)
    shown = replace(held.view.tracks[0], waits_for="you", next_command="handoffd retry /srv/shop")
    night = planned(replace(held, view=replace(held.view, tracks=(shown,))))
    assert (kind, "handoffd retry shop") == (only(night).kind, only(night).command)
    assert () == night.stories[0].steps


def test_nothing_goes_on_in_a_project_that_is_gone() -> None:
    """Also a step that an agent was at; with the words and the command that status has for it."""
    gone = {"condition": "missing", "detail": "/srv/shop is gone"}
    flight = Dispatch(
        id="d1", story="US-1", step="impl", attempt=1, executor="claude", decided_at=NOW,
        phase=Phase.EXECUTING,
    )  # fmt: skip
    running = at("impl", status=Status.RUNNING, dispatched_at=NOW - MINUTE)
    night = planned(project("US-2", state=running, dispatch=flight, view=gone))
    assert {"stops": 1, "waits": 1, "done": 0, "goes_on": 0} == night.outcomes
    stop = only(night)
    assert ("condition", "/srv/shop is gone", ("US-1", "US-2")) == (stop.kind, stop.why, stop.stories)
    assert repair_command("/srv/shop", "missing") == stop.command
    assert 0 == night.expected.steps


@pytest.mark.parametrize("look", ["handoffd log /srv/shop --failures", None])
def test_what_status_has_a_person_look_at_comes_first(look: str | None) -> None:
    """The log of an attempt that failed comes before its retry."""
    held = project(state=at("impl", status=Status.NEEDS_HUMAN))
    shown = replace(held.view.tracks[0], next_command="handoffd retry /srv/shop", look_command=look)
    night = planned(replace(held, view=replace(held.view, tracks=(shown,))))
    assert (look or "handoffd retry shop").replace("/srv/", "") == only(night).command


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        ("handoffd land /srv/shop --story US-1", "handoffd land shop --story US-1"),
        ("git -C /srv/shop merge handoffd/US-1", "git -C /srv/shop merge handoffd/US-1"),
    ],
)
def test_a_story_that_is_done_is_landed_as_status_says(command: str, typed: str) -> None:
    """Landing may have to fail: then it is merged by hand, in a folder that is named whole."""
    branch = Workspace(folder="/c", kind="clone", branch="handoffd/US-1", base="0")
    state = at("done", status=Status.PASS, completed_at=NOW)
    over: dict[str, Any] = {"workspace": branch, "unlanded": "a.py", "stories_done": ("US-0",)}
    now = project("US-2", state=state, settings=CLONES, **over)
    where = whereabouts("/srv/shop", says="what landing does", command=command)
    done = replace(now.view.tracks[0], to_land=True, next_command=command, whereabouts=where)
    night = planned(replace(now, view=replace(now.view, tracks=(done,))))
    (land,) = [one for one in night.stops if one.kind == "land" and one.stories == ("US-1",)]
    assert ("done, what landing does", typed) == (land.why, land.command)


def test_a_story_whose_blocker_was_never_started_is_blocked() -> None:
    """One that waits for a story of the backlog is named without a command: that story has its own."""
    night = planned(
        project(Queued(story="US-1", blocked_by=("US-8",)), Queued(story="US-2", blocked_by=("US-1",)))
    )
    assert [("blocked", "handoffd start shop US-8", ("US-1",)), ("blocked", None, ("US-2",))] == [
        (one.kind, one.command, one.stories) for one in night.stops
    ]


def test_a_story_in_flight_that_is_blocked_goes_on_once_its_blocker_is_done() -> None:
    """Here its blocker is in a track of its own."""
    beside = {"US-2": Track(state=at("verify", "US-2"), ledger=Ledger(automatic=True))}
    blocked = project(state=at("impl", blocked_by=("US-2",)), settings=CLONES, beside=beside)
    assert {"done": 2, "goes_on": 0, "stops": 0, "waits": 0} == planned(blocked).outcomes
    alone = planned(project(state=at("impl", blocked_by=("US-2",))))
    assert ("blocked", "waits for US-2") == (only(alone).kind, only(alone).why)


def test_edits_that_wait_for_trust_are_named() -> None:
    """The project goes on as it was."""
    night = planned(project("US-1", view={"held": ("steps.impl.post_check",)}))
    assert ("held", "handoffd trust shop", 0) == (only(night).kind, only(night).command, only(night).count)
    assert "done" == night.stories[0].outcome


# --- limits and budgets -------------------------------------------------------------------------------
def test_a_limited_account_is_waited_for() -> None:
    """A refusal concerns the one story that met it."""
    night = planned(project("US-1"), limits=(limit(),))
    assert NOW + timedelta(hours=3) == night.stories[0].steps[0].starts_at
    assert ["claude"] == [one.account for one in night.limits]
    assert NOW == planned(project("US-1"), limits=(limit(kind="refusal"),)).stories[0].steps[0].starts_at


def test_a_limit_that_lasts_all_night_stops_it() -> None:
    """Another executor of the list is not limited."""
    long = limit(until=MORNING + MINUTE)
    night = planned(project("US-1"), limits=(long,))
    assert ("limit", None, "stops") == (only(night).kind, only(night).command, night.stories[0].outcome)
    other = planned(project("US-1", settings={"executor": ["claude", "codex"]}), limits=(long,))
    assert {"codex"} == {step.executor for step in other.stories[0].steps}


def test_a_budget_that_stops_the_night_says_at_which_story() -> None:
    """What is spent by then is at most one step of each slot more than the cap."""
    night = planned(
        project("US-1", "US-2"), caps=CapSettings(daemon_usd=5), spent={"daemon": Usage(cost_usd=1.0)}
    )
    (cap,) = night.caps
    assert ("daemon", 1.0, 5.0, 5.0, "shop US-2") == (cap.scope, cap.spent, cap.expected, cap.cap, cap.stops)
    assert ("cap", "handoffd config show", ("US-2",)) == (
        only(night).kind,
        only(night).command,
        only(night).stories,
    )
    assert "the daemon's budget of $5.00 is used up" == only(night).why


def test_the_budget_of_a_day_begins_anew_at_midnight() -> None:
    """The story waits for that, and both days are listed."""
    midnight = NOW + timedelta(hours=2)
    night = planned(project("US-1"), caps=CapSettings(day_usd=1), midnights=(midnight,))
    assert [("2026-01-31", 1.0, "shop US-1"), ("2026-02-01", 1.0, "shop US-1")] == [
        (cap.day, cap.expected, cap.stops) for cap in night.caps
    ]
    begins = [step.starts_at for step in night.stories[0].steps]
    assert [NOW, NOW + 10 * MINUTE, midnight, midnight + 10 * MINUTE] == begins
    assert "cap" == only(night).kind


@pytest.mark.parametrize(
    ("settings", "granted", "steps", "command"),
    [
        ({"story_usd": 2}, {}, 4, "handoffd budget shop --story US-1 --usd NUMBER"),
        ({"project_tokens": 3_000}, {}, 3, "handoffd budget shop --tokens NUMBER"),
        (
            {"project_tokens": 3_000},
            {"project": Cap(tokens=5_000)},
            5,
            "handoffd budget shop --tokens NUMBER",
        ),
        ({"attempt_usd": 0.5}, {}, 0, "handoffd budget shop --story US-1 --usd NUMBER"),
    ],
)
def test_a_projects_own_budget_stops_its_stories(
    settings: dict[str, Any], granted: dict[Any, Cap], steps: int, command: str
) -> None:
    """A cap on an attempt stops a story whose step takes as much as that."""
    night = planned(project("US-1", settings={"caps": settings}, granted=granted))
    (cap,) = night.caps
    assert (steps, "US-1") == (len(night.stories[0].steps), cap.stops)
    assert command == only(night).command


def test_a_budget_that_ends_a_run_stops_the_story_in_that_step() -> None:
    """`on_cap: stop`: the step is not over."""
    night = planned(project("US-1"), caps=CapSettings(daemon_usd=1, on_cap="stop"))
    assert (2, "sdd-delta") == (len(night.stories[0].steps), night.stories[0].stops_at)


def test_a_budget_that_is_used_up_while_a_story_waits_for_its_slot_stops_it() -> None:
    """Only what runs already may go beyond it."""
    some = [project("US-1", root=f"/srv/p{n}") for n in range(4)]
    night = planned(*some, slots=1, caps=CapSettings(daemon_usd=0.5))
    assert (1, 4) == (night.expected.steps, night.outcomes["stops"])
    assert 4 == sum(one.count for one in night.stops if one.kind == "cap")


def test_what_a_story_has_spent_already_counts() -> None:
    """As the journal has booked it."""
    night = planned(
        project(state=at("impl"), settings={"caps": {"story_usd": 2}}, facts=Facts(usage=Usage(cost_usd=1.6)))
    )
    assert [("impl", "verify")] == [(night.stories[0].steps[0].step, night.stories[0].stops_at)]


def test_a_cap_of_the_last_attempt_holds_until_it_is_raised() -> None:
    """Nothing is begun."""
    found = Finding(scope="attempt", unit="usd", spent=3, cap=2)
    assert ("cap",) == (only(planned(project(state=at("impl"), capped=found))).kind,)


def test_steps_without_a_known_cost_are_counted_apart() -> None:
    """A cap may stop the night earlier than planned."""
    took = {**PAST, "impl": Estimate(seconds=60, tokens=None, cost_usd=None, basis="past")}
    night = planned(project("US-1"), took=took, caps=CapSettings(daemon_usd=100, daemon_tokens=10**6))
    assert [("usd", 1, None), ("tokens", 1, None)] == [
        (cap.unit, cap.unsure, cap.stops) for cap in night.caps
    ]
    assert (1, 1) == (night.expected.unpriced, night.expected.unmeasured)


# --- what it takes ------------------------------------------------------------------------------------
def test_a_project_without_a_past_is_planned_by_the_protocol() -> None:
    """Its numbers of tokens, each step's time limit, and no cost."""
    night = planned(project("US-1"), took={})
    expected = night.expected
    assert ("reference", len(STEPS), 0.0) == (expected.basis, expected.unpriced, expected.cost_usd)
    assert sum(OPEN.steps[step].timeout_min for step in STEPS) * 60 == expected.seconds
    assert 3_500 == night.stories[0].steps[0].tokens
    assert "mixed" == planned(project("US-1"), took={"impl": PAST["impl"]}).expected.basis
    assert "nothing" == planned(project()).expected.basis


def test_what_begins_in_the_time_is_expected() -> None:
    """Summed over all stories."""
    expected = planned(project("US-1")).expected
    assert ("past", len(STEPS), len(STEPS) * 600.0) == (expected.basis, expected.steps, expected.seconds)
    assert (len(STEPS) * 1_000, len(STEPS) * 0.5) == (expected.tokens, expected.cost_usd)


def test_projects_share_the_slots() -> None:
    """One that waits for a slot is begun when it has one; the urgent project goes first."""
    some = [project("US-1", root=f"/srv/p{n}") for n in range(3)]
    urgent = project("US-1", root="/srv/urgent", settings={"priority": 5})
    night = planned(*some, urgent, slots=1)
    assert (1, 1) == (night.slots.total, night.slots.most)
    assert night.slots.waited > 0
    begun = {one.project: one.steps[0].starts_at for one in night.stories}
    assert [NOW] == [at for root, at in begun.items() if at == NOW] == [begun["/srv/urgent"]]
    limited = planned(*some, scheduling=SchedulingSettings(per_account={"claude": 2}))
    assert 2 == limited.slots.most


# --- the clock ----------------------------------------------------------------------------------------
def test_a_schedule_starts_its_story() -> None:
    """It is in the plan, and so is the story."""
    night = planned(project(continues=False), schedules=(schedule(),))
    assert [("US-9", "starts")] == [(one.story, one.outcome) for one in night.schedules]
    story = by_story(night)["US-9"]
    assert (NOW + timedelta(hours=2), "nightly") == (story.steps[0].starts_at, story.schedule)


@pytest.mark.parametrize(
    ("more", "parts", "outcome"),
    [
        ({}, {}, "skipped"),
        ({"overlap": "queue"}, {}, "queued"),
        ({"story": "US-0"}, {"stories_done": ("US-0",)}, "skipped"),
        ({"story": None, "custom": "tidy up", "overlap": "queue"}, {}, "queued"),
        ({}, {"view": {"condition": "missing"}}, "skipped"),
    ],
)
def test_a_schedule_meets_a_story_in_flight(
    more: dict[str, Any], parts: dict[str, Any], outcome: str
) -> None:
    """As the schedule says what is done then."""
    busy = project(state=at("review"), rules=SHIPPED, **parts)
    (one,) = planned(busy, schedules=(schedule(**more),)).schedules
    assert outcome == one.outcome
    assert (one.why is None) == (outcome == "queued")


def test_quiet_hours_are_named() -> None:
    """And whether they are now."""
    quiet = QuietSettings(start="21:00", end="07:00", timezone="UTC")
    found = planned(project(), quiet=quiet).quiet
    assert found is not None
    assert ("21:00", "07:00", True) == (found.start, found.end, found.now)


# --- bounds -------------------------------------------------------------------------------------------
def test_long_lists_are_cut_and_counted() -> None:
    """The outcomes count all of them."""
    many = [project("US-1", root=f"/srv/p{n:03}", continues=False) for n in range(MOST_LISTED + 20)]
    night = planned(*many)
    assert (MOST_LISTED, 20) == (len(night.stories), night.more.stories)
    assert (MOST_LISTED, 20) == (len(night.stops), night.more.stops)
    assert MOST_LISTED + 20 == night.outcomes["waits"]


def test_a_night_of_too_many_steps_is_not_played_to_its_end() -> None:
    """The plan has a mark for that."""
    second = dict.fromkeys(STEPS, Estimate(seconds=1, tokens=1, cost_usd=0.0, basis="past"))
    count = MOST_STEPS // (200 * len(STEPS)) + 1
    backlog = [f"US-{n}" for n in range(1, 200)]
    many = [project(*backlog, root=f"/srv/p{n}") for n in range(count + 1)]
    night = planned(*many, took=second, slots=64)
    assert not night.whole
    assert MOST_STEPS <= night.expected.steps <= MOST_STEPS + 64


def test_the_order_is_by_project() -> None:
    """The project that works first is first, and its stories are together."""
    late = project("US-1", "US-2", root="/srv/late")
    night = planned(project("US-1", "US-2", root="/srv/early"), late, slots=1)
    assert ["early", "early", "late", "late"] == [one.name for one in night.stories]


def test_the_same_evening_gives_the_same_plan() -> None:
    """It asks nothing but its arguments."""
    snapshot = evening(project("US-1", "US-2"), project("US-7", root="/srv/blog"), slots=1)
    assert plan(snapshot) == plan(snapshot)


def test_a_view_without_tracks_is_no_trouble() -> None:
    """A project that is not initialised has nothing to do."""
    bare = project()
    view: ProjectView = replace(bare.view, tracks=(), condition="not_initialized")
    night = planned(replace(bare, view=view, tracks={"main": Track()}))
    assert ((), ()) == (night.stories, night.stops)
