"""The step table as the engine sees it: looking things up."""

from __future__ import annotations

from handoffd.protocol.rules import Pipeline, Rule, RuleBook, localized
from handoffd.protocol.state import Reason


def _rule(step: str, **values: object) -> Rule:
    return Rule.model_validate({"next_on_pass": step, "on_fail": {"default": step}, **values})


def _book() -> RuleBook:
    steps = {
        "prepare": _rule("plan"),
        "plan": _rule("build"),
        "build": _rule("done"),
        "custom": _rule("done"),
    }
    pipelines = {"story": Pipeline(first="plan", bootstrap="prepare"), "custom": Pipeline(first="custom")}
    return RuleBook(steps=steps, pipelines=pipelines)


def test_a_reason_selects_its_own_route() -> None:
    """A failure goes where its reason says."""
    rule = _rule("build", on_fail={"default": "build", "scope_warning": "plan"})

    assert "plan" == rule.target(Reason.SCOPE_WARNING)


def test_a_reason_without_route_takes_the_default() -> None:
    """Reasons that the step does not mention, and no reason at all, lead to the default."""
    rule = _rule("build", on_fail={"default": "build", "scope_warning": "plan"})

    assert "build" == rule.target(Reason.NFR_MISSING)
    assert "build" == rule.target(None)


def test_the_size_of_a_story_selects_how_many_work_on_it() -> None:
    """`auto` counts what can be done side by side; a size that is not mentioned is for one."""
    rule = _rule("build", dispatch_mode={"M": "auto", "L": "team"})

    assert ["single", "single", "team", "team"] == [
        rule.mode("S", 5), rule.mode("M", 1), rule.mode("M", 2), rule.mode("L"),
    ]  # fmt: skip


def test_the_path_of_a_pipeline_begins_with_its_bootstrap() -> None:
    """The path holds the steps in passing order, without `done`."""
    assert ("prepare", "plan", "build") == _book().path("story")


def test_the_path_of_an_unknown_kind_of_task_is_that_of_a_story() -> None:
    """Kinds of task are an open set; those without a pipeline of their own go the way of stories."""
    assert _book().path("story") == _book().path("hotfix")


def test_every_step_between_bootstrap_and_first_is_on_the_path() -> None:
    """A bootstrap of several steps is shown with all of them."""
    book = _book()
    steps = {**book.steps, "prepare": _rule("survey"), "survey": _rule("plan")}

    assert ("prepare", "survey", "plan", "build") == RuleBook(steps=steps, pipelines=book.pipelines).path(
        "story"
    )


def test_a_text_is_given_in_the_language_asked_for() -> None:
    """The language asked for wins, English stands in for it, and any language is better than none."""
    assert "審查" == localized({"en": "Review", "zh-TW": "審查"}, "zh-TW")
    assert "Review" == localized({"en": "Review"}, "zh-TW")
    assert "審查" == localized({"zh-TW": "審查"}, "en")
    assert localized({}, "en") is None
