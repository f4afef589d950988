"""What is waited with: a ring is never missed, and is heard once; a lock lets one in, in their order."""

from __future__ import annotations

import anyio
import pytest

from handoffd.track.inbox import Bell, Lock


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


async def test_everybody_who_waits_hears_the_ring() -> None:
    """One of them may have given up in the same moment."""
    bell, heard = Bell(), list[str]()

    async def listen(name: str, scope: anyio.CancelScope) -> None:
        with scope:
            await bell.wait()
            heard.append(name)

    async with anyio.create_task_group() as tasks:
        scopes = {name: anyio.CancelScope() for name in "abc"}
        for name, scope in scopes.items():
            tasks.start_soon(listen, name, scope)
        await anyio.wait_all_tasks_blocked()
        scopes["b"].cancel()
        bell.ring()

    assert ["a", "c"] == heard


@pytest.mark.parametrize("cancelled", ["a", "b"])
async def test_a_lock_lets_them_in_one_by_one_and_keeps_no_queue(cancelled: str) -> None:
    """Whoever gives up while waiting keeps nobody else from it, also if it was the next one's turn."""
    lock, order = Lock(), list[str]()

    async def work(name: str, scope: anyio.CancelScope) -> None:
        with scope:
            async with lock:
                order.append(name)
                await anyio.lowlevel.checkpoint()
                order.append(name)

    async with anyio.create_task_group() as tasks:
        scopes = {name: anyio.CancelScope() for name in "abcd"}
        await lock.acquire()
        for name, scope in scopes.items():
            tasks.start_soon(work, name, scope)
        await anyio.wait_all_tasks_blocked()
        lock.release()  # it is a's turn now
        scopes[cancelled].cancel()

    others = [name for name in "abcd" if name != cancelled]
    assert [name for name in others for _ in ("in", "out")] == [name for name in order if name != cancelled]
    assert (False, None) == (lock.locked(), lock._waiters)
