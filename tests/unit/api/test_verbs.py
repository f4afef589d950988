"""The table of verbs."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, get_args, get_type_hints

from handoffd.api.arguments import TYPES, event_of
from handoffd.api.verbs import VERBS, Parameter
from handoffd.inspection.own_files import shipped_layers
from handoffd.protocol.rulebook import build_rulebook
from handoffd.protocol.state import Reason


def test_every_verb_is_an_event_or_one_of_those_that_do_more() -> None:
    """And its event takes what the verb does, by the same names, or has a line that says otherwise."""
    more = {"init", "add", "remove", "trust", "dispatch", "apply", "check"}

    assert more == {name for name, spec in VERBS.items() if spec.event is None}
    for name in VERBS.keys() - more - {"start", "custom"}:
        given: dict[str, Any] = {one.name: None for one in VERBS[name].parameters}
        assert VERBS[name].event == event_of(VERBS[name], given, "eve").kind


def test_every_type_of_a_parameter_is_declared() -> None:
    """With its check and its schema, once."""
    assert set(TYPES) == set(get_args(get_type_hints(Parameter)["type"]))


def test_what_opens_a_gate_is_for_people_only() -> None:
    """Approving, rejecting, skipping, trusting and the like are never an executor's to give."""
    always = {name for name, spec in VERBS.items() if spec.guard == "always"}

    assert {
        "approve", "reject", "retry", "skip", "resume", "reopen", "confirm", "trust", "add", "init", "use",
        "budget", "level", "backlog_auto",
    } == always  # fmt: skip


def test_whatever_can_be_forced_is_guarded() -> None:
    """No verb takes `force` from an executor."""
    forced = {name for name, spec in VERBS.items() if any(one.name == "force" for one in spec.parameters)}

    assert {"start", "rollback"} == forced
    assert all(VERBS[name].guard != "never" for name in forced)


def test_the_table_costs_the_command_line_nothing() -> None:
    """Reading it imports the standard library only."""
    code = "import sys; import handoffd.api.verbs; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert not {"pydantic", "structlog", "anyio", "starlette"} & set(loaded.stdout.split())


def test_the_help_of_reject_lists_the_reasons_with_where_each_leads() -> None:
    """As the shipped step table has it."""
    review = build_rulebook(shipped_layers(None)).steps["review"]
    told = next(one for one in VERBS["reject"].parameters if one.name == "reason").help
    assert [
        f"{reason} (→ {review.target(reason)})"
        for reason in Reason
        if f"{reason} (→ {review.target(reason)})" not in told
    ] == []
