"""Every condition a track can be in, and every fact that can meet it: for tests that go over all of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import lru_cache

from msgspec.structs import replace
from tests.support.playbook import (
    DISPATCH,
    T0,
    dispatched,
    found,
    green,
    handoff,
    mark,
    red,
    state_at,
    track_at,
    with_rule,
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
    TestEvidence,
    TrackClosed,
    TrackOpened,
    Undone,
)
from handoffd.engine.run import FREE_REPEATS, End, Exit, Finding, PostCheck, Silence, Usage
from handoffd.engine.track import (
    Approval,
    Fault,
    HeldEdit,
    Ledger,
    Limit,
    Parked,
    Phase,
    Queued,
    StopReason,
    Track,
)
from handoffd.errors import Problem
from handoffd.protocol.handoff import Absent, Found, Handoff, Malformed, Reading, Stale
from handoffd.protocol.rules import RuleBook
from handoffd.protocol.state import Reason, State, Status
from handoffd.protocol.story_text import NewStory, story_text

AT_REST = [status for status in Status if status is not Status.RUNNING]
EXITS = (Exit(code=0), Exit(code=1, tail="?"), Exit(signal=9, by="deadline"), Exit(by="lost"))
LOST = "deploy"
"""A step that the table does not have."""
FINDING = Finding(scope="attempt", unit="usd", spent=4.1, cap=4)
"""A cap that is reached."""

LIMIT = Limit(account="claude", executor="claude", kind="limit", since=T0, until=T0)


@lru_cache(maxsize=1)
def rules() -> RuleBook:
    """Return the shipped table with a post_check, an answered timeout and a gate that may time out."""
    book = with_rule("impl", post_check="make lint", retry_on_timeout=1)
    return with_rule("review", book, retry_on_timeout=1, max_attempts=2)


# --- tracks ---------------------------------------------------------------------------------------
def tracks() -> Iterator[Track]:
    """Return tracks in every status at every step, and in every condition the ledger can add."""
    yield Track()
    yield track_at("done", Status.PASS)
    for step in [*rules().steps, LOST]:
        for status in Status:
            yield track_at(step, status)
            if status in {Status.FAILING, Status.TIMEOUT}:
                yield track_at(step, status, attempt=2, max_attempts=2, reason=Reason.SCOPE_WARNING)
        for phase in Phase:
            yield running(step, phase)
    yield track_at("review", Status.TIMEOUT, max_attempts=2)
    yield track_at("impl", Status.RUNNING, dispatched_at=T0 - timedelta(hours=1), timeout_min=10)
    for phase in Phase:
        for stop in StopReason:
            yield running("scaffold", phase, stop)
    yield from odd_tracks()


def running(step: str, phase: Phase, stop: StopReason | None = None) -> Track:
    """Return a track whose dispatch is in this phase, possibly with an order to stop."""
    track = dispatched(step, phase)
    assert track.ledger.dispatch is not None
    claim = handoff() if phase is Phase.CHECKING else None
    cap = FINDING if stop is StopReason.CAP else None
    return track.with_ledger(dispatch=replace(track.ledger.dispatch, stop=stop, claim=claim, cap=cap))


def odd_tracks() -> Iterator[Track]:
    """Return tracks whose ledger holds more than a plain one's."""
    for status in Status:
        for ledger in ledgers():
            yield track_at("impl", status, ledger=ledger)
            yield track_at("review", status, ledger=ledger)
        yield track_at("bootstrap", status, story=None)
        yield track_at(
            "bootstrap", status, story=None, ledger=Ledger(automatic=True, backlog=(Queued(story="US-2"),))
        )
        for ledger in of_stories_set_aside():
            yield track_at("bootstrap", status, story=None, ledger=ledger)
        yield track_at("impl", status, task_type="hotfix", reopened_from="bdd")
    for ledger in ledgers():
        yield track_at("done", Status.PASS, ledger=ledger, story="C-1")


def ledgers() -> Iterator[Ledger]:
    """Return what the journal may remember beside a STATE."""
    gone = Fault(executor="codex", end=End.MISSING_BINARY, since=T0)
    yield Ledger(automatic=True, faults=(gone,))
    yield Ledger(
        automatic=True,
        paused_by="handoffd: gone",
        remedy="handoffd executors check codex",
        self_paused=True,
        faults=(gone,),
    )
    yield Ledger(automatic=True, paused_by="mei")
    yield Ledger(automatic=True, backlog=(Queued(story="US-2"),), beside=(Queued(story="US-3"),))
    yield Ledger(automatic=True, closed=True)
    yield Ledger(automatic=True, to_land=("US-0",))
    yield Ledger(handed_out="d7")
    for step in ("review", LOST):
        yield Ledger(automatic=True, approval=Approval(step=step, by="mei", after="Fine."))
    yield Ledger(automatic=True, limited=(LIMIT,), executor=("claude", "codex"))
    yield Ledger(automatic=True, capped=FINDING)
    yield Ledger(automatic=True, capped=replace(FINDING, scope="project"), spent=Usage(input_tokens=7))
    yield Ledger(automatic=True, visits=dict.fromkeys(rules().steps, 6), free_repeats=FREE_REPEATS)
    yield Ledger(automatic=True, backlog=(Queued(story="US-2"),), stories_done=("US-1",))
    yield Ledger(automatic=True, backlog=(Queued(story="US-3", blocked_by=("US-9",)),), schedule="nightly")
    yield Ledger(automatic=True, closed=True, backlog=(Queued(story="US-3", schedule="nightly"),))
    for status in Status:
        yield Ledger(automatic=True, held_edit=HeldEdit(state=state_at("impl", status), why="held"))
    for status in AT_REST:
        parked = Parked(state=state_at("verify", status, story="US-2"), ledger=Ledger(), give_back=True)
        yield Ledger(automatic=True, parked=(parked,))
    yield from of_stories_set_aside(closed=True)


def of_stories_set_aside(*, closed: bool = False) -> Iterator[Ledger]:
    """Return what is remembered where the backlog's next story was set aside."""
    for status in AT_REST:
        parked = Parked(state=state_at("verify", status, story="US-2"), ledger=Ledger(), give_back=False)
        queued = Queued(story="US-2", schedule="nightly")
        yield Ledger(automatic=True, closed=closed, parked=(parked,), backlog=(queued,))


TEXT = story_text("Show prices in cents.")


# --- facts ----------------------------------------------------------------------------------------
def readings() -> Iterator[Reading]:
    """Return what an executor can leave."""
    yield Absent()
    yield Stale(why="it names attempt 3")
    yield Malformed(problem=Problem(file=".ai/HANDOFF.md", line=3, message="never closed"))
    yield Found(handoff=Handoff(status=None), source="old-format")
    yield found(handoff(Status.PASS))
    yield found(handoff(Status.FAILING))
    yield found(handoff(Status.FAILING, reason=Reason.NEEDS_CLARIFICATION))
    yield found(handoff(Status.NEEDS_HUMAN, error="which one?"))


def verbs() -> Iterator[Event]:
    """Return every verb, with the arguments that matter."""
    yield Initialised(project="shop")
    for story in ("US-1", "US-2"):
        yield Started(story=story)
        yield Started(story=story, queue=True)
        yield Started(story=story, force=True, bootstrapped=False)
        yield Started(story=story, task_type="custom", instruction="Fix.")
    yield Started(story="US-1", task_type="unheard-of")
    yield Started(story="US-3", then=("US-1", "US-4"), blocked_by=("US-3",))
    yield Started(story="US-3", then=("US-4",), blocked_by=("US-9",), priority=3, complexity="L", queue=True)
    yield Started(story="US-5", schedule="nightly", due=T0)
    yield Started(story="US-5", schedule="weekly", due=T0, queue=True)
    yield from (Continued(), AutoContinueChosen(on=True), AutoContinueChosen(on=None))
    for queued in ("US-2", "US-3", "US-9"):
        yield BacklogMoved(story=queued)
        yield BacklogMoved(story=queued, before="US-9")
        yield BacklogEdited(story=queued, priority=2, blocked_by=("US-9",))
        yield BacklogEdited(story=queued, blocked_by=(queued,))
        yield BacklogRemoved(stories=(queued,))
        both = NewStory(story=queued, described=TEXT), NewStory(story="US-1", described=TEXT)
        yield BacklogAdded(stories=both)
    yield BacklogAdded(stories=(NewStory(story="US-8", described=TEXT),), dry_run=True)
    yield Started(story="US-7", described=TEXT, names_story=True)
    yield Started(story="US-7", undescribed=("US-7",), heeds_undescribed=True, names_story=True)
    yield Approved(note="Fine.")
    yield from (Approved(undoable=True), Undone(), Undone(story="US-0"))
    for reason in (None, *Reason):
        yield Rejected(reason=reason)
    yield from (Retried(), Skipped(), Aborted(), Paused(), Resumed(), Noted(text="Cents."), EditConfirmed())
    yield from (ExecutorChosen(executor=("claude", "codex")), LimitLifted(account="claude"))
    for step in ("bootstrap", "sdd-delta", "impl", "custom", "done", LOST):
        yield RolledBack(step=step)
        yield RolledBack(step=step, force=True)
        yield Reopened(step=step, note="Cents.")
    yield BudgetRaised(scope="project", usd=8)
    yield BudgetRaised(scope="story", story="US-1", tokens=8000)
    yield BudgetRaised(scope="attempt")
    yield from (PromptTaken(dispatch="d9"), PromptTaken(dispatch="d9", unmet=("US-0",)))
    yield from (
        LevelChosen(level=1),
        LevelChosen(level=2),
        PostChecked(passed=True),
        PostChecked(passed=False),
        Discarded(story="US-1", kept="refs/handoffd/US-1/discarded-1"),
        Landed(story="US-1", onto="main", commit="c0" * 20),
        Landed(story="US-1", onto="main", commit="c0" * 20, up_to="impl"),
        Landed(story="US-1", onto="handoffd/US-1", commit="c0" * 20, how="branch"),
        Landed(story="US-1", onto="main", commit="c0" * 20, how="command", told="pull/12"),
        LandingRefused(story="US-1", why="it conflicts in a.py", note="Merge main."),
        LandingRefused(story="US-1", why="changes are in the way"),
        LandingRefused(story="US-0", why="changes are in the way", stays=True),
        StoryOpened(story="US-2", parallel=2),
        StoryClosed(story="US-3", done=True),
        TrackOpened(project="shop", entry=Queued(story="US-2")),
        TrackClosed(why="its story is landed"),
    )


def exits() -> Iterator[Exit]:
    """Return the ways in which an executor can end."""
    yield from EXITS
    for end in End:
        yield Exit(code=1, end=end, retry_at=T0)


def facts(dispatch: str) -> Iterator[Event]:
    """Return every fact the daemon finds out, about one dispatch."""
    yield Advanced(dispatch="d2", executor="rehearsal")
    yield Advanced(dispatch="d2", executor="codex", account="work", passed_over=("claude is limited",))
    yield Advanced(dispatch="d2", executor="rehearsal", unmet=("US-0",), baseline=True)
    yield Advanced(dispatch="d2", executor="rehearsal", auto_continue=True)
    yield Advanced(dispatch="d2", executor="rehearsal", over=replace(FINDING, scope="story"))
    yield DispatchFailed(code="BAD_TEMPLATE", message="line 3")
    yield DispatchFailed(code="UNKNOWN_EXECUTOR", message="?", end=End.MISSING_BINARY, executor="codex")
    yield BaselineMeasured(dispatch=dispatch)
    yield BaselineMeasured(dispatch=dispatch, fault="pytest: not found")
    yield ExecutorStarted(dispatch=dispatch, pid=4711)
    yield SpawnRefused(dispatch=dispatch, error="no such file")
    yield SpawnRefused(dispatch=dispatch, error="no such file", end=End.MISSING_BINARY)
    yield HandoffSettled(dispatch=dispatch, quiet_s=20)
    yield DeadlinePassed(dispatch=dispatch, elapsed_min=10.2)
    yield DeadlinePassed(dispatch=None, elapsed_min=10.2)
    yield CapReached(dispatch=dispatch, finding=FINDING)
    silence = Silence(quiet_min=5.0, limit_min=10, output_bytes=1024, cpu_s=0.2, written_bytes=8)
    yield ExecutorQuiet(dispatch=dispatch, silence=silence)
    yield ExecutorStalled(dispatch=dispatch, silence=silence)
    yield Interrupted()
    yield Restored(overtaken=False)
    yield Restored(overtaken=True)
    yield Restored(overtaken=True, by="another handoffd", owner="/var/lib/handoffd")
    yield CauseEnded(executors=("codex",))
    yield NoticeGivenUp(sink="webhook", count=2, first="20260131T221509.000000-7", why="no route")
    for reading in readings():
        for exit_ in exits():
            yield ExecutorExited(dispatch=dispatch, exit=exit_, reading=reading, mark=mark(2))
        yield HandoffArrived(dispatch="e1", reading=reading, mark=mark(2))
        yield HandoffArrived(dispatch="e1", reading=reading, mark=mark(2), step="impl", attempt=1)
    for tests in (None, green(), red("t"), TestEvidence(timed_out=True), TestEvidence(fault="no runner")):
        for post_check in (
            None,
            PostCheck(passed=True),
            PostCheck(passed=False),
            PostCheck(passed=False, fault="?"),
        ):
            yield ChecksFinished(dispatch=dispatch, tests=tests, post_check=post_check)
        named = (PostCheck(passed=True, name="lint", code=0), PostCheck(passed=False, name="types", code=1))
        for post_checks in (named, (*named, PostCheck(passed=False, name="docs", fault="?"))):
            yield ChecksFinished(dispatch=dispatch, tests=tests, post_checks=post_checks)


def edits() -> Iterator[Event]:
    """Return STATE.json changed to anything, under every policy."""
    for status in Status:
        for step in ("impl", "review", LOST):
            yield StateEdited(state=state_at(step, status))
        yield StateEdited(state=state_at("bdd", status, story="US-2"), policy="adopt")
    yield StateEdited(state=state_at("done", Status.PENDING), policy="adopt")
    yield StateEdited(state=state_at("impl"), policy="refuse")
    yield StateEdited(state=State(project="shop", task_type="hotfix"))


@lru_cache(maxsize=1)
def events() -> tuple[Event, ...]:
    """Return every fact there is, those about a dispatch also as stale ones."""
    stale = tuple(
        event for event in facts("d0") if event.kind not in {"advanced", "dispatch_failed", "interrupted"}
    )
    return (*verbs(), *facts(DISPATCH), *edits(), *stale[:12])


@lru_cache(maxsize=1)
def _events_without_a_dispatch() -> tuple[Event, ...]:
    """Return every fact, but those about a dispatch whose details decide nothing only once each."""
    seen: set[str] = set()
    kept = []
    for event in events():
        if event.kind in {"executor_exited", "checks_finished"}:
            if event.kind in seen:
                continue
            seen.add(event.kind)
        kept.append(event)
    return tuple(kept)


def events_at(track: Track) -> tuple[Event, ...]:
    """Return the facts that can make a difference to a track.

    Without a dispatch every end and every measurement is refused as stale, whatever it says: one of each
    is enough; all 156 would be half of the work.
    """
    return _events_without_a_dispatch() if track.ledger.dispatch is None else events()
