"""A disk that hangs holds up no other project."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import anyio
import pytest
from tests.support.eventually import eventually

from handoffd.watch.folders import Visits


class Disks:
    """Folders that answer with their name in capitals, but for those that hang."""

    def __init__(self, *hanging: str) -> None:
        self.repaired = {root: threading.Event() for root in hanging}
        self.asked: list[str] = []

    def look(self, root: str) -> str:
        """Answer as soon as this one is repaired."""
        self.asked.append(root)
        if root in self.repaired:
            self.repaired[root].wait()
        return root.upper()

    def repair(self) -> None:
        """Let all of them answer."""
        for event in self.repaired.values():
            event.set()


@pytest.fixture
def hanging() -> Iterator[Disks]:
    """Two folders that hang until the end of the test."""
    disks = Disks("b", "d")
    yield disks
    disks.repair()


async def test_all_that_answer_are_visited() -> None:
    """In order, once."""
    disks = Disks()

    assert {"a": "A", "b": "B"} == await Visits().pay(["a", "b"], disks.look)
    assert ["a", "b"] == disks.asked
    assert {} == await Visits().pay([], disks.look)


async def test_a_folder_that_hangs_is_left_behind(hanging: Disks) -> None:
    """The others are visited, each once; it is not visited again while it hangs."""
    visits = Visits(limit_s=0.05)

    found = await visits.pay(list("abcde"), hanging.look)
    assert {"a": "A", "c": "C", "e": "E"} == found
    assert {"b", "d"} == visits.silent
    hanging.asked.clear()
    assert {"a": "A"} == await visits.pay(["a", "b"], hanging.look)
    assert ["a"] == hanging.asked


async def test_a_folder_that_answers_late_is_visited_again(hanging: Disks) -> None:
    """Its late answer is too old."""
    visits = Visits(limit_s=0.05)
    await visits.pay(["a", "b", "c"], hanging.look)
    hanging.repair()
    await eventually(lambda: not visits.silent)

    assert {"b": "B"} == await visits.pay(["b"], hanging.look)


async def test_a_visit_can_be_cancelled_while_it_hangs(hanging: Disks) -> None:
    """A daemon that stops does not wait for a disk."""
    visits = Visits(limit_s=3600)
    async with anyio.create_task_group() as group:
        group.start_soon(visits.pay, ["b"], hanging.look)
        await eventually(lambda: ["b"] == hanging.asked)
        group.cancel_scope.cancel()

    assert {"b"} == visits.silent
