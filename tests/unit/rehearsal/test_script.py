"""Scripts: their form, which entry applies to a start, and the errors of a bad one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from handoffd.rehearsal import __main__
from handoffd.rehearsal.script import (
    FORMS,
    Act,
    BadScript,
    Speech,
    acts_for,
    count_start,
    load,
    parse,
    speech_of,
)
from handoffd.rehearsal.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """An empty project."""
    return Workspace(str(tmp_path))


def acts(entries: object, start: int = 1, step: str = "impl", key: str = "impl") -> list[str]:
    """Return the acts of a start of `step` when the script maps `key` to `entries`."""
    script = parse(json.dumps({key: entries}), "it")
    return [
        f"{act.name}:{act.argument}" if act.argument else act.name for act in acts_for(script, step, start)
    ]


def test_the_nth_start_uses_the_nth_entry_and_then_passes() -> None:
    """A single entry is for every start."""
    assert [["crash"], ["hang:2"], ["pass"]] == [acts(["crash", "hang:2"], start) for start in (1, 2, 3)]
    assert ["fail:scope_warning"] == acts("fail:scope_warning", 9)


def test_the_star_is_for_steps_without_an_entry() -> None:
    """A step's own entry wins, even an empty list."""
    assert ["lie"] == acts("lie", step="bdd", key="*")
    assert ["pass"] == acts([], step="impl")
    assert ["pass"] == acts("crash", step="bdd", key="impl")


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("half+hang", ["half", "hang"]),
        ("orphan", ["orphan", "pass"]),
        ("orphan + hang", ["orphan", "hang"]),
        ("flood:5+tamper+slow:0.5", ["flood:5", "tamper", "slow:0.5", "pass"]),
        ("pass+exit:3", ["pass", "exit:3"]),
    ],
)
def test_acts_are_joined_and_the_work_follows_unless_one_ends_the_session(
    entry: str, expected: list[str]
) -> None:
    """The work follows acts that only disturb it."""
    assert expected == acts(entry)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the file:1: not JSON"),
        ("[" * 100_000, "the file: not JSON"),
        ("[]", "the file: must map steps to acts"),
        ('{"impl": 3}', "the file: impl: must be an act or a list of acts, not 3"),
        ('{"impl": ["pass", "explode"]}', "the file: impl[1]: there is no act 'explode' (allowed"),
        ('{"impl": [null]}', "the file: impl[0]: None is not an act"),
        ('{"*": "pass+"}', "the file: *: there is no act ''"),
        ('{"impl": "exit"}', "the file: impl: 'exit' needs an argument: exit:CODE"),
        ('{"impl": "exit:300"}', "the file: impl: 'exit:300' has a wrong argument"),
        ('{"impl": "flood:many"}', "the file: impl: 'flood:many' has a wrong argument"),
        ('{"impl": "slow:-1"}', "the file: impl: 'slow:-1' has a wrong argument"),
        ('{"impl": "crash:now"}', "the file: impl: 'crash:now' has a wrong argument"),
        ('{"impl": "fail:a\\nb"}', "has a wrong argument"),
    ],
)
def test_a_bad_script_is_refused_whole_with_its_place(text: str, message: str) -> None:
    """The error has the file, the key, and what is allowed."""
    with pytest.raises(BadScript) as caught:
        parse(text, "the file")

    assert message in str(caught.value)


def test_the_error_of_an_unknown_act_and_the_documentation_have_all_acts() -> None:
    """The error has the form of their arguments, too."""
    with pytest.raises(BadScript) as caught:
        parse('{"impl": "explode"}', "the file")

    assert [] == [name for name in FORMS if name not in str(caught.value)]
    assert "exit:CODE" in str(caught.value)
    assert "fail[:REASON]" in str(caught.value)
    assert [] == [name for name in FORMS if f" {name}" not in (__main__.__doc__ or "")]


def test_the_environment_comes_before_the_projects_file(workspace: Workspace, tmp_path: Path) -> None:
    """Text, a path, and the file in the project, in this order; without any there is no script."""
    assert None is load(workspace, {})
    workspace.write(".ai/rehearsal.json", '{"impl": "hang"}')
    assert {"impl": "hang"} == load(workspace, {})
    (tmp_path / "night.json").write_text('{"impl": "crash"}')
    assert {"impl": "crash"} == load(workspace, {"HANDOFFD_REHEARSAL": "night.json"})
    assert {"impl": "lie"} == load(workspace, {"HANDOFFD_REHEARSAL": ' {"impl": "lie"}'})


def test_a_missing_script_is_named(workspace: Workspace) -> None:
    """A path that leads nowhere is an error, not an empty script."""
    named = r"night\.json: No such file or directory \(named by \$HANDOFFD_REHEARSAL"
    with pytest.raises(BadScript, match=named):
        load(workspace, {"HANDOFFD_REHEARSAL": "night.json"})


def test_starts_are_counted_for_each_step(workspace: Workspace) -> None:
    """Each step has a count of its own, and it lasts."""
    assert [1, 2, 1, 3] == [count_start(workspace, step) for step in ("impl", "impl", "bdd", "impl")]


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"impl": "x"}', "\x00"])
def test_an_unreadable_count_begins_anew(workspace: Workspace, broken: str) -> None:
    """A damaged count file stops nothing."""
    workspace.write(".ai/rehearsal-count.json", broken)

    assert [1, 2] == [count_start(workspace, "impl") for _ in range(2)]


def test_an_act_knows_its_number() -> None:
    """Its argument is text."""
    assert (2.5, 0) == (Act("slow", "2.5").number, Act("hang").number)


def test_the_content_of_a_stream_is_part_of_the_script() -> None:
    """Missing keys have small defaults; a step may have the name `stream`."""
    script = parse('{"stream": {"session": "s-1", "cost_usd": 1}, "*": ["crash"]}', "x")

    assert Speech(session="s-1", cost_usd=1) == speech_of(script)
    assert Speech() == speech_of(None) == speech_of({"impl": "pass"})
    assert (Act("crash"),) == acts_for(script, "stream", 1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('{"tokens": 1}', "x: stream.tokens: unknown key (allowed: session, turns, "),
        ('{"turns": -1}', "x: stream.turns: must be a number such as 1, not -1"),
        ('{"turns": true}', "x: stream.turns: must be a number such as 1, not True"),
        ('{"turns": 1.5}', "x: stream.turns: must be a number such as 1, not 1.5"),
        ('{"session": 7}', "x: stream.session: must be a text, not 7"),
    ],
)
def test_a_mistake_about_the_stream_is_named(given: str, expected: str) -> None:
    """The error has its key."""
    with pytest.raises(BadScript) as caught:
        parse(f'{{"stream": {given}}}', "x")

    assert str(caught.value).startswith(expected)
