"""What single values of a step table are accepted."""

from __future__ import annotations

import pytest

from handoffd.protocol.rule_merge import RULEBOOK, Family, Leaf, Table, Wrong, wrong_name, wrong_path


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


@pytest.mark.parametrize("name", ["impl", "sdd-delta", "step2", "a"])
def test_names_of_small_letters_digits_and_hyphens_are_accepted(name: str) -> None:
    """A step's name is one that also fits into a file name and a command."""
    assert wrong_name(name, _steps()) is None


@pytest.mark.parametrize(
    "name", ["", "Impl", "2fast", "-a", "a-", "a--b", "a b", "a/b", "a.b", "實作", "a" * 41, "a\n"]
)
def test_other_names_are_refused(name: str) -> None:
    """Anything that could be confused with a path, a flag or another name is refused."""
    assert wrong_name(name, _steps()) is not None


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
    """Templates and globs relative to the root are fine."""
    assert wrong_path(path, negation=True) is None


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


def test_an_exclusion_makes_no_sense_among_files_to_read() -> None:
    """`!` belongs to write scopes alone."""
    assert wrong_path("!docs/**", negation=False) is not None


def test_a_misspelt_placeholder_names_the_one_there_is() -> None:
    """`{stroy}` would otherwise look for a file of that name for ever."""
    wrong = wrong_path("docs/{stroy}.md", negation=False)

    assert wrong is not None
    assert ("{story}",) == wrong.allowed
