"""What the functions of the library return: frozen values, made from the JSON that every interface has.

They are the engine's results; a dispatch also has its prompt.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import Struct

from handoffd.engine import decision
from handoffd.engine.decision import AlreadyRunning, Blocked, Finished, NeedsHuman, TimedOut
from handoffd.engine.run import PostCheck
from handoffd.errors import Json, Refused
from handoffd.protocol.state import revived

_T = TypeVar("_T")


class Dispatched(decision.Dispatched, frozen=True, kw_only=True):
    """An attempt began. `prompt` is its instruction; None at level 2, where handoffd has it done."""

    prompt: str | None = None
    fw_lv: int | None = None
    """How far the project has adopted the files of the protocol: 0, 1 or 2."""


class Checked(Struct, frozen=True, kw_only=True):
    """How the post_check of a step ended. `passed` is None where the step has none."""

    passed: bool | None
    command: str | dict[str, str] | None
    """Of several checks, each one's by its name."""
    tail: str
    """The end of what it printed; of several, of what the failed ones did."""
    message: str
    checks: tuple[PostCheck, ...] = ()
    """How it ended, or each of several."""


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
    found: DispatchResult = msgspec.convert(accepted(answer), DispatchResult, dec_hook=revived)
    return found


def value_of(kind: type[_T], answer: Json) -> _T:
    """Return an answer as a value of its kind."""
    return msgspec.convert(answer, kind, dec_hook=revived)
