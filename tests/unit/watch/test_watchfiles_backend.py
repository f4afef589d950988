"""What is special about watching by watchfiles: what it cannot bear, and that it is built anew."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.eventually import eventually
from tests.unit.watch.watching import project, publish, touch_name_that_is_no_utf8, watching

from handoffd.settings.model import WatchSettings
from handoffd.watch.watchfiles_backend import WatchfilesBackend

UNSWEPT = WatchSettings(backend="watchfiles", sweep_s=3600)
SWEPT_OFTEN = WatchSettings(backend="watchfiles", sweep_s=0.1)


async def test_a_name_that_is_no_utf8_costs_the_others_nothing(tmp_path: Path) -> None:
    """The project at fault is left to the sweep, and said to be; its neighbours stay watched."""
    culprit, neighbour = project(tmp_path, "culprit"), project(tmp_path, "neighbour")
    async with watching(UNSWEPT, culprit, neighbour) as (watcher, hints):
        touch_name_that_is_no_utf8(culprit)
        await eventually(lambda: str(culprit) in watcher.degraded)
        for text in ("one", "two"):
            publish(neighbour, text)
            await eventually(hints.saw(neighbour, text))
        publish(culprit, "swept")
        await watcher.sweep_now()

    assert "swept" == hints.seen[str(culprit)]
    assert [str(culprit)] == list(watcher.degraded)


async def test_a_project_at_fault_is_watched_again_when_it_is_mended(tmp_path: Path) -> None:
    """It is tried again at a sweep, but not while the bad name is still there."""
    culprit = project(tmp_path)
    async with watching(SWEPT_OFTEN, culprit) as (watcher, hints):
        touch_name_that_is_no_utf8(culprit)
        await eventually(lambda: "holds a name that is not UTF-8" in watcher.degraded.get(str(culprit), ""))
        os.unlink(os.fsencode(culprit / ".ai") + b"/\xff\xfe")
        await eventually(lambda: {} == watcher.degraded)
        publish(culprit, "mended")
        await eventually(hints.saw(culprit, "mended"))


async def test_a_watch_that_went_deaf_is_built_anew(tmp_path: Path) -> None:
    """A queue that overflows says nothing: a change only the sweep saw is what gives it away."""
    root = project(tmp_path)
    async with watching(SWEPT_OFTEN, root) as (watcher, hints):
        assert isinstance(watcher._backend, WatchfilesBackend)
        (shard,) = watcher._backend._shards
        deaf = shard.watch
        assert deaf is not None
        deaf.stop()
        publish(root, "swept")
        await eventually(hints.saw(root, "swept"))
        await eventually(lambda: shard.watch not in (None, deaf))


async def test_a_path_that_is_no_utf8_cannot_be_watched(tmp_path: Path) -> None:
    """It is said why."""
    root = project(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")))
    async with watching(UNSWEPT, root) as (watcher, _):
        assert {str(root): "its path is not UTF-8"} == watcher.degraded
