"""STATE.json as it lies there, for those who only want to see it: nothing is journalled, nothing written.

Standard library only, because scripts ask for it again and again. What the reference mends when it
reads (a near-miss of a status, a reason where none belongs), this shows mended and leaves as it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from handoffd.files.rooted import open_file

STATE = ".ai/STATE.json"
RULES = ".ai/step-rules.yaml"

STEPS: Final = (
    "bootstrap", "bdd", "sdd-delta", "contract", "review", "scaffold", "impl", "verify", "commit",
    "update-memory", "custom", "done",
)  # fmt: skip
"""The steps that ship. A project with a step table of its own may have others."""
STATUSES: Final = ("pending", "running", "pass", "failing", "needs_human", "timeout")
REASONS: Final = (
    "constitution_violation", "needs_clarification", "nfr_missing", "scope_warning", "test_timeout",
)  # fmt: skip
NEAR: Final[Mapping[str, str]] = {
    **dict.fromkeys(("passing", "passed", "done", "complete", "completed"), "pass"),
    **dict.fromkeys(("failed", "fail", "failure"), "failing"),
    **dict.fromkeys(("timed_out", "timedout"), "timeout"),
    **dict.fromkeys(("human", "blocked"), "needs_human"),
}

_MOST_BYTES = 1024 * 1024


class NoState(Exception):
    """There is no STATE.json."""


class BadState(Exception):
    """STATE.json cannot be understood."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A STATE.json as JSON values in the order of the file; `mended` says what is shown otherwise."""

    values: dict[str, Any]
    mended: tuple[str, ...] = ()


def read_state(root: str) -> Shown:
    """Return what STATE.json says. Raises NoState, BadState, and StoreError for what is no file."""
    text = _text(root)
    if text is None:
        raise NoState(f"there is no {STATE} in {root}: orchestrator init {root} NAME")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadState(f"{STATE} is not valid JSON ({str(error)[:200]})") from None
    if not isinstance(values, dict):
        raise BadState(f"{STATE} is no JSON object")
    mended = tuple(_mend(values))
    _check(values, own_steps=os.path.lexists(os.path.join(root, RULES)))
    return Shown(values, mended)


def _text(root: str) -> bytes | None:
    if not os.path.isdir(root):
        return None
    with open_file(Path(root), STATE) as handle:
        if handle is None:
            return None
        with open(handle, "rb", closefd=False) as file:
            content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise BadState(f"{STATE} is larger than {_MOST_BYTES:,} bytes")
    return content.removeprefix(b"\xef\xbb\xbf")


def _mend(values: dict[str, Any]) -> list[str]:
    said = []
    status = values.get("status")
    if isinstance(status, str) and status not in STATUSES and status.lower() in NEAR:
        values["status"] = NEAR[status.lower()]
        said.append(f'status "{status}" is shown as "{values["status"]}"')
    reason, allowed = values.get("reason"), values.get("status") in ("failing", "needs_human")
    if reason is not None and not (allowed and reason in REASONS):
        values["reason"] = None
        said.append(f"reason {str(reason)[:80]!r} is not shown: it does not belong to the status")
    values.setdefault("reason", None)
    return said


def _check(values: Mapping[str, Any], *, own_steps: bool) -> None:
    step, status = values.get("step"), values.get("status")
    if not values.get("project"):
        raise BadState(f"{STATE} names no project")
    if not isinstance(step, str) or not step or (step not in STEPS and not own_steps):
        raise BadState(f"{STATE} has an unknown step {str(step)[:80]!r} (allowed: {', '.join(STEPS)})")
    if status not in STATUSES:
        raise BadState(f"{STATE} has an unknown status {str(status)[:80]!r} (allowed: {', '.join(STATUSES)})")
    for name, least in (("attempt", 0), ("max_attempts", 1)):
        value = values.get(name, least)
        if isinstance(value, int | float) and value < least:
            raise BadState(f"{name} in {STATE} must be at least {least}, not {value}")
