"""The sentences decisions are told in. Facts come from the caller; nothing here decides."""

from __future__ import annotations

from dataclasses import replace

from handoffd.engine.advice import next_command
from handoffd.engine.decision import Decision, Situation
from handoffd.engine.effects import NoticeKind, Notify
from handoffd.engine.events import NoticeGivenUp
from handoffd.engine.results import Accepted, NeedsHuman, Refusal
from handoffd.engine.track import Track

LAST_LINES = 600
"""Characters of output quoted in last_error."""


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


def last_lines(text: str) -> str:
    """Return the end of an output in one line, short enough for last_error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    joined = " | ".join(lines[-5:])
    return joined if len(joined) <= LAST_LINES else "…" + joined[-LAST_LINES:]


def with_tail(problem: str, output: str) -> str:
    """Return a problem with the end of the output that explains it, in one line."""
    tail = last_lines(output)
    return f"{problem} ({tail})" if tail else problem


def notice_given_up(situation: Situation, event: NoticeGivenUp) -> Decision:
    """Return the decision that only remembers: telling of it by the same way would be lost as well."""
    many = "a notice was" if event.count == 1 else f"{event.count} notices were"
    why = f"{many} given up, {event.sink} did not take {'it' if event.count == 1 else 'them'}: {event.why}"
    decision = accept(situation.track, why, do="mend `notify` in the settings")
    return replace(decision, memorable=True)
