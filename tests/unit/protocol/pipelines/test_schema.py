"""The JSON Schema that editors complete pipelines with."""

from __future__ import annotations

import pytest
from tests.support.jsonschemas import complaints
from tests.unit.protocol.pipelines.samples import ISSUES, WRITING

from handoffd.protocol.pipelines.schema import json_schema
from handoffd.protocol.pipelines.shapes import DOERS, TASK
from handoffd.protocol.yamltext import load

HEAD = "language: 1\npipeline: p\ntasks:\n"


def _complaints(text: str) -> list[str]:
    return complaints(load(text, "p.yaml").data, json_schema())


@pytest.mark.parametrize("text", [ISSUES, WRITING])
def test_sound_pipelines_satisfy_the_schema(text: str) -> None:
    """Whatever they use of the language."""
    assert [] == _complaints(text)


@pytest.mark.parametrize(
    "tasks",
    [
        "  a: {agent: w, nedes: [b]}\n",
        "  a: {agent: w, run: x}\n",
        "  a: {run: x, attempts: 0}\n",
        "  a: {run: x, timeout: soon}\n",
        "  a: {run: x, outcomes: {pass: fine}}\n",
        "  a: {run: x, outcomes: {pass: {back_to: self, then: {back_to: self, then: fine}}}}\n",
        "  a: {tasks: {b: {run: x, nedes: [c]}}}\n",
        "  a: {run: x, each: []}\n",
        "  A: {run: x}\n",
        "  {}\n",
    ],
)
def test_what_a_form_shows_to_be_wrong_is_underlined(tasks: str) -> None:
    """At any depth."""
    assert [] != _complaints(HEAD + tasks) or "  {}\n" == tasks


def test_every_key_of_a_task_is_described() -> None:
    """For the one who completes it."""
    task = json_schema()["$defs"]["task"]["properties"]

    assert list(TASK.keys) == list(task)
    assert {*DOERS} <= {*task}
    assert all(key["description"] for key in task.values())
