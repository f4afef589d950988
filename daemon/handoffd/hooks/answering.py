"""What a hook of ours answers: nothing, a note for the person, or it sends the agent back to work.

The verb `apply` decides whether a hand-off counts, by its mark, so any number of hooks may ask. This module
decides who sees what. It sends an agent back for three reasons only: the step is not handed over, the
hand-off cannot be read, or a check refuted what it claims. It gives each reason once. Recorded times hint at
whether a hand-off may be new; in doubt it may be.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from shlex import quote

from handoffd.hooks.event import BLOCKED, SESSION_END, STOP, TOLD, HookEvent, Reply
from handoffd.hooks.project import Standing
from handoffd.hooks.tally import ENOUGH, SEND_BACK, Tally

TYPE_CHECKING = False  # `typing` takes longer to import than the rest of this
if TYPE_CHECKING:
    from handoffd.errors import Json

_FOR_A_PERSON = frozenset({"failing", "needs_human", "timeout"})
_NOT_OURS = frozenset({"NOT_FOUND", "NOT_INITIALIZED"})


class Answering:
    """Answers one event.

    `apply` applies the project's hand-off and returns the verb's answer, None if that is done later.
    `theirs` tells whether a person or another tool makes the latest attempt (not an executor of ours), in a
    supervised project.
    """

    def __init__(
        self, apply: Callable[[Standing], Json | None], theirs: Callable[[str], bool], tally: Tally
    ) -> None:
        self._apply = apply
        self._theirs = theirs
        self._tally = tally

    def answer(self, event: HookEvent, standing: Standing) -> Reply:
        """Return the reply to `event` of an agent in the project that `standing` describes."""
        running, failing = standing.status == "running", standing.status == "failing"
        fresh = is_fresh(standing)
        if (running and fresh) or (failing and is_fresh_again(standing)):
            return self._heard(event, standing, self._apply(standing))
        if failing and fresh and self._theirs(standing.root):
            return self._failed(event, standing.state)
        return self._not_handed_over(event, standing.root, standing.state)

    def _not_handed_over(self, event: HookEvent, root: str, state: Json, why: str | None = None) -> Reply:
        """Return the reply at the end of a turn whose step runs on: an agent may have forgotten to hand over.

        `why`: what is wrong with the hand-off that was written since the attempt began, if one was.
        """
        running = state.get("status") == "running"
        if running and event.name == STOP and not event.continued and self._theirs(root):
            reason = f"ask {event.session}" if why is None else f"ask {event.session} {why}"
            return self._send_back(event, state, _asking(state, why), reason)
        return Reply()

    def _heard(self, event: HookEvent, standing: Standing, result: Json | None) -> Reply:
        if result is None:
            return Reply()
        if result.get("type") == "error":
            return self._not_applied(event, standing, result)
        found = result.get("state")
        state = found if isinstance(found, dict) else {}
        if result.get("checking"):
            return Reply(note=_unfinished(state, result))
        applied = result.get("type") == "applied"
        if state.get("status") == "failing" and (applied or self._theirs(standing.root)):
            if not applied and _is_used_up(state, standing):
                return self._too_late(standing, state)
            return self._failed(event, state)
        if not applied:
            wrong = result.get("type") == "stale" and _since(standing, "dispatched_at", 0)
            why = str(result.get("message")) if wrong else None  # else the attempt before left it
            return self._not_handed_over(event, standing.root, state, why)
        if state.get("status") not in _FOR_A_PERSON:
            self._tally.clear(event.session)
        return Reply(note=_told(result)) if event.name == STOP else Reply()

    def _not_applied(self, event: HookEvent, standing: Standing, result: Json) -> Reply:
        code, message = str(result.get("code")), str(result.get("message"))
        if code in _NOT_OURS:
            return Reply()
        if code == "MALFORMED_HANDOFF":
            text = f"the hand-off cannot be read: {message}\nWrite .ai/HANDOFF.md again."
            return self._send_back(event, standing.state, text, f"malformed {standing.written_ns}")
        following = f"; next: {result['hint']}" if result.get("hint") else ""
        return Reply(TOLD, text=f"handoffd: the hand-off was not applied: {message}{following}")

    def _too_late(self, standing: Standing, state: Json) -> Reply:
        """Return the reply to a hand-off that was written again after the last attempt."""
        text = (
            f"handoffd: {_attempt(state)} was the last one, so the hand-off written since does not count."
            f" A person is needed; next: handoffd retry {quote(standing.root)}, which begins at attempt 1"
        )
        try:
            news = self._tally.is_news(f"too late {standing.written_ns} {state.get('completed_at')}")
        except OSError as error:
            return Reply(
                TOLD, text=f"{text}\n(You may see this again, because it could not be recorded: {error})"
            )
        return Reply(note=text) if news else Reply()

    def _failed(self, event: HookEvent, state: Json) -> Reply:
        """Return the reply to an attempt that our checks failed; an agent that failed it itself knows."""
        if not state.get("last_error"):
            return Reply()
        text = (
            f"{_attempt(state)} is failing: {state['last_error']}\n"
            "Put that right, then write .ai/HANDOFF.md again."
        )
        return self._send_back(event, state, text, f"failing {state.get('completed_at')}")

    def _send_back(self, event: HookEvent, state: Json, text: str, reason: str) -> Reply:
        text = f"handoffd: {text}"
        if event.continued:
            return Reply(note=text)
        step = f"{state.get('story')} {state.get('step')}"
        news = f"{reason} {state.get('dispatched_at')} {state.get('step')} {state.get('attempt')}"
        try:
            verdict = self._tally.verdict(event.session, step, news)
        except OSError as error:
            return Reply(
                TOLD,
                text=f"{text}\n(The agent was not sent back, because that could not be counted: {error})",
            )
        if verdict == SEND_BACK:
            return Reply(TOLD if event.name == SESSION_END else BLOCKED, text=text)
        return (
            Reply(note=f"{text}\n(The agent was sent back twice already.)") if verdict == ENOUGH else Reply()
        )


def _is_used_up(state: Json, standing: Standing) -> bool:
    """Return whether the attempt that failed in `standing` is still the latest, and was the last allowed."""
    attempt, most = state.get("attempt"), state.get("max_attempts")
    same = state.get("completed_at") == standing.state.get("completed_at")
    return same and isinstance(attempt, int) and isinstance(most, int) and attempt >= most


def _asking(state: Json, why: str | None = None) -> str:
    problem = f": {why}" if why else ", and .ai/HANDOFF.md was not written since it began"
    return (
        f"{_attempt(state)} runs in this project{problem}.\n"
        "If that step is your work and it is done, write .ai/HANDOFF.md as its prompt describes. If you wait"
        " for an answer, or work on something else, just stop again."
    )


def _unfinished(state: Json, result: Json) -> str:
    following = result.get("next_command")
    checks = f"handoffd: the checks of {_attempt(state)} still run, and the hook had to end"
    return f"{checks}; next: {following}" if following else checks


def _told(result: Json) -> str:
    following = result.get("next_command")
    return f"handoffd: {result.get('message')}" + (f"; next: {following}" if following else "")


def _attempt(state: Json) -> str:
    story = state.get("story")
    return f"{state.get('step')} attempt {state.get('attempt')}" + (f" of {story}" if story else "")


# --- whether a hand-off may be news ------------------------------------------------------------------
SLACK_NS = 2_000_000_000
"""A hand-off up to this much older than its dispatch counts: file systems and tools round times."""


def is_fresh(standing: Standing) -> bool:
    """Return whether there is a hand-off that may belong to the latest attempt."""
    return _since(standing, "dispatched_at", SLACK_NS)


def is_fresh_again(standing: Standing) -> bool:
    """Return whether there is a hand-off that was written after the attempt was judged."""
    return standing.state.get("completed_at") is not None and _since(standing, "completed_at", 0)


def _since(standing: Standing, field: str, slack_ns: int) -> bool:
    if standing.written_ns is None:
        return False
    moment = moment_ns(standing.state.get(field))
    return moment is None or standing.written_ns >= moment - slack_ns


def moment_ns(value: object) -> int | None:
    """Return an RFC 3339 time in nanoseconds since the epoch; None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        known = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return int(known.timestamp() * 1_000_000) * 1000
    except (ValueError, OverflowError):
        return None
