"""Claude Code's settings files: our entries in a text, the text as a tree, and the files on the disk."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoffd.errors import InvalidFile, Refused, StoreError
from handoffd.hooks.claude_settings import (
    MAX_BYTES,
    SHARED,
    TIMEOUTS_S,
    Found,
    SettingsFile,
    added,
    commands,
    is_ours,
    removed,
    tree_of,
    with_ours,
    without_ours,
)
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
def test_removing_our_entries_restores_the_text(text: str) -> None:
    """To the byte; adding them twice changes nothing more."""
    longer = _with(text)

    assert text == _without(longer)
    assert longer == _with(longer)
    assert set(EVENTS) == {one.event for one in commands(longer, "f") if one.command == OURS}


def test_nothing_is_lost() -> None:
    """Other hooks, unknown keys and their order stay; each of our events has a time limit."""
    assert list(EVENTS) == list(TIMEOUTS_S)
    before, after = json.loads(FULL), json.loads(_with(FULL))

    assert list(before) == list(after)
    assert before["hooks"]["Stop"] == after["hooks"]["Stop"][:1]
    assert ["Stop", "PreToolUse"] == list(after["hooks"])[:2]
    ours = {"type": "command", "command": OURS, "timeout": TIMEOUTS_S["SessionEnd"]}
    assert [{"hooks": [ours]}] == after["hooks"]["SessionEnd"]


def test_a_hook_of_another_installation_is_replaced() -> None:
    """Both would apply the same hand-off; hooks for other events stay."""
    text = _with(_with(FULL, command="/old/bin/handoffd hook"))

    assert {"say done", OURS} == {one.command for one in commands(text, "f")}
    assert FULL == _without(text)
    assert ["Stop", "SessionEnd"] == [
        one.event for one in commands(_with(_with("{}", "Stop"), "SessionEnd"), "f")
    ]


def test_of_a_group_only_our_entry_is_removed() -> None:
    """A person may have put it beside another."""
    group = '{"hooks": [{"command": "a"}, {"command": "handoffd hook"}, {"command": "b"}]}'
    text = f'{{"hooks": {{"Stop": [{group}]}}}}'

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
def test_a_command_of_ours_is_recognised(command: str, ours: bool) -> None:
    """By the program it calls, wherever that is installed."""
    assert ours == is_ours(command)


def test_a_command_with_arguments_is_one_command() -> None:
    """Claude Code accepts that form, too."""
    text = '{"hooks": {"Stop": [{"hooks": [{"command": "/bin/handoffd", "args": ["hook"], "timeout": 5}]}]}}'

    assert (Found("Stop", "/bin/handoffd hook", 5),) == commands(text, "f")


ONE_OF_OURS = '{"type": "command", "command": "handoffd hook"}, '


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{\n  "a": 1,\n}', "settings.json:3: column 1: this is not JSON"),
        *((text, "this is not JSON") for text in ("", "{", "{} {}", "// no\n{}", "[1")),
        ("[]", "settings.json:1: must be an object"),
        ('{\n"hooks": []}', "settings.json:2: hooks: must be an object"),
        ('{"hooks": {"Stop": {}}}', "settings.json:1: hooks.Stop: must be a list"),
        ('{"hooks": {"Stop": ["x"]}}', "settings.json:1: hooks.Stop.0: must be an object"),
        ('{"hooks": {"Stop": [{"hooks": 5}]}}', "hooks.Stop.0.hooks: must be a list"),
        ('{"hooks": {"Stop": [{"hooks": [5]}]}}', "hooks.Stop.0.hooks.0: must be an object"),
        ('{"a": ' + "[" * 100_000, "nested too deep"),
        ('{"a": ' + "9" * 4301 + "}", "this is not JSON: Exceeds the limit"),
        ('{"hooks": {"Stop": [{"hooks": [' + ONE_OF_OURS * 11 + "{}]}]}}", "hooks: has 11 hooks of handoffd"),
    ],
)
def test_a_text_that_claude_code_could_not_read_is_refused(text: str, said: str) -> None:
    """One error, with line and column."""
    with pytest.raises(InvalidFile) as invalid:
        _with(text)

    assert said in str(invalid.value)


# --- a JSON text as a tree ----------------------------------------------------------------------------
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
STYLES: list[dict[str, Any]] = [
    *({}, {"indent": 2}, {"indent": "\t"}, {"separators": (",", ":")}, {"ensure_ascii": False})
]


@given(VALUES, st.sampled_from(STYLES))
def test_a_tree_has_the_values_and_their_places(value: object, style: dict[str, Any]) -> None:
    """The same values that every parser finds."""
    text = json.dumps(value, **style)
    tree = tree_of(f" \n{text}\n")

    assert json.loads(text) == tree.value
    assert f" \n{text}\n"[tree.start : tree.end] == text


@given(st.dictionaries(st.text(), VALUES, max_size=4), st.sampled_from(STYLES), VALUES)
def test_what_was_added_can_be_removed(value: dict[str, object], style: dict[str, Any], more: object) -> None:
    """To the byte, and nothing else changes."""
    text = json.dumps(value, **style)
    key = "".join(value) + "new"
    longer = added(text, tree_of(text), key, more)

    assert list({**value, key: more}.items()) == list(json.loads(longer).items())
    assert text == removed(longer, tree_of(longer), len(value))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{}\n", '{\n  "a": [\n    1\n  ]\n}\n'),
        ('{\n    "x": 1\n}', '{\n    "x": 1,\n    "a": [\n        1\n    ]\n}'),
        ('{\n\t"x": 1\n}\n', '{\n\t"x": 1,\n\t"a": [\n\t\t1\n\t]\n}\n'),
        ('{"x": 1}', '{"x": 1, "a": [1]}'),
        ('{\r\n  "x": 1\r\n}\r\n', '{\r\n  "x": 1,\r\n  "a": [\r\n    1\r\n  ]\r\n}\r\n'),
        ('{\n  "x": 1\n\n\n}', '{\n  "x": 1,\n  "a": [\n    1\n  ]\n\n\n}'),
    ],
)
def test_what_is_added_looks_like_the_rest(text: str, wanted: str) -> None:
    """In its indentation, its ends of lines, or all in one line."""
    assert wanted == added(text, tree_of(text), "a", [1])


@pytest.mark.parametrize(("number", "wanted"), [(0, "[2, 3]"), (1, "[1, 3]"), (2, "[1, 2]")])
def test_one_of_several_is_removed_with_its_comma(number: int, wanted: str) -> None:
    """At any position."""
    assert wanted == removed("[1, 2, 3]", tree_of("[1, 2, 3]"), number)


def test_of_two_members_of_one_name_the_last_counts() -> None:
    """As for Claude Code."""
    assert {"a": 2} == tree_of('{"a": 1, "a": 2}').value
    found = tree_of('{"a": 1, "a": 2}').find("a")
    assert found is not None
    assert 2 == found.value


# --- files on the disk -------------------------------------------------------------------------------
@pytest.fixture
def file(tmp_path: Path) -> SettingsFile:
    """Return the shared settings file of a project; its folder is there, the file is not."""
    (tmp_path / "shop/.claude").mkdir(parents=True)
    return SettingsFile(tmp_path / "shop", SHARED, tmp_path / "state/hooks")


@pytest.mark.parametrize(
    "text",
    ["{}", "", "\n", '{"hooks": {}}', '{"hooks": {"Stop": []}}', '{\n  "hooks": {\n  }\n}\n', '{"a": 1}\n'],
)
def test_uninstalling_restores_the_file(file: SettingsFile, text: str) -> None:
    """To the byte, with its mode, also an empty one."""
    file.path.write_text(text, encoding="utf-8")
    file.path.chmod(0o640)

    assert file.install("/old/bin/handoffd hook", EVENTS)
    assert file.install(OURS, EVENTS)
    assert not file.install(OURS, EVENTS)
    assert set(EVENTS) == {one.event for one in file.hooks()}
    assert 0o640 == stat.S_IMODE(file.path.stat().st_mode)
    assert file.uninstall()
    assert (text, 0o640) == (file.path.read_text(encoding="utf-8"), stat.S_IMODE(file.path.stat().st_mode))
    assert not file.uninstall()


def test_uninstalling_removes_a_file_that_we_made(file: SettingsFile) -> None:
    """With its folder missing, too."""
    file.path.parent.rmdir()

    assert () == file.hooks()
    assert not file.uninstall()
    assert file.install(OURS, EVENTS)
    assert file.uninstall()
    assert not file.path.exists()


def test_uninstalling_keeps_what_a_person_wrote_meanwhile(file: SettingsFile) -> None:
    """It then removes only our entries."""
    file.install(OURS, ("Stop",))
    text = file.path.read_text(encoding="utf-8")
    file.path.write_text(text.replace("{", '{\n  "model": "opus",', 1), encoding="utf-8")

    assert file.uninstall()
    assert '{\n  "model": "opus"\n}\n' == file.path.read_text(encoding="utf-8")


@pytest.mark.parametrize("linked", [".claude", SHARED])
def test_a_link_out_is_not_followed(tmp_path: Path, file: SettingsFile, linked: str) -> None:
    """Neither a file nor a folder; its target stays as it is."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "settings.json").write_text("{}", encoding="utf-8")
    file.path.parent.rmdir()
    (file.root / linked).parent.mkdir(exist_ok=True)
    (file.root / linked).symlink_to(outside if linked == ".claude" else outside / "settings.json")
    with pytest.raises(StoreError):
        file.install(OURS, EVENTS)

    assert [("settings.json", "{}")] == [(one.name, one.read_text()) for one in outside.iterdir()]


@pytest.mark.parametrize("raw", [b'{"a": 1,}', b"\xff", b'{"hooks": 5}'])
def test_an_invalid_file_is_left_alone(file: SettingsFile, raw: bytes) -> None:
    """The error names the file, and how to open it."""
    file.path.write_bytes(raw)

    for attempt in (lambda: file.install(OURS, EVENTS), file.uninstall, file.hooks):
        with pytest.raises(InvalidFile) as invalid:
            attempt()
        assert str(file.path) in str(invalid.value)
        assert "EDITOR" in str(invalid.value.hint)
    assert raw == file.path.read_bytes()
    assert ["settings.json"] == os.listdir(file.path.parent)


def test_a_file_that_is_too_long_is_refused(file: SettingsFile) -> None:
    """No settings file is as long."""
    file.path.write_bytes(b" " * (MAX_BYTES + 1))

    with pytest.raises(Refused):
        file.install(OURS, EVENTS)
