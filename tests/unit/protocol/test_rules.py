"""The step table as the engine sees it: looking things up."""

from __future__ import annotations

from handoffd.protocol.rules import Pipeline, Rule, RuleBook, localized
from handoffd.protocol.state import Reason


def _rule(step: str, **values: object) -> Rule:
    return Rule.model_validate({"next_on_pass": step, "on_fail": {"default": step}, **values})


def _book() -> RuleBook:
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
    book = _book()
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
