"""The same story through the track, which executes it, and through the machine of flows: the same steps.

The track decides first. The flow then gets the end of each step, as the track of a task would report it: not
the attempts, only how they ended.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from tests.support.playbook import Playbook, green, red, shipped_rules, with_rule

from handoffd.engine.events import Approved, Initialised, Rejected, Retried
from handoffd.engine.flow.decide import decide_flow
from handoffd.engine.flow.events import Answered, Ask, Execute, FlowEvent, FlowStarted, OpenTask, TaskEnded
from handoffd.engine.flow.flow import Flow
from handoffd.protocol.pipelines.step_table import name_of, plan_of
from handoffd.protocol.rules import DONE, RuleBook
from handoffd.protocol.state import Reason, Status

GATES = ("approve", "approve", "approve", "reject", "needs_clarification", "constitution_violation")
TABLES = ("shipped", "every step may be entered twice", "one attempt each", "without a review")


def table(name: str) -> RuleBook:
    """Return a step table: the shipped one, or one whose limits are met soon."""
    book = shipped_rules()
    for step in book.steps:
        if name == "every step may be entered twice":
            book = with_rule(step, book, max_visits=2)
        elif name == "one attempt each":
            book = with_rule(step, book, max_attempts=1, max_visits=3)
    if name == "without a review":  # ways back add up: no person's decision begins the counting anew
        book = with_rule("contract", book, next_on_pass="scaffold", max_visits=3)
        book = with_rule("impl", book, on_fail={"default": "impl", "constitution_violation": "sdd-delta"})
    return book


class Both:
    """A story in the track, and the same story as a flow."""

    def __init__(self, rules: RuleBook) -> None:
        self.rules = rules
        self.track = Playbook(rules=rules).given(Initialised(project="shop")).started(bootstrapped=True)
        self.plan = plan_of(rules)
        self.flow = Flow(id="story")
        self.entered: list[str] = []
        """The steps of the track."""
        self.opened: list[str] = []
        """The tasks of the flow."""
        self._give(FlowStarted(project={"bootstrapped": True}))

    def _give(self, event: FlowEvent) -> None:
        decision = decide_flow(self.flow, event, self.plan, self.track.now)
        assert decision.refused is None, decision.refused
        self.flow = decision.flow
        for order in decision.orders:
            if isinstance(order, OpenTask | Execute) or (isinstance(order, Ask) and not order.hold):
                self.opened.append(order.node)

    def _ends(self, step: str, status: str, outcome: str | None = None) -> None:
        node = self.flow.nodes[name_of(step)]
        said: FlowEvent = TaskEnded(node=node.id, visit=node.visit, status=status, outcome=outcome)  # type: ignore[arg-type]
        self._give(said)

    def _answers(self, choice: str) -> None:
        (node,) = self.flow.asking
        self._give(Answered(node=node, visit=self.flow.nodes[node].visit, choice=choice))

    @property
    def holds(self) -> bool:
        """Whether the flow asks a person about work that cannot go on."""
        questions = [self.flow.nodes[node].question for node in self.flow.asking]
        return any(question is not None and question.hold for question in questions)

    @property
    def asks(self) -> bool:
        """Whether the track waits for a person, and not at a gate."""
        state = self.track.state
        return state.status is Status.NEEDS_HUMAN and not self.rules.steps[state.step].requires_human

    def decide(self, choice: str) -> None:
        """Let a person decide at the gate."""
        reason = None if choice in {"approve", "reject"} else Reason(choice)
        self.track.given(Approved() if choice == "approve" else Rejected(reason=reason))
        self._answers(choice)

    def retry(self) -> None:
        """Let a person try again the step that waits."""
        step = self.track.state.step
        self.track.given(Retried())
        self._answers("retry")
        if self.opened[-1] == name_of(step):
            self.opened.pop()  # the track does not enter a step that it is at

    def turn(self) -> None:
        """Let the track go on, and note the step that it enters."""
        visits, step = self.track.ledger.visits, self.track.state.step
        self.track.turn()
        state = self.track.state
        if (
            not self.asks
            and state.step != DONE
            and (state.step != step or self.track.ledger.visits != visits)
        ):
            self.entered.append(name_of(state.step))

    def attempt(self, chance: Random) -> None:
        """Let the attempt at work pass or fail, and tell the flow when its step has ended."""
        step, rule = self.track.state.step, self.track.rules.steps[self.track.state.step]
        reasons = [Reason(name) for name in rule.on_fail if name != "default"]
        what = chance.choice(("pass", "pass", "pass", None, *reasons))
        last = self.track.state.attempt >= self.track.state.max_attempts
        if what == "pass":
            self.track.hands_over()
            if self.track.ledger.dispatch is not None:
                self.track.checked(tests=red("t.py::new") if rule.tests == "red" else green())
            self._ends(step, "pass")
            return
        reason = None if what is None else Reason(what)
        self.track.fails(reason)
        if last:
            self._ends(step, "failed")
        elif rule.target(reason) != step:
            self._ends(step, "failing", None if reason is None else str(reason))


def play(name: str, seed: int) -> str:
    """Play one story; return how it ended. Both must have entered the same steps all along."""
    chance, both = Random(seed), Both(table(name))
    both.entered.append(name_of(both.track.state.step))
    for _ in range(400):
        both.turn()
        state = both.track.state
        assert both.entered == both.opened, (both.entered, both.opened)
        if state.step == DONE:
            assert both.flow.ended == "succeeded"
            return "done"
        assert both.asks == both.holds, (state, both.flow.asking)
        if both.asks and both.flow.asking != {name_of(state.step)}:
            return "held before a step that was entered too often"
        if both.asks:
            both.retry()
        elif both.rules.steps[state.step].requires_human:
            both.decide(chance.choice(GATES))
        else:
            both.attempt(chance)
    return "still at work"


@pytest.mark.parametrize("name", TABLES)
def test_a_story_enters_the_same_steps_in_the_track_and_in_the_machine_of_flows(name: str) -> None:
    """Also where a step was entered too often, and where its attempts are used up."""
    ends = Counter(play(name, seed) for seed in range(60))

    assert ends["done"] > 10
    assert name != "without a review" or ends["held before a step that was entered too often"]
