"""Every reader of foreign text, on samples, on inputs that it has failed on, and on changes of both.

Whatever the bytes are, the outcome is a value or a documented error. `make fuzz` tries other inputs each
time, and measures how long they take.
"""

from __future__ import annotations

import pytest
from tests.fuzz.mutations import mutations
from tests.fuzz.targets import OWN, TARGETS, Target

CHANGES = 60
"""Of a sample; of many or long samples fewer, so that no target takes seconds."""
MOST_BYTES = 120_000
EACH = pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))


@EACH
def test_a_reader_takes_its_samples_and_what_it_once_failed_on(target: Target) -> None:
    """Also an empty input, and the longest ones."""
    seeds = [*target.seeds(), *target.long()]

    for body in seeds:
        target.read(body)

    assert 2 <= len(seeds)


@EACH
def test_a_reader_takes_changed_samples(target: Target) -> None:
    """The same ones each time."""
    seeds = list(target.seeds())
    times = min(CHANGES, 1 + MOST_BYTES // sum(map(len, seeds)))

    for number, seed in enumerate(seeds):
        for body in mutations(seed, target.words, times, f"{target.name} {number}"):
            target.read(body[: target.most])

    assert 0 < times


def test_what_readers_once_failed_on_is_of_a_target() -> None:
    """A folder of another name would never be read."""
    assert {path.name for path in OWN.iterdir()} <= set(TARGETS)
