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
)

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
