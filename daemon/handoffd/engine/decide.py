"""The state machine: `decide(track, event, rules, now)`, a function of its arguments, and its two tables.

Theory of operation. A track is always in exactly one of seven conditions: not yet initialised, or one of
the six statuses of STATE.json. Events arrive one at a time; `decide` looks the pair (condition, event) up
in `TRANSITIONS` *before* it does anything else. A pair that is missing changes nothing: a verb is refused,
a fact is stale and ignored. A pair that is there names every status the track may have afterwards. The
rule that `RULES` has for the event makes the decision, and `decide` asserts that it ended in one of them,
so a rule that would leave the table is a crash in a test and never a wrong STATE.json.

The end of a pipeline is a step (`done`, with status `pass`), not a status. How far a running attempt has
come (baseline, starting, executing, stopping, checking) is the phase of its dispatch: STATE says `running`
throughout, because other tools know no finer word.

`diagram()` draws the diagram in docs/reference/protocol/events.md from `TRANSITIONS`, and the tests walk all
of it.

Because `decide` is a function, a journal can be checked: `replay` makes a recorded decision again, and the
same track, event, step table and time must lead to the same one. Where they do not, either the record was
changed, or the engine was. Only values are compared here; where they are kept is the journal's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import fields, replace

from handoffd.engine import beside, dispatching, ends, judging, limits, starting, verbs
from handoffd.engine.decision import (
    CHECK_TABLE,
    Basis,
    Decision,
    Effect,
    Finished,
    Ground,
    Refusal,
    Result,
    Situation,
    UnknownStepError,
    ask_human,
    next_command,
    refuse,
    way_on,
)
from handoffd.engine.events import (
    Aborted,
    Advanced,
    Approved,
    AutoContinueChosen,
    BacklogAdded,
    BacklogEdited,
    BacklogMoved,
    BacklogRemoved,
    BaselineMeasured,
    BudgetRaised,
    CapReached,
    CauseEnded,
    ChecksFinished,
    Continued,
    DeadlinePassed,
    Discarded,
    DispatchFailed,
    EditConfirmed,
    Event,
    ExecutorChosen,
    ExecutorExited,
    ExecutorQuiet,
    ExecutorStalled,
    ExecutorStarted,
    HandoffArrived,
    HandoffSettled,
    Initialised,
    Interrupted,
    Landed,
    LandingRefused,
    LevelChosen,
    LimitLifted,
    Noted,
    NoticeGivenUp,
    Paused,
    PostChecked,
    PromptTaken,
    Rejected,
    Reopened,
    Restored,
    Resumed,
    Retried,
    RolledBack,
    Skipped,
    SpawnRefused,
    Started,
    StateEdited,
    StoryClosed,
    StoryOpened,
    TrackClosed,
    TrackOpened,
    Undone,
)
from handoffd.engine.flow.tasks import kept_inside
from handoffd.engine.track import Ledger, Track
from handoffd.protocol.rules import RuleBook
from handoffd.protocol.state import State, Status

# --- the tables ---------------------------------------------------------------------------------------
P, R, OK, F, H, T = (
    Status.PENDING,
    Status.RUNNING,
    Status.PASS,
    Status.FAILING,
    Status.NEEDS_HUMAN,
    Status.TIMEOUT,
)

ANY: Final = frozenset(Status)


def _set(*statuses: Status) -> frozenset[Status]:
    return frozenset(statuses)


AT_REST: Final = ANY - {R}


def _resting(status: Status) -> dict[str, frozenset[Status]]:
    """Return what can happen to a track while nothing of it runs."""
    same = _set(status)
    return {
        "started": AT_REST,  # a parked story is taken up again as it was set aside
        "undone": _set(H),
        "retried": _set(P),
        "skipped": _set(OK),
        "aborted": _set(H),
        "paused": same,
        "resumed": same,
        "noted": same,
        "notice_given_up": same,
        "cause_ended": same,
        "executor_chosen": same,
        "limit_lifted": same,
        "budget_raised": same,
        "rolled_back": _set(P),
        "level_chosen": same,
        "post_checked": same,
        "landed": same,
        "landing_refused": same,  # of a story whose track is another's by now
        "discarded": same,
        "backlog_moved": same,
        "backlog_edited": same,
        "backlog_removed": same,
        "backlog_added": same,
        "auto_continue_chosen": same,
        "story_opened": same,
        "story_closed": same,
        "track_closed": _set(),
        "continued": AT_REST,  # the same holds where the backlog's next one was set aside
        "restored": same,
        "state_edited": ANY,
        "edit_confirmed": ANY,
    }


_FROM_OUTSIDE: Final = frozenset({"state_edited", "edit_confirmed"})
_GATE: Final = {"approved": _set(OK), "rejected": _set(F)}

TRANSITIONS: Final[Mapping[Status | None, Mapping[str, frozenset[Status]]]] = {
    None: {
        "initialised": _set(P),
        "track_opened": _set(P),
        "state_edited": ANY,
    },
    P: {
        **_resting(P),
        **_GATE,
        "advanced": AT_REST | {R},  # without a story, the next one may have been set aside
        "prompt_taken": _set(P, R, H),
        "dispatch_failed": _set(P, H),
    },
    R: {
        "started": _set(R),
        "aborted": _set(R, H),
        "paused": _set(R),
        "resumed": _set(R),
        "noted": _set(R),
        "notice_given_up": _set(R),
        "cause_ended": _set(R),
        "executor_chosen": _set(R),
        "limit_lifted": _set(R),
        "budget_raised": _set(R),
        "level_chosen": _set(R),
        "post_checked": _set(R),
        "landed": _set(R),
        "landing_refused": _set(R),
        "discarded": _set(R),
        "backlog_moved": _set(R),
        "backlog_edited": _set(R),
        "backlog_removed": _set(R),
        "backlog_added": _set(R),
        "auto_continue_chosen": _set(R),
        "story_opened": _set(R),
        "story_closed": _set(R),
        "prompt_taken": _set(R, T),
        "advanced": _set(R),
        "baseline_measured": _set(R, H),
        "executor_started": _set(R),
        "spawn_refused": _set(P, H),
        "handoff_settled": _set(R),
        "deadline_passed": _set(R, T),
        "cap_reached": _set(R),
        "executor_quiet": _set(R),
        "executor_stalled": _set(R),
        "interrupted": _set(R),
        "restored": _set(R, P),
        "executor_exited": _set(R, P, OK, F, H, T),
        "checks_finished": _set(OK, F, H),
        "handoff_arrived": _set(R, OK, F, H),
        "state_edited": ANY,
        "edit_confirmed": ANY,
    },
    OK: {
        **_resting(OK),
        "landing_refused": _set(OK, P),
        "resumed": AT_REST,
        "reopened": _set(P),
        "prompt_taken": AT_REST | {R},
        "advanced": AT_REST | {R},  # the end of a custom task gives a parked story back as it was
        "dispatch_failed": _set(P, H),
    },
    F: {
        **_resting(F),
        "prompt_taken": _set(F, R, H),
        "advanced": _set(P, F, R, H),  # pending: where it led to must wait for a budget
        "dispatch_failed": _set(P, H),
    },
    H: {
        **_resting(H),
        **_GATE,
        "prompt_taken": _set(H),
        "advanced": _set(H),
    },
    T: {
        **_resting(T),
        "prompt_taken": _set(T, R, H),
        "advanced": _set(P, T, R, H),
        "dispatch_failed": _set(P, H),
    },
}

Rule = Callable[[Situation, Any], Decision]
"""What makes the decision about one kind of event; its second parameter is of that kind."""

RULES: Final[Mapping[type[Event], Rule]] = {
    Initialised: verbs.initialise,
    Started: starting.start,
    Approved: verbs.approve,
    Undone: verbs.undo,
    Rejected: verbs.reject,
    Retried: verbs.retry,
    Skipped: verbs.skip,
    Aborted: verbs.abort,
    Paused: dispatching.pause,
    Resumed: dispatching.resume,
    Noted: verbs.note,
    RolledBack: verbs.roll_back,
    Reopened: verbs.reopen,
    EditConfirmed: verbs.edit_confirmed,
    ExecutorChosen: verbs.use,
    LimitLifted: limits.lift,
    BudgetRaised: limits.raise_budget,
    PromptTaken: dispatching.hand_out,
    LevelChosen: verbs.choose_level,
    PostChecked: verbs.post_checked,
    Landed: beside.landed,
    LandingRefused: verbs.landing_refused,
    Discarded: beside.discarded,
    Continued: starting.go_on,
    BacklogMoved: starting.move,
    BacklogEdited: starting.edit,
    BacklogRemoved: starting.remove,
    BacklogAdded: starting.add,
    AutoContinueChosen: starting.choose_auto_continue,
    Advanced: dispatching.advance,
    DispatchFailed: dispatching.dispatch_failed,
    BaselineMeasured: dispatching.baseline_measured,
    ExecutorStarted: dispatching.executor_started,
    SpawnRefused: judging.spawn_refused,
    HandoffSettled: ends.handoff_settled,
    DeadlinePassed: ends.deadline_passed,
    CapReached: ends.cap_reached,
    ExecutorQuiet: ends.executor_quiet,
    ExecutorStalled: ends.executor_stalled,
    Interrupted: ends.interrupted,
    ExecutorExited: judging.executor_exited,
    ChecksFinished: judging.checks_finished,
    HandoffArrived: judging.handoff_arrived,
    StateEdited: verbs.state_edited,
    Restored: verbs.restored,
    NoticeGivenUp: ends.notice_given_up,
    CauseEnded: ends.cause_ended,
    StoryOpened: beside.open_story,
    StoryClosed: beside.close_story,
    TrackOpened: beside.open_track,
    TrackClosed: beside.close_track,
}
"""What decides on each kind of event, once `TRANSITIONS` has let it through."""


def diagram() -> str:
    """Return the table as a Mermaid state diagram; facts that change no status are left out."""
    lines = ["stateDiagram-v2", "    [*] --> pending: initialised, track_opened"]
    for status, facts in TRANSITIONS.items():
        if status is None:
            continue
        lines += [f"    {status} --> [*]: {fact}" for fact, targets in facts.items() if not targets]
        arrows: dict[Status, list[str]] = {}
        for fact, targets in facts.items():
            if fact in _FROM_OUTSIDE:
                continue  # an edit may lead anywhere; drawn, it would hide the rest
            for target in targets - {status}:
                arrows.setdefault(target, []).append(fact)
        lines += [f"    {status} --> {to}: {', '.join(arrows[to])}" for to in Status if to in arrows]
    return "\n".join(lines) + "\n"


# --- the machine --------------------------------------------------------------------------------------
def decide(track: Track, event: Event, rules: RuleBook, now: datetime) -> Decision:
    """Return the next track and what must be done about it. Same input, same output."""
    goes_on = isinstance(event, Advanced) and event.auto_continue
    reopenings = event.reopenings if isinstance(event, Advanced | PromptTaken) else None
    situation = Situation(track, rules, now, auto_continue=goes_on, reopenings=reopenings)
    decision = _decide(situation, event)
    if decision.track.ledger.task is not None:
        decision = kept_inside(decision)
    return replace(
        decision,
        result=_advised(decision, rules),
        grounds=decision.grounds or (_row_of(track, event, decision),),
        basis=Basis(rules, now),
    )


def _row_of(track: Track, event: Event, decision: Decision) -> Ground:
    """Return the row of the transition table, or the refusal, for what no other rule had a say in."""
    before, after = track.state, decision.track.state
    if isinstance(decision.result, Refusal):
        return Ground(rule=f"refusals.{decision.result.code}", value=event.kind)
    place = before.status.value if before is not None else "none"
    return Ground(
        rule=f"transitions.{place}.{event.kind}", value=after.status.value if after is not None else "none"
    )


def _decide(situation: Situation, event: Event) -> Decision:
    track = situation.track
    status = track.state.status if track.state is not None else None
    allowed = TRANSITIONS[status].get(event.kind)
    if allowed is None:
        return _out_of_place(situation, event, status)
    if _is_stale(track, event):
        return refuse(situation, "STALE_FACT", f"{event.kind} is about another dispatch")
    try:
        decision = RULES[type(event)](situation, event)
    except UnknownStepError as missing:
        return _unknown_step(situation, event, str(missing))
    after = decision.track.state
    refused = isinstance(decision.result, Refusal)
    assert after is None or refused or after.status in allowed, (status, event.kind, after.status)
    return decision


def _advised(decision: Decision, rules: RuleBook) -> Result:
    """Return the result with the next command for the user, unless its rule set a better one."""
    result = decision.result
    if result.next_command or isinstance(result, Refusal | Finished):
        return result  # they know, and where the next story starts by itself there is nothing to type
    return replace(result, next_command=next_command(decision.track, rules))


_OfOneDispatch = (
    BaselineMeasured
    | ExecutorStarted
    | SpawnRefused
    | HandoffSettled
    | DeadlinePassed
    | CapReached
    | ExecutorQuiet
    | ExecutorStalled
    | ExecutorExited
    | ChecksFinished
)


def _is_stale(track: Track, event: Event) -> bool:
    """Whether a fact about a dispatch is about another one than the one in flight."""
    if not isinstance(event, _OfOneDispatch):
        return False
    current = track.ledger.dispatch.id if track.ledger.dispatch is not None else None
    return event.dispatch != current


def _out_of_place(situation: Situation, event: Event, status: Status | None) -> Decision:
    track, rules = situation.track, situation.rules
    if status is None:
        return refuse(situation, "NOT_INITIALIZED", "the project has no STATE.json", way_on(track, rules))
    if isinstance(event, Undone):
        return verbs.too_late(situation)
    if status is Status.RUNNING:
        return refuse(situation, "ALREADY_RUNNING", f"{situation.state.step} runs", way_on(track, rules))
    if isinstance(event, Approved | Rejected):
        message = f"{situation.state.step} waits for no decision"
        if event.story not in {None, situation.state.story}:
            message = f"{event.story} waits at no gate, and {message}"
        return refuse(situation, "WRONG_STEP", message, way_on(track, rules))
    if isinstance(event, Reopened):
        return verbs.not_done(situation, event)
    return refuse(situation, "STALE_FACT", f"{event.kind} changes nothing at {status}")


def _unknown_step(situation: Situation, event: Event, step: str) -> Decision:
    message, remedy = f"the step table has no step {step}", "correct .ai/step-rules.yaml"
    if not isinstance(event, ExecutorExited | ChecksFinished):
        told = f"{message}: {remedy}, or roll back to a step it has"
        return refuse(situation, "UNKNOWN_STEP", told, CHECK_TABLE)
    # The end of its processes is reported only once: if refused, the track would stay `running` forever.
    track = situation.track.without_dispatch().with_state(
        status=Status.NEEDS_HUMAN, last_error=message, completed_at=situation.now
    )
    return ask_human(situation.at(track), message, why=f"{remedy}, then try again")


# --- a recorded decision, made again ------------------------------------------------------------------
Standing = tuple[str, str]
"""A step and a status, as STATE.json writes them."""


class Recorded(Struct, frozen=True, kw_only=True):
    """A decision as it was recorded: what it was made with, and what came out.

    `before` and `after` are None where the track had no STATE.
    """

    event: Event
    rules: RuleBook
    now: datetime
    before: Standing | None
    after: Standing | None
    result: Result
    effects: tuple[Effect, ...]
    why: str
    grounds: tuple[Ground, ...]


class Difference(Struct, frozen=True, kw_only=True):
    """One thing that comes out differently: `step`, `status`, `result`, `effects`, `why`, ..."""

    what: str
    recorded: str
    replayed: str


class Replayed(Struct, frozen=True, kw_only=True):
    """What a decision is now: the next track, and what differs from the record."""

    track: Track
    differences: tuple[Difference, ...]


def replay(track: Track, recorded: Recorded) -> Replayed:
    """Decide again on a recorded event of `track`. Raises nothing: no decision is a difference, too."""
    try:
        decision = decide(track, recorded.event, recorded.rules, recorded.now)
    except Exception as error:  # a changed record may hold what no event could say
        none = f"no decision: {type(error).__name__}: {error}"
        return Replayed(
            track=track, differences=(Difference(what="decision", recorded="one", replayed=none),)
        )
    return Replayed(track=decision.track, differences=tuple(_differences(track.state, recorded, decision)))


def standing_of(state: State | None) -> Standing | None:
    """Return a track's step and status in the form that events record."""
    return None if state is None else (state.step, state.status.value)


def unlike(recorded: Track, replayed: Track) -> Iterator[Difference]:
    """Yield what differs between a track as it is kept and as its events make it, field by field."""
    found = [
        *(
            difference
            for name in State.model_fields
            for difference in differing(
                f"state.{name}", getattr(recorded.state, name, None), getattr(replayed.state, name, None)
            )
        ),
        *(
            difference
            for field in fields(Ledger)
            for difference in differing(
                f"ledger.{field.name}",
                getattr(recorded.ledger, field.name),
                getattr(replayed.ledger, field.name),
            )
        ),
    ]
    # Foreign keys of STATE.json, or their order: no field of ours.
    yield from found or differing("state", recorded.state, replayed.state)


def differing(what: str, recorded: object, replayed: object) -> Iterator[Difference]:
    """Yield the difference between two values, if there is one."""
    if recorded != replayed:
        yield Difference(what=what, recorded=_shown(recorded), replayed=_shown(replayed))


def _differences(before: State | None, recorded: Recorded, decision: Decision) -> Iterator[Difference]:
    yield from _standings("before", recorded.before, standing_of(before))
    yield from _standings("after", recorded.after, standing_of(decision.track.state))
    yield from differing("result", recorded.result, decision.result)
    yield from _effects(recorded.effects, decision.effects)
    yield from differing("why", recorded.why, decision.why)
    yield from differing("rules", _ruled(recorded.grounds), _ruled(decision.grounds))


def _standings(when: str, recorded: Standing | None, replayed: Standing | None) -> Iterator[Difference]:
    if recorded is None or replayed is None:
        yield from differing(f"standing {when}", recorded, replayed)
        return
    yield from differing(f"step {when}", recorded[0], replayed[0])
    yield from differing(f"status {when}", recorded[1], replayed[1])


def _effects(recorded: tuple[Effect, ...], replayed: tuple[Effect, ...]) -> Iterator[Difference]:
    kinds = [effect.kind for effect in recorded], [effect.kind for effect in replayed]
    if kinds[0] != kinds[1]:
        yield from differing("effects", ", ".join(kinds[0]) or None, ", ".join(kinds[1]) or None)
        return
    for one, other in zip(recorded, replayed, strict=True):
        yield from differing(f"effect {one.kind}", one, other)


def _ruled(grounds: tuple[Ground, ...]) -> str | None:
    return ", ".join(f"{ground.rule} = {ground.value}" for ground in grounds) or None


def _shown(value: object) -> str:
    return "none" if value is None else value if isinstance(value, str) else repr(value)
