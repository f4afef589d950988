"""What a verb says: lines for stdout and stderr, and the exit code. Values, written by `main` alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from handoffd.orchestrator.printing import js_json

FAILED, RECOVERABLE, BROKEN = 1, 2, 127


@dataclass(frozen=True, slots=True)
class Said:
    """`out` is what scripts read, `err` what people do."""

    out: tuple[str, ...] = ()
    err: tuple[str, ...] = ()
    code: int = 0


def as_json(value: Any, *err: str, code: int = 0) -> Said:
    """Return a value for stdout as JSON."""
    return Said((js_json(value),), err, code)


def refused(verb: str, error: Mapping[str, Any], code: int | None = None) -> Said:
    """Return an error as the reference prints it: JSON for programs, a line and what to type for people.

    `error` has `code`, `message`, perhaps `recoverable`, and of ours `next_command`. The exit code is 2
    for what may work later, else 1, unless `code` is given: then nothing is said to be recoverable.
    """
    recoverable = bool(error.get("recoverable")) and code is None
    shown = {"type": "error", "code": error["code"], "message": error["message"], "recoverable": recoverable}
    err = [f"[{verb}] ERROR ({error['code']}): {error['message']}"]
    if error.get("next_command"):
        err.append(f"  next: {error['next_command']}")
    given = RECOVERABLE if recoverable else FAILED
    return as_json(shown, *err, code=given if code is None else code)


def broken(message: str, hint: str | None = None) -> Said:
    """Return what is said when a verb cannot be carried out at all."""
    error = {"type": "error", "code": "INTERNAL_ERROR", "message": message}
    more = (f"  next: {hint}",) if hint else ()
    return as_json(error, f"[INTERNAL] {message}", *more, code=BROKEN)
