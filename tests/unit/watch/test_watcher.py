"""The promise of the watcher: after every change there is a hint, whatever happens to the folders."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from msgspec.structs import replace
from tests.support.eventually import eventually
from tests.unit.watch.watching import Hints, project, publish, watching

from handoffd.settings.model import WatchSettings
from handoffd.watch.backend import Listener
from handoffd.watch.folders import NAMES, NOWHERE, place_of
from handoffd.watch.watcher import Watcher


@pytest.fixture(params=["inotify", "watchfiles"])
def unswept(request: pytest.FixtureRequest) -> WatchSettings:
    """Settings of each back end, with which every hint comes from the watch itself."""
    return WatchSettings(backend=request.param, sweep_s=3600)


@pytest.fixture
def swept_often(unswept: WatchSettings) -> WatchSettings:
    """Settings of each back end whose changes are found in any case."""
    return unswept.model_copy(update={"sweep_s": 0.1})


async def test_every_file_of_the_protocol_is_hinted(tmp_path: Path, unswept: WatchSettings) -> None:
    """Each time it is published by a rename, not only the first time."""
    roots = {name: project(tmp_path, name) for name in NAMES}
    async with watching(unswept, *roots.values()) as (_, hints):
        for name, root in roots.items():
            publish(root, "x", name)
        await eventually(lambda: all(2 <= count for count in hints.count.values()))
        for text in ("one", "two", "three"):
            publish(roots["HANDOFF.md"], text)
            await eventually(hints.saw(roots["HANDOFF.md"], text))


async def test_a_removed_project_is_not_hinted(tmp_path: Path, unswept: WatchSettings) -> None:
    """After `remove` a project gets no more hints, though its watch may live on for a moment."""
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


def made_anew(root: Path, text: str) -> None:
    """Delete `.ai`, if it is there, and make it again, as a switch between branches does."""
    shutil.rmtree(root / ".ai", ignore_errors=True)
    (root / ".ai").mkdir()
    publish(root, text)


def replaced_by_rename(root: Path, text: str) -> None:
    """Put another project's `.ai`, with its hand-off, in the place of this one's."""
    other = project(root.parent, f"other {text}")
    publish(other, text)
    (root / ".ai").rename(root / f"old {text}")
    (other / ".ai").rename(root / ".ai")


@pytest.mark.parametrize(
    ("is_there", "change"), [(False, made_anew), (True, made_anew), (True, replaced_by_rename)]
)
async def test_another_ai_folder_is_watched(
    tmp_path: Path, unswept: WatchSettings, is_there: bool, change: Callable[[Path, str], None]
) -> None:
    """It is hinted when it appears, and watched from then on; the second one, too."""
    root = project(tmp_path)
    if not is_there:
        (root / ".ai").rmdir()
    async with watching(unswept, root) as (watcher, hints):
        for text in ("one", "two"):
            change(root, text)
            await eventually(hints.saw(root, text))
            publish(root, f"{text} again")
            await eventually(hints.saw(root, f"{text} again"))
        assert {} == watcher.degraded


async def test_a_project_replaced_whole_is_found_by_the_sweep(tmp_path: Path, unswept: WatchSettings) -> None:
    """Renaming the project's own folder sends no event at all; its new inode shows it."""
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
    """A root that does not exist does not hold up the others, and is watched when it appears."""
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
    reason = "its .ai folder comes and goes all the time"
    async with watching(unswept, restless, quiet) as (watcher, hints):

        async def degraded_by_unrest() -> bool:
            (restless / ".ai").rmdir()
            (restless / ".ai").mkdir()
            why = watcher.degraded.get(str(restless), reason)
            if why != reason:  # a rebuild met the moment without the folder, and only a sweep would try again
                watcher.remove(str(restless))
                watcher.add(str(restless))
            return str(restless) in watcher.degraded and why == reason

        is_degraded: bool = await eventually(degraded_by_unrest)
        assert is_degraded
        publish(quiet, "heard")
        await eventually(hints.saw(quiet, "heard"))

    assert reason == watcher.degraded[str(restless)]


class Broken(Hints):
    """A callback that fails."""

    def take(self, root: str) -> None:
        """Look, and raise."""
        super().take(root)
        raise RuntimeError("the listener is broken")


async def test_a_hint_that_fails_does_not_end_the_watch(tmp_path: Path, unswept: WatchSettings) -> None:
    """An error in the callback is logged; the next hint comes all the same."""
    root = project(tmp_path)
    async with watching(unswept, root, hints=Broken()) as (_, hints):
        publish(root, "x")
        await eventually(hints.saw(root, "x"))


async def test_it_can_be_run_again_after_it_ended(tmp_path: Path, unswept: WatchSettings) -> None:
    """After a crash of the watcher its owner may run it again."""
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
    """A back end that watches nothing and keeps its calls."""

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


async def test_a_folder_replaced_before_its_first_sweep_is_watched_anew(tmp_path: Path) -> None:
    """And so is one that appeared meanwhile; the others are left alone."""
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


async def test_a_folder_replaced_after_a_hint_is_watched_anew(tmp_path: Path) -> None:
    """By the next sweep, as any other: what was heard a moment ago came from the old folder."""
    root, other = project(tmp_path, "root"), project(tmp_path, "other")
    told = Told()
    watcher = Watcher(Hints().take, WatchSettings(sweep_s=3600), told)
    watcher.add(str(root))
    await watcher.placed([place_of(str(root))])
    watcher.touched([str(root)])
    root.rename(tmp_path / "old")
    other.rename(root)
    async with anyio.create_task_group() as group:
        group.start_soon(watcher.run)
        watcher.overflowed()
        await eventually(lambda: told.recovered)
        group.cancel_scope.cancel()

    assert [str(root)] == told.renewed


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
    assert [str(root)] == told.renewed  # it had no hint of its change
