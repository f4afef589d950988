"""Errors as the API tells them: one shape, stable codes, and a fitting HTTP status for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from handoffd.control.history import Json
from handoffd.errors import HandoffdError, Locked, NotFound, Refused, StoreError

BY_CODE: Final[Mapping[str, int]] = {
    "BAD_REQUEST": 400,
    "BAD_ARGUMENT": 400,
    "INVALID_STORY": 400,
    "FORBIDDEN": 403,
    "INSIDE_EXECUTOR": 403,
    "METHOD_NOT_ALLOWED": 405,
    "TOO_LARGE": 413,
    "INTERNAL": 500,
}
"""Codes whose status is not that of their family."""

BY_FAMILY: Final[tuple[tuple[type[HandoffdError], int], ...]] = (
    (NotFound, 404),
    (Locked, 409),
    (Refused, 409),
    (StoreError, 503),
)


def status_of(error: HandoffdError) -> int:
    """Return the HTTP status for an error; 400 for a family without one."""
    by_family = next((code for kind, code in BY_FAMILY if isinstance(error, kind)), 400)
    return BY_CODE.get(error.code, by_family)


def error_json(error: HandoffdError) -> Json:
    """Return an error as the API tells it: type, code, message, hint, and what belongs to it."""
    told = {"type": "error", "code": error.code, "message": error.message, "hint": error.hint}
    return {**told, **error.details}
