"""A track: one STATE.json plus what only the journal remembers of it.

STATE.json is a public contract and is cleared at every step change; what must survive that is in the ledger.
Both change only through `decide`, in one journal transaction. Here are the values of the ledger, and what is
read from it without a rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from handoffd.engine.flow.assignment import Assignment
from handoffd.engine.run import POLICIES, REMOTE, Cap, End, Finding, PostCheck, SameEnds, Scope, Usage, Wrote
from handoffd.protocol.handoff import Handoff, HandoffMark
from handoffd.protocol.rules import Complexity
from handoffd.protocol.state import State, TestCounts
from handoffd.protocol.story_text import StoryText

# --- what the journal keeps of many kinds ------------------------------------------------------------------
_INNER_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


def _kind(name: str) -> str:
    """Return the kind of a class: `HandoffArrived` is `handoff_arrived`."""
    return _INNER_CAPITAL.sub("_", name).lower()


class Tagged(Struct, frozen=True, tag_field="kind", tag=_kind):
    """One of several values of the journal. Its text names its kind, so a class must keep its name."""

    @property
    def kind(self) -> str:
        """Which of them it is."""
        return kind_of(type(self))


def kind_of(tagged: type[Tagged]) -> str:
    """Return the kind under which the journal keeps the values of a class."""
    return str(tagged.__struct_config__.tag)


# --- the dispatch in flight ---------------------------------------------------------------------------
class Phase(StrEnum):
    """How far the dispatch in flight has come. STATE says `running` throughout."""

    BASELINE = "baseline"
    STARTING = "starting"
    EXECUTING = "executing"
    STOPPING = "stopping"
    CHECKING = "checking"


class StopReason(StrEnum):
    """Why we end an executor."""

    TIMEOUT = "timeout"
    ABORT = "abort"
    SETTLED = "settled"
    """Its hand-off is there and nothing of it moves any more."""
    STALL = "stall"
    """It shows no sign of life."""
    SHUTDOWN = "shutdown"
    """`handoffd stop --executors`: an interruption by us, which costs no attempt."""
    CAP = "cap"
    """A cap on what may be spent is reached, which costs no attempt either."""


EXTERNAL = "external"
"""In place of an executor's name: the attempt is made by a person or another tool."""


class Dispatch(Struct, frozen=True, kw_only=True):
    """One start of one executor. The id is unique for ever; it is started at most once."""

    id: str
    story: str | None
    step: str
    attempt: int
    executor: str
    decided_at: datetime
    phase: Phase
    mark: HandoffMark = HandoffMark()
    """The hand-off files as they were before the start: what equals them is stale."""
    stop: StopReason | None = None
    stopped_by: str | None = None
    stop_detail: str | None = None
    """What was seen that made us stop it, in words, where the reason alone does not say it."""
    claim: Handoff | None = None
    """What the executor handed over, kept while the checks run."""
    account: str | None = None
    """Whose quota it uses; None: of a release that did not tell accounts apart."""
    group: str | None = None
    """The group that its project named for itself at the start, if it named one."""
    session: str | None = None
    """The agent's session that it continues; None: a fresh one."""
    ask: Literal["step", "handoff"] = "step"
    """What it was asked for: the step's work, or just the hand-off that was missing."""
    cap: Finding | None = None
    """The cap that it is stopped for."""
    ended_at: datetime | None = None
    """When its executor ended, if that is known; its checks may go on."""
    keeps_gate: bool = False
    """Whether only a person passes its step if that becomes a gate meanwhile, as in no earlier release."""


# --- executors and accounts that cannot be used -------------------------------------------------------
SOONER: Final = 10  # times sooner a fault is tried once its account has worked elsewhere


class Fault(Struct, frozen=True, kw_only=True):
    """Why an executor cannot be used for now. `end` is one that pauses."""

    executor: str
    end: End
    since: datetime
    sign: str = ""
    """What could be seen here of its program, its login and its definition: another sign, and it is tried."""
    answers: int = 1
    """How often in a row it was met."""
    again_at: datetime | None = None
    """When it is tried although nothing has changed here: a key may be valid again. None: it is not."""
    trying: bool = False
    """Whether it is just being tried, so that the next attempt may be its executor's."""
    met_at: datetime | None = None
    """When it was met last; None: in a release that did not keep that."""

    @property
    def text(self) -> str:
        """The fault in words: `claude is not logged in`."""
        return f"{self.executor} {POLICIES[self.end].fault}"

    def is_due(self, now: datetime, worked: datetime | None = None) -> bool:
        """Return whether to try it now although nothing has changed here.

        `worked` is when the latest run began that shows that its account works elsewhere. That is not worth
        every trial: this project may have a key of its own.
        """
        if self.again_at is None or self.trying:
            return False
        if worked is None or self.met_at is None or worked <= self.met_at or self.end not in REMOTE:
            return self.again_at <= now
        return self.met_at + (self.again_at - self.met_at) / SOONER <= now


class Standby(Struct, frozen=True, kw_only=True):
    """Who else could have the attempt of an executor that just ended."""

    sign: str = ""
    """What can be seen of the executor that ended; see `Fault`."""
    instead: str | None = None
    """The next of the named executors; None if there is none."""
    until: datetime | None = None
    """When that one's limit is over; None: it can begin at once."""
    lacking: tuple[Fault, ...] = ()
    """The others that are named and cannot be used."""
    tries_again: bool = False
    """Whether its fault may end where nothing here shows it; False: of a release that waited for a change."""


LimitKind = Literal["limit", "overload", "refusal"]
"""A refusal concerns the track that met it; the others everything that uses the account."""


class Limit(Struct, frozen=True, kw_only=True):
    """An account that answered one of a track's executors with a limit, and has not answered better since."""

    account: str
    executor: str
    kind: LimitKind
    since: datetime
    """When it did so first, by the end of the executor that met it."""
    until: datetime
    """When it is asked again."""
    answers: int = 1
    """How often in a row it did so."""
    why: str = ""
    """What the agent said last, in one line."""
    told: bool = False
    """Whether a notice about it was sent."""
    reminded: bool = False
    """Whether a notice was sent that it lasts long."""


# --- where it works -----------------------------------------------------------------------------------
class Workspace(Struct, frozen=True, kw_only=True):
    """The folder (absolute) in which the agents of a track work, its tests run, and its hand-off is written.

    `root` is the project's own folder; `clone` a repository of the track's own, elsewhere. STATE.json, the
    history and the records of runs stay in the project's folder, where people look for them.
    """

    folder: str
    kind: Literal["root", "clone"] = "root"
    branch: str | None = None
    """The branch of its story, `handoffd/US-007`, where commits are made: the place ends with it."""
    base: str | None = None
    """The commit that the branch begins at."""
    onto: str | None = None
    """The branch that was checked out in the project then: `main`."""


class BroughtBack(Struct, frozen=True, kw_only=True):
    """How the files of a story were brought back: `files` is how many of them have changed."""

    snapshot: str
    """The ref of the files as they are now."""
    kept: str
    """The ref of the files as they were until then."""
    files: int


# --- what the ledger holds ----------------------------------------------------------------------------
class Facts(Struct, frozen=True, kw_only=True):
    """What later prompts need from earlier steps of the same story."""

    failing_tests: tuple[str, ...] = ()
    """Named by the last red step or the last failed check, or by a hand-off where none was made."""
    tests: TestCounts | None = None
    """Measured last, by us."""
    check_tail: str | None = None
    """The last lines of the check that failed in the last attempt."""
    failed_checks: tuple[PostCheck, ...] = ()
    """The named checks of the last attempt's post_check that failed."""
    output_tail: str | None = None
    """The last lines of the output of the last attempt, where it left no hand-off."""
    files: tuple[str, ...] = ()
    """Every file that a step of the story has changed, or that a hand-off names, in that order."""
    files_measured: bool = False
    """Whether no hand-off's word was needed for that."""
    attempts: Mapping[str, int] = field(default_factory=dict)
    """Attempts judged so far, by step."""
    commit_hash: str | None = None
    summary: str | None = None
    usage: Usage = Usage()
    """Of all its attempts, judged or not."""


class Queued(Struct, frozen=True, kw_only=True):
    """A story (or custom task) that waits for the one in flight."""

    story: str
    task_type: str = "story"
    instruction: str | None = None
    agent_teams: bool = False
    blocked_by: tuple[str, ...] = ()
    executor: tuple[str, ...] = ()
    priority: int = 0
    """More is sooner."""
    complexity: Complexity | None = None
    bootstrapped: bool = True
    """Whether the project had its PROJECT_CONTEXT.md when the story was asked for."""
    by: str | None = None
    at: datetime | None = None
    """Who asked for it, and when; None: of a release that did not keep that."""
    schedule: str | None = None
    asked: bool = False  # by a person, to start at once: without another word, as of a schedule


class AgentSession(Struct, frozen=True, kw_only=True):
    """The session that the last run of a step's executor had: a retry of that step may continue it."""

    step: str
    executor: str
    id: str
    used: Usage | None = None
    """By all its runs so far: some agents count these again when they continue it."""
    unfinished: bool = False
    """Whether its last run was cut short at no fault of the work: by a cap, a limit or a stall."""


class Asking(Struct, frozen=True, kw_only=True):
    """An attempt that ended without a valid hand-off and is asked again for just that."""

    step: str
    attempt: int
    problem: str
    """How it ended, and the problem with its hand-off."""


class SinceReview(Struct, frozen=True, kw_only=True):
    """What has happened since a review of the whole project was suggested last."""

    ends: int | None = None
    """How often a story came to its end; None: of a release that did not count."""
    reopenings: int = 0
    """Number of reopenings in the history when the last suggestion was made."""
    suggested: bool = False
    """The latest end of a story was one at which it is suggested."""


class Approval(Struct, frozen=True, kw_only=True):
    """A person's approval of a human step, for as long as it can be taken back."""

    step: str
    by: str
    before: str | None = None
    """The note for the next prompt as it was before."""
    after: str | None = None
    """The same with the note of the approval."""


class BacklogPause(Struct, frozen=True, kw_only=True):
    """A person has paused, or resumed, one story alone: who has paused the backlog; None: it goes on."""

    by: str | None


class Ledger(Struct, frozen=True, kw_only=True):
    """What the journal remembers of a track beside its STATE."""

    automatic: bool = False
    """Level 2: the daemon dispatches by itself."""
    by_hand: bool = False
    """A person chose level 1: a start keeps that, but changes a level that was never chosen."""
    paused_by: str | None = None
    backlog_pause: BacklogPause | None = None
    """Whether the backlog is paused, where that is not as `paused_by` says; only `main` has one."""
    remedy: str | None = None
    """The command to type before a `resume`, where the daemon paused by itself."""
    self_paused: bool = False
    """handoffd paused it by itself, because of `faults`; such a pause ends with them."""
    faults: tuple[Fault, ...] = ()
    """Why executors cannot be used, as far as this track has met it."""
    closed: bool = False
    """Aborted: only a start or a rollback opens it again."""
    dispatch: Dispatch | None = None
    handed_out: str | None = None
    """The attempt whose prompt a person or another tool has taken (Level 1), until it is judged."""
    visits: Mapping[str, int] = field(default_factory=dict)
    free_repeats: int = 0
    """Repetitions in a row that cost no attempt (environment faults, interruptions)."""
    session: AgentSession | None = None
    asking: Asking | None = None
    ends: Mapping[str, SameEnds] = field(default_factory=dict)
    """How the attempts of each step have failed last."""
    timeouts: int = 0
    """Timeouts of the current step that `retry_on_timeout` has answered."""
    red_done: bool = False
    """The story has passed its first red step: red is required again only of a step that adds tests."""
    new_tests: int = 0
    """Tests beyond the baseline when a step last passed measured; more than that were added since."""
    red: str | None = None
    """The dispatch of the red step that passed last: green steps are held to the tests that it left."""
    escalated: bool = False
    skipped: tuple[str, ...] = ()
    next_note: str | None = None
    """Given while an executor runs: it belongs to the prompt after that."""
    told: str | None = None
    """The wait in the last notice, so that it is not sent twice."""
    gate: str | None = None
    """The human step of the last question: it stays one until it is left, also if the step table changes."""
    approval: Approval | None = None
    """The last one, until an attempt begins, or a person moves the track."""
    unseen: bool = False
    """Whether a human step of the story was passed over, and no person has approved one since."""
    measured: TestCounts | None = None
    """Counted by us in the attempt judged last: other counts in STATE are a claim."""
    wrote: Wrote | None = None
    """What the step has changed, by the end of the latest attempt; None: that was not the daemon's own."""
    facts: Facts = Facts()
    last_mark: HandoffMark = HandoffMark()
    """The hand-off applied last; the yardstick for dispatches that are not ours."""
    stories_done: tuple[str, ...] = ()
    backlog: tuple[Queued, ...] = ()
    parked: tuple[Parked, ...] = ()
    beside: tuple[Queued, ...] = ()
    """The stories that were given tracks of their own, in that order; only `main` has such."""
    texts: Mapping[str, StoryText] = field(default_factory=dict)
    """What people said that stories shall bring, by story, the latest last; also of the latest that ended."""
    workspace: Workspace | None = None
    """None: the project's own folder."""
    landed: bool = False
    """Whether nothing of the story is left to land: its branch is merged, or was discarded."""
    discarded: str | None = None
    """The ref that keeps what the story did, once a person has discarded it before it landed."""
    to_land: tuple[str, ...] = ()
    """The stories that are done in clones and not landed yet, while another one is in flight."""
    unlanded: str | None = None
    """Why the daemon could not land the story, where a person has to."""
    resolves: int = 0
    """How often the story was taken up again because it could not be landed."""
    held_edit: HeldEdit | None = None
    executor: tuple[str, ...] = ()
    """Those a person chose for the story in flight, the best first; empty: what the settings say."""
    complexity: Complexity | None = None  # of the story in flight, as its start said
    schedule: str | None = None  # that the story in flight came from; None: a person asked for it
    auto_continue: bool | None = None  # whether the next starts by itself; None: as the settings say
    review: SinceReview = SinceReview()
    limited: tuple[Limit, ...] = ()
    """The accounts that answered this track with a limit last."""
    spent: Usage = Usage()  # by every attempt of the track, whatever its story was
    granted: Mapping[Scope, Cap] = field(default_factory=dict)
    """What a person has granted beyond the caps of the settings; but the project's, for this story only."""
    capped: Finding | None = None
    """The cap that keeps it from being dispatched; an attempt's own stays until it is raised or retried."""
    task: Assignment | None = None  # the task of a flow that it works for; None: it works on stories

    @property
    def project_paused_by(self) -> str | None:
        """Who has paused the whole project, and its backlog with it."""
        return self.paused_by if self.backlog_pause is None else self.backlog_pause.by

    def with_(self, **changes: Any) -> Ledger:
        """Return a copy with `changes`."""
        return replace(self, **changes)


class Parked(Struct, frozen=True, kw_only=True):
    """A story set aside between two steps; taken up again when what replaced it is done."""

    state: State
    ledger: Ledger
    give_back: bool
    """True for a story parked by a custom task; False for one replaced by `start --force`."""


class HeldEdit(Struct, frozen=True, kw_only=True):
    """An edit of STATE.json from outside that would open a gate; a person must confirm it."""

    state: State
    why: str
    done: tuple[str, ...] = ()
    """The stories that it brings to their end."""
    tells: bool = False
    """As in `StateEdited`."""


# --- the track ----------------------------------------------------------------------------------------
class Track(Struct, frozen=True, kw_only=True):
    """Everything `decide` needs to know about one track. `state` is None until the project is initialised."""

    state: State | None = None
    ledger: Ledger = Ledger()

    def with_state(self, **changes: Any) -> Track:
        """Return a copy whose STATE has `changes`."""
        assert self.state is not None
        return Track(state=self.state.with_(**changes), ledger=self.ledger)

    def with_ledger(self, **changes: Any) -> Track:
        """Return a copy whose ledger has `changes`."""
        return Track(state=self.state, ledger=self.ledger.with_(**changes))

    def unpaused(self) -> Track:
        """Return a copy without a pause of ours, or a remedy, in which each executor may be tried again."""
        track = self.without_own_pause()
        return track.with_ledger(faults=(), remedy=None) if self.ledger.faults else track

    def without_own_pause(self) -> Track:
        """Return a copy without a pause of our own, or the memory of one while it is tried to go on."""
        if self.ledger.self_paused:
            return self.with_ledger(paused_by=None, remedy=None, self_paused=False, told=None)
        forgets = self.ledger.paused_by is None and self.ledger.remedy is not None
        return self.with_ledger(remedy=None) if forgets else self

    def works_in(self, root: str) -> Workspace:
        """Return where it works, in a project whose own folder is `root`."""
        return self.ledger.workspace or Workspace(folder=root)

    def with_note(self, text: str | None) -> Track:
        """Return a copy with `text` below earlier notes, so that no note is lost."""
        assert self.state is not None
        if not text:
            return self
        return self.with_state(human_note="\n\n".join(part for part in (self.state.human_note, text) if part))

    @property
    def passing_faults(self) -> tuple[Fault, ...]:
        """Why executors cannot be used, for the poller: while a person has paused it, none is tried again."""
        if self.ledger.paused_by is None or self.ledger.self_paused:
            return self.ledger.faults
        return tuple(replace(fault, again_at=None) for fault in self.ledger.faults)

    @property
    def asking(self) -> Asking | None:
        """The missing hand-off that the current attempt is asked for; None for the step's work."""
        state, asking = self.state, self.ledger.asking
        if state is None or asking is None or (asking.step, asking.attempt) != (state.step, state.attempt):
            return None
        return asking

    def without_dispatch(self) -> Track:
        """Return a copy in which nothing runs; a note given meanwhile is for the next prompt."""
        return self.with_note(self.ledger.next_note).with_ledger(dispatch=None, next_note=None)


class TrackKey(NamedTuple):
    """Which track: the absolute path of the project's root, and the track's name in it."""

    project: str
    track: str = "main"


def own_story(key: TrackKey) -> str | None:
    """Return the story whose own track it is; None for the track that each project has, and for flows."""
    return None if key.track == "main" or ":" in key.track else key.track


# --- stories that wait, and stories set aside ---------------------------------------------------------
def unmet(entry: Queued, ledger: Ledger) -> tuple[str, ...]:
    """Return the stories that must be done before `entry` starts and are not done in the journal."""
    return tuple(name for name in entry.blocked_by if name not in ledger.stories_done)


def startable(ledger: Ledger) -> Queued | None:
    """Return the story that is started next; None when each one waits for another."""
    return next((entry for entry in ledger.backlog if not unmet(entry, ledger)), None)


def next_parked(track: Track) -> Parked | None:
    """Return the story that is taken up when the one in flight is done: the one it was parked for."""
    return next((parked for parked in reversed(track.ledger.parked) if parked.give_back), None)


def parked_of(ledger: Ledger, story: str) -> Parked | None:
    """Return a story as it was set aside; None when it was not."""
    return next((parked for parked in ledger.parked if parked.state.story == story), None)


def is_beside(ledger: Ledger, story: str | None) -> bool:
    """Return whether a story has a track of its own."""
    return any(one.story == story for one in ledger.beside)


# --- the texts of stories -----------------------------------------------------------------------------
MOST_KEPT: Final = 64 * 1024
"""Characters that the texts of stories that have ended take together: the ledger is written often."""
MOST_TITLES: Final = 500


def text_of(ledger: Ledger, story: str | None) -> StoryText | None:
    """Return what a person said that a story shall bring; None if there is none, or it is not kept."""
    found = ledger.texts.get(story) if story is not None else None
    return found if found is not None and found.text else None


def with_texts(track: Track, texts: Mapping[str, StoryText]) -> Track:
    """Return the track with these texts, too. Of stories that ended long ago, only the titles are kept."""
    ledger = track.ledger
    known = {story: text for story, text in ledger.texts.items() if story not in texts} | dict(texts)
    alive = {one.story for one in ledger.backlog} | {one.state.story for one in ledger.parked} | set(texts)
    alive |= {track.state.story} if track.state is not None else set()
    alive |= {one.story for one in ledger.beside}
    room, titles = MOST_KEPT, MOST_TITLES
    for story in [story for story in reversed(known) if story not in alive]:
        room, titles = room - len(known[story].text), titles - 1
        if titles < 0:
            del known[story]
        elif room < 0:
            known[story] = replace(known[story], text="")
    return track.with_ledger(texts=known)


def without_texts(ledger: Ledger, stories: Iterable[str]) -> Ledger:
    """Return the ledger without the texts of stories that are no longer wanted."""
    gone = frozenset(stories)
    return ledger.with_(texts={story: text for story, text in ledger.texts.items() if story not in gone})


# --- what outlives the story in flight ----------------------------------------------------------------
def lasting(ledger: Ledger) -> Ledger:
    """Return what of a ledger outlives the story in flight."""
    return Ledger(
        automatic=ledger.automatic, by_hand=ledger.by_hand, paused_by=ledger.project_paused_by,
        remedy=ledger.remedy, self_paused=ledger.self_paused and ledger.backlog_pause is None,
        faults=ledger.faults,
        last_mark=ledger.last_mark, stories_done=ledger.stories_done, backlog=ledger.backlog,
        parked=ledger.parked, limited=ledger.limited, spent=ledger.spent, granted=granted_to_project(ledger),
        auto_continue=ledger.auto_continue, review=ledger.review, workspace=own_place(ledger),
        texts=ledger.texts, beside=ledger.beside, to_land=ledger.to_land,
    )  # fmt: skip


def own_place(ledger: Ledger) -> Workspace | None:
    """Return where a track works whatever its story is; a place with a branch is its story's."""
    where = ledger.workspace
    return None if where is not None and where.branch is not None else where


def granted_to_project(ledger: Ledger) -> dict[Scope, Cap]:
    """Return what a person has granted to the whole project."""
    return {scope: cap for scope, cap in ledger.granted.items() if scope == "project"}


def with_done(ledger: Ledger, stories: tuple[str, ...]) -> Ledger:
    """Return the ledger in which `stories` are done, too, the last of them last."""
    if not stories:
        return ledger
    others = tuple(name for name in ledger.stories_done if name not in stories)
    return ledger.with_(stories_done=(*others, *stories))
