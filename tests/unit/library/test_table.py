"""The step table, as programs look things up in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd import (
    Reason,
    Refused,
    dispatch_mode,
    fail_target,
    get_rule,
    resolve_paths,
    step_sequence,
    team_roles,
)


def test_the_shipped_table_needs_no_project() -> None:
    """Its rules, and the order of its steps; the bootstrap of a new project is no part of that."""
    story = "bdd sdd-delta contract review scaffold impl verify update-memory"
    assert tuple(story.split()) == step_sequence()
    assert ("custom", "update-memory") == step_sequence(task_type="custom")
    assert ("verify", 5) == (get_rule("impl").next_on_pass, get_rule("impl").max_attempts)
    assert get_rule("review").requires_human
    assert "bdd" == get_rule("bootstrap").next_on_pass


def test_a_rule_is_a_copy(shop: Path) -> None:
    """What is done to it changes nothing for who asks next."""
    on_fail = get_rule("impl").on_fail
    assert isinstance(on_fail, dict)
    on_fail["default"] = "done"

    assert "impl" == get_rule("impl").on_fail["default"] == fail_target("impl")


def test_a_project_has_its_own_table(shop: Path) -> None:
    """With its root, that is what is looked into."""
    assert ("bdd", "review", "update-memory") == step_sequence(shop)
    assert ("review", "sdd-delta") == (get_rule("bdd", shop).next_on_pass, get_rule("bdd").next_on_pass)


def test_a_step_that_there_is_not_is_refused(shop: Path) -> None:
    """The end is no step either; both answers say what there is."""
    for step, told in (("implement", "allowed: bootstrap, bdd"), ("done", "is the end")):
        with pytest.raises(Refused, match=told) as refused:
            get_rule(step)
        assert "UNKNOWN_STEP" == refused.value.code


@pytest.mark.parametrize(
    ("step", "reason", "target"),
    [
        ("impl", None, "impl"),
        ("impl", "constitution_violation", "sdd-delta"),
        ("impl", Reason.SCOPE_WARNING, "review"),
        ("verify", None, "impl"),
        ("verify", "test_timeout", "impl"),
        ("review", "needs_clarification", "bdd"),
        ("bdd", "needs_clarification", None),
    ],
)
def test_where_a_failure_leads(step: str, reason: str | None, target: str | None) -> None:
    """By its reason; to a person, where only one can answer and the table has no route."""
    assert target == fail_target(step, reason)


def test_a_reason_that_is_none_is_refused() -> None:
    """Else it would be routed as if none had been given."""
    with pytest.raises(Refused, match="needs_clarification") as refused:
        fail_target("impl", "dislike")
    assert "BAD_ARGUMENT" == refused.value.code


def test_a_team_has_roles() -> None:
    """At the step that is done by one; elsewhere there are none."""
    roles = team_roles()

    assert {"backend", "frontend", "test", "verify"} == set(roles)
    assert "docs/sdd.md" in roles["backend"].claude_reads
    assert not team_roles("bdd")


def test_the_size_of_a_story_says_whether_a_team_works_on_it() -> None:
    """In between, what can be done side by side is counted; other steps are for one."""
    assert ["single", "team", "single", "team"] == [
        dispatch_mode("S", 9),
        dispatch_mode("L"),
        dispatch_mode("M", 1),
        dispatch_mode("M", 2),
    ]
    assert "single" == dispatch_mode("L", step="bdd")


def test_a_story_is_named_once_in_a_path() -> None:
    """With its prefix or without."""
    for story in ("US-013", "013"):
        assert ("docs/bdd/US-013.md", "docs/sdd.md") == resolve_paths(
            ("docs/bdd/US-{story}.md", "docs/sdd.md"), story
        )
    with pytest.raises(Refused, match="story id"):
        resolve_paths(("docs/{story}.md",), "../etc")
