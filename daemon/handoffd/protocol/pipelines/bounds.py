"""How many tasks a flow of a plan can open at most, as far as the text alone shows it.

Every way back and every call can be taken only so often, so the number is finite. Attempts that a person
asks for are not in it: the limit of the flow holds for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

from msgspec import Struct

from handoffd.protocol.plan import SELF, BackTo, Call, Ladder, Plan, Scope, Task

USUAL_ITEMS: Final = 4
"""Of a list whose length the text does not show."""
_PARAM: Final = "params."


class Way(Struct, frozen=True):
    """A way back or a call, and how often it is taken at most."""

    task: str
    outcome: str
    rung: BackTo | Call


class Cost(Struct, frozen=True, kw_only=True):
    """How the bound of one task comes about, in one instance of its scope."""

    task: str
    ways: tuple[Way, ...] = ()
    """The ways back of others that begin it again, beside its first time."""
    whole: tuple[Way, ...] = ()
    """What begins all its items again, after all of them together: its own ways back, and calls."""
    items: int = 1
    own: tuple[Way, ...] = ()
    """What opens one of its items again: ways back to itself, and calls, whose tasks are opened as well."""
    inner: int = 1
    """What one opening costs: itself, and the tasks of a group or of a pipeline."""
    inside: tuple[Cost, ...] = ()

    @property
    def begun(self) -> int:
        """How often it is begun, but for its own rounds."""
        return 1 + sum(way.rung.at_most for way in self.ways)

    @property
    def rounds(self) -> int:
        """How often all its items are begun."""
        return self.begun + sum(way.rung.at_most for way in self.whole)

    @property
    def tries(self) -> int:
        """How often each item is opened each time."""
        return 1 + sum(way.rung.at_most for way in self.own)

    @property
    def called(self) -> int:
        """How many tasks are called for each item each time."""
        return sum(way.rung.at_most for way in self.own if isinstance(way.rung, Call))

    @property
    def called_by_whole(self) -> int:
        """How many tasks are called for all items together, each time that it is begun."""
        return sum(way.rung.at_most for way in self.whole if isinstance(way.rung, Call))

    @property
    def total(self) -> int:
        """How many tasks are opened for it in all."""
        one = self.tries * self.inner + self.called
        return self.rounds * self.items * one + self.begun * self.called_by_whole


def bound(
    plan: Plan,
    items: int = USUAL_ITEMS,
    others: Mapping[str, Plan] = {},
    known: Mapping[str, int] = {},
) -> int:
    """Return how many tasks a flow can open at most; `items` is the length of a list that is not known.

    `others` are the plans that it may start, by name; one that is not there counts as a single task. `known`
    has the bounds that were counted before, by name.
    """
    return sum(cost.total for cost in _Counting(plan, items, others, {**known}).of(plan.root))


def least(scope: Scope) -> int:
    """Return how many tasks at least are opened in a scope where each is accepted at its first attempt.

    Conditions are taken as false, lists that the text does not show as empty.
    """
    return sum(map(_least, scope.tasks.values()))


def _least(task: Task) -> int:
    if task.on_demand or task.always or task.when is not None or any(task.needs.values()):
        return 0
    items = 1 if task.each is None else len(task.each.items or ())
    return items * (1 if task.inner is None else least(task.inner))


def costs(plan: Plan, items: int = USUAL_ITEMS, others: Mapping[str, Plan] = {}) -> dict[str, int]:
    """Return how many tasks are opened at most for each task of the root."""
    return {cost.task: cost.total for cost in factors(plan, items, others)}


def factors(plan: Plan, items: int = USUAL_ITEMS, others: Mapping[str, Plan] = {}) -> tuple[Cost, ...]:
    """Return how the bound of each task of the root comes about."""
    return _Counting(plan, items, others, {}).of(plan.root)


class _Counting:
    def __init__(self, plan: Plan, items: int, others: Mapping[str, Plan], known: dict[str, int]) -> None:
        self._plan = plan
        self._items = items
        self._others = others
        self._known = known
        """The bounds of the other plans that were counted already."""

    def of(self, scope: Scope) -> tuple[Cost, ...]:
        """Return the cost of each task in one instance of a scope; a called task counts for its callers."""
        ways = _Ways(scope)
        return tuple(
            Cost(task=name) if task.always else self._cost(task, ways)
            for name, task in scope.tasks.items()
            if not task.on_demand
        )

    def _cost(self, task: Task, ways: _Ways) -> Cost:
        inside = self.of(task.inner) if task.inner is not None else ()
        own = [way for way in ways.own(task) if isinstance(way.rung, Call) or way.rung.task == SELF]
        whole = [way for way in ways.whole(task) if isinstance(way.rung, Call) or way.rung.task == SELF]
        return Cost(
            task=task.name, ways=ways.reach(task), whole=tuple(whole), items=self._length(task),
            own=tuple(own), inner=self._inner(task, inside), inside=inside,
        )  # fmt: skip

    def _inner(self, task: Task, inside: tuple[Cost, ...]) -> int:
        if task.inner is not None:
            return sum(cost.total for cost in inside)
        return 1 + max(map(self._other, task.pipelines), default=0)

    def _other(self, name: str) -> int:
        if name not in self._known:
            self._known[name] = 0
            if (other := self._others.get(name)) is not None:
                counting = _Counting(other, self._items, self._others, self._known)
                self._known[name] = sum(cost.total for cost in counting.of(other.root))
        return self._known[name]

    def _length(self, task: Task) -> int:
        if task.each is None:
            return 1
        if task.each.items is not None:
            return len(task.each.items)
        text = task.each.expression.text.strip() if task.each.expression is not None else ""
        schema = self._plan.params.get(text.removeprefix(_PARAM), {}) if text.startswith(_PARAM) else {}
        return int(schema.get("maxItems", self._items))


class _Ways:
    """The ways back and calls of one scope."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._families: dict[str, list[Way]] = {}

    def own(self, task: Task) -> list[Way]:
        """Return the ways back and calls of a task, or of one of its items, with their callees'."""
        if task.name not in self._families:
            self._families[task.name] = self._family(task.name, task.outcomes)
        return self._families[task.name]

    def whole(self, task: Task) -> list[Way]:
        """Return the ways back and calls that follow from all items of a task together."""
        return self._family(task.name, task.join.outcomes) if task.each is not None else []

    def reach(self, task: Task) -> tuple[Way, ...]:
        """Return the ways back that begin a task again in one instance of its scope, but for its own."""
        dependents = self._scope.dependents
        return tuple(way for way in self._back if task.name in dependents.get(way.rung.task, ()))

    @cached_property
    def _back(self) -> list[Way]:
        """The ways back to another task."""
        tasks = [task for task in self._scope.tasks.values() if not task.on_demand]
        ways = [way for task in tasks for way in (*self.own(task), *self.whole(task))]
        return [way for way in ways if isinstance(way.rung, BackTo) and way.rung.task != SELF]

    def _family(self, name: str, outcomes: Mapping[str, Ladder]) -> list[Way]:
        found: list[Way] = []
        seen: set[str] = set()
        waiting = [(name, outcomes)]
        while waiting:
            name, outcomes = waiting.pop()
            for outcome, rung in ((outcome, rung) for outcome, rungs in outcomes.items() for rung in rungs):
                if isinstance(rung, BackTo | Call):
                    found.append(Way(name, outcome, rung))
                if isinstance(rung, Call) and rung.task not in seen and rung.task in self._scope.tasks:
                    seen.add(rung.task)
                    waiting.append((rung.task, self._scope.tasks[rung.task].outcomes))
        return found
