"""A tenth of what the reference did, replayed against ours: no npm, no network, the same rules."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog
from tests.differential.cases import Case, cases
from tests.differential.comparing import Difference, deliberate, differences, judged
from tests.differential.driving import before, ours, through
from tests.differential.recordings import is_recorded, recorded, results

CASES = tuple(case for case in cases() if is_recorded(case))
OUTCOMES = recorded()
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
    mine = [case for case in CASES if case.verb == verb]

    found = [one for case in mine for one in _compared(case)]

    assert () == judged(found, RULES).unexplained


def _compared(case: Case) -> list[Difference]:
    return differences(case.name, case.verb, OUTCOMES[case.name], through(ours, case), before(case.folder))


def test_the_documentation_is_of_these_cases() -> None:
    """The numbers in docs/compatibility.md come of a comparison with as many cases and the same rules."""
    found = results()

    assert (len(cases()), [rule.id for rule in RULES]) == (found["cases"], list(found["rules"]))
    assert all(found["rules"].values()), "a rule that explains nothing"
    assert len(cases()) >= 300
