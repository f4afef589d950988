"""First hints come at once, the others at a pace."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import anyio
from tests.support.eventually import eventually

from handoffd.watch.inotify_backend import Pace

HOURS = 3600.0
AT_ONCE = 0.001


@asynccontextmanager
async def paced(rest_s: float) -> AsyncIterator[tuple[Pace, Counter[str]]]:
    """Run a pace that counts what it delivers."""
    pace, got = Pace(rest_s), Counter[str]()

    def take(roots: Iterable[str]) -> None:
        got.update(roots)

    async with anyio.create_task_group() as group:
        group.start_soon(pace.run, take)
        await anyio.wait_all_tasks_blocked()
        yield pace, got
        group.cancel_scope.cancel()


async def test_the_first_hint_is_delivered_before_anybody_else_has_a_turn() -> None:
    """Also the first of another project, while one rests."""
    async with paced(HOURS) as (pace, got):
        pace.hint(["/a"])
        assert {"/a": 1} == got
        pace.hint(["/a", "/b"])
        assert {"/a": 1, "/b": 1} == got


async def test_what_follows_becomes_one_hint() -> None:
    """It is not lost, and comes once."""
    async with paced(AT_ONCE) as (pace, got):
        for _ in range(100):
            pace.hint(["/a"])
        pace.hint(["/b"])
        assert {"/a": 1, "/b": 1} == got
        await eventually(lambda: 2 == got["/a"])
        await eventually(lambda: not pace._told)

    assert {"/a": 2, "/b": 1} == got


async def test_after_a_rest_the_next_hint_is_a_first_one_again() -> None:
    """Delivered at once."""
    async with paced(AT_ONCE) as (pace, got):
        pace.hint(["/a"])
        await eventually(lambda: not pace._told)
        pace.hint(["/a"])
        assert {"/a": 2} == got


async def test_without_hints_there_are_no_ticks() -> None:
    """It sleeps until something happens, which is what makes it free at rest."""
    async with paced(AT_ONCE) as (pace, _):
        pace.hint(["/a"])
        await eventually(lambda: not pace._told and not pace._wake.is_set())


async def test_what_can_wait_waits_for_a_whole_rest() -> None:
    """Also when a tick is just due; it keeps no other hint back."""
    async with paced(HOURS) as (pace, got):
        pace.hint_later(["/a"])
        pace.hint(["/b"])
        assert {"/b": 1} == got
        pace.hint(["/a"])
        assert {"/a": 1, "/b": 1} == got


async def test_what_can_wait_comes_once() -> None:
    """However often it was said."""
    async with paced(AT_ONCE) as (pace, got):
        for _ in range(10):
            pace.hint_later(["/a"])
        assert {} == got
        await eventually(lambda: got["/a"])
        await eventually(lambda: not pace._told and not pace._wake.is_set())

    assert {"/a": 1} == got
