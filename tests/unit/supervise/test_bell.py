"""What wakes a loop: a ring is never missed, and is heard once."""

from __future__ import annotations

import anyio

from handoffd.supervise.bell import Bell


async def test_a_ring_before_the_wait_is_heard() -> None:
    """Whoever looks, hushes and then waits misses nothing that came since it hushed."""
    bell = Bell()
    bell.hush()
    bell.ring()

    with anyio.fail_after(5):
        await bell.wait()

    assert bell.rung


async def test_a_hushed_bell_waits_for_the_next_ring() -> None:
    """However often it rang before."""
    bell, heard = Bell(), list[int]()
    bell.ring()
    bell.ring()
    bell.hush()

    async def listen() -> None:
        await bell.wait()
        heard.append(1)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        await anyio.wait_all_tasks_blocked()
        assert [] == heard
        bell.ring()

    assert [1] == heard


async def test_a_wait_that_is_given_up_leaves_the_bell_as_it_is() -> None:
    """A loop that rests in between hears the next ring all the same."""
    bell = Bell()
    with anyio.move_on_after(0):
        await bell.wait()
    assert not bell.rung

    bell.ring()

    assert bell.rung
