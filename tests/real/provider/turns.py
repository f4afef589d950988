"""What passes between an agent CLI and the scripted model, in words that belong to no provider.

A dialect (`anthropic`, `responses`, `chat`, `gemini`) turns a request into an `Asked` and an answer into
the bytes that its provider would send.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Json = dict[str, Any]


@dataclass(frozen=True)
class Tokens:
    """What an answer says it has used."""

    input: int = 1200
    output: int = 60
    cached: int = 800


@dataclass(frozen=True)
class Call:
    """One call of a tool of the agent's. `freeform`: its input is the text in `arguments["input"]`."""

    tool: str
    arguments: Mapping[str, Any]
    freeform: bool = False


@dataclass(frozen=True)
class Turn:
    """A successful answer: something said, then perhaps calls of tools."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    tokens: Tokens = Tokens()
    by_word: bool = False
    """Whether each word of the text is an event of its own."""

    @property
    def pieces(self) -> list[str]:
        """The text as it is streamed."""
        return re.findall(r"\S+\s*", self.text) if self.by_word else [self.text]


@dataclass(frozen=True)
class Fault:
    """A refusal, as the provider words it."""

    status: int
    body: Json
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Silence:
    """No answer at all: the connection stays open for so long, unless the agent goes away."""

    seconds: float = 120


@dataclass(frozen=True)
class Slow:
    """An answer whose events are `pause_s` seconds apart, with a ping every `ping_s` seconds between them."""

    text: str
    pause_s: float
    ping_s: float | None = None


Answer = Turn | Fault | Silence | Slow


@dataclass(frozen=True)
class Asked:
    """One request. `done` counts the results of tools since `prompt`, the last thing a person said."""

    dialect: str
    model: str
    prompt: str
    done: int
    tools: tuple[str, ...]
    stream: bool = True


Model = Callable[[Asked], Answer]
"""Decides what is answered; called from the server's threads."""


class Dialect(Protocol):
    """How one provider's API is spoken."""

    name: str
    ping: bytes
    """What the provider sends to keep a connection open."""

    def asked(self, path: str, body: Json) -> Asked:
        """Return what the request asks."""

    def answer(self, asked: Asked, turn: Turn) -> tuple[str, bytes]:
        """Return content type and body of a successful answer."""
