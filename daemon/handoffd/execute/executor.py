"""One agent CLI as a value: how to start it, end it and read it.

Nothing here goes through a shell, and the prompt never becomes part of an argv, which everybody on the
machine can read and the kernel limits to 128 KiB.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from handoffd.errors import ConfigurationError
from handoffd.execute.base import Rung, SignalName

PLACEHOLDERS = ("{model}", "{prompt_file}", "{python}")

PLACEHOLDER = re.compile(r"\{[a-z_]+\}")

Word = str | tuple[str, ...]
"""One argument, or several that are left out together when a placeholder has no value."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LadderRung(_Model):
    """One step of stopping: a signal to the whole tree, then a wait."""

    signal: SignalName
    grace_s: float = Field(5, ge=0, le=600)


class ResultLine(_Model):
    """Which line of a JSON stream tells how the run went, and the keys in it.

    `errors` holds a list of texts, `denials` a list of objects with a `tool_name`.
    """

    type: str = "result"
    is_error: str = "is_error"
    text: str = "result"
    errors: str | None = None
    denials: str | None = None
    session: str | None = None
    cost: str | None = None


class Executor(_Model):
    """One agent CLI. An empty argv makes it a pattern that others extend."""

    name: str
    argv: tuple[Word, ...] = ()
    prompt: Literal["stdin", "file"] = "stdin"
    output: Literal["text", "stream-json"] = "text"
    result: ResultLine | None = None
    ladder: tuple[LadderRung, ...] = (LadderRung(signal="TERM"), LadderRung(signal="KILL"))
    env: tuple[str, ...] = ()
    model: str | None = Field(None, min_length=1)
    version: tuple[str, ...] | None = Field(None, min_length=1)
    notes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvocationContext:
    """What one start fills in. `python` is an interpreter that can import handoffd."""

    python: str
    prompt_file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """How to start an executor once: what a `RunSpec` needs of it."""

    argv: tuple[str, ...]
    env: tuple[str, ...]
    """Names of the environment variables it may see beside the daemon's allow-list."""
    ladder: tuple[Rung, ...]
    prompt: Literal["stdin", "file"]


def invocation(executor: Executor, context: InvocationContext) -> Invocation:
    """Return how to start `executor` once; raises ConfigurationError when it is only a pattern."""
    if not executor.argv:
        message = f"executor {executor.name!r} has no argv: choose one that says `extends: {executor.name}`"
        raise ConfigurationError(message, hint="handoffd config show")
    return Invocation(
        argv=_filled(executor.argv, executor, context),
        env=executor.env,
        ladder=tuple(Rung(signal=rung.signal, grace_s=rung.grace_s) for rung in executor.ladder),
        prompt=executor.prompt,
    )


def _filled(words: tuple[Word, ...], executor: Executor, context: InvocationContext) -> tuple[str, ...]:
    values = {
        "{model}": executor.model,
        "{prompt_file}": context.prompt_file,
        "{python}": context.python,
    }
    argv: list[str] = []
    for word in words:
        group = (word,) if isinstance(word, str) else word
        if all(values.get(token, token) for text in group for token in PLACEHOLDER.findall(text)):
            argv += [PLACEHOLDER.sub(lambda token: values.get(token[0]) or token[0], text) for text in group]
    return tuple(argv)
