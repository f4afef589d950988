"""What each of several processes does: it drives a reference of its own over some cases and sequences."""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import Any

from tests.differential.cases import Case
from tests.differential.comparing import Compared, compared
from tests.differential.driving import Live, Turn, before, ours, through, turns
from tests.differential.reference import Reference, driven
from tests.differential.sequences import Played

Json = dict[str, Any]

_REFERENCE: list[Reference] = []
"""The reference that this process drives, once it has begun."""


def begin(cli: Path) -> None:
    """Start the reference whose program is `cli`; it ends with this process."""
    lent = driven(cli)
    _REFERENCE.append(lent.__enter__())
    atexit.register(lent.__exit__, None, None, None)


def of_case(case: Case) -> tuple[Json, Compared]:
    """Return what the reference makes of a case, and how ours differs."""
    theirs = through(lambda words, _: _REFERENCE[0].run(words), case)
    return theirs, compared(case.name, case.verb, theirs, through(ours, case), before(case.folder))


def of_sequence(sequence: Played) -> tuple[Turn, ...]:
    """Return what both programs make of each verb of a sequence."""
    return tuple(turns(sequence, lambda base: Live(_REFERENCE[0], base)))


def in_sequence(turn: Turn) -> Compared:
    """Compare what both programs made of one verb of a sequence."""
    return compared(turn.name, turn.verb, turn.theirs, turn.ours, turn.state)
