"""A tenth of what the reference did, replayed against ours: no npm, no network, the same rules."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog
from tests.differential.cases import Case, cases
from tests.differential.comparing import Compared, compared, deliberate, judged
from tests.differential.driving import before, ours, through, turns
from tests.differential.recordings import (
    PLAYED,
    SEQUENCES,
    Outdated,
    Remembered,
    is_recorded,
    recorded,
    recorded_sequences,
    results,
)
from tests.differential.sequences import FEWEST, MOST, Played, Said, sequences
from tests.differential.working import in_sequence

CASES = tuple(case for case in cases() if is_recorded(case))
OUTCOMES = recorded()
SHORT = sequences(1, PLAYED)
TURNS = recorded_sequences()
RULES = deliberate()


@pytest.fixture(scope="module", autouse=True)
def _as_it_was() -> Iterator[None]:
    """Put logging back: our program sets it up for itself."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    logging.captureWarnings(False)
    structlog.reset_defaults()


def test_every_case_of_the_part_is_recorded() -> None:
    """Else `make differential RECORD=1`."""
    assert {case.name for case in CASES} == set(OUTCOMES)


@pytest.mark.parametrize("verb", sorted({case.verb for case in CASES}))
def test_ours_does_what_the_reference_did_or_says_why_not(verb: str) -> None:
    """Each difference has a rule in deliberate.yaml."""
    judgement = judged([_compared(case) for case in CASES if case.verb == verb], RULES)

    assert ((), ()) == (judgement.unexplained, judgement.broad)


def _compared(case: Case) -> Compared:
    return compared(case.name, case.verb, OUTCOMES[case.name], through(ours, case), before(case.folder))


@pytest.mark.parametrize("sequence", SHORT, ids=[one.name for one in SHORT])
def test_ours_does_in_sequences_what_the_reference_did_or_says_why_not(sequence: Played) -> None:
    """After each verb, with the files that ours had made by then."""
    found: list[Compared] = []
    outdated = ""
    try:
        found += map(in_sequence, turns(sequence, lambda _: Remembered(TURNS[sequence.name])))
    except Outdated as error:
        outdated = str(error)  # told only where nothing before it explains it

    judgement = judged(found, RULES)
    assert ((), ()) == (judgement.unexplained, judgement.broad)
    assert not outdated


def test_a_seed_makes_the_same_sequence_again_and_each_has_three_to_six_verbs() -> None:
    """Else what is recorded would not be found again."""
    again = sequences(1, PLAYED)

    assert SHORT == again
    assert set(TURNS) == {one.name for one in SHORT}
    counts = {sum(isinstance(move, Said) for move in one.moves) for one in SHORT}
    assert set(range(FEWEST, MOST + 1)) == counts


def test_the_documentation_is_of_these_cases() -> None:
    """The numbers in compatibility.md come of a comparison with as many cases and the same rules."""
    found = results()

    assert (len(cases()), [rule.id for rule in RULES]) == (found["cases"], list(found["rules"]))
    assert SEQUENCES == found["sequences"]
    assert all(found["rules"].values()), "a rule that explains nothing"
    assert len(cases()) >= 300
