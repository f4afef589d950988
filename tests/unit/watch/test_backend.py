"""What every back end promises the watcher, asked of each of them without it."""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.support.eventually import eventually
from tests.unit.watch.watching import project, publish

from handoffd.settings.model import WatchSettings
from handoffd.watch.backend import Backend
from handoffd.watch.folders import Place, folder_identity
from handoffd.watch.inotify_backend import InotifyBackend
from handoffd.watch.watchfiles_backend import WatchfilesBackend

_ASKED = [name for name, _ in inspect.getmembers(Backend, inspect.isfunction) if not name.startswith("_")]


class Recorder:
    """A listener that keeps what it is told."""

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
        """Return what was said of it."""
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
async def running(backend: Backend) -> AsyncIterator[Recorder]:
    """Run a back end for as long as the block lasts."""
    recorder = Recorder()
    with anyio.fail_after(120):
        async with anyio.create_task_group() as group:
            group.start_soon(backend.run, recorder)
            yield recorder
            group.cancel_scope.cancel()


@pytest.mark.parametrize("kind", [InotifyBackend, WatchfilesBackend])
@pytest.mark.parametrize("name", _ASKED)
def test_everything_asked_for_is_there(kind: type, name: str) -> None:
    """With the same parameters, and awaited where it is awaited."""
    asked, given = getattr(Backend, name), getattr(kind, name)

    assert list(inspect.signature(asked).parameters) == list(inspect.signature(given).parameters)
    assert inspect.iscoroutinefunction(asked) == inspect.iscoroutinefunction(given)


async def test_what_is_placed_is_heard(backend: Backend, tmp_path: Path) -> None:
    """Whether it was added before it ran or later; where it is watched is said."""
    first, second = project(tmp_path, "first"), project(tmp_path, "second")
    backend.add(str(first))
    async with running(backend) as told:
        await eventually(lambda: told.where(first))
        backend.add(str(second))
        await eventually(lambda: told.where(second))
        for root in (first, second):
            publish(root, "x")
            await eventually(lambda root=root: str(root) in told.heard)  # type: ignore[misc]

    place = told.where(second)
    assert place is not None
    assert (f"{second}/.ai", None) == (place.folder, place.why_not)
    assert folder_identity(f"{second}/.ai") == place.ai


async def test_what_cannot_be_watched_is_placed_with_the_reason(backend: Backend, tmp_path: Path) -> None:
    """Nobody waits for it in vain."""
    backend.add(str(tmp_path / "missing"))
    async with running(backend) as told:
        place = await eventually(lambda: told.where(tmp_path / "missing"))

    assert place is not None
    assert (None, "the project's folder is missing") == (place.folder, place.why_not)


async def test_who_is_barred_is_not_watched(backend: Backend, tmp_path: Path) -> None:
    """Until it is renewed without a bar."""
    root, other = project(tmp_path, "root"), project(tmp_path, "other")
    backend.add(str(root))
    backend.add(str(other))
    async with running(backend) as told:
        await eventually(lambda: told.where(root) and told.where(other))
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


async def test_a_folder_that_goes_is_told_of_and_found_anew(backend: Backend, tmp_path: Path) -> None:
    """Where there is none it is waited for in the root."""
    root = project(tmp_path)
    backend.add(str(root))
    async with running(backend) as told:
        await eventually(lambda: told.where(root))
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
    backend.add(str(other))
    async with running(backend) as told:
        await eventually(lambda: told.where(other))
        assert told.where(root) is None
        backend.add(str(root))
        await eventually(lambda: told.where(root))
