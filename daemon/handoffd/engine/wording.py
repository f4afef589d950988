"""What a person is told, and what they type next: the same in an answer, a notice and `status`.

The rules decide; facts come from them. Here are the command that leads on from where a track stands, the
decisions that say no more than that (refused, accepted, ask a person), and the words for the end of an
output and for spans of time.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from handoffd.engine.backlog import startable
from handoffd.engine.commands import approving, command
from handoffd.engine.decision import Accepted, Decision, NeedsHuman, NoticeKind, Notify, Refusal, Situation
from handoffd.engine.events import NoticeGivenUp
from handoffd.engine.track import Track
from handoffd.engine.usage import SHARED, Finding
from handoffd.protocol.rules import DONE, Rule, RuleBook
from handoffd.protocol.state import Reason, State, Status

# --- what a person types next -------------------------------------------------------------------------
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
        return approving(state.story)
    if state.status is Status.NEEDS_HUMAN and state.reason in ONLY_A_PERSON and not state.human_note:
        return command("note", "TEXT")
    if state.status in {Status.NEEDS_HUMAN, Status.TIMEOUT}:
        return command("retry")
    return None if track.ledger.automatic else command("dispatch")


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


# --- whether one is waited for ------------------------------------------------------------------------
def at_gate(track: Track, rules: RuleBook) -> bool:
    """Return whether a track is at a human step, or at one that was so when a person was asked there."""
    state = track.state
    rule = rules.steps.get(state.step) if state is not None else None
    return state is not None and rule is not None and (rule.requires_human or track.ledger.gate == state.step)


def still_waits(track: Track, story: str | None, step: str) -> bool:
    """Return whether a track still waits where it stood when a person was told that it does.

    It does not once it runs, has gone on to another step or story, or has ended. A trial whether the reason
    of our own pause is over is no news yet.
    """
    state, ledger = track.state, track.ledger
    if state is None or ledger.closed or state.step == DONE or (state.story, state.step) != (story, step):
        return False
    if ledger.held_edit is not None:
        return True
    if state.status in {Status.NEEDS_HUMAN, Status.TIMEOUT}:
        return True
    if state.status is Status.RUNNING:
        return ledger.remedy is not None and any(fault.trying for fault in ledger.faults)
    paused = ledger.remedy is not None  # by us, for want of something, or that is just being tried again
    return state.status is Status.PENDING and (paused or bool(ledger.capped or ledger.told))


# --- decisions that say no more than that, and notices ------------------------------------------------
def refuse(situation: Situation, code: str, message: str, advice: str | None = None) -> Decision:
    """Return the decision that changes nothing and says why.

    `advice` is the command that leads on; a fact of our own that comes too late needs none.
    """
    state = situation.track.state
    result = Refusal(
        code=code,
        message=message,
        step=state.step if state is not None else None,
        next_command=advice,
        caller_instruction=f"{message}; next: {advice}" if advice else f"{message}; there is nothing to do",
    )
    return Decision(track=situation.track, result=result, why=f"refused: {message}")


def accept(track: Track, message: str, *, why: str | None = None, do: str | None = None) -> Decision:
    """Return the decision for something that was simply taken; `do` is what a program does next."""
    state = track.state
    assert state is not None
    instruction = f"{message}; {do or 'ask for the status to see what follows'}"
    result = Accepted(
        step=state.step, status=state.status.value, message=message, caller_instruction=instruction
    )
    return Decision(track=track, result=result, why=why or message)


def ask_human(
    situation: Situation,
    message: str,
    *,
    why: str,
    action: str | None = None,
    review: tuple[str, ...] = (),
    tell: bool = True,
) -> Decision:
    """Return the decision that waits for a person, with the notice that tells one.

    The situation's track is the one that waits; `action` is what to type where that does not follow from it.
    """
    track, state = situation.track, situation.state
    action = action or next_command(track, situation.rules)
    result = NeedsHuman(
        step=state.step,
        message=message,
        review=review,
        next_command=action,
        caller_instruction=f"A person must act: {message}. Do not dispatch; show this to them: {action}",
    )
    decision = Decision(track=track, result=result, why=why)
    if not tell:
        return decision
    return decision.also(notice(track, "needs_human", message, why=why, action=action, review=review))


def notice(
    track: Track,
    kind: NoticeKind,
    text: str,
    *,
    why: str | None = None,
    action: str | None = None,
    review: tuple[str, ...] = (),
) -> Notify:
    """Return the order to tell a person `text` about the track."""
    state = track.state
    assert state is not None
    return Notify(
        notice=kind, story=state.story, step=state.step, text=text, why=why, action=action, review=review
    )


def notice_given_up(situation: Situation, event: NoticeGivenUp) -> Decision:
    """Return the decision that only remembers: telling of it by the same way would be lost as well."""
    many = "a notice was" if event.count == 1 else f"{event.count} notices were"
    why = f"{many} given up, {event.sink} did not take {'it' if event.count == 1 else 'them'}: {event.why}"
    decision = accept(situation.track, why, do="mend `notify` in the settings")
    return replace(decision, memorable=True)


# --- what an output says last -------------------------------------------------------------------------
LAST_LINES = 600
"""Characters of output quoted in last_error, of facts that name no line of it."""


LINE = 200
"""Characters of the one line of output that is quoted in last_error."""


_FRAME = re.compile(r'File "[^"]*", line \d|at \S.*:\d+\)?$')
"""A line of a stack trace, of Python or of JavaScript and Java."""

_HEADER = "(most recent call"


_EXCEPTION = re.compile(r"(?:\w+\.)*[A-Z]\w*(?::|$)")
"""What Python writes below the frames: the exception, which may go on for some lines."""


_BEHIND_FRAMES = 8
"""Where more lines than that follow a frame, the trace is not what the output ends with."""


class Printed(Protocol):
    """What a process printed last: its lines, and the one that messages quote."""

    @property
    def tail(self) -> str:
        """The last lines, for the next prompt and for a closer look."""

    @property
    def line(self) -> str | None:
        """The one for lists; None: of a release that quoted all of them."""


def last_lines(text: str) -> str:
    """Return the end of an output in one line, short enough for last_error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    joined = " | ".join(lines[-5:])
    return joined if len(joined) <= LAST_LINES else "…" + joined[-LAST_LINES:]


def last_line(text: str) -> str:
    """Return the last line of an output that says something, short enough for last_error.

    Of a stack trace at the end that is what was raised, on one line: its frames say nothing without it.
    """
    lines = [" ".join(line.split()) for line in text.splitlines() if any(sign.isalnum() for sign in line)]
    line = _raised(lines) or (lines[-1] if lines else "")
    return line if len(line) <= LINE else f"{line[: LINE - 1]}…"


def _raised(lines: list[str]) -> str | None:
    """Return what was raised where the last of `lines` belong to a stack trace; None where they do not."""
    last = next((place for place in reversed(range(len(lines))) if _FRAME.match(lines[place])), None)
    if last is None or len(lines) - last > _BEHIND_FRAMES:
        return None
    first = last
    while first > 0 and (_FRAME.match(lines[first - 1]) or _FRAME.match(lines[max(first - 2, 0)])):
        first -= 1  # between two frames may be a line of source
    if lines[last].startswith("at "):
        return lines[first - 1] if first > 0 else None
    for place in range(last + 1, len(lines)):
        if _EXCEPTION.match(lines[place]):
            return " ".join(lines[place:])
    before = [
        line for line in lines[:first] if _HEADER not in line
    ]  # it was cut, or is a stack without error
    return before[-1] if before else None


def said_last(printed: Printed) -> str:
    """Return what an output says last, in one line; empty when it says nothing."""
    return last_lines(printed.tail) if printed.line is None else printed.line


def with_line(problem: str, printed: Printed) -> str:
    """Return a problem with what the output says last, which explains it."""
    return with_end(problem, said_last(printed))


def with_end(problem: str, said: str) -> str:
    """Return a problem with one line of output behind it, if there is one."""
    return f"{problem} ({said})" if said else problem


# --- times --------------------------------------------------------------------------------------------
def time_in_words(minutes: float) -> str:
    """Return a time in whole minutes, and one below a minute in seconds."""
    return f"{round(minutes)} min" if minutes >= 1 else f"{max(round(minutes * 60), 1)} s"


def limit_in_words(minutes: float) -> str:
    """Return a limit as the step table has it, and one below a minute in seconds."""
    return f"{minutes:g} min" if minutes >= 1 else f"{minutes * 60:g} s"


def until_words(until: datetime, now: datetime) -> str:
    """Return `until 15:00 UTC (in 2 h 10 min)`, by the clock of the zone that `until` is in."""
    local = now.astimezone(until.tzinfo)
    day = "" if local.date() == until.date() else f"{until:%a %d %b} "
    return f"until {day}{until:%H:%M} {until:%Z} (in {span(until - now)})"


def span(length: timedelta) -> str:
    """Return a span of time in the two units that matter: `3 d 4 h`, `2 h 10 min`, `12 min`, `45 s`."""
    seconds = max(round(length.total_seconds()), 0)
    if seconds < 100:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"
