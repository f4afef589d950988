"""Names that become paths: story ids and how they are numbered, path templates, paths inside a project.

All of them come from people's files and agents' claims. The rules here are lexical; code that opens a
path still has to refuse symlinks that lead out of the root.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from handoffd.errors import Refused

MAX_PATH_CHARACTERS = 1024

RESERVED_IDS = frozenset({"max_attempts_exceeded", "main"})
"""Would be taken for something else: an entry of `blocked_by`, the track of a whole project."""

_STORY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TOKEN = re.compile(r"US-\{story\}|\{story\}")
_PREFIX = "US-"


_FORM = "1 to 64 of A-Z a-z 0-9 . _ -, the first a letter or digit, no '..'"


def is_story_id(text: str) -> bool:
    """Tell whether `text` can be the id of a story or custom task."""
    return bool(_STORY_ID.fullmatch(text)) and ".." not in text and text not in RESERVED_IDS


def reads_as_text(word: str) -> bool:
    """Tell whether a word is what a story shall bring: white space is in it, or a letter that no id may have.

    Chinese and Japanese are written without blanks.
    """
    return any(sign.isspace() or (sign.isalpha() and not sign.isascii()) for sign in word)


def check_story_id(text: str, *, hint: str = "handoffd start US-001") -> str:
    """Return `text`, which is a story id; raises Refused (INVALID_STORY). `hint` is the asker's command."""
    if is_story_id(text):
        return text
    why = "handoffd keeps that word for itself" if text in RESERVED_IDS else _FORM
    raise Refused(f"{text[:80]!r} cannot be a story id: {why}", code="INVALID_STORY", hint=hint)


def qualified(story: str) -> str:
    """Return a story id with its prefix: both `013` and `US-013` give `US-013`."""
    return story if story.startswith(_PREFIX) else _PREFIX + story


def same_story(one: str, other: str) -> bool:
    """Tell whether two ids name one story, that is, expand to the same paths."""
    return qualified(one) == qualified(other)


def expand(template: str, story: str | None) -> str:
    """Return `template` with `US-{story}` and `{story}` replaced; nothing else in it means anything.

    Without a story the template comes back as it is. `story` is a valid id.
    """
    if story is None:
        return template
    assert is_story_id(story), story
    return _TOKEN.sub(lambda token: story if token[0] == "{story}" else qualified(story), template)


def relative_path(text: str) -> str | None:
    """Return `text` as a plain path relative to the root (`./a//b` gives `a/b`).

    None when it is empty or absolute, climbs with `..`, or holds what no sane path does (control
    characters, backslashes, a leading `~`, more than 1,024 characters).
    """
    parts = [part for part in text.strip().split("/") if part not in ("", ".")]
    if not parts or ".." in parts or len(text) > MAX_PATH_CHARACTERS:
        return None
    if text.lstrip().startswith(("/", "~")) or "\\" in text or not text.strip().isprintable():
        return None
    return "/".join(parts)


# --- numbers ------------------------------------------------------------------------------------------
# A story that is asked for by its text alone gets the next number of the project's own.
USUAL: Final = "US-"
"""The prefix of a project that has no numbering of its own."""
_DIGITS: Final = 3

_NUMBERED: Final = re.compile(r"([A-Za-z][A-Za-z0-9]{0,19}[-_])?([0-9]{1,6})")
"""More digits are a date or a time, not a number in a row."""


class Numbering(Struct, frozen=True, kw_only=True):
    """The ids of one prefix."""

    prefix: str
    last: int
    """The highest number."""
    digits: int = 1
    """To which width its numbers are filled with zeros; 1: they are not."""
    stories: int = 0
    """How many of these ids certainly name stories; text may hold `UTF-8` and `SHA-256`, too."""


def numberings(stories: Iterable[str], mentioned: Iterable[str] = ()) -> tuple[Numbering, ...]:
    """Return the numbering of each prefix among ids of stories, and words that look like some."""
    found: dict[str, Numbering] = {}
    for counts, names in ((1, stories), (0, mentioned)):
        for name in dict.fromkeys(names):
            number = _NUMBERED.fullmatch(name)
            if number is None:
                continue
            one = Numbering(
                prefix=number[1] or USUAL, last=int(number[2]), stories=counts,
                digits=len(number[2]) if number[2].startswith("0") else 1,
            )  # fmt: skip
            found[one.prefix] = _both(found[one.prefix], one) if one.prefix in found else one
    return tuple(found.values())


def next_id(known: Iterable[Numbering], stories: Iterable[str]) -> str:
    """Return the next free id: above every number of the project's prefix, and none of `stories`.

    That prefix is `US-` if stories have it, else the one that most of them have.
    """
    taken = {f"{USUAL}{story}" if story.isdigit() else story for story in stories}
    own = {one.prefix: one for one in numberings(taken)}
    for one in known:
        own[one.prefix] = _both(own[one.prefix], one) if one.prefix in own else one
    proven = [one for one in own.values() if one.stories]
    usual = own.get(USUAL, Numbering(prefix=USUAL, last=0, digits=_DIGITS))
    row = max(proven, key=lambda one: (one.prefix == USUAL, one.stories, one.last), default=usual)
    number = row.last + 1
    while (name := f"{row.prefix}{number:0{row.digits}d}") in taken:
        number += 1
    return name


def _both(one: Numbering, other: Numbering) -> Numbering:
    return Numbering(
        prefix=one.prefix, last=max(one.last, other.last), digits=max(one.digits, other.digits),
        stories=one.stories + other.stories,
    )  # fmt: skip
