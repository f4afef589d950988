"""Any sequence of facts, in any order, stale and doubled ones included: what must hold all the way.

The machine plays the world around the engine. It carries out orders late, twice or never, as crashes
make it happen, and people interfere at will; after every decision the promises are checked: no illegal
state, no limit exceeded, no dispatch spawned twice, no result applied twice, nothing mutated.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.playbook import (
    T0,
    Playbook,
    found,
    green,
    handoff,
    mark,
    red,
    shipped_rules,
    state_at,
    track_at,
    with_rule,
)

from handoffd.engine.decide import TRANSITIONS, decide
from handoffd.engine.decision import Decision, MeasureBaseline, Notify, Refusal, RunChecks, Spawn, still_waits
from handoffd.engine.events import (
    Aborted,
    Advanced,
    Approved,
    AutoContinueChosen,
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
    LimitLifted,
    Noted,
    Paused,
    Rejected,
    Reopened,
    Resumed,
    Retried,
    RolledBack,
    Skipped,
    SpawnRefused,
    Started,
    StateEdited,
    TestEvidence,
)
from handoffd.engine.routing import circle
from handoffd.engine.run import (
    FREE_REPEATS,
    POLICIES,
    SCOPES,
    SHARED,
    UNITS,
    End,
    Exit,
    Finding,
    PostCheck,
    Silence,
    Then,
)
from handoffd.engine.track import Phase, Standby, Track
from handoffd.notify.notifier import WAITING
from handoffd.protocol.handoff import Absent, Handoff, Reading, Stale
from handoffd.protocol.rules import DONE, RuleBook
from handoffd.protocol.state import Reason, Status

STEPS = tuple(shipped_rules().steps)
STORIES = st.sampled_from(["US-1", "US-2", "C-1"])
QUEUED = st.sampled_from(["US-2", "US-3", "US-4"])
REASONS = st.none() | st.sampled_from(list(Reason))
NOTES = st.none() | st.sampled_from(["Mind the cents.", "Use euros."])


@lru_cache(maxsize=1)
def rules() -> RuleBook:
    """Return the shipped table, with a post_check and timeouts that are answered by themselves."""
    book = with_rule("impl", post_check="make lint", retry_on_timeout=2)
    return with_rule("bdd", book, retry_on_timeout=1)


# --- what may happen ------------------------------------------------------------------------------
HANDOFFS = st.builds(
    handoff,
    st.sampled_from([Status.PASS, Status.PASS, Status.FAILING, Status.NEEDS_HUMAN, None]),
    reason=REASONS,
    failing_tests=st.sampled_from([(), ("t::a",)]),
)
READINGS: st.SearchStrategy[Reading] = st.one_of(
    st.just(Absent()), st.just(Stale(why="it names attempt 9")), HANDOFFS.map(found), HANDOFFS.map(found)
)
EXITS = st.sampled_from(
    [
        *(Exit(code=0), Exit(code=1), Exit(signal=15, by="stop"), Exit(signal=15, by="deadline")),
        *(
            Exit(by="lost"),
            Exit(signal=15, by="outside"),
            *(Exit(code=1, end=end, session="s1") for end in End),
        ),
        Exit(code=0, end=End.OVERLOAD, retry_at=T0),
    ]
)
EVIDENCE = st.sampled_from(
    [None, green(3), green(0), red("t::a"), red("t::a", regressed=("t::old",)), TestEvidence(timed_out=True),
     TestEvidence(fault="no runner")]
)  # fmt: skip
POST_CHECKS = st.sampled_from([None, PostCheck(passed=True), PostCheck(passed=False, tail="E501")])
STANDBYS = st.sampled_from(
    [None, Standby(tries_again=True), Standby(tries_again=True), Standby(instead="codex", tries_again=True)]
)
FINDINGS = st.builds(
    Finding, scope=st.sampled_from(SCOPES), unit=st.sampled_from(UNITS), spent=st.just(9.0), cap=st.just(8.0)
)
VERBS: st.SearchStrategy[Event] = st.one_of(
    st.builds(BudgetRaised, scope=st.sampled_from(["attempt", "story", "project"]), usd=st.just(16.0)),
    st.builds(Approved, note=NOTES),
    st.builds(Rejected, reason=REASONS, note=NOTES),
    st.sampled_from([Retried(), Skipped(), Aborted(), Paused(), Resumed(), EditConfirmed(), Noted(text="?")]),
    st.sampled_from([ExecutorChosen(executor=("codex",)), LimitLifted(account="rehearsal")]),
    st.builds(RolledBack, step=st.sampled_from([*STEPS, DONE]), force=st.booleans()),
    st.builds(Reopened, step=st.sampled_from(STEPS), note=NOTES),
    st.builds(
        Started, story=STORIES, task_type=st.sampled_from(["story", "story", "custom"]), queue=st.booleans(),
        force=st.booleans(), bootstrapped=st.booleans(), blocked_by=st.sampled_from([(), (), ("US-1",)]),
        then=st.sampled_from([(), ("US-3", "US-4")]), priority=st.integers(-1, 1),
        schedule=st.sampled_from([None, None, "nightly"]),
    ),
    st.sampled_from([Continued(), AutoContinueChosen(on=True), BacklogRemoved(stories=("US-3",))]),
    st.builds(BacklogMoved, story=QUEUED, before=st.none() | QUEUED, last=st.booleans()),
    st.builds(
        BacklogEdited, story=QUEUED, priority=st.none() | st.integers(-1, 1),
        blocked_by=st.none() | st.lists(QUEUED, max_size=2).map(tuple),
    ),
)  # fmt: skip
EDITS = st.builds(
    lambda step, status, story, policy: StateEdited(
        state=state_at(step, status, story=story), policy=policy, tells=True
    ),
    st.sampled_from([*STEPS, DONE]), st.sampled_from(list(Status)), STORIES,
    st.sampled_from(["hold_gates", "hold_gates", "adopt", "refuse"]),
)  # fmt: skip


def waits_for_a_person(track: Track) -> bool:
    """Return whether nothing goes on before a person does something they have not been asked for otherwise.

    What they have ended or paused themselves does not count; a shared budget has a notice of the daemon's.
    A pause of an earlier release, which nothing but `resume` ends, may have moved on without a word.
    """
    state, ledger = track.state, track.ledger
    if state is None or state.story is None or state.step == DONE or ledger.closed:
        return False
    capped = ledger.capped is not None and ledger.capped.scope not in SHARED
    asked = state.status in {Status.NEEDS_HUMAN, Status.TIMEOUT} or ledger.held_edit is not None
    return asked or (state.status is Status.PENDING and (ledger.self_paused or capped))


class EngineMachine(RuleBasedStateMachine):
    """One track in a world that may do anything."""

    def __init__(self) -> None:
        super().__init__()
        self.track = Track()
        self.ids: list[str] = []
        """Every dispatch id there ever was."""
        self.spawned: Counter[str] = Counter()
        self.judged: Counter[str] = Counter()
        """How often a dispatch came to its end with a result."""
        self.external = False
        self.told: tuple[str | None, str] | None = None
        """The story and step of the notice about a wait for a person, as the journal keeps it."""

    @initialize()
    def begin(self) -> None:
        """A project with its first story."""
        self.tell(Initialised(project="shop"))
        self.tell(Started(story="US-1"))

    def tell(self, event: Event) -> Decision:
        """Decide on a fact, check the decision, and keep its track."""
        before, text = self.track, repr(self.track)
        decision = decide(before, event, rules(), T0)
        assert text == repr(before), "decide changed its input"
        self._check(before, event, decision)
        self.track = decision.track
        return decision

    def _check(self, before: Track, event: Event, decision: Decision) -> None:
        if isinstance(decision.result, Refusal):
            assert decision.track is before
            assert {order.kind for order in decision.effects} <= {"notify"}
            return
        for order in decision.effects:
            if isinstance(order, Spawn):
                self.spawned[order.dispatch] += 1
            if isinstance(order, Notify) and order.notice in WAITING:
                self.told = (order.story, order.step)
            if isinstance(order, Spawn | MeasureBaseline | RunChecks):
                assert decision.track.ledger.dispatch is not None
                assert order.dispatch == decision.track.ledger.dispatch.id
        ended, now = before.ledger.dispatch, decision.track.ledger.dispatch
        if ended is not None and now is None:
            self.judged[ended.id] += 1
        assert ended is None or now is None or ended.id == now.id, "one dispatch took another's place"
        if isinstance(event, StateEdited | EditConfirmed):
            state = decision.track.state
            self.external = state is not None and state.status is Status.RUNNING and now is None

    def an_id(self, data: st.DataObject) -> str:
        """Return the id of the dispatch in flight, mostly; else one that is over or never was."""
        current = self.track.ledger.dispatch
        known = [current.id] * 4 if current is not None else []
        return data.draw(st.sampled_from([*known, *self.ids[-3:], "never"]))

    # --- the daemon ----------------------------------------------------------------------------------
    @rule(
        unmet=st.sampled_from([(), (), ("US-0",)]), baseline=st.booleans(), resume=st.booleans(),
        over=st.none() | FINDINGS, auto=st.booleans(),
    )  # fmt: skip
    def turn(
        self, unmet: tuple[str, ...], baseline: bool, resume: bool, over: Finding | None, auto: bool
    ) -> None:
        """The track takes its turn, under a new id."""
        self.ids.append(f"d{len(self.ids)}")
        self.tell(
            Advanced(
                dispatch=self.ids[-1], executor="rehearsal", unmet=unmet, baseline=baseline, over=over,
                resume=resume, auto_continue=auto, keeps_gate=True, mark=mark(len(self.ids)),
            )
        )  # fmt: skip

    @rule(data=st.data(), fault=st.none() | st.just("no runner"))
    def baseline_measured(self, data: st.DataObject, fault: str | None) -> None:
        """The tests ran before the first red step, perhaps twice after a crash."""
        self.tell(BaselineMeasured(dispatch=self.an_id(data), fault=fault))

    @rule(data=st.data())
    def executor_started(self, data: st.DataObject) -> None:
        """A process runs."""
        self.tell(ExecutorStarted(dispatch=self.an_id(data), pid=1))

    @rule(data=st.data(), end=st.sampled_from([None, End.MISSING_BINARY]))
    def spawn_refused(self, data: st.DataObject, end: End | None) -> None:
        """A process could not be started."""
        self.tell(SpawnRefused(dispatch=self.an_id(data), error="no such file", end=end))

    @rule(data=st.data(), reading=READINGS, exit_=EXITS, standby=STANDBYS)
    def executor_exited(
        self, data: st.DataObject, reading: Reading, exit_: Exit, standby: Standby | None
    ) -> None:
        """A process tree is gone."""
        dispatch = self.an_id(data)
        self.tell(ExecutorExited(dispatch=dispatch, exit=exit_, reading=reading, standby=standby))

    @rule(trial=st.booleans())
    def cause_ended(self, trial: bool) -> None:
        """What kept the executor from working is over, or may be."""
        self.tell(CauseEnded(executors=("rehearsal",), trial=trial))

    @rule(data=st.data(), tests=EVIDENCE, post_check=POST_CHECKS)
    def checks_finished(
        self, data: st.DataObject, tests: TestEvidence | None, post_check: PostCheck | None
    ) -> None:
        """Something was measured."""
        self.tell(ChecksFinished(dispatch=self.an_id(data), tests=tests, post_check=post_check))

    @rule(data=st.data(), ours=st.booleans())
    def deadline_passed(self, data: st.DataObject, ours: bool) -> None:
        """A deadline is reached."""
        self.tell(DeadlinePassed(dispatch=self.an_id(data) if ours else None, elapsed_min=11))

    @rule(data=st.data(), finding=FINDINGS)
    def cap_reached(self, data: st.DataObject, finding: Finding) -> None:
        """A budget is used up."""
        self.tell(CapReached(dispatch=self.an_id(data), finding=finding))

    @rule(data=st.data())
    def handoff_settled(self, data: st.DataObject) -> None:
        """An executor has handed over and rests."""
        self.tell(HandoffSettled(dispatch=self.an_id(data), quiet_s=20))

    @rule(data=st.data())
    def executor_stalled(self, data: st.DataObject) -> None:
        """An executor shows no activity, after a warning."""
        silence = Silence(quiet_min=10.0, limit_min=10, output_bytes=0, cpu_s=0.0, written_bytes=0)
        self.tell(ExecutorQuiet(dispatch=self.an_id(data), silence=silence))
        self.tell(ExecutorStalled(dispatch=self.an_id(data), silence=silence))

    @rule(reading=READINGS)
    def handoff_arrived(self, reading: Reading) -> None:
        """A hand-off is there that no executor of ours wrote."""
        self.ids.append(f"e{len(self.ids)}")
        self.tell(HandoffArrived(dispatch=self.ids[-1], reading=reading, mark=mark(len(self.ids))))

    @rule()
    def interrupted(self) -> None:
        """The daemon stops its executors."""
        self.tell(Interrupted())

    @precondition(lambda self: self.track.ledger.dispatch is None)
    @rule(end=st.sampled_from([None, End.MISSING_BINARY]))
    def dispatch_failed(self, end: End | None) -> None:
        """A prompt could not be made, or the executor is unknown."""
        self.tell(DispatchFailed(code="?", message="line 3", end=end, executor="codex"))

    # --- people ----------------------------------------------------------------------------------------
    @rule(verb=VERBS)
    def verb(self, verb: Event) -> None:
        """A person interferes."""
        self.tell(verb)

    @rule(edit=EDITS)
    def edited(self, edit: StateEdited) -> None:
        """A person or a tool writes STATE.json."""
        self.tell(edit)

    # --- what always holds -----------------------------------------------------------------------------
    @invariant()
    def the_state_is_legal(self) -> None:
        """A known step, a status of the table, an end that has passed."""
        state = self.track.state
        if state is None:
            return
        assert state.step in STEPS or state.step == DONE
        assert state.status in TRANSITIONS
        assert state.step != DONE or state.status is Status.PASS

    @invariant()
    def what_runs_is_one_dispatch(self) -> None:
        """Running means: a dispatch of ours, or an external attempt that an edit reported."""
        state, dispatch = self.track.state, self.track.ledger.dispatch
        if state is None:
            return
        if dispatch is not None:
            assert state.status is Status.RUNNING
            assert (state.story, state.step) == (dispatch.story, dispatch.step)
            assert state.attempt == dispatch.attempt
            assert (dispatch.claim is not None) == (dispatch.phase is Phase.CHECKING)
        elif state.status is Status.RUNNING:
            assert self.external

    @invariant()
    def limits_hold(self) -> None:
        """Attempts, visits, free repetitions and answered timeouts stay within the rules."""
        state, ledger = self.track.state, self.track.ledger
        if state is None or state.step == DONE:
            return
        assert state.attempt <= state.max_attempts
        assert all(count <= rules().steps[step].max_visits for step, count in ledger.visits.items())
        assert ledger.free_repeats <= FREE_REPEATS
        assert ledger.session is None or ledger.session.step == state.step
        assert ledger.timeouts <= rules().steps[state.step].retry_on_timeout

    @invariant()
    def nothing_happens_twice(self) -> None:
        """A dispatch is spawned at most once, and comes to its end at most once."""
        assert all(times == 1 for times in self.spawned.values())
        assert all(times == 1 for times in self.judged.values())

    @invariant()
    def what_waits_for_a_person_is_in_the_notices(self) -> None:
        """Whatever led there: a notice that is still open names the story and the step."""
        if waits_for_a_person(self.track):
            assert self.told is not None
            assert still_waits(self.track, *self.told), f"the latest notice: {self.told}"

    @invariant()
    def no_story_is_in_two_places(self) -> None:
        """What is being worked on does not wait as well, and nothing is parked twice."""
        state, ledger = self.track.state, self.track.ledger
        parked = [entry.state.story for entry in ledger.parked]
        assert len(parked) == len(set(parked))
        assert len({queued.story for queued in ledger.backlog}) == len(ledger.backlog)
        urgent = [-queued.priority for queued in ledger.backlog]
        assert sorted(urgent) == urgent
        assert circle(self.track, ledger.backlog) is None or self.external
        if state is not None and not self.external:
            assert all(entry.ledger.dispatch is None for entry in ledger.parked)


TestEngineMachine = pytest.mark.timeout(900)(
    EngineMachine.TestCase
)  # making small what it finds takes minutes
TestEngineMachine.settings = settings(
    max_examples=100, stateful_step_count=50, suppress_health_check=[HealthCheck.too_slow]
)


# --- every endless run of failures ends with a person ------------------------------------------------
def bound() -> int:
    """Return how many attempts a story can take before a person is asked: visits times attempts."""
    return sum((rule.max_visits + 1) * rule.max_attempts for rule in shipped_rules().steps.values())


FAILURES = st.fixed_dictionaries(
    {
        "reason": REASONS,
        "how": st.sampled_from(
            [
                *("handed over", "claimed a pass", "left nothing", "out of time", "vanished", "refused"),
                *(end for end in End if POLICIES[end].then not in {Then.PARK, Then.PAUSE}),
                End.OUT_OF_MEMORY,
            ]
        ),
    }
)


def let_fail(play: Playbook, failure: dict[str, Any]) -> None:
    """Bring the dispatch in flight to a bad end."""
    play.runs()
    match failure["how"]:
        case End() as end:
            play.exits(code=1, end=end, session="s1")
        case "left nothing":
            play.exits(code=1)
        case "out of time":
            play.exits(code=None, signal=15, by="deadline")
        case "vanished":
            play.exits(code=None, by="lost")
        case "refused":
            play.given(SpawnRefused(dispatch=play.dispatch.id, error="no such file"))
        case "claimed a pass" if play.rules.steps[play.state.step].tests is not None:
            play.hands_over().checked(tests=red("t::old", new_failing=0))
        case _:
            play.fails(failure["reason"])


@settings(max_examples=150)
@given(
    start=st.sampled_from([step for step, rule in shipped_rules().steps.items() if not rule.requires_human]),
    failures=st.lists(FAILURES, min_size=1, max_size=12),
    passes=st.sets(st.sampled_from(STEPS)),
)
def test_every_endless_run_of_failures_ends_with_a_person(
    start: str, failures: list[dict[str, Any]], passes: set[str]
) -> None:
    """Whatever fails for whatever reason, and whichever steps pass in between: a person is asked."""
    play = Playbook(track_at(start), with_rule("bdd", retry_on_timeout=2))
    failing = start
    for number in range(bound() * (FREE_REPEATS + 2)):
        play.turn(resume=True)
        if play.state.status is not Status.RUNNING:
            break
        if play.state.step in passes and play.state.step != failing:
            play.hands_over()
            if play.ledger.dispatch is not None:
                play.checked(red("t::new") if play.rules.steps[play.state.step].tests == "red" else green())
        else:
            let_fail(play, failures[number % len(failures)])
    waits = play.state.status in {Status.NEEDS_HUMAN, Status.TIMEOUT} or play.ledger.paused_by is not None
    assert waits, play.decision.why
    assert any(
        isinstance(order, Notify) and order.notice in {"needs_human", "timeout", "blocked"}
        for order in play.orders
    )


@settings(max_examples=60)
@given(
    passing=st.lists(st.booleans(), min_size=1, max_size=6), claims=st.lists(HANDOFFS, min_size=1, max_size=6)
)
def test_no_executor_reaches_the_end_without_the_review(passing: list[bool], claims: list[Handoff]) -> None:
    """Whatever agents claim, a story is not done before a person has approved."""
    play = Playbook(track_at("bdd"))
    for number in range(80):
        play.turn()
        if play.state.status is not Status.RUNNING:
            break
        play.runs().exits(found(claims[number % len(claims)]))
        if play.ledger.dispatch is not None:
            play.checked(green() if passing[number % len(passing)] else red("t::a"))
    assert play.state.step in {"bdd", "sdd-delta", "contract", "review"}
