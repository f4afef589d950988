"""The instructions of the shipped pipelines that are written out: what a model has to know is in them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import pytest
from tests.flows.__main__ import shipped
from tests.support.generate import ROOT

from handoffd.forecast.flows import everything
from handoffd.protocol.plan import Plan, Task

WRITTEN = (
    *("analyze", "clean", "command-generator", "refactor-cycle", "review-cycle", "team-brainstorm"),
    *("team-coordinate", "team-issue"),
)
SHIPPED = {name: loaded.plan for name, loaded in shipped().items() if name in WRITTEN}
LINES = range(2, 17)


def _agents() -> Iterator[tuple[str, str]]:
    for name, plan in SHIPPED.items():
        yield from ((name, place) for place, task in everything(plan.root) if task.kind == "agent")


def _texts(plan: Plan, task: Task) -> list[Mapping[str, str]]:
    """Return the instructions of a task, or of every role that may do it."""
    if task.doer != "item.role":
        return [task.work.instructions]
    return [role.work.instructions for role in plan.roles.values() if role.template]


def _expected(task: Task) -> Iterator[str]:
    """Yield every name that a model must read: files, their keys, fields, and outcomes that it chooses."""
    for artifact in task.out.values():
        yield artifact.path
        if artifact.schema is not None:
            schema = json.loads((ROOT / "config/schema" / f"{artifact.schema}.json").read_text("utf-8"))
            yield from schema["required"]
    yield from task.fields
    claimed = [one for one in task.declared if one not in {"failed", "conflict", "asks"}]
    yield from claimed if not task.verdict and len(claimed) > 1 else ()


@pytest.mark.parametrize(("pipeline", "place"), list(_agents()))
def test_instructions_name_what_is_handed_over(pipeline: str, place: str) -> None:
    """In both languages, in a few lines."""
    plan = SHIPPED[pipeline]
    task = dict(everything(plan.root))[place]

    for texts in _texts(plan, task):
        assert {"en", "zh-TW"} == set(texts)
        for language, text in texts.items():
            assert len(text.splitlines()) in LINES, language
            assert [] == [name for name in _expected(task) if name not in text], language


def test_every_system_that_is_written_out_is_shipped() -> None:
    """A name that is misspelt would check nothing."""
    assert sorted(WRITTEN) == sorted(SHIPPED)
