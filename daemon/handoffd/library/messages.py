"""Text in, as a person types it in a chat; what it means and what became of it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from handoffd.entrance.messages import say
from handoffd.library.asking import Root, path_of, place
from handoffd.protocol.intents import Intent, classify
from handoffd.protocol.rules import Language

__all__ = ["Intent", "Reply", "auto", "classify"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What became of a message."""

    action: str
    """`query`, `dispatched`, `approved`, `noted`, `error` and so on; docs/chat.md has all of them."""
    report: str
    """What to tell the person, in the language of the message."""
    project: str | None
    """The root of the project that was meant."""
    intent: dict[str, Any]
    """What was understood; see `Intent`."""
    result: dict[str, Any] | None
    """The answer of the verb or read behind it; of a dispatch with its `prompt` and `caller_instruction`."""


def auto(root: Root, text: str, language: Language | None = None) -> Reply:
    """Do what a message means, by rules alone: answer a question, give a verb, start a task.

    Free text never opens a gate. What cannot be done is a reply, too (action `error`, or `unclear`).
    """
    answer = say(place(), path_of(root), text, language).json
    return Reply(
        action=answer["action"], report=answer["report"], project=answer.get("project"),
        intent=answer["intent"], result=answer.get("result"),
    )  # fmt: skip
