"""Where a track goes next: the step table applied to a finished attempt.

`follow` takes a track whose attempt has ended (pass, failing, timeout) to the step and attempt that come
next, or to a stop. It starts nothing; `dispatching.py` does that with what it returns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from handoffd.engine.backlog import coming, unasked, waits_in_words
from handoffd.engine.commands import command
from handoffd.engine.decision import (
    Decision,
    Finished,
    Ground,
    Moved,
    Situation,
    TimedOut,
    WriteChecklist,
    ground,
    row,
)
from handoffd.engine.track import Facts, Ledger, Parked, Queued, SinceReview, Track, changed
from handoffd.engine.usage import Cap, Scope, usage_in_words
from handoffd.engine.wording import ask_human, is_unrouted, next_command, notice
from handoffd.protocol.rules import DONE, Pipeline, RuleBook
from handoffd.protocol.state import Reason, State, Status

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
    return visit(situation, target, why=f"{step} passed", route=route)


def finish(situation: Situation) -> Decision:
    """Return the decision that ends the story."""
    state, ledger = situation.state, situation.ledger
    track = situation.track.with_state(
        step=DONE, status=Status.PASS, attempt=1, max_attempts=1, timeout_min=0, reason=None,
        last_error=None, human_note=None, reopened_from=None, completed_at=situation.now,
    )  # fmt: skip
    if state.story is not None:
        done = (*(name for name in ledger.stories_done if name != state.story), state.story)
        track = track.with_ledger(stories_done=done, told=None, review=_review(situation))
    summary = _summary(state, ledger.facts)
    here = situation.at(track)
    result = finished(here, summary)
    why = f"{state.step} passed; the pipeline ends"
    told = "; ".join(part for part in (why, still_waiting(here), _review_in_words(here)) if part)
    decision = Decision(track=track, result=result, why=why)
    return decision.also(notice(track, "done", summary, why=told, action=result.next_command))


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
    following = next_command(situation.track, situation.rules)
    if by_itself is not None:
        following, do = None, f"{by_itself.story} of the backlog starts by itself"
    else:
        do = f"{f'to start {upcoming.story}' if upcoming else 'when there is another story'}: {following}"
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
"""Stories of a backlog that a notice names, with what they wait for."""


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


def _after_failing(situation: Situation) -> Moved | Decision:
    state, rule = situation.state, situation.rule
    if not situation.at_gate and state.attempt >= state.max_attempts:
        return _attempts_used_up(situation)
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
    """Go one step before the one a story was reopened at, once: the fault lies further up."""
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
    """Return the track at the first attempt of `step`, with what belonged to the last one cleared."""
    rule = rules.steps[step]
    return track.with_state(
        step=step, attempt=1, max_attempts=rule.max_attempts, timeout_min=rule.timeout_min,
        status=Status.PENDING, reason=None, last_error=None, tests=None, failing_tests=(),
        lint_pass=None, files_changed=(),
    ).with_ledger(free_repeats=0, timeouts=0, session=None, asking=None, told=None, gate=None)  # fmt: skip


def begin(situation: Situation, queued: Queued, *, bootstrapped: bool) -> tuple[Track, WriteChecklist]:
    """Return the track at the first step of a new story, and the order for its checklist."""
    first = first_step(situation.pipeline(queued.task_type), situation.ledger, bootstrapped=bootstrapped)
    track = Track(
        state=situation.state.with_(
            story=queued.story, task_type=queued.task_type, human_note=queued.instruction,
            agent_teams=queued.agent_teams, blocked_by=queued.blocked_by, reopened_from=None,
            dispatched_at=None, completed_at=None,
        ),
        ledger=changed(
            _without(lasting(situation.ledger), queued.story),
            executor=queued.executor, complexity=queued.complexity, schedule=queued.schedule,
        ),
    )  # fmt: skip
    return enter(track, first, situation.rules), WriteChecklist(
        story=queued.story, task_type=queued.task_type
    )


def first_step(pipeline: Pipeline, ledger: Ledger, *, bootstrapped: bool) -> str:
    """Return the step at which a new story begins: the bootstrap, once, in a project that is new itself."""
    fresh_project = not bootstrapped and not ledger.stories_done
    return pipeline.bootstrap if pipeline.bootstrap and fresh_project else pipeline.first


def lasting(ledger: Ledger) -> Ledger:
    """Return what of a ledger outlives the story in flight."""
    return Ledger(
        automatic=ledger.automatic, by_hand=ledger.by_hand, paused_by=ledger.paused_by, remedy=ledger.remedy,
        self_paused=ledger.self_paused, faults=ledger.faults,
        last_mark=ledger.last_mark, stories_done=ledger.stories_done, backlog=ledger.backlog,
        parked=ledger.parked, limited=ledger.limited, spent=ledger.spent, granted=_only_project(ledger),
        auto_continue=ledger.auto_continue, review=ledger.review,
    )  # fmt: skip


def with_done(ledger: Ledger, stories: tuple[str, ...]) -> Ledger:
    """Return the ledger in which `stories` are done, too, the last of them last."""
    if not stories:
        return ledger
    others = tuple(name for name in ledger.stories_done if name not in stories)
    return changed(ledger, stories_done=(*others, *stories))


def _only_project(ledger: Ledger) -> dict[Scope, Cap]:
    return {scope: cap for scope, cap in ledger.granted.items() if scope == "project"}


def _without(ledger: Ledger, story: str | None) -> Ledger:
    """Return the ledger in which `story` neither waits nor is parked: it is being worked on."""
    return changed(
        ledger,
        backlog=tuple(queued for queued in ledger.backlog if queued.story != story),
        parked=tuple(parked for parked in ledger.parked if parked.state.story != story),
    )


def next_parked(track: Track) -> Parked | None:
    """Return the story that is taken up when the one in flight is done: the one it was parked for."""
    return next((parked for parked in reversed(track.ledger.parked) if parked.give_back), None)


def parked_of(ledger: Ledger, story: str) -> Parked | None:
    """Return a story as it was set aside; None when it was not."""
    return next((parked for parked in ledger.parked if parked.state.story == story), None)


def give_back(situation: Situation, parked: Parked) -> Track:
    """Return the track with a parked story taken up where it was set aside."""
    project = _without(lasting(situation.ledger), parked.state.story)
    return Track(state=parked.state, ledger=parked.ledger).with_ledger(
        automatic=project.automatic, by_hand=project.by_hand,
        paused_by=project.paused_by, remedy=project.remedy,
        self_paused=project.self_paused, faults=project.faults,
        last_mark=project.last_mark, stories_done=project.stories_done, backlog=project.backlog,
        parked=project.parked, dispatch=None, limited=project.limited,
        spent=project.spent, granted={**parked.ledger.granted, **project.granted},
        auto_continue=project.auto_continue, review=project.review,
    )  # fmt: skip
