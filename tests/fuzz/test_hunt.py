"""What `make fuzz` keeps of the inputs that it gives a reader, and how it makes them."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.fuzz.campaign import chosen
from tests.fuzz.hunt import Hunt
from tests.fuzz.mutations import mutations, stretched
from tests.fuzz.targets import TARGETS, Target

from handoffd.hooks.event import parse_event


@contextmanager
def hunting(read: Callable[[bytes], object], folder: Path, factor: float = 1.0) -> Iterator[Hunt]:
    """Lend a hunt of a reader, and put the signal back that it uses."""
    before = signal.getsignal(signal.SIGPROF)
    hunt = Hunt(Target(name="any", read=lambda body: (read(body), None)[1], most=100), folder, 0.0, factor)
    hunt.begin()
    yield hunt
    signal.signal(signal.SIGPROF, before)


def test_an_exception_is_a_finding_once_with_its_input_and_its_place(tmp_path: Path) -> None:
    """Another input on which the same line fails adds nothing."""
    with hunting(parse_event, tmp_path) as hunt:
        hunt.give(b"no JSON")
        hunt.give(b"nor this")

    [(what, file)] = hunt.found.items()
    assert what.startswith("NotAnEventError at hooks/event.py:")
    assert b"no JSON" == Path(file).read_bytes()
    assert "NotAnEventError: the input is not JSON" in Path(f"{file}.txt").read_text()


def test_a_slow_reader_is_a_finding(tmp_path: Path) -> None:
    """It takes time of the processor, not of the clock."""

    def busy(_: bytes) -> None:
        end = time.process_time() + 0.1
        while time.process_time() < end:
            sum(range(100))

    with hunting(busy, tmp_path, factor=0.02) as hunt:
        hunt.give(b"long")

    assert ["slow at ?"] == list(hunt.found)
    assert b"long" == (tmp_path / "slowest").read_bytes()


def test_a_reader_that_takes_everything_has_no_findings(tmp_path: Path) -> None:
    """The report counts what was given."""
    with hunting(len, tmp_path) as hunt:
        hunt.give(b"one")
        hunt.give(b"two")
        hunt.report()

    assert {} == hunt.found
    assert '"executions": 2' in (tmp_path / "report.json").read_text()


def test_changes_are_the_same_each_time() -> None:
    """And others for another start."""
    once, again, other = (list(mutations(b"a: 1\nb: 2\n", ("x",), 50, start)) for start in "112")

    assert once == again
    assert once != other


def test_a_piece_is_repeated_as_far_as_the_reader_allows() -> None:
    """Never further."""
    chance = random.Random(1)

    sizes = [len(stretched(b"a: 1\nb: 2\n", ("x",), 5000, chance)) for _ in range(200)]

    assert 5000 == max(sizes)
    assert 4000 < sorted(sizes)[100]


def test_targets_are_chosen_by_the_beginnings_of_their_names() -> None:
    """Without any, all of them; a name that begins none is refused."""
    assert list(TARGETS) == chosen(None)
    assert ["handoff", "report-junit"] == chosen("handoff, report-ju")
    with pytest.raises(SystemExit, match="no target is called nothing"):
        chosen("nothing")
