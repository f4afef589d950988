"""What the files of a folder say, as lines for people."""

from __future__ import annotations

from typing import Any

from handoffd.chat.status_text import FILES
from handoffd.cli.wording import plain, styled, table

_LEVELS = ("none of the protocol's files is there", "some of them are there", "all of them are there")


def detected(answer: dict[str, Any]) -> list[str]:
    """Return the lines for an answer of `GET /v1/detect`."""
    level = answer["level"]
    present = [name for key, name in FILES.items() if answer[key]]
    absent = [name for key, name in FILES.items() if not answer[key]]
    lines = [f"Level {level}: {_LEVELS[level]}"]
    lines += [f"  there:   {', '.join(present)}"] if present else []
    return lines + ([f"  missing: {', '.join(absent)}"] if absent else [])


def queried(answer: dict[str, Any]) -> list[str]:
    """Return the lines for an answer of `GET /v1/query`."""
    name, status = plain(answer["project"]), styled(plain(answer["status"]))
    if answer["step"] == "none":
        lines = [f"{name}: {status}"]
    else:
        attempt = f"attempt {answer['attempt']} of {answer['max_attempts']}"
        story = plain(answer["story"] or "no story")
        lines = [f"{name}: {story} at {plain(answer['step'])}, {attempt}, {status}"]
    lines += [f"  {label}: {plain(value)}" for label, value in _facts(answer) if value]
    summary = answer["memory_summary"]
    return [*lines, "", plain(summary, lines=True)] if summary else lines


def _facts(answer: dict[str, Any]) -> list[tuple[str, str | None]]:
    tests, changed = answer["tests"], len(answer["files_changed"])
    counts = tests and f"{tests['pass']} passed, {tests['fail']} failed, {tests['skip']} skipped"
    passed = answer["lint_pass"]
    return [
        ("next step", answer["next_step"]),
        ("reason", answer["reason"]),
        ("tests", counts),
        ("post_check", None if passed is None else "passed" if passed else "failed"),
        ("files changed", f"{changed}, as the hand-off says" if changed else None),
        ("blocked by", ", ".join(answer["blocked_by"])),
        ("note", answer["human_note"]),
        ("last error", answer["last_error"]),
        *(("warning", warning) for warning in answer["warnings"]),
        ("level", f"{answer['level']}{'' if answer['supervised'] else ', not supervised'}"),
        ("waits for", answer["waits_for"]),
        ("next", answer["next_command"]),
    ]


def listed(answer: dict[str, Any]) -> list[str]:
    """Return the lines for an answer of `GET /v1/list-projects`."""
    rows = [
        [
            plain(one["name"]),
            plain(one["dir"]),
            plain(one["story"] or "–"),
            plain(one["step"]) if one["step"] != "none" else "–",
            styled(plain(one["status"])),
        ]
        for one in answer["projects"]
    ]
    if not rows:
        return [f"No project lies in {plain(answer['folder'])}."]
    return table(("PROJECT", "FOLDER", "STORY", "STEP", "STATUS"), rows)


def checked(answer: dict[str, Any]) -> list[str]:
    """Return the lines for an answer of `GET /v1/check-prereqs`."""
    if answer["ok"]:
        return ["Everything that the step in hand reads is there."]
    lines = [f"  {plain(warning)}" for warning in answer["warnings"]]
    following = answer["next_command"]
    advice = [f"  next: {plain(following)}"] if following else []
    return ["The step in hand reads what is not there; that blocks nothing.", *lines, *advice]


def prompted(answer: dict[str, Any]) -> list[str]:
    """Return the lines of a prompt, and nothing else: they may go to an agent."""
    return [plain(answer["prompt"].rstrip("\n"), lines=True)]
