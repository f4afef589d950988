"""What is wrong with settings, in words a person can act on."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from handoffd.errors import Problem
from handoffd.settings.model import ProjectSettings, Settings
from handoffd.settings.sources import problems_of, section_of

PLACES = {"state_dir": "/s", "runtime_dir": "/r"}


def problems(values: dict[str, object]) -> tuple[Problem, ...]:
    """Return what is wrong with `values`, as if they stood in line 7 of a file."""
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
            "file:7: notify.sinks.phone.ntfy.topc: unknown setting; did you mean topic? (allowed: server,"
            " topic, token, priority, tags, click, timeout_s)",
        ),
        (
            {"notify": {"routes": [{"kinds": ["dome"], "to": []}]}},
            "file:7: notify.routes.0.kinds.0: must be one of the allowed values, not 'dome' (allowed:"
            " needs_human, timeout, blocked, done, warning, reminder)",
        ),
        (
            {"notify": {"routes": [{"kinds": ["done", "escalation"], "to": []}]}},
            "file:7: notify.routes.0.kinds.1: escalations go to those whom notify.remind.escalate names,"
            " whatever this says: put the sink there (allowed: needs_human, timeout, blocked, done, warning,"
            " reminder)",
        ),
        ({"executors": {"x": 1}}, "file:7: executors.x: must be a section with keys of its own, not 1"),
        (
            {"language": "fr"},
            "file:7: language: must be one of the allowed values, not 'fr' (allowed: en, zh-TW)",
        ),
        (
            {"log": {"levle": "info"}},
            "file:7: log.levle: unknown setting; did you mean level? (allowed: format, level)",
        ),
        ({"log": {"zzz": 1}}, "file:7: log.zzz: unknown setting (allowed: format, level)"),
        (
            {"execute": {"env_allow": ["A B"]}},
            "file:7: execute.env_allow.0: must be the name of an environment variable, not 'A B'",
        ),
    ],
)
def test_the_words(values: dict[str, object], expected: str) -> None:
    """Each kind of mistake is told with place, key, what is expected and what was found."""
    assert [expected] == [str(problem) for problem in problems(values)]


def test_everything_wrong_is_told_at_once() -> None:
    """Nobody has to mend one mistake to learn of the next."""
    values = {"watch": {"step_ms": 0, "x": 1}, "nonsense": 1, "log": {"level": "loud"}}

    found = [problem.key for problem in problems(values)]

    assert ["watch.step_ms", "watch.x", "log.level", "nonsense"] == found


@pytest.mark.parametrize(
    "webhook",
    [
        {"url": "no-scheme/secret"},
        {"url": ["secret"]},
        {"url": 5, "ulr": "secret"},
        "https://h/secret",
        "h/secret",
    ],
)
def test_what_may_be_a_secret_is_not_quoted(webhook: object) -> None:
    """Addresses of webhooks hold keys, also when they stand in the wrong place."""
    found = " ".join(problem.message for problem in problems({"notify": {"webhook": webhook}}))

    assert "secret" not in found


@pytest.mark.parametrize(
    "sinks", [{"p": {"ntfy": {"topic": "t", "token": 4711}}}, {"p": {"ntfy": 4711}}, {"p": 4711}, 4711]
)
def test_what_is_below_a_name_of_ones_own_may_be_a_secret_too(sinks: object) -> None:
    """However deep the token stands, and whatever stands in its place."""
    (problem,) = problems({"notify": {"sinks": sinks}})

    assert "4711" not in str(problem)


def test_long_values_are_cut() -> None:
    """A message stays a message, whatever a file holds."""
    (problem,) = problems({"language": "x" * 10_000})

    assert len(problem.message) < 200


def test_sections_are_told_from_values() -> None:
    """A section may be optional; a list or a mapping is none."""
    sections = [name for name, field in Settings.model_fields.items() if section_of(field)]

    assert [
        "roster",
        "watch",
        "schedule",
        "execute",
        "scheduling",
        "limits",
        "caps",
        "notify",
        "control",
        "retention",
        "log",
    ] == sections
    assert section_of(ProjectSettings.model_fields["test"]) is not None
