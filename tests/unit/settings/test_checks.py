"""The messages about invalid settings."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from handoffd.errors import Problem
from handoffd.settings.model import Settings
from handoffd.settings.sources import problems_of

PLACES = {"state_dir": "/s", "runtime_dir": "/r"}


def problems(values: dict[str, object]) -> tuple[Problem, ...]:
    """Return the problems of `values`, as if they were in line 7 of a file."""
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate(PLACES | values)
    return problems_of(caught.value, Settings, lambda _: ("file", 7))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"watch": {"step_ms": "fast"}}, "file:7: watch.step_ms: must be a whole number, not 'fast'"),
        ({"watch": {"step_ms": 1.5}}, "file:7: watch.step_ms: must be a whole number, not 1.5"),
        ({"watch": {"step_ms": 0}}, "file:7: watch.step_ms: must be at least 1, not 0"),
        ({"watch": {"shards": 99}}, "file:7: watch.shards: must be at most 10, not 99"),
        ({"watch": {"sweep_s": 0}}, "file:7: watch.sweep_s: must be at least 0.01, not 0"),
        ({"roster": {"scan_s": 99999999}}, "file:7: roster.scan_s: must be at most 31622400, not 99999999"),
        ({"notify": {"give_up_h": 0}}, "file:7: notify.give_up_h: must be more than 0, not 0"),
        ({"watch": {"sweep_s": []}}, "file:7: watch.sweep_s: must be a number, not a list"),
        ({"watch": 5}, "file:7: watch: must be a section with keys of its own, not 5"),
        ({"executor": {"a": 1}}, "file:7: executor: must be the name of an executor, or a list of names"),
        ({"executor": None}, "file:7: executor: must be the name of an executor, or a list of names"),
        ({"projects": "x"}, "file:7: projects: must be a list, not 'x'"),
        ({"projects": ["x"]}, "file:7: projects.0: must be a whole path, from the root"),
        ({"notify": {"command": []}}, "file:7: notify.command: must not be empty"),
        ({"notify": {"webhook": {}}}, "file:7: notify.webhook.url: is missing"),
        (
            {"notify": {"sinks": {"phone": {"ntfy": {"topc": "x", "topic": "y"}}}}},
            "file:7: notify.sinks.phone.ntfy.topc: unknown setting; did you mean topic?",
        ),
        (
            {"notify": {"routes": [{"kinds": ["dome"], "to": []}]}},
            "file:7: notify.routes.0.kinds.0: must be one of the allowed values, not 'dome' (allowed:"
            " needs_human, timeout, blocked, done, warning, reminder, report)",
        ),
        (
            {"notify": {"routes": [{"kinds": ["done", "escalation"], "to": []}]}},
            "file:7: notify.routes.0.kinds.1: escalations go only to the sinks that notify.remind.escalate"
            " names: put the sink there (allowed: needs_human, timeout, blocked, done, warning, reminder,"
            " report)",
        ),
        ({"executors": {"x": 1}}, "file:7: executors.x: must be a section with keys of its own, not 1"),
        (
            {"language": "fr"},
            "file:7: language: must be one of the allowed values, not 'fr' (allowed: en, zh-TW)",
        ),
        (
            {"language": "x" * 10_000},
            f"file:7: language: must be one of the allowed values, not '{'x' * 59} (allowed: en, zh-TW)",
        ),
        (
            {"log": {"levle": "info"}},
            "file:7: log.levle: unknown setting; did you mean level?",
        ),
        ({"log": {"zzz": 1}}, "file:7: log.zzz: unknown setting (allowed: format, level)"),
        (
            {"execute": {"env_allow": ["A B"]}},
            "file:7: execute.env_allow.0: must be the name of an environment variable, not 'A B'",
        ),
    ],
)
def test_a_problem_names_its_place_and_what_is_expected(values: dict[str, object], expected: str) -> None:
    """Each kind of mistake has its place, key, what is expected and the value, which is cut short."""
    assert [expected] == [str(problem) for problem in problems(values)]


@pytest.mark.parametrize(
    "notify",
    [
        {"webhook": {"url": "no-scheme/4711"}},
        {"webhook": {"url": ["4711"]}},
        {"webhook": {"url": 5, "ulr": "4711"}},
        {"webhook": "https://h/4711"},
        {"webhook": "h/4711"},
        {"sinks": {"p": {"ntfy": {"topic": "t", "token": 4711}}}},
        {"sinks": {"p": {"ntfy": 4711}}},
        {"sinks": {"p": 4711}},
        {"sinks": 4711},
    ],
)
def test_a_possible_secret_is_not_quoted(notify: object) -> None:
    """A webhook's address and a token are secret at any depth, also in the wrong place."""
    found = problems({"notify": notify})

    assert [] == [problem.message for problem in found if "4711" in problem.message]
