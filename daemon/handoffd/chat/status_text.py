"""The status of projects for people: from the JSON of `status`, and of `query` for unsupervised projects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from handoffd.chat.wording import Wording, to_type
from handoffd.engine.wording import command_for, first_few, has_failed, shortened, usage_in_words
from handoffd.errors import Json
from handoffd.protocol.story import same_story

_FAILING_SHOWN = 3
_OTHERS_SHOWN = 20
_INIT = "handoffd init PROJECT"
NO_LINES: Final[Mapping[str, Any]] = {}
"""No track has a line of its own."""
_NOT_BROKEN: Final = frozenset({"ok", "not_initialized"})
FILES: Final[Mapping[str, str]] = {
    "has_state": ".ai/STATE.json",
    "has_memory": "PROJECT_MEMORY.md",
    "has_context": "PROJECT_CONTEXT.md",
    "has_constitution": "docs/constitution.md",
    "has_sdd": "docs/sdd.md",
    "has_handoff": ".ai/HANDOFF.md",
    "has_history": ".ai/history.md",
}
"""The files behind the keys of an answer of `detect`."""


def standing(
    wording: Wording,
    view: Json,
    *,
    topic: str = "status",
    lately: Mapping[str, str] = NO_LINES,
    review: Mapping[str, Sequence[str]] = NO_LINES,
    story: str | None = None,
) -> list[str]:
    """Return the lines about a supervised project: of each story its status, the details, what to type.

    By track, `lately` has the last news, and `review` the files that a person looks at before a decision.
    Of the topic `gate`: the stories at a gate, or only `story`; none of them: that, and the status.
    """
    tracks = _tracks(view)
    lines = []
    if topic == "gate":
        gates = [one for one in tracks if one is not None and one["gate"]]
        named = [one for one in gates if story is not None and same_story(story, one["story"])]
        lines += [] if named or gates else [wording.say("gate.none")]
        tracks = named or gates or tracks
    for track in tracks:
        lines.append(headline(wording, view, track))
        if track is not None and track["story"]:
            name = track["track"]
            lines += look_at(wording, review.get(name, ()))
            lines += [*(of_gate(wording, track) if topic in _OF_ALL else ()), *_about(wording, track, topic)]
            if name in lately:
                lines.append(wording.say("more.lately", text=lately[name]))
        asked = to_type(wording, track.get("next_command") if track else "handoffd init")
        lines += [asked] if asked else []
    return lines


def look_at(wording: Wording, files: Sequence[str]) -> list[str]:
    """Return the line with the files that a person looks at before a decision; none without files."""
    return [wording.say("more.look_at", files=wording.listed(list(files)))] if files else []


def headline(wording: Wording, view: Json, track: Json | None) -> str:
    """Return the one line about a track of a supervised project, or about one without."""
    if view["condition"] not in _NOT_BROKEN:
        return wording.say("standing.broken", why=wording.translated(view.get("detail") or view["condition"]))
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


def of_gate(wording: Wording, track: Json) -> list[str]:
    """Return what a person needs at an open gate, as `status PROJECT` has it: from scope to the claim."""
    review = track.get("review")
    if not review:
        return []
    changes, tests = review["changes"], review["tests"]
    told = review["text"] or review["title"]
    lines = [wording.say("gate.story", text=shortened(told, _CLAIM))] if told else []
    if changes is not None:
        lines.append(wording.say("gate.files", **{key: changes[key] for key in _SIZES}))
        scope = "outside" if changes["outside"] else "inside"
        lines += [wording.say(f"gate.{scope}", count=changes["outside"])] if changes["count"] else []
    counts = counted(wording, tests["measured"] or tests["claimed"], measured=tests["measured"] is not None)
    lines.append(wording.say("more.tests", tests=counts or wording.say("tests.none")))
    if tests.get("new"):  # older daemons send none
        few = first_few(tests["new"], _FAILING_SHOWN, count=tests["new_collected"])
        lines.append(wording.say("gate.new_tests", tests=shortened(few, _CLAIM)))
    if review["unclear"] or review["unticked"]:
        unclear, boxes = len(review["unclear"]), len(review["unticked"])
        lines.append(wording.say("gate.open", unclear=unclear, boxes=boxes))
    if tried := review["attempts"]:
        failed = sum(map(has_failed, tried))
        back = len(review["rejections"])
        lines.append(wording.say("gate.attempts", count=len(tried), failed=failed, back=back))
    used = usage_in_words(review["tokens"], review["cost_usd"])
    lines.append(wording.say("gate.cost", used=used or wording.say("gate.unmeasured")))
    if review["claim"]:
        lines.append(wording.say("gate.claim", text=shortened(review["claim"], _CLAIM)))
    return [*lines, wording.say("gate.screen", command=review["command"])]


_OF_ALL: Final = frozenset({"status", "blocked", "gate"})
"""The topics whose answer has a gate; the others ask for one thing."""
_SIZES: Final = ("count", "added", "removed")
_CLAIM: Final = 300


def _about(wording: Wording, track: Json, topic: str) -> list[str]:
    """Return the details that were asked for besides the status."""
    lines = []
    if topic == "tests":
        found = counted(
            wording, track.get("tests"), track["failing_tests"], measured=track.get("tests_measured")
        )
        lines.append(wording.say("more.tests", tests=found or wording.say("tests.none")))
        lines += linted(wording, track)
    if topic in {"steps", "left"}:
        ahead = [wording.step(step) for step in _ahead(track)]
        path = wording.path(ahead)
        lines.append(wording.say("more.left", steps=path) if ahead else wording.say("more.nothing_left"))
    if topic == "blocked" and track.get("waits_for"):
        lines.append(wording.say("more.why", why=wording.translated(track["waits_for"])))
    if topic == "blocked" and track.get("human_note"):
        lines.append(wording.say("more.note", note=track["human_note"]))
    if track.get("review_suggested"):
        lines.append(wording.say("more.review"))
    if track["backlog"]:
        lines.append(wording.say("more.backlog", stories=wording.listed(list(track["backlog"]))))
        if track.get("next_story") and len(track["backlog"]) > 1:
            lines.append(wording.say("more.next_story", story=track["next_story"]))
    return lines


def counted(
    wording: Wording, counts: Json | None, names: Sequence[str] = (), *, measured: bool | None
) -> str | None:
    """Return how tests came out; None where there are no counts.

    `measured`: whether the daemon counted them. Counts from any other source, or an unknown one, are claims.
    """
    if not counts or not (counts["pass"] + counts["fail"]):
        return None
    total = counts["pass"] + counts["fail"]
    shown = wording.listed(list(names[:_FAILING_SHOWN])) + ("…" if len(names) > _FAILING_SHOWN else "")
    kind = "all" if not counts["fail"] else "which" if names else "some"
    told = wording.say(
        f"tests.{kind}", passed=counts["pass"], failed=counts["fail"], total=total, names=shown
    )
    if counts.get("skip"):
        told = wording.say("tests.skipped", text=told, skipped=counts["skip"])
    return told if measured else wording.say("tests.claimed", text=told)


def linted(wording: Wording, track: Json) -> list[str]:
    """Return the line about the other checks of the last attempt; none where there were none."""
    passed = track.get("lint_pass")
    return [] if passed is None else [wording.say("more.lint_passed" if passed else "more.lint_failed")]


def following(track: Json) -> str:
    """Return the step after the one in hand, on its way to the end."""
    return next(iter(_ahead(track)), "done")


def _ahead(track: Json) -> list[str]:
    steps = list(track.get("steps") or ())
    here = steps.index(track["step"]) if track["step"] in steps else -1
    return [str(step) for step in steps[here + 1 :]]


def _why(wording: Wording, track: Json) -> str:
    told = wording.translated(track.get("last_error") or track.get("waits_for") or "")
    reason = wording.reason(track["reason"]) if track.get("reason") else None
    return " – ".join(part for part in (reason, told) if part) or "?"


def minutes(value: float | None) -> str:
    """Return minutes in whole numbers; less than one as `<1`."""
    return "<1" if value is None or value < 1 else f"{value:.0f}"


def queried(wording: Wording, found: Json, topic: str = "status") -> list[str]:
    """Return the lines about a project from its files alone: an answer of `query`."""
    line = by_files(wording, found)
    lines = [line]
    if topic == "tests":
        told = counted(wording, found.get("tests"), measured=False) or wording.say("tests.none")
        lines += [wording.say("more.tests", tests=told), *linted(wording, found)]
    asked = to_type(wording, found.get("next_command"))
    return [*lines, asked] if asked else lines


def by_files(wording: Wording, found: Json) -> str:
    """Return the one line about a project from its files alone."""
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
    elif not found.get("story"):
        line = wording.say("standing.no_story")
    else:
        track = {"blocked_by": (), "steps": (found["step"], found.get("next_step") or "done"), **found}
        line = in_hand(wording, {**track, "story": known["story"]})
    return line


def side_by_side(wording: Wording, found: Json) -> str:
    """Return the line of one project among others: where it is, and how its tests are."""
    told = counted(wording, found.get("tests"), measured=False) if found.get("tests") else None
    text = by_files(wording, found)
    text = wording.listed([text, told]) if told and told not in text else text
    return wording.say("list.line", project=found["project"], text=text)


def quoted(wording: Wording, paper: Any, project: str | None) -> list[str]:
    """Return the lines for what one paper of a project says, or where else to look."""
    known = {"file": paper.file, "section": paper.section or ""}
    if paper.problem is not None:
        lines = [wording.say("papers.unreadable", file=paper.file, why=paper.problem)]
    elif paper.missing:
        lines = [wording.say("papers.missing", **known)]
    elif not paper.lines:
        key = "empty" if paper.section is None else "no_section"
        return [wording.say(f"papers.{key}", **known)]
    else:
        lines = [wording.say("papers.says" if paper.section is None else "papers.section", **known)]
        lines += [wording.say("papers.line", text=line) for line in paper.lines]
        return (
            [*lines, wording.say("papers.more", count=paper.more, file=paper.file)] if paper.more else lines
        )
    if paper.others:
        return [*lines, *look_at(wording, paper.others)]
    if project is None:
        return lines
    return [*lines, wording.say("type.shell", command=command_for(project, "events"))]


def with_papers(lines: list[str], papers: Sequence[str], topic: str) -> list[str]:
    """Return an answer together with lines from papers, which come first if the user asked for them."""
    if topic != "left":
        return [*papers, *lines]
    return [*lines[:-1], *papers, *lines[-1:]] if len(lines) > 1 else [*lines, *papers]


def projects(wording: Wording, views: Sequence[Json], others: Sequence[str] = ()) -> list[str]:
    """Return a line for each story of the supervised projects, and one for the others beside them."""
    lines = [
        wording.say("list.line", project=view["name"], text=headline(wording, view, track))
        for view in views
        for track in _tracks(view)
    ]
    head = [wording.say("list.head", count=len(views)) if views else wording.say("list.none")]
    if others:
        shown = wording.listed(list(others[:_OTHERS_SHOWN])) + ("…" if len(others) > _OTHERS_SHOWN else "")
        lines.append(wording.say("list.others", projects=shown))
    return [*head, *lines] if views else [*head, *lines, wording.say("type.shell", command=_INIT)]


def at_gates(wording: Wording, views: Sequence[Json]) -> list[str]:
    """Return a line for each story of the supervised projects that waits at a gate, and where to look."""
    lines = [
        wording.say("list.line", project=view["name"], text=headline(wording, view, track))
        for view in views
        for track in view.get("tracks") or ()
        if track["gate"]
    ]
    return [*(lines or [wording.say("gate.none")]), wording.say("type.shell", command="handoffd gate")]


def reported(wording: Wording, report: Json, command: str) -> list[str]:
    """Return an answer of `report` in short; `command` shows all of it."""
    cost = report["cost"]
    used = usage_in_words(cost["tokens"], cost["usd"]) if cost["tokens"] else wording.say("gate.unmeasured")
    lines = [wording.say("report.head", runs=cost["runs"], used=used)]
    for part in _OF_A_NIGHT:
        if entries := report[part]:
            names = [" ".join(filter(None, (one["name"], one["story"]))) for one in entries]
            count = len(names) + report["more"][part]
            lines.append(wording.say(f"report.{part}", count=count, stories=_few(wording, names, count)))
    lines += [] if lines[1:] else [wording.say("report.nothing")]
    return [*lines, wording.say("type.shell", command=command)]


def planned(wording: Wording, night: Json, until: str, command: str) -> list[str]:
    """Return an answer of `tonight` in short, `until` a time of the clock; `command` shows all of it."""
    counts = {end: night["outcomes"].get(end, 0) for end in ("done", "stops", "goes_on", "waits")}
    key = "head" if night["projects"] else "nothing"
    lines = [wording.say(f"tonight.{key}", until=until, **counts)]
    lines += [] if night["daemon"] else [wording.say("more.no_daemon")]
    stops = [(one["name"], wording.translated(one["why"])) for one in night["stops"][:_FEW]]
    lines += [wording.say("list.line", project=name, text=why) for name, why in stops]
    return [*lines, wording.say("type.shell", command=command)]


_OF_A_NIGHT: Final = ("landed", "waiting", "failed")
_FEW: Final = 5
"""Entries of a list that are named; the command behind it shows all."""


def _few(wording: Wording, names: Sequence[str], count: int) -> str:
    return wording.listed(list(names[:_FEW])) + ("…" if count > _FEW else "")


def framework(wording: Wording, found: Json) -> list[str]:
    """Return which files of the framework a project has: an answer of `detect`."""
    there = [file for key, file in FILES.items() if found.get(key)]
    missing = [file for key, file in FILES.items() if not found.get(key)]
    told = wording.say(
        f"framework.{'all' if not missing else 'some' if there else 'none'}",
        there=wording.listed(there), missing=wording.listed(missing),
    )  # fmt: skip
    return [wording.say("framework.level", level=found["level"], found=told)]


def _tracks(view: Json) -> list[Json] | list[None]:
    """Return the tracks with a story, else the first one, or None where there is none.

    Of a project that cannot be worked on there is one thing to tell.
    """
    tracks = list(view.get("tracks") or ())
    broken = view["condition"] not in _NOT_BROKEN
    told = tracks[:1] if broken else [track for track in tracks if track["story"]]
    return told or tracks[:1] or [None]
