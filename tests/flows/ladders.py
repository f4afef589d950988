"""Which reaction must follow an outcome: the rungs of each ladder counted from the events alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from handoffd.engine.flow.events import Answered, CommandEnded, FlowEvent, TaskEnded
from handoffd.engine.flow.flow import Flow, Node
from handoffd.protocol.plan import Accept, Again, BackTo, Call, Drop, End, Hold, Plan, Stop

STATES: Mapping[type, frozenset[str]] = {
    Accept: frozenset({"accepted"}),
    Drop: frozenset({"dropped"}),
    Stop: frozenset({"dead"}),
    Hold: frozenset({"asking"}),
    Call: frozenset({"called"}),
    BackTo: frozenset({"sent_back"}),
    Again: frozenset({"sent_back"}),
    End: frozenset({"accepted"}),
}
"""By reaction, the state that it leaves a node in."""
LEFT_OUT = frozenset({"skipped"})


class Ladders:
    """How often each rung was taken, by the instance of the scope that it belongs to."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._taken: Counter[tuple[object, ...]] = Counter()

    def expected(
        self, event: FlowEvent, flow: Flow, sent_back: Callable[[Node], bool]
    ) -> tuple[Node, frozenset[str]] | None:
        """Return a node and the states that an event must bring it to; None: that is not known here."""
        node, outcome = self._said(event, flow)
        if node is None or flow.ending is not None or node.closing or flow.automatic:
            return None
        task = self._plan.scope(node.place).tasks[node.task]
        acting, callee = node, ""
        if task.on_demand and node.caller is not None:
            if outcome not in task.declared:
                return node, STATES[Hold]
            acting, callee = flow.nodes[node.caller], node.task
        covered = sent_back(acting)
        for position, rung in enumerate(task.outcomes[outcome]):
            if isinstance(rung, BackTo | Call):
                key = (
                    self._instance(flow, acting.scope),
                    self._place(acting, rung),
                    callee,
                    outcome,
                    position,
                )
                if self._taken[key] >= rung.at_most:
                    continue
                self._taken[key] += not covered or isinstance(rung, BackTo)
            if covered and not isinstance(rung, End):
                return acting, STATES[BackTo]
            begins = isinstance(rung, BackTo | Call | Hold | Again)
            return acting, LEFT_OUT if begins and self._left_out(flow, acting) else STATES[type(rung)]
        raise AssertionError("a ladder ends with a rung that can be used up")

    def _said(self, event: FlowEvent, flow: Flow) -> tuple[Node | None, str]:
        """Return the node whose work has ended, and its outcome, where no verdict decides."""
        node = flow.nodes.get(getattr(event, "node", ""))
        if node is None or (task := self._plan.scope(node.place).tasks[node.task]).verdict:
            return None, ""
        match event:
            case TaskEnded(status="pass", outcome=str(outcome)) if outcome in task.declared:
                return node, outcome
            case CommandEnded(exit=0, outcome=str(outcome)) if outcome in task.declared:
                return node, outcome
            case TaskEnded(status="failed", outcome="failed"):
                return node, "failed"
            case Answered(choice=choice) if node.question is not None and not node.question.hold:
                return node, choice
        return None, ""

    @staticmethod
    def _left_out(flow: Flow, node: Node) -> bool:
        """Return whether a group around a node is left out, because a task in it was."""
        scope = node.scope
        while scope:
            inside = (one for one in flow.nodes.values() if one.scope == scope)
            if any(one.state == "dropped" and one.item is None and one.caller is None for one in inside):
                return True
            scope = flow.nodes[scope].scope
        return False

    @staticmethod
    def _place(node: Node, rung: Any) -> str:
        """Return whose counter it is: the whole list's, where a way back leads out of an item."""
        outwards = isinstance(rung, BackTo) and rung.task != "self"
        return node.id.rpartition("[")[0] if outwards and node.item is not None else node.id

    @staticmethod
    def _instance(flow: Flow, scope: str) -> tuple[tuple[str, int], ...]:
        """Return what is another value for each instance of a scope: counters inside begin anew with it."""
        found: list[tuple[str, int]] = []
        while scope:
            found.append((scope, flow.nodes[scope].visit))
            scope = flow.nodes[scope].scope
        return tuple(found)
