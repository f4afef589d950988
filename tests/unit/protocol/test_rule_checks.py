"""Whether the parts of a step table make pipelines that end."""

from __future__ import annotations

from handoffd.errors import Problem
from handoffd.protocol.rule_merge import Layer, merge_layers
from handoffd.protocol.rulebook import check_merged

BASE = """\
steps:
  prepare: {next_on_pass: plan, next_on_fail: prepare}
  plan: {next_on_pass: build, next_on_fail: plan}
  build: {next_on_pass: done, next_on_fail: plan}
  custom: {next_on_pass: done, next_on_fail: custom}
pipelines:
  story: {bootstrap: prepare, first: plan}
  custom: {first: custom}
"""


def _problems(*texts: str, instructed: tuple[str, ...] = ()) -> list[Problem]:
    layers = [Layer(f"layer-{number}.yaml", text) for number, text in enumerate((BASE, *texts))]
    merged = merge_layers(layers)
    return [*merged.problems, *check_merged(merged, instructed)]


def _said(*texts: str, instructed: tuple[str, ...] = ()) -> list[str]:
    return [f"{p.file}:{p.line} {p.key}: {p.message}" for p in _problems(*texts, instructed=instructed)]


def test_a_sound_table_has_no_problems() -> None:
    """Every target exists and every step leads to done."""
    assert [] == _problems()


def test_an_unknown_target_of_a_pass_lists_the_steps_and_done() -> None:
    """The allowed values are the steps there are, and the end."""
    (problem,) = _problems("steps:\n  plan:\n    next_on_pass: biuld\n")

    assert ("layer-1.yaml", 3, "steps.plan.next_on_pass") == (problem.file, problem.line, problem.key)
    assert ("prepare", "plan", "build", "custom", "done") == problem.allowed


def test_an_unknown_target_of_a_failure_names_the_key_as_written() -> None:
    """A person who wrote next_on_fail looks for next_on_fail."""
    said = _said("steps: {plan: {next_on_fail: nowhere}, build: {on_fail: {nfr_missing: nowhere}}}")

    assert [
        "layer-1.yaml:1 steps.plan.next_on_fail: there is no step 'nowhere'",
        "layer-1.yaml:1 steps.build.on_fail.nfr_missing: there is no step 'nowhere'",
    ] == said


def test_a_failure_never_leads_to_done() -> None:
    """A story that failed is not finished."""
    (said,) = _said("steps: {plan: {on_fail: {scope_warning: done}}}")

    assert "cannot lead to done" in said


def test_a_circle_of_passes_is_blamed_on_the_layer_that_closed_it() -> None:
    """The table below was sound, so the upper value is the wrong one; there is one problem."""
    said = _said("steps:\n  build: {next_on_pass: plan}\n")

    assert ["layer-1.yaml:2 steps.build.next_on_pass: plan → build → plan never reaches done"] == said
    (smallest,) = _said("steps: {custom: {next_on_pass: custom}}")
    assert "custom → custom never reaches done" in smallest


def test_a_new_step_needs_routes_and_an_instruction() -> None:
    """All missing parts are named at once, at the step."""
    assert [
        "layer-1.yaml:1 steps.lint: the step has no next_on_pass",
        "layer-1.yaml:1 steps.lint: the step has no on_fail.default",
        "layer-1.yaml:1 steps.lint: a step that no person does needs a step_instruction",
    ] == _said("steps: {lint: {}}")


def test_a_new_step_may_have_its_instruction_as_text_or_template_or_be_a_persons() -> None:
    """Each of the three ways is enough."""
    step = "next_on_pass: done, next_on_fail: lint"

    assert [] == _said(f"steps: {{lint: {{{step}, step_instruction: {{en: Run the linter.}}}}}}")
    assert [] == _said(f"steps: {{lint: {{{step}}}}}", instructed=("lint",))
    assert [] == _said(f"steps: {{lint: {{{step}, requires_human: true}}}}")


def test_a_value_that_is_missing_because_it_was_wrong_is_one_problem() -> None:
    """Not two."""
    step = "{next_on_pass: 5, next_on_fail: [], step_instruction: text}"

    assert 3 == len(_problems(f"steps: {{lint: {step}}}"))


def test_a_pipeline_needs_a_first_step_that_exists() -> None:
    """Missing and unknown are two problems. Kinds of task are an open set."""
    assert [
        "layer-1.yaml:1 pipelines.a: the pipeline has no first step",
        "layer-1.yaml:1 pipelines.b.first: there is no step 'nowhere'",
        "layer-1.yaml:1 pipelines.c.bootstrap: there is no step 'nowhere'",
    ] == _said("pipelines: {a: {}, b: {first: nowhere}, c: {first: plan, bootstrap: nowhere}}")
    assert [] == _said("pipelines: {hotfix: {first: build}}")


def test_a_bootstrap_must_lead_into_its_pipeline() -> None:
    """Moving the first step without the bootstrap would send new projects another way than old ones."""
    assert [
        "layer-1.yaml:1 pipelines.story.first: passing prepare must lead to the first step, custom"
    ] == _said("pipelines: {story: {first: custom}}")


def test_the_pipelines_everything_relies_on_must_exist() -> None:
    """Stories and custom tasks always have a way to go."""
    merged = merge_layers([Layer("table.yaml", "steps: {a: {next_on_pass: done, next_on_fail: a}}")])

    problems = list(check_merged(merged, ()))

    assert ["pipelines.story", "pipelines.custom"] == [problem.key for problem in problems]


def test_a_misspelt_name_is_reported_once_and_never_offered() -> None:
    """Routes to a step whose name is wrong are not wrong themselves."""
    steps = "{plan: {next_on_pass: Lint}, Lint: {next_on_pass: build}, build: {next_on_fail: x}}"
    problems = _problems(f"steps: {steps}")

    assert ["steps.Lint", "steps.build.next_on_fail"] == [problem.key for problem in problems]
    assert "Lint" not in problems[1].allowed
