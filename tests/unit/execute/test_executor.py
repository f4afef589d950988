"""One start of an executor."""

from __future__ import annotations

import pytest

from handoffd.errors import ConfigurationError
from handoffd.execute.base import Rung
from handoffd.execute.executor import (
    Executor,
    Invocation,
    InvocationContext,
    LadderRung,
    invocation,
    version_argv,
)

HERE = InvocationContext(python="/opt/venv/bin/python", prompt_file="/state/runs/r1/prompt.md")
TOOL = Executor(
    name="tool",
    argv=("{python}", "-m", "tool", ("--model", "{model}"), "--in={prompt_file}", '{"a": {}}'),
    prompt="file",
    ladder=(LadderRung(signal="INT", grace_s=2), LadderRung(signal="KILL", grace_s=1)),
    env=("TOOL_KEY",),
    version=("{python}", "-V"),
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
    """The option is there with a model, and gone without one; the start's model wins."""
    own = TOOL.model_copy(update={"model": "small"})
    asked = InvocationContext(python="p", prompt_file="f", model="{python}")

    assert ("--model", "small") == invocation(own, HERE).argv[3:5]
    assert ("--model", "{python}") == invocation(own, asked).argv[3:5]


def test_a_pattern_cannot_be_started() -> None:
    """It says what to do instead."""
    with pytest.raises(ConfigurationError, match="executor 'command' has no argv") as caught:
        invocation(Executor(name="command"), HERE)

    assert "give one that says `extends: command`" == caught.value.hint


def test_the_version_probe() -> None:
    """It is an argv like any other, or there is none."""
    assert ("/opt/venv/bin/python", "-V") == version_argv(TOOL, HERE)
    assert None is version_argv(Executor(name="x", argv=("x",)), HERE)
