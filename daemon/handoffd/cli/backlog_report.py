"""A backlog for people: a line for each story, and below what starts the next one."""

from __future__ import annotations

from typing import Any, Final

from handoffd.cli.wording import moment, no_daemon, plain, shorten, table
from handoffd.engine.commands import command_for
from handoffd.entrance.place import by_name

Json = dict[str, Any]

_HEAD: Final = ("", "STORY", "PRIORITY", "SIZE", "ASKED FOR", "BY", "STARTS")
_WIDTH: Final = 100


def report(answer: Json) -> list[str]:
    """Return the lines for an answer of `GET /v1/backlog`."""
    lines = [f"{plain(answer['name'])}: {_now(answer)}"]
    stories = answer["stories"]
    if stories:
        lines += table(_HEAD, [_row(one, answer["next_story"]) for one in stories])
    else:
        lines.append(f"Nothing waits: {plain(command_for(answer['project'], 'start', 'STORY', 'STORY'))}")
    lines += ["", *_what_follows(answer)]
    return lines if answer["daemon"] else [*lines, no_daemon()]


def _now(answer: Json) -> str:
    return f"{plain(answer['story'])} is in flight" if answer["story"] else "no story is in flight"


def _row(one: Json, upcoming: str | None) -> list[str]:
    starts = one["waits_for"] or ("next" if one["story"] == upcoming else "when its turn comes")
    who = f"schedule {one['schedule']}" if one["schedule"] else one["by"]
    return [
        str(one["place"]),
        shorten(one["story"], 40),
        str(one["priority"]),
        one["complexity"] or "–",
        moment(one["at"]) if one["at"] else "–",
        shorten(who or "–", 24),
        shorten(starts, _WIDTH),
    ]


def _what_follows(answer: Json) -> list[str]:
    """Return whether the next story starts by itself, who said so, and how to have it otherwise."""
    on, chosen = answer["auto_continue"], answer["chosen"] is not None
    said = "as a person chose" if chosen else "as the settings say"
    named = answer | {"called": answer["name"]}
    other = by_name(command_for(answer["project"], "backlog auto", "off" if on else "on"), named)
    how = "starts by itself" if on else "waits for `continue`"
    by_itself = answer.get("next_by_itself", False)
    if by_itself and not on:
        upcoming = plain(answer["next_story"])
        lines = [
            f"{upcoming} starts by itself: a schedule queued it.",
            f"Any other {how}, {said} ({plain(other)}).",
        ]
    else:
        lines = [f"The next story {how}, {said} ({plain(other)})."]
    if answer["paused_by"]:
        lines.append(f"Nothing starts: paused by {plain(answer['paused_by'])}.")
    if answer["next_command"] and not (by_itself and answer["story"] is None):
        lines.append(f"  next: {plain(by_name(answer['next_command'], named))}")
    return lines
