"""One start of an executor."""

from __future__ import annotations

from dataclasses import replace

import pytest

from handoffd.errors import ConfigurationError
from handoffd.execute.base import Rung
from handoffd.execute.executor import Executor, Invocation, InvocationContext, LadderRung, invocation
from handoffd.execute.stream.format import StreamFormat

HERE = InvocationContext(python="/opt/venv/bin/python", prompt_file="/state/runs/r1/prompt.md")
TOOL = Executor(
    name="tool",
    argv=("{python}", "-m", "tool", ("--model", "{model}"), "--in={prompt_file}", '{"a": {}}'),
    prompt="file",
    ladder=(LadderRung(signal="INT", grace_s=2), LadderRung(signal="KILL", grace_s=1)),
    env=("TOOL_KEY",),
)


def test_placeholders_are_filled_and_nothing_else() -> None:
    """Braces of other kinds are the tool's own."""
    assert Invocation(
        argv=("/opt/venv/bin/python", "-m", "tool", "--in=/state/runs/r1/prompt.md", '{"a": {}}'),
        env=("TOOL_KEY",),
        ladder=(Rung(signal="INT", grace_s=2), Rung(signal="KILL", grace_s=1)),
        prompt="file",
    ) == invocation(TOOL, HERE)


def test_a_model_brings_its_option_along() -> None:
    """The option is there with a model, and gone without one; what stands in its name is not filled in."""
    for name in ("small", "{python}"):
        own = TOOL.model_copy(update={"model": name})
        assert ("--model", name) == invocation(own, HERE).argv[3:5]


def test_a_pattern_cannot_be_started() -> None:
    """It says what to do instead."""
    with pytest.raises(ConfigurationError, match="executor 'command' has no argv") as caught:
        invocation(Executor(name="command"), HERE)

    assert caught.value.message.endswith("choose one that says `extends: command`")
    assert "handoffd config show" == caught.value.hint


def test_a_session_is_continued_where_there_is_one() -> None:
    """Without one, the words that ask for it are left out."""
    tool = Executor(name="tool", argv=("tool", ("--resume", "{session}"), "-"))
    again = InvocationContext(python="python", prompt_file="prompt", session="s-1")

    assert ("tool", "-") == invocation(tool, HERE).argv
    assert ("tool", "--resume", "s-1", "-") == invocation(tool, again).argv


def test_the_words_of_the_chosen_permission_are_filled_in() -> None:
    """As they are: nothing in them is a placeholder."""
    words = {"work": ("--allow", "{model}"), "none": ()}
    tool = Executor(name="tool", argv=("tool", "{permissions}", "-"), permissions=words, permission="work")

    assert ("tool", "--allow", "{model}", "-") == invocation(tool, HERE).argv
    none = tool.model_copy(update={"permission": "none"})
    assert ("tool", "-") == invocation(none, HERE).argv


def test_a_permission_may_be_another_one_at_a_step() -> None:
    """At that step alone, and only in the place of the one that is chosen."""
    words = {"work": ("--work",), "work@commit": ("--commit",), "read": ("--read",)}
    tool = Executor(name="tool", argv=("tool", "{permissions}"), permissions=words, permission="work")
    commit = replace(HERE, step="commit")

    assert ("tool", "--work") == invocation(tool, replace(HERE, step="impl")).argv
    assert ("tool", "--commit") == invocation(tool, commit).argv
    assert ("tool", "--read") == invocation(tool.model_copy(update={"permission": "read"}), commit).argv


def test_the_lines_that_are_not_kept_are_told_to_the_shim() -> None:
    """It alone sees them."""
    tool = Executor(name="tool", argv=("tool",), stream=StreamFormat(partial=('{"t":"delta"',)))

    assert ('{"t":"delta"',) == invocation(tool, HERE).partial
    assert () == invocation(tool.model_copy(update={"stream": None}), HERE).partial


def test_who_can_continue_a_session_says_where_its_id_is_told() -> None:
    """And has a place for it in argv."""
    argv = ("tool", ("--resume", "{session}"))
    stream = StreamFormat(session=("id",))

    assert Executor(name="tool", argv=argv, stream=stream).can_resume
    assert not Executor(name="tool", argv=argv).can_resume
    assert not Executor(name="tool", argv=("tool",), stream=stream).can_resume
