"""Facts, in the past tense: what happened to a track. Their counterpart are the effects of `decision`.

Every fact carries all that `decide` needs to judge it; the journal stores it as it is. What people ask
for is an event, too: see `requests`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from handoffd.engine.ends import End, Standby
from handoffd.engine.requests import (
    Verb,
)
from handoffd.engine.usage import Finding, Footprint, Usage
from handoffd.protocol.handoff import HandoffMark, Reading
from handoffd.protocol.state import State, TestCounts


# --- a track's turn, and what comes of a dispatch -----------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Advanced:
    """It is this track's turn: a slot is free and nobody said stop.

    `dispatch` is the id a dispatch would get; `unmet` names the stories of blocked_by that are not
    done; `mark` is the hand-off as it lies there now; `baseline` is True when the project's tests
    can be run and were not yet run for this story; `passed_over` says, for each executor that would have
    been preferred, why it does not get the dispatch; `resume` is True when the executor can and shall
    continue the session it had: as the rule or its definition says, also when its last run was cut short
    by a cap, a limit or a stall, and always when it is asked for just the hand-off;
    `over` is the cap that lets nothing more be spent, also the one of each attempt at which its last run
    was ended, as long as that is in force; `auto_continue` is True when the next story of the backlog shall
    start without anybody asking for it; `keeps_gate` is False in events of releases in which
    the step table alone said what a gate is; `reopenings` is how many the history tells of, where the turn
    may end the story, and None in events of releases that suggested no review.
    """

    dispatch: str
    executor: str
    account: str | None = None
    passed_over: tuple[str, ...] = ()
    mark: HandoffMark = HandoffMark()
    unmet: tuple[str, ...] = ()
    baseline: bool = False
    over: Finding | None = None
    resume: bool = False
    auto_continue: bool = False
    keeps_gate: bool = False
    reopenings: int | None = None
    kind: Literal["advanced"] = "advanced"


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchFailed:
    """A dispatch could not even be prepared: prompt template, settings, or (`end`) no such `executor`."""

    code: str
    message: str
    end: End | None = None
    executor: str | None = None
    standby: Standby | None = None
    """Who else could have the attempt; None: of a release that did not look after the executor's fault."""
    kind: Literal["dispatch_failed"] = "dispatch_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineMeasured:
    """The tests ran before the story's first red step; `fault` says why they could not."""

    dispatch: str
    mark: HandoffMark = HandoffMark()
    fault: str | None = None
    kind: Literal["baseline_measured"] = "baseline_measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorStarted:
    """The executor's process runs; `pid` is its own, not that of what looks after it.

    `at` is when it began, which may be long before; None where that is not known.
    """

    dispatch: str
    pid: int
    at: datetime | None = None
    kind: Literal["executor_started"] = "executor_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnRefused:
    """The executor could not be started: a fault of the environment, not of the agent."""

    dispatch: str
    error: str
    end: End | None = None
    standby: Standby | None = None
    """Who else could have the attempt; None: of a release that did not look after the executor's fault."""
    kind: Literal["spawn_refused"] = "spawn_refused"


# --- an executor that runs ----------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffSettled:
    """A valid hand-off lies there and the process tree has been still for `quiet_s`."""

    dispatch: str
    quiet_s: float
    kind: Literal["handoff_settled"] = "handoff_settled"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlinePassed:
    """An attempt has had its time. `dispatch` is None for a dispatch that was not ours.

    `limit_min` is how much that was; None: of a release that told all times in whole minutes.
    """

    dispatch: str | None
    elapsed_min: float
    limit_min: float | None = None
    kind: Literal["deadline_passed"] = "deadline_passed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapReached:
    """A running attempt, or what it is a part of, has spent all it may, and is to be ended for that."""

    dispatch: str
    finding: Finding
    kind: Literal["cap_reached"] = "cap_reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """For how long a process tree has shown no sign of life, and the signs that were looked at.

    `output_bytes` is all it has printed so far; `cpu_s`, `written_bytes` and `received_bytes` (without pings)
    what it used, wrote and was sent during the silence, no more than an idle program.
    """

    quiet_min: float
    limit_min: float
    output_bytes: int
    cpu_s: float
    written_bytes: int
    received_bytes: int | None = None
    """None: an older release did not look."""

    @property
    def signs(self) -> str:
        """The signs of life that were looked for, with what was there of each."""
        received = (
            "" if self.received_bytes is None else f", {self.received_bytes:,} bytes of content received"
        )
        return (
            f"no output (after {self.output_bytes:,} bytes), {self.cpu_s:.1f} s of processor time,"
            f" {self.written_bytes:,} bytes written{received}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorQuiet:
    """An executor has shown no sign of life for half of the time that is allowed."""

    dispatch: str
    silence: Silence
    kind: Literal["executor_quiet"] = "executor_quiet"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorStalled:
    """An executor has shown no sign of life for longer than is allowed."""

    dispatch: str
    silence: Silence
    kind: Literal["executor_stalled"] = "executor_stalled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """The executor is to be ended for our own reasons (`handoffd stop --executors`)."""

    by: str = "cli"
    kind: Literal["interrupted"] = "interrupted"


# --- its end, and what was measured of its work -------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a process ended.

    Exactly one of `code` and `signal` is set, but for a process whose end nobody saw (`lost`).
    `by` tells who ended it: `stop` is our own order, `outside` is not, as at a shutdown of the machine.
    `tail` holds the last lines of its output.
    """

    code: int | None = None
    signal: int | None = None
    by: Literal["itself", "deadline", "stop", "lost", "outside"] = "itself"
    tail: str = ""
    seconds: float = 0.0
    stream_error: bool = False
    """The agent's own stream says that it failed, whatever the exit code says."""
    end: End | None = None
    """None: not told apart, because it did not end by itself, or by a release that could not."""
    session: str | None = None
    """The agent's own session, which a later attempt may continue."""
    usage: Usage | None = None
    model: str | None = None
    """The model that it used, by the name that its provider gives it."""
    retry_at: datetime | None = None
    """When a limit is over, if the agent said so."""
    line: str | None = None
    """What the output says last, for lists; None: of a release that had the whole `tail` quoted there."""
    at: datetime | None = None
    """When it ended, which may be long before anybody learns of it; None where that is not known."""
    footprint: Footprint | None = None
    """None: nothing counts what a run takes here, or it is of a release that did not ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorExited:
    """The executor's whole process tree is gone; `reading` is what it left."""

    dispatch: str
    exit: Exit
    reading: Reading
    mark: HandoffMark = HandoffMark()
    standby: Standby | None = None
    """Who else could have the attempt; None: of a release that did not look after the executor's fault."""
    kind: Literal["executor_exited"] = "executor_exited"


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseEnded:
    """What kept these executors from working is over, or may be: they can be tried again.

    `trial`: nothing has changed that could be seen here, so the fault is remembered until one has worked.
    """

    executors: tuple[str, ...]
    trial: bool = False
    kind: Literal["cause_ended"] = "cause_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestEvidence:
    """What a test run proved, already compared with the baseline.

    `fault` is set when the runner itself was unusable: then nothing was proved. `new_failing`
    counts ids outside the baseline that fail or error; `regressed` are those that passed in the
    baseline and fail now; `failing` leaves baseline failures out.
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
    """False when only the exit code was to be had."""
    timed_out: bool = False
    fault: str | None = None
    tail: str = ""
    seconds: float = 0.0
    line: str | None = None
    """What was printed last, for lists; None: of a release that had the whole `tail` quoted there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostCheck:
    """How the rule's post_check ended; with a `fault` it could not be run and proved nothing."""

    passed: bool
    tail: str = ""
    timed_out: bool = False
    fault: str | None = None
    line: str | None = None
    """As that of a test run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecksFinished:
    """The daemon has measured what the executor claimed."""

    dispatch: str
    tests: TestEvidence | None = None
    post_check: PostCheck | None = None
    kind: Literal["checks_finished"] = "checks_finished"


# --- from outside -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffArrived:
    """A settled hand-off lies there for a dispatch that was not ours (Level 1).

    `dispatch` is the id under which it is judged; `step` and `attempt` are those it was read for, which
    may be over by the time it is decided on. `keeps_gate` as in `Advanced`.
    """

    dispatch: str
    reading: Reading
    mark: HandoffMark
    step: str | None = None
    attempt: int | None = None
    keeps_gate: bool = False
    kind: Literal["handoff_arrived"] = "handoff_arrived"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEdited:
    """STATE.json was changed from outside, validly. `policy` is the project's external_edits.

    `dispatch` was in flight when the file was read. It may be over by the time this is decided on.
    `overtaken`: the file was written before the latest decision, and a crash kept that from being shown.
    `done` names the stories that were brought to their end elsewhere, as far as that is known.
    `tells`: a person gets a notice of what waits for them then; False: of a release without that.
    """

    state: State
    policy: Literal["hold_gates", "adopt", "refuse"] = "hold_gates"
    dispatch: str | None = None
    overtaken: bool = False
    done: tuple[str, ...] = ()
    tells: bool = False
    kind: Literal["state_edited"] = "state_edited"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeGivenUp:
    """Nobody could be told, for as long as the settings allow: a sink did not take notices of this track.

    `first` is the id of the first of `count` notices; `why` is the sink's last failure.
    """

    sink: str
    count: int
    first: str
    why: str
    kind: Literal["notice_given_up"] = "notice_given_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The journal was replaced by a backup: whatever has happened since, the track does not know.

    `overtaken` tells that the attempt in flight then is not the project's latest, or that nothing is
    left of it. With `owner`, no backup: the daemon of that state directory has had the project meanwhile.
    """

    overtaken: bool
    by: str = "journal restore"
    owner: str | None = None
    kind: Literal["restored"] = "restored"


# --- all of them --------------------------------------------------------------------------------------
Fact = (
    Advanced
    | DispatchFailed
    | BaselineMeasured
    | ExecutorStarted
    | SpawnRefused
    | HandoffSettled
    | DeadlinePassed
    | CapReached
    | ExecutorQuiet
    | ExecutorStalled
    | Interrupted
    | ExecutorExited
    | ChecksFinished
    | HandoffArrived
    | StateEdited
    | Restored
    | NoticeGivenUp
    | CauseEnded
)

Event = Verb | Fact
