"""The screen of an open gate: what a person needs to decide, from the journal, the snapshots and the files.

An agent's word alone counts for nothing: git counts files and lines between two snapshots, the daemon has
counted the tests, and the records of runs have time and cost. What only an agent reports is called its claim.
What is not known is listed as unknown, with the reason. Texts are cut, and files are read like everything of
a project.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any, Final, Protocol

from anyio import to_thread
from msgspec.structs import replace

from handoffd.engine.decision import Situation, is_unrouted, to_review, waits_at_gate
from handoffd.engine.events import Approved
from handoffd.engine.track import Track, TrackKey, own_story, text_of
from handoffd.engine.views import (
    MOST_LISTED,
    ChangedFile,
    Changes,
    GateAnswer,
    GateAttempt,
    GateRejection,
    GateTests,
    GateView,
    OpenPoint,
)
from handoffd.engine.wording import (
    addressed,
    approving,
    command_for,
    first_few,
    rejecting,
    shortened,
    showing_gate,
    why_in_words,
)
from handoffd.errors import HandoffdError, Refused, StoreError
from handoffd.execute import evidence
from handoffd.execute.run import claimed
from handoffd.files.rooted import read_project_file
from handoffd.git.snapshots import Comparison, Difference
from handoffd.inspection.checklist import CHECKLIST, unticked
from handoffd.inspection.framework import described_in_memory
from handoffd.journal.journal import Journal
from handoffd.journal.records import FAILED, Part, StoredEvent, StoredRun
from handoffd.project.files import ProjectFiles
from handoffd.protocol.rules import DONE, RuleBook, outside
from handoffd.protocol.state import Reason, Status, TestCounts
from handoffd.protocol.story import expand
from handoffd.track.reach import Reach
from handoffd.track.services import Files, Services
from handoffd.track.snapshots import TrackSnapshots
from handoffd.track.track import TrackSupervisor

NO_GATE = "NO_GATE"

_MOST_RUNS: Final = 200
_MOST_CLAIMED: Final = 2000
"""Characters of an agent's summary."""
_MOST_TEXT: Final = 300
"""Characters of a path, a test's id, a line or an error."""
_MOST_FILE: Final = 1024 * 1024
_MARK: Final = "[NEEDS CLARIFICATION"
_HANDOFF: Final = ".ai/HANDOFF.md"
_JUDGED: Final = frozenset({Status.PASS, Status.FAILING})


class Marked(Protocol):
    """A project, as far as an approval needs it."""

    root: str
    files: Files


class Reviewed(Protocol):
    """The project whose stories wait at gates."""

    root: str
    files: ProjectFiles
    tracks: dict[str, TrackSupervisor]

    @property
    def main(self) -> TrackSupervisor:
        """The track that each project has."""


async def gate_of(
    project: Reviewed, services: Services, *, story: str | None = None, since_last: bool = False
) -> GateView:
    """Return the screen of the gate that a story waits at; `story` names it, where several do.

    `since_last`: files are compared with how the gate was decided last. Raises Refused (NO_GATE, AMBIGUOUS),
    and StoreError for a journal that cannot be read.
    """
    supervisor = _waiting(project, story)
    track, key, journal = supervisor.track, supervisor.key, services.journal
    situation = Situation(track, project.files.rules, services.clock.now())
    runs = of_this_life(await journal.runs(project.root, _MOST_RUNS), track, key.track)
    handoffs = handoffs_of(await journal.latest_of(key, _CLAIMS, _MOST_RUNS))
    attempts = await to_thread.run_sync(_attempts, runs, handoffs, services.settings.runs_dir)
    kept = project.files.settings.snapshots
    found, unknown = await _compared(supervisor.snapshots, situation, kept=kept, since_last=since_last)
    tests, unmeasured = await _tests(key, journal, situation, runs, claim_of(handoffs, runs))
    if project.files.settings.test.command is None:
        unmeasured = (_UNMEASURED, *unmeasured)
    rejections = await _rejections(journal, key, runs)
    recorded = _recorded(key, situation, runs, attempts)
    if len(project.tracks) > 1:  # else it is the only one
        command = addressed(showing_gate(situation.state.story), project.root)
        recorded = replace(recorded, command=command)
    changed = [] if found is None else [_path(one) for one in found.files if one.status != "removed"]
    changes = None if found is None else changes_of(found, situation, again=since_last and not unknown)
    tests = replace(tests, files=_test_files(situation, changed))
    view = replace(recorded, rejections=rejections, changes=changes, tests=tests)
    unknown = (*unknown, *unmeasured)
    reach = Reach(project.root, services.asking)
    try:
        unclear, boxes, unread = await reach.asked(partial(_open_points, view.folder, situation, changed))
        told = await reach.asked(partial(described_in_memory, view.folder, view.story))
    except StoreError as error:
        return replace(view, unknown=(*unknown, error.message))
    if told is not None and view.title is None:
        view = replace(view, title=told.title, text=told.text, source=told.source)
    unknown = (*unknown, _UNREAD.format(unread)) if unread else unknown
    return replace(view, unclear=unclear, unticked=boxes, unknown=unknown)


def _waiting(project: Reviewed, story: str | None) -> TrackSupervisor:
    """Return the track that waits at a gate, of that story if one is named. Raises Refused."""
    tracks = [one for one in project.tracks.values() if waits_at_gate(one.track, project.files.rules)]
    found = [one for one in tracks if story is None or _story_of(one.track) == story]
    if len(found) > 1:
        stories = [_story_of(one.track) or "" for one in found]
        why = f"{first_few(stories)} of {project.root} wait at a gate: name the one that you mean"
        raise Refused(why, code="AMBIGUOUS", hint=command_for(project.root, "gate", "--story", stories[0]))
    if not found:
        raise _no_gate(project, story)
    return found[0]


def _story_of(track: Track) -> str | None:
    return track.state.story if track.state is not None else None


def _no_gate(project: Reviewed, story: str | None) -> Refused:
    track, hint = project.main.track, command_for(project.root, "status")
    state = track.state
    if story not in {None, _story_of(track)}:
        where = f"{story} is at none"
    elif state is None or state.story is None:
        where = "no story is in flight"
    elif track.ledger.closed:
        where = f"{state.story} was aborted"
    else:
        where = f"{state.story} is at {state.step} ({state.status.value})"
    return Refused(f"{project.root} waits at no gate: {where}", code=NO_GATE, hint=hint)


def _recorded(
    key: TrackKey, situation: Situation, runs: Sequence[StoredRun], attempts: tuple[GateAttempt, ...]
) -> GateView:
    """Return what the journal and the step table have about a gate."""
    state, ledger, rules, root = situation.state, situation.ledger, situation.rules, key.project
    path = rules.path_from(state.task_type, state.step)
    here = path.index(state.step) if state.step in path else len(path)
    told = ledger.texts.get(state.story or "")
    text = text_of(ledger, state.story)
    used = ledger.facts.usage
    return GateView(
        project=root, command=addressed(showing_gate(own_story(key)), root),
        folder=situation.track.works_in(root).folder, story=state.story or "", step=state.step,
        title=told.title if told is not None else None, text=text.text if text is not None else None,
        source=told.source if told is not None else None,
        asked=_asked(situation), why=_why_asked(situation), done=path[:here], ahead=path[here + 1 :],
        scenarios=_scenarios(situation), changes=None, tests=GateTests(), attempts=attempts, rejections=(),
        unclear=(), unticked=(), tokens=used.tokens or None, cost_usd=used.cost_usd,
        seconds=sum(run.exit.seconds for run in runs if run.exit is not None),
        sandbox=_weakest(attempts), claim=_cut(ledger.facts.summary, _MOST_CLAIMED), note=state.human_note,
        answers=tuple(_addressed(answer, root) for answer in _answers(situation)), at=situation.now,
    )  # fmt: skip


def _scenarios(situation: Situation) -> tuple[str, ...]:
    """Return where the first step of the pipeline writes what the story comes to."""
    state, rules = situation.state, situation.rules
    first = rules.steps[situation.pipeline(state.task_type).first]
    return tuple(expand(path, state.story) for path in first.claude_writes if not set(path) & set("*?[!"))


def _addressed(answer: GateAnswer, root: str) -> GateAnswer:
    return replace(answer, command=addressed(answer.command, root))


def _cut(text: str | None, most: int = _MOST_TEXT) -> str | None:
    return None if text is None else text if len(text) <= most else f"{text[: most - 1]}…"


# --- what is asked, and the answers -------------------------------------------------------------------
def _asked(situation: Situation) -> str:
    """Return the question of a gate, in one sentence."""
    state, following = situation.state, situation.rule.next_on_pass
    then = "the story is done" if following == DONE else f"{following} begins"
    return f"approve {state.step} of {state.story}, and {then}; or reject it with a reason"


def _why_asked(situation: Situation) -> str:
    """Return why a person is asked."""
    step = situation.state.step
    if situation.rule.requires_human:
        return f"{step} is a human step: the step table lets only a person pass it"
    return f"{step} was a human step when it was opened; an edit of the step table does not open it"


def _answers(situation: Situation) -> tuple[GateAnswer, ...]:
    """Return what a person can answer, with templates of the commands."""
    rule, story = situation.rule, situation.state.story
    approval = GateAnswer(
        answer="approve", reason=None, leads_to=rule.next_on_pass, command=approving(story)
    )  # fmt: skip
    rejections = (
        GateAnswer(
            answer="reject", reason=str(reason), command=rejecting(story, reason),
            leads_to=None if is_unrouted(rule, reason) else rule.target(reason),
        )
        for reason in Reason
    )  # fmt: skip
    return (approval, *rejections)


# --- the files ----------------------------------------------------------------------------------------
async def _compared(
    snapshots: TrackSnapshots, situation: Situation, *, kept: bool, since_last: bool
) -> tuple[Comparison | None, tuple[str, ...]]:
    """Return which files differ, and what is not known about them. `kept`: whether snapshots are made."""
    track = situation.track
    unseen: tuple[str, ...] = ()
    try:
        found = await snapshots.compared(track, since_decided=since_last)
        if since_last and found is None:
            found = await snapshots.compared(track, since_decided=False)
            unseen = (_UNSEEN.format(situation.state.step),)
    except StoreError as error:
        return None, (f"which files have changed is not known: {error.message}",)
    if found is None:
        why = "no snapshot was made" if kept else "`snapshots: false` is set"
        return None, (f"which files have changed is not known: {why}",)
    return found, unseen


_UNSEEN: Final = "{} was never decided before, so all that the story has changed is shown"


def changes_of(found: Comparison, situation: Situation, *, again: bool) -> Changes:
    """Return a comparison of snapshots; files that a step may not write are marked."""
    rules, story = situation.rules, situation.state.story
    files = [_changed_file(one, rules, story) for one in found.files]
    return Changes(
        since=found.since.name, until=found.until.name,
        base=found.since.commit or "", end=found.until.commit or "", count=len(files),
        added=sum(one.added or 0 for one in files), removed=sum(one.removed or 0 for one in files),
        outside=sum(bool(one.outside) for one in files),
        files=tuple(sorted(files, key=_out_of_scope_first)[:MOST_LISTED]),
        more=max(len(files) - MOST_LISTED, 0), again=again,
    )  # fmt: skip


def _out_of_scope_first(file: ChangedFile) -> tuple[bool, str]:
    return (not file.outside, file.path)


def _changed_file(one: Difference, rules: RuleBook, story: str | None) -> ChangedFile:
    path = _path(one)
    outside = tuple(step for step in one.steps if not may_write(rules, step, story, path))
    return ChangedFile(
        path=_cut(path) or "", status=one.status, added=one.added, removed=one.removed, outside=outside
    )


def _path(one: Difference) -> str:
    return one.path.decode("utf-8", "backslashreplace")


def may_write(rules: RuleBook, step: str, story: str | None, path: str) -> bool:
    """Return whether the step table lets a step write a path; a step that it does not have may write any."""
    rule = rules.steps.get(step)
    return rule is None or not outside([path], [expand(pattern, story) for pattern in rule.claude_writes])


# --- the tests ----------------------------------------------------------------------------------------
async def _tests(
    key: TrackKey, journal: Journal, situation: Situation, runs: Sequence[StoredRun], claim: TestCounts | None
) -> tuple[GateTests, tuple[str, ...]]:
    """Return how the tests were and are, and what is not known about them."""
    body = await journal.load_baseline(key, situation.state.story)
    unknown: tuple[str, ...] = ()
    try:
        baseline = None if body is None else evidence.decode(body)
    except StoreError as error:
        baseline, unknown = None, (error.message,)
    before = None if baseline is None else baseline.counts
    measured = next((run for run in runs if run.tests is not None and run.tests.fault is None), None)
    tests = GateTests(before=before, claimed=claim)
    return tests if measured is None else _with_measured(tests, measured, baseline), unknown


_UNMEASURED: Final = "no test command is set, so nothing is measured: counts of tests are an agent's claim"


def _with_measured(tests: GateTests, run: StoredRun, baseline: evidence.Baseline | None) -> GateTests:
    found = run.tests
    assert found is not None
    known = None if baseline is None else baseline.results
    tests = replace(
        tests, measured=found.counts if found.verified else None, verified=found.verified, run=run.id,
        failing=_few(found.failing), regressed=_few(found.regressed),
    )  # fmt: skip
    if known is None or not found.verified:
        return tests
    changed = found.changed
    return replace(
        tests, new=_few(changed.new or [one for one in found.failing if one not in known]),
        new_collected=found.new_collected, fixed=_few(changed.fixed), fixed_count=changed.fixed_count,
        gone=_few(changed.gone), gone_count=changed.gone_count,
    )  # fmt: skip


_CLAIMS: Final = ("executor_exited", "handoff_arrived")
"""The events that carry an agent's hand-off."""


def handoffs_of(events: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return what agents have handed over, by dispatch; `events` newest first."""
    found: dict[str, Mapping[str, Any]] = {}
    for event in events:
        handoff = (event.get("reading") or {}).get("handoff")
        if handoff:
            found.setdefault(str(event.get("dispatch")), handoff)
    return found


def claim_of(handoffs: Mapping[str, Mapping[str, Any]], runs: Iterable[StoredRun]) -> TestCounts | None:
    """Return the counts of tests that an agent of these runs has claimed last; `runs` newest first."""
    claims = (handoffs.get(run.id, {}).get("tests") for run in runs)
    tests = next((one for one in claims if one is not None), None)
    return None if tests is None else TestCounts.model_validate(tests)


def _test_files(situation: Situation, changed: Sequence[str]) -> tuple[str, ...]:
    rules, story = situation.rules, situation.state.story
    red = [step for step, rule in rules.steps.items() if rule.tests == "red"]
    return _few([path for path in changed if any(may_write(rules, step, story, path) for step in red)])


def _few(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(shortened(name, _MOST_TEXT) for name in names[:MOST_LISTED])


# --- the attempts -------------------------------------------------------------------------------------
def of_this_life(runs: Iterable[StoredRun], track: Track, name: str) -> tuple[StoredRun, ...]:
    """Return the story's runs since it was started last, newest first, of runs in that order.

    The ledger counts the hand-offs that were judged since then: one more is of an earlier start.
    """
    assert track.state is not None
    left, found = dict(track.ledger.facts.attempts), []
    for run in runs:
        if run.story != track.state.story or run.key.track != name:
            continue
        if run.result in _JUDGED and not left.get(run.step):
            break
        if run.result in {*_JUDGED, Status.NEEDS_HUMAN}:
            left[run.step] = max(left.get(run.step, 0) - 1, 0)
        found.append(run)
    return tuple(found)


def _attempts(
    runs: Sequence[StoredRun], handoffs: Mapping[str, Mapping[str, Any]], runs_dir: Path
) -> tuple[GateAttempt, ...]:
    """Return attempts for people, the oldest first. Blocks."""
    return tuple(_attempt(run, handoffs.get(run.id, {}), runs_dir) for run in reversed(runs[:MOST_LISTED]))


def _attempt(run: StoredRun, handoff: Mapping[str, Any], runs_dir: Path) -> GateAttempt:
    passed = run.result == Status.PASS
    why = why_in_words(run.why, handoff.get("reason"), handoff.get("summary"))
    return GateAttempt(
        run=run.id, step=run.step, attempt=run.attempt, executor=run.executor, result=run.outcome,
        why=None if passed or why is None else shortened(why, _MOST_TEXT),
        failed=run.outcome in FAILED,
        seconds=None if run.exit is None else round(run.exit.seconds, 1),
        sandbox=_held_by(runs_dir / run.id),
    )  # fmt: skip


async def _rejections(
    journal: Journal, key: TrackKey, runs: Sequence[StoredRun]
) -> tuple[GateRejection, ...]:
    """Return how the story of these runs was sent back, the oldest first; `runs`: newest first."""
    if not runs:
        return ()
    life = Part(project=key.project, story=runs[-1].story, since=runs[-1].decided_at)
    found = [
        one for kind in _SENT_BACK for one in await journal.latest(MOST_LISTED, replace(life, kind=kind))
    ]
    own = (one for one in found if one.key == key and one.result.get("type") == "accepted")
    return tuple(map(_rejection, sorted(own, key=lambda one: one.seq)))


LANDING: Final = "the landing"
"""Who has sent a story back that was approved and could not be landed."""
_SENT_BACK: Final = ("rejected", "landing_refused")
"""The events with which a person, or a landing that did not succeed, sends a story back."""


def _rejection(event: StoredEvent) -> GateRejection:
    told, (step, _) = event.event, event.before or ("", "")
    return GateRejection(
        step=step, reason=told.get("reason") or ("not landed" if "why" in told else None),
        note=_cut(told.get("why") or told.get("note")), by=_cut(told.get("by")) or LANDING, at=event.at,
    )  # fmt: skip


def _held_by(run_dir: Path) -> str | None:
    """Return the level that held a run; None where its records are gone."""
    try:
        run = claimed(run_dir)
        start = None if run is None else run.start_record()
    except (OSError, ValueError):
        return None
    return None if start is None else start.sandbox or "off"


_LEVELS: Final = ("off", "landlock", "namespaces", "strict")


def _weakest(attempts: Iterable[GateAttempt]) -> str | None:
    held = {one.sandbox for one in attempts}
    return next((level for level in _LEVELS if level in held), None)


# --- an approval that leaves a question open --------------------------------------------------------------
UNANSWERED: Final = "UNANSWERED"


async def hold_unanswered(
    project: Marked, services: Services, supervisor: TrackSupervisor, approval: Approved
) -> None:
    """Refuse an approval without a note while papers of the story have unclear points, if its rule asks that.

    A note that waits for the next prompt has answered them, and so has one at an earlier human step. Raises
    Refused (UNANSWERED), StoreError.
    """
    track, key = supervisor.track, supervisor.key
    rule = project.files.rules.steps.get(track.state.step) if track.state is not None else None
    if rule is None or not rule.outputs.get("clear") or not waits_at_gate(track, project.files.rules):
        return
    note = approval.note or (track.state.human_note if track.state is not None else None)
    if note and note.strip():
        return
    situation = Situation(track, project.files.rules, services.clock.now())
    find = partial(_open_points, supervisor.workspace.folder, situation, ())
    unclear, _, _ = await Reach(project.root, services.asking).asked(find)
    if not unclear or await _was_answered(services.journal, key, track):
        return
    more = f" and {len(unclear) - 1} more" if len(unclear) > 1 else ""
    where = f"{unclear[0].file}:{unclear[0].line}"
    raise Refused(
        f"this approval leaves open what is unclear: {unclear[0].text} ({where}){more}", code=UNANSWERED,
        hint=f"{addressed(approving(own_story(key)), project.root)} --note 'THE ANSWER'",
    )  # fmt: skip


async def _was_answered(journal: Journal, key: TrackKey, track: Track) -> bool:
    """Return whether the story was approved with a note at another human step."""
    assert track.state is not None
    runs = of_this_life(await journal.runs(key.project, _MOST_RUNS), track, key.track)
    if not runs:
        return False
    life = Part(project=key.project, story=track.state.story, since=runs[-1].decided_at, kind="approved")
    return any(
        one.key == key and one.event.get("note") and (one.before or ("",))[0] != track.state.step
        for one in await journal.latest(MOST_LISTED, life)
    )


# --- what is still open -------------------------------------------------------------------------------
_UNREAD: Final = f"{{}} changed files were not read for {_MARK}]: too many files, or too many marks"
_READ_S: Final = 3.0
"""How long the changed files are read: the screen of a gate must not wait for all of a large story."""


def _open_points(
    folder: str, situation: Situation, changed: Sequence[str]
) -> tuple[tuple[OpenPoint, ...], tuple[OpenPoint, ...], int]:
    """Return the unclear lines, the boxes that are left open, and how many files were not read. Blocks."""
    names = dict.fromkeys((*to_review(situation), _HANDOFF, *changed))
    left, until, unclear = deque(names), monotonic() + _READ_S, list[OpenPoint]()
    while left and len(unclear) < MOST_LISTED and monotonic() < until:
        unclear += _marked(folder, left.popleft())
    path = situation.rules.path_from(situation.state.task_type, situation.state.step)
    here = path.index(situation.state.step) if situation.state.step in path else len(path)
    boxes = _boxes(folder, situation.state.story or "", path[here:])
    return tuple(unclear[:MOST_LISTED]), tuple(islice(boxes, MOST_LISTED)), len({*left} & {*changed})


def _marked(folder: str, name: str) -> Iterator[OpenPoint]:
    for number, line in enumerate(_lines_of(folder, name), start=1):
        if _MARK in line.upper():
            yield OpenPoint(file=_cut(name) or "", line=number, text=shortened(line, _MOST_TEXT))


def _boxes(folder: str, story: str, ahead: Collection[str]) -> Iterator[OpenPoint]:
    lines = _lines_of(folder, CHECKLIST)
    if not lines or lines[0].strip() != f"# {story}":
        return
    for number, section, text in unticked(lines, ahead):
        yield OpenPoint(
            file=CHECKLIST, line=number, text=shortened(text, _MOST_TEXT),
            section=_cut(section),
        )  # fmt: skip


def _lines_of(folder: str, name: str) -> list[str]:
    """Return the lines of a file of a project; none where it is not there, or not to be read."""
    try:
        seen = read_project_file(Path(folder), name, _MOST_FILE)
    except HandoffdError:
        return []
    return [] if seen is None else seen.content.decode("utf-8", "replace").splitlines()
