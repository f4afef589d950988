"""`orchestrator.said`: answers as the reference prints them."""

from __future__ import annotations

import json

from handoffd.orchestrator.console import Said, as_json, broken, refused


def test_an_error_has_the_keys_of_the_reference_in_their_order() -> None:
    """What is ours beyond them goes to stderr."""
    error = {
        "message": "no", "recoverable": True, "type": "error", "code": "X",
        "step": "impl", "next_command": "y z",
    }  # fmt: skip

    said = refused("approve", error, 1)

    assert ["type", "code", "message", "recoverable"] == list(json.loads(said.out[0]))
    assert (("[approve] ERROR (X): no", "  next: y z"), 1) == (said.err, said.code)


def test_what_may_work_later_has_an_exit_code_of_its_own() -> None:
    """Unless the verb knows better."""
    error = {"type": "error", "code": "X", "message": "no", "recoverable": True}

    assert (2, 1) == (refused("dispatch", error).code, refused("reject", error, 1).code)


def test_what_cannot_be_carried_out_is_an_internal_error() -> None:
    """As the reference calls everything that it throws."""
    said = broken("the disk is full", "df -h")

    assert {"type": "error", "code": "INTERNAL_ERROR", "message": "the disk is full"} == json.loads(
        said.out[0]
    )
    assert (127, "  next: df -h") == (said.code, said.err[-1])


def test_json_goes_to_stdout() -> None:
    """The rest is for people."""
    assert Said(("7",), ("x",), 3) == as_json(7, "x", code=3)
