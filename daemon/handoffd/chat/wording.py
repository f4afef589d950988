"""The sentences of replies, by language: data that ships in `config/reports/`; and what a person types next.

A template is a text with placeholders, `{story}`; nothing else in it means anything. What is put in
comes from projects and agents: it is made one short line of printable characters first.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import cache
from string import Formatter
from typing import Any, Final, get_args

from msgspec import Struct

from handoffd.protocol import yamltext
from handoffd.protocol.rules import Language
from handoffd.settings.paths import shared

LANGUAGES: Final[tuple[Language, ...]] = get_args(Language)
MAX_VALUE: Final = 300
"""Characters of one value; a report is read on a phone."""

_PUNCTUATION: Final[Mapping[Language, tuple[str, str, str, str]]] = {
    "en": (". ", ", ", " → ", "; "), "zh-TW": ("。", "、", " → ", "；"),
}  # fmt: skip
_SAID: Final = frozenset({"place", "limit", "whose", "why"})
"""Values of these sentences that have words of their own."""
_PLACE: Final = r"[\d,]+(?:st|nd|rd|th)(?: or later)?"


class Wording(Struct, frozen=True):
    """The templates of one language, by dotted key."""

    language: Language
    templates: Mapping[str, str]

    def say(self, key: str, /, **values: object) -> str:
        """Return a sentence with its values in it."""
        return self.templates[key].format_map({name: plain(value) for name, value in values.items()})

    def has(self, key: str) -> bool:
        """Tell whether there is a sentence for something."""
        return key in self.templates

    def step(self, step: object) -> str:
        """Return what people call a step; one of a project's own keeps its name."""
        return self.templates.get(f"step.{step}") or plain(step)

    def reason(self, reason: object) -> str:
        """Return what people call a reason."""
        return self.templates.get(f"reason.{reason}") or plain(reason)

    def translated(self, text: object) -> str:
        """Return in this language what the daemon says of a wait: in English, in the sentences of `waits`.

        It is read part for part; what is none of them stays as it is.
        """
        if self.language == "en":
            return plain(text)
        return _PUNCTUATION[self.language][3].join(self._part(part) for part in plain(text).split("; "))

    def _part(self, text: str) -> str:
        for key, pattern in _waits():
            if (match := pattern.fullmatch(text)) is not None:
                known = match.groupdict()
                for name in _SAID & known.keys():
                    known[name] = _number(known[name]) if name == "place" else self._part(known[name])
                return self.say(key, **known)
        return text

    def listed(self, items: list[str]) -> str:
        """Return several things as one text."""
        return _PUNCTUATION[self.language][1].join(items)

    def path(self, items: list[str]) -> str:
        """Return things that come one after the other."""
        return _PUNCTUATION[self.language][2].join(items)


@cache
def wording(language: Language) -> Wording:
    """Return the sentences of a language."""
    path = shared("config", "reports", f"{language}.yaml")
    sections: Mapping[str, Mapping[str, Any]] = yamltext.load(path.read_bytes(), str(path)).data
    flat = {f"{section}.{key}": str(text) for section, keys in sections.items() for key, text in keys.items()}
    return Wording(language, flat)


@cache
def _waits() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the English sentences about waits as patterns, what says more first."""
    found = []
    for key, template in wording("en").templates.items():
        if key.startswith("waits."):
            parts = Formatter().parse(template)
            pattern = "".join(re.escape(text) + (_value(name) if name else "") for text, name, _, _ in parts)
            found.append((key, re.compile(pattern)))
    return tuple(sorted(found, key=lambda one: len(one[1].pattern), reverse=True))


def _value(name: str) -> str:
    return f"(?P<{name}>{_PLACE})" if name == "place" else f"(?P<{name}>.+?)"


def _number(place: str) -> str:
    """Return `3` of `3rd`, `21+` of `21st or later`."""
    return re.sub(r"[^\d,]", "", place) + ("+" if place.endswith("later") else "")


def placeholders(template: str) -> frozenset[str]:
    """Return the names of the values that a template needs. Raises ValueError for anything but names."""
    found = [
        (name, spec, conversion)
        for _, name, spec, conversion in Formatter().parse(template)
        if name is not None
    ]
    if any(not name.isidentifier() or spec or conversion for name, spec, conversion in found):
        raise ValueError(f"only names can stand between braces: {template}")
    return frozenset(name for name, _, _ in found)


def plain(value: object) -> str:
    """Return a value as one short line of what can be seen."""
    line = " ".join(str(value).split())
    shown = "".join(sign if sign.isprintable() else "\ufffd" for sign in line[: 2 * MAX_VALUE])
    return shown if len(shown) <= MAX_VALUE else shown[: MAX_VALUE - 1] + "…"


# --- what a person types next in a chat, from the command for a terminal -----------------------------
_SAYABLE: Final[Mapping[str, str]] = {
    "approve": "gate",
    "gate": "gate",
    "reject": "gate",
    "retry": "retry",
    "resume": "continue",
    "continue": "continue",
    "dispatch": "continue",
    "start": "start",
    "custom": "start",
    "init": "start",
    "note": "note",
    "reopen": "reopen",
    "status": "wait",
}
"""Commands that a chat message can give; others are shown as typed in a terminal."""


_SAME_WITHOUT: Final = frozenset({"status", "approve", "gate"})
"""Commands whose options can be left out: a chat user has the story before their eyes."""


def to_type(wording: Wording, command: str | None) -> str | None:
    """Return the line that says what to type; None if nothing can be typed now."""
    if not command:
        return None
    verb = _verb(command)
    said, shell = _SAYABLE.get(verb or ""), wording.say("type.shell", command=command)
    if said is None:
        return shell
    typed = wording.say(f"type.{said}")
    return f"{shell}\n{typed}" if verb == "gate" else typed  # it is decided once it was seen


def is_of_gate(command: object) -> bool:
    """Tell whether a next command shows or decides a gate."""
    return _SAYABLE.get(_verb(str(command)) or "") == "gate"


def _verb(command: str) -> str | None:
    """Return the verb of a command line of ours; None of anything else, or of several at once."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        return None
    ours = len(words) > 1 and words[0] == "handoffd" and not {"&&", ";", "||"} & set(words)
    with_options = any(word.startswith("--") for word in words[2:]) and not _SAME_WITHOUT & {*words[1:2]}
    return words[1] if ours and not with_options else None
