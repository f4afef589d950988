"""How many tasks a flow can open at most."""

from __future__ import annotations

import pytest
from tests.unit.protocol.pipelines.samples import ISSUES, OTHERS, WRITING

from handoffd.protocol.pipelines.bounds import bound, costs
from handoffd.protocol.pipelines.loading import load_plan

ASK = "ask: hm, timeout: never"
HEAD = "language: 1\npipeline: p\nparams: {few: {type: array, maxItems: 7}, many: {type: array}}\ntasks:\n"


def _bound(tasks: str, items: int = 4) -> int:
    return bound(load_plan(HEAD + tasks, "p.yaml").plan, items)


@pytest.mark.parametrize(
    ("tasks", "most"),
    [
        ("  a: {run: x}\n  b: {run: x, needs: [a]}\n", 2),
        ("  a: {run: x}\n  b: {run: x, needs: [a], outcomes: {pass: ok, no: {back_to: a, at_most: 2}}}\n", 6),
        ("  a: {run: x}\n  b: {run: x, outcomes: {pass: ok, no: {back_to: self, at_most: 2}}}\n", 4),
        ("  a: {run: x, outcomes: {pass: ok, no: {back_to: self, at_most: 2, then: {back_to: self}}}}\n", 6),
        ("  a: {verdict: [{else: x}], outcomes: {x: ok}}\n", 1),
        (f"  a: {{{ASK}, outcomes: {{x: ok}}}}\n", 1),
        ("  a: {tasks: {b: {run: x}, c: {run: x}}}\n", 2),
        ("  a: {tasks: {b: {run: x}, c: {run: x}}, outcomes: {done: {back_to: self, at_most: 1}}}\n", 4),
        ("  a: {run: x, each: [q, r, s]}\n", 3),
        ("  a: {run: x, each: params.few}\n", 7),
        ("  a: {run: x, each: params.many}\n", 4),
        ("  a: {run: x, each: [q, r], tasks: {b: {run: x}}}\n".replace("run: x, each", "each"), 2),
        ("  a: {run: x}\n  z: {always: true, run: x}\n", 2),
        (
            f"  a: {{run: x, outcomes: {{pass: ok, no: {{call: c, at_most: 2}}}}}}\n"
            f"  c: {{on_demand: true, {ASK}, outcomes: {{x: again}}}}\n",
            5,
        ),
        (
            "  a: {run: x, each: [q, r], join: {verdict: [{else: x}],"
            " outcomes: {x: {back_to: self, at_most: 1, then: ok}}}}\n",
            4,
        ),
        (
            "  a: {run: x, each: [q, r], join: {verdict: [{else: x}],"
            " outcomes: {x: {call: c, at_most: 2, then: ok}}}}\n"
            f"  c: {{on_demand: true, {ASK}, outcomes: {{x: again}}}}\n",
            8,
        ),
        (
            "  a: {run: x}\n  b: {run: x, needs: [a], outcomes: {pass: ok, no: {call: c, at_most: 1}}}\n"
            f"  c: {{on_demand: true, {ASK}, outcomes: {{x: {{back_to: a, at_most: 1, then: ok}}}}}}\n",
            2 + 2 * (2 + 1),
        ),
    ],
)
def test_the_bound_counts_ways_back_calls_and_items(tasks: str, most: int) -> None:
    """Groups and tables count nothing themselves; what is always done counts once."""
    assert most == _bound(tasks)


def test_a_list_of_unknown_length_is_as_long_as_the_caller_says() -> None:
    """Usually four."""
    tasks = "  a: {run: x, each: params.many}\n"

    assert [4, 100] == [_bound(tasks), _bound(tasks, 100)]


def test_a_pipeline_counts_with_all_that_it_starts() -> None:
    """And itself; one that is not there is a single task. The list before it is made twice at most."""
    loaded = load_plan(ISSUES, "issues.yaml", others=OTHERS)
    writing = bound(load_plan(WRITING, "writing.yaml").plan)

    assert 2 * (1 + writing) == costs(loaded.plan, others=loaded.others)["report"]
    assert 2 == costs(loaded.plan)["report"]


def test_the_inside_of_a_group_is_multiplied_by_the_items_of_the_group() -> None:
    """Also what its tasks send back."""
    tasks = (
        "  a:\n    each: [q, r]\n    tasks:\n      b: {run: x}\n"
        "      c: {run: x, needs: [b], outcomes: {pass: ok, no: {back_to: b, at_most: 1}}}\n"
    )

    assert 2 * (2 + 2) == _bound(tasks)
