"""From the JSON of an answer to a value, or to what is raised."""

from __future__ import annotations

import pytest

from handoffd.errors import Refused
from handoffd.library.results import accepted, dispatch_result

TAKEN = {
    "type": "dispatched", "project": "/srv/shop", "story": "US-1", "step": "bdd", "attempt": 1,
    "dispatch": "d-1", "caller_instruction": "do it", "prompt": "# Do bdd", "fw_lv": 2, "waits_for": None,
}  # fmt: skip


def test_a_dispatch_has_its_prompt() -> None:
    """Keys that a value has no place for are left out: there may be more of them tomorrow."""
    result = dispatch_result(TAKEN)

    assert result.type == "dispatched"
    assert ("# Do bdd", 2) == (result.prompt, result.fw_lv)


def test_the_type_says_which_value_it_is() -> None:
    """As it says in the JSON."""
    blocked = {"type": "blocked", "step": "bdd", "reason": "by US-0", "caller_instruction": "wait"}

    assert "blocked" == dispatch_result(blocked).type


def test_a_refusal_is_raised_with_what_to_type() -> None:
    """The engine calls it `next_command`."""
    answer = {
        "type": "error",
        "code": "SUPERVISED",
        "message": "level 2",
        "next_command": "handoffd level . 1",
    }
    with pytest.raises(Refused, match="level 2") as refused:
        accepted(answer)

    assert ("SUPERVISED", "handoffd level . 1") == (refused.value.code, refused.value.hint)
