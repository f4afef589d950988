"""The endpoint for chat layers: a message in, what it means and what became of it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from handoffd.control.api.endpoint import BY, Asked, Endpoint
from handoffd.control.history import Json
from handoffd.control.messages import Messages
from handoffd.control.places import Spoken
from handoffd.control.vocabulary import Parameter
from handoffd.reports.wording import LANGUAGES


@dataclass(frozen=True, kw_only=True)
class MessageAnswer:
    """What a message means, what became of it, and the words to show to whoever sent it."""

    type: Literal["message"]
    project: str | None
    intent: dict[str, Any]
    action: str
    result: dict[str, Any] | None
    report: str
    language: str
    caller_instruction: str


async def _answer(asked: Asked) -> Json:
    given = asked.given
    messages = Messages(asked.service)
    spoken = Spoken(project=given["project"], here=given["here"], supervised_only=given["supervised_only"])
    return await messages.answer(spoken, given["text"], asked.caller, given["language"])


MESSAGES: Final = (
    Endpoint(
        name="message", path="/v1/messages", method="POST",
        help="Understand a message and do what it means: as `auto --json`. 200 also where it is refused.",
        body=(
            Parameter(name="text", type="text", required=True, help="what a person wrote"),
            Parameter(name="project", type="text", help="the project that is talked of: name or path"),
            Parameter(
                name="here", type="text",
                help="the folder that the sender is in, absolute: looked at where no project is named, and "
                "never begun with",
            ),
            Parameter(
                name="supervised_only", type="flag",
                help="begin nothing in an unsupervised folder, even if the message names it",
            ),
            Parameter(name="language", type="text", choices=LANGUAGES, help="of the report: en or zh-TW"),
            BY,
        ),
        answer=_answer, shape=MessageAnswer, hint="handoffd auto PROJECT TEXT",
    ),
)  # fmt: skip
