"""What a verb's answer says to a person: what happened, why nothing follows, what to type next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from shlex import join, quote
from typing import Any

from handoffd.cli.wording import UNMEASURED, minutes, plain, waits
from handoffd.engine.commands import command_for
from handoffd.entrance.place import by_name

Json = dict[str, Any]

_TOLD = 3
"""So many tests that nothing runs are named in one line."""


def report(answer: Json) -> list[str]:
    """Return the lines for an answer of `POST /v1/verbs/…`."""
    lines = _REPORTS[answer["type"]](answer)
    if answer.get("waits_for") and answer["type"] != "error":
        lines.append(f"  {waits(plain(answer['waits_for']))}")
    if answer.get("next_command"):
        lines.append(f"  next: {plain(by_name(answer['next_command'], answer))}")
    return lines


def _accepted(answer: Json) -> list[str]:
    message = plain(by_name(answer["message"], answer))
    if answer["status"] in {"pass", "failing"}:  # it is about to leave that step: the message says where to
        return [message]
    return [f"{message} ({plain(answer['step'])}, {answer['status']})"]


def _dispatched(answer: Json) -> list[str]:
    if answer.get("prompt") is not None:
        return [f"{plain(answer['step'])}, attempt {answer['attempt']}, is yours: its prompt is on stdout"]
    where = f"{plain(answer['step'])}, attempt {answer['attempt']}"
    return [f"{plain(answer['story'] or 'no story')}: {where}, is dispatched as {answer['dispatch']}"]


def _done(answer: Json) -> list[str]:
    lines = [plain(answer["summary"])]
    if answer.get("review_suggested"):
        review = plain(by_name(command_for(answer["project"], "review"), answer))
        lines.append(f"  a review of the project is suggested: {review}")
    return lines


def _needs_human(answer: Json) -> list[str]:
    return [plain(answer["message"]), *(f"  review: {plain(file)}" for file in answer["review"])]


def _blocked(answer: Json) -> list[str]:
    return [f"{plain(answer['step'])} is blocked: {plain(answer['reason'])}"]


def _already_running(answer: Json) -> list[str]:
    return [f"{plain(answer['step'])} has been running for {minutes(answer['elapsed_min'])} min"]


def _timeout(answer: Json) -> list[str]:
    return [plain(answer["message"])]


def _error(answer: Json) -> list[str]:
    return [f"handoffd: {plain(answer['message'])} [{answer['code']}]"]


def _initialised(answer: Json) -> list[str]:
    lines = [f"{plain(answer['name'])} is initialised: {plain(answer['project'])}"]
    lines += [f"  wrote {plain(name)}" for name in answer["created"]]
    lines += [*_tests_of(answer), *_tried(answer.get("tried"))]
    if answer["missing"]:
        missing = " and ".join(map(plain, answer["missing"]))
        lines.append(f"  missing: {missing}; the first story's bootstrap step makes them")
    lines += [f"  {plain(warning)}" for warning in answer["warnings"]]
    lines.append(f"  Claude Code by hand: {plain(_hooks_of(answer['project']))}   (applies its hand-offs)")
    following = by_name(command_for(answer["project"], "start", "STORY"), answer)
    return [*lines, f"  next: {plain(following)}"]


def _tests_of(answer: Json) -> Iterator[str]:
    """Yield what runs the project's tests, and which tests were found that nothing runs."""
    command, written = answer["test_command"], ".ai/handoffd.yaml" in answer["created"]
    others = [_told_tests(one) for one in answer.get("other_tests", ())]
    if command is not None and written:
        yield f"  tests: {plain(join(command))}   (change it in .ai/handoffd.yaml)"
    elif command is None:
        yield f"  tests: none {'chosen' if others else 'found'}; {UNMEASURED}"
    if others:
        more = f" and {len(others) - _TOLD} more" if len(others) > _TOLD else ""
        found = ", ".join(others[:_TOLD]) + more
        ready = "; a line for them is in .ai/handoffd.yaml, commented out" if written and not command else ""
        yield f"  found, and not run: {plain(found)}{ready}"


def _tried(tried: Json | None) -> Iterator[str]:
    """Yield how the tests went, and what mends it where they cannot be run."""
    if tried is not None:
        yield f"  tried: {plain(tried['what'])}"
        told = {"why": tried["why"], "mend": tried["action"]}
        yield from (f"    {key}: {plain(text)}" for key, text in told.items() if text is not None)


def _told_tests(one: Json) -> str:
    typed = join(one["command"])
    return typed if one["folder"] == "." else f"{one['folder']} ({typed})"


def _hooks_of(project: str) -> str:
    return f"handoffd hooks install --project {quote(project)}"


def _added(answer: Json) -> list[str]:
    lines = [f"{plain(answer['name'])} is supervised: {plain(answer['project'])} (level {answer['level']})"]
    if answer["condition"] not in {"ok", "not_initialized"}:
        lines.append(f"  {answer['condition']}: {plain(answer['detail'] or '')}")
    track = answer["tracks"][0] if answer["tracks"] else None
    following = track["next_command"] if track else command_for(answer["project"], "init")
    return [*lines, f"  next: {plain(by_name(following, answer))}"] if following else lines


def _removed(answer: Json) -> list[str]:
    return [f"{plain(answer['name'])} is supervised no longer; its files and its history stay"]


def _trusted(answer: Json) -> list[str]:
    if not answer["trusted"]:
        return ["nothing was held; the project's files are trusted as they are"]
    return [f"in force from now on: {', '.join(map(plain, answer['trusted']))}"]


def _heard(answer: Json) -> list[str]:
    return [f"{answer['type']}: {plain(answer['message'], lines=True)}"]


def _checked(answer: Json) -> list[str]:
    tail = [plain(answer["tail"], lines=True)] if answer["tail"] and not answer["passed"] else []
    return [plain(answer["message"]), *tail]


_REPORTS: Mapping[str, Callable[[Json], list[str]]] = {
    "accepted": _accepted,
    "dispatched": _dispatched,
    "done": _done,
    "needs_human": _needs_human,
    "blocked": _blocked,
    "already_running": _already_running,
    "timeout": _timeout,
    "error": _error,
    "initialised": _initialised,
    "added": _added,
    "removed": _removed,
    "trusted": _trusted,
    "applied": _heard,
    "taken": lambda answer: [plain(answer["message"], lines=True)],
    "stale": _heard,
    "pending": _heard,
    "missing": _heard,
    "checked": _checked,
}
