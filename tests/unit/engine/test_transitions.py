"""Every kind of fact meets every condition of a track: the transition table, and the next command."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import NamedTuple, get_args, get_type_hints

import pytest
from msgspec.structs import fields
from tests.support.everything import AT_REST, events, events_at, rules, tracks
from tests.support.playbook import T0, dispatched, state_at, track_at, without_step
from tests.support.typed import Typed, typed

from handoffd.api.arguments import checked, event_of
from handoffd.api.verbs import VERBS
from handoffd.engine.decide import RULES, TRANSITIONS, decide, diagram
from handoffd.engine.decision import Notify, Refusal, Result, next_command, way_on
from handoffd.engine.events import Event, Fact, Initialised, PromptTaken, Started, TrackClosed, Verb
from handoffd.engine.track import HeldEdit, Ledger, Phase, Queued, Track
from handoffd.engine.wording import addressed
from handoffd.protocol.state import Reason, Status


# --- the walk -------------------------------------------------------------------------------------
class Answer(NamedTuple):
    """What people see of a decision, and where it leads; None: nowhere."""

    track: Track
    event: Event
    result: Result
    notices: tuple[Notify, ...]
    status: Status | None


@lru_cache(maxsize=1)
def answers() -> tuple[Answer, ...]:
    """Return the answer to every fact in every condition of a track, for all tests of this file: 100,000.

    Checks each decision. All of them would be slow to collect as garbage.
    """
    return tuple(answer(track, event) for track in tracks() for event in events_at(track))


def answer(track: Track, event: Event) -> Answer:
    """Return the checked answer to a fact."""
    decision = decide(track, event, rules(), T0)
    after = decision.track
    notices = tuple(order for order in decision.effects if isinstance(order, Notify))
    if isinstance(decision.result, Refusal):
        assert after is track, (event, decision.why)
        assert len(notices) == len(decision.effects), event
        return Answer(track, event, decision.result, notices, None)
    if isinstance(event, TrackClosed):
        assert Track() == after
        return Answer(track, event, decision.result, notices, None)
    assert after.state is not None
    assert_sound(after)
    return Answer(track, event, decision.result, notices, after.state.status)


def reached() -> dict[tuple[Status | None, str], set[Status]]:
    """Return the statuses that each kind of fact leads to, by the status before."""
    seen: dict[tuple[Status | None, str], set[Status]] = defaultdict(set)
    for one in answers():
        if one.status is not None:
            seen[one.track.state.status if one.track.state else None, one.event.kind].add(one.status)
    return seen


def assert_sound(track: Track) -> None:
    """Check what holds of every track, however it came about."""
    assert track.state is not None
    if (dispatch := track.ledger.dispatch) is not None:
        assert Status.RUNNING is track.state.status
        assert (track.state.step, track.state.attempt) == (dispatch.step, dispatch.attempt)
        assert (dispatch.claim is not None) == (dispatch.phase is Phase.CHECKING)
    if track.state.step == "done":
        assert Status.PASS is track.state.status


def test_every_event_has_the_rule_that_decides_on_it() -> None:
    """One each, which takes just that event."""
    takes = {event: get_type_hints(rule)["event"] for event, rule in RULES.items()}

    assert {event: event for event in get_args(Event)} == takes


def test_nothing_that_can_happen_leaves_the_table() -> None:
    """Every fact in every condition is decided without a crash; what is refused changes nothing."""
    for (before, kind), statuses in reached().items():
        assert statuses <= TRANSITIONS[before].get(kind, set()), (before, kind)


def test_every_status_in_the_table_is_reached() -> None:
    """A target that no fact leads to would be a false arrow in the diagram."""
    found = reached()
    for before, kinds in TRANSITIONS.items():
        for kind, wanted in kinds.items():
            assert set() == wanted - found[before, kind], (before, kind)


def test_the_same_fact_gives_the_same_decision() -> None:
    """`decide` is a function of its arguments."""
    for track in list(tracks())[::13]:
        for event in events()[::3]:
            assert decide(track, event, rules(), T0) == decide(track, event, rules(), T0)


def test_the_walk_meets_every_kind_of_fact() -> None:
    """A new kind of fact must be added to the walk, or this fails."""
    assert set(KINDS.values()) == {event.kind for event in events()}


@pytest.mark.parametrize("status", list(Status))
def test_every_status_can_be_left(status: Status) -> None:
    """Nothing is a dead end: some fact leads on, and a person's verb is among them or ends it first."""
    targets = {
        target for kind, row in TRANSITIONS[status].items() if kind != "state_edited" for target in row
    }
    assert targets - {status}


def test_every_status_is_reached_from_the_start() -> None:
    """Without an edit of STATE.json."""
    found: set[Status | None] = {None}
    for _ in Status:
        for before in tuple(found):
            for kind, row in TRANSITIONS[before].items():
                found |= row if kind not in {"state_edited", "edit_confirmed"} else set()
    assert {None, *Status} == found


def test_no_status_but_running_is_reached_by_a_stale_fact() -> None:
    """Facts about a dispatch have a place in the table only while something runs."""
    of_a_dispatch = {
        "baseline_measured", "executor_started", "spawn_refused", "handoff_settled", "deadline_passed",
        "cap_reached", "executor_quiet", "executor_stalled", "interrupted", "executor_exited",
        "checks_finished", "handoff_arrived",
    }  # fmt: skip
    for status in AT_REST:
        assert not of_a_dispatch & TRANSITIONS[status].keys()
    assert of_a_dispatch <= TRANSITIONS[Status.RUNNING].keys()


# --- the facts ------------------------------------------------------------------------------------
KINDS = {event: event.__struct_config__.tag for event in get_args(Event)}


def test_every_fact_has_a_name_of_its_own_and_can_happen_somewhere() -> None:
    """The journal tells them apart by it; one that no row of the table has would always be refused."""
    spelt = {kind: "".join(part.title() for part in name.split("_")) for kind, name in KINDS.items()}
    assert {kind: kind.__name__ for kind in KINDS} == spelt
    assert set(KINDS.values()) == {kind for row in TRANSITIONS.values() for kind in row}


def test_every_verb_says_who_gave_it() -> None:
    """But for the first one: a project is initialised by the one who adds it."""
    nameless = [verb for verb in get_args(Verb) if "by" not in {field.name for field in fields(verb)}]
    assert ["Initialised"] == [verb.__name__ for verb in nameless]
    assert not set(get_args(Verb)) & set(get_args(Fact))


def test_facts_and_tracks_are_frozen() -> None:
    """What has happened does not change, and decisions are made of copies."""
    assert {kind for kind in (*KINDS, Track, Ledger) if not kind.__struct_config__.frozen} == set()


# --- the diagram ----------------------------------------------------------------------------------
def test_the_diagram_draws_every_status_and_every_arrow_once() -> None:
    """It is the table, line by line, and the same every time."""
    lines = diagram().splitlines()
    assert ["stateDiagram-v2", "    [*] --> pending: initialised, track_opened"] == lines[:2]
    arrows = [line.split(":")[0].strip() for line in lines[1:]]
    assert len(arrows) == len(set(arrows))
    named = {word for arrow in arrows for word in arrow.split(" --> ")}
    assert {"[*]", *map(str, Status)} == named
    assert diagram() == diagram()
    assert diagram().endswith("\n")


def test_the_diagram_shows_the_gate_and_leaves_edits_out() -> None:
    """Edits lead from every status to every other, which would hide the rest."""
    lines = diagram().splitlines()
    assert any(line.startswith("    needs_human --> failing: ") and "rejected" in line for line in lines)
    assert "    running --> timeout: prompt_taken, deadline_passed, executor_exited" in lines
    assert not any("edit" in line for line in lines)


# --- the next command exists, names the project, and leads on ----------------------------------------
SHOP = "/srv/my shop"

LATE = {"STALE_FACT", "NO_HANDOFF", "NOTHING_RUNS"}

"""Codes for facts that came too late: no person asked, so the refusal advises nothing."""


@lru_cache(maxsize=1)
def understood() -> dict[str, Typed]:
    """Return what the command line makes of every command that a decision or a status advises."""
    advised = {one.result.next_command for one in answers()}
    advised |= {notice.action for one in answers() for notice in one.notices}
    advised |= {next_command(track, rules()) for track in tracks()}
    return {
        template: typed(addressed(template.split(" && ")[-1], SHOP))
        for template in advised
        if template is not None
    }


def test_a_remedy_comes_before_the_command_about_the_project() -> None:
    """What finds out more about the machine exists as well, and goes on only when nothing is found."""
    remedies = {first for template in understood() for first in template.split(" && ")[:-1]}
    assert {"handoffd executors check rehearsal"} <= remedies
    assert all(typed(remedy) for remedy in remedies)


def test_every_advice_is_a_command_about_the_project() -> None:
    """Every refusal, wait and notice there is: the command exists, and so do its options."""
    for template, command in understood().items():
        assert SHOP == command.given["project"], template

    verbs = {"init", "start", "approve", "retry", "resume", "note", "rollback", "reopen", "confirm", "custom"}
    verbs |= {"budget", "dispatch", "apply", "level", "continue", "land"}
    assert verbs | {"status", "log", "rules check", "events", "backlog show"} == {
        command.name for command in understood().values()
    }


def test_every_refusal_of_a_verb_names_the_next_command() -> None:
    """Only a fact of our own that comes too late is left without advice."""
    silent = [one for one in answers() if isinstance(one.result, Refusal) and one.result.next_command is None]
    assert LATE == {one.result.code for one in silent if isinstance(one.result, Refusal)}
    assert not [
        one for one in silent if isinstance(one.event, Verb) and not isinstance(one.event, Initialised)
    ]


def test_every_wait_for_a_person_names_a_command() -> None:
    """In the answer, and in the sentence for a program."""
    for _, _, result, _, _ in answers():
        if result.type in {"needs_human", "blocked", "timeout"}:
            assert result.next_command is not None, result
        if result.type in {"needs_human", "blocked", "error"} and result.next_command:
            assert result.next_command in result.caller_instruction


def test_a_notice_says_the_same_as_the_answer() -> None:
    """A reader of the notice and a reader of the answer go the same way."""
    for _, _, result, notices, _ in answers():
        assert {result.next_command} >= {notice.action for notice in notices}, (notices, result)


def event_meant(command: Typed) -> Verb | None:
    """Return the event that a command would be; None for one that only looks."""
    if command.name not in VERBS or command.name in {"apply", "check", "land"}:
        return None
    words = {name: value for name, value in command.given.items() if name != "project"}
    given = checked(VERBS[command.name], SHOP, words)
    if given.get("step") == "STEP":
        given["step"] = "bdd"
    if command.name == "init":
        return Initialised(project="shop")
    if command.name == "dispatch":
        return PromptTaken(dispatch="d-9")
    if command.name == "custom":
        return Started(story="C-9", task_type="custom", instruction=given["text"], queue=given["queue"])
    event = event_of(VERBS[command.name], given, "mei")
    assert isinstance(event, Verb)
    return event


def test_what_a_status_or_a_refusal_advises_is_taken() -> None:
    """No person is sent from one refusal to the next."""
    advised = {
        (at, template): track
        for at, track in enumerate(tracks())
        if (template := next_command(track, rules()))
    }
    for track, event, result, _, _ in answers():
        if isinstance(result, Refusal) and isinstance(event, Verb) and result.next_command:
            advised[id(track), result.next_command] = track
    for (_, template), track in advised.items():
        verb = event_meant(understood()[template])
        if verb is not None:
            answer = decide(track, verb, rules(), T0).result
            assert not isinstance(answer, Refusal), (track, template, answer)


HELD = HeldEdit(state=state_at("impl"), why="held")

NEXT, BLOCKED = (Queued(story="US-2"),), (Queued(story="US-2", blocked_by=("US-9",)),)

UNCLEAR = track_at("bdd", Status.NEEDS_HUMAN, reason=Reason.NEEDS_CLARIFICATION)


@pytest.mark.parametrize(
    ("track", "advice"),
    [
        (Track(), "init {project}"),
        (track_at("impl", ledger=Ledger(automatic=True, paused_by="mei")), "resume {project}"),
        (track_at("impl", ledger=Ledger()), "dispatch {project}"),
        (track_at("bootstrap", story=None, ledger=Ledger()), "start {project} STORY"),
        (track_at("bootstrap", story=None, ledger=Ledger(backlog=NEXT)), "start {project} US-2"),
        (track_at("bootstrap", story=None, ledger=Ledger(backlog=NEXT, by_hand=True)), "continue {project}"),
        (track_at("done", Status.PASS), "start {project} STORY"),
        (track_at("done", Status.PASS, ledger=Ledger(backlog=NEXT)), "continue {project}"),
        (track_at("done", Status.PASS, ledger=Ledger(backlog=BLOCKED)), "start {project} STORY"),
        (
            track_at("impl", Status.NEEDS_HUMAN, ledger=Ledger(closed=True, backlog=NEXT)),
            "continue {project}",
        ),
        (track_at("impl", Status.NEEDS_HUMAN, ledger=Ledger(closed=True)), "start {project} STORY"),
        (track_at("bdd", ledger=Ledger(paused_by="me", held_edit=HELD)), "confirm {project}"),
        (track_at("bdd", ledger=Ledger(held_edit=HELD)), "confirm {project}"),
        (track_at("review", Status.NEEDS_HUMAN), "approve {project} --story US-1"),
        (track_at("review", Status.TIMEOUT), "retry {project}"),
        (track_at("impl", Status.NEEDS_HUMAN), "retry {project}"),
        (track_at("impl", Status.NEEDS_HUMAN, ledger=Ledger()), "retry {project}"),
        (UNCLEAR, "note {project} TEXT"),
        (UNCLEAR.with_state(human_note="Cents."), "retry {project}"),
        (track_at("impl"), None),
        (dispatched("impl"), None),
    ],
)
def test_the_next_command_follows_from_the_tracks_condition(track: Track, advice: str | None) -> None:
    """A person's turn has a command, the daemon's has none."""
    assert next_command(track, rules()) == (advice and f"handoffd {advice}")


@pytest.mark.parametrize("status", AT_REST)
def test_a_step_that_the_table_lost_is_looked_for_in_the_table(status: Status) -> None:
    """A retry would only be refused."""
    assert "handoffd rules check {project}" == next_command(track_at("impl", status), without_step("impl"))


def test_there_is_always_a_way_on() -> None:
    """While something runs, and while no person is asked, the command only shows the status."""
    assert "handoffd status {project} --watch" == way_on(dispatched("impl"), rules())
    assert "handoffd status {project}" == way_on(track_at("impl"), rules())
    assert "handoffd retry {project}" == way_on(track_at("impl", Status.TIMEOUT), rules())
