"""Our entries among the hooks of a settings text."""

from __future__ import annotations

import json

import pytest

from handoffd.errors import InvalidFile
from handoffd.hooks.claude_settings import TIMEOUTS_S, Found, commands, is_ours, with_ours, without_ours
from handoffd.hooks.event import EVENTS

OURS = "/opt/handoffd/bin/handoffd hook"
FULL = """{
    "model": "opus",
    "env": {"A": "1", "Ü": "\\u00fc"},
    "hooks": {
        "Stop": [
            {"hooks": [{"type": "command", "command": "say done"}]}
        ],
        "PreToolUse": [
            {"matcher": "Bash", "hooks": [ {"type": "prompt", "prompt": "ok?"} ]}
        ]
    },
    "unknown": [1.0, 1e5]
}
"""


def _with(text: str, *events: str, command: str = OURS) -> str:
    return with_ours(text, "settings.json", command, events or EVENTS)


def _without(text: str) -> str:
    return without_ours(text, "settings.json")


def test_every_event_of_ours_has_a_time_limit() -> None:
    """Those that a hook answers and those that it is installed for are the same."""
    assert list(EVENTS) == list(TIMEOUTS_S)


@pytest.mark.parametrize(
    "text",
    [
        FULL,
        "{}\n",
        '{"model": "opus"}',
        '{\n\t"hooks": {\n\t\t"Stop": [\n\t\t\t{"hooks": []}\n\t\t]\n\t}\n}',
        '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "a"}]}]}}',
        FULL.replace("\n", "\r\n"),
    ],
)
def test_there_and_back_is_where_it_was(text: str) -> None:
    """To the byte; and twice is once."""
    longer = _with(text)

    assert text == _without(longer)
    assert longer == _with(longer)
    assert set(EVENTS) == {one.event for one in commands(longer, "f") if one.command == OURS}


def test_nothing_is_lost() -> None:
    """Other hooks, unknown keys, and the order of all."""
    before, after = json.loads(FULL), json.loads(_with(FULL))

    assert list(before) == list(after)
    assert before["hooks"]["Stop"] == after["hooks"]["Stop"][:1]
    assert ["Stop", "PreToolUse"] == list(after["hooks"])[:2]
    ours = {"type": "command", "command": OURS, "timeout": TIMEOUTS_S["SessionEnd"]}
    assert [{"hooks": [ours]}] == after["hooks"]["SessionEnd"]


def test_some_events_are_enough() -> None:
    """Those that were there stay."""
    text = _with(_with("{}", "Stop"), "SessionEnd")

    assert ["Stop", "SessionEnd"] == [one.event for one in commands(text, "f")]


def test_a_hook_of_another_installation_is_replaced() -> None:
    """Not joined: each would apply the same hand-off."""
    text = _with(_with(FULL, command="/old/bin/handoffd hook"))

    assert {"say done", OURS} == {one.command for one in commands(text, "f")}
    assert FULL == _without(text)


def test_of_a_group_only_ours_is_taken() -> None:
    """A person may have put it beside another."""
    text = (
        '{"hooks": {"Stop": [{"hooks": [{"command": "a"}, {"command": "handoffd hook"}, {"command": "b"}]}]}}'
    )

    assert text.replace('{"command": "handoffd hook"}, ', "") == _without(text)


@pytest.mark.parametrize(
    ("command", "ours"),
    [
        (OURS, True),
        ("handoffd hook", True),
        ("'/opt/my tools/handoffd' --config /etc/h.yaml hook", True),
        ("/usr/bin/python3 -I -m handoffd hook", True),
        ("/usr/bin/python3 -I -m handoffd --config /a/b hook", True),
        ("handoffd hooks", False),
        ("handoffd status", False),
        ("echo handoffd hook", False),
        ("handoffd hook; rm -rf /", False),
        ("orchestrator hook", False),
        ("'unclosed", False),
        ("", False),
        ("hook", False),
    ],
)
def test_ours_is_told_from_others(command: str, ours: bool) -> None:
    """By what is called, wherever it is installed."""
    assert ours == is_ours(command)


def test_a_command_with_arguments_is_one_command() -> None:
    """Claude Code knows that form, too."""
    text = '{"hooks": {"Stop": [{"hooks": [{"command": "/bin/handoffd", "args": ["hook"], "timeout": 5}]}]}}'

    assert (Found("Stop", "/bin/handoffd hook", 5),) == commands(text, "f")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{\n  "a": 1,\n}', "settings.json:3: column 1: this is not JSON"),
        ("[]", "settings.json:1: must be an object"),
        ('{\n"hooks": []}', "settings.json:2: hooks: must be an object"),
        ('{"hooks": {"Stop": {}}}', "settings.json:1: hooks.Stop: must be a list"),
        ('{"hooks": {"Stop": ["x"]}}', "settings.json:1: hooks.Stop.0: must be an object"),
        ('{"hooks": {"Stop": [{"hooks": 5}]}}', "hooks.Stop.0.hooks: must be a list"),
        ('{"hooks": {"Stop": [{"hooks": [5]}]}}', "hooks.Stop.0.hooks.0: must be an object"),
        ('{"a": ' + "[" * 100_000, "nested too deep"),
    ],
)
def test_what_claude_code_could_not_read_is_left_alone(text: str, said: str) -> None:
    """One error, with line and column."""
    with pytest.raises(InvalidFile) as invalid:
        _with(text)

    assert said in str(invalid.value)
