"""The schemas of what pipelines hand over: each one named exists, and fits what the pipelines read of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import pytest
from tests.flows.__main__ import shipped
from tests.support.generate import ROOT
from tests.support.jsonschemas import complaints

from handoffd.forecast.flows import everything
from handoffd.protocol.expressions import Expression, evaluate
from handoffd.protocol.plan import Plan, Task

FOLDER = ROOT / "config" / "schema"
EXAMPLES = ROOT / "tests" / "data" / "artifacts"
SHIPPED = shipped()
PLACES = [(name, place) for name, loaded in SHIPPED.items() for place, _ in everything(loaded.plan.root)]
FILLED: Mapping[str, object] = {"number": 1, "text": "x", "boolean": True, "list": ["x"], "any": {"id": "x"}}
"""A value of each kind, where an expression reads more than files."""


def _named() -> list[str]:
    return sorted(
        {
            one.schema
            for loaded in SHIPPED.values()
            for _, task in everything(loaded.plan.root)
            for one in task.out.values()
            if one.schema is not None
        }
    )


def _schema(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text("utf-8"))


def _example(name: str) -> Any:
    return json.loads((EXAMPLES / f"{name.replace('/', '-')}.json").read_text("utf-8"))


def _task(pipeline: str, place: str) -> Task:
    return dict(everything(SHIPPED[pipeline].plan.root))[place]


def _around(plan: Plan, place: str) -> Iterator[Task]:
    """Yield a task and the groups around it, from the inside out."""
    tasks = dict(everything(plan.root))
    while place:
        yield tasks[place]
        place = place.rpartition("/")[0]


def _value(plan: Plan, place: str, name: str, kind: str) -> object:
    """Return what an expression of the task at `place` reads by a name."""
    task, *groups = _around(plan, place)
    parts = name.split(".")
    if "out" in parts:
        owner = task if parts[0] == "out" else None
        scopes = [place.rpartition("/")[0] for place in _places(place)]
        tasks = dict(everything(plan.root))
        for scope in scopes if owner is None else ():
            owner = owner or tasks.get(f"{scope}/{parts[0]}" if scope else parts[0])
        assert owner is not None
        artifact = owner.out[parts[parts.index("out") + 1]]
        value: Any = _example(artifact.schema) if artifact.schema else "text"
        for key in parts[parts.index("out") + 2 :]:
            value = value[key]
        return value
    if parts[0] == "item":
        lists = [
            (one, up)
            for one, up in zip([task, *groups], _places(place), strict=False)
            if one.each is not None
        ]
        value = _items(plan, lists[0][1], lists[0][0])[0]
        for key in parts[1:]:
            value = value[key]
        return value
    if parts[0] == "params":
        return plan.params[parts[1]].get("default", FILLED[kind])
    return [{"id": "GH-12"}] if parts[-1] == "items" else FILLED[kind]


def _places(place: str) -> list[str]:
    parts = place.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _evaluated(plan: Plan, place: str, expression: Expression) -> Any:
    return evaluate(expression, {name: _value(plan, place, name, kind) for name, kind in expression.names})


def _items(plan: Plan, place: str, task: Task) -> list[Any]:
    assert task.each is not None
    if task.each.items is not None:
        return list(task.each.items)
    assert task.each.expression is not None
    return list(_evaluated(plan, place, task.each.expression))


# --- the schemas --------------------------------------------------------------------------------------
def test_every_schema_that_is_named_is_there_and_no_other() -> None:
    """Each with an example, which later tests read."""
    there = sorted(str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.glob("*/*.json"))

    assert _named() == there
    assert [name.replace("/", "-") for name in there] == sorted(path.stem for path in EXAMPLES.iterdir())


@pytest.mark.parametrize("name", _named())
def test_a_schema_says_what_it_is_and_accepts_its_example(name: str) -> None:
    """A key that is required is missed."""
    schema, example = _schema(name), _example(name)

    assert "https://json-schema.org/draft/2020-12/schema" == schema["$schema"]
    assert schema["title"]
    assert schema["description"]
    assert schema["required"]
    assert [] == complaints(example, schema)
    for key in schema["required"]:
        less = deepcopy(example)
        del less[key]
        assert [f"$: {key} is missing"] == complaints(less, schema)


@pytest.mark.parametrize("name", _named())
def test_a_schema_refuses_what_is_no_object(name: str) -> None:
    """A list or a text that an agent wrote instead."""
    assert complaints([], _schema(name))
    assert complaints("nothing", _schema(name))


# --- the pipelines over them --------------------------------------------------------------------------
@pytest.mark.parametrize(("pipeline", "place"), PLACES)
def test_checks_of_a_task_can_be_evaluated_on_the_examples(pipeline: str, place: str) -> None:
    """Whatever they say about it, none reads a key that the schema does not have."""
    task = _task(pipeline, place)

    values = [_evaluated(SHIPPED[pipeline].plan, place, check) for check in task.checks]

    assert {bool} >= set(map(type, values))


@pytest.mark.parametrize(("pipeline", "place"), PLACES)
def test_items_have_the_keys_that_a_task_reads_of_them(pipeline: str, place: str) -> None:
    """Id, needs, claims and role, each of its kind."""
    task, plan = _task(pipeline, place), SHIPPED[pipeline].plan
    if task.each is None or task.each.id is None:
        return
    items = _items(plan, place, task)

    assert items
    for item in items:
        assert isinstance(item[task.each.id], str)
        for key in filter(None, (task.each.needs, task.each.claims)):
            assert all(isinstance(one, str) for one in item[key])
        assert task.each.role is None or isinstance(item[task.each.role], str)


@pytest.mark.parametrize(("pipeline", "place"), PLACES)
def test_values_for_a_prompt_can_be_made_from_the_examples(pipeline: str, place: str) -> None:
    """What `with` says, also of an item."""
    for expression in _task(pipeline, place).extras.values():
        _evaluated(SHIPPED[pipeline].plan, place, expression)
