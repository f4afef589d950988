"""The promise of the watcher: after every change there is a hint, whatever happens to the folders."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from tests.support.eventually import eventually
from tests.unit.watch.watching import Hints, project, publish, watching

from handoffd.settings.model import WatchSettings
from handoffd.watch.backend import Listener
from handoffd.watch.folders import NOWHERE, place_of
from handoffd.watch.watcher import Watcher

BACK_ENDS = ("inotify", "watchfiles")


@pytest.fixture(params=BACK_ENDS)
def unswept(request: pytest.FixtureRequest) -> WatchSettings:
    """Settings of each back end; what is hinted with these was hinted by the watch itself."""
    return WatchSettings(backend=request.param, sweep_s=3600)


@pytest.fixture
def swept_often(unswept: WatchSettings) -> WatchSettings:
    """Settings of each back end whose changes are found in any case."""
    return unswept.model_copy(update={"sweep_s": 0.1})


async def test_a_renamed_file_is_hinted(tmp_path: Path, unswept: WatchSettings) -> None:
    """Publishing by rename is seen every time, not only the first."""
    root = project(tmp_path)
    async with watching(unswept, root) as (_, hints):
        for text in ("one", "two", "three"):
            publish(root, text)
            await eventually(hints.saw(root, text))


@pytest.mark.parametrize("name", ["executor-result", "STATE.json", "step-rules.yaml", "handoffd.yaml"])
async def test_every_file_of_the_protocol_is_hinted(
    tmp_path: Path, name: str, unswept: WatchSettings
) -> None:
    """Each of the files we know is watched."""
    root = project(tmp_path)
    async with watching(unswept, root) as (_, hints):
        publish(root, "x", name)
        await eventually(lambda: 2 <= hints.count[str(root)])


async def test_a_removed_project_is_not_hinted(tmp_path: Path, unswept: WatchSettings) -> None:
    """After `remove` nothing more is said of a project, though its watch may live on for a moment."""
    kept, removed = project(tmp_path, "kept"), project(tmp_path, "removed")
    async with watching(unswept, kept, removed) as (watcher, hints):
        watcher.remove(str(removed))
        publish(removed, "x")
        publish(kept, "x")
        await eventually(hints.saw(kept, "x"))
        await watcher.sweep_now()

    assert 1 == hints.count[str(removed)]


async def test_an_added_project_is_hinted_once_it_is_watched(tmp_path: Path, unswept: WatchSettings) -> None:
    """What was written before the watch was live is found through the first hint."""
    first, second = project(tmp_path, "first"), project(tmp_path, "second")
    async with watching(unswept, first) as (watcher, hints):
        watcher.add(str(second))
        publish(second, "written at once")
        await eventually(hints.saw(second, "written at once"))


async def test_nothing_is_lost_while_projects_come_and_go(tmp_path: Path, unswept: WatchSettings) -> None:
    """Twenty projects are written without a pause while others are added and removed."""
    busy = [project(tmp_path, f"busy-{number}") for number in range(20)]
    others = [project(tmp_path, f"other-{number}") for number in range(30)]
    stop = threading.Event()
    last: dict[Path, str] = {}

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            for root in busy:
                last[root] = f"write {number}"
                publish(root, last[root])

    async with watching(unswept, *busy) as (watcher, hints), anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, write)
        try:
            for other in others:
                watcher.add(str(other))
                await eventually(lambda other=other: str(other) in hints.count)  # type: ignore[misc]
                watcher.remove(str(other))
        finally:
            stop.set()
        await eventually(lambda: all(hints.saw(root, last[root])() for root in busy))


async def test_an_ai_folder_that_comes_late_is_watched(tmp_path: Path, unswept: WatchSettings) -> None:
    """A project without `.ai` is hinted when the folder appears, and watched from then on."""
    async with watching(unswept, tmp_path) as (watcher, hints):
        (tmp_path / ".ai").mkdir()
        publish(tmp_path, "first")
        await eventually(hints.saw(tmp_path, "first"))
        publish(tmp_path, "second")
        await eventually(hints.saw(tmp_path, "second"))
        assert {} == watcher.degraded


async def test_an_ai_folder_deleted_and_made_again_is_watched(tmp_path: Path, unswept: WatchSettings) -> None:
    """Twice over, as a switch between branches would do it."""
    root = project(tmp_path)
    async with watching(unswept, root) as (_, hints):
        for text in ("one", "two"):
            shutil.rmtree(root / ".ai")
            (root / ".ai").mkdir()
            publish(root, text)
            await eventually(hints.saw(root, text))
            publish(root, f"{text} again")
            await eventually(hints.saw(root, f"{text} again"))


async def test_an_ai_folder_replaced_by_rename_is_watched(tmp_path: Path, unswept: WatchSettings) -> None:
    """The folder that is there counts, not the one that was watched."""
    root, other = project(tmp_path, "root"), project(tmp_path, "other")
    publish(other, "from the other")
    async with watching(unswept, root) as (_, hints):
        (root / ".ai").rename(root / "old")
        (other / ".ai").rename(root / ".ai")
        await eventually(hints.saw(root, "from the other"))
        publish(root, "later")
        await eventually(hints.saw(root, "later"))


async def test_a_project_replaced_whole_is_found_by_the_sweep(tmp_path: Path, unswept: WatchSettings) -> None:
    """Renaming the project's own folder sends no event at all; its new inode tells."""
    root, other = project(tmp_path, "root"), project(tmp_path, "other")
    async with watching(unswept, root) as (watcher, hints):
        root.rename(tmp_path / "old")
        other.rename(root)
        await watcher.sweep_now()
        for text in ("swept", "watched", "and still watched"):
            publish(root, text)
            await eventually(hints.saw(root, text))


async def test_a_project_that_is_missing_is_swept_until_it_is_there(
    tmp_path: Path, swept_often: WatchSettings
) -> None:
    """A root that does not exist costs nobody anything and is taken up when it appears."""
    there, missing = project(tmp_path, "there"), tmp_path / "missing"
    async with watching(swept_often, there, missing) as (watcher, hints):
        assert {str(missing): "the project's folder is missing"} == watcher.degraded
        publish(there, "fine")
        await eventually(hints.saw(there, "fine"))
        project(tmp_path, "missing")
        publish(missing, "here now")
        await eventually(hints.saw(missing, "here now"))
        await eventually(lambda: {} == watcher.degraded)


async def test_a_linked_ai_folder_is_neither_followed_nor_fatal(
    tmp_path: Path, unswept: WatchSettings
) -> None:
    """A link out of the project is reported and not watched."""
    elsewhere, root = project(tmp_path, "elsewhere"), tmp_path / "root"
    root.mkdir()
    (root / ".ai").symlink_to(elsewhere / ".ai")
    async with watching(unswept, root, elsewhere) as (watcher, hints):
        publish(elsewhere, "x")
        await eventually(hints.saw(elsewhere, "x"))

    assert {str(root): ".ai is not a folder"} == watcher.degraded
    assert 1 == hints.count[str(root)]


async def test_a_folder_that_comes_and_goes_all_the_time_is_left_to_the_sweep(
    tmp_path: Path, unswept: WatchSettings
) -> None:
    """One restless project cannot keep the others' watch under construction for ever."""
    restless, quiet = project(tmp_path, "restless"), project(tmp_path, "quiet")
    async with watching(unswept, restless, quiet) as (watcher, hints):

        def degraded_by_unrest() -> bool:
            (restless / ".ai").rmdir()
            (restless / ".ai").mkdir()
            return str(restless) in watcher.degraded

        await eventually(degraded_by_unrest)
        publish(quiet, "heard")
        await eventually(hints.saw(quiet, "heard"))

    assert "its .ai folder comes and goes all the time" == watcher.degraded[str(restless)]


async def test_a_hint_that_fails_does_not_end_the_watch(tmp_path: Path, unswept: WatchSettings) -> None:
    """An error in the callback is logged; the next hint comes all the same."""
    root, calls = project(tmp_path), Counter[str]()

    def touched(root: str) -> None:
        calls[root] += 1
        raise RuntimeError("the listener is broken")

    watcher = Watcher(touched, unswept)
    watcher.add(str(root))
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(watcher.run)
            await eventually(lambda: 1 == calls[str(root)])
            publish(root, "x")
            await eventually(lambda: 2 <= calls[str(root)])
            group.cancel_scope.cancel()


async def test_it_can_be_run_again_after_it_ended(tmp_path: Path, unswept: WatchSettings) -> None:
    """Whoever contains a crash of the watcher may simply run it again."""
    root, hints = project(tmp_path), Hints()
    watcher = Watcher(hints.take, unswept)
    watcher.add(str(root))
    for text in ("first", "second"):
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(watcher.run)
                publish(root, text)
                await eventually(hints.saw(root, text))
                publish(root, f"{text} again")
                await eventually(hints.saw(root, f"{text} again"))
                group.cancel_scope.cancel()


async def test_a_thousand_projects(tmp_path: Path, unswept: WatchSettings) -> None:
    """Each of a thousand projects, over all shards, is hinted by the watch."""
    roots = [project(tmp_path, f"p{number}") for number in range(1000)]
    async with watching(unswept, *roots) as (watcher, hints):
        for root in roots:
            publish(root, "x")
        await eventually(lambda: all(hints.saw(root, "x")() for root in roots), within_s=120)
        assert {} == watcher.degraded


class Told:
    """A back end that watches nothing and keeps what it was asked for."""

    def __init__(self) -> None:
        self.renewed: list[str] = []
        self.recovered = 0

    def add(self, root: str) -> None:
        """Do nothing."""

    def remove(self, root: str) -> None:
        """Do nothing."""

    def renew(self, roots: Iterable[str]) -> None:
        """Note these."""
        self.renewed += roots

    def recover(self) -> None:
        """Count it."""
        self.recovered += 1

    def configure(self, settings: WatchSettings) -> None:
        """Do nothing."""

    async def run(self, listener: Listener) -> None:
        """Wait to be cancelled."""
        await anyio.sleep_forever()


async def test_a_folder_replaced_between_placing_and_looking_is_watched_anew(tmp_path: Path) -> None:
    """And so is one that came meanwhile; what is as it was placed is left alone."""
    replaced, came, same = (project(tmp_path, name) for name in ("replaced", "came", "same"))
    told, hints = Told(), Hints()
    watcher = Watcher(hints.take, WatchSettings(), told)
    for root in (replaced, came, same):
        watcher.add(str(root))

    places = {root: place_of(str(root)) for root in (replaced, came, same)}
    await watcher.placed(
        [replace(places[replaced], ai=b"another"), replace(places[came], ai=NOWHERE), places[same]]
    )

    assert {str(replaced), str(came)} == set(told.renewed)
    assert {str(root) for root in (replaced, came, same)} == set(hints.count)


async def test_after_lost_events_everything_is_swept_and_the_back_end_recovers(tmp_path: Path) -> None:
    """In this order, and also when the next regular sweep would be in an hour."""
    root = project(tmp_path)
    told, hints = Told(), Hints()
    watcher = Watcher(hints.take, WatchSettings(sweep_s=3600), told)
    watcher.add(str(root))
    await watcher.placed([place_of(str(root))])
    publish(root, "lost")
    async with anyio.create_task_group() as group:
        group.start_soon(watcher.run)
        watcher.overflowed()
        await eventually(lambda: told.recovered)
        group.cancel_scope.cancel()

    assert hints.saw(root, "lost")()
    assert [str(root)] == told.renewed  # nobody had heard of its change
