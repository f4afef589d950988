"""`handoffd peek`."""

from __future__ import annotations

from tests.support.commands import Commands
from tests.support.controlled import Controlled


def test_the_next_turn_with_its_prompt(control: Controlled, handoffd: Commands) -> None:
    """Why, who, what is missing, and the prompt, which cannot drive the terminal."""
    said = handoffd("peek", "shop")

    assert [
        "bdd, attempt 1: bdd attempt 1 of 3",
        "  warning: docs/sdd.md is missing",
        "  executor: claude",
        "",
        "# Do bdd",
        "\\x1b[31mred",
    ] == said.lines


def test_json_is_the_apis(control: Controlled, handoffd: Commands) -> None:
    """With the result, addressed to the project."""
    told = handoffd("peek", "shop", "--json").json

    assert ("claude", "taken; see /srv/shop") == (told["executor"], told["result"]["caller_instruction"])
