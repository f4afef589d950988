"""Layers of a step table, laid over each other key by key, and what single values are accepted."""

from __future__ import annotations

import json

import pytest

from handoffd.protocol.rule_merge import (
    RULEBOOK,
    Family,
    Layer,
    Leaf,
    Merged,
    Table,
    Wrong,
    merge_layers,
    wrong_name,
    wrong_path,
)
from handoffd.protocol.rulebook import build_rulebook
from handoffd.protocol.rules import commands_of

# --- layers ------------------------------------------------------------------------------------------
BASE = """\
steps:
  impl:
    display_name: {en: Implementation, zh-TW: 實作}
    next_on_pass: verify
    on_fail: {default: impl, scope_warning: review}
    max_attempts: 5
    claude_reads: [a.md, b.md]
    post_check: make lint
"""


def _merged(*texts: str) -> Merged:
    return merge_layers([Layer(f"layer-{number}.yaml", text) for number, text in enumerate(texts)])


def _said(*texts: str) -> list[str]:
    return [str(problem) for problem in _merged(*texts).problems]


def test_an_upper_layer_changes_only_the_keys_it_names() -> None:
    """Everything else of the step stays as it was below."""
    merged = _merged(BASE, "steps: {impl: {max_attempts: 2}}")

    assert 2 == merged.value("steps", "impl", "max_attempts")
    assert "verify" == merged.value("steps", "impl", "next_on_pass")


def test_mappings_are_merged_and_lists_replaced() -> None:
    """A route or a translation is added to the others; a list of files is a new list."""
    merged = _merged(
        BASE, "steps: {impl: {on_fail: {nfr_missing: bdd}, display_name: {en: Build}, claude_reads: [c.md]}}"
    )

    assert "review" == merged.value("steps", "impl", "on_fail", "scope_warning")
    assert "bdd" == merged.value("steps", "impl", "on_fail", "nfr_missing")
    assert "實作" == merged.value("steps", "impl", "display_name", "zh-TW")
    assert ("c.md",) == merged.value("steps", "impl", "claude_reads")


def test_next_on_fail_is_short_for_the_default_route() -> None:
    """The routes by reason stay."""
    merged = _merged(BASE, "steps: {impl: {next_on_fail: bdd}}")

    assert "bdd" == merged.value("steps", "impl", "on_fail", "default")
    assert "review" == merged.value("steps", "impl", "on_fail", "scope_warning")
    assert ("steps", "impl", "next_on_fail") == merged.settings["steps", "impl", "on_fail", "default"].written


def test_next_on_fail_beside_a_default_route_is_refused() -> None:
    """Which of the two was meant cannot be known."""
    (said,) = _said("steps: {impl: {on_fail: {default: a}, next_on_fail: b}}")

    assert "keep one" in said


def test_null_takes_back_what_a_lower_layer_set() -> None:
    """A check and a route can be removed; null is then the value."""
    merged = _merged(BASE, "steps: {impl: {post_check: null, on_fail: {scope_warning: null}}}")

    assert merged.settings["steps", "impl", "post_check"].value is None
    assert merged.settings["steps", "impl", "on_fail", "scope_warning"].value is None


ONE, TWO, NONE = "make lint", {"lint": "ruff check", "types": "mypy"}, None


@pytest.mark.parametrize(
    ("below", "above", "expected"),
    [
        (ONE, TWO, TWO),
        (TWO, ONE, ONE),
        (TWO, NONE, NONE),
        (NONE, TWO, TWO),
        (TWO, {"types": "pyright"}, {"lint": "ruff check", "types": "pyright"}),
        (TWO, {"docs": "make docs"}, TWO | {"docs": "make docs"}),
        (TWO, {"lint": None}, {"types": "mypy"}),
        (TWO, {"lint": None, "types": None}, NONE),
        (TWO, {}, TWO),
        (ONE, {}, ONE),
        (ONE, {"lint": None}, ONE),
        (ONE, {"types": "mypy", "lint": None}, {"types": "mypy"}),
    ],
)
def test_checks_are_merged_by_name_as_other_mappings(below: object, above: object, expected: object) -> None:
    """A single command and named ones replace each other; null takes out one name, or everything."""
    rule = {"next_on_pass": "done", "on_fail": {"default": "impl"}}
    tables = [
        {
            "steps": {"impl": rule | {"post_check": below}},
            "pipelines": {"story": {"first": "impl"}, "custom": {"first": "impl"}},
        },
        {"steps": {"impl": {"post_check": above}}},
    ]
    layers = [Layer(f"layer-{number}.yaml", json.dumps(table)) for number, table in enumerate(tables)]

    built = build_rulebook(layers).steps["impl"].post_check

    assert expected == built
    if isinstance(expected, dict):
        assert list(expected) == [name for name, _ in commands_of(built)]


def test_every_value_knows_its_file_and_line() -> None:
    """The topmost layer that set a value is its origin."""
    merged = _merged(BASE, "steps:\n  impl:\n    max_attempts: 2\n")

    changed = merged.settings["steps", "impl", "max_attempts"]
    kept = merged.settings["steps", "impl", "post_check"]
    assert ("layer-1.yaml", 3) == (changed.file, changed.line)
    assert ("layer-0.yaml", 8) == (kept.file, kept.line)


@pytest.mark.parametrize("text", ["", "# nothing\n", "steps: {}\n"])
def test_an_empty_layer_changes_nothing(text: str) -> None:
    """A file of comments alone is a valid layer."""
    assert _merged(BASE).settings == _merged(BASE, text).settings


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("[]", None, "must be a mapping"),
        ("extra: 1", "extra", "unknown key"),
        ("steps: [impl]", "steps", "must be a mapping"),
        ("steps: {impl: 3}", "steps.impl", "must be a mapping"),
        ("steps: {impl: {max_atempts: 3}}", "steps.impl.max_atempts", "unknown key"),
        ("steps: {impl: {max_attempts: 0}}", "steps.impl.max_attempts", "from 1 to 100"),
        ("steps: {impl: {max_attempts: 101}}", "steps.impl.max_attempts", "from 1 to 100"),
        ("steps: {impl: {max_attempts: 1.5}}", "steps.impl.max_attempts", "whole number"),
        ("steps: {impl: {max_attempts: true}}", "steps.impl.max_attempts", "whole number"),
        ("steps: {impl: {max_attempts: '3'}}", "steps.impl.max_attempts", "whole number"),
        ("steps: {impl: {timeout_min: -1}}", "steps.impl.timeout_min", "from 0"),
        ("steps: {impl: {timeout_min: 1e999}}", "steps.impl.timeout_min", "from 0"),
        ("steps: {impl: {post_check_timeout_s: 0}}", "steps.impl.post_check_timeout_s", "above 0"),
        ("steps: {impl: {requires_human: yes}}", "steps.impl.requires_human", "true, false"),
        ("steps: {impl: {tests: yellow}}", "steps.impl.tests", "red, green"),
        ("steps: {impl: {tests: [red]}}", "steps.impl.tests", "unknown value"),
        ("steps: {impl: {on_fail: impl}}", "steps.impl.on_fail", "must be a mapping"),
        ("steps: {impl: {on_fail: {tired: impl}}}", "steps.impl.on_fail.tired", "nfr_missing"),
        ("steps: {impl: {on_fail: {default: null}}}", "steps.impl.on_fail.default", "name of a step"),
        ("steps: {impl: {next_on_pass: 5}}", "steps.impl.next_on_pass", "name of a step"),
        ("steps: {impl: {claude_reads: a.md}}", "steps.impl.claude_reads", "must be a list"),
        ("steps: {impl: {claude_reads: [a.md, /b]}}", "steps.impl.claude_reads.1", "inside the project"),
        ("steps: {impl: {claude_reads: ['!a']}}", "steps.impl.claude_reads.0", "claude_writes"),
        ("steps: {impl: {post_check: [ls]}}", "steps.impl.post_check", "shell command"),
        ("steps: {impl: {post_check: ''}}", "steps.impl.post_check", "shell command"),
        ("steps: {impl: {post_check: {lint: 3}}}", "steps.impl.post_check.lint", "shell command"),
        ("steps: {impl: {post_check: {lint: ['x']}}}", "steps.impl.post_check.lint", "shell command"),
        ("steps: {impl: {post_check: {Lint: x}}}", "steps.impl.post_check.Lint", "cannot name a check"),
        ("steps: {impl: {post_check: {a/b: x}}}", "steps.impl.post_check.a/b", "small letters"),
        (
            f"steps: {{impl: {{post_check: {{{', '.join(f'c{n}: x' for n in range(11))}}}}}}}",
            "steps.impl.post_check",
            "has 11 entries; at most 10 are allowed",
        ),
        ("steps: {impl: {display_name: {fr: Codage}}}", "steps.impl.display_name.fr", "zh-TW"),
        ("steps: {impl: {step_instruction: do it}}", "steps.impl.step_instruction", "must be a mapping"),
        ("steps: {impl: {dispatch_mode: {S: many}}}", "steps.impl.dispatch_mode.S", "single, auto, team"),
        ("steps: {impl: {team_roles: {A: {}}}}", "steps.impl.team_roles.A", "team role"),
        ("steps: {Impl: {}}", "steps.Impl", "cannot name a step"),
        ("pipelines: {story: {frist: impl}}", "pipelines.story.frist", "first, bootstrap"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_its_key(text: str, key: str | None, message: str) -> None:
    """The problem names file, line, key and what would have been right."""
    (problem,) = _merged(text).problems

    assert ("layer-0.yaml", 1, key) == (problem.file, problem.line, problem.key)
    assert message in str(problem)


def test_a_wrong_value_is_left_out_and_remembered() -> None:
    """What depends on it is not reported as missing."""
    merged = _merged("steps: {impl: {next_on_pass: 5, next_on_fail: 6}}")

    assert merged.value("steps", "impl", "next_on_pass") is None
    assert merged.is_spoiled(("steps", "impl", "next_on_pass"))
    assert merged.is_spoiled(("steps", "impl", "on_fail", "default"))


def test_a_layer_that_is_no_yaml_does_not_hide_problems_of_the_others() -> None:
    """Every layer is read, whatever the one before it was like."""
    merged = _merged("steps: {", "steps: {impl: {tests: yellow}}")

    assert merged.unreadable
    assert ["layer-0.yaml", "layer-1.yaml"] == [problem.file for problem in merged.problems]


def test_more_steps_than_anyone_needs_are_refused() -> None:
    """The table's size is bounded."""
    steps = "\n".join(f"  step{number}: {{}}" for number in range(201))

    (said,) = _said(f"steps:\n{steps}\n")

    assert "at most 200" in said


# --- single values -----------------------------------------------------------------------------------
def _executors(value: object) -> Wrong | None:
    rule = _steps().member
    assert isinstance(rule, Table)
    leaf = rule.keys["executor"]
    assert isinstance(leaf, Leaf)
    return leaf.check(value)


def _steps() -> Family:
    steps = RULEBOOK.keys["steps"]
    assert isinstance(steps, Family)
    return steps


NAMES = ["impl", "sdd-delta", "step2", "a"]
NO_NAMES = ["", "Impl", "2fast", "-a", "a-", "a--b", "a b", "a/b", "a.b", "實作", "a" * 41, "a\n"]


@pytest.mark.parametrize("name", NAMES + NO_NAMES)
def test_a_name_has_small_letters_digits_and_hyphens(name: str) -> None:
    """It fits into a file name and a command, and cannot be taken for a path, a flag or another name."""
    assert (name in NAMES) == (wrong_name(name, _steps()) is None)


@pytest.mark.parametrize("name", ["done", "sdd", "implementation", "quality-gate"])
def test_names_with_another_meaning_are_refused(name: str) -> None:
    """`done` ends a pipeline, and a hand-off that says `sdd` means the step sdd-delta."""
    wrong = wrong_name(name, _steps())

    assert wrong is not None
    assert "cannot be the name" in wrong.message


@pytest.mark.parametrize(
    "path", ["docs/**", "**", "docs/bdd/US-{story}.md", ".ai/HANDOFF.md", "docs/規格.md", "!docs/**"]
)
def test_paths_inside_the_project_are_accepted(path: str) -> None:
    """Templates and globs relative to the root; `!` in write scopes alone."""
    assert wrong_path(path, negation=True) is None
    assert path.startswith("!") == (wrong_path(path, negation=False) is not None)


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "~/x", "../x", "a/../../x", "!", "!/x", "!../x", "a\0b", "a\nb", 7, None, "x" * 513],
)
def test_paths_that_lead_elsewhere_are_refused(path: object) -> None:
    """No path of the table leaves the project's root."""
    assert wrong_path(path, negation=True) is not None


@pytest.mark.parametrize("value", ["claude", "auto", ["claude", "codex"], None])
def test_an_executor_is_a_name_or_several(value: object) -> None:
    """Or null, which takes one back."""
    assert _executors(value) is None


@pytest.mark.parametrize("value", ["", [], "a b", "-p", ["claude", 7], {"a": 1}, True, "x" * 65])
def test_other_values_of_an_executor_are_refused(value: object) -> None:
    """Whether there is an executor of that name is checked elsewhere."""
    wrong = _executors(value)
    assert wrong is not None
    assert wrong.message.startswith("must be the name of an executor, or a list of names")


def test_a_misspelt_placeholder_names_the_one_there_is() -> None:
    """`{stroy}` would otherwise look for a file of that name for ever."""
    wrong = wrong_path("docs/{stroy}.md", negation=False)

    assert wrong is not None
    assert ("{story}",) == wrong.allowed
