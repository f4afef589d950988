"""What happened, as news for a chat: from the journal's events to the few that a person wants to hear of.

A step's end and the step after it are two decisions; the sentence that tells both needs the counts of
the first one. So news are read off a row of events, oldest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from handoffd.chat import status_text
from handoffd.chat.wording import Wording

Json = Mapping[str, Any]


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


def _noticed(wording: Wording, event: Json, words: dict[str, Any]) -> str | None:
    """Return what people are told of a story that stands where it stood: a limit, a cap, a warning."""
    orders = [order for order in event["orders"] if order.get("kind") == "notify"]
    if not orders or orders[0].get("notice") not in {"blocked", "warning"}:
        return None
    rules = " ".join(str(ground.get("rule")) for ground in event["rules"])
    ended = (event["event"].get("exit") or {}).get("end")
    kind = "budget" if "cap" in rules else "limit" if ended == "limit" else orders[0]["notice"]
    return wording.say(f"news.{kind}", **{**words, "why": orders[0]["text"]})


def _moved(wording: Wording, before: Json, after: Json, words: dict[str, Any]) -> str:
    if after["step"] == "done":
        key = "done" if words["tests"] else "done_plainly"
    elif before["status"] == "failing":
        key = "back"
    elif after["status"] == "needs_human":
        key = "gate"
    else:
        key = "passed" if words["tests"] else "passed_plainly"
    return wording.say(f"news.{key}", **words)
