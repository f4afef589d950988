"""The answers: a type for each question, order and message, from which the OpenAPI document is made.

New keys may come at any time, so no schema forbids further keys. The answer to a verb is the engine's result
with the next command and the keys of `VerbContext`.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from handoffd.capacity.accounts import AccountView
from handoffd.capacity.slots import SlotsView
from handoffd.engine.decision import Ground
from handoffd.engine.flow.views import FlowInShort
from handoffd.engine.notice import Held
from handoffd.engine.run import Exit, LandedBy, Moment, PostCheck
from handoffd.engine.views import (
    AppliedKind,
    BacklogView,
    GateInShort,
    GateView,
    IdleSchedule,
    ProjectView,
    ScheduleView,
    SnapshotsView,
    StoryView,
    Whereabouts,
    WorkspaceKind,
    WorkspaceView,
)
from handoffd.inspection.discovery import ListedProject
from handoffd.inspection.project_status import PrerequisiteCheck, ProjectStatus
from handoffd.journal.retention import Cleaned
from handoffd.protocol.rules import Gates
from handoffd.protocol.state import TestCounts


# --- supervised projects -----------------------------------------------------------------------------
class Health(Struct, frozen=True, kw_only=True):
    """Version and process of the daemon."""

    api: int
    version: str
    pid: int


class SinkBacklog(Struct, frozen=True, kw_only=True):
    """The undelivered notices of one sink."""

    sink: str
    undelivered: int
    oldest: Moment | None
    failed_tries: int
    last_error: str | None
    next_try_s: float | None
    given_up: int


class HeldBack(Held, frozen=True, kw_only=True):
    """Notices held back from one sink; `until` is null while no daemon runs."""

    since: Moment
    until: Moment | None


class WaitingMatter(Struct, frozen=True, kw_only=True):
    """A matter that needs a person: the last reminder, and the next one."""

    project: str
    track: str
    name: str | None
    story: str | None
    kind: str | None
    text: str | None
    next: str | None
    since: Moment
    reminded_min: float | None
    again_at: Moment | None


class NoticesAnswer(Struct, frozen=True, kw_only=True):
    """Undelivered notices, and coming reminders."""

    at: Moment
    sinks: list[SinkBacklog]
    held: list[HeldBack]
    waiting: list[WaitingMatter]
    more_waiting: int


class TriedSink(Struct, frozen=True, kw_only=True):
    """The outcome of a sample through one sink."""

    sink: str
    form: str
    ok: bool
    why: str | None
    seconds: float


class Tested(Struct, frozen=True, kw_only=True, tag_field="type", tag="tested"):
    """The outcome of a sample through each sink."""

    ok: bool
    sinks: list[TriedSink]


class StatusAnswer(Struct, frozen=True, kw_only=True):
    """The status of every project."""

    api: int
    daemon: bool
    at: Moment
    warnings: tuple[str, ...]
    notices: list[SinkBacklog]
    projects: list[ProjectView]


class StoryInShort(Struct, frozen=True, kw_only=True):
    """A story in flight, or the one that ended last, in short."""

    story: str
    step: str
    status: str


class ProjectInShort(Struct, frozen=True, kw_only=True):
    """One project in short. `story`, `step` and `status` are of the first of its stories."""

    project: str
    name: str
    level: int
    condition: str
    story: str | None
    step: str | None
    status: str | None
    stories: list[StoryInShort]


class ProjectsAnswer(Struct, frozen=True, kw_only=True):
    """The supervised projects."""

    projects: list[ProjectInShort]


class BacklogAnswer(BacklogView, frozen=True, kw_only=True):
    """The queued stories of a project."""

    name: str
    daemon: bool


class StoryAnswer(StoryView, frozen=True, kw_only=True):
    """A story with its text; `whereabouts` is null while it is not over, and where there is none.

    `kept`: the ref that has what a discarded one did.
    """

    name: str
    daemon: bool
    whereabouts: Whereabouts | None
    kept: str | None = None


class GateAnswer(GateView, frozen=True, kw_only=True):
    """The screen of an open gate."""

    name: str
    daemon: bool


class GatesAnswer(Struct, frozen=True, kw_only=True):
    """The open gates of all projects, those first that wait longest; and the flows that ask something."""

    daemon: bool
    gates: list[GateInShort]
    flows: list[FlowInShort] = []


class SnapshotsAnswer(SnapshotsView, frozen=True, kw_only=True):
    """The snapshots of a project's story."""

    name: str
    daemon: bool


class NamedWorkspace(WorkspaceView, frozen=True, kw_only=True):
    """A clone of a project."""

    name: str


class WorkspacesAnswer(Struct, frozen=True, kw_only=True):
    """The clones in which stories work, and what all of them take on the disk, in bytes."""

    daemon: bool
    bytes: int
    workspaces: list[NamedWorkspace]


class NamedSchedule(ScheduleView, frozen=True, kw_only=True):
    """A schedule of a project."""

    name: str


class SchedulesAnswer(Struct, frozen=True, kw_only=True):
    """The schedules."""

    at: Moment
    daemon: bool
    schedules: list[NamedSchedule]
    idle: tuple[IdleSchedule, ...]
    """Schedules of the settings that match no project."""


class LimitsAnswer(Struct, frozen=True, kw_only=True):
    """The accounts that are limited."""

    at: Moment
    limits: tuple[AccountView, ...]


class SlotsAnswer(SlotsView, frozen=True, kw_only=True):
    """The slots, and the running and waiting tracks."""

    daemon: bool
    at: Moment


class UsageCounts(Struct, frozen=True, kw_only=True):
    """Four counts of tokens, their sum, the cost or null, and the source of the cost."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    tokens: int
    cost_usd: float | None
    priced: str | None


class Run(Struct, frozen=True, kw_only=True):
    """One dispatch, from the decision to the verdict. What has not happened yet is null."""

    run: str
    project: str
    name: str
    track: str
    story: str | None
    step: str
    attempt: int
    executor: str
    decided_at: Moment
    started_at: Moment | None
    ended_at: Moment | None
    seconds: float | None
    exit: Exit | None
    usage: UsageCounts | None
    model: str | None
    memory_peak: int | None
    tasks_peak: int | None
    tests: dict[str, Any] | None
    result: str | None
    why: str | None


class RunsAnswer(Struct, frozen=True, kw_only=True):
    """Dispatches, newest first."""

    runs: list[Run]


class StepAndStatus(Struct, frozen=True, kw_only=True):
    """Step and status of a track."""

    step: str
    status: str


class HistoryEvent(Struct, frozen=True, kw_only=True, tag_field="type", tag="event"):
    """One event: when, what, why, and step and status of the track before and after."""

    seq: int
    at: Moment
    project: str
    name: str
    track: str
    kind: str
    what: str
    rules: tuple[Ground, ...]
    why: str
    next: str | None
    before: StepAndStatus | None
    after: StepAndStatus | None
    event: dict[str, Any]
    result: dict[str, Any]
    orders: tuple[dict[str, Any], ...]


class HistoryGap(Struct, frozen=True, kw_only=True, tag_field="type", tag="gap"):
    """Event numbers above `after` and below `next` that are no longer kept, across all projects."""

    after: int
    next: int
    why: str


class EventsAnswer(Struct, frozen=True, kw_only=True):
    """Events, oldest first, and the gaps among them."""

    events: list[HistoryEvent]
    gaps: list[HistoryGap]


# --- any folder, supervised or not -------------------------------------------------------------------
class QueryAnswer(ProjectStatus, frozen=True, kw_only=True):
    """The state of a project by its files, and by the journal if it is supervised."""

    root: str
    called: str | None
    """What to call it in a command; null: it is not supervised."""
    supervised: bool
    level: int
    waits_for: str | None
    next_command: str | None
    caller_instruction: str


class FolderAnswer(Struct, frozen=True, kw_only=True):
    """The projects in a folder."""

    folder: str
    projects: list[ListedProject]


class PrerequisitesAnswer(PrerequisiteCheck, frozen=True, kw_only=True):
    """The missing files that the current step reads."""

    project: str
    caller_instruction: str


class ReviewAnswer(Struct, frozen=True, kw_only=True, tag_field="type", tag="review_prompt"):
    """A prompt for a session that examines a project."""

    prompt: str
    fw_lv: int
    project: str
    caller_instruction: str


class TriageAnswer(Struct, frozen=True, kw_only=True, tag_field="type", tag="triage_prompt"):
    """A prompt for a session that sorts the open issues of a project."""

    prompt: str
    issues: tuple[str, ...]
    fw_lv: int
    project: str
    caller_instruction: str


# --- verbs and orders --------------------------------------------------------------------------------
class VerbContext(Struct, frozen=True, kw_only=True):
    """The keys of every verb's answer beside its result."""

    project: str
    called: str | None
    """Its name in commands."""
    waits_for: str | None
    """Why nothing of it runs, in words."""
    sandbox: str | UnsetType = UNSET
    """At the first start in a project: what holds its agents, in words."""


class HandedOut(Struct, frozen=True, kw_only=True):
    """The prompt of the dispatched step, and the level of adoption; neither if nothing was dispatched."""

    prompt: str | UnsetType = UNSET
    fw_lv: int | UnsetType = UNSET


class Lifted(Struct, frozen=True, kw_only=True, tag_field="type", tag="lifted"):
    """The outcome of lifting a limit."""

    account: str
    projects: tuple[str, ...]
    problems: tuple[str, ...]


class NotAdded(Struct, frozen=True, kw_only=True):
    """A project that is not supervised, and why."""

    project: str
    code: str
    message: str
    hint: str | None


class AddedMany(Struct, frozen=True, kw_only=True, tag_field="type", tag="added_many"):
    """The roots that were added, and the refused ones."""

    added: list[str]
    refused: list[NotAdded]


class Stopping(Struct, frozen=True, kw_only=True, tag_field="type", tag="stopping"):
    """The daemon is about to end."""

    executors: bool


class CleanedAnswer(Cleaned, frozen=True, kw_only=True, tag_field="type", tag="cleaned"):
    """What was removed, or in a dry run would be; the sizes before; the number of kept runs by reason."""

    freed_bytes: int


class TriedTests(Struct, frozen=True, kw_only=True, tag_field="type", tag="tried"):
    """The outcome of one run of a project's tests.

    `passed` is null if they did not run to their end, and `fault` says why they could not run.
    """

    project: str
    called: str | None
    command: tuple[str, ...] | None = None
    held: bool = False
    """Whether an edit of the command waits for a person's trust."""
    path: str
    passed: bool | None = None
    verified: bool = False
    timed_out: bool = False
    fault: str | None = None
    tests: TestCounts | None = None
    failing: tuple[str, ...] = ()
    line: str | None = None
    tail: str = ""
    seconds: float = 0.0


class TriedWorkspace(Struct, frozen=True, kw_only=True, tag_field="type", tag="tried_workspace"):
    """Where a project's next stories work, and what a trial of clones found; `checking`: ask `again`."""

    project: str
    called: str | None
    kind: WorkspaceKind
    fits: bool
    link: tuple[str, ...]
    why: str | None
    remedy: str | None
    command: str | None
    tests: TriedTests | None
    """The tests in a clone; null: they were not run."""
    checking: bool
    doing: str | None


class OtherTests(Struct, frozen=True, kw_only=True):
    """Tests that were found and that the project does not run: their folder and command."""

    folder: str
    command: tuple[str, ...]


class AppliedAnswer(Struct, frozen=True, kw_only=True):
    """The outcome of a hand-off (level 1): the STATE that it led to, and what to do next."""

    type: AppliedKind
    message: str
    state: dict[str, Any]
    checking: bool
    """Whether its claims are still being checked: ask again."""
    caller_instruction: str
    project: str
    called: str | None
    next_command: str | None
    code: str | UnsetType | None = UNSET
    """Only of an error, as `recoverable` is."""
    recoverable: bool | UnsetType = UNSET


class CheckedAnswer(Struct, frozen=True, kw_only=True, tag_field="type", tag="checked"):
    """The outcome of a post_check; `passed` is null if the step has none."""

    project: str
    passed: bool | None
    command: str | dict[str, str] | None
    """Of several checks, each one's by its name."""
    tail: str
    """The end of what it printed; of several, of what the failed ones did."""
    checks: tuple[PostCheck, ...]
    """How it ended, or each of several."""
    message: str
    caller_instruction: str


class LandedAnswer(Struct, frozen=True, kw_only=True, tag_field="type", tag="landed"):
    """The outcome of a landing."""

    project: str
    called: str | None
    story: str
    onto: str | None
    """The branch that has the story now; null while it is `checking`, merged and tested: ask again."""
    commit: str | None
    files: int
    tests: TestCounts | None
    """Of the project's tests on the merged files; null: none were run."""
    already: bool
    """Whether the branch had all of it before."""
    to: str | None
    """The step up to which the story was landed; null: all of it."""
    how: LandedBy
    """`command`: a command of the project has taken the story, whose own branch ends at `commit`."""
    told: str | None
    """The last line that the command has printed."""
    checking: bool
    message: str
    caller_instruction: str
    next_command: str | None


class DiscardedAnswer(Struct, frozen=True, kw_only=True, tag_field="type", tag="discarded"):
    """A story whose clone and branch were removed. `kept` is the ref that has what it did."""

    project: str
    called: str | None
    story: str
    kept: str
    message: str
    caller_instruction: str


class Initialised(Struct, frozen=True, kw_only=True, tag_field="type", tag="initialised"):
    """A project was prepared. `gates` were written into its settings just now, if a person chose some."""

    project: str
    name: str
    called: str | None
    level: int
    created: tuple[str, ...]
    gates: Gates | None
    missing: tuple[str, ...]
    new: bool
    """Whether handoffd has it for the first time: it had neither settings nor a STATE.json."""
    test_command: tuple[str, ...] | None
    other_tests: list[OtherTests]
    warnings: tuple[str, ...]
    next_command: str


class Added(ProjectView, frozen=True, kw_only=True, tag_field="type", tag="added"):
    """A project was added."""


class Removed(Struct, frozen=True, kw_only=True, tag_field="type", tag="removed"):
    """A project was removed from supervision."""

    project: str
    name: str


class Trusted(Struct, frozen=True, kw_only=True, tag_field="type", tag="trusted"):
    """The accepted keys of settings and rules."""

    project: str
    trusted: tuple[str, ...]


class MessageAnswer(Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """The meaning of a message, its outcome, and a report for the sender."""

    project: str | None
    intent: dict[str, Any]
    action: str
    result: dict[str, Any] | None
    report: str
    language: str
    caller_instruction: str
