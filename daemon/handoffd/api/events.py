"""Events and runs as answers, events as they are committed, and events in words.

Numbers (`seq`) rise and are never reused, so a reader that was away continues from the last one it saw. Where
events are missing, a line of type `gap` marks them.

The words of an event come from the journal alone. They leave out what is not recorded, because journals of
older releases record less. The deciding rule and the reason (`grounds`, `why`) are the engine's own words.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import PurePath
from typing import Final

import anyio
from msgspec import convert
from msgspec.structs import replace

from handoffd.api.answers import HistoryEvent, HistoryGap, Run, StepAndStatus, UsageCounts
from handoffd.api.flow_words import FLOW_FACTS, flow_follows
from handoffd.engine.decision import Result
from handoffd.engine.events import TestEvidence
from handoffd.engine.run import TOKEN_KINDS, UNITS, PostCheck, Usage, amount, footprint_in_words
from handoffd.engine.track import TrackKey, own_story
from handoffd.engine.views import Peek, ProjectView
from handoffd.engine.wording import addressed as for_project
from handoffd.engine.wording import checks_in_words, command_for, counted, first_few, usage_in_words
from handoffd.errors import Json, StoreError
from handoffd.journal.journal import Journal
from handoffd.journal.records import Part, Standing, StoredEvent, StoredRun
from handoffd.protocol.state import plain

Names = Mapping[str, str]
"""What projects are called in commands, by root."""
NO_NAMES: Final[Names] = {}

MOST_EVENTS = 1000
BATCH: Final = 100
"""Events held in memory for one follower: there may be many followers, and some read slowly."""


def event_answer(event: StoredEvent, names: Names = NO_NAMES) -> HistoryEvent:
    """Return one event: when, what, why, and step and status of the track before and after."""
    return HistoryEvent(
        seq=event.seq,
        at=event.at,
        project=event.key.project,
        name=named(event.key.project, names),
        track=event.key.track,
        kind=event.kind,
        what=happened(event),
        rules=event.grounds,
        why=event.why,
        next=follows(event),
        before=_standing(event.before),
        after=_standing(event.after),
        event=event.event,
        result=addressed_json(event.result, event.key.project, own_story(event.key)),
        orders=event.orders,
    )


def addressed_json(result: Json, root: str, story: str | None = None) -> Json:
    """Return a result of the engine as JSON, with the root filled in: the engine knows no paths.

    `story` is one with a track of its own.
    """
    told = {name: result.get(name) for name in _TEXTS}
    return {**result, **{name: for_project(text, root, story) for name, text in told.items() if text}}


def addressed(result: Result, root: str, story: str | None = None) -> Result:
    """Return a result of the engine with the root, and a story with a track of its own, filled in."""
    told = {name: getattr(result, name, None) for name in _TEXTS}
    return replace(result, **{name: for_project(text, root, story) for name, text in told.items() if text})


def peeked(found: Peek) -> Peek:
    """Return what a turn would do, with the project filled in in its commands."""
    own = own_story(TrackKey(found.project, found.track))
    return replace(found, result=addressed(found.result, found.project, own))


def seen_first(result: Json, view: ProjectView) -> Json:
    """Return what changes in a result that offers to approve a gate: the command shows it first."""
    approve, told = result.get("next_command"), result.get("caller_instruction")
    look = gate_before(view, approve)
    if look is None:
        return {}
    return {"next_command": look, "caller_instruction": told and told.replace(approve, look)}


def gate_before(view: ProjectView, command: str | None) -> str | None:
    """Return what shows the gate that a command approves; None for any other command."""
    if command is None or not command.startswith(command_for(view.project, "approve")):
        return None
    return next((one.look_command for one in view.tracks if one.next_command == command), None)


_TEXTS: Final = ("caller_instruction", "message", "next_command")
"""The texts of a result in which a command may stand."""


def named(root: str, names: Names) -> str:
    """Return a project's name; the name of its folder if it is no longer supervised."""
    return names.get(root) or PurePath(root).name


def run_answer(run: StoredRun, names: Names = NO_NAMES, so_far: Usage | None = None) -> Run:
    """Return one dispatch, from the decision to the verdict. What has not happened yet is None.

    `so_far` is the usage of a run that has not ended.
    """
    used = run.exit.usage if run.exit is not None else so_far
    took = None if run.exit is None else run.exit.footprint
    return Run(
        run=run.id,
        project=run.key.project,
        name=named(run.key.project, names),
        track=run.key.track,
        story=run.story,
        step=run.step,
        attempt=run.attempt,
        executor=run.executor,
        decided_at=run.decided_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
        seconds=None if run.exit is None else round(run.exit.seconds, 3),
        exit=run.exit,
        usage=None if used is None or used == Usage() else usage_counts(used),
        model=None if run.exit is None else run.exit.model,
        memory_peak=None if took is None else took.memory_peak,
        tasks_peak=None if took is None else took.tasks_peak,
        tests=None if run.tests is None else _counts_first(run.tests),
        result=run.outcome,
        why=run.why,
    )


def usage_counts(usage: Usage) -> UsageCounts:
    """Return a usage as answers have it."""
    return UsageCounts(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        tokens=usage.tokens,
        cost_usd=None if usage.cost_usd is None else round(usage.cost_usd, 6),
        priced=usage.priced,
    )


def _counts_first(tests: TestEvidence) -> Json:
    """Return the evidence of a test run, its three counts first."""
    dumped = plain(tests)
    return {**dumped.pop("counts"), **dumped}


async def gap(journal: Journal, after: int) -> HistoryGap | None:
    """Return the marker for missing events above `after`; None when all are there."""
    if after > journal.newest:
        # Numbers only rise, so the reader's number comes from another journal.
        return HistoryGap(after=after, next=1, why="the journal is another one, or older")
    first = await journal.events(after, limit=1)
    if first and first[0].seq > after + 1:
        return HistoryGap(after=after, next=first[0].seq, why="older events are not kept")
    return None


async def follow(
    journal: Journal,
    after: int,
    part: Part,
    closing: anyio.Event,
    names: Callable[[], Names] = lambda: NO_NAMES,
) -> AsyncIterator[HistoryEvent | HistoryGap]:
    """Yield events of a part above `after` as they come, with gaps, until `closing` or the journal closes."""
    missing = await gap(journal, after)
    if missing is not None:
        yield missing
        after = missing.next - 1
    left_out = deque(one for one in await journal.left_out() if one.after >= after)
    while True:
        newest = journal.newest  # read first: an event committed meanwhile is in the next batch
        batch = await journal.events(after, limit=BATCH, part=part)
        called = names()
        for event in batch:
            while left_out and left_out[0].next <= event.seq:
                yield HistoryGap(**left_out.popleft()._asdict())
            yield event_answer(event, called)
        full = len(batch) == BATCH
        after = batch[-1].seq if full else max(newest, batch[-1].seq if batch else 0)
        if not full and not await _newer(journal, after, closing):
            return


async def _newer(journal: Journal, seq: int, closing: anyio.Event) -> bool:
    """Return True once there is an event above `seq`, False when `closing` is set or the journal closes."""
    grown = False
    async with anyio.create_task_group() as tasks:

        async def leave() -> None:
            await closing.wait()
            tasks.cancel_scope.cancel()

        tasks.start_soon(leave)
        try:
            await journal.newer_than(seq)
            grown = True
        except StoreError:
            grown = False  # the journal was closed
        tasks.cancel_scope.cancel()
    return grown and not closing.is_set()


def _standing(standing: Standing | None) -> StepAndStatus | None:
    return None if standing is None else StepAndStatus(step=standing[0], status=standing[1])


def happened(event: StoredEvent) -> str:
    """Return the fact in one sentence, with the data behind the decision."""
    tell = _FACTS.get(event.kind) or FLOW_FACTS.get(event.kind)
    told = tell(event.event) if tell else event.kind.replace("_", " ")
    by = event.event.get("by")
    return f"{told}, by {by}" if by else told


def follows(event: StoredEvent) -> str:
    """Return what comes next, and why."""
    if event.result.get("type") == "flow":
        return flow_follows(event.orders)
    if event.result.get("type") == "error" and event.before == event.after:
        return f"nothing changed: {event.result.get('message')}" + _orders(event, "; ")
    ordered = _orders(event)
    if ordered and any(order.get("kind") in _LASTING for order in event.orders):
        return ordered
    rest = _rest(event)
    return f"{ordered}; {rest}" if ordered else rest


# --- an event in words: what happened ------------------------------------------------------------
def _exited(fact: Json) -> str:
    return (
        f"{fact['dispatch']} {_end(fact['exit'])}; {_reading(fact['reading'])}{_changed(fact.get('wrote'))}"
    )


def _changed(wrote: Json | None) -> str:
    """Return what its step has changed, as the daemon found."""
    if wrote is None:
        return ""
    if wrote["unknown"] is not None:
        return f"; what its step changed is not known: {wrote['unknown']}"
    told = f"; its step has changed {counted(wrote['count'], 'file')}"
    told += f", {wrote['strays']} outside of what it may write" if wrote["strays"] else ""
    told += f"; {counted(wrote['undone'], 'more was', 'more were')} put back" if wrote["undone"] else ""
    own = wrote.get("own") or ()  # older records have none
    return told + (f"; {first_few(own)} changed meanwhile, by its agent or by others" if own else "")


def _end(end: Json) -> str:
    by = {
        "deadline": "was ended at its deadline",
        "stop": "was ended, as ordered",
        "lost": "vanished, and its exit is unknown",
        "outside": "was ended from outside",
    }
    if end["by"] in by:
        told = by[end["by"]]
    elif end["signal"] is not None:
        told = f"was killed by signal {end['signal']}"
    else:
        told = f"exited with code {end['code']}"
    kind = f" ({end['end'].replace('_', ' ')})" if end.get("end") not in _PLAIN_ENDS else ""
    used = end.get("usage") or {}
    spent = usage_in_words(sum(used.get(kind) or 0 for kind in TOKEN_KINDS), used.get("cost_usd"))
    took = " and ".join(part for part in (f"{end['seconds']:.0f} s" if end["seconds"] else "", spent) if part)
    after = f" after {took}" if took else ""
    took_of_it = end.get("footprint") or {}
    most = footprint_in_words(took_of_it.get("memory_peak"), took_of_it.get("tasks_peak"))
    failed = ", its stream says that it failed" if end["stream_error"] else ""
    return told + kind + after + (f" (at most {most})" if most else "") + failed


_PLAIN_ENDS: Final = {None, "clean", "failed"}
"""Classes of ends that the exit code and the stream show already."""


def _reading(reading: Json) -> str:
    match reading["kind"]:
        case "found":
            return f"it handed over {_claim(reading['handoff'])}"
        case "stale":
            return f"only a stale hand-off is there: {reading['why']}"
        case "malformed":
            return f"its hand-off cannot be read: {reading['problem']['message']}"
    return "it left no hand-off"


def _claim(claim: Json) -> str:
    status = claim["status"] or "no status (old format)"
    reason = f" with reason {claim['reason']}" if claim["reason"] else ""
    count = len(claim["files_changed"])
    files = f", it says {counted(count, 'file')} changed" if count else ""
    return f"{status}{reason}{_counts(claim['tests'], ', it says ')}{files}"


def _counts(tests: Json | None, before: str = "") -> str:
    if tests is None:
        return ""
    passes = counted(tests.get("pass", 0), "test passes", "tests pass")
    return f"{before}{passes} and {counted(tests.get('fail', 0), 'fails', 'fail')}"


def _checked(fact: Json) -> str:
    tests, post = fact["tests"], fact["post_check"]
    told = [_measured(tests)] if tests is not None else []
    if post is not None:
        ended = "passed" if post["passed"] else "did not end in time" if post["timed_out"] else "failed"
        told.append(
            f"post_check could not be run: {post['fault']}" if post["fault"] else f"post_check {ended}"
        )
    if named := fact.get("post_checks"):  # an older release wrote none
        told.append(f"post_check: {checks_in_words(convert(named, tuple[PostCheck, ...]))}")
    return f"{fact['dispatch']} was checked: {', '.join(told) or 'no check was due'}"


def _measured(tests: Json) -> str:
    if tests["fault"]:
        return f"the tests could not be run: {tests['fault']}"
    if tests["timed_out"]:
        return "the tests did not end in time"
    if not tests["verified"]:
        return "the test command " + ("failed" if tests["failing"] else "succeeded")
    new = tests["new_failing"]
    news = f", {counted(new, 'of the failing is', 'of the failing are')} new" if new else ""
    return _counts(tests["counts"]) + news


def _started(fact: Json) -> str:
    how = [word for word in ("queue", "force") if fact[word]]
    then = f" and then {', '.join(fact['then'])}" if fact.get("then") else ""
    due = f", as it was due at {fact['due']}" if fact.get("due") else ""
    then = f" ({fact['described']['title']!r}){then}" if fact.get("described") else then
    return f"{fact['task_type']} {fact['story']}{then} was asked for{due}" + (
        f" ({', '.join(how)})" if how else ""
    )


def _added(fact: Json) -> str:
    named_ = [f"{one['story']} ({one['described']['title']!r})" for one in fact["stories"]]
    return f"{first_few(named_)} came for the backlog"


def _auto_continue(fact: Json) -> str:
    said = {True: "by itself", False: "when it is asked for", None: "as the settings say"}[fact["on"]]
    return f"the next story of the backlog will start {said}"


def _landed(fact: Json) -> str:
    story, onto, commit = fact["story"], fact["onto"], fact["commit"][:12]
    match fact.get("how", "merge"):
        case "branch":
            return f"{story} was left on its branch {onto}, at {commit}"
        case "command":
            said = f": {fact['told']}" if fact["told"] else ""
            return f"the project's command took {story} at {commit}, for {onto}{said}"
    part = f"up to {fact['up_to']} " if fact.get("up_to") else ""
    untested = ", untested" if fact.get("untested") else ""  # older events have none
    return f"{story} was merged {part}into {onto} at {commit}{untested}"


def _rejected(fact: Json) -> str:
    reason = f" for {fact['reason']}" if fact["reason"] else ""
    return f"the human step was rejected{reason}{_note(fact)}"


def _note(fact: Json) -> str:
    return f", with the note {fact['note']!r}" if fact["note"] else ""


def _turn(fact: Json) -> str:
    unmet = f"; not done yet: {', '.join(fact['unmet'])}" if fact["unmet"] else ""
    passed_over = "".join(f"; {why}" for why in fact.get("passed_over") or ())
    return f"the daemon chose executor {fact['executor']} for the next step{passed_over}{unmet}"


def _cap(finding: Json) -> str:
    """Return a cap in words: `$4.00 for each attempt`."""
    whose = {"attempt": "each attempt", "daemon": "all projects", "day": "a day"}
    scope = finding["scope"]
    return f"{amount(finding['cap'], finding['unit'])} for {whose.get(scope, f'the {scope}')}"


def _raised(fact: Json) -> str:
    whose = {"attempt": "of each attempt", "project": "of the project"}.get(fact["scope"], "of the story")
    given = [amount(fact[unit], unit) for unit in UNITS if fact[unit] is not None]
    return f"the budget {whose} was raised to {' and '.join(given)}"


def _edited(fact: Json) -> str:
    state = fact["state"]
    return f"STATE.json was changed from outside, to {state['step']} {state['status']}"


def _restored(fact: Json) -> str:
    over = "; the attempt in flight then was overtaken" if fact["overtaken"] else ""
    if owner := fact.get("owner"):
        return f"the project came back from another handoffd ({owner}){over}"
    return f"the journal was restored from a backup{over}"


_FACTS: Final[Mapping[str, Callable[[Json], str]]] = {
    "initialised": lambda fact: f"the project got its first STATE as {fact['project']}",
    "started": _started,
    "undone": lambda fact: "an approval was taken back",
    "approved": lambda fact: f"the human step was approved{_note(fact)}",
    "rejected": _rejected,
    "retried": lambda _: "another try was asked for",
    "skipped": lambda _: "the step was skipped",
    "aborted": lambda _: "the track was aborted",
    "paused": lambda _: "the track was paused",
    "resumed": lambda _: "the track was resumed",
    "noted": lambda fact: f"a note was given: {fact['text']!r}",
    "rolled_back": lambda fact: f"a roll back to {fact['step']} was asked for",
    "reopened": lambda fact: f"the story was reopened at {fact['step']}{_note(fact)}",
    "edit_confirmed": lambda _: "the held edit of STATE.json was confirmed",
    "executor_chosen": lambda fact: (
        f"its executor was chosen: {', else '.join(fact['executor']) or 'as set'}"
    ),
    "limit_lifted": lambda fact: f"the limit of {fact['account']} was lifted",
    "budget_raised": _raised,
    "prompt_taken": lambda fact: f"the prompt of the next turn was asked for, as {fact['dispatch']}",
    "level_chosen": lambda fact: f"level {fact['level']} was chosen",
    "continued": lambda _: "the next story of the backlog was asked for",
    "backlog_moved": lambda fact: f"{fact['story']} was given another place in the backlog",
    "backlog_edited": lambda fact: f"{fact['story']} was changed in the backlog",
    "backlog_removed": lambda fact: f"{', '.join(fact['stories'])} went out of the backlog",
    "backlog_added": _added,
    "auto_continue_chosen": _auto_continue,
    "discarded": lambda fact: f"{fact['story']} was discarded; {fact['kept']} keeps it",
    "landed": _landed,
    "landing_refused": lambda fact: f"{fact['story']} could not be landed: {fact['why']}",
    "story_opened": lambda fact: f"{fact['story']} of the backlog got a track of its own",
    "story_closed": lambda fact: f"the track of {fact['story']} has ended",
    "track_opened": lambda fact: f"the track of {fact['entry']['story']} began",
    "track_closed": lambda fact: f"the track has ended: {fact['why']}",
    "post_checked": lambda fact: f"post_check was run and {'passed' if fact['passed'] else 'failed'}",
    "advanced": _turn,
    "dispatch_failed": lambda fact: f"a dispatch could not be prepared: {fact['message']}",
    "baseline_measured": lambda fact: (
        f"the tests before {fact['dispatch']} could not be run: {fact['fault']}"
        if fact["fault"]
        else f"the tests were run before {fact['dispatch']}"
    ),
    "executor_started": lambda fact: f"{fact['dispatch']} runs as process {fact['pid']}",
    "spawn_refused": lambda fact: f"{fact['dispatch']} could not be started: {fact['error']}",
    "handoff_settled": lambda fact: f"{fact['dispatch']} handed over and was still for {fact['quiet_s']:g} s",
    "deadline_passed": lambda fact: (
        f"{fact['dispatch'] or 'an external attempt'} ran out of time: {fact['elapsed_min']:.1f} min"
    ),
    "cap_reached": lambda fact: f"{fact['dispatch']} reached a cap of {_cap(fact['finding'])}",
    "executor_quiet": lambda fact: (
        f"{fact['dispatch']} shows no sign of life for {fact['silence']['quiet_min']:.1f} min"
    ),
    "executor_stalled": lambda fact: (
        f"{fact['dispatch']} made no progress for {fact['silence']['quiet_min']:.1f} min"
    ),
    "interrupted": lambda fact: "handoffd ends the executor for its own reasons",
    "executor_exited": _exited,
    "checks_finished": _checked,
    "handoff_arrived": lambda fact: f"a hand-off came for an external attempt: {_reading(fact['reading'])}",
    "state_edited": _edited,
    "restored": _restored,
    "cause_ended": lambda fact: (
        f"{', '.join(fact['executors'])} {'is tried again' if fact.get('trial') else 'can be tried again'}"
    ),
    "notice_given_up": lambda fact: (
        f"{fact['sink']} did not take {counted(fact['count'], 'notice')} in time: {fact['why']}"
    ),
}


# --- and what follows from it ---------------------------------------------------------------------
_LASTING: Final = frozenset({"spawn", "measure_baseline", "run_checks", "stop_tree"})
"""Orders whose end is the next event of the track."""


def _orders(event: StoredEvent, before: str = "") -> str:
    told = [_ORDERS[order["kind"]](order) for order in event.orders if order.get("kind") in _ORDERS]
    return before + ", ".join(told) if told else ""


def _spawn(order: Json) -> str:
    limit = f", for {order['timeout_min']:g} min at most" if order["timeout_min"] else ""
    session = f", in its session {order['session']}" if order.get("session") else ""
    return f"{order['executor']} is started for {order['step']} attempt {order['attempt']}{session}{limit}"


def _checks(order: Json) -> str:
    tests = f"the tests are run ({order['tests']} is expected)" if order["tests"] else None
    post = "post_check is run" if order["post_check"] else None
    if isinstance(order["post_check"], dict):
        post = f"{post} ({', '.join(order['post_check'])})"
    return ", ".join(told for told in (tests, post) if told)


_ORDERS: Final[Mapping[str, Callable[[Json], str]]] = {
    "measure_baseline": lambda _: "the tests are run once before the executor",
    "spawn": _spawn,
    "stop_tree": lambda order: f"{order['dispatch']} and all it started are ended ({order['why']})",
    "run_checks": _checks,
    "notify": lambda order: f"handoffd notifies people: {order['text']}",
    "write_checklist": lambda _: "a checklist is written",
    "append_history": lambda _: "the history gets an entry",
}


def _asked(event: StoredEvent) -> str:
    """Return the command for the person, where the decision names one."""
    actions = [order.get("action") for order in event.orders if order.get("kind") == "notify"]
    told = [action.replace("{project}", event.key.project) for action in actions if action]
    return f": {told[0]}" if told else ""


def _rest(event: StoredEvent) -> str:
    """Return what a track does next when the event ordered nothing lasting."""
    if event.after is None:
        return "nothing"
    step, status = event.after
    if step == "done":
        return "the story is done"
    return {
        "running": "the attempt continues until its executor ends",
        "needs_human": f"it waits for a person{_asked(event)}",
        "timeout": f"the table says at its next turn whether {step} is tried again",
        "failing": f"the table says at its next turn where a failure of {step} leads",
        "pass": f"the table says at its next turn what comes after {step}",
        "pending": f"{step} is dispatched at its next turn, unless it is held",
    }.get(status, "its next turn")
