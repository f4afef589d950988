"""What must hold of a house when everything has ended, whichever processes were killed.

Each rule is a function from the evidence to its violations, and has a test that shows it a journal
in which it is broken.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from tests.chaos.branches import Commit
from tests.chaos.evidence import Dispatch, Event, Evidence, Json, Order
from tests.chaos.stories import Story

VERBS = frozenset({"approved", "rejected", "retried", "skipped"})
JUDGED = frozenset({"pass", "failing", "needs_human"})
"""Results that an executor's own work has led to: it must have been started for them."""

_ONCE = ("advanced", "baseline_measured", "executor_started", "executor_exited", "checks_finished")
_RUNNING = "running"
_TOLD = ("story", "step", "text", "why")


@dataclass(frozen=True, slots=True)
class Violation:
    """One promise broken, with the lines that show it. `seq` is the event where it shows, if it does."""

    rule: str
    text: str
    lines: tuple[str, ...] = ()
    seq: int | None = None

    def __str__(self) -> str:
        return "\n".join((f"{self.rule}: {self.text}", *(f"    {line}" for line in self.lines)))


Rule = Callable[[Evidence], Iterator[Violation]]


def check(evidence: Evidence) -> list[Violation]:
    """Return every violation of every rule; nothing when all promises were kept."""
    return [violation for rule in RULES for violation in rule(evidence)]


def digest(text: bytes) -> str:
    """Return the digest under which the journal knows a STATE.json."""
    return hashlib.sha256(text).hexdigest()


# --- transitions --------------------------------------------------------------------------------------
def no_event_is_missing(evidence: Evidence) -> Iterator[Violation]:
    """Numbers rise by one, and each event begins where its track's last one ended."""
    rule = "transition missing or duplicated"
    for place, event in enumerate(evidence.events, 1):
        if event.seq != place:
            yield Violation(rule, f"number {place} is missing", (str(event),), event.seq)
            break
    last: dict[tuple[str, str], Event] = {}
    for event in evidence.events:
        before = last.get((event.project, event.track))
        if (before.after if before else (None, None)) != event.before:
            yield Violation(rule, "the track was elsewhere", (str(before), str(event)), event.seq)
        last[event.project, event.track] = event
    for track in evidence.tracks:
        event_ = last.get((track.project, track.track))
        if event_ is None or (event_.seq, event_.after) != (track.seq, track.standing):
            yield Violation(rule, "the track is not where its last event left it", (str(event_), str(track)))


def every_order_is_done(evidence: Evidence) -> Iterator[Violation]:
    """Every effect was carried out."""
    for line in evidence.open_effects:
        yield Violation("order not carried out", "it is not marked done", (line,))


# --- starts and results -------------------------------------------------------------------------------
def nothing_starts_twice(evidence: Evidence) -> Iterator[Violation]:
    """By the executors' own account."""
    found = defaultdict(list)
    for line in evidence.starts:
        found[line["dispatch"]].append(json.dumps(line))
    known = {dispatch.id: dispatch for dispatch in evidence.dispatches}
    for name, lines in found.items():
        if len(lines) > 1:
            yield Violation("started twice", f"dispatch {name} was started {len(lines)} times", tuple(lines))
        if name not in known:
            yield Violation("started unordered", f"dispatch {name} is not in the journal", tuple(lines))
    for run, times in Counter(evidence.checks).items():
        if times > 1:
            yield Violation("started twice", f"the check {run} ran {times} times")


def what_was_judged_was_started(evidence: Evidence) -> Iterator[Violation]:
    """A verdict needs an executor, and that of this step and attempt."""
    started = {line["dispatch"]: (line["story"], line["step"], line["attempt"]) for line in evidence.starts}
    for dispatch in evidence.dispatches:
        mine = (dispatch.story, dispatch.step, dispatch.attempt)
        if dispatch.result in JUDGED and dispatch.id not in started:
            yield Violation(
                "judged unstarted", "no executor says that it was started", (str(dispatch),), dispatch.seq
            )
        elif started.get(dispatch.id, mine) != mine:
            told = str(started[dispatch.id])
            yield Violation(
                "started as another", "its executor got other values", (str(dispatch), told), dispatch.seq
            )


def every_result_is_applied_once(evidence: Evidence) -> Iterator[Violation]:
    """One end of the executor, one verdict: neither lost nor twice."""
    by_dispatch: defaultdict[str, list[Event]] = defaultdict(list)
    for event in evidence.events:
        if event.kind in _ONCE and isinstance(name := event.event.get("dispatch"), str):
            by_dispatch[name].append(event)
    for dispatch in evidence.dispatches:
        yield from _applied_once(dispatch, by_dispatch[dispatch.id])


def _applied_once(dispatch: Dispatch, events: Sequence[Event]) -> Iterator[Violation]:
    lines = (str(dispatch), *map(str, events))
    told = Counter(event.kind for event in events)
    if dispatch.result is None:
        yield Violation("result lost", "it was never judged", lines, dispatch.seq)
    if dispatch.result not in {None, "not_started"} and told["executor_exited"] == 0:
        yield Violation("result lost", "the executor's end is not recorded", lines, dispatch.seq)
    for kind, times in told.items():
        if times > 1:
            yield Violation("result applied twice", f"{times} times {kind}", lines, events[-1].seq)
    verdicts = [event for event in events if event.before[1] == _RUNNING != event.after[1]]
    if len(verdicts) != 1:
        yield Violation(
            "result applied twice" if verdicts else "result lost", f"{len(verdicts)} verdicts", lines
        )
    elif dispatch.result in JUDGED and verdicts[0].after[1] != dispatch.result:
        yield Violation("result changed", "the verdict and its record differ", lines, verdicts[0].seq)


def every_result_is_kept(evidence: Evidence) -> Iterator[Violation]:
    """In a repository there is a snapshot of what the last attempt of each step of a story has left."""
    last = {
        (dispatch.project, dispatch.story, dispatch.step): dispatch
        for dispatch in evidence.dispatches
        if dispatch.result in JUDGED and dispatch.project in evidence.kept
    }
    for dispatch in last.values():
        if dispatch.id not in evidence.kept[dispatch.project]:
            yield Violation("files not kept", "no snapshot names it", (str(dispatch),), dispatch.seq)


# --- the branches of stories --------------------------------------------------------------------------
def every_commit_is_of_a_passed_step(evidence: Evidence) -> Iterator[Violation]:
    """Each says whose it is, and no run has two; an agent may commit as often as it likes."""
    for root, found in evidence.branches.items():
        judged = {
            one.id: (one.story, one.step, one.result) for one in evidence.dispatches if one.project == root
        }
        decided = _decided(evidence, root)
        runs = Counter(one.said.get("Run") for one in found.commits if "Agent" not in one.said)
        for commit in found.commits:
            if commit.persons or commit.lands in found.logs:
                continue
            if (why := _not_entitled(commit, judged, decided)) is not None:
                yield Violation("commit of no passed step", f"{root}: {why}", (str(commit),))
            elif "Agent" not in commit.said and runs[run := commit.said.get("Run")] > 1 and run is not None:
                yield Violation("committed twice", f"{root}: what {run} has left", (str(commit),))


def _decided(evidence: Evidence, root: str) -> set[tuple[str, str | None]]:
    """Return the steps that a person has passed, with their stories."""
    mine = [event for event in evidence.events if event.project == root]
    return {
        (story, event.before[0])
        for story, events in _by_story(mine)
        for event in events
        if event.kind in {"approved", "skipped"}
    }


def _not_entitled(
    commit: Commit,
    judged: dict[str, tuple[str | None, str, str | None]],
    decided: set[tuple[str, str | None]],
) -> str | None:
    story, step, run = (commit.said.get(name) for name in ("Story", "Step", "Run"))
    if story is None or step is None:
        return "it does not say whose it is"
    if run is None:
        return None if (story, step) in decided else "no person has passed the step"
    if run not in judged or judged[run][:2] != (story, step):
        return f"{run} is a run of another step"
    return None if judged[run][2] == "pass" or "Agent" in commit.said else f"{run} has not passed"


def every_step_has_a_commit(evidence: Evidence) -> Iterator[Violation]:
    """Where the daemon commits each: each that has begun has left a line of its log."""
    started = {line["dispatch"] for line in evidence.starts}
    for root, found in evidence.branches.items():
        runs = {commit.said.get("Run") for commit in found.commits}
        mine = [one for one in evidence.dispatches if one.project == root and one.result == "pass"]
        for dispatch in mine if found.each_step else ():
            if dispatch.id in started and dispatch.id not in runs:
                yield Violation("step not committed", root, (str(dispatch),), dispatch.seq)


def branches_hold_what_was_accepted(evidence: Evidence) -> Iterator[Violation]:
    """Everything up to the last step that is behind a story, and in the order in which it was done."""
    started = {line["dispatch"] for line in evidence.starts}
    for root, found in evidence.branches.items():
        for story in evidence.stories[root]:
            mine = [one for one in evidence.dispatches if (one.project, one.story) == (root, story.name)]
            passed = [place for place, one in enumerate(mine) if one.result == "pass"]
            if not passed:
                continue
            due = [one.id for one in mine[: passed[-1] + 1] if one.id in started]
            held = [line.partition(" ")[2] for line in found.logs.get(story.name, ())]
            known = [one.id for one in mine if one.id in held]
            if known != held or [one for one in held if one in due] != due:
                lines = (f"ought to be {due}", f"is {held}")
                yield Violation("branch behind", f"{root} {story.name}", lines)


def every_landing_is_whole(evidence: Evidence) -> Iterator[Violation]:
    """Each finished story once, on files that had passed their tests, and nothing else has changed."""
    for root, found in evidence.branches.items():
        for trouble in found.trouble:
            yield Violation("repository left unsound", f"{root}: {trouble}")
        for commit in found.base:
            if commit.tree not in found.tested:
                yield Violation("landed untested", f"{root}: tree {commit.tree}", (str(commit),))
        stories = [story.name for story in evidence.stories[root]]
        if len(found.base) != len(stories):
            lines = tuple(map(str, found.base))
            yield Violation("landed more or less than once", f"{root}: {len(stories)} stories", lines)
        for name in stories:
            if not found.logs.get(name) or found.logs[name] != found.landed.get(name):
                lines = (f"its branch: {found.logs.get(name)}", f"landed: {found.landed.get(name)}")
                yield Violation("landed in part", f"{root} {name}", lines)


def every_exit_code_is_known(evidence: Evidence) -> Iterator[Violation]:
    """What the shim wrote down is what the journal says, unless the shim itself was killed."""
    for dispatch in evidence.dispatches:
        record = evidence.exits.get(dispatch.id)
        told = dispatch.exit or {}
        if record is None:
            if dispatch.id not in evidence.shims_hit:
                yield Violation("exit lost", "its shim left no record", (str(dispatch),), dispatch.seq)
        elif (record["code"], record["signal"], record["by"]) != (
            told.get("code"), told.get("signal"), told.get("by"),
        ):  # fmt: skip
            lines = (str(dispatch), f"recorded {record}", f"journal {told}")
            yield Violation("exit changed", "the journal tells another end", lines, dispatch.seq)


# --- what people see ----------------------------------------------------------------------------------
def state_equals_the_journal(evidence: Evidence) -> Iterator[Violation]:
    """STATE.json parses, and is the text that was committed last."""
    for track in evidence.tracks:
        text = evidence.states.get(track.project)
        rule, lines = "STATE.json differs", (str(track), repr((text or b"")[:300]))
        try:
            told = json.loads(text or b"")
        except ValueError as error:
            yield Violation(rule, f"it does not parse: {error}", lines, track.seq)
            continue
        if digest(text or b"") != track.digest or (told["step"], told["status"]) != track.standing:
            yield Violation(rule, "it is not what the journal says", lines, track.seq)


def every_notice_arrives(evidence: Evidence) -> Iterator[Violation]:
    """What was ordered, at least once; nothing else, nothing unrecorded, and always in the same words."""
    arrived: defaultdict[str, list[Json]] = defaultdict(list)
    for notice in evidence.told:
        arrived[str(notice.get("id"))].append(notice)
    orders = {order.id: order for order in evidence.orders}
    for order in evidence.orders:
        if order.id not in arrived:
            yield Violation("notice lost", "it was not delivered", (str(order),), order.seq)
    for name, notices in arrived.items():
        lines = tuple(map(str, notices))
        if name not in orders:
            yield Violation("notice unordered", f"no order leads to {name}", lines)
        if name not in evidence.recorded:
            yield Violation("notice unrecorded", f"{name} is not in the journal", lines)
        elif any(notice != evidence.recorded[name] for notice in notices):
            lines = (*lines, f"recorded {evidence.recorded[name]}")
            yield Violation("notice changed", f"{name} is not always what was recorded", lines)
        elif name in orders and _told_otherwise(orders[name], notices[0]):
            lines = (*lines, str(orders[name]))
            yield Violation("notice changed", f"{name} is not what was ordered", lines, orders[name].seq)


def _told_otherwise(order: Order, notice: Json) -> bool:
    ordered = order.effect
    wanted = (order.project, ordered["notice"], *(ordered.get(name) for name in _TOLD))
    return wanted != (notice["project"], notice["kind"], *(notice[name] for name in _TOLD))


def nothing_is_left_behind(evidence: Evidence) -> Iterator[Violation]:
    """No process, and no half of a file."""
    for line in evidence.left:
        yield Violation("left behind", "nothing owns it", (line,))


# --- the stories --------------------------------------------------------------------------------------
def every_story_went_as_scripted(evidence: Evidence) -> Iterator[Violation]:
    """Begun once, the scripted attempts with the scripted results, the scripted verbs, and its end."""
    events: defaultdict[str, list[Event]] = defaultdict(list)
    for event in evidence.events:
        events[event.project].append(event)
    for root, stories in evidence.stories.items():
        parts = _by_story(events[root])
        if (told := [story.name for story in stories]) != (begun := [name for name, _ in parts]):
            yield Violation("story lost or twice", f"{root}: told {told}, begun {begun}")
        for story, (_, mine) in zip(stories, parts, strict=False):
            yield from _attempts(evidence, root, story)
            yield from _verbs(root, story, mine)
            if mine[-1].after != ("done", "pass"):
                yield Violation("story unfinished", f"{root} {story.name}", (str(mine[-1]),), mine[-1].seq)


def _by_story(events: Sequence[Event]) -> list[tuple[str, list[Event]]]:
    """Return the events of a project from one start to the next."""
    found: list[tuple[str, list[Event]]] = []
    for event in events:
        if event.kind == "started":
            found.append((event.event["story"], []))
        if found:
            found[-1][1].append(event)
    return found


def _attempts(evidence: Evidence, root: str, story: Story) -> Iterator[Violation]:
    mine = [one for one in evidence.dispatches if (one.project, one.story) == (root, story.name)]
    for dispatch in mine:
        by_itself = (
            dispatch.exit is not None and dispatch.exit["by"] == "itself"
        )  # repeated, or asked again for its hand-off
        if dispatch.result == "interrupted" and not by_itself and dispatch.id not in evidence.shims_hit:
            yield Violation("attempt interrupted", "its shim was not killed", (str(dispatch),), dispatch.seq)
    if story.wild:
        mine = [one for one in mine if one.result != "interrupted"]
    found = [(one.step, one.attempt, one.result) for one in mine]
    wanted = [(one.step, one.attempt, one.result) for one in story.attempts]
    if found == wanted:
        return
    pairs = enumerate(zip_longest(wanted, found, mine))
    place, (ought, _, dispatch) = next((place, pair) for place, pair in pairs if pair[0] != pair[1])
    acts = " ".join(f"{one.step}:{one.act}" for one in story.attempts)
    lines = (f"ought to be {ought}", f"is {dispatch}", f"script {acts}")
    seq = dispatch.seq if dispatch else None
    yield Violation("not as scripted", f"{root} {story.name}, dispatch {place + 1}", lines, seq)


def _verbs(root: str, story: Story, events: Sequence[Event]) -> Iterator[Violation]:
    given = [(event.kind, event.before[0]) for event in events if event.kind in VERBS]
    wanted = [(verb.kind, verb.step) for verb in story.verbs]
    if given != wanted:
        lines = tuple(str(event) for event in events if event.kind in VERBS)
        yield Violation("verb lost or applied twice", f"{root} {story.name}: {given}, not {wanted}", lines)


RULES: tuple[Rule, ...] = (
    no_event_is_missing,
    every_order_is_done,
    nothing_starts_twice,
    what_was_judged_was_started,
    every_result_is_applied_once,
    every_result_is_kept,
    every_commit_is_of_a_passed_step,
    every_step_has_a_commit,
    branches_hold_what_was_accepted,
    every_landing_is_whole,
    every_exit_code_is_known,
    state_equals_the_journal,
    every_notice_arrives,
    nothing_is_left_behind,
    every_story_went_as_scripted,
)
