"""Which project a message speaks of.

`shop: status`, `status of shop`, `shop 的進度`: a known name is taken out of the message only where what is
left over is understood; of work, all the words are kept, for they may be about something else by that
name. `open project A`: an explicit name counts whether it is known or not, so that what is meant for
one project never reaches another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from handoffd.chat.intents import Intent, classify
from handoffd.chat.project_names import ONLY_OPEN, compares
from handoffd.chat.text import bare, cleaned, evened, folded, plainly, trimmed

_SWITCH: Final = (
    rf"(?:{ONLY_OPEN}|switch|change to|load|use|切|換|進|載入)?\s*(?:(?:the|my)\s+|我們?的\s*)?"
    r"(?:project|專案|項目)?\s*"
)
_NOUN: Final = r"(?:專案|項目)(?!管理|列表|清單|名稱|設定|檔)"
_AT_START: Final = (
    r"^[\s\"']*{switch}(?P<mark>[@#\[]?){name}\]?(?:(?P<sign>\s*[:,]\s*|\s*的\s*|\s*{noun}(?:的|裡面?|中|上)?[\s:,]*)"
    r"|(?P<blank>\s+)|(?P<end>[^\w?/]*$))"
)
_AT_END: Final = (
    r"(?P<blank>[\s,]+|^)?(?P<link>\b(?:of|for|in|on|at)\s+(?:the\s+)?(?:project\s+)?|(?:在|到"
    r"|給)?\s*(?:專案|項目)\s*|[@#])?"
    r"{name}(?P<behind>\s*(?:project|專案|項目)?[^\w?/]*\??[^\w?/]*)$"
)
_FOR: Final = r"(?:幫|替|為|給|在|到)\s*{name}\s*(?:專案|項目)?(?:裡面?|中|上)?[\s,:]*(?=\w)"
"""Whom or where the work is for: it can be nothing but the project's name."""
_BESIDE: Final = (
    r"(?:\b(?:project|repo(?:sitory)?)|專案|項目)\s*{name}|{name}\s*(?:(?:project|repo(?:sitory)?)\b|{noun})"
)
"""The word for a project beside the name, anywhere in the message."""
_LOOKED_AT: Final = 300
"""Characters at either end of a message in which a name counts."""
_BEFORE_NAME: Final = r"(?<![a-z0-9_./-])"
_BEHIND_NAME: Final = r"(?![a-z0-9_/-]|\.[a-z0-9])"
_STANDING: Final = re.compile(r"\b(?:projects?|progress|status)\b|專案|項目|進度|狀態")
_WORK: Final = frozenset({"start_custom", "unclear"})


class Directed(Struct, frozen=True, kw_only=True):
    """What a message means, and the project that it names.

    `firm`: it is about that project, whatever was talked of before; else the name may be a word in it.
    """

    intent: Intent
    project: str | None = None
    firm: bool = False
    compared: tuple[str, ...] | None = None
    """The projects that it puts side by side; None: it compares no projects."""


class _Reading(Struct, frozen=True):
    name: str
    rest: str
    firm: bool
    """Set off by a sign: it can be nothing but the project's name."""
    linked: bool
    """Joined by a word: it may be the project's name, or that of what the work is about."""


def directed(text: str, names: Iterable[str]) -> Directed:
    """Return what a message means, with the one of `names` that it is about, or an unknown name."""
    message = cleaned(text)
    said = folded(message)
    known = tuple(name for name in names if name.strip() and folded(name) in said)
    whole = classify(message)
    message = plainly(evened(message))
    if (compared := _compared(message, whole, known)) is not None:
        return Directed(intent=replace(whole, kind="query", topic="status", sure=True), compared=compared)
    certain = whole.kind not in _WORK and whole.kind != "query"
    maybe: str | None = None
    for reading in _readings(message, known):
        rest = classify(reading.rest) if _says(reading.rest) else _opening(message, reading.name)
        if reading.firm or (not certain and _is_known(rest)):
            return Directed(intent=rest, project=reading.name, firm=True)
        if reading.linked and not certain and maybe is None:
            maybe = reading.name
    if whole.project is not None:
        named = next((name for name in known if folded(name) == folded(whole.project)), whole.project)
        return Directed(intent=replace(whole, project=named), project=named, firm=True)
    return Directed(intent=whole, project=maybe)


def says_something(word: str) -> bool:
    """Tell whether a word by itself is a command or a question, and so no guess at a folder's name."""
    return _is_known(classify(word))


def _is_known(rest: Intent) -> bool:
    """Tell whether a message means the same beside a project's name: work may be about that word."""
    return rest.kind not in _WORK or rest.command is not None


def _says(rest: str) -> bool:
    """Tell whether what is left of a message says anything."""
    core = bare(trimmed(folded(rest)))
    return "?" in core or any(sign.isalnum() for sign in core)


def _opening(message: str, name: str) -> Intent:
    return Intent(kind="query", text=message, topic="status", project=name)


def _compared(message: str, whole: Intent, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the projects that a message compares, in its order; fewer than two, if some are not known."""
    text = folded(message)
    if whole.addressed or not compares(text):
        return None
    found = {name: re.search(_pattern(name), text) for name in names}
    places = sorted((match.start(), name) for name, match in found.items() if match is not None)
    of_projects = whole.kind == "query" and _STANDING.search(text) is not None
    return tuple(name for _, name in places) if len(places) > 1 or of_projects else None


def _pattern(name: str) -> str:
    return f"{_BEFORE_NAME}{re.escape(folded(name))}{_BEHIND_NAME}"


def _readings(message: str, names: tuple[str, ...]) -> Iterator[_Reading]:
    """Yield the ways to read a name of a project out of a message; longer names first."""
    text = folded(message)
    tail = max(0, len(text) - _LOOKED_AT)
    for name in sorted(names, key=len, reverse=True):
        pattern = _pattern(name)
        at_start = _AT_START.format(name=pattern, switch=_SWITCH, noun=_NOUN)
        start = re.compile(at_start).search(text, 0, _LOOKED_AT)
        if start is not None:
            alone = start["end"] is not None and start.end() == len(text)
            firm = alone or bool(start["mark"] or start["sign"])
            yield _Reading(name, message[start.end() :].strip(), firm, linked=False)
        end = re.compile(_AT_END.format(name=pattern)).search(text, tail)
        if end is not None and (end["blank"] or end["link"]):
            asked = "?" if "?" in end["behind"] else ""
            mark = (end["link"] or "").strip() in {"@", "#"}
            rest = message[: end.start()].strip() + asked
            yield _Reading(name, rest, mark, linked=end["link"] is not None)
        before = re.compile(rf"{pattern}\s+(?=us-\d+[^\w?/]*$)").search(text, 0, _LOOKED_AT)
        if before is not None:  # as in a terminal: `land shop US-001`
            rest = f"{message[: before.start()]}{message[before.end() :]}"
            yield _Reading(name, rest, firm=False, linked=False)
        yield from _inside(message, text, name)


def _inside(message: str, text: str, name: str) -> Iterator[_Reading]:
    """Yield the ways to read a name out of the midst of a message."""
    written = re.escape(name if len(name) == 1 else folded(name))  # `a` is a word, too
    pattern, where = f"{_BEFORE_NAME}{written}{_BEHIND_NAME}", message if len(name) == 1 else text
    helped = re.compile(_FOR.format(name=pattern)).search(where, 0, _LOOKED_AT)
    if helped is not None:
        yield _Reading(name, f"{message[: helped.start()]}{message[helped.end() :]}", firm=True, linked=True)
    elif re.compile(_BESIDE.format(name=pattern, noun=_NOUN)).search(where, 0, _LOOKED_AT):
        yield _Reading(name, message, firm=True, linked=True)
