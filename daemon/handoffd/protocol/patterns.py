"""Regular expressions whose search takes time in proportion to the text, whatever the pattern is.

Patterns are in files that people share, and Python's own engine takes exponential time for some of them. The
syntax is RE2's without flags, names, `\\b` and POSIX classes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

LONGEST: Final = 500
"""Characters of a pattern."""
_PIECE: Final = re.compile(
    r"""(?P<atom> \[\^?\]?(?:\\[dDwWsSnrtf] | \\[^\w\s] | (?!--|&&|~~|\|\|)[^\]\\\[])*\]
        | \\[dDwWsSnrtf] | \\[^\w\s] | [^\\()\[\]{}*+?|^$] )
    | (?P<repeat> (?:[*+?] | \{(?P<least>\d{1,3})(?P<comma>,?)(?P<most>\d{0,3})\}) \?? )
    | (?P<open> \((?:\?:)? ) | (?P<sign> [|)^$] )""",
    re.VERBOSE | re.DOTALL,
)
_MOST_STATES: Final = 1_000
_MOST_KEPT: Final = 100_000
"""States in the steps of one pattern."""
_MOST_GROUPS: Final = 20
_FOUND: Final = 0
_Part = Callable[["Pattern", int], int]
"""Adds states that lead to the state that is given; returns the first of them."""


class Pattern:
    """A regular expression as states; the steps between them that a search took are kept."""

    def __init__(self, text: str) -> None:
        self._states: list[tuple[Any, tuple[int, ...]]] = [(None, ())]
        self._steps: dict[tuple[frozenset[int], bool, str], frozenset[int] | None] = {}
        pieces = _pieces_of(text)
        part = _choice(pieces, 0)
        if pieces:
            raise ValueError("this pattern has a ')' too many")
        self._start = part(self, _FOUND)

    @property
    def size(self) -> int:
        """How many states there are, which is also the most tests of one character."""
        return len(self._states)

    def add(self, test: object, *then: int) -> int:
        """Return a new state, which leads to others. Raises ValueError."""
        if len(self._states) >= _MOST_STATES:
            raise ValueError("this pattern is too large")
        self._states.append((test, then))
        return len(self._states) - 1

    def add_loop(self, part: _Part, then: int) -> int:
        """Return a new state that leads through a part back to itself. Raises ValueError."""
        at = self.add(None)
        self._states[at] = (None, (part(self, at), then))
        return at

    def occurs_in(self, text: str) -> bool:
        """Return whether the pattern occurs in a text."""
        states, first = frozenset({self._start}), True
        for sign in text:
            key = (states, first, sign)
            if key not in self._steps:
                if len(self._steps) * self.size > _MOST_KEPT:
                    self._steps.clear()
                self._steps[key] = self._after(*key)
            if (after := self._steps[key]) is None:
                return True
            states, first = after, False
        return _FOUND in self._reached(states, first, last=True)

    def _after(self, states: frozenset[int], first: bool, sign: str) -> frozenset[int] | None:
        """Return the states after a character; None where the pattern occurs before it."""
        reached = self._reached(states, first, last=False)
        tests = [self._states[at] for at in reached]
        after = {self._start, *(then[0] for test, then in tests if callable(test) and test(sign))}
        return None if _FOUND in reached else frozenset(after)

    def _reached(self, states: frozenset[int], first: bool, *, last: bool) -> set[int]:
        """Return the states that are reached without a character."""
        found: set[int] = set()
        open_ = list(states)
        while open_:
            at = open_.pop()
            test, then = self._states[at]
            if at not in found and (test != "^" or first) and (test != "$" or last):
                found.add(at)
                open_ += () if callable(test) else then
        return found


def _pieces_of(text: str) -> list[re.Match[str]]:
    """Return the pieces of a pattern, the last one first. Raises ValueError."""
    found, at = [], 0
    if len(text) > LONGEST:
        raise ValueError(f"a pattern has at most {LONGEST} characters")
    while at < len(text):
        match = _PIECE.match(text, at)
        if match is None:
            raise ValueError(f"the pattern '{text[:40]}' cannot be read at character {at + 1}")
        found.append(match)
        at = match.end()
    return found[::-1]


def _choice(pieces: list[re.Match[str]], groups: int) -> _Part:
    """Return what is before the next `)`, and take it from the pieces. Raises ValueError."""
    branches: list[list[_Part]] = [[]]
    while pieces and pieces[-1][0] != ")":
        piece, branch = pieces.pop(), branches[-1]
        if piece[0] == "|":
            branches.append([])
        elif piece["repeat"]:
            if not branch or (pieces and pieces[-1]["repeat"]):
                raise ValueError(f"'{piece[0]}' of a pattern repeats nothing, or a repetition")
            branch.append(_repeated(branch.pop(), piece))
        elif piece["open"]:
            branch.append(_choice(pieces, groups + 1))
            if not pieces or groups > _MOST_GROUPS:
                raise ValueError("a '(' of this pattern is never closed, or there are too many")
            pieces.pop()
        else:
            branch.append(_single(piece))
    return lambda pattern, then: pattern.add(None, *(_joined(branch, pattern, then) for branch in branches))


def _joined(parts: list[_Part], pattern: Pattern, then: int) -> int:
    for part in reversed(parts):
        then = part(pattern, then)
    return then


def _single(piece: re.Match[str]) -> _Part:
    try:
        test = piece["sign"] or re.compile(piece["atom"], re.ASCII).match
    except re.error as error:
        raise ValueError(f"'{piece['atom'][:40]}' in a pattern cannot be read: {error}") from None
    return lambda pattern, then: pattern.add(test, then)


def _repeated(part: _Part, piece: re.Match[str]) -> _Part:
    sign = piece[0][0]
    least, most = int(piece["least"] or sign == "+"), 1 if sign == "?" else None
    if sign == "{" and (piece["most"] or not piece["comma"]):
        most = int(piece["most"] or least)
    if most is not None and most < least:
        raise ValueError(f"'{piece[0]}' in a pattern has a minimum above its maximum")

    def repeated(pattern: Pattern, then: int) -> int:
        at = then if most is not None else pattern.add_loop(part, then)
        for _ in range((most or least) - least):
            at = pattern.add(None, part(pattern, at), then)
        return _joined([part] * least, pattern, at)

    return repeated


@lru_cache(maxsize=256)
def pattern_of(text: str) -> Pattern:
    """Return a pattern; the last ones are kept. Raises ValueError."""
    return Pattern(text)
