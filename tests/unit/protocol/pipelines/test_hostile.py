"""Any text gives a plan or an InvalidFile, soon."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.protocol.pipelines.samples import ISSUES, OTHERS, WRITING

from handoffd.errors import InvalidFile
from handoffd.protocol.pipelines.bounds import bound
from handoffd.protocol.pipelines.drawing import mermaid, svg, table
from handoffd.protocol.pipelines.loading import load_plan
from handoffd.protocol.yamltext import load

SECOND_MS = 1000
WORDS = (
    "ok", "hold", "again", "self", "issue", "solve", "mode", "judge", "always", "on_demand", "back_to",
    "call", "then", "fields.risk > 1", "params.issues", "build.items", "item", "git.merge", "never", "24h",
    "{params.x}", "a.b.c", "(",
)  # fmt: skip
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 10**6),
    st.floats(allow_nan=False),
    st.sampled_from(WORDS),
    st.text(max_size=8),
    st.just([]),
    st.just({}),
    st.lists(st.sampled_from(WORDS), max_size=3),
    st.dictionaries(st.sampled_from(WORDS), st.sampled_from(WORDS), max_size=3),
)


def _outcome(text: str, file: str = "issues.yaml") -> str:
    try:
        loaded = load_plan(text, file, others=OTHERS)
    except InvalidFile as error:
        return str(error)
    assert bound(loaded.plan, others=loaded.others) >= 0
    return mermaid(loaded.plan) + svg(loaded.plan) + "".join(row.name for row in table(loaded.plan))


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every container with each of its keys."""
    keys: list[Any] = list(value) if isinstance(value, dict) else []
    keys = list(range(len(value))) if isinstance(value, list) else keys
    return [(value, key) for key in keys] + [place for key in keys for place in _places(value[key])]


def _change(data: st.DataObject, document: Any) -> None:
    container, key = data.draw(st.sampled_from(_places(document)))
    what = data.draw(st.sampled_from(("drop", "replace", "swap", "add", "rename")))
    if what == "drop":
        del container[key]
    elif what == "replace":
        container[key] = data.draw(VALUES)
    elif what == "swap":
        other, place = data.draw(st.sampled_from(_places(document)))
        container[key], other[place] = json.loads(json.dumps([other[place], container[key]]))
    elif isinstance(container, list):
        container.append(data.draw(VALUES))
    else:
        taken = container.pop(key) if what == "rename" else data.draw(VALUES)
        container[data.draw(st.sampled_from((*WORDS, "each", "needs", "with", "like", "when", "tasks")))] = (
            taken
        )


@settings(max_examples=150, deadline=SECOND_MS)
@given(data=st.data(), text=st.sampled_from((ISSUES, WRITING)))
def test_a_changed_document_is_a_plan_or_is_refused(data: st.DataObject, text: str) -> None:
    """Whatever is dropped, replaced, added, renamed or swapped."""
    document = load(text, "p.yaml").data
    for _ in range(data.draw(st.integers(1, 4))):
        if _places(document):
            _change(data, document)

    assert _outcome(json.dumps(document))


@settings(max_examples=150, deadline=SECOND_MS)
@given(
    start=st.integers(0, len(ISSUES)),
    length=st.integers(0, 200),
    put=st.one_of(st.text(max_size=10), st.sampled_from(WORDS)),
)
def test_a_changed_text_is_a_plan_or_is_refused(start: int, length: int, put: str) -> None:
    """Wherever something is cut out or put in."""
    assert _outcome(ISSUES[:start] + put + ISSUES[start + length :])


@pytest.mark.parametrize(
    "tasks",
    [
        "".join(f" t{n}: {{run: x, needs: [{', '.join(f't{m}' for m in range(60))}]}}\n" for n in range(60)),
        "".join(f" t{n}: {{run: x, needs: [t{(n + 1) % 450}]}}\n" for n in range(450)),
        "".join(f" t{n}: {{run: x, needs: [t{n - 1}]}}\n" if n else " t0: {run: x}\n" for n in range(450)),
        "".join(
            f" t{n}: {{on_demand: true, run: x, outcomes: {{p: {{call: t{(n + 1) % 480}}}}}}}\n"
            for n in range(480)
        ),
        " a: {tasks: {b: {tasks: {c: {tasks: {d: {tasks: {e: {tasks: {f: {run: x}}}}}}}}}}}\n",
        " a: {run: x, outcomes: {pass: ok, "
        + ", ".join(f"o{n}: {{back_to: self}}" for n in range(45))
        + "}}\n",
    ],
    ids=["all need all", "one circle", "one chain", "calls in a circle", "deep groups", "many ways"],
)
def test_a_large_text_costs_little(tasks: str) -> None:
    """Less than the time that a person waits; the limit is that of the whole test run."""
    assert _outcome(f"language: 1\npipeline: p\ntasks:\n{tasks}", "p.yaml")
