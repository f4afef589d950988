"""Which project a message speaks of, where it names one that is known.

`shop: status`, `status of shop`, `shop 的進度`. A name is taken out of the message only where what is
left over is understood; of work, all the words are kept, for they may be about something else by that
name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from handoffd.protocol.chattext import cleaned, folded
from handoffd.protocol.intents import Intent, classify

_SWITCH: Final = (
    r"(?:switch to|change to|go to|open|use|切換到|切換至|切換|切到|換到"
    r"|打開)?\s*(?:the\s+)?(?:project|專案|項目)?\s*"
)
_AT_START: Final = (
    r"^[\s\"']*{switch}(?P<mark>[@#\[]?){name}\]?(?:(?P<sign>\s*[:,]\s*|\s*的\s*)|(?P<blank>\s+)"
    r"|(?P<end>[\s.!]*$))"
)
_AT_END: Final = (
    r"(?P<blank>[\s,]+|^)?(?P<link>\b(?:of|for|in|on|at)\s+(?:the\s+)?(?:project\s+)?|(?:在|到"
    r"|給)?\s*(?:專案|項目)\s*|[@#])?"
    r"{name}(?P<behind>\s*(?:project|專案|項目)?[\s.!]*\??[\s.!]*)$"
)
_LOOKED_AT: Final = 300
"""Characters at either end of a message in which a name counts."""
_BEFORE_NAME: Final = r"(?<![a-z0-9_./-])"
_BEHIND_NAME: Final = r"(?![a-z0-9_/-]|\.[a-z0-9])"
_WORK: Final = frozenset({"start_custom", "unclear"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Directed:
    """What a message means, and the project that it names.

    `firm`: it is about that project, whatever was talked of before; else the name may be a word in it.
    """

    intent: Intent
    project: str | None = None
    firm: bool = False


@dataclass(frozen=True, slots=True)
class _Reading:
    name: str
    rest: str
    firm: bool
    """Set off by a sign: it can be nothing but the project's name."""
    linked: bool
    """Joined by a word: it may be the project's name, or that of what the work is about."""


def directed(text: str, names: Iterable[str]) -> Directed:
    """Return what a message means, with the one of `names` at its beginning or end, if there is one."""
    message = cleaned(text)
    whole = classify(message)
    certain = whole.kind not in _WORK and whole.kind != "query"
    maybe: str | None = None
    for reading in _readings(message, names):
        rest = classify(reading.rest) if reading.rest else Intent(kind="query", text=message, topic="status")
        if reading.firm or (not certain and rest.kind not in _WORK):
            return Directed(intent=rest, project=reading.name, firm=True)
        if reading.linked and not certain and maybe is None:
            maybe = reading.name
    return Directed(intent=whole, project=maybe)


def _readings(message: str, names: Iterable[str]) -> Iterator[_Reading]:
    """Yield the ways to read a name of a project out of a message; longer names first."""
    text = folded(message)
    tail = max(0, len(text) - _LOOKED_AT)
    for name in sorted(filter(str.strip, names), key=len, reverse=True):
        pattern = f"{_BEFORE_NAME}{re.escape(folded(name))}{_BEHIND_NAME}"
        start = re.compile(_AT_START.format(name=pattern, switch=_SWITCH)).search(text, 0, _LOOKED_AT)
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
