"""Answers: a public contract, the JSON of the CLI and the API."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

from handoffd.engine.decision import Result

RESULTS = {result.__dataclass_fields__["type"].default: result for result in get_args(Result)}


def test_the_types_are_those_of_the_protocol() -> None:
    """Other tools switch on them; `accepted` is for verbs that dispatch nothing."""
    protocol = {"dispatched", "done", "needs_human", "blocked", "already_running", "timeout", "error"}
    assert protocol | {"accepted"} == RESULTS.keys()


def test_each_carries_the_fields_of_the_protocol() -> None:
    """Keys are added, never renamed; `prompt` and `fw_lv` are the caller's to add."""
    promised = {
        "dispatched": {"project", "story", "step", "attempt"},
        "done": {"story", "summary"},
        "needs_human": {"step", "message"},
        "blocked": {"step", "reason"},
        "already_running": {"step", "elapsed_min", "last_error"},
        "error": {"code", "message", "step", "recoverable"},
    }
    missing = {
        name: keys - {field.name for field in fields(RESULTS[name])} for name, keys in promised.items()
    }
    assert {} == {name: keys for name, keys in missing.items() if keys}


def test_each_tells_its_caller_what_to_do_next() -> None:
    """An LLM that called us is told one true sentence, always."""
    assert all("caller_instruction" in result.__dataclass_fields__ for result in RESULTS.values())
