"""Where a track goes next: to which step by the step table, and to which story of the backlog.

`follow` takes a track whose attempt has ended (pass, failing, timeout) to the step and attempt that come
next, or to a stop. It starts nothing; `dispatching.py` starts what it returns.

The backlog is a part of the track's ledger, so a story is taken out of it in the transaction that begins
it. It is kept in order: by priority, and among equals by the time they came. What people do with it is in
`starting.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from handoffd.engine.decision import (
    ONLY_A_PERSON,
    Decision,
    Finished,
    Ground,
    Moved,
    Situation,
    TimedOut,
    WriteChecklist,
    ask_human,
    ground,
    is_unrouted,
    next_command,
    notice,
    row,
    to_land,
)
from handoffd.engine.track import (
    EXTERNAL,
    BacklogPause,
    Dispatch,
    Facts,
    Ledger,
    Parked,
    Phase,
    Queued,
    SinceReview,
    Track,
    is_beside,
    lasting,
    startable,
    unmet,
)
from handoffd.engine.wording import command, first_few, showing_failures, showing_gate, usage_in_words
from handoffd.engine.wording import strays_of as told_of_strays
from handoffd.protocol.rules import DONE, Pipeline, RuleBook
from handoffd.protocol.state import Reason, State, Status

# --- the next step ------------------------------------------------------------------------------------
MAX_ATTEMPTS = "max_attempts_exceeded"
"""The entry of blocked_by that says a person must look before anything is tried again."""


def follow(situation: Situation) -> Moved | Decision:
    """Return the track at what comes next, pending; or the decision that stops it here."""
    match situation.state.status:
        case Status.PASS:
            return _after_pass(situation)
        case Status.FAILING:
            return _after_failing(situation)
        case Status.TIMEOUT:
            return _after_timeout(situation)
        case _:
            return Moved(track=situation.track)


def _after_pass(situation: Situation) -> Moved | Decision:
    step, target = situation.state.step, situation.rule.next_on_pass
    route = row(step, "next_on_pass", target)
    if target == DONE:
        return finish(situation).because(route)
    over = situation.rules.passed_over.get(step)
    if over is None:
        return visit(situation, target, why=f"{step} passed", route=route)
    gates = situation.rules.gates
    passed = situation.at(situation.track.with_ledger(unseen=True))
    moved = visit(
        passed, target, why=f"{step} passed, and {over} is passed over (gates: {gates})", route=route
    )
    return _because(moved, ground("settings.gates", gates))


def _because(moved: Moved | Decision, *grounds: Ground) -> Moved | Decision:
    if isinstance(moved, Moved):
        return replace(moved, grounds=(*grounds, *moved.grounds))
    return moved.because(*grounds)


def _after_failing(situation: Situation) -> Moved | Decision:
    state, rule = situation.state, situation.rule
    if not situation.at_gate and state.attempt >= state.max_attempts:
        return _attempts_used_up(situation)
    ends, most = situation.ledger.ends.get(state.step), situation.rules.identical_ends
    if not situation.at_gate and ends is not None and ends.times >= most > 0:
        return _ends_alike(situation, ends.times)
    reason = state.reason
    if _escalates(situation):
        return _escalate(situation)
    if reason is not None and is_unrouted(rule, reason):
        return _unrouted(situation, reason)
    target = rule.target(reason)
    why = f"{state.step} failed with reason {reason}" if reason else f"{state.step} failed"
    route = row(state.step, f"on_fail.{reason if reason in rule.on_fail else 'default'}", target)
    if target == state.step:
        return retry_here(situation.track, why, route)
    return visit(situation, target, why=why, route=route)


def retry_here(track: Track, why: str, route: Ground) -> Moved:
    """Return the track at its next attempt of the same step."""
    state = track.state
    assert state is not None
    again = track.with_state(attempt=state.attempt + 1, status=Status.PENDING)
    left = row(state.step, "max_attempts", f"{state.attempt + 1} of {state.max_attempts}")
    return Moved(track=again, why=why, grounds=(route, left))


def _attempts_used_up(situation: Situation) -> Decision:
    state = situation.state
    blocked = (*(name for name in state.blocked_by if name != MAX_ATTEMPTS), MAX_ATTEMPTS)
    track = situation.track.with_state(status=Status.NEEDS_HUMAN, blocked_by=blocked)
    times = "time" if state.attempt == 1 else "times"
    return ask_human(
        situation.at(track),
        f"{state.step} failed {state.attempt} {times} and has no attempt left",
        why=state.last_error or (f"reason {state.reason}" if state.reason else "see the attempts' output"),
    ).because(row(state.step, "max_attempts", f"{state.attempt} of {state.max_attempts}"))


def _ends_alike(situation: Situation, times: int) -> Decision:
    """Ask a person instead of paying for more of the same."""
    state = situation.state
    alike = f"{state.step} ended in the same way {times} times in a row"
    how = state.last_error or (str(state.reason) if state.reason else first_few(state.failing_tests))
    # The cause first: a screen may have no room for all of it.
    told = f"{how} (the same {times} times in a row)" if how else alike
    track = situation.track.with_state(status=Status.NEEDS_HUMAN, last_error=told)
    return ask_human(
        situation.at(track),
        f"{alike}, and is not tried again by itself",
        why=how or "see the attempts' output",
    ).because(ground("settings.identical_ends", situation.rules.identical_ends))


def look_command(track: Track, own: str | None, *, gate: bool) -> str | None:
    """Return what shows why a person is asked, as a template; None where the words say all there is.

    `own`: the story, where several are in flight; `gate`: whether it waits at one.
    """
    state, ledger = track.state, track.ledger
    if state is None or ledger.closed or gate:
        return showing_gate(own) if gate else None
    if question_of(track) is not None:
        return command("status")  # all of it, which lists cut
    asked = state.status in {Status.NEEDS_HUMAN, Status.TIMEOUT} and state.step != DONE and ledger.automatic
    failed = MAX_ATTEMPTS in state.blocked_by or state.step in ledger.ends or state.status is Status.TIMEOUT
    return showing_failures(own) if asked and failed else None


def question_of(track: Track) -> str | None:
    """Return what the agent of a step asks a person, in its own words; None at a gate, or after a failure."""
    state, ledger = track.state, track.ledger
    if state is None or state.status is not Status.NEEDS_HUMAN or state.step not in ledger.facts.attempts:
        return None
    measured = told_of_strays(state.step, ledger.wrote)  # its agent may have claimed that all is well
    asks = state.last_error is None or (state.reason in ONLY_A_PERSON and state.last_error != measured)
    return ledger.facts.summary if asks and MAX_ATTEMPTS not in state.blocked_by else None


def _unrouted(situation: Situation, reason: Reason) -> Decision:
    state = situation.state
    return ask_human(
        situation.at(situation.track.with_state(status=Status.NEEDS_HUMAN)),
        f"{state.step} ended with {reason}, which only a person can answer: leave a note, then retry",
        why=state.last_error or f"the step table has no route for {reason} at {state.step}",
    ).because(row(state.step, f"on_fail.{reason}", "no route"))


def _escalates(situation: Situation) -> bool:
    state = situation.state
    reopened = state.reopened_from is not None and not situation.ledger.escalated
    return reopened and state.step == "verify" and state.reason is None


def _escalate(situation: Situation) -> Moved | Decision:
    """Go to the step before the one at which a story was reopened, once: the fault must be further up."""
    state = situation.state
    assert state.reopened_from is not None
    path = situation.rules.path(state.task_type)
    place = situation.index_of(state.reopened_from)
    bootstrap = situation.pipeline(state.task_type).bootstrap
    track = situation.track.with_ledger(escalated=True)
    once = ground("story.reopened_from", state.reopened_from)
    if place <= 0 or path[place - 1] == bootstrap:
        forced = ("--force",) if state.reopened_from == bootstrap else ()
        return ask_human(
            situation.at(track.with_state(status=Status.NEEDS_HUMAN)),
            f"verify failed after the story was reopened at {state.reopened_from}, its first step",
            action=command("rollback", state.reopened_from, *forced) if place >= 0 else None,
            why="there is no earlier step to go back to",
        ).because(once)
    back = track.with_state(reopened_from=None)  # also for other tools that read the file: this was the once
    return visit(situation.at(back), path[place - 1], why="verify failed after a reopening", route=once)


def _after_timeout(situation: Situation) -> Moved | Decision:
    state, ledger, rule = situation.state, situation.ledger, situation.rule
    retries = row(state.step, "retry_on_timeout", rule.retry_on_timeout)
    if ledger.timeouts < rule.retry_on_timeout and state.attempt < state.max_attempts:
        counted = situation.track.with_ledger(timeouts=ledger.timeouts + 1)
        return retry_here(counted, f"{state.step} ran out of time", retries)
    result = TimedOut(
        step=state.step,
        elapsed_min=state.timeout_min,
        message=state.last_error or f"{state.step} ran out of time",
        caller_instruction=f"{state.step} timed out and waits for a person to try again: {command('retry')}",
    )
    decision = Decision(track=situation.track, result=result, why="a timeout waits for a person")
    return decision.because(retries)


def visit(situation: Situation, step: str, *, why: str, route: Ground) -> Moved | Decision:
    """Enter `step` from another one, unless it was entered too often: that is a loop."""
    rule = situation.rules.steps[step]
    visits = situation.ledger.visits.get(step, 0) + 1
    if visits > rule.max_visits:
        return ask_human(
            situation.at(situation.track.with_state(status=Status.NEEDS_HUMAN)),
            f"{step} was entered {rule.max_visits} times without the story getting past it",
            why=f"{why}; max_visits of {step} is {rule.max_visits}",
        ).because(route, row(step, "max_visits", rule.max_visits))
    counted = {**situation.ledger.visits, step: visits}
    entered = enter(situation.track.with_ledger(visits=counted), step, situation.rules)
    return Moved(track=entered, why=why, grounds=(route,))


def enter(track: Track, step: str, rules: RuleBook) -> Track:
    """Return the track at the first attempt of `step`, with the last step's results cleared."""
    rule = rules.steps[step]
    return track.with_state(
        step=step, attempt=1, max_attempts=rule.max_attempts, timeout_min=rule.timeout_min,
        status=Status.PENDING, reason=None, last_error=None, tests=None, failing_tests=(),
        lint_pass=None, files_changed=(),
    ).with_ledger(free_repeats=0, timeouts=0, session=None, asking=None, told=None, gate=None)  # fmt: skip


# --- the end of a story -------------------------------------------------------------------------------
def finish(situation: Situation) -> Decision:
    """Return the decision that ends the story."""
    state, ledger = situation.state, situation.ledger
    track = situation.track.with_state(
        step=DONE, status=Status.PASS, attempt=1, max_attempts=1, timeout_min=0, reason=None,
        last_error=None, human_note=None, reopened_from=None, completed_at=situation.now,
    )  # fmt: skip
    if state.story is not None:
        done = (*(name for name in ledger.stories_done if name != state.story), state.story)
        track = track.with_ledger(
            stories_done=done, told=None, review=_review(situation), approval=None, unseen=_unseen(situation)
        )
    summary = _summary(state, ledger.facts)
    here = situation.at(track)
    result = finished(here, summary)
    why = f"{state.step} passed; the pipeline ends"
    words = (why, unseen_in_words(here), still_waiting(here), _review_in_words(here))
    decision = Decision(track=track, result=result, why=why)
    told = "; ".join(part for part in words if part)
    return decision.also(notice(track, "done", summary, why=told, action=result.next_command))


def _unseen(situation: Situation) -> bool:
    """Return whether a story comes to its end, and no person was asked about it."""
    rules, state = situation.rules, situation.state
    decided = any(rules.steps[step].requires_human for step in rules.path(state.task_type))
    return situation.ledger.unseen or (rules.gates == "none" and not decided)


def unseen_in_words(situation: Situation) -> str | None:
    """Return that no person was asked about a story, and what follows from that; None where one was."""
    if not situation.ledger.unseen:
        return None
    why = "no person was asked about it"
    return why if to_land(situation.track) is None else f"{why}, so it does not land by itself"


SUGGEST_REVIEW_AFTER: Final = 3
"""Ends of stories, or reopenings, after which a review of the whole project is suggested."""


def _review(situation: Situation) -> SinceReview:
    """Return what speaks for a review at the end of a story; a custom task does not."""
    before, state, seen = situation.ledger.review, situation.state, situation.reopenings
    if seen is None:
        return before
    if state.task_type == "custom":
        return replace(before, suggested=False)
    others = sum(1 for name in situation.ledger.stories_done if name != state.story)
    ends = (others if before.ends is None else before.ends) + 1
    told = min(before.reopenings, seen)  # a history may have been begun anew
    if max(ends, seen - told) < SUGGEST_REVIEW_AFTER:
        return SinceReview(ends=ends, reopenings=told)
    return SinceReview(ends=0, reopenings=seen, suggested=True)


def _review_in_words(situation: Situation) -> str | None:
    return "a review of the whole project is suggested" if situation.ledger.review.suggested else None


def finished(situation: Situation, summary: str) -> Finished:
    """Return the result for a story that is done, naming what is or could be started next."""
    by_itself = unasked(situation.ledger, auto_continue=situation.auto_continue)
    upcoming = coming(situation.ledger, auto_continue=situation.auto_continue)
    following, landing = next_command(situation.track, situation.rules), to_land(situation.track)
    if by_itself is not None:
        following, do = landing, f"{by_itself.story} of the backlog starts by itself"
    elif landing is not None:
        do = f"to bring it into your branch: {landing}"
    else:
        do = f"{f'to start {upcoming.story}' if upcoming else 'when there is another story'}: {following}"
    if (unseen := unseen_in_words(situation)) is not None:
        do = f"{unseen}; {do}"
    suggested = situation.ledger.review.suggested
    if suggested:
        do = f"{_review_in_words(situation)} ({command('review')}); {do}"
    return Finished(
        story=situation.state.story,
        summary=summary,
        next_story=upcoming.story if upcoming else None,
        review_suggested=suggested,
        next_command=following,
        caller_instruction=f"{summary}; {do}",
    )


_NAMED: Final = 3
"""Most queued stories that a notice names, with the stories they wait for."""


def still_waiting(situation: Situation) -> str | None:
    """Return what comes next of the backlog, and what keeps others; None when it is empty."""
    track, ledger = situation.track, situation.ledger
    upcoming = coming(ledger, auto_continue=situation.auto_continue)
    told = [f"{upcoming.story} is next"] if upcoming is not None else []
    waits = [(one.story, waits_in_words(track, one)) for one in ledger.backlog]
    blocked = [f"{story} {what}" for story, what in waits if what is not None]
    more = [f"{len(blocked) - _NAMED} more wait for others"] if len(blocked) > _NAMED else []
    return "; ".join([*told, *blocked[:_NAMED], *more]) or None


def _summary(state: State, facts: Facts) -> str:
    tests = facts.tests
    measured = f", {tests.passed}/{tests.passed + tests.failed} tests pass" if tests else ""
    used = usage_in_words(facts.usage.tokens, facts.usage.cost_usd)
    return f"{state.story} is done{measured}" + (f", {used}" if used else "")


# --- the first step of a story ------------------------------------------------------------------------
def begin(situation: Situation, queued: Queued, *, bootstrapped: bool) -> tuple[Track, WriteChecklist]:
    """Return the track at the first step of a new story, and the order for its checklist."""
    first = first_step(situation.pipeline(queued.task_type), situation.ledger, bootstrapped=bootstrapped)
    track = Track(
        state=situation.state.with_(
            story=queued.story, task_type=queued.task_type, human_note=queued.instruction,
            agent_teams=queued.agent_teams, blocked_by=queued.blocked_by, reopened_from=None,
            dispatched_at=None, completed_at=None,
        ),
        ledger=working_on(lasting(situation.ledger), queued.story).with_(
            executor=queued.executor, complexity=queued.complexity, schedule=queued.schedule,
            to_land=left_to_land(situation.track, queued.story),
        ),
    )  # fmt: skip
    return enter(track, first, situation.rules), WriteChecklist(
        story=queued.story, task_type=queued.task_type
    )


def first_step(pipeline: Pipeline, ledger: Ledger, *, bootstrapped: bool) -> str:
    """Return the step at which a new story begins: the bootstrap, once, in a project that is new itself."""
    fresh_project = not bootstrapped and not ledger.stories_done
    return pipeline.bootstrap if pipeline.bootstrap and fresh_project else pipeline.first


MOST_LEFT: Final = 50
"""Stories that are remembered to be landed; a person may have merged them without a word."""


def working_on(ledger: Ledger, story: str | None) -> Ledger:
    """Return the ledger in which `story` neither waits nor is parked: it is being worked on."""
    return ledger.with_(
        backlog=tuple(queued for queued in ledger.backlog if queued.story != story),
        parked=tuple(parked for parked in ledger.parked if parked.state.story != story),
    )


def left_to_land(track: Track, but: str | None) -> tuple[str, ...]:
    """Return the stories to land once `but` begins: the one of the track among them, if it is done."""
    state, ledger, left = track.state, track.ledger, track.ledger.to_land
    told = ledger.unseen or ledger.unlanded is not None  # the notice of their end leaves these to a person
    if state is not None and state.story is not None and to_land(track) and not told:
        left = (*(name for name in left if name != state.story), state.story)
    return tuple(name for name in left if name != but)[-MOST_LEFT:]


def give_back(situation: Situation, parked: Parked) -> Track:
    """Return the track with a parked story taken up where it was set aside, paused if it was that alone."""
    project, own = working_on(lasting(situation.ledger), parked.state.story), parked.ledger
    alone = own.paused_by if own.backlog_pause is not None else None
    return Track(state=parked.state, ledger=parked.ledger).with_ledger(
        automatic=project.automatic, by_hand=project.by_hand,
        paused_by=alone or project.paused_by, remedy=project.remedy,
        backlog_pause=BacklogPause(by=project.paused_by) if alone else None,
        self_paused=project.self_paused, faults=project.faults,
        last_mark=project.last_mark, stories_done=project.stories_done, backlog=project.backlog,
        parked=project.parked, dispatch=None, limited=project.limited,
        spent=project.spent, granted={**parked.ledger.granted, **project.granted},
        auto_continue=project.auto_continue, review=project.review, texts=project.texts,
        workspace=project.workspace or parked.ledger.workspace, beside=project.beside,
        to_land=left_to_land(situation.track, parked.state.story),
    )  # fmt: skip


# --- the backlog: who is next -------------------------------------------------------------------------
MOST_STORIES: Final = 200
"""Stories in one backlog: it is written with every decision of its track."""

MOST_TEXT: Final = 256 * 1024
"""Characters of all its instructions together, for the same reason."""


def stopped(ledger: Ledger) -> bool:
    """Return whether a track goes on, to its next step or story, only when a person wants that."""
    return bool(ledger.paused_by or ledger.closed or ledger.held_edit)


def needs_nobody(ledger: Ledger, entry: Queued, *, auto_continue: bool, beside: bool = False) -> bool:
    """Return whether an entry starts without a command, once nothing is before it.

    What a schedule has queued was due, and missed its time only because of the story before it; and what a
    person has asked for waits only until that is landed. At level 1
    people dispatch, and after a pause, an abort or an edit that is held it is they who go on; but `beside`
    others, only the project's own pause counts.
    """
    if not ledger.automatic or ledger.project_paused_by or (stopped(ledger) and not beside):
        return False
    return auto_continue or entry.schedule is not None or entry.asked


def unasked(ledger: Ledger, *, auto_continue: bool, beside: bool = False) -> Queued | None:
    """Return the story that starts by itself where none is in flight; None when a person has to ask.

    `beside`: it need not wait for the one in flight.
    """
    how = {"auto_continue": auto_continue, "beside": beside}
    ready = (entry for entry in ledger.backlog if not unmet(entry, ledger))
    return next((one for one in ready if needs_nobody(ledger, one, **how)), None)


def coming(ledger: Ledger, *, auto_continue: bool, beside: bool = False) -> Queued | None:
    """Return the story that is next, by itself or when a person asks; None when none can start."""
    return unasked(ledger, auto_continue=auto_continue, beside=beside) or startable(ledger)


def entry_of(ledger: Ledger, story: str) -> Queued | None:
    """Return the entry of a story; None when it is not in the backlog."""
    return next((entry for entry in ledger.backlog if entry.story == story), None)


def without(backlog: Iterable[Queued], stories: Iterable[str]) -> tuple[Queued, ...]:
    """Return the backlog without some stories."""
    gone = frozenset(stories)
    return tuple(entry for entry in backlog if entry.story not in gone)


def behind(backlog: tuple[Queued, ...], entry: Queued) -> tuple[Queued, ...]:
    """Return the backlog with `entry` behind all that are as urgent, removed from its old place."""
    others = without(backlog, (entry.story,))
    return tuple(sorted((*others, entry), key=lambda one: -one.priority))  # sorted() keeps equals in order


def before(backlog: tuple[Queued, ...], entry: Queued, index: int) -> tuple[Queued, ...]:
    """Return the backlog with `entry`, whose priority fits there, before the `index`th of the others."""
    others = without(backlog, (entry.story,))
    return (*others[:index], entry, *others[index:])


# --- the backlog: what keeps a story ------------------------------------------------------------------
BlockerKind = Literal["in_flight", "queued", "set_aside", "unknown"]


class Blocker(Struct, frozen=True, kw_only=True):
    """A story that another one waits for. `unknown`: the journal does not have it, or it never finished."""

    story: str
    kind: BlockerKind


def blockers(track: Track, entry: Queued) -> tuple[Blocker, ...]:
    """Return what `entry` waits for, and what is known of each."""
    return tuple(Blocker(story=name, kind=_kind(track, name)) for name in unmet(entry, track.ledger))


def _kind(track: Track, story: str) -> BlockerKind:
    state, ledger = track.state, track.ledger
    if state is not None and state.story == story and state.step != DONE and not ledger.closed:
        return "in_flight"
    if is_beside(ledger, story):
        return "in_flight"
    if entry_of(ledger, story) is not None:
        return "queued"
    return "set_aside" if any(parked.state.story == story for parked in ledger.parked) else "unknown"


_KINDS: Final[Mapping[BlockerKind, str]] = {
    "in_flight": "in flight",
    "queued": "in the backlog",
    "set_aside": "set aside",
    "unknown": "never started, and not in the backlog",
}


def waits_in_words(track: Track, entry: Queued) -> str | None:
    """Return what an entry waits for: `waits for US-5 (in flight) and US-9 (…)`; None when it may start."""
    named = [f"{one.story} ({_KINDS[one.kind]})" for one in blockers(track, entry)]
    return f"waits for {' and '.join(named)}" if named else None


def circle(track: Track, entries: Iterable[Queued]) -> tuple[str, ...] | None:
    """Return the stories that would wait for each other for ever once `entries` are in the backlog.

    `US-1, US-2, US-1`: the first one again at the end. None when there are none.
    """
    waits = _waits(track)
    added = {entry.story: unmet(entry, track.ledger) for entry in entries}
    waits |= added
    return next((found for story in added if (found := _way_back(story, waits)) is not None), None)


def _waits(track: Track) -> dict[str, tuple[str, ...]]:
    """Return, of every story that is not done, the stories it waits for."""
    ledger = track.ledger
    waits = {entry.story: unmet(entry, ledger) for entry in ledger.backlog}
    states = [parked.state for parked in ledger.parked] + ([track.state] if track.state is not None else [])
    for state in states:
        if state.story is not None and state.step != DONE:
            waits[state.story] = tuple(name for name in state.blocked_by if name not in ledger.stories_done)
    return waits


def _way_back(story: str, waits: Mapping[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    """Return the shortest way from a story over what it waits for to itself."""
    ways: list[tuple[str, ...]] = [(story,)]
    seen: set[str] = set()
    while ways:
        way = ways.pop(0)
        for name in waits.get(way[-1], ()):
            if name == story:
                return (*way, name)
            if name not in seen:
                seen.add(name)
                ways.append((*way, name))
    return None


# --- what its time goes into ---------------------------------------------------------------------------
Awaited = Literal["agent", "checks", "slot", "limit", "person", "story", "nothing"]
"""What a story waits for: the agent at work, its checks, a slot (or its turn), a usage limit or a cap, a
person, another story."""


def awaited(track: Track) -> Awaited:
    """Return what the story in flight waits for; nothing where there is none."""
    state, ledger = track.state, track.ledger
    if state is None or state.story is None or state.step == DONE or ledger.closed:
        return "nothing"
    if state.status is Status.RUNNING:
        return _awaited_of(ledger.dispatch)
    if ledger.held_edit or ledger.paused_by or state.status in {Status.NEEDS_HUMAN, Status.TIMEOUT}:
        return "person"
    if state.status is not Status.PENDING:
        return "slot"  # judged: what follows is decided at its next turn
    if ledger.capped or (ledger.limited and ledger.told):
        return "limit"
    if ledger.told:
        return "story"
    return "slot" if ledger.automatic else "person"


def _awaited_of(dispatch: Dispatch | None) -> Awaited:
    if dispatch is None:
        return "person"  # the attempt is made by hand
    if dispatch.phase in {Phase.BASELINE, Phase.CHECKING}:
        return "checks"
    return "person" if dispatch.executor == EXTERNAL else "agent"
