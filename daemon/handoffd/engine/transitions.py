"""Which status may follow which, by what: the whole truth as one table.

Theory of operation. A track is always in exactly one of seven conditions: not yet initialised, or
one of the six statuses of STATE.json. Facts (`events.py`) arrive one at a time; `decide` looks the
pair (condition, fact) up here *before* it does anything else. A pair that is missing changes
nothing: a verb is refused, a fact is stale and ignored. A pair that is there names every status the
track may have afterwards, and `decide` asserts that it ended in one of them, so a rule that would
leave the table is a crash in a test and never a wrong STATE.json.

The end of a pipeline is a step (`done`, with status `pass`), not a status. How far a running attempt
has come (baseline, starting, executing, stopping, checking) is the phase of its dispatch: STATE says
`running` throughout, because other tools know no finer word.

The diagram in docs/protocol.md is drawn from this table by `diagram()`, and the tests walk all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from handoffd.protocol.state import Status

P, R, OK, F, H, T = (
    Status.PENDING,
    Status.RUNNING,
    Status.PASS,
    Status.FAILING,
    Status.NEEDS_HUMAN,
    Status.TIMEOUT,
)
ANY: Final = frozenset(Status)


def _set(*statuses: Status) -> frozenset[Status]:
    return frozenset(statuses)


AT_REST: Final = ANY - {R}


def _resting(status: Status) -> dict[str, frozenset[Status]]:
    """Return what can happen to a track while nothing of it runs."""
    same = _set(status)
    return {
        "started": AT_REST,  # a parked story is taken up again as it was set aside
        "retried": _set(P),
        "skipped": _set(OK),
        "aborted": _set(H),
        "paused": same,
        "resumed": same,
        "noted": same,
        "notice_given_up": same,
        "cause_ended": same,
        "executor_chosen": same,
        "limit_lifted": same,
        "budget_raised": same,
        "rolled_back": _set(P),
        "level_chosen": same,
        "post_checked": same,
        "backlog_moved": same,
        "backlog_edited": same,
        "backlog_removed": same,
        "auto_continue_chosen": same,
        "continued": AT_REST,  # the same holds where the backlog's next one was set aside
        "restored": same,
        "state_edited": ANY,
        "edit_confirmed": ANY,
    }


_FROM_OUTSIDE: Final = frozenset({"state_edited", "edit_confirmed"})

_GATE: Final = {"approved": _set(OK), "rejected": _set(F)}

TRANSITIONS: Final[Mapping[Status | None, Mapping[str, frozenset[Status]]]] = {
    None: {
        "initialised": _set(P),
        "state_edited": ANY,
    },
    P: {
        **_resting(P),
        **_GATE,
        "advanced": AT_REST | {R},  # without a story, the next one may have been set aside
        "prompt_taken": _set(P, R, H),
        "dispatch_failed": _set(P, H),
    },
    R: {
        "started": _set(R),
        "aborted": _set(R, H),
        "paused": _set(R),
        "resumed": _set(R),
        "noted": _set(R),
        "notice_given_up": _set(R),
        "cause_ended": _set(R),
        "executor_chosen": _set(R),
        "limit_lifted": _set(R),
        "budget_raised": _set(R),
        "level_chosen": _set(R),
        "post_checked": _set(R),
        "backlog_moved": _set(R),
        "backlog_edited": _set(R),
        "backlog_removed": _set(R),
        "auto_continue_chosen": _set(R),
        "prompt_taken": _set(R, T),
        "advanced": _set(R),
        "baseline_measured": _set(R, H),
        "executor_started": _set(R),
        "spawn_refused": _set(P, H),
        "handoff_settled": _set(R),
        "deadline_passed": _set(R, T),
        "cap_reached": _set(R),
        "executor_quiet": _set(R),
        "executor_stalled": _set(R),
        "interrupted": _set(R),
        "restored": _set(R, P),
        "executor_exited": _set(R, P, OK, F, H, T),
        "checks_finished": _set(OK, F, H),
        "handoff_arrived": _set(R, OK, F, H),
        "state_edited": ANY,
        "edit_confirmed": ANY,
    },
    OK: {
        **_resting(OK),
        "resumed": AT_REST,
        "reopened": _set(P),
        "prompt_taken": AT_REST | {R},
        "advanced": AT_REST | {R},  # the end of a custom task gives a parked story back as it was
        "dispatch_failed": _set(P, H),
    },
    F: {
        **_resting(F),
        "prompt_taken": _set(F, R, H),
        "advanced": _set(P, F, R, H),  # pending: where it led to must wait for a budget
        "dispatch_failed": _set(P, H),
    },
    H: {
        **_resting(H),
        **_GATE,
        "prompt_taken": _set(H),
        "advanced": _set(H),
    },
    T: {
        **_resting(T),
        "prompt_taken": _set(T, R, H),
        "advanced": _set(P, T, R, H),
        "dispatch_failed": _set(P, H),
    },
}


def diagram() -> str:
    """Return the table as a Mermaid state diagram; facts that change no status are left out."""
    lines = ["stateDiagram-v2", "    [*] --> pending: initialised"]
    for status, facts in TRANSITIONS.items():
        if status is None:
            continue
        arrows: dict[Status, list[str]] = {}
        for fact, targets in facts.items():
            if fact in _FROM_OUTSIDE:
                continue  # an edit may lead anywhere; drawn, it would hide the rest
            for target in targets - {status}:
                arrows.setdefault(target, []).append(fact)
        lines += [f"    {status} --> {to}: {', '.join(arrows[to])}" for to in Status if to in arrows]
    return "\n".join(lines) + "\n"
