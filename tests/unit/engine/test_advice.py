"""The next command to type: it exists, it says which project, and giving it leads on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import lru_cache

import pytest
from tests.support.everything import AT_REST, events, rules, tracks
from tests.support.playbook import T0, dispatched, state_at, track_at, without_step
from tests.support.typed import Typed, typed

from handoffd.api.arguments import checked, event_of
from handoffd.api.verbs import VERBS
from handoffd.engine.decide import decide
from handoffd.engine.decision import Decision, Notify, Refusal, next_command, way_on
from handoffd.engine.events import Event, Initialised, PromptTaken, Started, Verb
from handoffd.engine.track import HeldEdit, Ledger, Queued, Track
from handoffd.engine.wording import addressed
from handoffd.protocol.state import Reason, Status

SHOP = "/srv/my shop"
LATE = {"STALE_FACT", "NO_HANDOFF", "NOTHING_RUNS"}
"""Codes for facts that came too late: nobody asked, so nobody is told what to do."""


@lru_cache(maxsize=1)
def decisions() -> tuple[tuple[Track, Event, Decision], ...]:
    """Return every decision there is, with what it was made on."""
    pairs = ((track, event) for track in tracks() for event in events())
    return tuple((track, event, decide(track, event, rules(), T0)) for track, event in pairs)


def advice_in(decision: Decision) -> Iterator[str]:
    """Yield what a decision tells people to type."""
    told = [decision.result.next_command]
    told += [order.action for order in decision.effects if isinstance(order, Notify)]
    yield from (template for template in told if template is not None)


@lru_cache(maxsize=1)
def understood() -> dict[str, Typed]:
    """Return what the command line makes of every command that a decision or a status advises."""
    advised = {template for _, _, decision in decisions() for template in advice_in(decision)}
    advised |= {template for track in tracks() if (template := next_command(track, rules()))}
    return {template: typed(addressed(template.split(" && ")[-1], SHOP)) for template in advised}


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


def test_whoever_is_refused_something_is_told_how_to_go_on() -> None:
    """Only a fact of our own that comes too late is left without advice."""
    silent = {
        decision.result.code
        for _, event, decision in decisions()
        if isinstance(decision.result, Refusal) and decision.result.next_command is None
    }
    assert LATE == silent
    given = [
        event.kind
        for track, event, decision in decisions()
        if isinstance(event, Verb)
        and not isinstance(event, Initialised)
        and isinstance(decision.result, Refusal)
        and decision.result.next_command is None
    ]
    assert [] == given


def test_whoever_must_act_is_told_what_to_type() -> None:
    """Every wait for a person has a command, in the answer and in the sentence for a program."""
    for _, _, decision in decisions():
        if decision.result.type in {"needs_human", "blocked", "timeout"}:
            assert decision.result.next_command is not None, decision.why
        if decision.result.type in {"needs_human", "blocked", "error"} and decision.result.next_command:
            assert decision.result.next_command in decision.result.caller_instruction


def test_a_notice_says_the_same_as_the_answer() -> None:
    """Whoever reads the one and whoever reads the other go the same way."""
    for _, _, decision in decisions():
        for order in decision.effects:
            if isinstance(order, Notify):
                assert order.action == decision.result.next_command, (order, decision.result)


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


def test_what_a_status_advises_is_taken() -> None:
    """Nobody is sent from one refusal to the next."""
    for track in tracks():
        template = next_command(track, rules())
        verb = event_meant(understood()[template]) if template else None
        if verb is not None:
            answer = decide(track, verb, rules(), T0).result
            assert not isinstance(answer, Refusal), (track, template, answer)


def test_what_a_refusal_advises_is_taken() -> None:
    """The same for whoever gave a verb that did not fit."""
    for track, event, decision in decisions():
        if isinstance(decision.result, Refusal) and isinstance(event, Verb):
            template = decision.result.next_command
            verb = event_meant(understood()[template]) if template else None
            if verb is not None:
                answer = decide(track, verb, rules(), T0).result
                assert not isinstance(answer, Refusal), (track, event, decision.result, answer)


@pytest.mark.parametrize(
    ("track", "template"),
    [
        (Track(), "handoffd init {project}"),
        (track_at("impl", ledger=Ledger(automatic=True, paused_by="mei")), "handoffd resume {project}"),
        (track_at("impl", ledger=Ledger()), "handoffd dispatch {project}"),
        (track_at("bootstrap", story=None, ledger=Ledger()), "handoffd start {project} STORY"),
        (track_at("done", Status.PASS), "handoffd start {project} STORY"),
        (
            track_at("done", Status.PASS, ledger=Ledger(backlog=(Queued(story="US-2"),))),
            "handoffd continue {project}",
        ),
        (
            track_at(
                "done", Status.PASS, ledger=Ledger(backlog=(Queued(story="US-2", blocked_by=("US-9",)),))
            ),
            "handoffd start {project} STORY",
        ),
        (
            track_at("impl", Status.NEEDS_HUMAN, ledger=Ledger(closed=True, backlog=(Queued(story="US-2"),))),
            "handoffd continue {project}",
        ),
        (track_at("impl", Status.NEEDS_HUMAN, ledger=Ledger(closed=True)), "handoffd start {project} STORY"),
        (
            track_at(
                "bdd", ledger=Ledger(paused_by="me", held_edit=HeldEdit(state=state_at("impl"), why="held"))
            ),
            "handoffd confirm {project}",
        ),
        (
            track_at("bdd", ledger=Ledger(held_edit=HeldEdit(state=state_at("impl"), why="held"))),
            "handoffd confirm {project}",
        ),
        (track_at("review", Status.NEEDS_HUMAN), "handoffd approve {project} --story US-1"),
        (track_at("review", Status.TIMEOUT), "handoffd retry {project}"),
        (track_at("impl", Status.NEEDS_HUMAN), "handoffd retry {project}"),
        (track_at("impl", Status.NEEDS_HUMAN, ledger=Ledger()), "handoffd retry {project}"),
        (
            track_at("bdd", Status.NEEDS_HUMAN, reason=Reason.NEEDS_CLARIFICATION),
            "handoffd note {project} TEXT",
        ),
        (
            track_at("bdd", Status.NEEDS_HUMAN, reason=Reason.NEEDS_CLARIFICATION, human_note="Cents."),
            "handoffd retry {project}",
        ),
        (track_at("impl"), None),
        (dispatched("impl"), None),
    ],
)
def test_what_comes_next_follows_from_where_a_track_stands(track: Track, template: str | None) -> None:
    """A person's turn has a command, the daemon's has none."""
    assert template == next_command(track, rules())


@pytest.mark.parametrize("status", AT_REST)
def test_a_step_that_the_table_lost_is_looked_for_in_the_table(status: Status) -> None:
    """A retry would only be refused."""
    assert "handoffd rules check {project}" == next_command(track_at("impl", status), without_step("impl"))


def test_there_is_always_a_way_on() -> None:
    """While something runs, and while nobody is asked, it is a look."""
    assert "handoffd status {project} --watch" == way_on(dispatched("impl"), rules())
    assert "handoffd status {project}" == way_on(track_at("impl"), rules())
    assert "handoffd retry {project}" == way_on(track_at("impl", Status.TIMEOUT), rules())


def test_every_kind_of_answer_can_carry_the_command() -> None:
    """A key of the public JSON, always there."""
    kinds = {type(decision.result) for _, _, decision in decisions()}
    assert all("next_command" in {field.name for field in fields(kind)} for kind in kinds)
