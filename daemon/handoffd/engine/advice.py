"""What a person would type next, from where a track stands: the same in an answer, a notice and `status`."""

from __future__ import annotations

from typing import Final

from handoffd.engine.backlog import startable
from handoffd.engine.caps import SHARED, Finding
from handoffd.engine.commands import command
from handoffd.engine.track import Track
from handoffd.engine.waiting import at_gate
from handoffd.protocol.rules import DONE, Rule, RuleBook
from handoffd.protocol.state import Reason, State, Status

ONLY_A_PERSON: Final = frozenset({Reason.NEEDS_CLARIFICATION, Reason.SCOPE_WARNING})
"""Reasons that ask something which only a person can answer, unless the step table routes them."""


def is_unrouted(rule: Rule, reason: Reason | None) -> bool:
    """Return whether a failure for `reason` leads to no step: a person is asked."""
    return reason in ONLY_A_PERSON and reason not in rule.on_fail


def next_command(track: Track, rules: RuleBook) -> str | None:
    """Return the command that leads on, as a template; None while it is nobody's turn but the daemon's."""
    state, ledger = track.state, track.ledger
    if state is None:
        return command("init")
    if ledger.held_edit and not ledger.dispatch:
        return command("confirm")  # before a resume: what went on meanwhile may be in it
    if ledger.paused_by:
        return f"{ledger.remedy} && {command('resume')}" if ledger.remedy else command("resume")
    if state.status is Status.RUNNING:
        return None
    if ledger.capped and state.status is Status.PENDING and ledger.automatic and not ledger.closed:
        return raising(ledger.capped, state.story)
    if state.story is None or state.step == DONE or ledger.closed:
        return command("continue") if startable(ledger) else command("start", "STORY")
    return _at_rest(track, state, rules)


def _at_rest(track: Track, state: State, rules: RuleBook) -> str | None:
    if state.step not in rules.steps:
        return command("rules check")
    if state.status is Status.NEEDS_HUMAN and at_gate(track, rules):
        return approving(state)
    if state.status is Status.NEEDS_HUMAN and state.reason in ONLY_A_PERSON and not state.human_note:
        return command("note", "TEXT")
    if state.status in {Status.NEEDS_HUMAN, Status.TIMEOUT}:
        return command("retry")
    return None if track.ledger.automatic else command("dispatch")


def approving(state: State) -> str:
    """Return what opens the gate a story waits at, and no other's: it may be typed hours later."""
    return command("approve", *(() if state.story is None else ("--story", state.story)))


def way_on(track: Track, rules: RuleBook) -> str:
    """Return what leads on for somebody whose verb was refused: the next command, or a look."""
    if track.state is not None and track.state.status is Status.RUNNING:
        return command("status", "--watch")
    return next_command(track, rules) or command("status")


def raising(finding: Finding, story: str | None) -> str:
    """Return the command that raises a cap to twice what it is; of one in the settings, where it stands."""
    if finding.scope in SHARED:
        key = f"caps.{finding.scope}_{finding.unit}"
        return f"handoffd config show  # raise {key} in the file it names, then restart the daemon"
    whose = {"attempt": ("--attempt",), "story": ("--story", story or "STORY")}.get(finding.scope, ())
    return command("budget", *whose, f"--{finding.unit}", f"{2 * finding.cap:.15g}")
