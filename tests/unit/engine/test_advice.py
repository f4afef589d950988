"""The next command to type: it exists, it says which project, and giving it leads on."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import pytest
from tests.support.everything import AT_REST, events_at, rules, tracks
from tests.support.playbook import T0, dispatched, state_at, track_at, without_step
from tests.support.typed import Typed, typed

from handoffd.api.arguments import checked, event_of
from handoffd.api.verbs import VERBS
from handoffd.engine.decide import decide
from handoffd.engine.decision import Notify, Refusal, Result, next_command, way_on
from handoffd.engine.events import Event, Initialised, PromptTaken, Started, Verb
from handoffd.engine.track import HeldEdit, Ledger, Queued, Track
from handoffd.engine.wording import addressed
from handoffd.protocol.state import Reason, Status

SHOP = "/srv/my shop"
LATE = {"STALE_FACT", "NO_HANDOFF", "NOTHING_RUNS"}
"""Codes for facts that came too late: no person asked, so the refusal advises nothing."""


class Answer(NamedTuple):
    """What people see of a decision; all of 100,000 decisions would be slow to collect as garbage."""

    track: Track
    event: Event
    result: Result
    notices: tuple[Notify, ...]


@lru_cache(maxsize=1)
def answers() -> tuple[Answer, ...]:
    """Return the answer to every fact in every condition of a track."""

    def answer(track: Track, event: Event) -> Answer:
        decision = decide(track, event, rules(), T0)
        notices = tuple(order for order in decision.effects if isinstance(order, Notify))
        return Answer(track, event, decision.result, notices)

    return tuple(answer(track, event) for track in tracks() for event in events_at(track))


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
    verbs |= {"budget", "dispatch", "apply", "level", "continue"}
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
    for _, _, result, _ in answers():
        if result.type in {"needs_human", "blocked", "timeout"}:
            assert result.next_command is not None, result
        if result.type in {"needs_human", "blocked", "error"} and result.next_command:
            assert result.next_command in result.caller_instruction


def test_a_notice_says_the_same_as_the_answer() -> None:
    """A reader of the notice and a reader of the answer go the same way."""
    for _, _, result, notices in answers():
        assert {result.next_command} >= {notice.action for notice in notices}, (notices, result)


def event_meant(command: Typed) -> Verb | None:
    """Return the event that a command would be; None for one that only looks."""
    if command.name not in VERBS or command.name in {"apply", "check"}:
        return None
    words = {name: value for name, value in command.given.items() if name != "project"}
    given = checked(VERBS[command.name], SHOP, words)
    if given.get("step") == "STEP":
        given["step"] = "bdd"
    if command.name == "init":
        return Initialised(project="shop")
    if command.name == "start":
        return Started(automatic=not given.pop("manual"), **given)
    if command.name == "dispatch":
        return PromptTaken(dispatch="d-9")
    if command.name == "custom":
        return Started(story="C-9", task_type="custom", instruction=given["text"], queue=given["queue"])
    return event_of(VERBS[command.name], given, "mei")


def test_what_a_status_or_a_refusal_advises_is_taken() -> None:
    """No person is sent from one refusal to the next."""
    advised = {
        (at, template): track
        for at, track in enumerate(tracks())
        if (template := next_command(track, rules()))
    }
    for track, event, result, _ in answers():
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
