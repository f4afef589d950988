"""What the functions of the library return: frozen values, made from the JSON that every interface has.

They are the engine's results; a dispatch also has its prompt.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from handoffd.engine import decision
from handoffd.engine.decision import AlreadyRunning, Blocked, Finished, NeedsHuman, TimedOut
from handoffd.engine.views import Applied, Peek
from handoffd.errors import Json, Refused
from handoffd.protocol.state import revived


class Dispatched(decision.Dispatched, frozen=True, kw_only=True):
    """An attempt began. `prompt` is its instruction; None at level 2, where handoffd has it done."""

    prompt: str | None = None
    fw_lv: int | None = None
    """How far the project has adopted the files of the protocol: 0, 1 or 2."""


class Checked(Struct, frozen=True, kw_only=True):
    """How the post_check of a step ended. `passed` is None where the step has none."""

    passed: bool | None
    command: str | None
    tail: str
    """The end of what it printed."""
    message: str


DispatchResult = Dispatched | Finished | NeedsHuman | Blocked | AlreadyRunning | TimedOut
"""The outcomes of a turn; `type` tells which."""


def accepted(answer: Json) -> Json:
    """Return an answer, or raise Refused with the code and command of a refusal."""
    if answer["type"] == "error":
        code = str(answer.get("code") or Refused.default_code)
        raise Refused(
            str(answer["message"]), code=code, hint=answer.get("next_command") or answer.get("hint")
        )
    return answer


def dispatch_result(answer: Json) -> DispatchResult:
    """Return the outcome of a turn. Raises Refused."""
    found: DispatchResult = _value(DispatchResult, accepted(answer))
    return found


def applied_result(answer: Json) -> Applied:
    """Return the outcome of a hand-off; one that cannot be read is a value, too."""
    applied: Applied = _value(Applied, answer)
    return applied


def checked_result(answer: Json) -> Checked:
    """Return how a post_check ended. Raises Refused."""
    checked: Checked = _value(Checked, accepted(answer))
    return checked


def peek_result(answer: Json) -> Peek:
    """Return what the next turn would do."""
    peek: Peek = _value(Peek, answer)
    return peek


def _value(kind: Any, answer: Json) -> Any:
    return msgspec.convert(answer, kind, dec_hook=revived)


__all__ = [
    "AlreadyRunning",
    "Applied",
    "Blocked",
    "Checked",
    "DispatchResult",
    "Dispatched",
    "Finished",
    "NeedsHuman",
    "Peek",
    "TimedOut",
    "accepted",
    "applied_result",
    "checked_result",
    "dispatch_result",
    "peek_result",
]
