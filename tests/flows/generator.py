"""Random pipelines, as data in the language, each of which the loader has to accept."""

from __future__ import annotations

from random import Random
from typing import Any

Task = dict[str, Any]
Json = dict[str, Any]


def pipeline(chance: Random) -> Json:
    """Return a random pipeline."""
    tasks = _Scope(chance, depth=0, prefix="t").tasks()
    return {
        "language": 1,
        "pipeline": "random",
        "params": {"mode": {"enum": ["a", "b"], "default": "a"}},
        "limits": {"parallel": chance.choice((1, 1, 2, 2, 3, 5)), "starts": 100_000, "tasks": 1000},
        "roles": {"worker": {"executor": "claude"}},
        "tasks": tasks,
    }


class _Scope:
    """The tasks of one scope, made in the order of their needs."""

    def __init__(self, chance: Random, depth: int, prefix: str, most: int = 5) -> None:
        self._chance = chance
        self._depth = depth
        count = chance.randint(1 if depth else 2, most)
        self._names = [f"{prefix}{at}" for at in range(count)]
        self._on_demand = [f"{prefix}c{at}" for at in range(chance.choice((0, 0, 1, 1, 2)))]
        self._made: dict[str, Task] = {}
        self._needed: dict[str, set[str]] = {}

    def tasks(self) -> dict[str, Task]:
        for at, name in enumerate(self._names):
            self._made[name] = self._task(name, self._names[:at])
        for name in self._on_demand:
            self._made[name] = self._callee(name)
        while unused := [name for name in self._on_demand if name in self._made and not self._callers(name)]:
            for name in unused:
                del self._made[name]
        return self._made

    def _callers(self, name: str) -> list[str]:
        return [other for other, task in self._made.items() if name in _called(task) and other != name]

    def _task(self, name: str, before: list[str]) -> Task:
        chance = self._chance
        task = self._doer(name)
        if chance.random() < 0.08 and ("agent" in task or "run" in task):
            self._needed[name] = set()
            task.pop("hold", None)
            return {**task, "always": True, "outcomes": {"o0": "ok", "o1": "warn"}}
        needs = self._needs(before)
        self._needed[name] = set(needs).union(*(self._needed[need] for need in needs))
        if needs:
            task["needs"] = needs if any(needs.values()) else list(needs)
            if any(needs.values()):
                task["needs"] = {need: taken or self._taken(need) for need, taken in needs.items()}
        if chance.random() < 0.15:
            task["when"] = self._condition(name)
        outcomes = self._outcomes(name)
        if "verdict" in task:
            task["verdict"] = [
                *({"if": "params.mode == 'a'", "then": one} for one in list(outcomes)[1:2]),
                {"else": "o0"},
            ]
            outcomes = {one: outcomes[one] for one in list(outcomes)[:2]}
        elif chance.random() < 0.3:
            self._list(task, name)
        task["outcomes"] = outcomes
        return task

    def _doer(self, name: str) -> Task:
        kinds = [
            "agent",
            "agent",
            "agent",
            "run",
            "ask",
            "verdict",
            *(["tasks"] * 2 if self._depth < 2 else []),
        ]
        match self._chance.choice(kinds):
            case "agent":
                return {"agent": "worker", "out": {"list": "list.json"}, **self._claims(), **self._tree()}
            case "run":
                return {"run": "true", "out": {"list": "list.json"}, **self._claims()}
            case "ask":
                return {"ask": "What now?", "timeout": "1h", "default": "o0"}
            case "verdict":
                return {"verdict": []}
            case _:
                inner = _Scope(self._chance, self._depth + 1, f"{name}x", 3).tasks()
                holds = self._chance.random() < 0.3 and not _claims_inside({"tasks": inner})
                return {"tasks": inner, **({"claims": ["src/b/**"]} if holds else {})}

    def _claims(self) -> Task:
        kinds: list[Task] = [{}, {}, {}, {"claims": ["src/a/**"]}, {"claims": ["src/**", "name:x"]}]
        return self._chance.choice(kinds)

    def _tree(self) -> Task:
        kinds: list[Task] = [{}, {"isolation": "clone"}, {"isolation": "clone"}, {"isolation": "read"}]
        more: list[Task] = [{}, {}, {"hold": {"retries": 1, "timeout": "2h", "default": "leave_out"}}]
        return {**self._chance.choice(kinds), **self._chance.choice(more)}

    def _needs(self, before: list[str]) -> dict[str, list[str] | None]:
        chance = self._chance
        usable = [name for name in before if not self._made[name].get("always")]
        count = min(len(usable), chance.choice((0, 1, 1, 1, 2)))
        found: dict[str, list[str] | None] = {}
        for need in chance.sample(usable, count):
            found[need] = self._taken(need) if chance.random() < 0.2 else None
        return found

    def _taken(self, need: str) -> list[str]:
        """Return outcomes of a task that a need may name."""
        task = self._made[need]
        if "each" in task:
            outcomes = task.get("join", {}).get("outcomes") or {"all": "ok", "some": "ok"}
            return [name for name, reaction in outcomes.items() if reaction in ("ok", "warn")]
        return [name for name, reaction in task["outcomes"].items() if reaction in ("ok", "warn")]

    def _condition(self, name: str) -> str:
        readable = sorted(self._needed[name])
        if readable and self._chance.random() < 0.5:
            return f"{self._chance.choice(readable)} != 'o1'"
        return self._chance.choice(("params.mode == 'a'", "rounds < 1", "project.bootstrapped"))

    def _list(self, task: Task, name: str) -> None:
        chance = self._chance
        sources = [
            one
            for one in sorted(self._needed[name])
            if "out" in self._made[one] and "each" not in self._made[one]
        ]
        if sources and chance.random() < 0.6:
            task["each"] = f"{chance.choice(sources)}.out.list"
            task["item"] = {"id": "id", "needs": "needs"}
            if not _claims_inside(task):
                task["item"]["claims"] = "files"
        else:
            task["each"] = ["x", "y", "z"][: chance.randint(1, 3)]
        if chance.random() < 0.4:
            task["parallel"] = chance.randint(1, 2)
        if chance.random() < 0.4:
            task["join"] = {
                "min": chance.randint(0, len(task["each"]) if isinstance(task["each"], list) else 2)
            }
            if chance.random() < 0.2:
                task["join"]["verdict"] = [{"if": "accepted > lost", "then": "all"}, {"else": "some"}]
                task["join"]["outcomes"] = {"all": "ok", "some": self._reaction(name)}
            elif chance.random() < 0.5:
                task["join"]["outcomes"] = {"all": "ok", "some": self._reaction(name), "none": "warn"}

    def _outcomes(self, name: str) -> Task:
        found: Task = {"o0": "ok"}
        for at in range(1, self._chance.randint(1, 3)):
            found[f"o{at}"] = self._reaction(name)
        return found

    def _simple(self) -> Any:
        return self._chance.choice(("ok", "warn", "drop", "stop", "hold"))

    def _reaction(self, name: str, depth: int = 0) -> Any:
        chance = self._chance
        targets = sorted(one for one in self._needed[name] if not self._made[one].get("always"))
        kinds = ["simple", "simple", "self", "end"]
        kinds += ["back"] * 3 if targets else []
        kinds += ["call"] * 3 if self._on_demand else []
        then = self._reaction(name, depth + 1) if depth < 1 and chance.random() < 0.4 else self._simple()
        match chance.choice(kinds):
            case "self":
                return {"back_to": "self", "at_most": chance.randint(1, 2), "then": then}
            case "back":
                more = {"fresh": True} if chance.random() < 0.2 else {}
                return {
                    "back_to": chance.choice(targets),
                    "at_most": chance.randint(1, 2),
                    "then": then,
                    **more,
                }
            case "call":
                return {"call": chance.choice(self._on_demand), "at_most": chance.randint(1, 2), "then": then}
            case "end":
                return {"end": chance.choice(("succeeded", "failed", "cancelled"))}
            case _:
                return self._simple()

    def _callee(self, name: str) -> Task:
        chance = self._chance
        kinds: list[Task] = [
            {"ask": "And now?", "timeout": "1h", "default": "o0"},
            {"agent": "worker"},
            {"run": "true"},
        ]
        task = {"on_demand": True, **chance.choice(kinds)}
        outcomes: Task = {"again": "again", "o0": self._simple()}
        callers = [one for one in self._names if name in _called(self._made[one])]
        common = set(self._names).intersection(*(self._needed[one] for one in callers)) if callers else set()
        targets = sorted(one for one in common if not self._made[one].get("always"))
        match chance.choice(("self", "back", "end", "simple")):
            case "self":
                outcomes["o1"] = {"back_to": "self", "at_most": chance.randint(1, 2), "then": self._simple()}
            case "back" if targets:
                outcomes["o1"] = {"back_to": chance.choice(targets), "at_most": 1, "then": self._simple()}
            case "end":
                outcomes["o1"] = {"end": "cancelled"}
            case _:
                outcomes["o1"] = self._simple()
        task["outcomes"] = outcomes
        return task


def _claims_inside(task: Task) -> bool:
    """Return whether a task in a group claims something, so that the group itself must not."""
    inner = task.get("tasks", {}).values()
    return any("claims" in one or "claims" in one.get("item", {}) or _claims_inside(one) for one in inner)


def _called(task: Task) -> set[str]:
    """Return the tasks on demand that the reactions of a task call."""
    found: set[str] = set()
    reactions = [*task.get("outcomes", {}).values(), *task.get("join", {}).get("outcomes", {}).values()]
    while reactions:
        reaction = reactions.pop()
        if isinstance(reaction, dict):
            found |= {reaction["call"]} if "call" in reaction else set()
            reactions.append(reaction.get("then"))
    return found
