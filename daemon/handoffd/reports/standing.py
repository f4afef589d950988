"""Where projects stand, told to people: from the JSON of `status`, and of `query` where nobody supervises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handoffd.reports.asking import to_type
from handoffd.reports.wording import Wording

Json = Mapping[str, Any]

_FAILING_SHOWN = 3


def standing(wording: Wording, view: Json, *, topic: str = "status", lately: str | None = None) -> list[str]:
    """Return the lines about a supervised project: where it stands, what was asked, what to type."""
    track = _track(view)
    lines = [headline(wording, view)]
    if track is not None and track["story"]:
        lines += _about(wording, track, topic)
        if lately is not None:
            lines.append(wording.say("more.lately", text=lately))
    asked = to_type(wording, (track or {}).get("next_command") or (None if track else "handoffd init"))
    return [*lines, asked] if asked else lines


def headline(wording: Wording, view: Json) -> str:
    """Return the one line about a supervised project."""
    if view["condition"] not in {"ok", "not_initialized"}:
        return wording.say("standing.broken", why=view.get("detail") or view["condition"])
    track = _track(view)
    if track is None:
        return wording.say("standing.not_initialized")
    if track["step"] == "done":
        return wording.say("standing.done", story=track["story"])
    if not track["story"]:
        return wording.say("standing.no_story")
    return in_hand(wording, track, paused_by=view.get("paused_by"))


def in_hand(wording: Wording, track: Json, *, paused_by: str | None = None) -> str:
    """Return the line about a story in hand, from a track of `status`."""
    known = {
        "story": track["story"], "step": wording.step(track["step"]), "attempt": track["attempt"],
        "most": track["max_attempts"], "minutes": minutes(track.get("elapsed_min")),
        "why": _why(wording, track), "by": paused_by, "next": wording.step(following(track)),
        "tests": counted(wording, track.get("tests"), measured=track.get("tests_measured")) or "",
    }  # fmt: skip
    return wording.say(f"standing.{_kind(track, paused_by)}", **known).replace(" ; ", "; ")


def _kind(track: Json, paused_by: str | None) -> str:
    status = track["status"]
    if status == "running":
        return "checking" if track.get("phase") == "checking" else "running"
    if paused_by:
        return "paused"
    if status == "needs_human" and track.get("gate"):
        return "gate"
    if status == "needs_human":
        return "exhausted" if "max_attempts_exceeded" in track["blocked_by"] else "human"
    if status == "pass":
        return "passed"
    if status in {"failing", "timeout"}:
        return str(status)
    return "waiting" if track.get("waits_for") else "pending"


def _about(wording: Wording, track: Json, topic: str) -> list[str]:
    """Return what was asked for beside where it stands."""
    lines = []
    if topic == "tests":
        found = counted(
            wording, track.get("tests"), track["failing_tests"], measured=track.get("tests_measured")
        )
        lines.append(wording.say("more.tests", tests=found or wording.say("tests.none")))
    if topic == "steps":
        ahead = [wording.step(step) for step in _ahead(track)]
        path = wording.path(ahead)
        lines.append(wording.say("more.left", steps=path) if ahead else wording.say("more.nothing_left"))
    if topic == "blocked" and track.get("waits_for"):
        lines.append(wording.say("more.why", why=track["waits_for"]))
    if track["backlog"]:
        lines.append(wording.say("more.backlog", stories=wording.listed(list(track["backlog"]))))
        if track.get("next_story") and len(track["backlog"]) > 1:
            lines.append(wording.say("more.next_story", story=track["next_story"]))
    return lines


def counted(
    wording: Wording, counts: Json | None, names: Sequence[str] = (), *, measured: bool | None
) -> str | None:
    """Return how tests came out; None where there are no counts.

    `measured`: whether the daemon counted them. What it did not count, or nobody knows of, is a claim.
    """
    if not counts or not (counts["pass"] + counts["fail"]):
        return None
    total = counts["pass"] + counts["fail"]
    shown = wording.listed(list(names[:_FAILING_SHOWN])) + ("…" if len(names) > _FAILING_SHOWN else "")
    kind = "all" if not counts["fail"] else "which" if names else "some"
    told = wording.say(
        f"tests.{kind}", passed=counts["pass"], failed=counts["fail"], total=total, names=shown
    )
    return told if measured else wording.say("tests.claimed", text=told)


def following(track: Json) -> str:
    """Return the step after the one in hand, on its way to the end."""
    return next(iter(_ahead(track)), "done")


def _ahead(track: Json) -> list[str]:
    steps = list(track.get("steps") or ())
    here = steps.index(track["step"]) if track["step"] in steps else -1
    return [str(step) for step in steps[here + 1 :]]


def _why(wording: Wording, track: Json) -> str:
    told = track.get("last_error") or track.get("waits_for")
    reason = wording.reason(track["reason"]) if track.get("reason") else None
    return " – ".join(part for part in (reason, told) if part) or "?"


def minutes(value: float | None) -> str:
    """Return minutes in whole numbers; less than one as `<1`."""
    return "<1" if value is None or value < 1 else f"{value:.0f}"


def queried(wording: Wording, found: Json) -> list[str]:
    """Return the lines about a project from its files alone: an answer of `query`."""
    known = {
        "story": found.get("story") or wording.say("standing.story"),
        "step": wording.step(found["step"]),
    }
    status = found["status"]
    if status == "not_initialized":
        line = wording.say("standing.not_initialized")
    elif status == "invalid_state":
        line = wording.say("standing.broken", why=found.get("last_error") or status)
    elif found["step"] == "done":
        line = wording.say("standing.done", story=known["story"])
    else:
        track = {"blocked_by": (), "steps": (found["step"], found.get("next_step") or "done"), **found}
        line = in_hand(wording, {**track, "story": known["story"]})
    asked = to_type(wording, found.get("next_command"))
    return [line, asked] if asked else [line]


def projects(wording: Wording, views: Sequence[Json]) -> list[str]:
    """Return a line for each supervised project."""
    if not views:
        return [wording.say("list.none"), wording.say("type.shell", command="handoffd add PROJECT")]
    lines = [wording.say("list.line", project=view["name"], text=headline(wording, view)) for view in views]
    return [wording.say("list.head", count=len(views)), *lines]


def framework(wording: Wording, found: Json) -> list[str]:
    """Return which files of the framework a project has: an answer of `detect`."""
    names = [name for name in found if name.startswith("has_")]
    there = [name.removeprefix("has_") for name in names if found[name]]
    missing = [name.removeprefix("has_") for name in names if not found[name]]
    told = wording.say(
        f"framework.{'all' if not missing else 'some' if there else 'none'}",
        there=wording.listed(there), missing=wording.listed(missing),
    )  # fmt: skip
    return [wording.say("framework.level", level=found["level"], found=told)]


def _track(view: Json) -> Json | None:
    tracks = view.get("tracks") or ()
    return tracks[0] if tracks else None
