"""Access to a project's folder, with a time limit."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path
from statistics import median

import anyio
import pytest
from anyio import to_thread
from tests.support.eventually import eventually
from tests.support.house import House, house

from handoffd.errors import NotFound, StoreError
from handoffd.files.locks import project_lock_path
from handoffd.track.reach import FEW, LOOKS, MOST, Reach, allowed, follow, resolved


async def test_a_look_returns_its_result_or_its_error(here: House, root: str, tmp_path: Path) -> None:
    """A missing folder is not the same as silence."""
    reach = Reach(root, here.services.asking)

    with pytest.raises(StoreError, match="gone"):
        await reach.asked(partial(project_lock_path, tmp_path, tmp_path / "nowhere"))

    assert "found" == await reach.asked(lambda: "found")


async def test_a_silent_folder_is_given_up(here: House, root: str) -> None:
    """And asked again later."""
    reach = Reach(root, here.services.asking)

    with pytest.raises(StoreError, match="does not answer"):
        await reach.asked(lambda: "found", limit_s=0)
    with pytest.raises(StoreError, match="does not answer"):
        await resolved(root, limit_s=0)

    assert "found" == await reach.asked(lambda: "found")


async def test_two_may_look_at_one_folder_at_once(here: House, root: str) -> None:
    """The second waits for the first: a folder at work is not a silent one."""
    reach, answers, found = Reach(root, here.services.asking), threading.Event(), list[str]()

    async def ask(name: str) -> None:
        found.append(await reach.asked(lambda: (answers.wait(60), name)[1], 60))

    async with anyio.create_task_group() as tasks:
        for name in ("first", "second", "third"):
            tasks.start_soon(ask, name)
        await eventually(lambda: 1 == here.services.asking.borrowed_tokens)
        answers.set()

    assert ["first", "second", "third"] == found


async def test_who_waits_for_a_folder_that_hangs_is_told_once_it_is_given_up(here: House, root: str) -> None:
    """They take no second thread for it."""
    reach, answers, told = Reach(root, here.services.asking), threading.Event(), list[str]()

    async def ask(limit_s: float) -> None:
        with pytest.raises(StoreError, match="does not answer") as caught:
            await reach.asked(lambda: answers.wait(60), limit_s)
        told.append(caught.value.message)

    async with anyio.create_task_group() as tasks:
        for limit_s in (0.05, 60, 60):
            tasks.start_soon(ask, limit_s)
    answers.set()

    assert 3 == len(told)


async def test_few_are_asked_at_once(tmp_path: Path) -> None:
    """A sweep of hundreds of changed projects does not start hundreds of threads."""
    inside, answers = list[int](), threading.Event()

    def look() -> None:
        inside.append(threading.get_ident())
        answers.wait(60)

    async with house(tmp_path) as here, anyio.create_task_group() as tasks:
        for number in range(3 * FEW):
            tasks.start_soon(Reach(str(tmp_path / f"p{number}"), here.services.asking).asked, look, 60)
        asking = here.services.asking
        await eventually(lambda: (FEW, 2 * FEW) == (len(inside), asking.statistics().tasks_waiting))
        answers.set()

    assert 3 * FEW == len(inside)


async def test_links_to_a_root_are_resolved(tmp_path: Path) -> None:
    """Two paths to one folder are one project; a file is not a root."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "shop")
    (tmp_path / "file").touch()

    assert str(tmp_path / "shop") == await resolved(str(tmp_path / "link"))
    for none in ("file", "nowhere", "a\0b"):
        with pytest.raises(NotFound):
            await resolved(str(tmp_path / none))


# --- the number of threads ------------------------------------------------------------------------
LOOK_S = 0.01


def test_a_hanging_thread_is_replaced() -> None:
    """A few are enough while none hangs, however many finish between two looks; there is a limit."""
    assert [FEW, FEW] == [allowed(()), allowed([1] * 8 + [LOOKS - 1] * 8)]
    assert [FEW + 3, MOST] == [allowed([1, LOOKS, LOOKS + 1, LOOKS, 2]), allowed([LOOKS] * 1000)]


async def test_hanging_threads_do_not_block_others() -> None:
    """Even twice as many as there are places."""
    limiter, hung = anyio.CapacityLimiter(1), threading.Event()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow, limiter, LOOK_S)
            for _ in range(2 * FEW):
                tasks.start_soon(lambda: to_thread.run_sync(hung.wait, 60, limiter=limiter))
            await eventually(lambda: 2 * FEW == limiter.borrowed_tokens)
            assert "done" == await to_thread.run_sync(lambda: "done", limiter=limiter)
            hung.set()
            await eventually(lambda: FEW == limiter.total_tokens)
            tasks.cancel_scope.cancel()


async def test_a_busy_thread_does_not_count_as_hanging() -> None:
    """A hundred tasks with short visits leave the limit about the same."""
    limiter, limits = anyio.CapacityLimiter(FEW), list[float]()

    async def visits() -> None:
        while True:
            await to_thread.run_sync(time.sleep, 0.001, limiter=limiter)

    async def note() -> None:
        while len(limits) < 200:
            await anyio.sleep(LOOK_S)
            limits.append(limiter.total_tokens)

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow, limiter, LOOK_S)
            for _ in range(100):
                tasks.start_soon(visits)
            await note()
            tasks.cancel_scope.cancel()

    assert median(limits) < 2 * FEW  # on a busy machine a visit may last for some looks


# --- what all tracks share ------------------------------------------------------------------------
async def test_services_have_a_place_for_runs_and_show_no_environment(here: House, tmp_path: Path) -> None:
    """Runs are outside of every project; the environment holds secrets, and values are logged."""
    assert tmp_path / "state/runs/d1" == here.services.run_dir("d1")
    assert "s3cret" not in repr(here.services)
