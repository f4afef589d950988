"""Inputs made of others: small changes, and pieces that are repeated until the input is long."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final

ODD: Final = (
    b"\0", b"\r", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xff\xfe", b"\xe2\x80\xa8",
    b"\xd9\xa3", b"\xc2\xb2", b"\xf0\x9f\x92\xa9", b"9" * 25, b"9" * 5000, b"-1", b"1e400", b"NaN",
    b"[" * 300, b" " * 300, b"\n" * 50,
)  # fmt: skip
"""What readers stumble over: bytes that are not text, digits beyond ASCII, numbers, and depth."""

LONGEST: Final = 4096
"""Of one piece that is repeated."""


def mutated(seed: bytes, words: Sequence[str], chance: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """Return `seed` with one to four changes."""
    body = seed
    for _ in range(chance.randint(1, 4)):
        body = chance.choice(_CHANGES)(body, words, chance)
    if others and chance.random() < 0.1:
        other = chance.choice(others)
        body = body[: chance.randint(0, len(body))] + other[chance.randint(0, len(other)) :]
    return body


def mutations(seed: bytes, words: Sequence[str], times: int, start: str) -> Iterator[bytes]:
    """Yield `times` inputs made of `seed`; the same `start` makes the same ones."""
    chance = random.Random(start)
    for _ in range(times):
        yield mutated(seed, words, chance)


def stretched(seed: bytes, words: Sequence[str], most: int, chance: random.Random) -> bytes:
    """Return an input of about `most` bytes: a piece of `seed`, or of two words, again and again.

    What takes the square of its length shows on such an input, and hardly on others.
    """
    start = chance.randint(0, len(seed))
    piece = seed[start : start + chance.choice((1, 1, 2, 3, 8, 40, 200, LONGEST))]
    if not piece or chance.random() < 0.4:
        piece = b"".join(_word(words, chance) for _ in range(chance.randint(1, 2)))
    if chance.random() < 0.3:
        piece += chance.choice((b"\n", b" ", b",", b"\n\n", b"\n  "))
    if chance.random() < 0.2:
        return _numbered(seed[:start], piece, seed[start:], most)
    room = max(1, (most - len(seed)) // len(piece))
    return (seed[:start] + piece * room + seed[start:])[:most]


def _numbered(head: bytes, piece: bytes, tail: bytes, most: int) -> bytes:
    """Return the piece again and again, each with a number: names that differ."""
    parts, size = [head], len(head) + len(tail)
    number = 0
    while size < most:
        at = number % (len(piece) + 1) if number < 2 else len(piece) // 2
        part = piece[:at] + b"%d" % number + piece[at:]
        parts.append(part)
        size += len(part)
        number += 1
    return b"".join([*parts, tail])[:most]


def _word(words: Sequence[str], chance: random.Random) -> bytes:
    odd = chance.choice(ODD)
    return (
        odd if not words or chance.random() < 0.2 else chance.choice(words).encode("utf-8", "surrogatepass")
    )


def _inserted(body: bytes, words: Sequence[str], chance: random.Random) -> bytes:
    at = chance.randint(0, len(body))
    return body[:at] + _word(words, chance) + body[at:]


def _replaced(body: bytes, words: Sequence[str], chance: random.Random) -> bytes:
    at = chance.randint(0, len(body))
    return body[:at] + _word(words, chance) + body[at + chance.randint(1, 12) :]


def _flipped(body: bytes, words: Sequence[str], chance: random.Random) -> bytes:
    if not body:
        return _word(words, chance)
    at = chance.randrange(len(body))
    return body[:at] + bytes([chance.randrange(256)]) + body[at + 1 :]


def _cut(body: bytes, _: Sequence[str], chance: random.Random) -> bytes:
    at = chance.randint(0, len(body))
    return body[:at] if chance.random() < 0.3 else body[:at] + body[at + chance.randint(1, 80) :]


def _doubled(body: bytes, _: Sequence[str], chance: random.Random) -> bytes:
    at = chance.randint(0, len(body))
    piece = body[at : at + chance.randint(1, 200)]
    return body[:at] + piece * chance.choice((2, 2, 3, 30)) + body[at:]


def _swapped(body: bytes, _: Sequence[str], chance: random.Random) -> bytes:
    lines = body.split(b"\n")
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


_CHANGES: Final[tuple[Callable[[bytes, Sequence[str], random.Random], bytes], ...]] = (
    _inserted, _replaced, _flipped, _cut, _doubled, _swapped,
)  # fmt: skip
