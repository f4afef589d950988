"""A step table, said in the language of pipelines: the default story is a chain with ways back.

The track executes it, so the text is for reading, and for people who begin a pipeline of their own with it.
What the language cannot say is in the plan only: a step counts how often it is entered, from whichever side,
and a person's decision begins that counting anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import yaml
from msgspec.structs import replace

from handoffd.protocol.pipelines.compiling import sealed
from handoffd.protocol.pipelines.loading import load_plan
from handoffd.protocol.plan import Plan, Scope
from handoffd.protocol.rules import Rule, RuleBook

ROLE = "any"
"""Whichever executor the project names."""


def name_of(step: str) -> str:
    """Return the name of a step's task."""
    return step.replace("-", "_")


def in_language(rules: RuleBook, pipeline: str = "story") -> str:
    """Return a pipeline of a step table as a text in the language."""
    steps = rules.path(pipeline)
    bootstrap = rules.pipelines[pipeline].bootstrap
    tasks = {name_of(step): _task(rules, step, steps, is_bootstrap=step == bootstrap) for step in steps}
    document = {
        "language": 1,
        "pipeline": pipeline,
        "order": "chain",
        "limits": {"parallel": 1, "hold": {"timeout": "never"}},
        "roles": {ROLE: {"isolation": "shared"}},
        "tasks": tasks,
    }
    return yaml.dump(document, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=110)


def plan_of(rules: RuleBook, pipeline: str = "story") -> Plan:
    """Return a pipeline of a step table as a plan, which also counts how often each step is entered."""
    plan = load_plan(in_language(rules, pipeline), f"{pipeline}.yaml").plan
    visits = {name_of(step): rules.steps[step].max_visits for step in rules.path(pipeline)}
    tasks = {name: replace(task, most_visits=visits[name]) for name, task in plan.root.tasks.items()}
    root: Scope = replace(plan.root, tasks=tasks)
    return sealed(replace(plan, root=root, digest=""))


class _Plain(yaml.SafeDumper):
    """Lists, and mappings of a few plain values, in one line, as people write them."""

    def ignore_aliases(self, data: object) -> bool:
        """Return that nothing is an alias."""
        return True


def _list(dumper: _Plain, values: list[object]) -> yaml.Node:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=True)


def _mapping(dumper: _Plain, values: dict[str, object]) -> yaml.Node:
    plain = len(values) < 6 and not any(isinstance(value, dict | list) for value in values.values())
    return dumper.represent_mapping("tag:yaml.org,2002:map", values, flow_style=plain)


_Plain.add_representer(list, _list)
_Plain.add_representer(dict, _mapping)


def _task(rules: RuleBook, step: str, steps: tuple[str, ...], *, is_bootstrap: bool) -> dict[str, object]:
    rule = rules.steps[step]
    found: dict[str, object] = {"title": dict(rule.display_name)} if rule.display_name else {}
    if is_bootstrap:
        found["when"] = "!project.bootstrapped"
    if rule.requires_human:
        found |= {"ask": "{story} waits for your decision", "timeout": "never"}
        if reviewed := _reviewed(rules, steps[: steps.index(step)]):
            found["review"] = reviewed
    else:
        found |= dict(_work(rule))
    outcomes = {"approve" if rule.requires_human else "pass": "ok", **dict(_ways_back(rules, step, steps))}
    if rule.requires_human or len(outcomes) > 1:
        found["outcomes"] = outcomes
    return found


def _reviewed(rules: RuleBook, before: tuple[str, ...]) -> list[str]:
    """Return the papers that the steps before a decision write for the story."""
    return [path for step in before for path in rules.steps[step].claude_writes if "{story}" in path]


def _work(rule: Rule) -> Iterator[tuple[str, object]]:
    yield "agent", ROLE
    yield "attempts", rule.max_attempts
    if rule.timeout_min:
        yield "timeout", f"{rule.timeout_min:g}m"
    if rule.retry_on_timeout:
        yield "retry_on_timeout", rule.retry_on_timeout
    if rule.tests is not None:
        yield "tests", rule.tests
    if rule.claude_reads:
        yield "reads", list(rule.claude_reads)
    if rule.claude_writes:
        yield "writes", list(rule.claude_writes)
    if rule.post_check is not None:
        yield "post_check", dict(rule.post_check) if isinstance(rule.post_check, Mapping) else rule.post_check


def _ways_back(rules: RuleBook, step: str, steps: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    """Yield what failures lead to; a failure that leads to the step itself is one more attempt."""
    rule = rules.steps[step]
    for reason, target in rule.on_fail.items():
        if target == step and not rule.requires_human:
            continue
        failing = "reject" if rule.requires_human else "failing"
        if target not in steps[: steps.index(step) + 1]:
            continue  # it leads forwards, or out of this pipeline: the language has no such way
        most = max(1, min(100, rules.steps[target].max_visits))
        yield (
            failing if reason == "default" else reason,
            {"back_to": "self" if target == step else name_of(target), "at_most": most, "then": "hold"},
        )
