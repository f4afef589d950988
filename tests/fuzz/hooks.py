"""What schemathesis is kept from: other folders than the sample's, and answers that never end."""

from __future__ import annotations

import os
import zlib
from typing import Any

import schemathesis

PROJECT = os.environ.get("HANDOFFD_FUZZ_PROJECT", "/nonexistent")
OTHER = os.environ.get("HANDOFFD_FUZZ_OTHER", "/nonexistent")
"""A project that may come and go, so that the sample stays."""
_COMING_AND_GOING = {"/v1/verbs/add", "/v1/verbs/remove"}
_ON = {"1", "true", ""}
_HALF = "\ud800"
"""Half a character: JSON can hold it, no text can."""


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Have most requests be about the sample project, none about a folder that is not ours, none a stream."""
    if isinstance(case.body, dict):
        _turn(case.body, "project", OTHER if case.path in _COMING_AND_GOING else PROJECT)
        if _is_wrong(case) and "project" in case.body and not zlib.crc32(repr(case.body).encode()) % 4:
            # With an unknown key: the description cannot express that the text alone is invalid.
            case.body |= {"project": f"{PROJECT}{_HALF}", "unknown": True}
    if case.query:
        for name in ("project", "folder"):
            _turn(case.query, name, PROJECT)
        for name in ("follow", "stream"):
            if isinstance(case.query.get(name), str) and case.query[name] in _ON:
                case.query[name] = "0"


def _is_wrong(case: Any) -> bool:
    """Return whether a case is meant to be refused anyway."""
    return case.meta is not None and case.meta.generation.mode.is_negative


def _turn(given: Any, name: str, project: str) -> None:
    """Put a project in the place of a name; some stay as they are, but never a path."""
    value = given.get(name)
    if isinstance(value, str) and value and (value.startswith("/") or zlib.crc32(value.encode()) % 8):
        given[name] = project
