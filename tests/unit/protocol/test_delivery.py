"""What a task must hand over, what is made of what it did hand over, and the words for what is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handoffd.protocol.delivery import (
    MAX_OUT_BYTES,
    MOST_PROBLEMS,
    Delivered,
    NotReadable,
    OutFile,
    delivery_of,
    examined,
    inputs_of,
    json_in,
)
from handoffd.protocol.handoff import Handoff, Scalar
from handoffd.protocol.pipelines.loading import load_plan
from handoffd.protocol.plan import Task
from handoffd.protocol.rules import Delivery, Rule
from handoffd.protocol.state import Reason, Status

PIPELINE = """\
language: 1
pipeline: p
params: {least: {type: integer, default: 2}}
roles: {w: {executor: claude}}
tasks:
  a:
    agent: w
    fields: {score: {minimum: 0, maximum: 10}, calm: {type: boolean}, mode: {type: text}, cost: {}}
    out:
      plan: {path: plan.json, schema: tasks/1}
      role: {path: sub/role.yaml, schema: role/1}
      text: notes.md
      raw: raw.json
    compute: {twice: "fields.score * 2"}
    checks:
      - "size(out.plan.tasks) >= params.least"
      - "twice > 1"
      - "out.text.bytes < 1000 && out.text.lines > 0"
    outcomes: {ready: ok, Needs_work: {back_to: self}, scope_warning: hold, failed: warn}
  b: {agent: w, verdict: [{if: "fields.n > 1", then: many}, {else: few}], fields: {n: {minimum: 0}},
      outcomes: {many: ok, few: ok}}
  c: {agent: w, outcomes: {left: ok, right: ok, up: drop}}
  d: {ask: "Which?", timeout: never, outcomes: {one: ok}}
  e: {run: make, outcomes: {pass: ok}}
  f: {agent: w, outcomes: {done: ok, other: warn}}
""".replace("Needs_work", "needs_work")

TASKS: Mapping[str, Task] = load_plan(PIPELINE, "p.yaml").plan.root.tasks
SCHEMAS: Mapping[str, Any] = {
    "tasks/1": {
        "type": "object",
        "required": ["tasks"],
        "properties": {"tasks": {"type": "array", "items": {"type": "object", "required": ["id"]}}},
    },
    "role/1": {"type": "object", "required": ["name"]},
}
FILES: Mapping[str, bytes] = {
    "plan.json": b'{"tasks": [{"id": "a"}, {"id": "b"}]}',
    "sub/role.yaml": b"name: helper\n",
    "notes.md": b"# Notes\n",
    "raw.json": b"[1]",
}
FIELDS: Mapping[str, Scalar] = {"score": 7.0, "calm": True, "mode": "full", "cost": 1.5}
VALUES = {"params.least": 2}


def asked(name: str = "a") -> Delivery:
    """Return what a task must hand over."""
    delivery = delivery_of(TASKS[name])
    assert delivery is not None
    return delivery


def look(
    name: str = "a",
    files: Mapping[str, bytes | None] = {},
    *,
    fields: Mapping[str, Scalar] = FIELDS,
    status: Status = Status.PASS,
    **said: Any,
) -> Delivered:
    """Return what is made of a hand-off, by default a good one of task `a` that claims `ready`."""
    claim = {"outcome": "ready"} if name == "a" else {}
    handoff = Handoff.model_validate({"status": status, "fields": fields, **claim, **said})
    return examined(asked(name), handoff, {**FILES, **files}.get, SCHEMAS.get, VALUES)


# --- what is asked for --------------------------------------------------------------------------------
def test_a_task_is_asked_for_what_its_pipeline_declares() -> None:
    """Its outcomes without the implicit ones, its fields, files and checks."""
    delivery = asked()

    assert ("ready", "needs_work", "scope_warning") == delivery.outcomes
    assert "ready" == delivery.usual
    assert ["score", "calm", "mode", "cost"] == [*delivery.fields]
    assert ("plan.json", "tasks/1") == (delivery.out["plan"].path, delivery.out["plan"].schema_id)
    assert ("params.least",) == inputs_of(delivery)
    assert (True, None) == (asked("b").verdict, asked("c").usual)
    assert [one.outcome for one in TASKS["b"].verdict] == [one.outcome for one in asked("b").rows]
    assert {*delivery.outcomes} == {*delivery.leads}
    assert delivery_of(TASKS["d"]) is None
    assert "pass" == asked("e").usual


def test_it_is_kept_in_the_rule_of_a_step() -> None:
    """And read from there as it was."""
    rule = Rule(next_on_pass="done", on_fail={"default": "a"}, delivers=asked())

    assert rule == Rule.model_validate(json.loads(rule.model_dump_json()))
    assert examined(
        Rule.model_validate_json(rule.model_dump_json()).delivers or asked("c"),
        Handoff(status=Status.PASS, outcome="ready", fields=FIELDS), FILES.get, SCHEMAS.get, VALUES,
    ) == look()  # fmt: skip


# --- what is good -------------------------------------------------------------------------------------
def test_what_is_complete_has_no_problem() -> None:
    """Outcome, fields, and each file with its digest and size."""
    done = look()

    assert ((), "ready") == (done.problems, done.outcome)
    assert FIELDS == done.fields
    assert ["plan", "role", "text", "raw"] == [file.name for file in done.files]
    assert done.files[0] == OutFile(
        name="plan", path="plan.json", sha256=sha256(FILES["plan.json"]).hexdigest(),
        bytes=len(FILES["plan.json"]), schema="tasks/1",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ({"outcome": "Needs work"}, "needs_work"), ({"outcome": "needs-work"}, "needs_work"),
        ({"outcome": None}, "ready"), ({"outcome": "pass"}, "ready"), ({"outcome": "done"}, "ready"),
        ({"status": Status.FAILING, "outcome": None}, None),
        ({"status": Status.FAILING, "outcome": "ready"}, "ready"),
        ({"status": Status.FAILING, "outcome": None, "reason": Reason.SCOPE_WARNING}, "scope_warning"),
        ({"status": Status.FAILING, "outcome": None, "reason": Reason.TEST_TIMEOUT}, None),
        ({"status": Status.NEEDS_HUMAN, "outcome": "other"}, None),
    ],
)  # fmt: skip
def test_an_outcome_is_claimed_by_name_or_follows(said: dict[str, Any], outcome: str | None) -> None:
    """Also by the reason of a failure; of near misses, the one that is meant."""
    done = look(**said)

    assert (outcome, ()) == (done.outcome, done.problems)


def test_with_a_verdict_a_claim_is_kept_and_not_needed() -> None:
    """Whatever it says."""
    assert (None, ()) == ((done := look("b", fields={"n": 3.0})).outcome, done.problems)
    assert ("great", ()) == ((done := look("b", fields={"n": 3.0}, outcome="great")).outcome, done.problems)


@pytest.mark.parametrize(
    ("given_as", "read_as"),
    [
        ({"score": "8/10"}, {"score": 8.0}),
        ({"score": "8 out of 10"}, {"score": 8.0}),
        ({"score": "7.5%"}, {"score": 7.5}),
        ({"calm": "Yes"}, {"calm": True}),
        ({"calm": 0.0}, {"calm": False}),
        ({"mode": 7.0}, {"mode": "7"}),
        ({"mode": True}, {"mode": "true"}),
        ({"extra": "x"}, {"extra": "x"}),
    ],
)
def test_a_field_is_read_as_its_declared_kind(
    given_as: dict[str, Scalar], read_as: dict[str, Scalar]
) -> None:
    """Near misses are understood, others are kept as they are."""
    done = look(fields={**FIELDS, **given_as})

    assert ({**FIELDS, **read_as}, ()) == (done.fields, done.problems)


def test_a_field_may_be_spelt_a_little_differently() -> None:
    """It is known by its declared name then."""
    done = look(fields={"Score": 7.0, "CALM": True, "mode": "full", "cost": 1.5})

    assert (FIELDS, ()) == (done.fields, done.problems)


def test_of_work_that_is_not_complete_what_fits_is_taken() -> None:
    """The rest is left out without a word."""
    done = look(status=Status.FAILING, files={"plan.json": b"{", "raw.json": None}, fields={"score": 99.0})

    assert () == done.problems
    assert {} == done.fields
    assert ["role", "text"] == [file.name for file in done.files]
    assert () == look(question="Which?", fields={}, files=dict.fromkeys(FILES)).problems


# --- what is wrong ------------------------------------------------------------------------------------
WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"outcome": "great"},
     [".ai/HANDOFF.md: outcome: there is no outcome 'great': write one of ready, needs_work, scope_warning"]),
    ({"outcome": "failed"},
     [".ai/HANDOFF.md: outcome: there is no outcome 'failed': write one of ready, needs_work, scope_warning;"
      " work that is not complete has the status failing"]),
    ({"fields": {**FIELDS, "score": 11.0}},
     [".ai/HANDOFF.md: fields.score: must be a number from 0 to 10, not 11"]),
    ({"fields": {**FIELDS, "calm": "maybe", "cost": "much"}},
     ['.ai/HANDOFF.md: fields.calm: must be true or false, not "maybe"',
      '.ai/HANDOFF.md: fields.cost: must be a number, not "much"']),
    ({"fields": {"calm": True, "cost": 1.0}},
     [".ai/HANDOFF.md: fields.score: is missing: write a number from 0 to 10",
      ".ai/HANDOFF.md: fields.mode: is missing: write a text"]),
    ({"files": {"plan.json": None, "notes.md": b" \n"}},
     [".ai/out/plan.json: is missing: write this file, which fits the schema tasks/1",
      ".ai/out/notes.md: is empty"]),
    ({"files": {"plan.json": b'{"tasks": [{},\n}'}},
     [".ai/out/plan.json: is not JSON: Expecting value (line 2, column 1)"]),
    ({"files": {"plan.json": b'{"tasks": [{}, 1, {}, {}, {}, {}, {}]}'}},
     ['.ai/out/plan.json: /tasks/0 needs the key "id" (schema tasks/1)',
      ".ai/out/plan.json: /tasks/1 must be an object, not 1 (schema tasks/1)",
      '.ai/out/plan.json: /tasks/2 needs the key "id" (schema tasks/1)',
      '.ai/out/plan.json: /tasks/3 needs the key "id" (schema tasks/1)',
      '.ai/out/plan.json: /tasks/4 needs the key "id" (schema tasks/1)',
      ".ai/out/plan.json: … and there is more that does not fit"]),
    ({"files": {"plan.json": b'{"tasks": [{"id": "a"}]}'}},
     ["check 'size(out.plan.tasks) >= params.least' does not hold:"
      " out.plan is {'tasks': [{'id': 'a'}]}, params.least is 2"]),
    ({"files": {"sub/role.yaml": b"name: [", "raw.json": b"nope", "notes.md": b"x" * 1001}},
     [".ai/out/sub/role.yaml: cannot be read as YAML:"
      " while parsing a flow node did not find expected node content (line 2)",
      ".ai/out/raw.json: is not JSON: Expecting value (line 1, column 1)",
      "check 'out.text.bytes < 1000 && out.text.lines > 0' does not hold:"
      " out.text is {'bytes': 1001, 'lines': 1}"]),
]  # fmt: skip


@pytest.mark.parametrize(("said", "told"), WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_what_is_wrong_is_told_for_the_next_attempt(said: dict[str, Any], told: list[str]) -> None:
    """Every problem at once, each with its file and key, what is allowed, and what was found."""
    assert told == [*look(**said).problems]


def test_an_outcome_must_be_claimed_where_several_are_good() -> None:
    """Nothing says which one it is."""
    assert (".ai/HANDOFF.md: outcome: is missing: write one of left, right, up",) == look("c").problems
    assert ("done", ()) == ((done := look("f")).outcome, done.problems)


def test_a_schema_that_is_not_there_is_told() -> None:
    """The file is not taken."""
    done = examined(
        asked(), Handoff(status=Status.PASS, fields=FIELDS), FILES.get, dict[str, Any]().get, VALUES
    )

    assert (
        ".ai/out/plan.json: cannot be checked: there is no schema tasks/1",
        ".ai/out/sub/role.yaml: cannot be checked: there is no schema role/1",
    ) == done.problems
    assert ["text", "raw"] == [file.name for file in done.files]


def test_a_check_without_a_value_is_told() -> None:
    """It never counts as true."""
    handoff = Handoff(status=Status.PASS, fields=FIELDS)

    (told,) = examined(asked(), handoff, FILES.get, SCHEMAS.get, {}).problems

    assert told.startswith("check 'size(out.plan.tasks) >= params.least' has no value: ")


def test_problems_are_limited_in_number_and_length() -> None:
    """The last line counts the rest."""
    delivery = Delivery.model_validate({"fields": {f"f{at}": {} for at in range(64)}})
    done = examined(delivery, Handoff(status=Status.PASS), FILES.get, SCHEMAS.get, {})
    long = look(outcome="x" * 2000)

    assert MOST_PROBLEMS == len(done.problems)
    assert "… and 35 more" == done.problems[-1]
    assert max(map(len, long.problems)) <= 500


# --- what JSON is taken -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"a": 1, "b": 2, "a": 3}', 'has the key "a" twice in one object'),
        (b"[NaN]", "has NaN, which is not JSON"),
        (b"[-Infinity]", "has -Infinity, which is not JSON"),
        (b"[1e999]", "has the number 1e999, which is too large"),
        (b"9" * 400, f"has the number {'9' * 40}…, which is too large"),
        (b"[" * 33 + b"]" * 33, "has more than 32 lists and objects in each other"),
        (b"[" * 1_000_000, "has more than 32 lists and objects in each other"),
        (b'{\n"a": "\xff"}', "is not UTF-8 (line 2)"),
        (b'"\\ud800"', "has half of a character: \\ud800 to \\udfff belong in pairs"),
    ],
)
def test_json_that_readers_understand_differently_is_refused(content: bytes, why: str) -> None:
    """Each with the reason."""
    with pytest.raises(NotReadable) as refused:
        json_in(content)

    assert why == str(refused.value)


def test_json_is_read_as_it_was_meant() -> None:
    """Also behind a byte order mark, as deep as is allowed, with characters in pairs."""
    assert {"a": [1, 2.5, None, True, "\U0001f600"]} == json_in(
        b'\xef\xbb\xbf{"a": [1, 2.5, null, true, "\\ud83d\\ude00"]}'
    )
    assert isinstance(json_in(b"[" * 32 + b"]" * 32), list)


def test_a_file_that_is_too_large_is_not_read() -> None:
    """However it goes on."""
    assert (".ai/out/raw.json: is larger than 4 MiB",) == look(
        files={"raw.json": b"[" + b" " * MAX_OUT_BYTES}
    ).problems


# --- whatever an agent writes -------------------------------------------------------------------------
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["tasks", "id", "x"]), inner),
    max_leaves=12,
)
CONTENT = st.none() | st.binary() | st.builds(lambda value: json.dumps(value).encode(), JSON)
SCALARS = st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.text()


@settings(max_examples=300, deadline=None)
@given(
    st.fixed_dictionaries(dict.fromkeys(FILES, CONTENT)),
    st.dictionaries(st.sampled_from(["score", "Calm", "mode", "cost"]) | st.text(), SCALARS),
    st.none() | st.text(),
    st.sampled_from([None, Status.PASS, Status.FAILING, Status.NEEDS_HUMAN]),
    st.dictionaries(st.just("params.least"), JSON),
)
def test_nothing_that_an_agent_writes_is_raised(
    files: dict[str, bytes | None],
    fields: dict[str, Scalar],
    outcome: str | None,
    status: Any,
    values: dict[str, Any],
) -> None:
    """Each problem is one short line, and what is taken fits."""
    handoff = Handoff(status=status, fields=fields, outcome=outcome)

    done = examined(asked(), handoff, files.get, SCHEMAS.get, values)

    assert all(0 < len(one) <= 500 for one in done.problems)
    assert {file.path for file in done.files} <= {path for path, content in files.items() if content}
    assert done.outcome in {None, *asked().outcomes}
