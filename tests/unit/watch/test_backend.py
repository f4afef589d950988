"""The promises of every back end, without the watcher; which one is used, and its demand on the kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import anyio
import pytest
from tests.support.eventually import eventually
from tests.unit.watch.watching import project, publish

from handoffd.settings.model import WatchSettings
from handoffd.watch.backend import Backend, Demand, demand
from handoffd.watch.folders import Place, folder_identity
from handoffd.watch.inotify_backend import InotifyBackend
from handoffd.watch.watcher import backend_of
from handoffd.watch.watchfiles_backend import WatchfilesBackend


class Recorder:
    """A listener that keeps its calls."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.gone: list[str] = []
        self.found: list[Place] = []
        self.overflows = 0
        self.bars: dict[str, str] = {}

    def touched(self, roots: Iterable[str]) -> None:
        """Note these."""
        self.heard += roots

    def moved(self, roots: Iterable[str]) -> None:
        """Note these."""
        self.gone += roots

    def overflowed(self) -> None:
        """Count it."""
        self.overflows += 1

    def barred(self, root: str) -> str | None:
        """Return why it was barred."""
        return self.bars.get(root)

    def bar(self, root: str, why: str) -> None:
        """Note it."""
        self.bars[root] = why

    async def placed(self, places: Sequence[Place]) -> None:
        """Note these."""
        self.found += places

    def where(self, root: Path) -> Place | None:
        """Return where a project was placed last."""
        return next((place for place in reversed(self.found) if place.root == str(root)), None)


@pytest.fixture(params=[InotifyBackend, WatchfilesBackend])
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each of them."""
    return InotifyBackend() if request.param is InotifyBackend else WatchfilesBackend(WatchSettings())


@asynccontextmanager
async def running(backend: Backend, *roots: Path) -> AsyncIterator[Recorder]:
    """Run a back end that has placed these, for as long as the block lasts."""
    recorder = Recorder()
    for root in roots:
        backend.add(str(root))
    with anyio.fail_after(120):
        async with anyio.create_task_group() as group:
            group.start_soon(backend.run, recorder)
            await eventually(lambda: all(map(recorder.where, roots)))
            yield recorder
            group.cancel_scope.cancel()


async def test_a_placed_project_is_heard(backend: Backend, tmp_path: Path) -> None:
    """Whether it was added before the run or later; the listener gets its place."""
    first, second = project(tmp_path, "first"), project(tmp_path, "second")
    async with running(backend, first) as told:
        backend.add(str(second))
        await eventually(lambda: told.where(second))
        for root in (first, second):
            publish(root, "x")
            await eventually(lambda root=root: str(root) in told.heard)  # type: ignore[misc]

    place = told.where(second)
    assert place is not None
    assert (f"{second}/.ai", None) == (place.folder, place.why_not)
    assert folder_identity(f"{second}/.ai") == place.ai


async def test_a_project_that_cannot_be_watched_is_placed_with_the_reason(
    backend: Backend, tmp_path: Path
) -> None:
    """The watcher does not wait for it in vain."""
    async with running(backend, tmp_path / "missing") as told:
        place = told.where(tmp_path / "missing")

    assert place is not None
    assert (None, "the project's folder is missing") == (place.folder, place.why_not)


async def test_a_barred_project_is_not_watched(backend: Backend, tmp_path: Path) -> None:
    """Until it is renewed without a bar."""
    root, other = project(tmp_path, "root"), project(tmp_path, "other")
    async with running(backend, root, other) as told:
        told.bar(str(root), "it never rests")
        told.found.clear()
        backend.renew([str(root)])
        place = await eventually(lambda: told.where(root))
        publish(root, "unheard")
        publish(other, "heard")
        await eventually(lambda: str(other) in told.heard)
        unheard = str(root) not in told.heard
        told.bars.clear()
        told.found.clear()
        backend.renew([str(root)])
        await eventually(lambda: told.where(root))
        publish(root, "heard")
        await eventually(lambda: str(root) in told.heard)

    assert place is not None
    assert (None, "it never rests", True) == (place.folder, place.why_not, unheard)


async def test_a_folder_that_vanishes_is_reported_and_found_anew(backend: Backend, tmp_path: Path) -> None:
    """Until it is there again, the root is watched."""
    root = project(tmp_path)
    async with running(backend, root) as told:
        os.rename(root / ".ai", root / "old")
        await eventually(lambda: str(root) in told.gone)
        backend.renew([str(root)])
        await eventually(lambda: (place := told.where(root)) and place.folder == str(root))
        told.gone.clear()
        os.mkdir(root / ".ai")
        await eventually(lambda: str(root) in told.gone)


async def test_a_project_that_was_removed_is_not_placed_any_more(backend: Backend, tmp_path: Path) -> None:
    """And may be added again."""
    root, other = project(tmp_path, "root"), project(tmp_path, "other")
    backend.add(str(root))
    backend.remove(str(root))
    async with running(backend, other) as told:
        assert told.where(root) is None
        backend.add(str(root))
        await eventually(lambda: told.where(root))


# --- which one is used -------------------------------------------------------------------------------
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no inotify")


def test_each_can_be_asked_for() -> None:
    """By its name."""
    assert isinstance(backend_of(WatchSettings(backend="inotify")), InotifyBackend)
    assert isinstance(backend_of(WatchSettings(backend="watchfiles")), WatchfilesBackend)


@ON_LINUX
def test_on_linux_the_default_is_inotify() -> None:
    """And watchfiles, which is not used, is not loaded."""
    assert isinstance(backend_of(WatchSettings()), InotifyBackend)

    script = (
        "import sys\n"
        "from handoffd.settings.model import WatchSettings\n"
        "from handoffd.watch.watcher import backend_of\n"
        "backend_of(WatchSettings())\n"
        "sys.exit('watchfiles' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env={"PYTHONPATH": "daemon"})


# --- what it needs of the kernel ---------------------------------------------------------------------
@pytest.mark.parametrize(
    ("roots", "needed"),
    [
        (0, (0, 2, 0)), (1, (2, 2, 16)), (250, (500, 2, 4000)), (251, (501, 3, 4000)),
        (1000, (1250, 5, 4000)), (2000, (2500, 5, 8000)), (2001, (2502, 5, 8016)),
    ],
)  # fmt: skip
def test_with_watchfiles_the_fullest_shard_is_there_twice(roots: int, needed: tuple[int, int, int]) -> None:
    """A shard for 250 projects, four at most by default."""
    watches, instances, events = needed
    settings = WatchSettings(backend="watchfiles")

    assert Demand(watches=watches, instances=instances, events=events) == demand(roots, settings)


def test_shards_are_a_setting() -> None:
    """With one shard, everything is there twice for a moment."""
    settings = WatchSettings(backend="watchfiles", shards=1)

    assert Demand(watches=2000, instances=2, events=16000) == demand(1000, settings)


@pytest.mark.parametrize("backend_name", ["inotify", pytest.param("auto", marks=ON_LINUX)])
def test_read_directly_it_is_a_watch_for_each_project(backend_name: Literal["inotify", "auto"]) -> None:
    """In one instance; the kernel reports an overflow, so its queue may have any length."""
    assert Demand(watches=1000, instances=1, events=0) == demand(1000, WatchSettings(backend=backend_name))
