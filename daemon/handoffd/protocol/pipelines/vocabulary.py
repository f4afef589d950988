"""Which names an expression may read, by the place where it is written.

An expression may read what cannot change any more when it is evaluated: parameters, declared facts of the
project, the tasks that its own task needs, what its own attempt says. Anything else would make its value
depend on who was faster. A name that an inner scope uses hides the same name of the scopes around.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from handoffd.protocol.expressions import Kind
from handoffd.protocol.pipelines.drafting import Draft, Room
from handoffd.protocol.pipelines.parameters import kind_of
from handoffd.protocol.plan import BackTo

_FACTS: Final[Mapping[str, Kind]] = {
    "project.name": "text",
    "project.bootstrapped": "boolean",
    "project.has_code": "boolean",
}
_COUNTS: Final[Mapping[str, Kind]] = dict.fromkeys(("accepted", "lost", "total"), "number")


class Names(Struct, frozen=True):
    """What an expression may read: the kind of each dotted name, and the keys of the elements of lists."""

    kinds: Mapping[str, Kind]
    elements: Mapping[str, tuple[str, ...]] = {}

    def more(self, kinds: Mapping[str, Kind], elements: Mapping[str, tuple[str, ...]] = {}) -> Names:
        """Return these names with others laid over them."""
        return Names({**self.kinds, **kinds}, {**self.elements, **elements})

    def without(self, tasks: Mapping[str, object]) -> Names:
        """Return these names without the names of some tasks."""
        return Names(
            {name: kind for name, kind in self.kinds.items() if name.partition(".")[0] not in tasks},
            {name: keys for name, keys in self.elements.items() if name.partition(".")[0] not in tasks},
        )


def parameters(params: Mapping[str, Mapping[str, Any]]) -> Names:
    """Return the names of the parameters."""
    return Names({f"params.{name}": kind_of(schema) for name, schema in params.items()})


class Vocabulary(Struct):
    """The names that the expressions of a file may read."""

    params: Mapping[str, Mapping[str, Any]]

    def when(self, task: Draft) -> Names:
        """Return what is known before a task is opened."""
        names = self._needed(task).more({"rounds": "number", **_rounds(task)})
        owner = task.room.owner
        if owner is not None:
            names = names.more(_of_scope(task.room))
            if owner.of_items is not None:
                names = names.more({"item": "any"})
        called_by_tasks = task.on_demand and not task.has("callable")
        return names.more(_of_callers(task)) if called_by_tasks else names

    def inside(self, task: Draft) -> Names:
        """Return what an instance of a task knows."""
        return self.when(task).more({"item": "any"} if task.many else {})

    def compute(self, task: Draft, earlier: tuple[str, ...]) -> Names:
        """Return what a computed number may read: the fields, and the numbers that were computed before."""
        own = {f"fields.{name}": kind for name, kind in _fields(task).items()}
        return self.inside(task).more({**own, **dict.fromkeys(earlier, "number")})

    def verdict(self, task: Draft) -> Names:
        """Return what the verdict of a task may read; of a group, the outcomes of its tasks."""
        names = self.compute(task, tuple(task.values.get("compute", {})))
        if task.inner is None:
            return names
        inner = [one for one in task.inner.tasks.values() if not (one.on_demand or one.always)]
        return _with_tasks(names.without(task.inner.tasks), inner)

    def checks(self, task: Draft) -> Names:
        """Return what a check may read: also the files of the attempt, and of the tasks that it needs."""
        own: dict[str, Kind] = dict.fromkeys((f"out.{name}" for name in task.values.get("out", {})), "any")
        return self.verdict(task).more({**self._files(task), **own})

    def each(self, task: Draft) -> Names:
        """Return what a list of items may be made of: also the files of the tasks that it needs."""
        return self.when(task).more(self._files(task))

    def whole(self, task: Draft) -> Names:
        """Return what the verdict of all items may read."""
        names: Mapping[str, Kind] = {"items": "list", **_COUNTS}
        return self.when(task).more(names, {"items": _keys_of_items(task)})

    def _needed(self, task: Draft) -> Names:
        names = parameters(self.params).more(_FACTS)
        for one in reversed(around(task)):
            behind = one.room.behind.get(one.name, ())
            needed = [other for name, other in one.room.tasks.items() if name in behind]
            names = _with_tasks(names.without(one.room.tasks), needed)
        return names

    def _files(self, task: Draft) -> dict[str, Kind]:
        found: dict[str, Kind] = {}
        hidden: set[str] = set()
        for one in around(task):
            for name in one.room.behind.get(one.name, ()):
                other = one.room.tasks[name]
                if name not in hidden and not other.many:
                    found.update(
                        dict.fromkeys((f"{name}.out.{file}" for file in other.values.get("out", {})), "any")
                    )
            hidden.update(one.room.tasks)
        return found


def around(task: Draft) -> list[Draft]:
    """Return a task and the groups around it, from the inside out."""
    found = [task]
    while (owner := found[-1].room.owner) is not None:
        found.append(owner)
    return found


def _fields(task: Draft) -> dict[str, Kind]:
    fields = task.values.get("fields", {})
    return {name: (said or {}).get("type", "number") for name, said in fields.items()}


def _results(task: Draft) -> dict[str, Kind]:
    """Return the declared fields of a task and the numbers computed from them."""
    return {**_fields(task), **dict.fromkeys(task.values.get("compute", {}), "number")}


def _keys_of_items(task: Draft) -> tuple[str, ...]:
    return ("id", "outcome", *_results(task))


def _with_tasks(names: Names, tasks: Iterable[Draft]) -> Names:
    """Return the names, and all that others may read of some tasks."""
    kinds, elements = dict(names.kinds), dict(names.elements)
    for task in tasks:
        name = task.name
        kinds[name] = "text"
        if task.many:
            kinds.update({f"{name}.{count}": kind for count, kind in _COUNTS.items()})
            kinds[f"{name}.items"] = "list"
            elements[f"{name}.items"] = _keys_of_items(task)
            continue
        for one, kind in _results(task).items():
            kinds[f"{name}.{one}"] = kinds[f"{name}.fields.{one}"] = kind
    return Names(kinds, elements)


def _rounds(task: Draft) -> dict[str, Kind]:
    ladders = {**task.outcomes, **task.whole}
    ways = [name for name, ladder in ladders.items() if any(isinstance(rung, BackTo) for rung in ladder)]
    return dict.fromkeys((f"rounds.{name}" for name in ways), "number")


def _of_scope(room: Room) -> dict[str, Kind]:
    names: dict[str, Kind] = {"scope.first": "boolean"}
    for name, task in room.tasks.items():
        names[f"scope.last.{name}"] = "text"
        if not task.many:
            names.update({f"scope.last.{name}.{one}": kind for one, kind in _results(task).items()})
    return names


def _of_callers(task: Draft) -> dict[str, Kind]:
    names: dict[str, Kind] = {"caller": "text", "caller.outcome": "text", "caller.rounds": "number"}
    callers = [_fields(one) for one in task.room.callers(task.name)]
    for name, kind in callers[0].items() if callers else ():
        if all(one.get(name) == kind for one in callers):
            names[f"caller.{name}"] = kind
    return names
