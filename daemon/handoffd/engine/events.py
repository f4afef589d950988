"""What happens to a track, in the past tense: what people ask for, and facts.

A person's verb is one, too, which `decide` may refuse. Each has all that `decide` needs to judge it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from msgspec import Struct, field

from handoffd.engine.flow.assignment import Assignment
from handoffd.engine.run import Cap, End, Exit, Finding, LandedBy, PostCheck, Scope, Silence, Usage, Wrote
from handoffd.engine.track import AgentSession, BroughtBack, Queued, Standby, Tagged, Workspace
from handoffd.protocol.delivery import Delivered
from handoffd.protocol.handoff import HandoffMark, Reading
from handoffd.protocol.rules import Complexity
from handoffd.protocol.state import Reason, State, TestChanges, TestCounts
from handoffd.protocol.story import Numbering
from handoffd.protocol.story_text import NewStory, StoryText


# --- what people ask for ------------------------------------------------------------------------------
class Initialised(Tagged, frozen=True, kw_only=True):
    """handoffd wrote the project's first STATE.json. `done` names the stories that were done before."""

    project: str
    done: tuple[str, ...] = ()
    as_published: bool = False  # whether its limits are the protocol's; False: of a release with the step's


class Started(Tagged, frozen=True, kw_only=True):
    """A story or custom task was asked for, with the stories of `then` to follow it under the same options.

    `bootstrapped` tells whether the project already has its PROJECT_CONTEXT.md; `automatic` makes
    the track Level 2. `schedule` is the one that asked, because it was `due`; None: a person did.
    """

    story: str
    """Empty until the track's consumer has chosen one from `numbers`."""
    task_type: str = "story"
    instruction: str | None = None
    bootstrapped: bool = True
    automatic: bool = True
    agent_teams: bool = False
    blocked_by: tuple[str, ...] = ()
    queue: bool = False
    force: bool = False
    executor: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    priority: int = 0
    complexity: Complexity | None = None
    schedule: str | None = None
    due: datetime | None = None
    described: StoryText | None = None  # what the story shall bring, in a person's words
    numbers: tuple[Numbering, ...] | None = None
    undescribed: tuple[str, ...] = ()
    """How the project's files number stories (None: the id was given), and the stories they do not name."""
    heeds_undescribed: bool = False  # a story that nothing describes is refused: an agent would have to guess
    tells_aside: bool = False  # the answer says which story is set aside, as in no earlier release
    heeds_begun: bool = False
    heeds_words: bool = False
    """Whether a story set aside shows that the bootstrap is over, and words that name none are a text."""
    keeps_place: bool = False
    names_story: bool = False  # `force` resumes one set aside at its step; one without a text is warned of
    beside: bool = False
    at_once: bool = False
    """Whether the story may have a track of its own beside another one; and begins by itself, in any case."""
    keeps_unlanded: bool = False
    awaits_landing: bool = False
    """Whether it leaves `main` to a story that could not be landed, or that the daemon lands just now."""
    by: str = "cli"


class Continued(Tagged, frozen=True, kw_only=True):
    """Start the next story of the backlog; `keeps_unlanded` and `awaits_landing` as of a start."""

    keeps_unlanded: bool = False
    awaits_landing: bool = False
    by: str = "cli"


class BacklogMoved(Tagged, frozen=True, kw_only=True):
    """Move a story of the backlog: before another one, to the front, or to the end."""

    story: str
    before: str | None = None
    last: bool = False
    by: str = "cli"


class BacklogEdited(Tagged, frozen=True, kw_only=True):
    """Change the options of a story in the backlog; None leaves one as it is."""

    story: str
    priority: int | None = None
    blocked_by: tuple[str, ...] | None = None
    complexity: Complexity | None = None
    executor: tuple[str, ...] | None = None
    by: str = "cli"


class BacklogRemoved(Tagged, frozen=True, kw_only=True):
    """Take stories out of the backlog."""

    stories: tuple[str, ...]
    by: str = "cli"


class BacklogAdded(Tagged, frozen=True, kw_only=True):
    """Stories with a text were put into the backlog, but for known ones; `dry_run` asks what that would do.

    `first_texts`: known ones without a text take theirs; False: of an older release.
    """

    stories: tuple[NewStory, ...]
    first_texts: bool = False
    numbers: tuple[Numbering, ...] = ()
    bootstrapped: bool = True
    dry_run: bool = False
    by: str = "cli"


class AutoContinueChosen(Tagged, frozen=True, kw_only=True):
    """Start the next story of the backlog automatically, or not; None: as the settings say."""

    on: bool | None
    by: str = "cli"


class Approved(Tagged, frozen=True, kw_only=True):
    """A person approved the human step, of `story` if one was named."""

    note: str | None = None
    story: str | None = None
    undoable: bool = False
    """Whether it can be taken back; False: of a release in which it could not."""
    by: str = "cli"


class Undone(Tagged, frozen=True, kw_only=True):
    """A person took back the approval of a human step, of `story` if one was named."""

    story: str | None = None
    by: str = "cli"


class Rejected(Tagged, frozen=True, kw_only=True):
    """A person rejected the human step, of `story` if one was named; the reason routes it."""

    reason: Reason | None = None
    note: str | None = None
    story: str | None = None
    by: str = "cli"


class Retried(Tagged, frozen=True, kw_only=True):
    """Try the current step again, with all its attempts."""

    by: str = "cli"


class Skipped(Tagged, frozen=True, kw_only=True):
    """Pass the current step without evidence."""

    by: str = "cli"


class Aborted(Tagged, frozen=True, kw_only=True):
    """End the track here."""

    by: str = "cli"


class Paused(Tagged, frozen=True, kw_only=True):
    """Dispatch nothing until `Resumed`; `alone`: of the story in flight, while the backlog goes on."""

    alone: bool = False
    by: str = "cli"


class Resumed(Tagged, frozen=True, kw_only=True):
    """Lift a pause, `alone` that of the story in flight; a Level 1 track becomes Level 2."""

    alone: bool = False
    by: str = "cli"


class Noted(Tagged, frozen=True, kw_only=True):
    """A note for the next prompt."""

    text: str
    by: str = "cli"


class RolledBack(Tagged, frozen=True, kw_only=True):
    """Go back to an earlier step; with `files`, also to the files as they were before it.

    `over`: also to files that not only attempts have changed. `brought` is what was done before the decision.
    """

    step: str
    force: bool = False
    files: bool = False
    over: bool = False
    brought: BroughtBack | None = None
    by: str = "cli"


class Reopened(Tagged, frozen=True, kw_only=True):
    """Take up a finished story again at `step`; `entry` is the form of its history, 2 the reference's."""

    step: str
    note: str | None = None
    entry: Literal[1, 2] = 1
    by: str = "cli"


class PromptTaken(Tagged, frozen=True, kw_only=True):
    """A person or another tool took the prompt of the next turn, to do that step (Level 1).

    `dispatch` is the id under which the prompt is kept; `unmet` are the stories that must be done first and
    are not; `keeps_gate` and `reopenings` as in `Advanced`.
    """

    dispatch: str
    unmet: tuple[str, ...] = ()
    by: str = "cli"
    keeps_gate: bool = False
    reopenings: int | None = None


class LevelChosen(Tagged, frozen=True, kw_only=True):
    """A person chose who dispatches: the daemon (Level 2), or people (Level 1)."""

    level: Literal[1, 2]
    by: str = "cli"


class PostChecked(Tagged, frozen=True, kw_only=True):
    """The step's post_check ran on request (`check`), outside any verdict; `checks` without outputs."""

    passed: bool
    checks: tuple[PostCheck, ...] = ()
    by: str = "cli"


class Landed(Tagged, frozen=True, kw_only=True):
    """The branch of a story is part of the branch `onto`, which ends at `commit`; `up_to` a step, or whole.

    If it was not merged, `commit` ends its own branch; `told` by a command, at last. `untested`: no test ran.
    """

    story: str
    onto: str
    commit: str
    up_to: str | None = None
    how: LandedBy = "merge"
    told: str | None = None
    untested: bool = False
    by: str = "cli"


class Discarded(Tagged, frozen=True, kw_only=True):
    """The clone and the branch of a story were removed; the ref `kept` has what it did."""

    story: str
    kept: str
    notes_ref: bool = False  # whether the track remembers it; False: of an older release
    by: str = "cli"


class EditConfirmed(Tagged, frozen=True, kw_only=True):
    """A person confirmed the edit of STATE.json that was held."""

    by: str = "cli"


class BudgetRaised(Tagged, frozen=True, kw_only=True):
    """A person raised a budget to `usd` dollars and `tokens` in all; `story` must be the one in flight."""

    scope: Literal["attempt", "story", "project"]
    story: str | None = None
    usd: float | None = None
    tokens: int | None = None
    by: str = "cli"


class ExecutorChosen(Tagged, frozen=True, kw_only=True):
    """Let one of these executors work on the story in flight, the best first; empty: as the settings say."""

    executor: tuple[str, ...] = ()
    by: str = "cli"


class LimitLifted(Tagged, frozen=True, kw_only=True):
    """Stop waiting for an account's limit."""

    account: str
    by: str = "cli"


Verb = (
    Initialised | Started | Approved | Undone | Rejected | Retried | Skipped | Aborted | Paused | Resumed
    | Noted | RolledBack | Reopened | EditConfirmed | ExecutorChosen | LimitLifted | BudgetRaised
    | PromptTaken | LevelChosen | PostChecked | Landed | Continued | BacklogMoved | BacklogEdited
    | BacklogRemoved | BacklogAdded | Discarded | AutoContinueChosen
)  # fmt: skip


# --- a track's turn, and what comes of a dispatch -----------------------------------------------------
class Advanced(Tagged, frozen=True, kw_only=True):
    """It is this track's turn: a slot is free and nothing holds it back.

    `dispatch` is the id a dispatch would get; `group` is the one that the project's own settings name;
    `unmet` names the stories of blocked_by that are not done; `mark` is the hand-off as it is now; `baseline`
    is True when the project's tests can be run and were not yet run for this story; `passed_over` says, for
    each executor that would have been preferred, why it does not get the dispatch; `resume` is True when the
    executor can and shall continue the session it had: as the rule or its definition says, also when its last
    run was cut short by a cap, a limit or a stall, and always when it is asked for just the hand-off; `over`
    is the cap that lets nothing more be spent, also the one of each attempt at which its last run was ended,
    as long as that cap applies; `auto_continue` is True when the next story of the backlog starts by itself;
    `keeps_gate` is False in events of releases in which the step table alone said what a gate is;
    `reopenings` is their number in the history, where the turn may end the story, and None in events of
    releases that suggested no review; `workspace` is the place that was made for the story, where its first
    attempt begins there.
    """

    dispatch: str
    executor: str
    account: str | None = None
    group: str | None = None
    passed_over: tuple[str, ...] = ()
    mark: HandoffMark = HandoffMark()
    unmet: tuple[str, ...] = ()
    baseline: bool = False
    over: Finding | None = None
    resume: bool = False
    auto_continue: bool = False
    keeps_gate: bool = False
    reopenings: int | None = None
    workspace: Workspace | None = None


class DispatchFailed(Tagged, frozen=True, kw_only=True):
    """A dispatch could not be prepared: prompt template, settings, or (`end`) no such `executor`.

    `standby`: who else could have it; None: of a release that did not look after the executor's fault.
    """

    code: str
    message: str
    end: End | None = None
    executor: str | None = None
    standby: Standby | None = None


class BaselineMeasured(Tagged, frozen=True, kw_only=True):
    """The tests ran before the story's first red step; `fault` says why they could not."""

    dispatch: str
    mark: HandoffMark = HandoffMark()
    fault: str | None = None


class ExecutorStarted(Tagged, frozen=True, kw_only=True):
    """The executor's process runs; `pid` is its own, not the shim's. It began `at`, maybe long before."""

    dispatch: str
    pid: int
    at: datetime | None = None


class SpawnRefused(Tagged, frozen=True, kw_only=True):
    """The executor could not be started: a fault of the environment. `standby` as of a failed dispatch."""

    dispatch: str
    error: str
    end: End | None = None
    standby: Standby | None = None


# --- an executor that runs ----------------------------------------------------------------------------
class HandoffSettled(Tagged, frozen=True, kw_only=True):
    """A valid hand-off is there and the process tree has been quiet for `quiet_s`."""

    dispatch: str
    quiet_s: float


class DeadlinePassed(Tagged, frozen=True, kw_only=True):
    """An attempt's time is over. `dispatch` is None for an attempt that the daemon did not start."""

    dispatch: str | None
    elapsed_min: float
    limit_min: float | None = None
    """How much that was; None: of a release that told all times in whole minutes."""


class CapReached(Tagged, frozen=True, kw_only=True):
    """A running attempt reached a cap (its own or a wider one), and the daemon ends it."""

    dispatch: str
    finding: Finding


class ExecutorQuiet(Tagged, frozen=True, kw_only=True):
    """An executor has shown no sign of life for half of `stall_min`."""

    dispatch: str
    silence: Silence


class ExecutorStalled(Tagged, frozen=True, kw_only=True):
    """An executor has shown no sign of life for `stall_min`."""

    dispatch: str
    silence: Silence


class Interrupted(Tagged, frozen=True, kw_only=True):
    """The daemon ends the executor for its own reasons (`handoffd stop --executors`)."""

    by: str = "cli"


# --- its end, and what was measured of its work -------------------------------------------------------
class ExecutorExited(Tagged, frozen=True, kw_only=True):
    """The executor's whole process tree is gone; `reading` is what it left."""

    dispatch: str
    exit: Exit
    reading: Reading
    mark: HandoffMark = HandoffMark()
    standby: Standby | None = None  # who else could have the attempt; None: of a release that did not look
    untouched: tuple[str, ...] = ()
    """Files that its hand-off says it changed, and that are as they were when the attempt was decided."""
    wrote: Wrote | None = None  # what its step has changed by then; None: of a release that did not look
    delivered: Delivered | None = None  # what is there of all that the task of a flow has to deliver


class CauseEnded(Tagged, frozen=True, kw_only=True):
    """The fault of these executors is over; `trial`: it may be, and is remembered until one has worked."""

    executors: tuple[str, ...]
    trial: bool = False


class TestEvidence(Struct, frozen=True, kw_only=True):
    """What a test run proved, already compared with the baseline.

    `fault`: the runner was unusable, so nothing was proved. `new_failing` counts ids outside the baseline
    that fail, `regressed` passed in it and fail now, `failing` leaves its failures out. `verified`: not by
    the exit code alone. `held`: what a red step left is kept for green ones. `unproven`: why a run without
    failures proves nothing. `line` was printed last; None: of a release that quoted the whole `tail`.
    """

    __test__ = False
    counts: TestCounts = TestCounts()
    failing: tuple[str, ...] = ()
    known_failing: tuple[str, ...] = ()
    new_failing: int = 0
    new_collected: int = 0
    regressed: tuple[str, ...] = ()
    collected: int = 0
    verified: bool = True
    timed_out: bool = False
    fault: str | None = None
    tail: str = ""
    seconds: float = 0.0
    line: str | None = None
    held: bool = False
    unproven: str | None = None
    note: str | None = None
    changed: TestChanges = TestChanges()


class ChecksFinished(Tagged, frozen=True, kw_only=True):
    """The daemon has measured what the executor claimed; `post_checks` if the rule has them by name."""

    dispatch: str
    tests: TestEvidence | None = None
    post_check: PostCheck | None = None
    post_checks: tuple[PostCheck, ...] = ()

    @property
    def checked(self) -> tuple[PostCheck, ...]:
        """How the one post_check ended, or each of several; empty: none was run."""
        return self.post_checks or (() if self.post_check is None else (self.post_check,))


# --- from outside -------------------------------------------------------------------------------------
class HandoffArrived(Tagged, frozen=True, kw_only=True):
    """A settled hand-off is there for an attempt that the daemon did not start (Level 1).

    It is judged as `dispatch`, and was read for `step` and `attempt`; `keeps_gate` as in `Advanced`.
    """

    dispatch: str
    reading: Reading
    mark: HandoffMark
    step: str | None = None
    attempt: int | None = None
    keeps_gate: bool = False


class StateEdited(Tagged, frozen=True, kw_only=True):
    """Another program or a person changed STATE.json, validly. `policy` is the project's external_edits.

    `dispatch` was in flight when the file was read, and may be over. `overtaken`: the file is older than the
    latest decision, which a crash kept from being shown. `done`: stories that ended elsewhere, if known.
    `tells`: a person then gets a notice; False: of a release without it. `own`: the story whose track it is.
    """

    state: State
    policy: Literal["hold_gates", "adopt", "refuse"] = "hold_gates"
    dispatch: str | None = None
    overtaken: bool = False
    done: tuple[str, ...] = ()
    tells: bool = False
    own: str | None = None


class NoticeGivenUp(Tagged, frozen=True, kw_only=True):
    """A sink did not take `count` notices for too long, `first` is the first's id; `why` it failed last."""

    sink: str
    count: int
    first: str
    why: str


class Restored(Tagged, frozen=True, kw_only=True):
    """A backup replaced the journal: the track does not know what has happened since.

    `overtaken`: the attempt in flight then is not the project's latest, or nothing is left of it.
    With `owner`, no backup: the daemon of that state directory has had the project meanwhile.
    """

    overtaken: bool
    by: str = "journal restore"
    owner: str | None = None


# --- stories side by side -----------------------------------------------------------------------------
class StoryOpened(Tagged, frozen=True, kw_only=True):
    """A story of the backlog gets a track of its own: `parallel` of a project may be worked on at once."""

    story: str
    parallel: int


class StoryClosed(Tagged, frozen=True, kw_only=True):
    """The track of a story has ended; `done`: the story is done, not given up. `spent` is what that used."""

    story: str
    done: bool
    spent: Usage = Usage()


class LandingRefused(Tagged, frozen=True, kw_only=True):
    """The daemon could not land a story. An agent may help with a `note`, else a person with a `remedy`."""

    story: str
    why: str
    note: str | None = None
    remedy: str | None = None
    stays: bool = False
    """Whether it is still to be landed if its track is another's by now."""


class TrackOpened(Tagged, frozen=True, kw_only=True):
    """A track begins with an `entry` of the backlog, as `described`; `granted` was given to the project."""

    project: str
    entry: Queued
    described: StoryText | None = None
    granted: Mapping[Scope, Cap] = field(default_factory=dict)
    task: Assignment | None = None  # of a flow; it works in its `workspace`, and may continue a `session`
    workspace: Workspace | None = None
    session: AgentSession | None = None


class TrackClosed(Tagged, frozen=True, kw_only=True):
    """The track of a story has ended; `why` in words."""

    why: str


# --- all of them --------------------------------------------------------------------------------------
Fact = (
    Advanced | DispatchFailed | BaselineMeasured | ExecutorStarted | SpawnRefused | HandoffSettled
    | DeadlinePassed | CapReached | ExecutorQuiet | ExecutorStalled | Interrupted | ExecutorExited
    | ChecksFinished | HandoffArrived | StateEdited | Restored | NoticeGivenUp | CauseEnded
    | StoryOpened | StoryClosed | TrackOpened | TrackClosed | LandingRefused
)  # fmt: skip

Event = Verb | Fact
