"""What `gates` makes of the step table, over each preset and over own tables; and where a story stops."""

from __future__ import annotations

from typing import get_args

import pytest

from handoffd.errors import InvalidFile
from handoffd.inspection.own_files import shipped_layers
from handoffd.protocol.rule_merge import Layer
from handoffd.protocol.rulebook import build_rulebook, explain, merge_trusted
from handoffd.protocol.rules import Gate, Gates, RuleBook, next_gate

OWN = ".ai/step-rules.yaml"
PRESETS = (None, "default", "go", "web", "with-commit")
PAPERS, CODE = ("bootstrap", "bdd", "sdd-delta", "contract"), ("scaffold", "impl", "verify")
REVIEW, ACCEPTANCE = "review", "acceptance"
HUMAN: dict[Gates, tuple[str, ...]] = {
    "before": (REVIEW,),
    "after": (ACCEPTANCE,),
    "both": (REVIEW, ACCEPTANCE),
    "none": (),
}


def book(gates: Gates, own: str = "", preset: str | None = None) -> RuleBook:
    """Return the table of a project with a preset and a table of its own."""
    layers = (*shipped_layers(preset), *((Layer(OWN, own),) if own else ()))
    return build_rulebook(layers, gates=gates)


def problems(gates: Gates, own: str) -> list[str]:
    """Return what is wrong with a table of its own under `gates`."""
    with pytest.raises(InvalidFile) as caught:
        book(gates, own)
    return [str(problem) for problem in caught.value.problems]


# --- the way of a story -------------------------------------------------------------------------------
@pytest.mark.parametrize("gates", get_args(Gates))
@pytest.mark.parametrize("preset", PRESETS)
def test_a_story_comes_to_the_gates_that_are_wanted_and_to_no_other(preset: str | None, gates: Gates) -> None:
    """Whatever preset is below; the acceptance comes right behind the quality gate."""
    rules = book(gates, preset=preset)
    end = ("commit", "update-memory") if preset == "with-commit" else ("update-memory",)
    review, acceptance = (tuple(one for one in HUMAN[gates] if one == step) for step in (REVIEW, ACCEPTANCE))

    assert (*PAPERS, *review, *CODE, *acceptance, *end) == rules.path("story")
    assert HUMAN[gates] == tuple(step for step in rules.path("story") if rules.steps[step].requires_human)
    assert ("custom", "update-memory") == rules.path("custom")
    assert gates == rules.gates
    assert ({} if review else {"contract": REVIEW}) == dict(rules.passed_over)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_default_is_the_table_as_it_is(preset: str | None) -> None:
    """`before` changes nothing, whether the settings name it or not."""
    assert build_rulebook(shipped_layers(preset)) == book("before", preset=preset)


@pytest.mark.parametrize(
    ("gates", "expected"),
    [("after", ("impl", "bdd", "sdd-delta", "impl")), ("both", ("impl", "review", "sdd-delta", "impl"))],
)
def test_a_rejected_acceptance_leads_back_by_its_reason(gates: Gates, expected: tuple[str, ...]) -> None:
    """To the code if the table has no other route; what is unclear goes to the review, if there is one."""
    on_fail = book(gates).steps[ACCEPTANCE].on_fail

    reasons = ("default", "needs_clarification", "constitution_violation", "scope_warning")
    assert expected == tuple(on_fail[reason] for reason in reasons)


@pytest.mark.parametrize("gates", ["after", "none"])
def test_what_an_agent_asks_at_the_code_is_asked_there_if_there_is_no_review(gates: Gates) -> None:
    """A question has no route then, so a person is asked; all else goes where it went."""
    on_fail = book(gates).steps["impl"].on_fail

    assert {"default": "impl", "constitution_violation": "sdd-delta"} == dict(on_fail)
    asked = "steps: {impl: {on_fail: {scope_warning: review}}}"
    assert REVIEW == book(gates, asked).steps["impl"].on_fail["scope_warning"]


@pytest.mark.parametrize("gates", get_args(Gates))
def test_a_story_that_waits_at_a_gate_finds_it_whatever_gates_is_by_then(gates: Gates) -> None:
    """Both stay human steps of the table, so that a decision has a place to lead to."""
    steps = book(gates).steps

    assert {True} == {steps[step].requires_human for step in (REVIEW, ACCEPTANCE)}
    assert ("scaffold", "update-memory") == (steps[REVIEW].next_on_pass, steps[ACCEPTANCE].next_on_pass)


# --- with a table of the project's own ----------------------------------------------------------------
def test_gates_are_laid_over_what_a_projects_own_table_makes() -> None:
    """A step of its own behind the quality gate, and one before the review, keep their places."""
    own = """\
steps:
  contract: {next_on_pass: threats}
  threats: {next_on_pass: review, next_on_fail: contract, step_instruction: {en: Look for threats.}}
  verify: {next_on_pass: audit}
  audit: {next_on_pass: update-memory, next_on_fail: impl, step_instruction: {en: Audit it.}}
"""
    before = (*PAPERS[1:], "threats")
    after = ("audit", "update-memory")

    assert (*before, *CODE, ACCEPTANCE, *after) == book("after", own).path_from("story", "bdd")
    assert (*before, *CODE, *after) == book("none", own).path_from("story", "bdd")
    assert {"threats": REVIEW} == dict(book("none", own).passed_over)


def test_the_projects_own_table_says_where_the_acceptance_is_and_where_it_leads() -> None:
    """What is set there of the step stays; the rest is as it ships."""
    placed = """\
steps:
  verify: {next_on_pass: audit}
  audit: {next_on_pass: acceptance, next_on_fail: impl, step_instruction: {en: Audit it.}}
  acceptance: {on_fail: {needs_clarification: sdd-delta}, display_name: {en: Sign-off}}
"""
    for gates in ("after", "both"):
        rules = book(gates, placed)
        assert (*CODE, "audit", ACCEPTANCE, "update-memory") == rules.path("story")[-6:]
        assert "sdd-delta" == rules.steps[ACCEPTANCE].on_fail["needs_clarification"]
        assert "Sign-off" == rules.steps[ACCEPTANCE].display_name["en"]
    last = "steps: {acceptance: {next_on_pass: done}}"
    assert ("verify", ACCEPTANCE) == book("after", last).path("story")[-2:]
    assert [f"{OWN}:1: steps.acceptance.next_on_pass: verify → acceptance → verify never reaches done"] == (
        problems("after", "steps: {acceptance: {next_on_pass: verify}}")
    )


def test_a_short_table_has_its_acceptance_behind_the_last_step_of_work() -> None:
    """Where a story does not come to `verify`."""
    own = "steps: {bdd: {next_on_pass: impl}, impl: {next_on_pass: update-memory}}"
    assert ("bdd", "impl", ACCEPTANCE, "update-memory") == book("after", own).path_from("story", "bdd")
    shorter = "steps: {bdd: {next_on_pass: review}, review: {next_on_pass: done}}"
    assert ("bdd", ACCEPTANCE) == book("after", shorter).path_from("story", "bdd")
    assert ("bdd",) == book("none", shorter).path_from("story", "bdd")


def test_human_steps_of_other_names_are_the_projects_own() -> None:
    """`gates` is about two steps, and about a review only where a person does it."""
    own = """\
steps:
  contract: {next_on_pass: sign}
  sign: {next_on_pass: review, next_on_fail: bdd, requires_human: true}
"""
    assert ("contract", "sign", "scaffold") == book("none", own).path("story")[3:6]
    by_an_agent = "steps: {review: {requires_human: false, step_instruction: {en: Review it.}}}"
    assert REVIEW in book("after", by_an_agent).path("story")
    first = """\
steps: {review: {next_on_pass: bdd}, contract: {next_on_pass: scaffold}}
pipelines: {story: {first: review, bootstrap: null}}
"""
    assert "bdd" == book("after", first).path("story")[0]


@pytest.mark.parametrize(
    ("gates", "own", "expected"),
    [
        (
            "both",
            "steps:\n  review: {requires_human: false, step_instruction: {en: Look.}}",
            "2: steps.review.requires_human: with `gates: both` a person decides at review (allowed: true)",
        ),
        (
            "after",
            "steps:\n  acceptance:\n    requires_human: false",
            "3: steps.acceptance.requires_human: with `gates: after` a person decides at acceptance"
            " (allowed: true)",
        ),
        (
            "none",
            "steps:\n  review: {requires_human: true}",
            "2: steps.review.requires_human: with `gates: none` no person decides at review"
            " (allowed: gates: before, gates: both)",
        ),
        (
            "none",
            "steps:\n  verify: {next_on_pass: acceptance}",
            "2: steps.verify.next_on_pass: with `gates: none` no person decides at acceptance"
            " (allowed: gates: after, gates: both)",
        ),
        (
            "both",
            "steps:\n  contract: {next_on_pass: scaffold}",
            "2: steps.contract.next_on_pass: with `gates: both` a story must come to review"
            " (allowed: review)",
        ),
    ],
)
def test_what_contradicts_gates_is_one_error_at_its_place(gates: Gates, own: str, expected: str) -> None:
    """With file, line, key and what is allowed."""
    assert [f"{OWN}:{expected}"] == problems(gates, own)
    assert "before" == book("before", own).gates


def test_a_broken_table_is_reported_as_ever() -> None:
    """`gates` adds nothing to what is wrong already."""
    for own in (
        "steps: {review: {next_on_pass: nowhere}}",
        "steps: {verify: {next_on_pass: 3}}",
        "steps: []",
    ):
        assert 1 == len({tuple(problems(gates, own)) for gates in get_args(Gates)})


def test_the_origin_of_what_gates_has_set_is_the_settings() -> None:
    """`rules show` names the file."""
    found = {one.dotted: (one.value, one.file) for one in explain(shipped_layers(None), gates="after")}

    assert (ACCEPTANCE, ".ai/handoffd.yaml") == found["steps.verify.next_on_pass"]
    assert ("scaffold", ".ai/handoffd.yaml") == found["steps.contract.next_on_pass"]
    assert ("update-memory", "config/step-rules.yaml") == found["steps.commit.next_on_pass"]


def test_an_edit_of_the_table_takes_no_gate_away() -> None:
    """A change of what leads to a gate, or of the gate, waits for a person."""
    trusted = book("after")
    for edit in (
        "steps: {verify: {next_on_pass: update-memory}, acceptance: {next_on_pass: done}}",
        "steps: {acceptance: {on_fail: {default: verify}}}",
    ):
        merged, held = merge_trusted(book("after", edit), trusted)
        assert trusted == merged
        assert any(key.startswith("steps.acceptance.") for key in held)


# --- where a story stops ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("gates", "step", "expected"),
    [
        ("before", None, Gate(step=REVIEW, before_code=True)),
        ("before", "review", Gate(step=REVIEW, before_code=True)),
        ("before", "scaffold", None),
        ("after", None, Gate(step=ACCEPTANCE, before_code=False)),
        ("after", "bootstrap", Gate(step=ACCEPTANCE, before_code=False)),
        ("after", "impl", Gate(step=ACCEPTANCE, before_code=False)),
        ("after", "review", Gate(step=REVIEW, before_code=True)),
        ("both", "bdd", Gate(step=REVIEW, before_code=True)),
        ("both", "scaffold", Gate(step=ACCEPTANCE, before_code=False)),
        ("none", None, None),
        ("before", "done", None),
    ],
)
def test_where_a_story_stops_next(gates: Gates, step: str | None, expected: Gate | None) -> None:
    """The step at which it is counts, too; one off the way is a stop where it is."""
    assert expected == next_gate(book(gates), step=step)
    assert next_gate(book(gates), "custom") is None


def test_a_pipeline_without_tested_steps_has_no_code_to_stop_before() -> None:
    """What its person decides about is all there is."""
    way = "steps: {review: {next_on_pass: update-memory}}"
    assert Gate(step=REVIEW, before_code=False) == next_gate(book("before", way))
