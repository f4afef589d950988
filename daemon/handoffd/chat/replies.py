"""Replies: from the JSON of verbs and queries to one short text in the user's language.

A reply about something that waits for the user ends with the next command. A refusal gives the reason, what
was understood, and the command to type instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from handoffd.chat import status_text
from handoffd.chat.wording import Wording, is_of_gate, placeholders, to_type, wording
from handoffd.errors import Json
from handoffd.protocol.rules import Language

_TO_TYPE: Final[Mapping[str, str]] = {
    "approve": "gate", "reject": "gate", "start_story": "start", "reopen": "reopen", "retry": "retry",
    "skip": "retry", "continue": "continue", "note": "note",
}  # fmt: skip
"""How a reply names the command that an unclear message resembles."""


class Report:
    """The texts in one language."""

    def __init__(self, language: Language) -> None:
        self.wording: Wording = wording(language)

    def status(
        self,
        view: Json,
        *,
        topic: str = "status",
        lately: Mapping[str, str] = status_text.NO_LINES,
        review: Mapping[str, Sequence[str]] = status_text.NO_LINES,
        quoted: Sequence[str] = (),
        story: str | None = None,
    ) -> str:
        """Return the status of a supervised project, with the details that were asked for.

        By track, `lately` has the last news, and `review` the files that a person looks at before a
        decision. `quoted` is what its papers say, `story` the one that is meant.
        """
        lines = status_text.standing(
            self.wording, view, topic=topic, lately=lately, review=review, story=story
        )
        return _text(status_text.with_papers(lines, quoted, topic))

    def query(self, found: Json, *, topic: str = "status", quoted: Sequence[str] = ()) -> str:
        """Return where the story of a project is that is not supervised."""
        return _text(status_text.with_papers(status_text.queried(self.wording, found, topic), quoted, topic))

    def quoted(self, papers: Sequence[Any], project: str | None) -> list[str]:
        """Return the lines for what a project's papers say: values of `inspection.papers.Quote`.

        `project` is the root of a supervised one, of which a journal is kept.
        """
        return [line for paper in papers for line in status_text.quoted(self.wording, paper, project)]

    def compared(self, found: Json) -> str:
        """Return the line of one project among others: an answer of `query`."""
        return status_text.side_by_side(self.wording, found)

    def projects(self, views: Sequence[Json], others: Sequence[str] = ()) -> str:
        """Return the supervised projects, a line for each, and the names of others beside them."""
        return _text(status_text.projects(self.wording, views, others))

    def at_gates(self, views: Sequence[Json]) -> str:
        """Return the stories of the supervised projects that wait at a gate."""
        return _text(status_text.at_gates(self.wording, views))

    def reported(self, report: Json, command: str) -> str:
        """Return an answer of `report` in short; `command` shows all of it."""
        return _text(status_text.reported(self.wording, report, command))

    def planned(self, night: Json, until: str, command: str) -> str:
        """Return an answer of `tonight` in short; `command` shows all of it."""
        return _text(status_text.planned(self.wording, night, until, command))

    def framework(self, found: Json) -> str:
        """Return which of the framework's files a project has."""
        return _text(status_text.framework(self.wording, found))

    def initialised(self, result: Json) -> str:
        """Return that a project was set up, and how work begins there."""
        done = self.wording.say("action.initialised", name=result["name"])
        return _text([done, self.wording.say("type.start")])

    def session(self, kind: str, found: Json) -> str:
        """Return what a prompt of `review` or `triage` is for."""
        return self.wording.say(f"action.{kind}", count=len(found.get("issues") or ()))

    def outcome(self, action: str, result: Json, track: Json | None = None, *, by_hand: bool = False) -> str:
        """Return the result of a verb: `action` in a word, its `result`, and the track's status now.

        `by_hand`: users or other tools carry out the steps.
        """
        step = result.get("step") or (track or {}).get("step")
        story = result.get("story") or (track or {}).get("story") or self.wording.say("standing.story")
        known = {
            "story": story, "step": self.wording.step(step), "attempt": result.get("attempt"),
            "reason": self.wording.reason(result.get("reason") or "needs_clarification"),
            "minutes": status_text.minutes(result.get("elapsed_min")),
            "why": result.get("message") or result.get("reason") or "?",
        }  # fmt: skip
        if action == "paused":
            return self._paused(result, track, known)
        lines: list[str | None] = [
            self._at_gate(known) if self._waits_at_gate(action, result) else self._said(action, known)
        ]
        lines += status_text.look_at(self.wording, result.get("review") or ())
        if action == "done" and result.get("next_story"):
            lines.append(self.wording.say("action.next_story", story=result["next_story"]))
        if action == "done" and result.get("review_suggested"):
            lines.append(self.wording.say("more.review"))
        if action in {"started", "queued"} and result.get("warnings"):
            lines.append(self.wording.say("more.undescribed", story=story))
        return _text([*lines, self._next(action, result, by_hand=by_hand)])

    def _paused(self, result: Json, track: Json | None, known: Json) -> str:
        runs = (track or {}).get("dispatch") is not None
        line = self._said("paused" if runs else "paused_at_rest", known)
        abort = self.wording.say("type.abort") if runs else None
        return _text([line, to_type(self.wording, result.get("next_command")), abort])

    def _next(self, action: str, result: Json, *, by_hand: bool) -> str | None:
        if action == "dispatched" or (by_hand and action == "already_running"):
            return self.wording.say("type.handed")
        return to_type(self.wording, result.get("next_command"))

    def applied(self, applied: Json, next_step: str, *, measured: bool) -> str:
        """Return how a step came out that was done by hand: `applied` is the answer of `apply`.

        `measured`: whether the daemon counted its tests; otherwise the reply marks them as a claim.
        """
        state = applied["state"]
        told = status_text.counted(self.wording, state.get("tests"), measured=measured)
        known = {"story": state["story"], "step": self.wording.step(state["step"])}
        if state["status"] == "failing":
            why = state.get("last_error") or self.wording.reason(state.get("reason") or applied["message"])
            return self.wording.say("news.failed", **known, attempt=state["attempt"], why=why)
        if state["status"] != "pass":
            return str(applied["message"])
        key = "action.applied" if told else "news.passed_plainly"
        return self.wording.say(key, **known, tests=told, next=self.wording.step(next_step))

    def kept(self, track: Json | None, *, review: Sequence[str] = ()) -> str:
        """Return that free text at a human gate was kept, and how the gate is answered."""
        lines = [self.wording.say("action.kept")]
        if track is not None:
            lines.append(self._at_gate({"story": track["story"], "step": self.wording.step(track["step"])}))
        lines += status_text.look_at(self.wording, review)
        return _text([*lines, self.wording.say("type.gate")])

    def unclear(
        self,
        near: str | None,
        track: Json | None = None,
        *,
        passed_on: bool = False,
        command: str | None = None,
    ) -> str:
        """Return that nothing was done, because the message is ambiguous.

        `passed_on`: the message told an agent to do something reserved for people. `command`: it names
        this one of the command line.
        """
        if command is not None:
            shell = self.wording.say("type.shell", command=command)
            return _text([self.wording.say("action.of_terminal"), shell])
        if near == "pause":
            return _text([self.wording.say("action.held_back"), self.wording.say("type.pause")])
        if near == "start_custom":
            return _text([self.wording.say("action.no_task"), self.wording.say("type.task")])
        if near is None:
            return _text([self.wording.say("action.unclear"), self.wording.say("type.help")])
        kind = "not_passed_on" if passed_on else "unclear_decision"
        line = self.wording.say(f"action.{kind}", intent=self.wording.say(f"intent.{near}"))
        said = _TO_TYPE.get(near)
        asked = (
            self.wording.say(f"type.{said}") if said else to_type(self.wording, _of(track, "next_command"))
        )
        return _text([line, asked or self.wording.say("type.help"), self.wording.say("type.work")])

    def problem(self, error: Json, kind: str, **known: object) -> str:
        """Return that something could not be done: an error's JSON, and the intent that was understood."""
        why = self._why_not(error, known)
        understood = self.wording.say("error.understood", intent=self.wording.say(f"intent.{kind}"))
        if "name" in known:
            asked: str | None = self.wording.say("type.project", **known)
        else:
            asked = to_type(self.wording, _way_on(error))
        return _text(
            [self.wording.say("error.failed", why=why), understood, asked or self.wording.say("type.help")]
        )

    def _why_not(self, error: Json, known: Json) -> str:
        """Return why something failed; without words for it here, the original message."""
        at_gate = error.get("code") == "WRONG_STEP" and is_of_gate(_way_on(error))
        code = "error.AT_GATE" if at_gate else f"error.{error.get('code')}"
        values = {**known, "original": error["message"]}
        needed = placeholders(self.wording.templates[code]) if self.wording.has(code) else frozenset({"?"})
        if self.wording.language == "en" and not needed & known.keys():
            return str(error["message"])  # it is English, and knows more
        return self.wording.say(code if needed <= values.keys() else "error.other", **values)

    def _said(self, action: str, known: Json) -> str:
        return self.wording.say(f"action.{action}", **known)

    def _at_gate(self, known: Json) -> str:
        return self.wording.say("standing.gate", story=known["story"], step=known["step"])

    @staticmethod
    def _waits_at_gate(action: str, result: Json) -> bool:
        return action == "needs_human" and is_of_gate(result.get("next_command"))


def _way_on(error: Json) -> str | None:
    """Return the command that an error suggests."""
    return error.get("next_command") or error.get("hint")


def _of(track: Json | None, key: str) -> Any:
    return None if track is None else track.get(key)


def _text(lines: Sequence[str | None]) -> str:
    return "\n".join(line for line in lines if line)


# --- news ---------------------------------------------------------------------------------------------
# Turns the journal's events into the few that the user wants to read. A step's end and the
# step after it are two decisions, and the sentence that tells both needs the counts of the first one. So
# news are read off a row of events, oldest first.
def news(wording: Wording, events: Iterable[Json]) -> Iterator[tuple[int, str]]:
    """Yield the numbers of events that are worth telling, each with its sentence."""
    judged: dict[str, _Judged] = {}
    for event in events:
        known = judged.setdefault(event["project"], _Judged())
        known.learn(event)
        told = _told(wording, event, known)
        if told is not None:
            yield event["seq"], told


def was_measured(events: Sequence[Json], counts: Json | None) -> bool:
    """Tell whether the attempt that ended last was judged by these counts of tests, not by its own word.

    A STATE does not tell: it holds what was measured, else what was claimed.
    """
    for event in reversed(events):
        before, after = event["before"] or {}, event["after"] or {}
        if before.get("status") == "running" and after.get("status") != "running":
            found = event["event"].get("tests")
            counted = isinstance(found, Mapping) and bool(found.get("verified", True))
            return counted and counts is not None and found.get("counts") == counts
    return False


class _Judged:
    """What is known of one project so far: its story, and how its step's tests came out."""

    def __init__(self) -> None:
        self.story: str | None = None
        self.counts: Json | None = None
        self.attempt = 1

    def learn(self, event: Json) -> None:
        """Take what an event says about story, attempt and tests."""
        fact, result = event["event"], event["result"]
        self.story = result.get("story") or fact.get("story") or self.story
        self.attempt = result.get("attempt") or self.attempt
        if event["kind"] in {"executor_started", "started"}:
            self.counts = None
        found = fact.get("tests")
        if (
            isinstance(found, Mapping)
            and isinstance(found.get("counts"), Mapping)
            and found.get("verified", True)
        ):
            self.counts = found["counts"]


def _told(wording: Wording, event: Json, known: _Judged) -> str | None:
    before, after = event["before"] or {}, event["after"] or {}
    here, there = before.get("step"), after.get("step")
    status = after.get("status")
    words = {
        "story": known.story or wording.say("standing.story"), "step": wording.step(here),
        "next": wording.step(there), "attempt": known.attempt, "why": event["why"],
        "tests": status_text.counted(wording, known.counts, measured=True),
    }  # fmt: skip
    if event["kind"] == "started" and here != there:
        return wording.say("news.begins", **words)
    if here is not None and there is not None and here != there:
        return _moved(wording, before, after, words)
    kind = {"failing": "failed", "needs_human": "human", "timeout": "timeout"}.get(str(status))
    if kind is not None and status != before.get("status"):
        return wording.say(f"news.{kind}", **words)
    return _noticed(wording, event, words)


def _noticed(wording: Wording, event: Json, words: Json) -> str | None:
    """Return the news of a story whose step has not changed: a limit, a cap, a warning."""
    orders = [order for order in event["orders"] if order.get("kind") == "notify"]
    if not orders or orders[0].get("notice") not in {"blocked", "warning"}:
        return None
    rules = " ".join(str(ground.get("rule")) for ground in event["rules"])
    ended = (event["event"].get("exit") or {}).get("end")
    kind = "budget" if "cap" in rules else "limit" if ended == "limit" else orders[0]["notice"]
    return wording.say(f"news.{kind}", **{**words, "why": orders[0]["text"]})


def _moved(wording: Wording, before: Json, after: Json, words: Json) -> str:
    if after["step"] == "done":
        key = "done" if words["tests"] else "done_plainly"
    elif before["status"] == "failing":
        key = "back"
    elif after["status"] == "needs_human":
        key = "gate"
    else:
        key = "passed" if words["tests"] else "passed_plainly"
    return wording.say(f"news.{key}", **words)
