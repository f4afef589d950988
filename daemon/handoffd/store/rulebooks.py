"""The step tables that decisions were made by, kept by content: one row a change, not one an event.

A decision can only be made again with the very table it was made by. Tables change rarely and are
shared by most projects, so each event refers to a row, and the row is found by the text's digest.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from dataclasses import dataclass

import handoffd
from handoffd.protocol.rules import RuleBook
from handoffd.store.codec import encode
from handoffd.store.digest import digest_of

_REMEMBERED = 64
"""Tables whose text is kept at hand: encoding one takes longer than a commit."""


@dataclass(frozen=True, slots=True)
class WrittenRules:
    """A step table in its written form. `engine` is the release that decides by it."""

    digest: str
    engine: str
    body: str


class RuleTexts:
    """Remembers the written form of the step tables in use. For one thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, tuple[RuleBook, WrittenRules]] = OrderedDict()

    def written(self, rules: RuleBook) -> WrittenRules:
        """Return `rules` as they are kept; ValueError when they cannot be."""
        # By identity: tables are large and frozen, and the reference kept here keeps the id theirs.
        known = self._known.pop(id(rules), None) or (rules, _written(rules))
        self._known[id(rules)] = known
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return known[1]


def keep_rules(db: sqlite3.Connection, rules: WrittenRules) -> int:
    """Return the row of a step table, written now if it is new."""
    wanted = (rules.digest, rules.engine)
    known = db.execute("SELECT id FROM rulebooks WHERE digest = ? AND engine = ?", wanted).fetchone()
    if known is not None:
        return int(known[0])
    cursor = db.execute(
        "INSERT INTO rulebooks (digest, engine, body) VALUES (?, ?, ?)", (*wanted, rules.body)
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _written(rules: RuleBook) -> WrittenRules:
    body = encode(rules)
    return WrittenRules(digest=digest_of(body), engine=handoffd.__version__, body=body)
